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
    let mut on = false;
    for (_, value) in pairs.extract_if(.., |(key, _)| key == name) {
        on = match value.as_str() {
            "" | "true" | "1" => true,
            "false" | "0" => false,
            _ => return Err(unknown(&format!("`{name}` is true or false"))),
        };
    }
    Ok(on)
}

/// Takes a value out of a query's pairs.
pub(super) fn value(pairs: &mut Vec<(String, String)>, name: &str) -> Option<String> {
    pairs.extract_if(.., |(key, _)| key == name).last().map(|(_, value)| value)
}

/// Takes a number out of a query's pairs.
pub(super) fn number(pairs: &mut Vec<(String, String)>, name: &str) -> Result<Option<u64>, Refused> {
    let Some(text) = value(pairs, name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| unknown(&format!("`{name}` has to be a number")))
}

/// How many things a page has: `limit`, at most `most`.
pub(super) fn page_size(
    pairs: &mut Vec<(String, String)>,
    default: usize,
    most: usize,
) -> Result<usize, Refused> {
    let Some(limit) = number(pairs, "limit")? else { return Ok(default) };
    let limit = usize::try_from(limit).ok().filter(|limit| (1..=most).contains(limit));
    limit.ok_or_else(|| unknown(&format!("`limit` is a number from 1 to {most}")))
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
