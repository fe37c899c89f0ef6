//! Header fields that are lists, to which several plugins and the target contribute: none takes out what another put in.

use std::collections::BTreeSet;

use gateway_core::testing::{Got, Trial};
use serde_json::{Value, json};

use super::*;

/// Fields of responses that are lists.
const LISTS: [&str; 7] =
    ["access-control-expose-headers", "vary", "cache-control", "server-timing", "link", "via", "warning"];

/// Plugins that contribute to one of them, or to responses at all.
fn contributors() -> Vec<(&'static str, Value)> {
    vec![
        ("cors", json!({ "allowed_origins": ["https://a.test"], "exposed_headers": ["X-Of-Cors"] })),
        ("grpc_web", json!({ "expose_headers": ["X-Of-Calls"] })),
        ("compression", json!({ "min_content_length": 0 })),
        ("server_timing", json!({})),
        ("correlation_id", json!({})),
        ("security_headers", json!({})),
        ("csrf", json!({ "secret": "0123456789abcdef0123456789abcdef" })),
        ("sse", json!({})),
        ("rate_limiting", json!({ "limits": [{ "rate": 100, "per": "1s" }] })),
        ("response_cache", json!({})),
        ("response_size_limiting", json!({ "max_size": 10_000 })),
        ("request_deduplication", json!({})),
        (
            "error_pages",
            json!({ "pages": [
            { "status": "404", "content_type": "text/html", "body": "gone" },
            { "status": "404", "content_type": "application/json", "body": "{}" },
        ] }),
        ),
    ]
}

/// The members of a list, without what differs from one response to the next.
fn members(got: &Got, field: &str) -> BTreeSet<String> {
    let values = got.headers.get_all(field).iter().map(|value| value.to_str().unwrap().to_owned());
    let members: Vec<String> =
        values.flat_map(|value| value.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    let names =
        members.iter().map(|member| member.split(";dur=").next().unwrap().trim().to_ascii_lowercase());
    names.collect()
}

/// Answers of a chain of these plugins to a page's requests: a page, one that is not there, and a call.
async fn answers(plugins: &[(&str, Value)]) -> Vec<Got> {
    let trial = Trial::of_plugins(PLUGINS, plugins).answering(|asked| {
        let is_call = asked.field("content-type").starts_with("application/grpc");
        let mut response = Response::builder()
            .status(if asked.path == "/none" { 404 } else { 200 })
            .header("content-type", if is_call { "application/grpc" } else { "text/html" });
        for field in LISTS {
            response = response.header(field, "of-target");
        }
        response.body(Body::from("a page, a page, a page")).unwrap()
    });
    let page = [("origin", "https://a.test"), ("accept-encoding", "gzip"), ("accept", "text/html")];
    let call = [("origin", "https://a.test"), ("content-type", "application/grpc-web+proto")];
    vec![
        trial.get("/", &page).await,
        trial.get("/none", &page).await,
        trial.request("POST", "/a.B/C", &call, "").await,
    ]
}

#[tokio::test]
async fn no_plugin_takes_out_of_a_list_what_another_put_in() {
    let all = contributors();
    let mut alone = Vec::new();
    for plugin in &all {
        alone.push(answers(std::slice::from_ref(plugin)).await);
    }
    for (n, first) in all.iter().enumerate() {
        for (m, second) in all.iter().enumerate().skip(n + 1) {
            let both = answers(&[first.clone(), second.clone()]).await;
            for (at, got) in both.iter().enumerate() {
                // What one of them refuses, the others do not see; a call is refused in its gRPC status.
                let outcome = |got: &Got| (got.status, got.field("grpc-status").to_owned());
                if [&alone[n][at], &alone[m][at]].iter().any(|alone| outcome(alone) != outcome(got)) {
                    continue;
                }
                for field in LISTS {
                    let wanted = &members(&alone[n][at], field) | &members(&alone[m][at], field);
                    let missing: Vec<String> = wanted.difference(&members(got, field)).cloned().collect();
                    assert!(
                        missing.is_empty(),
                        "{} and {}, answer {at}: {field} lacks {missing:?}",
                        first.0,
                        second.0
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn a_page_can_read_the_status_of_its_calls() {
    let got = answers(&contributors()).await.pop().unwrap();
    let exposed = members(&got, "access-control-expose-headers");
    for name in ["grpc-status", "grpc-message", "x-of-calls", "x-of-cors"] {
        assert!(exposed.contains(name), "{exposed:?}");
    }
}
