//! Objects that could not be used, and can after a reload.

use serde_json::{Value, json};

use crate::client::{Client, target, until};
use crate::database::crash::api;
use crate::database::place::{ADMIN, proxy};
use crate::process::{Folder, Gateway};

/// What an object lacked may be there after a reload: a connection to Redis, a file.
#[test]
fn a_reload_looks_again_at_objects_that_could_not_be_used() {
    let folder = Folder::new();
    let settings = |more: &str| {
        format!("gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1{more} }}\n")
    };
    let redis = settings(", redis: { main: { urls: ['redis://127.0.0.1:9'] } }");
    let users = folder.path("users");
    folder.write("users", "ann:$2b$10$abcdefghijklmnopqrstuu23JPZtHcGhwXSF41f93o/7vBdDut3Xu\n");
    folder.write("ferrum.yaml", &redis);
    let start = || {
        let url = format!("sqlite:{}", folder.path("f.db").display());
        Gateway::start(&folder, |command| {
            command.args(["--mode", "database", "--db-url", &url]).env("FERRUM_ADMIN_TOKEN", ADMIN);
            command.env("FERRUM_DB_REFERENCES", format!("file:{}", folder.path("").display()));
        })
    };
    let plugin = |id: &str, plugin: &str, proxy: &str, config: Value| json!({ "id": id, "plugin_name": plugin, "scope": "proxy", "proxy_id": proxy, "config": config });
    {
        let gateway = start();
        let target = target("behind");
        api(&gateway).batch(&json!({
            "proxies": [proxy("a", "/a", target), proxy("b", "/b", target)],
            "plugin_configs": [
                plugin("limit", "rate_limiting", "a", json!({ "limits": [{ "rate": 9 }], "redis": { "name": "main" } })),
                plugin("users", "basic_auth", "b", json!({ "htpasswd_files": [users] })),
            ],
        }));
    }
    folder.write("ferrum.yaml", &settings(""));
    std::fs::rename(&users, folder.path("away")).unwrap();
    let gateway = start();
    let status = |path: &str| Client::new(gateway.http).get(path, None).status;
    assert_eq!((status("/a/x"), status("/b/x")), (503, 503), "both lack what they need");
    folder.write("ferrum.yaml", &redis);
    gateway.signal("HUP");
    until("the connection is known", || status("/a/x") == 200);
    assert_eq!(status("/b/x"), 503, "the file is still away");
    std::fs::rename(folder.path("away"), &users).unwrap();
    gateway.signal("HUP");
    until("the file is read", || status("/b/x") == 401);
    let broken = api(&gateway).get("/v1/status").json()["database"]["broken"].clone();
    assert_eq!(broken, json!([]));
    assert!(gateway.log().contains("repaired objects are in use"));
    // The revision stays the database's; the command sees the reload all the same.
    let mut reload = std::process::Command::new(env!("CARGO_BIN_EXE_ferrum-edge"));
    reload.args(["reload", "--admin", &gateway.admin.to_string()]);
    let reloaded = reload.output().unwrap();
    assert_eq!(reloaded.status.code(), Some(0), "{reloaded:?}");
}
