//! The admin API, one thing at a time.

use serde_json::json;

use crate::client::target;
use crate::place::{Folder, Running, key_auth, protected, proxy};

#[test]
fn what_is_deleted_and_put_at_once_is_refused() {
    let folder = Folder::new();
    let running = Running::new(&folder);
    let (mut api, target) = (running.api(), target("behind"));
    api.batch(&protected(target));
    let both = json!({ "delete": { "proxies": ["a"] }, "proxies": [proxy("a", "/a", target)] });
    let answer = api.send("POST", "/v1/batch", &both);
    assert_eq!(answer.status, 422, "{answer:?}");
    let both = json!({ "delete": { "plugin_configs": ["a-key", "a-key"] }, "plugin_configs": [key_auth("a-key", "a")] });
    assert_eq!(api.send("POST", "/v1/batch", &both).status, 422);
    let mut client = running.client();
    assert_eq!(client.get("/a/x", None).status, 401);
    assert_eq!(api.get("/v1/proxies/a").status, 200);
}
