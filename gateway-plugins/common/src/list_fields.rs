//! Header fields that are lists, to which the target and several plugins contribute: each adds its own members and leaves the others.

use http::header::{Entry, HeaderName};
use http::{HeaderMap, HeaderValue};

/// Adds names to a list of names such as `Vary` or `Access-Control-Expose-Headers`. Those that are there already, in whatever
/// case, are not repeated, and nothing is added to `*`.
pub fn add_names(headers: &mut HeaderMap, field: HeaderName, names: &HeaderValue) {
    match headers.entry(field) {
        Entry::Vacant(place) => _ = place.insert(names.clone()),
        Entry::Occupied(mut place) => {
            let has = |name: &[u8]| {
                let known = place.iter().flat_map(|value| members(value.as_bytes()));
                known.into_iter().any(|known| known == b"*" || known.eq_ignore_ascii_case(name))
            };
            let all = members(names.as_bytes()).count();
            let missing: Vec<&[u8]> = members(names.as_bytes()).filter(|name| !has(name)).collect();
            match missing.len() {
                0 => {}
                count if count == all => place.append(names.clone()),
                _ => {
                    // Parts of a valid value are one.
                    if let Ok(rest) = HeaderValue::from_bytes(&missing.join(&b", "[..])) {
                        place.append(rest);
                    }
                }
            }
        }
    }
}

/// Adds a member to a list such as `Link`, `Server-Timing` or `RateLimit`, unless it is there: a response may pass a plugin twice, when
/// another plugin replaces it.
pub fn append_once(headers: &mut HeaderMap, field: HeaderName, member: HeaderValue) {
    match headers.entry(field) {
        Entry::Vacant(place) => _ = place.insert(member),
        Entry::Occupied(mut place) => {
            if !place.iter().any(|known| known == member) {
                place.append(member);
            }
        }
    }
}

fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|c| *c == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use http::header::VARY;

    use super::*;

    #[test]
    fn names_are_added_once() {
        for (known, names, expected) in [
            (&[][..], "Origin", &["Origin"][..]),
            (&["accept"], "Origin", &["accept", "Origin"]),
            (&["accept, origin"], "Origin", &["accept, origin"]),
            (&["*"], "Origin", &["*"]),
            (&["accept", "x , ,y"], "X, Origin, Y, Z", &["accept", "x , ,y", "Origin, Z"]),
        ] {
            let mut headers = HeaderMap::new();
            for value in known {
                headers.append(VARY, HeaderValue::from_static(value));
            }
            add_names(&mut headers, VARY, &HeaderValue::from_static(names));
            assert_eq!(headers.get_all(VARY).iter().collect::<Vec<_>>(), expected, "{known:?} {names}");
        }
    }

    #[test]
    fn members_are_appended_once() {
        let mut headers = HeaderMap::new();
        for value in ["a;r=1", "b", "a;r=1"] {
            append_once(&mut headers, http::header::LINK, HeaderValue::from_static(value));
        }
        assert_eq!(headers.get_all("link").iter().collect::<Vec<_>>(), ["a;r=1", "b"]);
    }
}
