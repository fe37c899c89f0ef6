//! A protected route under fire: whatever is changed about it, nobody gets through without a key.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use ferrum_edge::store::Engine;
use serde_json::{Value, json};

use crate::client::{Client, target};
use crate::database::peers::{database, start};
use crate::database::place::{Api, Folder, Running, key_auth, protected, proxy};
use crate::servers::shared;

/// How many changes the test makes; more with the variable of this name.
const CHANGES: &str = "FERRUM_HAMMER";
const USUALLY: u64 = 600;

/// Clients without a key that ask as fast as they are answered.
struct Attackers {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Attackers {
    fn start(gateway: SocketAddr) -> Self {
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let paths = ["/a/x", "/b/x", "/a", "/a/x?apikey=wrong"];
        let threads = paths.map(|path| {
            let (stop, asked) = (stop.clone(), asked.clone());
            thread::spawn(move || {
                let mut client = Client::new(gateway);
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.get(path, None);
                    assert!([401, 404].contains(&answer.status), "{path} without a key: {answer:?}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Self { stop, asked, threads: threads.into() }
    }

    fn still_outside(&self) {
        assert!(self.threads.iter().all(|thread| !thread.is_finished()), "somebody got through, or gave up");
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.asked.load(Ordering::Relaxed)
    }
}

/// One round of changes, each of which leaves the route protected or gone.
fn steps(target: SocketAddr) -> Vec<Value> {
    let at = |path: &str| proxy("a", path, target);
    let naming = |path: &str, config: &str| {
        let mut proxy = at(path);
        proxy["plugins"] = json!([{ "plugin_config_id": config }]);
        proxy
    };
    let group = |id: &str| json!({ "id": id, "plugin_name": "key_auth", "scope": "proxy_group" });
    let global = json!({ "id": "every", "plugin_name": "key_auth", "scope": "global" });
    let set = |id: &str, header: &str| {
        let mut config = key_auth(id, "a");
        config["config"] = json!({ "key_location": header });
        config
    };
    let off = |id: &str| {
        let mut config = key_auth(id, "a");
        config["enabled"] = json!(false);
        config
    };
    vec![
        // Its settings change, and change back.
        json!({ "plugin_configs": [set("k1", "query:apikey")] }),
        json!({ "plugin_configs": [set("k1", "header:X-API-Key")] }),
        // Another one takes its place.
        json!({ "plugin_configs": [key_auth("k2", "a")], "delete": { "plugin_configs": ["k1"] } }),
        // Switched off while another one stands in, and on again.
        json!({ "plugin_configs": [off("k2"), key_auth("k3", "a")] }),
        json!({ "plugin_configs": [key_auth("k2", "a")], "delete": { "plugin_configs": ["k3"] } }),
        // The route moves.
        json!({ "proxies": [at("/b")] }),
        json!({ "proxies": [at("/a")] }),
        // From the proxy's own to one of a group, to another of the group, to one for all, and back.
        json!({ "plugin_configs": [group("k2")], "proxies": [naming("/a", "k2")] }),
        json!({ "plugin_configs": [group("k4")], "proxies": [naming("/a", "k4")], "delete": { "plugin_configs": ["k2"] } }),
        json!({ "plugin_configs": [global], "proxies": [at("/a")], "delete": { "plugin_configs": ["k4"] } }),
        json!({ "plugin_configs": [key_auth("k1", "a")], "delete": { "plugin_configs": ["every"] } }),
        // Everything goes, and comes back.
        json!({ "delete": { "proxies": ["a"] } }),
        json!({ "plugin_configs": [key_auth("k1", "a")], "proxies": [at("/a")] }),
        // Deleted and put at once, under another path, with another plugin config.
        json!({ "delete": { "plugin_configs": ["k1"] }, "plugin_configs": [key_auth("k5", "a")], "proxies": [at("/b")] }),
        json!({ "delete": { "plugin_configs": ["k5"] }, "plugin_configs": [key_auth("k1", "a")], "proxies": [at("/a")] }),
    ]
}

#[test]
fn nobody_gets_through_without_a_key_whatever_changes() {
    let changes: u64 = std::env::var(CHANGES).map_or(USUALLY, |text| text.parse().unwrap());
    let folder = Folder::new();
    let running = Running::new(&folder);
    let target = target("behind");
    let (mut api, mut ann) = (running.api(), running.client());
    let mut first = protected(target);
    first["plugin_configs"] = json!([key_auth("k1", "a")]);
    api.batch(&first);
    let attackers = Attackers::start(running.http);
    let steps = steps(target);
    for change in 0..changes {
        let step = &steps[usize::try_from(change).unwrap() % steps.len()];
        api.batch(step);
        attackers.still_outside();
        if change % 16 == 0 {
            refused(&mut api, target);
        }
        serves(&mut ann, step);
    }
    let asked = attackers.end();
    assert!(asked > changes, "{asked} requests are too few to have seen anything");
}

#[test]
fn nobody_gets_through_a_gateway_that_follows_either() {
    let location = database(shared(Engine::Postgres), "test_hammer");
    let (writer, follower) = (start(&location), start(&location));
    let target = target("behind");
    let mut api = writer.api();
    let mut first = protected(target);
    first["plugin_configs"] = json!([key_auth("k1", "a")]);
    api.batch(&first);
    follower.follows(1);
    let attackers = Attackers::start(follower.http);
    let steps = steps(target);
    // As fast as they are answered, so that the other one takes several at once, too.
    for step in steps.iter().cycle().take(steps.len() * 14) {
        api.batch(step);
        attackers.still_outside();
    }
    let newest = api.get("/v1/revisions?limit=1").json()["items"][0]["revision"].as_u64().unwrap();
    follower.follows(newest);
    serves(&mut follower.client(), &steps[steps.len() - 1]);
    assert!(attackers.end() > 0);
}

/// What is refused leaves the route as it is.
fn refused(api: &mut Api, target: SocketAddr) {
    let mut bad = proxy("a", "/a", target);
    bad["plugins"] = json!([{ "plugin_config_id": "nowhere" }]);
    assert_eq!(api.send("POST", "/v1/batch", &json!({ "proxies": [bad] })).status, 422);
    let mut open = key_auth("k1", "a");
    open["config"] = json!({ "key_location": "nowhere" });
    assert_eq!(api.send("PUT", "/v1/plugin_configs/k1", &open).status, 422);
    let gone = api.send("POST", "/v1/batch?validate_only", &json!({ "delete": { "proxies": ["a"] } }));
    let is_there = api.get("/v1/proxies/a").status == 200;
    assert_eq!(gone.status, if is_there { 200 } else { 404 }, "{gone:?}");
}

/// Who has a key is served as the change says, as soon as it is answered.
fn serves(ann: &mut Client, step: &Value) {
    let path = match step["proxies"][0]["listen_path"].as_str() {
        Some(path) => path,
        None if step["delete"]["proxies"].is_array() => {
            assert_eq!(ann.get("/a/x", Some("ann-key")).status, 404);
            return;
        }
        None => "/a",
    };
    let in_query = step["plugin_configs"][0]["config"]["key_location"] == "query:apikey";
    let answer = match in_query {
        true => ann.get("/a/x?apikey=ann-key", None),
        false => ann.get(&format!("{path}/x"), Some("ann-key")),
    };
    assert_eq!((answer.status, answer.text.as_str()), (200, "behind /x ann -"), "{step}");
}
