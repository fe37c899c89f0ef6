//! Rule files: what is refused, what runs at load, what settings and directives change.

use super::*;

fn sources(text: &str) -> Sources {
    let file = RuleFile { name: "a.conf".into(), text: text.into(), setup: false };
    Sources { files: vec![file], ..Sources::default() }
}

#[track_caller]
fn problems(text: &str) -> Vec<String> {
    match compile(&sources(text)) {
        Ok((_, notes)) => notes.iter().map(Problem::to_string).collect(),
        Err(problems) => problems.iter().map(Problem::to_string).collect(),
    }
}

#[track_caller]
fn active(text: &str) -> Vec<u64> {
    match compile(&sources(text)) {
        Ok((ruleset, _)) => ruleset.ids().collect(),
        Err(problems) => panic!("{problems:?}"),
    }
}

/// What can't be enforced is refused, with file, line and reason.
#[test]
fn every_problem_has_a_place() {
    for (text, says) in [
        ("SecRule ARGS \"@rx (a\" \"id:1\"", "a.conf:1: `@rx`: the pattern can't be used"),
        ("\nSecRule ARGS \"@rx (?=a)\" \"id:1\"", "a.conf:2: `@rx`"),
        ("SecRule ARGS \"@geoLookup\" \"id:1\"", "the operator is not supported"),
        ("SecRule ARGS \"@rx %{tx.a}\" \"id:1\"", "patterns with macros"),
        ("SecRule ARGS \"@pmFromFile none.data\" \"id:1\"", "there is no file `none.data`"),
        ("SecRule ARGS \"@gt x\" \"id:1\"", "`x` is not a number"),
        ("SecRule IP:x \"@eq 1\" \"id:1\"", "the variable `IP` is not supported"),
        ("SecRule TX \"@eq 1\" \"id:1\"", "`TX` needs a name"),
        ("SecRule RESPONSE_BODY \"@rx a\" \"id:1,phase:2\"", "`RESPONSE_BODY` is not known in phase 2"),
        ("SecRule ARGS \"@rx a\" \"phase:2\"", "the rule has no id"),
        ("SecRule ARGS \"@rx a\" \"id:1\"\nSecRule ARGS \"@rx b\" \"id:1\"", "a.conf:2: the id 1 is taken"),
        ("SecRule ARGS \"@rx a\" \"id:1,chain\"", "the chain has no end"),
        (
            "SecRule ARGS \"@rx a\" \"id:1,chain\"\nSecRule ARGS \"@rx b\" \"id:2\"",
            "only the first rule of a chain",
        ),
        ("SecRule ARGS \"@rx a\" \"id:1,skipAfter:END\"", "there is no marker `END`"),
        ("SecMarker END\nSecRule ARGS \"@rx a\" \"id:1,skipAfter:END\"", "stands before the rule"),
        ("SecRule ARGS \"@rx a\" \"id:1,t:rot13\"", "`t:rot13` is not supported"),
        ("SecRule ARGS \"@rx a\" \"id:1,initcol:ip=x\"", "persistent collections"),
        ("SecRule ARGS \"@rx a\" \"id:1,setvar:ip.x=1\"", "only TX can be set"),
        ("SecRule ARGS \"@rx a\" \"id:1,exec:/bin/sh\"", "`exec` is not supported"),
        ("SecRule ARGS \"@rx a\" \"id:1,ctl:requestBodyProcessor=YAML\"", "`YAML` is not a body processor"),
        ("SecRule ARGS \"@rx a\" \"id:1,msg:'%{GEO.X}'\"", "`%{GEO.X}` is not supported"),
        ("SecFrobnicate On", "`SecFrobnicate` is not supported"),
        ("SecRule ARGS", "needs 2 arguments, and has 1"),
        ("SecRule ARGS \"open", "never closed"),
        ("SecRuleEngine On", "note: `SecRuleEngine` has no effect here: `mode`"),
    ] {
        let got = problems(text);
        assert!(got.iter().any(|problem| problem.contains(says)), "{text}\n{got:?}");
    }
}

#[test]
fn a_broken_rule_does_not_hide_the_next() {
    assert_eq!(problems("SecRule ARGS \"@rx (\" \"id:1\"\nSecRule X \"@rx a\" \"id:2\"").len(), 2);
}

const GATES: &str = r#"
SecRule &TX:level "@eq 0" "id:1,phase:1,pass,nolog,setvar:tx.level=1"
SecAction "id:2,phase:1,pass,nolog,setvar:tx.score=0"
SecRule TX:level "@lt 2" "id:3,phase:2,pass,nolog,skipAfter:END"
SecRule ARGS "@rx a" "id:4,phase:2,setvar:tx.score=+5"
SecMarker END
SecRule ARGS "@rx b" "id:5,phase:2,setvar:tx.score=+%{tx.critical}"
SecRule TX:score "@ge 5" "id:6,phase:2,deny"
"#;

/// The set-up and the gates run at load, and rules behind a closed gate are gone.
#[test]
fn what_no_request_can_change_runs_at_load() {
    assert_eq!(active(GATES), [5, 6]);
    let mut open = sources(GATES);
    open.variables.push(("level".into(), "2".into()));
    let (ruleset, _) = compile(&open).unwrap();
    assert_eq!(ruleset.ids().collect::<Vec<_>>(), [4, 5, 6]);
}

/// What a request can change is not decided at load.
#[test]
fn what_a_request_can_change_stays() {
    let text = format!("{GATES}SecRule ARGS:level \"@streq 2\" \"id:7,phase:1,pass,setvar:tx.level=2\"");
    assert_eq!(active(&text), [1, 7, 3, 4, 5, 6]);
    // A rule that a request can skip sets nothing for sure.
    let text = r#"
SecRule ARGS:x "@streq 1" "id:1,phase:1,pass,skipAfter:END"
SecAction "id:2,phase:1,pass,nolog,setvar:tx.on=1"
SecMarker END
SecRule TX:on "@eq 1" "id:3,phase:2,deny""#;
    assert_eq!(active(text), [1, 2, 3]);
    let text = r#"
SecRule ARGS:x "@streq 1" "id:1,phase:1,pass,ctl:ruleRemoveById=2"
SecAction "id:2,phase:1,pass,nolog,setvar:tx.on=1"
SecRule TX:on "@eq 1" "id:3,phase:2,deny""#;
    assert_eq!(active(text), [1, 2, 3]);
}

#[test]
fn rules_are_removed_and_changed_by_directives_and_settings() {
    let rules =
        "SecRule ARGS \"@rx a\" \"id:1,tag:'x/y',msg:'one'\"\nSecRule ARGS \"@rx b\" \"id:20,msg:'two'\"\n";
    assert_eq!(active(&format!("{rules}SecRuleRemoveById 10-29")), [1]);
    assert_eq!(active(&format!("{rules}SecRuleRemoveByTag ^x/")), [20]);
    assert_eq!(active(&format!("{rules}SecRuleRemoveByMsg two")), [1]);
    let mut by_settings = sources(rules);
    by_settings.removed_ids.extend(IdRange::read("20"));
    assert_eq!(compile(&by_settings).unwrap().0.ids().collect::<Vec<_>>(), [1]);
    let mut by_settings = sources(rules);
    by_settings.removed_tags.push("x/y".into());
    assert_eq!(compile(&by_settings).unwrap().0.ids().collect::<Vec<_>>(), [20]);
}

#[test]
fn exclusions_name_what_exists() {
    let (ruleset, _) = compile(&sources("SecRule ARGS \"@rx a\" \"id:1,tag:'t'\"")).unwrap();
    let spec =
        |ids: &[&str], tags: &[&str], targets: &[&str]| ExclusionSpecText { ids, tags, targets }.spec();
    for (spec, says) in [
        (spec(&["2"], &[], &[]), "no active rule has `2`"),
        (spec(&["x"], &[], &[]), "not a rule id"),
        (spec(&[], &["u"], &[]), "no active rule has `u`"),
        (spec(&[], &["("], &[]), "not a pattern"),
        (spec(&["1"], &[], &["NOPE:x"]), "`NOPE` is not supported"),
        (spec(&["1"], &[], &["!ARGS:x"]), "plain target"),
        (spec(&[], &[], &["ARGS:x"]), "`rules` or `tags`"),
    ] {
        let got =
            tail::Exclusion::new(&ruleset, &spec).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(got.contains(says), "{got}");
    }
    assert!(tail::Exclusion::new(&ruleset, &spec(&["1-9"], &["^t"], &["ARGS:x"])).is_ok());
}

struct ExclusionSpecText<'a> {
    ids: &'a [&'a str],
    tags: &'a [&'a str],
    targets: &'a [&'a str],
}

impl ExclusionSpecText<'_> {
    fn spec(&self) -> tail::ExclusionSpec {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        tail::ExclusionSpec { ids: owned(self.ids), tags: owned(self.tags), targets: owned(self.targets) }
    }
}
