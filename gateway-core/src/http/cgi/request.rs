//! What is told, and the scripts that may answer.

/// What a target is told of a request, without its header fields.
#[derive(Debug, Clone, Default)]
pub struct CgiRequest {
    /// Variables with their values, all but those that depend on the script.
    pub variables: Variables,
    /// Scripts that may answer, the first that exists; empty for an application without scripts.
    pub scripts: Vec<Script>,
    /// The part of the client's path that the target's does not have: what `SCRIPT_NAME` begins with.
    pub prefix: Vec<u8>,
    /// The query, where the script that is found has none of its own.
    pub query: Vec<u8>,
    /// The path as it is, where there are no scripts.
    pub path: Vec<u8>,
}

/// Names with values, in one piece of memory.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    text: Vec<u8>,
    /// Where each name and each value ends.
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

    /// Names and values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |(name, value)| {
            let start = std::mem::replace(&mut begin, *value);
            (&self.text[start..*name], &self.text[*name..*value])
        })
    }

    /// Whether there is a variable of this name.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(known, _)| known == name.as_bytes())
    }
}

/// A script that may answer a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Its path beneath the root, with a slash at its beginning: without dot segments or hidden names.
    pub name: Vec<u8>,
    /// What follows it in the path.
    pub path_info: Vec<u8>,
    /// The query, in place of the request's.
    pub query: Option<Vec<u8>>,
}
