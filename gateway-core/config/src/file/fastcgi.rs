//! FastCGI targets as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::units::Bytes;

/// Script and parameters of requests to a FastCGI target.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FastCgi {
    /// Folder of the scripts, as the target sees it: `DOCUMENT_ROOT`, and the prefix of `SCRIPT_FILENAME`. Default
    /// none: the target is an application, which receives the whole path as `PATH_INFO`.
    #[schemars(length(min = 1, max = 4096), extend("format" = "path"))]
    pub root: Option<String>,
    /// The same folder as the gateway sees it, if that differs. Default `root`.
    #[schemars(length(min = 1, max = 4096), extend("format" = "path"))]
    pub local_root: Option<String>,
    /// Forwards a request only if its script is a file in `local_root`. Set it to false if the gateway cannot read the
    /// folder: then no folder of a script's path may have a dot in its name, so that `/a.jpg/x.php` is not forwarded.
    /// Default true.
    pub check_scripts: Option<bool>,
    /// Index script of folders. Default `index.php`.
    #[schemars(length(min = 1, max = 255))]
    pub index: Option<String>,
    /// Extensions of scripts. The path after a script is `PATH_INFO`. Default `.php`.
    #[schemars(length(min = 1, max = 16), inner(length(min = 2, max = 32)))]
    pub split_path: Option<Vec<String>>,
    /// Paths to try in this order, with `{path}` for the request's path; the first whose script exists runs. A query
    /// after `?` replaces the request's, as a template. Default `{path}`; with a front controller, `/index.php` is the
    /// last.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 1024)))]
    pub try_files: Option<Vec<String>>,
    /// Further parameters, or other values for the gateway's own. A text is a template. A list contains the lines of
    /// one parameter, such as `PHP_VALUE`, and is sent unchanged. `HTTP_PROXY` is rejected. Default none.
    #[schemars(length(max = 200))]
    pub params: BTreeMap<String, Param>,
    /// Keeps connections open for further requests. Each occupies a process of PHP-FPM. Default false.
    pub keep_alive: Option<bool>,
    /// Size of a request body without `Content-Length`, which the gateway buffers because `CONTENT_LENGTH` precedes it.
    /// A larger one gets 411. Default 1 MiB.
    #[schemars(range(max = 1_073_741_824))]
    pub unsized_body: Option<Bytes>,
}

/// Value of a parameter.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Param {
    /// A template.
    Text(String),
    /// Constant lines.
    Lines(Vec<String>),
}
