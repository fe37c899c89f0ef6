//! What Envoy's routes and policies ask of requests, as conditions.

use serde_json::Value;

use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;
use crate::tree::Node;

/// Which requests a route takes: the path, and what has to hold besides. `None` when it can't be said here.
pub(super) fn matched(node: &Node) -> Option<(Matcher, Cond)> {
    let ignores = node
        .get("case_sensitive")
        .is_some_and(|it| it.bool() == Some(false) || it.get("value").and_then(Node::bool) == Some(false));
    let flag = if ignores { "(?i)" } else { "" };
    let (mut path, mut cond) = (Matcher::prefix("/"), Cond::Always);
    for (key, value) in node.entries() {
        match key.as_str() {
            "prefix" => {
                let prefix = value.str()?;
                if prefix != "/" {
                    path = Matcher::regex(format!("{flag}{}.*", text::literal(prefix)));
                }
            }
            "path" if ignores => path = Matcher::regex(format!("{flag}{}", text::literal(value.str()?))),
            "path" => path = Matcher::exact(value.str()?),
            "path_separated_prefix" if !ignores => path = Matcher::prefix(value.str()?),
            "safe_regex" => {
                let regex = value.text_of("regex")?;
                text::is_regex(regex).then_some(())?;
                path = Matcher::regex(regex);
            }
            "case_sensitive" => {}
            "headers" => {
                for header in value.items() {
                    cond = cond.and(header_matched(header)?);
                }
            }
            "query_parameters" => {
                for parameter in value.items() {
                    let name = parameter.text_of("name")?;
                    let how = match (
                        parameter.get("string_match"),
                        parameter.get("present_match").and_then(Node::bool),
                    ) {
                        (Some(text), _) => string_matched(text)?,
                        (None, Some(present)) => Matcher::present(present),
                        (None, None) => Matcher::present(true),
                    };
                    cond = cond.and(Cond::query(name, how));
                }
            }
            "grpc" => cond = cond.and(Cond::grpc()),
            "runtime_fraction" => cond = cond.and(share(value)?),
            _ => return None,
        }
    }
    Some((path, cond))
}

/// All requests or none; a share in between can't be said here.
fn share(fraction: &Node) -> Option<Cond> {
    let whole = match fraction.path(&["default_value", "denominator"]).and_then(Node::str) {
        None | Some("HUNDRED") => 100,
        Some("TEN_THOUSAND") => 10_000,
        Some("MILLION") => 1_000_000,
        Some(_) => return None,
    };
    fraction.get("runtime_key");
    match fraction.path(&["default_value", "numerator"]).map_or(Some(0), Node::uint)? {
        0 => Some(Cond::Never),
        part if part >= whole => Some(Cond::Always),
        _ => None,
    }
}

pub(super) fn header_matched(header: &Node) -> Option<Cond> {
    let name = header.text_of("name")?.to_ascii_lowercase();
    let inverts = header.get("invert_match").and_then(Node::bool) == Some(true);
    let how = match (header.get("string_match"), header.get("present_match").and_then(Node::bool)) {
        (Some(text), _) => string_matched(text)?,
        (None, Some(present)) => Matcher::present(present),
        (None, None) => {
            // The older way to say it.
            let old =
                header.entries().iter().find(|(key, _)| key.ends_with("_match") && key != "invert_match");
            match old {
                None => Matcher::present(true),
                Some((key, value)) => {
                    let text = value.str();
                    match (key.as_str(), text) {
                        ("exact_match", Some(text)) => Matcher::exact(text),
                        ("prefix_match", Some(text)) => Matcher::prefix(text),
                        ("suffix_match", Some(text)) => Matcher::suffix(text),
                        ("contains_match", Some(text)) => Matcher::contains(text),
                        ("safe_regex_match", None) => {
                            let regex = value.text_of("regex").filter(|it| text::is_regex(it))?;
                            Matcher::regex(regex)
                        }
                        _ => return None,
                    }
                }
            }
        }
    };
    let is_presence = how.get("present").is_some();
    let exact = how.get("exact").and_then(Value::as_str).map(str::to_owned);
    let cond = match (name.as_str(), exact) {
        (":method", Some(method)) => Cond::methods(&[&method]),
        (":authority" | "host", _) if !is_presence => Cond::authority(how),
        (":path" | ":method" | ":authority" | "host" | ":scheme", _) => return None,
        (name, _) => {
            let fits = Cond::header(name, how.clone());
            let present = Cond::header(name, Matcher::present(true));
            let is_empty = header.get("treat_missing_header_as_empty").and_then(Node::bool) == Some(true);
            return Some(match (inverts, is_empty) {
                _ if is_presence => {
                    if inverts {
                        fits.negate()
                    } else {
                        fits
                    }
                }
                // Without the header there is nothing that could fit, whether what fits is turned round or not.
                (true, false) => present.and(fits.negate()),
                (false, false) => fits,
                (inverts, true) => {
                    let of_empty = fits_empty(&how)?;
                    let cond = if of_empty { fits.or(present.negate()) } else { fits };
                    if inverts { cond.negate() } else { cond }
                }
            });
        }
    };
    Some(if inverts { cond.negate() } else { cond })
}

/// Whether an empty text is what is asked for.
fn fits_empty(how: &Matcher) -> Option<bool> {
    let (kind, text) = how.kind();
    let text = text.as_str()?;
    Some(match kind {
        "regex" => regex::Regex::new(&format!("^(?:{text})$")).ok()?.is_match(""),
        _ => text.is_empty(),
    })
}

pub(super) fn string_matched(node: &Node) -> Option<Matcher> {
    let (key, value) = node.entries().iter().find(|(key, _)| key != "ignore_case")?;
    let how = match key.as_str() {
        "exact" => Matcher::exact(value.str()?),
        "prefix" => Matcher::prefix(value.str()?),
        "suffix" => Matcher::suffix(value.str()?),
        "contains" => Matcher::contains(value.str()?),
        "safe_regex" => Matcher::regex(value.text_of("regex").filter(|it| text::is_regex(it))?),
        _ => return None,
    };
    let ignores = node.get("ignore_case").and_then(Node::bool) == Some(true);
    Some(if ignores { how.ignore_case(true) } else { how })
}
