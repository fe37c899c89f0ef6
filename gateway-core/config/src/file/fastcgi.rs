//! FastCGI targets as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::units::Bytes;

/// Which script a request runs on a FastCGI target, and what the target is told of the request.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FastCgi {
    /// The folder of the scripts, as the target sees it: `DOCUMENT_ROOT`, and the beginning of `SCRIPT_FILENAME`. Default none:
    /// the target is an application, which gets the whole path as `PATH_INFO`.
    #[schemars(length(min = 1, max = 4096), extend("format" = "path"))]
    pub root: Option<String>,
    /// The same folder as the gateway sees it, where that differs. Default `root`.
    #[schemars(length(min = 1, max = 4096), extend("format" = "path"))]
    pub local_root: Option<String>,
    /// Sends a request on only if its script is a file in `local_root`. False is for folders that the gateway can't read: then no
    /// folder of a script's path may have a dot in its name, so that `/a.jpg/x.php` is not passed on. Default true.
    pub check_scripts: Option<bool>,
    /// The script of a folder. Default `index.php`.
    #[schemars(length(min = 1, max = 255))]
    pub index: Option<String>,
    /// Endings of scripts. What follows a script in the path is `PATH_INFO`. Default `.php`.
    #[schemars(length(min = 1, max = 16), inner(length(min = 2, max = 32)))]
    pub split_path: Option<Vec<String>>,
    /// Paths that are tried in this order, with `{path}` for that of the request; the first whose script exists runs. Behind a `?`
    /// stands a query in place of the request's, as a template. Default `{path}`; a front controller has `/index.php` as the last.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 1024)))]
    pub try_files: Option<Vec<String>>,
    /// Further parameters, or other values for those of the gateway. A text is a template. A list is the lines of one parameter, such as
    /// `PHP_VALUE`, and is sent as it is. `HTTP_PROXY` is rejected. Default none.
    #[schemars(length(max = 200))]
    pub params: BTreeMap<String, Param>,
    /// Keeps connections for further requests. Each occupies a process of PHP-FPM while it is kept. Default false.
    pub keep_alive: Option<bool>,
    /// Bytes of a request body without a length, which is read before it is sent: `CONTENT_LENGTH` comes first. Larger ones are
    /// answered with 411. Default 1 MiB.
    #[schemars(range(max = 1_073_741_824))]
    pub unsized_body: Option<Bytes>,
}

/// The value of a parameter.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Param {
    /// A template.
    Text(String),
    /// Lines without values of the request.
    Lines(Vec<String>),
}
