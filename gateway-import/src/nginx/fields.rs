//! What is asked of headers, parameters and cookies, as nginx reads them.

use serde_json::{Value, json};

use super::asked::{Test, flagged};
use crate::cond::Cond;
use crate::text;

/// `$http_NAME`.
pub(super) fn header(test: &Test<'_>, name: &str) -> Option<Cond> {
    let field = |how: Value| Cond::is(json!({ "headers": { name: how } }));
    Some(match test {
        Test::Same("", _) => field(json!({ "present": false })).or(field(json!({ "exact": "" }))),
        Test::Same(value, true) => field(json!({ "exact": value, "ignore_case": true })),
        Test::Same(value, false) => field(json!({ "exact": value })),
        Test::Regex(regex, ignores) => {
            let flag = if *ignores { "(?i)" } else { "" };
            let how = match text::contained(&format!("{flag}{regex}")) {
                Some(how) => how,
                None => json!({ "regex": flagged(regex, *ignores)? }),
            };
            // An empty value is what is not there.
            if test.fits("") { field(how).or(field(json!({ "present": false }))) } else { field(how) }
        }
        Test::True => field(json!({ "regex": ".+" })).and(field(json!({ "exact": "0" })).negate()),
    })
}

/// `$arg_NAME`: the name in any case, the value as it was sent.
pub(super) fn parameter(test: &Test<'_>, name: &str) -> Option<Cond> {
    let start = format!("(?:.*&)?(?i:{})=", text::literal(name));
    pair(test, "query_string", "", &start, "[^&]", "(?:&.*)?")
}

/// `$cookie_NAME`: the name in any case. Several fields are joined by commas.
pub(super) fn cookie(test: &Test<'_>, name: &str) -> Option<Cond> {
    let start = format!(r"(?:.*[;,])?\s*(?i:{})=", text::literal(name));
    pair(test, "headers", "cookie", &start, "[^;,]", "(?:[;,].*)?")
}

/// A pair with its name in a field of several.
fn pair(test: &Test<'_>, kind: &str, field: &str, start: &str, other: &str, end: &str) -> Option<Cond> {
    let whole = |value: &str| {
        let regex = format!("{start}{value}{end}");
        text::is_regex(&regex).then(|| {
            let how = json!({ "regex": regex });
            Cond::is(if field.is_empty() { json!({ kind: how }) } else { json!({ kind: { field: how } }) })
        })
    };
    // What is not there is empty.
    let there = whole(&format!("{other}+"))?;
    Some(match test {
        Test::Same("", _) => there.negate(),
        Test::Same(value, true) => whole(&format!("(?i:{})", text::literal(value)))?,
        Test::Same(value, false) => whole(&text::literal(value))?,
        Test::Regex(regex, ignores) => {
            let made = text::anywhere(regex);
            let any = format!("{other}*");
            let (before, made) = made.strip_prefix(".*").map_or(("", made.as_str()), |made| (&*any, made));
            let (made, after) = made.strip_suffix(".*").map_or((made, ""), |made| (made, &*any));
            let flag = if *ignores { "i" } else { "" };
            let found = whole(&format!("{before}(?{flag}:{made}){after}"))?;
            if test.fits("") { found.or(there.negate()) } else { found }
        }
        Test::True => there.and(whole("0")?.negate()),
    })
}
