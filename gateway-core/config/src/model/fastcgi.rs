//! What a proxy with FastCGI targets says of scripts and parameters.

use std::path::PathBuf;

use crate::template::Template;

/// Which script a request runs on a FastCGI target, and what the target is told of the request.
#[derive(Debug, Clone, PartialEq)]
pub struct FastCgi {
    /// Where scripts are; `None` for an application, which has none.
    pub scripts: Option<Scripts>,
    /// Further parameters, in the order of their names.
    pub params: Box<[(Box<str>, ParamValue)]>,
    /// Keeps connections for further requests. Default false.
    pub keep_alive: bool,
    /// Bytes of a request body without a length that are read before it is sent. Default 1 MiB.
    pub unsized_body: u64,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamValue {
    /// The same for every request.
    Text(Box<str>),
    /// With values of the request or the target.
    Template(Template),
}

/// Where scripts are, and which one a path leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct Scripts {
    /// Their folder, as the target sees it; without a slash at its end.
    pub root: Box<str>,
    /// The same folder as the gateway sees it; `None` where scripts are not looked for.
    pub local_root: Option<PathBuf>,
    /// The script of a folder. Default `index.php`.
    pub index: Box<str>,
    /// Endings of scripts, in lower case. Default `.php`.
    pub endings: Box<[Box<str>]>,
    /// What is tried; never empty.
    pub candidates: Box<[ScriptCandidate]>,
}

impl Scripts {
    /// Whether a path ends as the name of a script does, whatever the case of its letters.
    pub fn is_script(&self, path: &[u8]) -> bool {
        self.endings.iter().any(|ending| {
            let at = path.len().checked_sub(ending.len());
            at.is_some_and(|at| path[at..].eq_ignore_ascii_case(ending.as_bytes()))
        })
    }
}

/// A path that is tried.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptCandidate {
    /// What stands before the path of the request, or all of it.
    pub before: Box<str>,
    /// What stands behind the path of the request; `None` where that is not part of it.
    pub behind: Option<Box<str>>,
    /// The query with its `?`, in place of that of the request.
    pub query: Option<Template>,
}
