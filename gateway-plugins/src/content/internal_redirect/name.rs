//! The name in `X-Accel-Redirect` or `X-Sendfile`, decoded once, and how prefixes match it.

use std::fmt::Write as _;

use percent_encoding::percent_decode;

/// Bytes of a name, as it is sent.
const MAX_NAME: usize = 4096;

/// A name without its leading slash. It has no empty, `.` or `..` segment, backslash or control character.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) path: String,
    query: Option<String>,
}

impl Name {
    /// Reads the value of a field; `None` if it is not the path of something.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let mut parts = value.splitn(2, |c| *c == b'?');
        let (path, query) = (parts.next()?, parts.next());
        if value.len() > MAX_NAME || path.first() != Some(&b'/') {
            return None;
        }
        let path = String::from_utf8(percent_decode(path).collect()).ok()?;
        let query = query.map(|query| String::from_utf8(query.to_vec())).transpose().ok()?;
        if path.chars().any(|c| c.is_control() || c == '\\') {
            return None;
        }
        let query = query.filter(|query| query.bytes().all(|c| (b'!'..=b'~').contains(&c) && c != b'#'));
        Some(Self { path: clean(&path)?, query })
    }

    /// Whether the name is a prefix, without its slashes, or lies beneath it.
    pub(super) fn is_beneath(&self, prefix: &str) -> bool {
        let rest = self.path.strip_prefix(prefix);
        rest.is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }

    /// What follows a prefix that matches.
    pub(super) fn beneath(&self, prefix: &str) -> &str {
        self.path.strip_prefix(prefix).unwrap_or_default().trim_start_matches('/')
    }

    /// A part of the path as a request has it, with the query.
    pub(super) fn encoded(&self, path: &str) -> String {
        let mut text = String::with_capacity(path.len());
        for byte in path.bytes() {
            if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
                text.push(char::from(byte));
            } else {
                _ = write!(text, "%{byte:02X}");
            }
        }
        if let Some(query) = &self.query {
            text.push('?');
            text.push_str(query);
        }
        text
    }
}

/// A prefix of the settings without its slashes; `None` if it is not a path.
pub(super) fn prefix(text: &str) -> Option<String> {
    text.starts_with('/').then(|| clean(text)).flatten().map(|path| path.trim_end_matches('/').to_owned())
}

/// A path without a leading slash and without empty segments, except that it keeps a slash at its end.
fn clean(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    if segments.iter().any(|segment| matches!(*segment, "." | "..")) {
        return None;
    }
    let end = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    Some(format!("{}{end}", segments.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_once_and_stay_beneath_their_root() {
        let path = |text: &str| Name::read(text.as_bytes()).map(|name| name.path);
        assert_eq!(path("/files/a%20b.pdf").as_deref(), Some("files/a b.pdf"));
        assert_eq!(path("/files//a").as_deref(), Some("files/a"));
        assert_eq!(path("/files/%252e").as_deref(), Some("files/%2e"));
        assert_eq!(path("/dateien/\u{e4}").as_deref(), Some("dateien/\u{e4}"));
        for bad in ["", "files/a", "/../etc/passwd", "/files/%2e%2e/x", "/a/..", "/a%5cb", "/a%00", "@named"]
        {
            assert_eq!(path(bad), None, "{bad}");
        }
        assert_eq!(Name::read(&vec![b'/'; MAX_NAME + 1]), None);
    }

    #[test]
    fn prefixes_match_whole_segments() {
        let name = Name::read(b"/files/a/b?x=1").expect("a name");
        assert!(name.is_beneath("files") && name.is_beneath("") && name.is_beneath("files/a/b"));
        assert!(!name.is_beneath("fil") && !name.is_beneath("files/a/bc"));
        assert_eq!(name.encoded(name.beneath("files")), "a/b?x=1");
        assert_eq!(prefix("/files/"), Some("files".to_owned()));
        assert_eq!((prefix("files"), prefix("/a/../b")), (None, None));
    }
}
