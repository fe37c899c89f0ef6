//! Which page a client gets, and what it does not get to see.

use gateway_core::http::body::Body;
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::Folder;
use http::Response;
use serde_json::{Value, json};

use super::ErrorPages;
use crate::content::request_termination::RequestTermination;

const PLUGINS: &[Entry] = &[entry::<ErrorPages>(), entry::<RequestTermination>()];

/// What a client gets of a target that answers 503 with its own `Retry-After`.
async fn failed(config: Value, method: &str, fields: &[(&str, &str)]) -> Got {
    let trial = Trial::new(PLUGINS, "error_pages", config).answering(|_| {
        let response =
            Response::builder().status(503).header("retry-after", "7").header("x-powered-by", "secret");
        response.body(Body::from("stack trace")).unwrap()
    });
    trial.request(method, "/a?c=d", fields, "").await
}

#[tokio::test]
async fn pages_from_a_folder_keep_the_status() {
    let folder = Folder::default();
    std::fs::write(folder.0.join("503.html"), "<p>soon</p>").unwrap();
    let page = json!({"status": "5xx", "root": folder.0, "path": "/${response.status}.html"});
    let config = json!({"pages": [page]});
    for fields in [&[][..], &[("if-none-match", "*")], &[("range", "bytes=0-2")]] {
        let got = failed(config.clone(), "GET", fields).await;
        assert_eq!((got.status, got.text().as_str()), (503, "<p>soon</p>"), "{fields:?}");
        assert_eq!((got.field("retry-after"), got.field("x-powered-by")), ("7", ""));
        assert!(got.field("content-type").starts_with("text/html"));
    }
    assert_eq!(failed(config, "POST", &[]).await.text(), "<p>soon</p>");
    let other = json!({"status": "5xx", "root": folder.0, "path": "/503.html", "response_status": 200});
    assert_eq!(failed(json!({"pages": [other]}), "GET", &[]).await.status, 200);
    // One that is not there leaves the error as it is.
    for path in ["/none.html", "/../503.html", "/"] {
        let none = json!({"status": "5xx", "root": folder.0, "path": path});
        let got = failed(json!({"pages": [none]}), "GET", &[]).await;
        assert_eq!((got.status, got.text().as_str()), (503, "stack trace"), "{path}");
    }
}

#[tokio::test]
async fn errors_lead_elsewhere() {
    let page = json!({"status": 503, "redirect": "/soon?from=${request.path}"});
    let got = failed(json!({"pages": [page]}), "GET", &[]).await;
    assert_eq!((got.status, got.field("location")), (302, "/soon?from=/a"));
    assert_eq!((got.text().as_str(), got.field("retry-after")), ("", "7"));
    let page = json!({"status": 503, "redirect": "https://status.test/", "response_status": 307});
    assert_eq!(failed(json!({"pages": [page]}), "GET", &[]).await.status, 307);
}

#[test]
fn a_page_has_one_place() {
    for (page, part) in [
        (json!({"status": 404}), "needs one of"),
        (json!({"status": 404, "body": "a", "redirect": "/"}), "excludes"),
        (json!({"status": 404, "redirect": "/", "url": "http://a.test"}), "excludes"),
        (json!({"status": 404, "url": "http://a.test", "root": "/tmp", "path": "/a"}), "exactly one"),
        (json!({"status": 404, "root": "/tmp"}), "begins with `/`"),
        (json!({"status": 404, "root": "/tmp", "path": "a.html"}), "begins with `/`"),
        (json!({"status": 404, "body": "a", "path": "/a"}), "excludes"),
    ] {
        let problems = Trial::refused(PLUGINS, "error_pages", &json!({"pages": [page]})).to_string();
        assert!(problems.contains(part), "{page}: {problems}");
    }
}

async fn got(config: Value, status: u16, accept: &str, path: &str) -> Got {
    let trial = Trial::new(PLUGINS, "error_pages", config).answering(move |_| {
        let response = Response::builder().status(status).header("content-encoding", "gzip");
        let response =
            response.header("etag", "\"1\"").header("x-powered-by", "secret").header("retry-after", "7");
        response.header("content-length", "11").body(Body::from("stack trace")).unwrap()
    });
    let fields: &[(&str, &str)] = if accept.is_empty() { &[] } else { &[("accept", accept)] };
    trial.get(path, fields).await
}

fn pages() -> Value {
    json!({"pages": [
        {"status": "5xx, 404", "body": "<p>${response.status}\n${request.path}</p>"},
        {"status": "500-504", "content_type": "application/json", "body": "{\"path\":\"${request.query.q}\"}"},
        {"status": "5xx", "content_type": "text/plain", "body": "$5 $$ ${request.query.q}"},
    ]})
}

#[tokio::test]
async fn the_best_page_for_status_and_accept() {
    for (status, accept, kind) in [
        (500, "", "text/html; charset=utf-8"),
        (500, "text/html", "text/html; charset=utf-8"),
        (500, "application/json", "application/json"),
        (500, "text/*;q=0.5, application/*", "application/json"),
        (500, "*/*;q=0.1, text/plain;q=0.9", "text/plain"),
        (500, "text/html;q=0, */*", "application/json"),
        (500, "image/png", "text/html; charset=utf-8"),
        (599, "application/json", "text/html; charset=utf-8"),
        (404, "text/plain", "text/html; charset=utf-8"),
    ] {
        let got = got(pages(), status, accept, "/").await;
        assert_eq!((got.status, got.field("content-type")), (status, kind), "{status} {accept}");
        assert!(!got.text().contains("stack trace"));
        assert_eq!(
            (got.field("etag"), got.field("content-encoding"), got.field("retry-after")),
            ("", "", "7")
        );
        assert_eq!(got.headers.contains_key("vary"), status == 500 || status == 599);
    }
    for status in [200, 304, 403] {
        assert_eq!(got(pages(), status, "", "/").await.text(), "stack trace", "{status}");
    }
}

#[tokio::test]
async fn values_can_not_become_markup() {
    let evil = "/%3Cscript%3E?q=%3C/script%3E%22%5C%27";
    let html = json!({"pages": [{"status": "4xx", "body": "<p title='${request.query.q}'>"}]});
    assert_eq!(got(html, 400, "", evil).await.text(), "<p title='&lt;/script&gt;&quot;\\&#39;'>");
    let unknown = json!({"pages": [{"status": "4xx", "content_type": "x/y", "body": "${request.query.q}"}]});
    assert!(!got(unknown, 400, "", evil).await.text().contains('<'));
    let got = got(pages(), 500, "application/json", evil).await;
    assert_eq!(got.json()["path"], "</script>\"\\'");
    assert!(!got.text().contains('<'));
}

#[tokio::test]
async fn a_dollar_sign_and_lines_stay() {
    assert_eq!(
        got(pages(), 500, "text/plain", "/?q=a%0ab").await.text(),
        "$5 $ ",
        "a value with a line is left out"
    );
    assert_eq!(got(pages(), 500, "", "/x").await.text(), "<p>500\n/x</p>");
}

#[tokio::test]
async fn whose_errors_and_which_headers() {
    for (of, target, gateway) in [("all", true, true), ("target", true, false), ("gateway", false, true)] {
        let config = json!({"of": of, "remove_headers": ["X-Powered-By"], "pages": [{"status": "5xx", "body": "mine"}]});
        let got = got(config.clone(), 500, "", "/").await;
        assert_eq!(got.text() == "mine", target, "{of}");
        assert_eq!(got.field("x-powered-by").is_empty(), target, "{of}");
        let trial =
            Trial::of_plugins(PLUGINS, &[("error_pages", config), ("request_termination", json!({}))]);
        assert_eq!(trial.get("/", &[]).await.text() == "mine", gateway, "{of}");
    }
}

/// What a request calls itself is its sender's to choose: it lays open no error that a page hides.
#[tokio::test]
async fn errors_are_hidden_from_requests_that_call_themselves_grpc() {
    for (answered, is_hidden) in [("text/plain", true), ("application/grpc", false)] {
        let trial = Trial::new(PLUGINS, "error_pages", pages()).answering(move |_| {
            let response = Response::builder().status(500).header("content-type", answered);
            response.body(Body::from("stack trace")).unwrap()
        });
        let got = trial.request("POST", "/", &[("content-type", "application/grpc")], "x").await;
        assert_eq!((got.status, !got.text().contains("stack trace")), (500, is_hidden), "{answered}");
    }
}

#[test]
fn settings_that_can_not_be_meant_are_refused() {
    for page in [
        json!({"status": "200", "body": ""}),
        json!({"status": "3xx", "body": ""}),
        json!({"status": "504-500", "body": ""}),
        json!({"status": "", "body": ""}),
        json!({"status": "404", "body": "${no.such}"}),
        json!({"status": "404", "content_type": "html", "body": ""}),
        json!({"status": "404", "body": "x".repeat(300_000)}),
        json!({"status": "404", "redirect": "https://${request.header.x-host}/"}),
        json!({"status": "404", "redirect": "//${request.path}"}),
    ] {
        Trial::refused(PLUGINS, "error_pages", &json!({"pages": [page]}));
    }
    Trial::refused(PLUGINS, "error_pages", &json!({}));
    let framing = json!({"remove_headers": ["content-length"], "pages": [{"status": "404", "body": "x"}]});
    Trial::refused(PLUGINS, "error_pages", &framing);
}

/// RFC 9110 §15.5.17: it tells the client how long the resource is.
#[tokio::test]
async fn a_page_for_a_range_out_of_bounds_says_how_long_the_resource_is() {
    let config = json!({"pages": [{"status": "4xx", "body": "mine"}]});
    for (status, kept) in [(416, "bytes */5"), (404, "")] {
        let trial = Trial::new(PLUGINS, "error_pages", config.clone()).answering(move |_| {
            let response = Response::builder().status(status).header("content-range", "bytes */5");
            response.body(Body::full("theirs")).unwrap()
        });
        let got = trial.get("/", &[("range", "bytes=9-")]).await;
        assert_eq!((got.text().as_str(), got.field("content-range")), ("mine", kept), "{status}");
    }
}
