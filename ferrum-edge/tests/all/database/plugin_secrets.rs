//! Secrets in plugin configs, as who uses the API meets them.

use ferrum_edge::source::database::Database;
use ferrum_edge::store::seal::Keys;
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};

use crate::database::place::{Folder, Running, WRITE, text};

const PATH: &str = "/v1/plugin_configs/t";

fn rule(name: &str, value: &Value) -> Value {
    json!({ "operation": "set", "target": "header", "key": name, "value": value })
}

fn transformer(rules: &[Value]) -> Value {
    json!({ "id": "t", "plugin_name": "request_transformer", "scope": "global", "config": { "rules": rules } })
}

/// The plugin config as the database has it.
fn stored(folder: &Folder) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("sqlite:{}", folder.database().display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let select = "SELECT document FROM ferrum_objects WHERE kind = 'plugin_configs' AND id = 't'";
        let document = sqlx::query_scalar(select).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        document
    })
}

#[test]
fn rules_change_places_with_their_secrets() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let mut api = running.api();
    let plain = rule("x-a", &json!("https://a.example"));
    api.good("PUT", PATH, &transformer(&[plain.clone(), rule("authorization", &json!("HUSH"))]));
    let shown = api.get(PATH).json();
    let mark = shown["config"]["rules"][1]["value"].clone();
    assert!(text(&mark["fingerprint"]).len() > 4, "{shown}");
    let api = api.with(WRITE);
    api.good("PUT", PATH, &transformer(&[rule("authorization", &mark), plain.clone()]));
    let mark = api.get(PATH).json()["config"]["rules"][0]["value"].clone();
    let other = rule("x-b", &json!("https://b.example"));
    api.good("PUT", PATH, &transformer(&[other, plain, rule("authorization", &mark)]));
    assert!(!stored(&folder).contains("HUSH"));
    assert_eq!(running.broken(), Vec::<String>::new());
}

#[test]
fn a_rollback_encrypts_what_history_has_in_the_clear() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let clear = transformer(&[rule("authorization", &json!("HUSH"))]);
    folder.by_hand("plugin_configs", "t", Some(&clear.to_string()));
    running.follows(1);
    let mut api = running.api();
    api.good("PUT", PATH, &transformer(&[rule("x-a", &json!("a"))]));
    api.good("POST", "/v1/revisions/1/rollback", &json!({}));
    let now = stored(&folder);
    assert!(now.contains("authorization") && !now.contains("HUSH"), "{now}");
    assert_eq!(running.broken(), Vec::<String>::new());
}

#[test]
fn without_a_key_what_is_in_the_clear_can_be_switched_off() {
    let folder = Folder::new();
    let running = Running::on(Database { keys: Keys::default(), ..Running::database(folder.location()) });
    let clear = transformer(&[rule("authorization", &json!("HUSH"))]);
    folder.by_hand("plugin_configs", "t", Some(&clear.to_string()));
    running.follows(1);
    let mut api = running.api();
    let off = api.send("PATCH", PATH, &json!({ "enabled": false }));
    assert_eq!(off.status, 200, "{off:?}");
    let shown = api.get(PATH).json();
    assert_eq!(shown["enabled"], false, "{shown}");
    api.good("PUT", PATH, &shown);
    let new = api.send("PUT", PATH, &transformer(&[rule("authorization", &json!("NEW"))]));
    assert_eq!(new.status, 422, "{new:?}");
    assert!(new.text.contains("FERRUM_DB_ENCRYPTION_KEY"), "{new:?}");
}
