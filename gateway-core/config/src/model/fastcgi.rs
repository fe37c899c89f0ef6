//! Scripts and parameters of a proxy with FastCGI targets.

use std::path::PathBuf;

use crate::template::Template;

/// Selects the script that a request runs on a FastCGI target, and the parameters that the target receives.
#[derive(Debug, Clone, PartialEq)]
pub struct FastCgi {
    /// Selects scripts; `None` for an application without script files.
    pub scripts: Option<Scripts>,
    /// Additional parameters, sorted by name.
    pub params: Box<[(Box<str>, ParamValue)]>,
    /// Keeps connections open for further requests. Default false.
    pub keep_alive: bool,
    /// Bytes of a request body without a length that the gateway reads before it sends the request. Default 1 MiB.
    pub unsized_body: u64,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamValue {
    /// The same value for every request.
    Text(Box<str>),
    /// A value that depends on the request or the target.
    Template(Template),
}

/// The location of scripts, and the rules that map a path to a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Scripts {
    /// The folder of the scripts as the target sees it, without a slash at the end.
    pub root: Box<str>,
    /// The same folder as the gateway sees it; `None` if the gateway does not look for scripts.
    pub local_root: Option<PathBuf>,
    /// The script that runs for a folder. Default `index.php`.
    pub index: Box<str>,
    /// Endings of scripts, in lower case. Default `.php`.
    pub endings: Box<[Box<str>]>,
    /// The entries of `try_files`; never empty.
    pub candidates: Box<[ScriptCandidate]>,
}

impl Scripts {
    /// Whether a path ends with one of `endings`, in upper or lower case.
    pub fn is_script(&self, path: &[u8]) -> bool {
        self.endings.iter().any(|ending| {
            let at = path.len().checked_sub(ending.len());
            at.is_some_and(|at| path[at..].eq_ignore_ascii_case(ending.as_bytes()))
        })
    }
}

/// An entry of `try_files`.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptCandidate {
    /// The text before the path of the request, or the whole entry.
    pub before: Box<str>,
    /// The text after the path of the request; `None` if the entry does not contain the path.
    pub behind: Option<Box<str>>,
    /// The query with its `?`, which replaces the query of the request.
    pub query: Option<Template>,
}
