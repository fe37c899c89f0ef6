//! Mistakes that people make, above all those who come from another gateway, and what is said of each: one clear sentence with the
//! place and what to write instead.
//!
//! `bad_input.txt` has the cases: after `#### NAME` a file's text, after `====` what is said of it. What was said once is a promise,
//! so a change of wording is a change of that file.

use std::fmt::Write as _;

use ferrum_edge::core::config::file::File;
use ferrum_edge::source::file::parse;
use serde_json::Value;

const CASES: &str = include_str!("bad_input.txt");

/// Problems without a remedy, because the message says all there is to say.
const SAYS_ALL: &[&str] = &["is missing"];

fn said(name: &str, text: &str) -> String {
    match parse(text, name, &ferrum_edge::plugins()) {
        Ok(_) => "good".to_owned(),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn each_mistake_gets_one_sentence_with_place_and_remedy() {
    let (mut wrong, mut count) = (String::new(), 0);
    for case in CASES.split("#### ").filter(|case| !case.trim().is_empty()) {
        let (name, rest) = case.split_once('\n').expect("a name");
        let (text, expected) = rest.split_once("====\n").expect("what is said");
        count += 1;
        let said = said(name, text);
        if said.trim() != expected.trim() {
            writeln!(wrong, "#### {name}\n{text}====\n{said}\n").expect("a text");
        }
        for line in expected.trim().lines().filter(|line| *line != "good") {
            let has_place = line.starts_with(&format!("{name}:"));
            let has_remedy = line.ends_with(')') || SAYS_ALL.iter().any(|end| line.ends_with(end));
            assert!(has_place && has_remedy, "{name}: no place or no remedy: {line}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count > 120, "only {count} cases");
}

#[test]
fn certificates_and_keys_that_do_not_belong_together() {
    let folder = std::env::temp_dir().join(format!("ferrum-bad-input-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    for name in ["a", "b"] {
        let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).expect("a certificate");
        write(&format!("{name}.pem"), &made.cert.pem());
        write(&format!("{name}.key"), &made.signing_key.serialize_pem());
    }
    let dir = folder.display();
    for (certificate, key, expected) in [
        ("a.pem", "b.key", "does not belong to the certificate"),
        ("a.key", "a.pem", "(`cert_path` is the file with BEGIN CERTIFICATE, leaf first)"),
        ("a.pem", "b.pem", "(`key_path` is the file with BEGIN PRIVATE KEY)"),
        ("gone.pem", "a.key", "No such file"),
    ] {
        let text = format!(
            "gateway:\n  tls:\n    certificates:\n      - cert_path: {dir}/{certificate}\n        key_path: {dir}/{key}\nproxies: []\n"
        );
        let said = said("f.yaml", &text);
        assert!(said.starts_with("f.yaml:4: gateway.tls.certificates[0]: "), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

/// Every setting that is a duration or a size takes units, in the file as in plugins.
#[test]
fn durations_and_sizes_have_units_everywhere() {
    let mut bare = Vec::new();
    look("", File::schema().as_value(), &mut bare);
    for entry in ferrum_edge::plugins().entries() {
        look(entry.name, (entry.schema)().as_value(), &mut bare);
    }
    assert!(bare.is_empty(), "these take no units:\n{}", bare.join("\n"));
}

fn look(at: &str, schema: &Value, bare: &mut Vec<String>) {
    let ends = [
        "_ms",
        "_seconds",
        "_bytes",
        "timeout",
        "_ttl",
        "interval",
        "refresh",
        "_age",
        "_delay",
        "_lifetime",
    ];
    for (name, option) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let types = option["type"].to_string();
        let is_number = types.contains("integer") || types.contains("number");
        let is_named =
            ends.iter().any(|end| name.ends_with(end)) || matches!(name.as_str(), "ttl" | "max_age");
        if is_named && is_number && option.get("x-unit").is_none() {
            bare.push(format!("{at}.{name}"));
        }
    }
    match schema {
        Value::Object(entries) => {
            entries.iter().for_each(|(key, inner)| look(&format!("{at}.{key}"), inner, bare));
        }
        Value::Array(items) => items.iter().for_each(|inner| look(at, inner, bare)),
        _ => {}
    }
}
