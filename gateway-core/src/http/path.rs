//! Paths: the one spelling a request is routed and forwarded by, so that no spelling slips past a plugin, and what becomes
//! of those that targets may read in another way than the gateway.

use std::borrow::Cow;

use super::reply::{Cause, Reply};
use crate::config::model::{Parameters, PathPolicy, PathRules};
pub use crate::config::spelling::{InvalidPath, Oddities, in_request_spelling};
use crate::config::spelling::{NEEDS_NO_LOOK, Undecodable, decode, escape, is_reserved};

/// The other ways in which targets may read a normal path: with escaped reserved characters written plainly, without the parameters of
/// its segments, and both. Empty for most paths, which costs a look for `%` and `;`.
pub fn other_readings(path: &str) -> impl Iterator<Item = String> {
    let plain = plain(path);
    let bare = memchr::memchr(b';', path.as_bytes()).map(|_| without_parameters(path));
    let both = plain.as_deref().filter(|_| bare.is_some()).map(without_parameters);
    [plain, bare, both].into_iter().flatten()
}

/// A normal path with such characters written plainly, as many targets read it; `None` where it has none that are escaped.
fn plain(path: &str) -> Option<String> {
    // Most paths have none, and conditions ask for each request.
    if !path.contains('%') {
        return None;
    }
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, escaped) = rest.split_at(at);
        let value =
            escape(&escaped.as_bytes()[1..]).map(|(value, _)| value).filter(|value| is_reserved(*value));
        plain.push_str(before);
        match value {
            Some(value) => plain.push(value.into()),
            None => plain.push_str(escaped.get(..3)?),
        }
        rest = escaped.get(3..)?;
    }
    plain.push_str(rest);
    (plain.len() < path.len()).then_some(plain)
}

/// A path in its one spelling.
#[derive(Debug)]
pub struct Normal<'p> {
    /// Path and query; borrowed when it was clean already, which is the rule.
    pub text: Cow<'p, str>,
    /// What the proxy's rules decide on.
    pub oddities: Oddities,
}

/// The path to route and forward by: dot segments resolved, doubled slashes merged if asked to, escaped unreserved
/// characters written plainly, octets that a path may not contain raw (RFC 3986 §3.3) escaped, escapes in capitals (§6.2.2), the
/// query untouched.
///
/// # Errors
/// A path that no two readers agree on and no rule allows: a NUL, a broken escape, a fragment, a dot segment with
/// parameters.
pub fn normalise(path_and_query: &str, merge_slashes: bool) -> Result<Normal<'_>, Box<Reply>> {
    let bytes = path_and_query.as_bytes();
    let end = memchr::memchr(b'?', bytes).unwrap_or(bytes.len());
    let path = &bytes[..end];
    let clean = Normal { text: Cow::Borrowed(path_and_query), oddities: Oddities::default() };
    if path == b"*" || is_clean(path, merge_slashes) {
        return Ok(clean);
    }
    let (mut clean, oddities) = rebuild(path, merge_slashes)?;
    clean.push_str(&String::from_utf8_lossy(&bytes[end..]));
    Ok(Normal { text: Cow::Owned(clean), oddities })
}

fn is_clean(path: &[u8], merge_slashes: bool) -> bool {
    let mut previous = 0_u8;
    let mut clean = path.first() == Some(&b'/');
    for &c in path {
        match c {
            b'.' if previous == b'/' => clean = false,
            b'/' if previous == b'/' && merge_slashes => clean = false,
            c => clean &= NEEDS_NO_LOOK[usize::from(c)],
        }
        previous = c;
    }
    clean
}

fn bad(detail: &'static str) -> Box<Reply> {
    Box::new(Reply::new(Cause::BadRequest).detail(detail))
}

fn undecodable(reason: Undecodable) -> Box<Reply> {
    bad(match reason {
        Undecodable::Malformed => MALFORMED,
        Undecodable::Nul => "the path has a NUL",
    })
}

const MALFORMED: &str = "the request target is malformed";

fn rebuild(path: &[u8], merge_slashes: bool) -> Result<(String, Oddities), Box<Reply>> {
    let (decoded, oddities) = decode(path).map_err(undecodable)?;
    let mut out: Vec<&[u8]> = Vec::new();
    let rooted = decoded.strip_prefix(b"/").unwrap_or(&decoded);
    let mut segments = rooted.split(|c| *c == b'/').peekable();
    let mut trailing_slash = false;
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"" if last => trailing_slash = true,
            b"" if merge_slashes => {}
            b"." => trailing_slash = last,
            b".." => {
                out.pop();
                trailing_slash = last;
            }
            // Servlet containers drop parameters, and what is left leads elsewhere.
            [b'.', b';', ..] | [b'.', b'.', b';', ..] => return Err(bad("a dot segment has parameters")),
            _ => out.push(segment),
        }
    }
    let mut clean = String::with_capacity(decoded.len());
    for segment in &out {
        clean.push('/');
        clean.push_str(std::str::from_utf8(segment).map_err(|_| bad(MALFORMED))?);
    }
    if trailing_slash || out.is_empty() {
        clean.push('/');
    }
    Ok((clean, oddities))
}

/// Applies a proxy's rules to a normal path with `oddities`. The path to use instead, where there is one, is normal and has
/// to be routed again.
///
/// # Errors
/// The refusal, where the rules say so, or where the path is still odd after it was decoded.
pub fn respell(
    path: &str,
    oddities: Oddities,
    rules: PathRules,
    merge_slashes: bool,
) -> Result<Option<String>, Box<Reply>> {
    let Some(decoded) = settle(path, oddities, rules)? else { return Ok(None) };
    let once = normalise(&decoded, merge_slashes)?;
    // A target that decodes once more would read another path than the one that is routed by.
    let more = || bad("the path is encoded more than twice");
    if once.oddities.double && rules.double_encoding == PathPolicy::Decode {
        return Err(more());
    }
    // What came out of `%25` may be odd itself.
    let Some(decoded) = settle(&once.text, once.oddities, rules)? else {
        return Ok(Some(once.text.into_owned()));
    };
    let twice = normalise(&decoded, merge_slashes)?;
    match settle(&twice.text, twice.oddities, rules)? {
        None => Ok(Some(twice.text.into_owned())),
        Some(_) => Err(more()),
    }
}

/// The refusal of a path that a proxy's rules make one of another proxy.
pub fn leads_elsewhere() -> Box<Reply> {
    bad("decoded, the path leads to another proxy")
}

/// One step of [`respell`]. What is encoded twice is decoded first and alone: what comes out of it may be spelled in any way.
fn settle(path: &str, oddities: Oddities, rules: PathRules) -> Result<Option<String>, Box<Reply>> {
    let found = [
        (oddities.slash, rules.encoded_slash, "the path has an encoded slash"),
        (oddities.backslash, rules.backslash, "the path has a backslash"),
        (oddities.double, rules.double_encoding, "the path is encoded twice"),
    ];
    for (is_there, policy, detail) in found {
        if is_there && policy == PathPolicy::Refuse {
            return Err(bad(detail));
        }
    }
    if oddities.parameters && rules.parameters == Parameters::Refuse {
        return Err(bad("the path has parameters"));
    }
    let decodes = |is_there, policy| is_there && policy == PathPolicy::Decode;
    let mut text = Cow::Borrowed(path);
    let mut replace = |wanted: bool, from: &str, to: &str| {
        if wanted {
            text = Cow::Owned(text.replace(from, to));
        }
    };
    if decodes(oddities.double, rules.double_encoding) {
        return Ok(Some(path.replace("%25", "%")));
    }
    replace(decodes(oddities.slash, rules.encoded_slash), "%2F", "/");
    replace(decodes(oddities.backslash, rules.backslash), "%5C", "/");
    if oddities.parameters && rules.parameters == Parameters::Remove {
        text = Cow::Owned(without_parameters(&text));
    }
    Ok(match text {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    })
}

fn without_parameters(path: &str) -> String {
    let name = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
    path.split('/').map(name).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn path(given: &str, expected: Option<&str>) {
        let normal = normalise(given, true).ok();
        assert_eq!(normal.as_ref().map(|normal| &*normal.text), expected, "{given}");
    }

    #[test]
    fn paths_have_one_spelling() {
        path("/", Some("/"));
        path("/a/b?x=/../%2e", Some("/a/b?x=/../%2e"));
        path("/a/./b/../c", Some("/a/c"));
        path("/a/%2e%2E/admin", Some("/admin"));
        path("//admin///x", Some("/admin/x"));
        path("/../../etc", Some("/etc"));
        path("/a/..", Some("/"));
        path("/a/b/.", Some("/a/b/"));
        path("/%41%7e%2f%3f", Some("/A~%2F%3F"));
        path("/.well-known/x", Some("/.well-known/x"));
        path("/a;b=c/d", Some("/a;b=c/d"));
        path("/caf\u{e9}", Some("/caf%C3%A9"));
        path("/caf%c3%a9", Some("/caf%C3%A9"));
        path("/a|b\"c<d>e[f]g^h`i{j}", Some("/a%7Cb%22c%3Cd%3Ee%5Bf%5Dg%5Eh%60i%7Bj%7D"));
        path("/!$&'()*+,=:@-._~", Some("/!$&'()*+,=:@-._~"));
        path("/a\\b%5cc", Some("/a%5Cb%5Cc"));
        path("*", Some("*"));
    }

    #[test]
    fn doubled_slashes_stay_if_asked_to() {
        for (given, expected) in [
            ("/a//b", "/a//b"),
            ("//a/./b//", "//a/b//"),
            ("/a//../b", "/a/b"),
            ("//../b", "/b"),
            ("/a/b//%41", "/a/b//A"),
            ("//", "//"),
        ] {
            assert_eq!(normalise(given, false).unwrap().text, expected, "{given}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for bad in ["/a%00b", "/a%2", "/a%zz", "/a#b", "/a/..;/b", "/a/.;x/b", "/a/%2e%2e;/b", "/..;"] {
            path(bad, None);
        }
    }

    #[test]
    fn normalising_twice_changes_nothing() {
        for merge in [true, false] {
            for given in ["/a/./b/../c", "//x//", "/%41%2f", "/..//..//a/", "/a\\b;c"] {
                let once = normalise(given, merge).unwrap().text.into_owned();
                assert_eq!(normalise(&once, merge).unwrap().text, once);
            }
        }
    }

    #[test]
    fn what_targets_may_read_otherwise_is_found() {
        let none = Oddities::default();
        for (given, expected) in [
            ("/a%20b%3F", none),
            ("/100%25", none),
            ("/100%25 ".trim_end(), none),
            ("/a%25", none),
            ("/a%25zz", none),
            ("/a%2541", Oddities { double: true, ..none }),
            ("/caf%25C3%25A9", Oddities { double: true, ..none }),
            ("/a%2Fb", Oddities { slash: true, ..none }),
            ("/a%5cb", Oddities { backslash: true, ..none }),
            ("/a\\b", Oddities { backslash: true, ..none }),
            ("/a;b", Oddities { parameters: true, ..none }),
            ("/a%252fb", Oddities { double: true, ..none }),
            ("/%252e%252e/b", Oddities { double: true, ..none }),
            ("/a%25252fb", Oddities { double: true, ..none }),
            ("/a%2500", Oddities { double: true, ..none }),
            ("/a?b=%2F;%252f", none),
            ("/a%3ab%40", Oddities { reserved: true, ..none }),
        ] {
            assert_eq!(normalise(given, true).unwrap().oddities, expected, "{given}");
        }
    }

    #[test]
    fn targets_may_read_a_path_in_other_ways() {
        for (given, expected) in [
            ("/a%3Ab%40%2B", &["/a:b@+"][..]),
            ("/%21%24%26%27%28%29%2A%2C%3D", &["/!$&'()*,="]),
            ("/%3A%C3%A4", &["/:%C3%A4"]),
            ("/a%2Fb%3Bc%25%20", &[]),
            ("/a", &[]),
            ("/admin;x=1/users;y", &["/admin/users"]),
            ("/a%3Ab;x", &["/a:b;x", "/a%3Ab", "/a:b"]),
        ] {
            assert_eq!(other_readings(given).collect::<Vec<_>>(), expected, "{given}");
        }
    }

    #[test]
    fn configured_paths_take_the_spelling_of_requests() {
        for (given, expected) in [
            ("/m\u{fc}nchen", Some("/m%C3%BCnchen")),
            ("/m%c3%bcnchen", Some("/m%C3%BCnchen")),
            ("/%61/../b//", Some("/a/../b//")),
            ("/a|b", Some("/a%7Cb")),
            ("/a%", None),
            ("/a%zz", None),
            ("/a b", None),
            ("/a%00", None),
        ] {
            assert_eq!(in_request_spelling(given).ok().as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn rules_refuse_keep_or_decode() {
        let settled = |given: &str, rules| {
            let normal = normalise(given, true).unwrap();
            respell(&normal.text, normal.oddities, rules, true).map_err(|reply| reply.cause)
        };
        let odd = ["/a%2Fb", "/a%5Cb", "/a%252fb"];
        for given in odd {
            assert_eq!(settled(given, PathRules::default()), Err(Cause::BadRequest), "{given}");
        }
        assert_eq!(settled("/a;b/c", PathRules::default()), Ok(None));
        let all = |policy, parameters| PathRules {
            encoded_slash: policy,
            backslash: policy,
            double_encoding: policy,
            parameters,
        };
        let keep = all(PathPolicy::Keep, Parameters::Refuse);
        assert!(odd.iter().all(|given| settled(given, keep) == Ok(None)));
        assert_eq!(settled("/a;b/c", keep), Err(Cause::BadRequest));
        let decode = all(PathPolicy::Decode, Parameters::Remove);
        for (given, expected) in [
            ("/a%2Fb", "/a/b"),
            ("/a%5Cb", "/a/b"),
            ("/a%252fb", "/a/b"),
            ("/a%255cb", "/a/b"),
            ("/a/x%252F..%252fb", "/a/b"),
            ("/a/x%252F%252e%252E%2fb", "/a/b"),
            ("/a;b/c;d", "/a/c"),
        ] {
            assert_eq!(settled(given, decode).unwrap().as_deref(), Some(expected), "{given}");
        }
        for given in ["/a%25252fb", "/a%2525%32fb", "/a%2500b", "/a%252fb%25zz", "/a/%252e%252e;x/b"] {
            assert_eq!(settled(given, decode), Err(Cause::BadRequest), "{given}");
        }
        // What is encoded once only by then is for the other rules to decide on.
        let twice = |slash| PathRules { encoded_slash: slash, ..decode };
        assert_eq!(settled("/a%252fb", twice(PathPolicy::Keep)).unwrap().as_deref(), Some("/a%2Fb"));
        assert_eq!(settled("/a%252fb", twice(PathPolicy::Refuse)), Err(Cause::BadRequest));
    }
}
