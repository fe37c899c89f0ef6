//! The keys of an endpoint's query.

use axum::http::StatusCode;

use super::problem::{Refused, problem};

/// The query's pairs, decoded.
pub(super) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
    };
    query
        .unwrap_or_default()
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decoded(key), decoded(value))
        })
        .collect()
}

/// Takes a switch out of a query's pairs: `?validate_only` and `?validate_only=true`.
pub(super) fn switch(pairs: &mut Vec<(String, String)>, name: &str) -> Result<bool, Refused> {
    match value(pairs, name)?.as_deref() {
        None | Some("false" | "0") => Ok(false),
        Some("" | "true" | "1") => Ok(true),
        Some(_) => Err(unknown(&format!("`{name}` is true or false"))),
    }
}

/// Takes a switch out of a query's pairs that is on unless the query says otherwise. An empty value is refused: a script
/// sends one whose variable is not set.
pub(super) fn switch_on(pairs: &mut Vec<(String, String)>, name: &str) -> Result<bool, Refused> {
    match value(pairs, name)?.as_deref() {
        None | Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(_) => Err(unknown(&format!("`{name}` is true or false"))),
    }
}

/// Takes a value out of a query's pairs. With several nobody can tell which one is meant.
pub(super) fn value(pairs: &mut Vec<(String, String)>, name: &str) -> Result<Option<String>, Refused> {
    let mut values = pairs.extract_if(.., |(key, _)| key == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        (_, Some(_)) => Err(unknown(&format!("The query has `{name}` more than once"))),
    }
}

/// Takes a number out of a query's pairs.
pub(super) fn number(pairs: &mut Vec<(String, String)>, name: &str) -> Result<Option<u64>, Refused> {
    let Some(text) = value(pairs, name)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| unknown(&format!("`{name}` has to be a number")))
}

/// How many things a page has: `limit`, at most `most`.
pub(super) fn page_size(
    pairs: &mut Vec<(String, String)>,
    default: usize,
    most: usize,
) -> Result<usize, Refused> {
    Ok(count(pairs, "limit", most)?.unwrap_or(default))
}

/// How many things are wanted: at least one, at most `most`.
pub(super) fn count(
    pairs: &mut Vec<(String, String)>,
    name: &str,
    most: usize,
) -> Result<Option<usize>, Refused> {
    let Some(given) = number(pairs, name)? else { return Ok(None) };
    let count = usize::try_from(given).ok().filter(|count| (1..=most).contains(count));
    count.map(Some).ok_or_else(|| unknown(&format!("`{name}` is a number from 1 to {most}")))
}

/// Refuses what is left of a query.
pub(super) fn nothing_else(pairs: &[(String, String)]) -> Result<(), Refused> {
    match pairs.first() {
        None => Ok(()),
        Some((key, _)) => Err(unknown(&format!("The query's `{key}` is not known here"))),
    }
}

fn unknown(detail: &str) -> Refused {
    Box::new(problem(StatusCode::BAD_REQUEST, "bad_query", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_true_or_false_and_nothing_else() {
        let given = |query: &str| switch(&mut pairs(Some(query)), "on").ok();
        let kept = |query: &str| switch_on(&mut pairs(Some(query)), "on").ok();
        for (query, off_by_default, on_by_default) in [
            ("", Some(false), Some(true)),
            ("on=true", Some(true), Some(true)),
            ("on=1", Some(true), Some(true)),
            ("on=false", Some(false), Some(false)),
            ("on=0", Some(false), Some(false)),
            ("on", Some(true), None),
            ("on=", Some(true), None),
        ] {
            assert_eq!((given(query), kept(query)), (off_by_default, on_by_default), "{query}");
        }
        for wrong in ["False", "FALSE", "True", "no", "off", "xyz", "00", "%20false"] {
            let query = format!("on={wrong}");
            assert_eq!((given(&query), kept(&query)), (None, None), "{query}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        for query in ["on=true&on=false", "on&on", "on=1&b=2&on=1"] {
            assert!(switch(&mut pairs(Some(query)), "on").is_err(), "{query}");
            assert!(switch_on(&mut pairs(Some(query)), "on").is_err(), "{query}");
            assert!(value(&mut pairs(Some(query)), "on").is_err(), "{query}");
            assert!(number(&mut pairs(Some(query)), "on").is_err(), "{query}");
        }
        let mut others = pairs(Some("a=1&on=2&b=3"));
        assert_eq!(number(&mut others, "on").ok(), Some(Some(2)));
        assert!(nothing_else(&others).is_err());
        assert_eq!(others.len(), 2, "what was not asked for stays");
    }
}
