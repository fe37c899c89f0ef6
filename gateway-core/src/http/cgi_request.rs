//! The CGI request, and the scripts that may answer it.

/// A request as the target receives it, without its header fields.
#[derive(Debug, Clone, Default)]
pub struct CgiRequest {
    /// The variables, except those that depend on the script.
    pub variables: Variables,
    /// Candidate scripts; the first one that exists runs. Empty for an application without scripts.
    pub scripts: Vec<Script>,
    /// The part of the client's path that the gateway stripped: the beginning of `SCRIPT_NAME`.
    pub prefix: Vec<u8>,
    /// The query; used if the selected script has no query of its own.
    pub query: Vec<u8>,
    /// The decoded path; used if there are no scripts.
    pub path: Vec<u8>,
}

/// Names and values in one buffer.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    text: Vec<u8>,
    /// The end of each name and of each value.
    ends: Vec<(usize, usize)>,
}

impl Variables {
    /// Adds a variable.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.text.extend_from_slice(name.as_bytes());
        let end = self.text.len();
        self.text.extend_from_slice(value);
        self.ends.push((end, self.text.len()));
    }

    /// Names and values in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |(name, value)| {
            let start = std::mem::replace(&mut begin, *value);
            (&self.text[start..*name], &self.text[*name..*value])
        })
    }

    /// Whether a variable of this name exists.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(known, _)| known == name.as_bytes())
    }
}

/// A candidate script of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The path below the root. It starts with a slash and has no dot segments or hidden names.
    pub name: Vec<u8>,
    /// The rest of the path after the script.
    pub path_info: Vec<u8>,
    /// A query that replaces the query of the request.
    pub query: Option<Vec<u8>>,
}
