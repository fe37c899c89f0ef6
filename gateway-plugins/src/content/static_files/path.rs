//! From the path of a request to a path beneath the root.

use percent_encoding::percent_decode_str;

/// Bytes of a path that is looked for.
const MAX_PATH: usize = 4096;
/// Bytes of a name, as the system has it.
const MAX_NAME: usize = 255;

/// Why a path leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadPath {
    /// It can't be understood in one way only: 400.
    Malformed,
    /// It names nothing that may be served: 404.
    Nowhere,
}

/// The path beneath the root that a request path means, without a slash at its ends, and whether it had one behind it.
/// Decoded once; what is encoded twice stays encoded.
pub(super) fn beneath(path: &str, hidden: bool) -> Result<(String, bool), BadPath> {
    if path.len() > 3 * MAX_PATH {
        return Err(BadPath::Nowhere);
    }
    let path = path.strip_prefix('/').ok_or(BadPath::Malformed)?;
    let has_slash = path.is_empty() || path.ends_with('/');
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut clean = String::with_capacity(path.len());
    for (n, segment) in path.split('/').enumerate() {
        let name: Vec<u8> = percent_decode_str(segment).collect();
        if name.iter().any(|c| matches!(c, 0 | b'/' | b'\\')) {
            return Err(BadPath::Malformed);
        }
        let name = String::from_utf8(name).map_err(|_| BadPath::Nowhere)?;
        if path.is_empty() {
            break;
        }
        if matches!(name.as_str(), "" | "." | "..") {
            return Err(BadPath::Malformed);
        }
        // RFC 8615 has its own place; everything else that begins with a dot is hidden.
        let is_known = n == 0 && name == ".well-known";
        if name.len() > MAX_NAME || (name.starts_with('.') && !hidden && !is_known) {
            return Err(BadPath::Nowhere);
        }
        if n > 0 {
            clean.push('/');
        }
        clean.push_str(&name);
    }
    if clean.len() > MAX_PATH { Err(BadPath::Nowhere) } else { Ok((clean, has_slash)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Beneath = Result<(&'static str, bool), BadPath>;

    #[test]
    fn paths() {
        use BadPath::{Malformed, Nowhere};
        let long = format!("/{}", "x".repeat(256));
        let cases: &[(&str, Beneath)] = &[
            ("/", Ok(("", true))),
            ("/a", Ok(("a", false))),
            ("/a/", Ok(("a", true))),
            ("/a/b.html", Ok(("a/b.html", false))),
            ("/%C3%A4%20b", Ok(("ä b", false))),
            ("/%252e%252e/x", Ok(("%2e%2e/x", false))),
            ("/a%2fb", Err(Malformed)),
            ("/a%5Cb", Err(Malformed)),
            ("/a%00.html", Err(Malformed)),
            ("/../x", Err(Malformed)),
            ("/%2e%2e/x", Err(Malformed)),
            ("/a//b", Err(Malformed)),
            ("/./a", Err(Malformed)),
            ("a", Err(Malformed)),
            ("/.git/config", Err(Nowhere)),
            ("/a/.env", Err(Nowhere)),
            ("/%2eenv", Err(Nowhere)),
            ("/.well-known/x", Ok((".well-known/x", false))),
            ("/a/.well-known/x", Err(Nowhere)),
            ("/%ff", Err(Nowhere)),
            (&long, Err(Nowhere)),
        ];
        for (path, expected) in cases {
            let found = beneath(path, false);
            let found = found.as_ref().map(|(path, slash)| (path.as_str(), *slash)).map_err(|why| *why);
            assert_eq!(found, *expected, "{path}");
        }
        assert_eq!(beneath("/.env", true), Ok((".env".into(), false)));
        assert_eq!(beneath("/%2e%2e/x", true), Err(Malformed));
    }
}
