//! What inputs that are made to be slow cost: counted in bytes that the rules read, so that no machine makes a difference.

use super::*;

/// Texts of a given length that have hung other filters: repetition for nested quantifiers, overlapping alternatives, starts
/// without ends, and the single bytes.
fn hostile(length: usize) -> Vec<(&'static str, String)> {
    let fill = |unit: &str, end: &str| unit.repeat(length / unit.len()) + end;
    vec![
        ("letters and a mark", fill("a", "!")),
        ("digits and a letter", fill("1", "x")),
        ("spaces", fill(" ", "x")),
        ("tabs and spaces", fill(" \t", "x")),
        ("line ends", fill("\r\n", "x")),
        ("pairs", fill("x=", "")),
        ("quotes", fill("'", "x")),
        ("both quotes", fill("'\"", "x")),
        ("tags", fill("<a ", "")),
        ("tag starts", fill("<", "")),
        ("closed tags", fill("<b>", "")),
        ("event handlers", fill("onload ", "=")),
        ("scripts", fill("<script", "")),
        ("styles", fill("<style>@im\\", "")),
        ("select without from", fill("select ", "fro")),
        ("union without select", fill("union ", "selec")),
        ("or one", fill("' or 1", "")),
        ("comments", fill("/*", "")),
        ("closed comments", fill("/**/", "x")),
        ("dashes", fill("-", "x")),
        ("parentheses", fill("(", "")),
        ("braces", fill("${", "")),
        ("look-ups", fill("${${", "jndi")),
        ("templates", fill("{{", "}")),
        ("dots", fill("../", "x")),
        ("dots and backslashes", fill("..\\", "x")),
        ("percents", fill("%25", "27")),
        ("entities", fill("&#0", "x")),
        ("named entities", fill("&lt", "")),
        ("escapes", fill("\\u00", "")),
        ("backticks", fill("`id", "")),
        ("pipes", fill("|a", "")),
        ("dollars", fill("$(", "")),
        ("addresses", fill("http://", "")),
        ("numbers with dots", fill("1.", "x")),
        ("arrays", fill("[", "")),
        ("objects", fill("{\"a\":", "")),
        ("wide letters", fill("\u{ff1c}", "")),
        ("NUL", fill("\0", "")),
        ("base64", fill("YWFh", "=")),
    ]
}

const KINDS: [&str; 4] =
    ["application/x-www-form-urlencoded", "application/json", "text/xml", "text/plain; charset=utf-8"];

fn steps(ruleset: &Arc<Ruleset>, kind: &str, value: &str) -> u64 {
    let body = match kind {
        "application/json" => format!("{{\"a\":{}}}", serde_json::to_string(value).unwrap()),
        "text/xml" => format!("<a>{}</a>", value.replace('&', "&amp;").replace('<', "&lt;")),
        "application/x-www-form-urlencoded" => format!("a={value}"),
        _ => value.to_owned(),
    };
    let limits = Limits { arguments: 100_000, ..Limits::default() };
    let mut transaction = Transaction::new(ruleset.clone(), limits, Buffers::without_cache());
    transaction.only_detect();
    transaction.request_head(&RequestHead {
        method: b"POST",
        target: b"/",
        version: "HTTP/1.1",
        headers: &[(b"host", b"a.example"), (b"user-agent", b"x"), (b"content-type", kind.as_bytes())],
        client: [192, 0, 2, 1].into(),
        unique_id: b"",
    });
    transaction.request_body(body.as_bytes());
    assert!(transaction.bytes_read() <= Limits::default().budget_bytes, "{kind} {value:.20}");
    transaction.bytes_read()
}

/// Twice the input costs no more than twice the steps: nothing is quadratic, or worse.
#[test]
fn steps_grow_with_the_length_alone() {
    const LENGTH: usize = 4 << 10;
    // What does not depend on the value, and what rules read that only the longer value wakes.
    const BESIDES: u64 = 100_000;
    let ruleset = rules(Profile::Aggressive);
    let mut wrong = Vec::new();
    for kind in KINDS {
        for ((name, short), (_, long)) in hostile(LENGTH).into_iter().zip(hostile(2 * LENGTH)) {
            let (once, twice) = (steps(&ruleset, kind, &short), steps(&ruleset, kind, &long));
            if twice > once * 2 + BESIDES {
                wrong.push(format!(
                    "{kind}, {name}: {once} steps for {LENGTH} bytes, {twice} for twice as many"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Patterns that take exponential time in engines that try every way: here they read each byte once.
#[test]
fn patterns_that_hang_other_engines_do_not() {
    for pattern in [
        "(?:a+)+$",
        "(?:a|aa)+$",
        "(?:a|a?)+$",
        "(?:.*a){20}$",
        "^(?:[a-zA-Z]+)*$",
        "(?:x+x+)+y",
        "^(?:(?:a|b)*)*c$",
        "(?:\\w+\\s?)*!$",
        "^(?:[a-z0-9]+[-._]?)+@[a-z0-9]+$",
        "(?:%25)*(?:%25)*27z",
    ] {
        let text = format!("SecRule ARGS \"@rx {pattern}\" \"id:1,phase:2,deny,t:none\"");
        let file = RuleFile { name: "a.conf".into(), text, setup: false };
        let sources = Sources { files: vec![file], ..Sources::default() };
        let ruleset = Arc::new(compile(&sources).unwrap_or_else(|problems| panic!("{problems:?}")).0);
        for unit in ["a", "x", "aB", "a-", "%25"] {
            let value = unit.repeat((32 << 10) / unit.len());
            let read = steps(&ruleset, KINDS[0], &value);
            assert!(read <= 4 * value.len() as u64, "{pattern} reads {read} bytes of {unit}");
        }
    }
}
