//! Requests through small rule sets: the semantics that decide what scores.

use super::*;
use crate::compile::tail::ExclusionSpec;
use crate::{RuleFile, Sources, compile};

fn ruleset(text: &str) -> Arc<Ruleset> {
    let file = RuleFile { name: "test.conf".into(), text: text.into(), setup: false };
    let data = [("words.data".to_owned(), b"# list\nAlpha\nbeta\n".to_vec())].into();
    match compile(&Sources { files: vec![file], data, ..Sources::default() }) {
        Ok((ruleset, _)) => Arc::new(ruleset),
        Err(problems) => panic!("{problems:?}"),
    }
}

/// Runs a GET, or a POST where there is a body.
fn run(rules: &str, target: &str, body: Option<(&str, &str)>) -> Transaction {
    run_with(&ruleset(rules), target, body, |_| {})
}

fn run_with(
    ruleset: &Arc<Ruleset>,
    target: &str,
    body: Option<(&str, &str)>,
    prepare: impl FnOnce(&mut Transaction),
) -> Transaction {
    let mut headers: Vec<(&[u8], &[u8])> = vec![(b"Host", b"h.example:8080"), (b"Cookie", b"a=1; Sid=x=y")];
    if let Some((kind, _)) = body {
        headers.push((b"Content-Type", kind.as_bytes()));
    }
    let mut transaction = Transaction::new(ruleset.clone(), Limits::default(), Buffers::default());
    prepare(&mut transaction);
    transaction.request_head(&RequestHead {
        method: if body.is_some() { b"POST" } else { b"GET" },
        target: target.as_bytes(),
        version: "HTTP/1.1",
        headers: &headers,
        client: [192, 0, 2, 1].into(),
        unique_id: b"u",
    });
    transaction.request_body(body.map_or("", |(_, body)| body).as_bytes());
    transaction
}

#[track_caller]
fn ids(rules: &str, target: &str) -> Vec<u64> {
    run(rules, target, None).matched_ids().collect()
}

#[test]
fn every_value_that_matches_scores() {
    let rules = r#"SecRule ARGS "@rx evil" "id:1,phase:2,pass,setvar:tx.score=+5""#;
    assert_eq!(run(rules, "/?a=evil&b=evil2&c=good", None).variable("score"), Some(10));
}

#[test]
fn each_link_of_a_chain_sets_its_own() {
    let rules = r#"
SecRule ARGS:a "@rx x" "id:1,phase:2,deny,setvar:tx.head=1,chain"
    SecRule ARGS:b "@rx y" "setvar:tx.link=1""#;
    let both = run(rules, "/?a=x&b=y", None);
    assert_eq!((both.variable("head"), both.variable("link")), (Some(1), Some(1)));
    assert!(both.denied().is_some());
    let one = run(rules, "/?a=x&b=z", None);
    assert_eq!((one.variable("head"), one.variable("link")), (Some(1), None));
    assert_eq!(one.denied(), None);
}

#[test]
fn what_is_absent_matches_nothing_but_its_count() {
    let negated = r#"SecRule REQUEST_HEADERS:X-None "!@rx ^a" "id:1,phase:1,deny""#;
    assert_eq!(run(negated, "/", None).denied(), None);
    let counted = r#"SecRule &REQUEST_HEADERS:X-None "@eq 0" "id:1,phase:1,deny""#;
    assert!(run(counted, "/", None).denied().is_some());
    // The body processor of an unknown type is there, and empty.
    let processor = r#"SecRule REQBODY_PROCESSOR "!@rx (?:JSON|XML)" "id:1,phase:1,deny""#;
    assert!(run(processor, "/", Some(("text/plain", "x"))).denied().is_some());
}

#[test]
fn rules_see_variables() {
    for (target, argument) in [
        ("ARGS:Q", "@streq 1 2"),
        ("ARGS_NAMES", "@streq q"),
        ("ARGS_GET:/^q$/", "@streq 1 2"),
        ("ARGS_COMBINED_SIZE", "@eq 4"),
        ("REQUEST_COOKIES:sid", "@streq x=y"),
        ("REQUEST_COOKIES_NAMES", "@streq Sid"),
        ("REQUEST_HEADERS:host", "@beginsWith h.example"),
        ("REQUEST_HEADERS_NAMES", "@streq Host"),
        ("REQUEST_METHOD", "@streq GET"),
        ("REQUEST_URI", "@streq /a%20b/c.php?q=1+2"),
        ("REQUEST_FILENAME", "@streq /a b/c.php"),
        ("REQUEST_BASENAME", "@streq c.php"),
        ("REQUEST_LINE", "@endsWith HTTP/1.1"),
        ("REQUEST_PROTOCOL", "@streq HTTP/1.1"),
        ("QUERY_STRING", "@streq q=1+2"),
        ("REMOTE_ADDR", "@ipMatch 192.0.2.0/24"),
        ("SERVER_NAME", "@streq h.example"),
        ("UNIQUE_ID", "@streq u"),
        ("&ARGS", "@eq 1"),
    ] {
        let rules = format!("SecRule {target} \"{argument}\" \"id:1,phase:1,deny\"");
        assert!(run(&rules, "/a%20b/c.php?q=1+2", None).denied().is_some(), "{target}");
    }
}

#[test]
fn bodies_fill_variables() {
    let multipart =
        "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nxyz\r\n--B--";
    for (kind, body, target, argument) in [
        ("application/x-www-form-urlencoded", "b=%41", "ARGS_POST:b", "@streq A"),
        ("application/x-www-form-urlencoded", "b=%41", "REQUEST_BODY", "@streq b=%41"),
        ("application/json", "{\"a\":[1,\"x\"]}", "ARGS:json.a.1", "@streq x"),
        ("application/xml", "<a b='c'>d</a>", "XML:/*", "@streq d"),
        ("application/xml", "<a b='c'>d</a>", "XML://@*", "@streq c"),
        ("multipart/form-data; boundary=B", multipart, "FILES", "@streq a.txt"),
        ("multipart/form-data; boundary=B", multipart, "FILES_NAMES", "@streq f"),
        ("multipart/form-data; boundary=B", multipart, "FILES_COMBINED_SIZE", "@eq 3"),
        ("multipart/form-data; boundary=B", multipart, "MULTIPART_PART_HEADERS:f", "@contains filename"),
        ("application/json", "{", "REQBODY_ERROR", "@eq 1"),
        ("multipart/form-data", "x", "MULTIPART_STRICT_ERROR", "@eq 1"),
        ("application/json", "{}", "REQUEST_BODY_LENGTH", "@eq 2"),
    ] {
        let rules = format!("SecRule {target} \"{argument}\" \"id:1,phase:2,deny\"");
        assert!(run(&rules, "/", Some((kind, body))).denied().is_some(), "{target} of {body}");
    }
    // What can't be read is looked at as it is.
    let rules = r#"SecRule REQUEST_BODY "@contains evil" "id:1,phase:2,deny""#;
    let got = run(rules, "/", Some(("application/json", "{evil")));
    assert!(got.denied().is_some() && got.body_error().is_some());
}

#[test]
fn captures_and_macros() {
    let rules = r#"
SecRule ARGS:a "@rx ^(\d+)-(\d+)$" "id:1,phase:2,deny,capture,chain"
    SecRule TX:2 "@lt %{tx.1}""#;
    assert!(run(rules, "/?a=9-3", None).denied().is_some());
    assert_eq!(run(rules, "/?a=3-9", None).denied(), None);
    let rules = r#"SecRule ARGS:a "@streq %{ARGS.b}" "id:1,phase:2,deny,msg:'%{MATCHED_VAR_NAME} is %{MATCHED_VAR}'""#;
    let got = run(rules, "/?a=1&b=1", None);
    assert_eq!(got.report().matches[0].message, "ARGS:a is 1");
    assert_eq!(run(rules, "/?a=1&b=2", None).denied(), None);
}

#[test]
fn variables_with_made_names() {
    let rules = r#"
SecRule ARGS_NAMES "@rx ." "id:1,phase:2,pass,nolog,setvar:'tx.count_%{MATCHED_VAR_NAME}=+1'"
SecRule TX:/^count_.*/ "@gt 1" "id:2,phase:2,deny""#;
    assert!(run(rules, "/?a=1&a=2", None).denied().is_some());
    assert_eq!(run(rules, "/?a=1&b=2", None).denied(), None);
}

#[test]
fn earlier_matches_can_be_looked_at() {
    let rules = r#"
SecRule ARGS "@rx evil" "id:1,phase:2,deny,t:lowercase,chain"
    SecRule MATCHED_VARS "!@rx ^evil$" "t:none""#;
    assert!(run(rules, "/?a=EVIL&b=evil2", None).denied().is_some());
    assert_eq!(run(rules, "/?a=EVIL", None).denied(), None);
    let rules = r#"
SecRule ARGS "@rx evil" "id:1,phase:2,deny,chain"
    SecRule MATCHED_VAR_NAME "@streq ARGS:b""#;
    assert!(run(rules, "/?b=evil", None).denied().is_some());
    assert_eq!(run(rules, "/?a=evil", None).denied(), None);
}

#[test]
fn multi_match_tests_every_step() {
    let one = r#"SecRule ARGS "@rx %41" "id:1,phase:2,pass,t:urlDecodeUni,setvar:tx.n=+1""#;
    assert_eq!(run(one, "/?a=%2541", None).variable("n"), None);
    let each = one.replace("pass,", "pass,multiMatch,");
    assert_eq!(run(&each, "/?a=%2541", None).variable("n"), Some(1));
    let twice = r#"SecRule ARGS "@rx (?i)x" "id:1,phase:2,pass,multiMatch,t:lowercase,setvar:tx.n=+1""#;
    assert_eq!(run(twice, "/?a=X", None).variable("n"), Some(2));
    assert_eq!(run(twice, "/?a=x", None).variable("n"), Some(1));
}

#[test]
fn flow_goes_where_rules_say() {
    let rules = r#"
SecRule ARGS:skip "@streq after" "id:1,phase:2,pass,skipAfter:END"
SecRule ARGS:skip "@streq one" "id:2,phase:2,pass,skip:1"
SecRule ARGS "@rx ." "id:3,phase:2,pass"
SecRule ARGS "@rx ." "id:4,phase:2,pass"
SecMarker END
SecRule ARGS "@rx ." "id:5,phase:2,pass""#;
    assert_eq!(ids(rules, "/?skip=after"), [1, 5]);
    assert_eq!(ids(rules, "/?skip=one"), [2, 4, 5]);
    assert_eq!(ids(rules, "/?x=1"), [3, 4, 5]);
    let rules = r#"
SecRule ARGS:a "@streq all" "id:1,phase:1,allow"
SecRule ARGS:a "@streq phase" "id:2,phase:1,allow:phase"
SecRule ARGS "@rx ." "id:3,phase:1,pass"
SecRule ARGS "@rx ." "id:4,phase:2,pass""#;
    assert_eq!(ids(rules, "/?a=all"), [1]);
    assert_eq!(ids(rules, "/?a=phase"), [2, 4]);
    assert_eq!(ids(rules, "/?a=x"), [3, 4]);
}

#[test]
fn the_first_refusal_decides_and_names_its_status() {
    let rules = r#"
SecRule ARGS "@rx a" "id:1,phase:2,deny,status:451"
SecRule ARGS "@rx a" "id:2,phase:2,deny""#;
    let got = run(rules, "/?x=a", None);
    assert_eq!(got.denied(), Some(Denial { rule: 1, status: Some(451) }));
    let detected = run_with(&ruleset(rules), "/?x=a", None, Transaction::only_detect);
    assert_eq!(detected.matched_ids().collect::<Vec<_>>(), [1, 2]);
    assert!(detected.denied().is_some() && !detected.is_refused());
    // `block` is what the defaults say.
    let rules = "SecDefaultAction \"phase:2,deny,status:418\"\nSecRule ARGS \"@rx a\" \"id:1,phase:2,block\"";
    assert_eq!(run(rules, "/?x=a", None).denied(), Some(Denial { rule: 1, status: Some(418) }));
}

#[test]
fn rules_control_others() {
    let rule = r#"SecRule ARGS "@rx evil" "id:9,phase:2,deny,tag:'t/x',msg:'nine'""#;
    for control in [
        "ruleRemoveById=9",
        "ruleRemoveById=5-10",
        "ruleRemoveByTag=^t/",
        "ruleRemoveByMsg=nine",
        "ruleRemoveTargetById=9;ARGS:a",
        "ruleRemoveTargetByTag=t/x;ARGS:/^a$/",
        "ruleEngine=Off",
    ] {
        let rules = format!("SecRule ARGS:off \"@eq 1\" \"id:1,phase:1,pass,nolog,ctl:{control}\"\n{rule}");
        assert_eq!(run(&rules, "/?a=evil&off=1", None).denied(), None, "{control}");
        assert!(run(&rules, "/?a=evil", None).denied().is_some(), "{control}");
    }
    let rules = format!("{rule}\nSecRuleUpdateTargetById 9 \"!ARGS:a\"");
    assert_eq!(run(&rules, "/?a=evil", None).denied(), None);
    assert!(run(&rules, "/?b=evil", None).denied().is_some());
    let rules = r#"
SecAction "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON,ctl:forceRequestBodyVariable=On"
SecRule ARGS:json.a "@streq x" "id:2,phase:2,pass"
SecRule REQUEST_BODY "@contains x" "id:3,phase:2,pass""#;
    let got = run(rules, "/", Some(("text/plain", "{\"a\":\"x\"}")));
    assert_eq!(got.matched_ids().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn exclusions_hold_for_one_request() {
    let ruleset = ruleset(r#"SecRule ARGS "@rx evil" "id:9,phase:2,deny,tag:'t'""#);
    let exclusion = |targets: &[&str]| {
        let targets = targets.iter().map(|it| (*it).to_owned()).collect();
        Exclusion::new(&ruleset, &ExclusionSpec { ids: vec!["9".into()], tags: vec![], targets }).unwrap()
    };
    let run = |exclusion: &Exclusion, target| {
        run_with(&ruleset, target, None, |transaction| transaction.exclude(exclusion)).denied().is_some()
    };
    assert!(!run(&exclusion(&[]), "/?a=evil"));
    assert!(!run(&exclusion(&["ARGS:a"]), "/?a=evil"));
    assert!(run(&exclusion(&["ARGS:a"]), "/?b=evil"));
}

#[test]
fn responses_are_looked_at() {
    let ruleset = ruleset(
        r#"
SecRule RESPONSE_STATUS "@rx ^5" "id:1,phase:3,pass"
SecRule RESPONSE_HEADERS:X-A "@streq b" "id:2,phase:3,pass"
SecRule RESPONSE_BODY "@pmFromFile words.data" "id:3,phase:4,deny"
SecRule ARGS:q "@streq 1" "id:4,phase:4,pass""#,
    );
    let mut transaction = run_with(&ruleset, "/?q=1", None, |_| {});
    transaction.response_head(&ResponseHead { status: 500, version: "HTTP/1.1", headers: &[(b"x-a", b"b")] });
    transaction.response_body(b"an ALPHA version");
    assert_eq!(transaction.matched_ids().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(transaction.denied().map(|denial| denial.rule), Some(3));
}

#[test]
fn messages_are_looked_at() {
    let ruleset = ruleset(r#"SecRule ARGS "@rx evil" "id:1,phase:2,deny""#);
    for payload in ["{\"a\":\"\\u0065vil\"}", "plain evil", "{broken evil"] {
        let mut transaction = Transaction::new(ruleset.clone(), Limits::default(), Buffers::default());
        transaction.message(payload.as_bytes());
        assert!(transaction.denied().is_some(), "{payload}");
    }
}

/// The same verdicts come from buffers that were used before, and with other rules.
#[test]
fn buffers_are_used_again() {
    let first = ruleset(r#"SecRule ARGS "@rx evil" "id:1,phase:2,deny""#);
    let second = ruleset(r#"SecRule ARGS "@rx good" "id:2,phase:2,deny""#);
    let mut buffers = Buffers::default();
    for round in 0..6 {
        let (ruleset, denied) = if round % 2 == 0 { (&first, "evil") } else { (&second, "good") };
        for value in ["evil", "good", "evil"] {
            let target = format!("/?a={value}");
            let mut transaction = Transaction::new(ruleset.clone(), Limits::default(), buffers);
            transaction.request_head(&RequestHead {
                method: b"GET",
                target: target.as_bytes(),
                version: "HTTP/1.1",
                headers: &[],
                client: [192, 0, 2, 1].into(),
                unique_id: b"",
            });
            transaction.request_body(b"");
            assert_eq!(transaction.denied().is_some(), value == denied, "{round} {value}");
            buffers = transaction.finish();
        }
    }
}

/// Whatever comes takes bounded time and room, and what was not looked at is said.
#[test]
fn limits_hold() {
    let rules = ruleset(
        r#"
SecRule ARGS "@rx (?:a+)+$" "id:1,phase:2,pass,t:urlDecodeUni,t:htmlEntityDecode"
SecRule ARGS "@detectSQLi" "id:2,phase:2,pass"
SecRule ARGS "@detectXSS" "id:3,phase:2,pass""#,
    );
    let form = "application/x-www-form-urlencoded";
    let cases = [
        (form, "a".repeat(1 << 20), true),
        (form, "x=&".repeat(33_333), true),
        (form, format!("v={}", "x%3D".repeat(25_000)), false),
        (form, format!("v={}", "<a ".repeat(33_333)), false),
        ("application/json", format!("[{}1]", "1,".repeat(3332)), true),
        ("application/json", "[".repeat(100_000), false),
        ("application/xml", "<a>".repeat(100_000), true),
    ];
    for (kind, body, partial) in cases {
        let got = run_with(&rules, "/", Some((kind, &body)), |_| {});
        assert_eq!(got.is_partial(), partial, "{kind} {}", body.get(..20).unwrap_or_default());
    }
    for byte in 0..=255u8 {
        let body = vec![byte; 8 << 10];
        for kind in
            [form, "application/json", "application/xml", "multipart/form-data; boundary=B", "text/plain"]
        {
            let mut transaction = Transaction::new(rules.clone(), Limits::default(), Buffers::default());
            let headers: [(&[u8], &[u8]); 1] = [(b"content-type", kind.as_bytes())];
            transaction.request_head(&RequestHead {
                method: b"POST",
                target: b"/",
                version: "HTTP/1.1",
                headers: &headers,
                client: [192, 0, 2, 1].into(),
                unique_id: b"",
            });
            transaction.request_body(&body);
        }
    }
    let limits = Limits { budget_bytes: 1000, ..Limits::default() };
    let mut transaction = Transaction::new(rules, limits, Buffers::default());
    let target = format!("/?a={}", "b".repeat(2000));
    transaction.request_head(&RequestHead {
        method: b"GET",
        target: target.as_bytes(),
        version: "HTTP/1.1",
        headers: &[],
        client: [192, 0, 2, 1].into(),
        unique_id: b"",
    });
    transaction.request_body(b"");
    assert!(transaction.report().over_budget);
}
