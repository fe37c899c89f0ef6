//! Tests of variables, as conditions on what clients send.

use regex::bytes::RegexBuilder;
use serde_json::Value;

use super::super::asked::Test;
use crate::NoFiles;
use crate::cond::Cond;
use crate::draft::answers_itself;

/// What is asked about: the path, the query where there is one, and the cookies.
struct Sent<'s> {
    path: &'s str,
    query: Option<&'s str>,
    cookie: Option<&'s str>,
}

fn is_whole(regex: &str, text: &str) -> bool {
    let whole = format!("^(?:{regex})$");
    let mut builder = RegexBuilder::new(&whole);
    builder.dot_matches_new_line(true).build().expect("a regex").is_match(text.as_bytes())
}

fn fits(how: &Value, text: Option<&str>) -> bool {
    match (how["present"].as_bool(), how["regex"].as_str()) {
        (Some(present), None) => present == text.is_some(),
        (None, Some(regex)) => text.is_some_and(|text| is_whole(regex, text)),
        _ => panic!("{how}"),
    }
}

/// Whether a condition holds.
fn holds(cond: &Value, sent: &Sent<'_>) -> bool {
    cond.as_object().expect("a condition").iter().all(|(key, value)| {
        let mut each = value.as_array().into_iter().flatten();
        match key.as_str() {
            "all" => each.all(|one| holds(one, sent)),
            "any" => each.any(|one| holds(one, sent)),
            "not" => !holds(value, sent),
            "path" => is_whole(value["regex"].as_str().expect("a regex"), sent.path),
            "query_string" => fits(value, sent.query),
            "headers" => fits(&value["cookie"], sent.cookie),
            _ => panic!("{key}"),
        }
    })
}

fn asked(test: Test<'_>, name: &str, sent: &Sent<'_>) -> bool {
    match test.of(name).unwrap_or_else(|| panic!("{test:?} of {name}")) {
        Cond::Always => true,
        Cond::Never => false,
        Cond::Is(cond) => holds(&cond, sent),
    }
}

/// Paths and queries as clients send them.
const TARGETS: &[&str] = &[
    "/",
    "/?",
    "/a",
    "/a?",
    "/a?b",
    "/ab",
    "/?x=base64_decode",
    "/base64_decode",
    "/etc?passwd",
    "/etc/passwd",
    "/x?y=/etc/passwd",
    "/select?x=from",
    "/select/from",
    "/?from=select",
    "/?select=from",
    "/a?b?c",
    "/ac",
    "/api/x?y",
    "/x?/api/",
    "/?a=1&a=2",
    "/A?B",
    "/wp-admin/x",
    "/xmlrpc.php",
    "/xmlrpc?php",
    "/wp-login?a.php",
    "/x?sitemap_index.xml",
    "/sitemap?xml",
    "/b?b",
];

#[test]
fn regexes_over_the_whole_target() {
    for regex in [
        "base64_decode|etc/passwd",
        "select.*from",
        "^/api/",
        "^/a$",
        "^/a",
        "b$",
        r"^/a\?b$",
        r"\?",
        r"\?.",
        "a?b",
        "^/$",
        "^/|x$",
        "^/a.b",
        "(^/a|b$)",
        "[^/]b",
        r"\bfrom\b",
        "a.?b",
        "^/a.+c",
        "/api/",
        "=",
        "",
        "(a|c)$",
        // The usual guard of a cache before WordPress.
        "/wp-admin/|/xmlrpc.php|wp-.*.php|/feed/|index.php|sitemap(_index)?.xml",
        "/(a|b.)b",
    ] {
        for ignores in [false, true] {
            let nginx = RegexBuilder::new(regex).case_insensitive(ignores).build().expect("a regex");
            for &target in TARGETS {
                let (path, query) =
                    target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
                let ours =
                    asked(Test::Regex(regex, ignores), "request_uri", &Sent { path, query, cookie: None });
                assert_eq!(ours, nginx.is_match(target.as_bytes()), "{regex} {ignores} {target}");
            }
        }
    }
    let written = format!("{:?}", Test::Regex("a[^x]b", false).of("request_uri"));
    assert!(written.is_ascii() && written.contains("x{0}") && !written.contains("u{"), "{written}");
    // A piece that may have the question mark somewhere within.
    assert!(Test::Regex("(a|b?c.)+d", false).of("request_uri").is_none());
    assert!(Test::Regex("a.{3}b", false).of("request_uri").is_none());
}

/// The first of a name, in any case, with a value that may be empty.
#[test]
fn the_first_parameter_counts() {
    let queries = [
        "",
        "role",
        "role=",
        "role=guest",
        "role=admin&role=guest",
        "role=guest&role=admin",
        "ROLE=admin&role=guest",
        "xrole=guest",
        "role&role=guest",
        "role=&role=admin",
        "rol=1&role=admin",
        "rolex=guest&a=role=guest",
        "a=b&&role=guest&",
        "role=a&x=guest",
        "r=1&ro=2&roleo=3&role=guest",
        "role=0",
        "role=guests",
        "role==guest",
    ];
    let tests = [
        Test::Regex("^guest$", false),
        Test::Regex("guest", false),
        Test::Regex("^a.*guest$", false),
        Test::Regex("^admin$|^guest$", true),
        Test::Regex("^[^x]*$", false),
        Test::Same("guest", false),
        Test::Same("GUEST", true),
        Test::Same("", false),
        Test::True,
    ];
    for query in queries {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let first = pairs.find(|(name, _)| name.eq_ignore_ascii_case("role")).map_or("", |(_, value)| value);
        for test in tests {
            let sent = Sent { path: "/", query: Some(query), cookie: None };
            assert_eq!(asked(test, "arg_role", &sent), test.fits(first), "{test:?} {query}");
        }
        let cookie = query.replace('&', "; ");
        for test in tests {
            let sent = Sent { path: "/", query: None, cookie: Some(&cookie) };
            assert_eq!(asked(test, "cookie_role", &sent), test.fits(first), "{test:?} {cookie}");
        }
    }
    for (cookie, value) in [
        ("a=b,role=guest", "guest"),
        ("role = guest; role=admin", "guest"),
        ("a=b;ROLE=admin;role=guest", "admin"),
        ("r ole=1;  r=2; role=guest", "guest"),
        ("role x=1; role=guest", "guest"),
        ("a b, r; =; role=guest;x", "guest"),
    ] {
        let sent = Sent { path: "/", query: None, cookie: Some(cookie) };
        assert!(asked(Test::Same(value, false), "cookie_role", &sent), "{cookie}");
    }
    let none = Sent { path: "/", query: None, cookie: None };
    assert!(
        asked(Test::Same("", false), "arg_role", &none) && asked(Test::Same("", false), "cookie_role", &none)
    );
}

/// The host may come as `:authority`: a condition on the header is refused.
#[test]
fn the_host_is_no_header() {
    for test in [Test::Regex("^a", false), Test::Same("a.test", false), Test::True] {
        let cond = format!("{:?}", test.of("http_host"));
        assert!(cond.contains("authority") && !cond.contains("headers"), "{cond}");
    }
}

/// Each condition that is made of those before it doubles them: beyond a limit, what is guarded by them is closed.
#[test]
fn conditions_that_double_are_bounded() {
    let ifs: String = (0..40).map(|n| format!("if ($http_x_{n} = 1) {{ set $v \"${{v}}{n}\"; }} ")).collect();
    let text = format!(
        "server {{ listen 80; location / {{ set $v 0; {ifs} if ($v = 012) {{ return 403; }} proxy_pass http://10.0.0.1:1; }} }}"
    );
    let made = super::import(&text, &NoFiles).expect("an import");
    assert!(answers_itself(&made.proxies[0]));
    assert_eq!(made.proxies[0]["matches"], serde_json::json!([{ "path": { "prefix": "/" } }]), "all of them");
    assert!(made.document().to_string().len() < 100_000);
    // A map of many values that mean the same is no deep condition.
    let entries: String = (0..40).map(|n| format!("~^k{n} {}; ", n % 3 / 2)).collect();
    let text = format!(
        "http {{ map $http_x_k $bad {{ default 0; {entries} }} server {{ listen 80; location / {{ \
         if ($bad) {{ return 403; }} proxy_pass http://10.0.0.1:1; }} }} }}"
    );
    let made = super::import(&text, &NoFiles).expect("an import");
    let deepest = made.proxies.iter().map(|it| Cond::is(it["matches"][0].clone()).depth()).max();
    assert!(deepest.is_some_and(|deepest| deepest <= 16), "{deepest:?}");
}

/// A text of several variables is divided where each variable may have its part. A part that may be, and has no condition here,
/// is reported: an address of IPv6 is a host.
#[test]
fn each_variable_gets_what_it_may_have() {
    for (name, wanted, refuses, is_lost) in [
        ("$host$uri", "a.test/x", true, false),
        ("$host$uri", "[::1]/x", false, true),
        ("$host$uri", "a b/x", false, false),
        ("$request_method:$uri", "M_SEARCH:/x", true, false),
        ("$request_method:$uri", "M SEARCH:/x", false, false),
    ] {
        let text = format!(
            r#"http {{ server {{ listen 80; set $joined "{name}"; if ($joined = "{wanted}") {{ return 403; }} location / {{ proxy_pass http://10.0.0.1:1; }} }} }}"#
        );
        let made = super::import(&text, &NoFiles).expect("an import");
        let has_refusal = made.plugin_configs.iter().any(|it| it["config"]["status_code"] == 403);
        assert_eq!((has_refusal, made.report.has_loss()), (refuses, is_lost), "{wanted}");
    }
}
