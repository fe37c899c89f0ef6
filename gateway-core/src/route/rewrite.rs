//! The path sent upstream: the listen path cut off, the backend path put before it, the query as it came.

use std::borrow::Cow;

/// The request target for the upstream.
///
/// `path_and_query` is the client's, beginning with `/`; `matched` is [`super::RouteMatch::matched`]. `backend_path`
/// may end with `/` or not. The result always begins with `/`, and the query follows byte for byte.
/// Nothing is allocated when the target stays as it is or only loses a prefix that ends before a `/`.
pub fn forward_path<'a>(
    path_and_query: &'a str,
    matched: usize,
    strip: bool,
    backend_path: Option<&str>,
) -> Cow<'a, str> {
    let rest = if strip { path_and_query.get(matched..).unwrap_or(path_and_query) } else { path_and_query };
    let base = backend_path.unwrap_or("").trim_end_matches('/');
    if base.is_empty() && rest.starts_with('/') {
        return Cow::Borrowed(rest);
    }
    let mut target = String::with_capacity(base.len() + rest.len() + 2);
    if !base.starts_with('/') {
        target.push('/');
    }
    target.push_str(base);
    // The matched part may end inside a segment (a regex), or take all of the path: a base then needs no slash.
    if !base.is_empty() && !rest.is_empty() && !rest.starts_with(['/', '?']) {
        target.push('/');
    }
    target.push_str(rest);
    Cow::Owned(target)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cuts_and_prefixes() {
        let cases = [
            // target, matched, strip, backend path, forwarded
            ("/", 0, true, None, "/"),
            ("/api/users?id=1", 4, true, None, "/users?id=1"),
            ("/api", 4, true, None, "/"),
            ("/api/", 4, true, None, "/"),
            ("/api?x=/y", 4, true, None, "/?x=/y"),
            ("/api/users", 4, false, None, "/api/users"),
            ("/api/users", 4, true, Some("/v2"), "/v2/users"),
            ("/api/users", 4, true, Some("/v2/"), "/v2/users"),
            ("/api/users", 4, false, Some("/v2"), "/v2/api/users"),
            ("/api", 4, true, Some("/v2"), "/v2"),
            ("/api?q", 4, true, Some("/v2"), "/v2?q"),
            ("/api/", 4, true, Some("/v2"), "/v2/"),
            ("/user-7", 6, true, None, "/7"),
            ("/user-7", 6, true, Some("/v2"), "/v2/7"),
            ("/a?%zz=\u{e9}&a=b&a=c", 2, true, None, "/?%zz=\u{e9}&a=b&a=c"),
            ("/a", 0, true, Some("/"), "/a"),
            ("/a", 0, true, Some("v2"), "/v2/a"),
            ("/a", 99, true, None, "/a"),
        ];
        for (target, matched, strip, base, expected) in cases {
            assert_eq!(
                forward_path(target, matched, strip, base),
                expected,
                "{target} {matched} {strip} {base:?}"
            );
        }
    }

    #[test]
    fn borrows_when_nothing_is_put_before() {
        assert!(matches!(forward_path("/a/b?c", 2, true, None), Cow::Borrowed("/b?c")));
        assert!(matches!(forward_path("/a/b?c", 2, false, None), Cow::Borrowed("/a/b?c")));
        assert!(matches!(forward_path("/a/b?c", 0, true, Some("/")), Cow::Borrowed("/a/b?c")));
    }

    proptest! {
        #[test]
        fn always_rooted_and_keeps_the_query(
            path in "/[a-c/%\u{e9}]{0,12}",
            query in proptest::option::of("[a-c/?&=%]{0,12}"),
            matched in 0usize..14,
            strip: bool,
            base in proptest::option::of("(/[a-c]{1,3}){0,3}/?"),
        ) {
            let target = match &query {
                Some(query) => format!("{path}?{query}"),
                None => path.clone(),
            };
            let matched = matched.min(path.len());
            let forwarded = forward_path(&target, matched, strip, base.as_deref());
            prop_assert!(forwarded.starts_with('/'));
            prop_assert_eq!(forwarded.split_once('?').map(|(_, q)| q), query.as_deref());
        }
    }
}
