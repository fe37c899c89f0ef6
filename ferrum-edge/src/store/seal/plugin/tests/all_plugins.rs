//! Every plugin: what its secrets are, and where they may not go.

use super::*;

/// Settings of a plugin as they are stored, and changes after which a kept secret would go elsewhere, or become known.
type BoundSettings = (&'static str, Value, Vec<(&'static str, Value)>);

fn settings_of_code() -> Vec<BoundSettings> {
    vec![
        (
            "script",
            json!({ "source": "fn on_request(r) {}", "settings": { "signing_key": "hush", "n": 1 } }),
            vec![
                ("/source", json!("fn on_request(r) { r.reply(200, settings.signing_key) }")),
                ("/path", json!("other.rhai")),
                ("/settings/n", json!(2)),
                ("/calls", json!({ "a": { "url": "https://evil.test" } })),
                ("/record_fields", json!(["signing_key"])),
                ("/read_request_body", json!(true)),
            ],
        ),
        (
            "wasm",
            json!({ "path": "a.wasm", "sha256": "aa", "environment": { "API_TOKEN": "hush" } }),
            vec![
                ("/path", json!("b.wasm")),
                ("/sha256", json!("bb")),
                ("/root_id", json!("other")),
                ("/vm_settings", json!({ "echo": true })),
                ("/environment/OTHER", json!("x")),
                ("/calls", json!({ "a": { "url": "https://evil.test" } })),
            ],
        ),
    ]
}

fn settings_of_rules() -> Vec<BoundSettings> {
    let rule = |target: &str, key: &str, value: &str| json!({ "rules": [{ "operation": "set", "target": target, "key": key, "value": value }] });
    vec![
        (
            "request_transformer",
            rule("header", "authorization", "hush"),
            vec![
                ("/rules/0/key", json!("x-api-key")),
                ("/rules/0/target", json!("query")),
                ("/rules/0/operation", json!("add")),
            ],
        ),
        (
            "response_transformer",
            rule("header", "set-cookie", "hush"),
            vec![("/rules/0/key", json!("x-access-token"))],
        ),
    ]
}

fn settings_with_servers() -> Vec<BoundSettings> {
    vec![
        (
            "otel_tracing",
            json!({ "exporter": { "endpoint": "https://a.test", "headers": { "x-team": "hush" } } }),
            vec![
                ("/exporter/endpoint", json!("https://evil.test")),
                ("/exporter/ca_path", json!("/tmp/ca.pem")),
                ("/exporter/protocol", json!("grpc")),
            ],
        ),
        (
            "ldap_auth",
            json!({ "urls": ["ldaps://a.test"], "search": { "bind_password": "hush" } }),
            vec![
                ("/urls/0", json!("ldaps://evil.test")),
                ("/start_tls", json!(false)),
                ("/plaintext", json!(true)),
            ],
        ),
        (
            "oauth2_introspection",
            json!({ "introspection_url": "https://a.test", "client_secret": "hush" }),
            vec![("/introspection_url", json!("https://evil.test")), ("/ca_path", json!("/tmp/ca.pem"))],
        ),
        (
            "oidc",
            json!({ "issuer": "https://a.test", "client_secret": "hush" }),
            vec![("/issuer", json!("https://evil.test")), ("/discovery_url", json!("https://evil.test"))],
        ),
        (
            "any_other",
            json!({ "lists": [{ "to": "a", "token": "hush" }, { "to": "b", "token": "other" }] }),
            vec![("/lists/0/to", json!("c")), ("/template", json!("${request.path}"))],
        ),
        (
            "any_other",
            json!({ "feed": "https://a.test/list?token=hush", "password": "hush" }),
            vec![("/feed", json!("https://evil.test/list?token=x"))],
        ),
    ]
}

#[test]
fn kept_secrets_go_nowhere_else() {
    let cases = [settings_of_code(), settings_of_rules(), settings_with_servers()].concat();
    for (plugin, config, changes) in cases {
        let whole =
            |config: &Value| json!({ "id": "p", "plugin_name": plugin, "config": config }).to_string();
        let stored = seal(&whole(&config), None, &keys()).expect("is sealed");
        assert!(!stored.contains("hush"), "{stored}");
        let shown = redact(&stored).expect("is shown");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let write = |config: &Value| {
            let document = retain(&whole(config), &stored, &keys())?;
            let request = serde_json::from_str(&whole(config)).expect("JSON");
            check_binding(&request, &document, &stored, &keys())
        };
        write(&shown["config"]).unwrap_or_else(|error| panic!("{plugin}: nothing changes, and {error}"));
        for (place, value) in changes {
            let mut changed = shown["config"].clone();
            let (parent, name) = place.rsplit_once('/').expect("a place");
            match changed.pointer_mut(parent).expect("is there") {
                Value::Array(items) => items[name.parse::<usize>().expect("a number")] = value,
                fields => fields[name] = value,
            }
            let refused = write(&changed);
            assert!(
                matches!(refused, Err(SealError::Moved(_) | SealError::Setting { .. })),
                "{plugin}{place}: {refused:?}"
            );
        }
    }
}

#[test]
fn secrets_of_list_items_stay_with_their_items() {
    let item = |to: &str, token: Value| json!({ "to": to, "token": token });
    let whole = |items: [Value; 2]| {
        json!({ "id": "p", "plugin_name": "request_transformer", "config": { "rules": items } }).to_string()
    };
    let stored = whole([item("a", json!("hush-a")), item("b", json!("hush-b"))]);
    let stored = seal(&stored, None, &keys()).expect("is sealed");
    let shown: Value = serde_json::from_str(&redact(&stored).expect("is shown")).expect("JSON");
    let mark = |n: usize| shown["config"]["rules"][n]["token"].clone();
    let write = |items| {
        let document = retain(&whole(items), &stored, &keys())?;
        check_binding(&json!({}), &document, &stored, &keys())
    };
    write([item("b", mark(1)), item("a", mark(0))]).expect("the items change places");
    assert!(write([item("a", mark(1)), item("b", mark(0))]).is_err(), "the secrets change places");
}

#[test]
fn secrets_are_known_by_what_they_are() {
    let document = json!({ "id": "p", "plugin_name": "x", "config": {
        "allow_urls": ["https://a.test/list?token=hush-1", "https://shown-1.test/list"],
        "jwks_uri": "https://ann:hush-2@a.test/keys",
        "environment": { "API_TOKEN": "hush-3", "anything": "hush-4" },
        "settings": { "apiKey": "hush-5", "hmac_key": "hush-6", "greeting": "shown-2" },
        "vm_settings": "{\"token\": \"hush-7\"}",
        "rules": [
            { "target": "header", "key": "Cookie", "value": "sid=hush-8" },
            { "target": "query", "key": "api_key", "value": "hush-9" },
            { "target": "body", "key": "/user/password", "value": "hush-0" },
            { "target": "query", "key": "page", "value": "shown-3" },
        ],
        "query": { "set": [{ "name": "access_token", "value": "hush-a" }, { "name": "q", "value": "shown-4" }] },
        "location": "https://shown-5.test/?code=${request.query.code}",
    }});
    let document = document.to_string();
    let sealed = seal(&document, None, &keys()).expect("is sealed");
    for text in [&sealed, &redact(&sealed).expect("is shown"), &redact(&document).expect("is shown")] {
        assert!(!text.contains("hush"), "{text}");
        for shown in 1..=5 {
            assert!(text.contains(&format!("shown-{shown}")), "{text}");
        }
    }
    assert_eq!(unseal(&sealed, &keys()).expect("opens"), document);
    assert_eq!(seal(&sealed, None, &keys()).expect("is sealed"), sealed, "sealing twice changes nothing");
    assert_eq!(retain(&redact(&sealed).expect("is shown"), &sealed, &keys()).expect("is kept"), sealed);
}

/// Plugins whose secrets no server of theirs gets, and those whose servers have settings of known names. Every other plugin is bound
/// by all its texts, new ones among them.
const BY_PLACE: &[&str] = &[
    "csrf",
    "jwt_auth",
    "request_termination",
    "request_transformer",
    "response_mock",
    "response_transformer",
    "rewrite",
];
const BY_SERVER: &[&str] = &["jwks_auth", "ldap_auth", "oauth2_introspection", "oidc", "otel_tracing"];

#[test]
fn every_text_of_every_plugin_binds_its_secrets() {
    let registry = crate::plugins();
    let mut checked = 0;
    for entry in registry.entries().iter().filter(|entry| !BY_PLACE.contains(&entry.name)) {
        let schema = (entry.schema)().to_value();
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let is_text = |schema: &Value| match &schema["type"] {
            Value::String(kind) => kind == "string",
            Value::Array(kinds) => kinds.contains(&json!("string")),
            _ => false,
        };
        let is_server = |name: &str| {
            !BY_SERVER.contains(&entry.name)
                || ["url", "urls", "endpoint", "ca_path"].iter().any(|end| name.ends_with(end))
        };
        let is_limit = |name: &str| {
            ["script", "wasm"].contains(&entry.name)
                && (["refresh", "timeout", "start_timeout"].contains(&name) || name.starts_with("max_"))
        };
        let is_secret = |name: &str| is_secret(name) || ["settings", "vm_settings"].contains(&name);
        let texts = properties.iter().filter(|(_, schema)| is_text(schema)).map(|(name, _)| name);
        for name in texts.filter(|name| is_server(name) && !is_secret(name) && !is_limit(name)) {
            let document = |value: &str, secret: Value| json!({ "id": "p", "plugin_name": entry.name, "config": { "api_key": secret, name: value } });
            let stored =
                seal(&document("before", json!("hush")).to_string(), None, &keys()).expect("is sealed");
            let kept: Value = serde_json::from_str(&redact(&stored).expect("is shown")).expect("JSON");
            let changed = document("after", kept["config"]["api_key"].clone());
            let kept = retain(&changed.to_string(), &stored, &keys()).expect("is kept");
            let result = check_binding(&changed, &kept, &stored, &keys());
            assert!(matches!(result, Err(SealError::Moved(_))), "{}.{name}: {result:?}", entry.name);
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

/// Each place of a schema with what it says of the place.
fn places(root: &Value, schema: &Value, place: &str, found: &mut Vec<(String, Value)>, depth: usize) {
    let target = schema["$ref"].as_str().and_then(|it| it.strip_prefix('#')).and_then(|it| root.pointer(it));
    let parts = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    if depth > 12 {
        return;
    }
    target.into_iter().chain(parts).for_each(|part| places(root, part, place, found, depth + 1));
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{place}/{name}");
        found.push((place.clone(), schema.clone()));
        places(root, schema, &place, found, depth + 1);
    }
    if schema["items"].is_object() {
        places(root, &schema["items"], &format!("{place}/0"), found, depth + 1);
    }
}

/// The type of a setting says that it is a secret (`"format": "secret"`), and what its type says is so everywhere.
#[test]
fn secrets_are_those_that_their_types_declare() {
    let mut declared = 0;
    for entry in crate::plugins().entries() {
        let schema = (entry.schema)().to_value();
        let mut found = Vec::new();
        places(&schema, &schema, "", &mut found, 0);
        for (place, schema) in found {
            let is_declared = schema["format"] == "secret";
            let is_map = schema["additionalProperties"].is_object();
            let mut document = json!({ "id": "p", "plugin_name": entry.name, "config": null });
            let value = if is_map { json!({ "x-any": "hush" }) } else { json!("hush") };
            let config =
                place.rsplit('/').filter(|part| !part.is_empty()).fold(value, |value, part| match part {
                    "0" => json!([value]),
                    name => json!({ name: value }),
                });
            document["config"] = config;
            let is_hidden = !redact(&document.to_string()).expect("is shown").contains("hush");
            let is_of_code = matches!(&*place, "/settings" | "/vm_settings") && !is_declared;
            let kinds = schema["type"].to_string();
            let is_text = is_map || kinds.contains("string") || kinds.contains("array");
            assert!(is_hidden == is_declared || is_of_code || !is_text, "{}{place}: {is_hidden}", entry.name);
            declared += usize::from(is_declared);
        }
    }
    assert!(declared > 10, "{declared}");
}
