//! The variables that targets receive, and the scripts of paths.

use std::sync::Arc;

use http::Request;

use super::*;
use crate::config::model::{ScriptCandidate, Scripts};
use crate::config::template::{Moment, Template};
use crate::http::body::Body;
use crate::http::cgi_request::Script;
use crate::http::exchange::Client;

fn candidate(text: &str) -> ScriptCandidate {
    let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    let (before, behind) = path.split_once("{path}").map_or((path, None), |(a, b)| (a, Some(b)));
    ScriptCandidate {
        before: before.into(),
        behind: behind.map(Into::into),
        query: query.map(|query| Template::parse(&format!("?{query}"), Moment::Request).unwrap()),
    }
}

fn rules(candidates: &[&str], checks: bool) -> FastCgi {
    FastCgi {
        scripts: Some(Scripts {
            root: "/srv/app".into(),
            local_root: checks.then(|| "/srv/app".into()),
            index: "index.php".into(),
            endings: [".php".into()].into(),
            candidates: candidates.iter().map(|text| candidate(text)).collect(),
        }),
        params: Box::default(),
        keep_alive: false,
        unsized_body: 0,
    }
}

fn exchange(target: &str) -> Exchange {
    let request = Request::builder().uri(target).header("host", "a.test:8080");
    let request = request.header("content-type", "text/plain").body(Body::empty()).unwrap();
    let client =
        Client::new("10.0.0.9:1234".parse().unwrap(), "127.0.0.1:8000".parse().unwrap(), false, None);
    Exchange::new(request, Arc::new(client))
}

fn made(rules: &FastCgi, target: &str) -> Result<CgiRequest, Box<Reply>> {
    let exchange = exchange(target);
    CgiRequest::of(rules, &Facts::of(&exchange), target, "")
}

/// The candidate scripts of a path, each with its path info and its own query.
fn scripts(candidates: &[&str], checks: bool, target: &str) -> Vec<String> {
    let made = made(&rules(candidates, checks), target).map(|made| made.scripts).unwrap_or_default();
    let shown = |script: &Script| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let query = script.query.as_ref().map_or_else(String::new, |query| format!("?{}", text(query)));
        format!("{}|{}{query}", text(&script.name), text(&script.path_info))
    };
    made.iter().map(shown).collect()
}

#[test]
fn paths_lead_to_scripts() {
    const PLAIN: &[&str] = &["{path}"];
    const BEHIND: &[&str] = &["{path}/index.php", "/index.php"];
    const FRONT: &[&str] = &["{path}", "{path}/index.php", "/index.php"];
    for (candidates, target, expected) in [
        (PLAIN, "/", &["/index.php|"][..]),
        (PLAIN, "/a.php", &["/a.php|"]),
        (PLAIN, "/A.PHP", &["/A.PHP|"]),
        (PLAIN, "/a.php/b/c?x=1", &["/a.php|/b/c"]),
        (PLAIN, "/a.php/b.php", &["/a.php|/b.php", "/a.php/b.php|"]),
        (PLAIN, "/a%20b.php", &["/a b.php|"]),
        (PLAIN, "/wp-admin/", &["/wp-admin/index.php|"]),
        (PLAIN, "/a.php/b/", &["/a.php|/b/", "/a.php/b/index.php|"]),
        (PLAIN, "/about", &[]),
        (PLAIN, "/a.phpx", &[]),
        (PLAIN, "/a.php.txt", &[]),
        (FRONT, "/2024/hello/", &["/2024/hello/index.php|", "/2024/hello/index.php|", "/index.php|"]),
        (FRONT, "/about", &["/about/index.php|", "/index.php|"]),
        (BEHIND, "/a.php/", &["/a.php/index.php|", "/index.php|"]),
        (BEHIND, "/a.php/b", &["/a.php/b/index.php|", "/index.php|"]),
        (BEHIND, "/index.php/a", &["/index.php/a/index.php|", "/index.php|"]),
        (&["/index.php?q=${request.path}&${request.query}"], "/n/1?a=b", &["/index.php|?q=/n/1&a=b"]),
        (&["/cgit.php{path}"], "/repo/log", &["/cgit.php|/repo/log"]),
    ] {
        assert_eq!(scripts(candidates, true, target), expected, "{candidates:?} {target}");
    }
}

#[test]
fn nothing_outside_or_hidden_is_a_script() {
    const ALL: &[&str] = &["{path}"];
    for target in [
        "/../a.php",
        "/a/%2e%2e/b.php",
        "/%2e%2e%2fa.php",
        "/.git/a.php",
        "/a/.b.php",
        "/a%5Cb.php",
        "//a.php",
    ] {
        assert_eq!(scripts(ALL, true, target), [""; 0], "{target}");
    }
    assert_eq!(scripts(ALL, true, "/a.php/%2e%2e/b"), [""; 0]);
    assert_eq!(scripts(ALL, true, "/.well-known/a.php"), ["/.well-known/a.php|"]);
    assert_eq!(made(&rules(ALL, true), "/a%00.php").unwrap_err().cause, Cause::BadRequest);
    // Without a lookup, the gateway cannot distinguish files from folders.
    assert_eq!(scripts(ALL, false, "/a.jpg/x.php"), [""; 0]);
    assert_eq!(scripts(ALL, false, "/a.php/x.php"), ["/a.php|/x.php"]);
    assert_eq!(scripts(ALL, true, "/a.jpg/x.php"), ["/a.jpg/x.php|"]);
}

#[test]
fn variables_describe_the_request() {
    let mut rules = rules(&["{path}"], true);
    rules.params = [
        ("APP_ENV".into(), ParamValue::Text("prod".into())),
        (
            "SERVER_NAME".into(),
            ParamValue::Template(Template::parse("x-${request.host}", Moment::Attempt).unwrap()),
        ),
    ]
    .into();
    let made = made(&rules, "/a.php?x=%20").unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let told: Vec<_> = made.variables.iter().map(|(name, value)| (text(name), text(value))).collect();
    for (name, value) in [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REDIRECT_STATUS", "200"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", "/a.php?x=%20"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("CONTENT_TYPE", "text/plain"),
        ("DOCUMENT_ROOT", "/srv/app"),
        ("REMOTE_ADDR", "10.0.0.9"),
        ("REMOTE_PORT", "1234"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "8000"),
        ("SERVER_NAME", "x-a.test"),
        ("APP_ENV", "prod"),
    ] {
        let values: Vec<_> = told.iter().filter(|(known, _)| known == name).map(|(_, it)| it).collect();
        assert_eq!(values, [value], "{name}");
    }
    assert!(!made.variables.has("HTTPS") && !made.variables.has("REMOTE_USER"));
    assert_eq!(text(&made.query), "x=%20");
}
