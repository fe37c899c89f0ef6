//! `waf check` and `waf explain`.

use serde_json::Value;

use super::process::{Folder, ferrum_edge};

const RULES: &str = "SecRule ARGS \"@pmFromFile words.data\" \"id:1,phase:2,deny,msg:'A word'\"\n";

#[test]
fn a_folder_of_rules_is_checked() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("crs/rules")).unwrap();
    folder.write("crs/rules/a.conf", RULES);
    folder.write("crs/rules/words.data", "evil\n");
    let good = ferrum_edge(&folder).args(["waf", "check", "crs"]).output().unwrap();
    let said = String::from_utf8(good.stdout).unwrap();
    assert_eq!((good.status.code(), said.trim()), (Some(0), "1 rules, 1 of them active"));

    folder.write("crs/rules/b.conf", "# one\nSecRule ARGS \"@rx (\" \"id:2\"\nSecRuleEngine On\n");
    let bad = ferrum_edge(&folder).args(["waf", "check", "crs"]).output().unwrap();
    let said = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(3), "{said}");
    assert!(said.contains("b.conf:2: `@rx`") && said.contains("b.conf:3: note: `SecRuleEngine`"), "{said}");
    let json = ferrum_edge(&folder).args(["waf", "check", "crs", "--output", "json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&document["valid"], &document["problems"][0]["line"]),
        (&Value::Bool(false), &Value::from(2))
    );
    let none = ferrum_edge(&folder).args(["waf", "check", "nowhere"]).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
}

#[test]
fn a_request_is_explained() {
    let folder = Folder::new();
    let run = |arguments: &[&str]| {
        let output = ferrum_edge(&folder).args(["waf", "explain"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&["GET", "/?q=%3Cscript%3Ealert(1)%3C/script%3E"]);
    assert!(text.contains("ARGS:q: <script>") && text.contains("refused by 1000900"), "{text}");
    assert!(run(&["GET", "/?q=hello"]).contains("passes, score 0"));
    let body =
        ["POST", "/", "-H", "Content-Type: application/json", "-d", "{\"a\":\"<script>alert(1)</script>\"}"];
    let document: Value = serde_json::from_str(&run(&[&body[..], &["--output", "json"]].concat())).unwrap();
    assert_eq!(document["refused_by"], 1_000_900);
    assert!(document["matches"].as_array().unwrap().iter().any(|found| found["variable"] == "ARGS:json.a"));
    folder.write("a.conf", RULES);
    folder.write("words.data", "evil\n");
    assert!(run(&["GET", "/?q=EVIL", "--rules", "."]).contains("refused by 1"));
    let wrong = ferrum_edge(&folder).args(["waf", "explain", "GET", "/", "-H", "x"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
