//! `waf check` and `waf explain`.

use serde_json::Value;

use crate::process::{Folder, ferrum_edge};

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
    // The scores that are shown are the whole score, also where a rule without a log entry has a part in it.
    let text = run(&["GET", "/editor?html=%3Cscript%3Ealert(1)%3C/script%3E"]);
    let shown = text.split_whitespace().filter(|word| word.starts_with('+'));
    let sum: i64 = shown.filter_map(|word| word.parse::<i64>().ok()).sum();
    assert!(sum > 0 && text.contains(&format!("score {sum}\n")), "{sum}: {text}");
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

/// Rules that ask for what every client sends must not match where only the command line leaves it out.
#[test]
fn an_explained_request_has_what_clients_send() {
    let folder = Folder::new();
    let rules = "SecRule &REQUEST_HEADERS:Content-Length \"@eq 0\" \"id:1,phase:1,pass\"\n\
                 SecRule &REQUEST_HEADERS:Host \"@eq 0\" \"id:2,phase:1,pass\"\n\
                 SecRule REQUEST_HEADERS:Content-Length \"@streq 3\" \"id:3,phase:1,pass\"\n\
                 SecRule REQUEST_HEADERS:Content-Type \"@streq application/x-www-form-urlencoded\" \"id:4,phase:1,pass\"\n\
                 SecRule &REQUEST_HEADERS:Host \"@gt 1\" \"id:5,phase:1,pass\"\n\
                 SecRule ARGS:a \"@streq b\" \"id:6,phase:2,pass\"\n";
    folder.write("a.conf", rules);
    let matched = |arguments: &[&str]| -> Vec<i64> {
        let mut command = ferrum_edge(&folder);
        command.args(["waf", "explain", "--rules", ".", "--output", "json"]).args(arguments);
        let document: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        document["matches"].as_array().unwrap().iter().map(|found| found["rule"].as_i64().unwrap()).collect()
    };
    assert_eq!(matched(&["POST", "/", "-d", "a=b"]), [3, 4, 6]);
    assert_eq!(matched(&["GET", "/", "-H", "host: a.test"]), [1]);
    let chunked =
        ["POST", "/", "-d", "abc", "-H", "Transfer-Encoding: chunked", "-H", "content-type: text/plain"];
    assert_eq!(matched(&chunked), [1]);
}

#[test]
fn the_core_rule_set_3_is_named_where_it_fails() {
    let folder = Folder::new();
    folder.write("a.conf", "SecRule ARGS \"@rx (?=a)b\" \"id:1,phase:2,deny,ver:'OWASP_CRS/3.3.4'\"\n");
    let check = ferrum_edge(&folder).args(["waf", "check", "."]).output().unwrap();
    let said = String::from_utf8(check.stdout).unwrap();
    assert!(
        check.status.code() == Some(3) && said.contains("Core Rule Set 3") && said.contains("version 4"),
        "{said}"
    );
    let explain = ferrum_edge(&folder).args(["waf", "explain", "GET", "/", "--rules", "."]).output().unwrap();
    assert!(String::from_utf8_lossy(&explain.stderr).contains("version 4"));
}
