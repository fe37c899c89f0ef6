//! What holds for every plugin; walks the table.

use std::collections::HashSet;

use gateway_core::config::resolve::OPTIONAL_PLUGINS;
use gateway_core::http::body::Body;
use gateway_core::plugin::{Family, Registry};
use gateway_core::testing::{ReceivedRequest, Trial};
use http::Response;
use serde_json::json;

use super::PLUGINS;

mod caching;
mod callers;
mod client_claims;
mod every_reply;
mod list_fields;
mod owned_headers;
mod prefixes;
mod response_readers;
mod settings;
mod without_target;

/// The configuration crate names the plugins that a program may lack, so that an error can say that.
#[test]
fn plugins_behind_cargo_features_are_known_as_optional() {
    let table = include_str!("lib.rs");
    for (plugin, feature) in OPTIONAL_PLUGINS {
        let row = format!("#[cfg(feature = \"{feature}\")]\n");
        let row = table.split(&row).nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
        assert!(row.ends_with(&format!("::{},", plugin.to_uppercase())), "{plugin}: {row}");
    }
    assert_eq!(table.matches("#[cfg(feature").count(), OPTIONAL_PLUGINS.len());
}

#[test]
fn names_are_unique_snake_case_and_said_in_one_sentence() {
    let mut seen = HashSet::new();
    for plugin in PLUGINS {
        assert!(
            plugin.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
            "{}",
            plugin.name
        );
        assert!(seen.insert(plugin.name), "{} stands twice in the table", plugin.name);
        assert!(plugin.summary.ends_with('.') && plugin.summary.len() > 20, "{}", plugin.name);
        assert_ne!(plugin.family, Family::Other, "{} is listed with others of its kind", plugin.name);
    }
}

#[test]
fn unknown_settings_are_refused_and_every_option_is_explained() {
    let registry = Registry::new(PLUGINS);
    for plugin in PLUGINS {
        let refused = registry.build(plugin.name, None, &json!({ "no_such_option": 1 }));
        assert!(refused.is_err(), "{} takes an unknown option", plugin.name);
        let schema = (plugin.schema)();
        let properties = schema.get("properties").and_then(|it| it.as_object()).cloned().unwrap_or_default();
        for (option, about) in properties {
            assert!(about.get("description").is_some(), "{}.{option} is not explained", plugin.name);
        }
    }
}

#[tokio::test]
async fn a_response_is_transformed_before_it_is_compressed() {
    let rules = json!([{"operation": "remove", "target": "body", "key": "/secret"}]);
    let plugins = [
        ("compression", json!({"min_content_length": 0, "algorithms": ["gzip"]})),
        ("response_transformer", json!({ "rules": rules })),
    ];
    let trial = Trial::of_plugins(PLUGINS, &plugins).answering(|_| {
        let response = Response::builder().header("content-type", "application/json");
        response.body(r#"{"a":1,"secret":2}"#.into()).unwrap()
    });
    let got = trial.get("/", &[("accept-encoding", "gzip")]).await;
    assert_eq!((got.status, got.field("content-encoding")), (200, "gzip"));
    let plain = std::io::read_to_string(flate2::read::GzDecoder::new(&got.body[..])).unwrap();
    assert_eq!(plain, r#"{"a":1}"#);
    assert_eq!(got.headers.get("content-length"), None, "it would be the plain body's");
}

#[test]
fn bad_settings_are_named() {
    let registry = Registry::new(PLUGINS);
    for (name, config, path) in [
        ("correlation_id", json!({ "header_name": "a b" }), "config.header_name"),
        ("request_termination", json!({ "status_code": 99 }), "config.status_code"),
        ("request_termination", json!({ "trigger": { "header_value": "x" } }), "config.trigger.header_value"),
        ("request_terminaton", json!({}), "plugin_name"),
    ] {
        let Err(problems) = registry.build(name, None, &config) else { panic!("{name} took {config}") };
        assert_eq!(problems.0[0].path, path);
    }
}

#[tokio::test]
async fn a_request_has_one_id() {
    let long = "x".repeat(257);
    let trial = Trial::new(PLUGINS, "correlation_id", json!({}));
    for (sent, id) in [(&["a", "b"][..], "a"), (&[&long, "b", "c"], "b"), (&["", "b c"], "")] {
        let fields: Vec<_> = sent.iter().map(|value| ("x-request-id", *value)).collect();
        let got = trial.get("/", &fields).await;
        let asked = trial.asked().pop().expect("a request");
        let all: Vec<_> = asked.headers.get_all("x-request-id").iter().collect();
        assert_eq!((all.len(), all[0].to_str().expect("a text")), (1, got.field("x-request-id")), "{sent:?}");
        assert!(id.is_empty() || got.field("x-request-id") == id, "{sent:?}");
    }
}

/// What the target gets of two credentials, of which either is enough.
#[tokio::test]
async fn credentials_are_hidden_whichever_plugin_decides() {
    let basic = ("authorization", "Basic YW5uOnNlY3JldA==");
    let key = ("x-api-key", "k");
    for (mode, fields) in [
        ("single", &[key, basic][..]),
        ("multi", &[key, basic]),
        ("multi", &[("x-api-key", "wrong"), basic]),
        ("all", &[key, basic]),
    ] {
        let spec = json!({
            "proxies": [{
                "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80, "auth_mode": mode,
            }],
            "consumers": [{
                "id": "a", "username": "ann",
                "credentials": { "key_auth": "k", "basic_auth": { "password": "secret" } },
            }],
            "plugin_configs": [
                { "id": "k", "plugin_name": "key_auth", "proxy_id": "a" },
                { "id": "b", "plugin_name": "basic_auth", "proxy_id": "a" },
                { "id": "j", "plugin_name": "hmac_auth", "proxy_id": "a", "when": { "path": "/signed" } },
            ],
        });
        let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &gateway_core::plugin::World::default());
        assert_eq!(trial.get("/", fields).await.status, 200, "{mode} {fields:?}");
        let asked = trial.asked().pop().expect("a request");
        assert_eq!((asked.field("authorization"), asked.field("x-api-key")), ("", ""), "{mode} {fields:?}");
    }
}

#[tokio::test]
async fn what_is_another_plugins_to_show_stays() {
    // A scheme that no plugin here takes for its own.
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [{ "id": "a", "username": "ann", "credentials": { "key_auth": "k" } }],
        "plugin_configs": [
            { "id": "k", "plugin_name": "key_auth", "proxy_id": "a" },
            { "id": "b", "plugin_name": "basic_auth", "proxy_id": "a" },
        ],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &gateway_core::plugin::World::default());
    let fields = [("x-api-key", "k"), ("authorization", "Custom t")];
    assert_eq!(trial.get("/", &fields).await.status, 200);
    assert_eq!(trial.asked()[0].field("authorization"), "Custom t");
}

/// The first configuration on a page of the site.
fn first_example(page: &'static str) -> &'static str {
    let (_, block) = page.split_once("```yaml ").expect("an example");
    let (_, example) = block.split_once('\n').expect("its mark");
    example.split_once("```").expect("its end").0
}

#[tokio::test]
async fn the_example_of_the_authentication_guide_works() {
    let example = first_example(include_str!("../../website/src/content/docs/guides/authentication.md"));
    let trial = Trial::of_spec(PLUGINS, example, &gateway_core::plugin::World::default());
    assert_eq!(trial.closed(), Vec::<String>::new());
    let password = "Basic YW5uOmNvcnJlY3QgaG9yc2U=";
    for (field, value, expected) in [
        ("x-api-key", "0d9a4ff2c1e7a880", 200),
        ("authorization", password, 200),
        ("authorization", "Basic YW5uOndyb25n", 401),
        ("accept", "*/*", 401),
    ] {
        assert_eq!(trial.get("/shop", &[(field, value)]).await.status, expected, "{field}: {value}");
    }
    let refused = trial.get("/shop", &[("x-api-key", "wrong")]).await;
    assert_eq!(refused.headers.get_all("www-authenticate").iter().count(), 2, "the challenges of both");
}

#[tokio::test]
async fn the_example_of_the_caching_guide_works() {
    let folder = std::env::temp_dir().join(format!("ferrum-guide-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("assets")).unwrap();
    std::fs::write(folder.join("index.html"), "<h1>Hello</h1>").unwrap();
    std::fs::write(folder.join("assets/numbers.txt"), "1 2 3 ".repeat(100)).unwrap();
    let example = first_example(include_str!("../../website/src/content/docs/guides/caching.md"));
    let example = example.replace("root: site,", &format!("root: {},", folder.display()));
    let answer = |asked: &ReceivedRequest| {
        let (status, body) = if asked.path == "/broken" { (500, "a stack trace") } else { (200, "hello") };
        Response::builder().status(status).header("x-powered-by", "x").body(Body::full(body)).unwrap()
    };
    let trial = Trial::of_spec(PLUGINS, &example, &gateway_core::plugin::World::default()).answering(answer);
    assert_eq!(trial.closed(), Vec::<String>::new());

    let page = trial.get("/", &[]).await;
    assert_eq!((page.status, page.field("content-type")), (200, "text/html; charset=utf-8"));
    let asset = trial.get("/assets/numbers.txt", &[("accept-encoding", "gzip")]).await;
    assert_eq!(asset.field("content-encoding"), "gzip");
    assert_eq!(asset.field("cache-control"), "max-age=31536000, immutable");

    let first = trial.get("/shop", &[]).await;
    assert_eq!(first.headers.get("x-powered-by"), None);
    assert!(first.field("cache-status").ends_with("fwd=uri-miss; stored"), "{}", first.field("cache-status"));
    let second = trial.get("/shop", &[]).await;
    assert!(second.field("cache-status").contains("; hit"), "{}", second.field("cache-status"));
    assert_eq!(trial.asked().len(), 1);

    let error = trial.get("/shop/broken", &[]).await;
    assert!(error.text().starts_with("<h1>Please try again</h1>"), "{}", error.text());
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(feature = "script")]
#[tokio::test]
async fn the_script_of_the_guide_works() {
    let example = first_example(include_str!("../../website/src/content/docs/guides/scripts.md"));
    let proxy = "proxies: [{id: shop, listen_path: /, backend_host: t, backend_port: 80}]\n";
    let spec = format!("{proxy}{example}");
    let trial = Trial::of_spec(PLUGINS, &spec, &gateway_core::plugin::World::default());
    for n in 1..=12 {
        let expected = if n <= 10 { 200 } else { 429 };
        assert_eq!(trial.get("/", &[]).await.status, expected, "{n}");
    }
    assert_eq!(trial.get("/", &[("x-tier", "gold")]).await.status, 200);
    assert_eq!(trial.get("/", &[("x-tier", "other")]).await.status, 429);
}

#[tokio::test]
async fn several_plugins_recognise_a_caller_as_the_proxy_says() {
    let trial = |mode: &str| {
        let (mode, is_two) = mode.split_once(',').map_or((mode, None), |(mode, _)| (mode, Some(false)));
        let spec = json!({
            "proxies": [{
                "id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "auth_mode": mode,
                "same_caller": is_two,
            }],
            "consumers": [
                { "id": "m", "username": "machine", "credentials": { "key_auth": "k" } },
                { "id": "u", "username": "user", "credentials": { "key_auth": "own", "basic_auth": "p" } },
            ],
            "plugin_configs": [
                { "id": "k", "plugin_name": "key_auth", "proxy_id": "a", "config": {} },
                { "id": "b", "plugin_name": "basic_auth", "proxy_id": "a", "config": {} },
            ],
        });
        Trial::of_spec(PLUGINS, &spec.to_string(), &gateway_core::plugin::World::default())
    };
    let (key, own_key, wrong_key) = (("x-api-key", "k"), ("x-api-key", "own"), ("x-api-key", "x"));
    let (password, wrong_password) =
        (("authorization", "Basic dXNlcjpw"), ("authorization", "Basic dXNlcjp4"));
    for (mode, fields, expected) in [
        ("single", &[key, wrong_password][..], "machine"),
        ("single", &[wrong_key, password], "401"),
        ("single", &[password], "user"),
        ("multi", &[wrong_key, password], "user"),
        ("multi", &[key, password], "machine"),
        ("multi", &[wrong_key, wrong_password], "401"),
        ("all", &[key, password], "403"),
        ("all", &[own_key, password], "user"),
        ("all, but two callers", &[key, password], "user"),
        ("all", &[key], "401"),
        ("all", &[password], "401"),
        ("all", &[key, wrong_password], "401"),
        ("all", &[wrong_key, password], "401"),
    ] {
        let trial = trial(mode);
        let got = trial.get("/", fields).await;
        let caller = trial.records().pop().and_then(|record| record.caller);
        let found = caller.map_or_else(|| got.status.to_string(), |name| name.to_string());
        assert_eq!(found, expected, "{mode} {fields:?}");
    }
}
