//! An edge of an earlier release beside one of this release.

use std::time::Duration;

use gateway_fleet::{
    DocumentKey, Findings, Hello, Invitation, Link, LinkReceiver, LinkSender, ToControl, ToEdge, Transfer,
    Verdict, client_config, enrolment_config, signing_request,
};
use serde_json::{Value, json};

use crate::client::target;
use crate::fleet::place::{Edge, Plane};
use crate::process::until;

/// An edge that reads what it gets, and says that it serves it.
struct OlderEdge {
    runtime: tokio::runtime::Runtime,
    address: String,
    tls: std::sync::Arc<rustls::ClientConfig>,
    hello: Hello,
    link: Option<(Link, LinkSender, LinkReceiver)>,
}

impl OlderEdge {
    fn enrol(invitation: &str, version: &str, capabilities: &[&str]) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let invitation: Invitation = invitation.parse().unwrap();
        let tls = runtime.block_on(async {
            let (key, request) = signing_request().unwrap();
            let link =
                Link::connect(&invitation.address, enrolment_config(&invitation.pin).unwrap()).await.unwrap();
            let given = link.enrol(&invitation.code, &request, version).await.unwrap();
            client_config(&given.certificate, &key, &given.roots).unwrap()
        });
        let capabilities = capabilities.iter().map(|name| format!("plugin:{name}")).collect();
        let hello = Hello { version: version.to_owned(), schema: 1, capabilities, ..Hello::default() };
        let mut edge = Self { runtime, address: invitation.address, tls, hello, link: None };
        edge.connect();
        edge
    }

    fn connect(&mut self) {
        let hello = ToControl::Hello(self.hello.clone());
        let link = self.runtime.block_on(async {
            let link = Link::connect(&self.address, self.tls.clone()).await.unwrap();
            let (sender, receiver) = link.sync(&hello).await.unwrap();
            (link, sender, receiver)
        });
        self.link = Some(link);
    }

    fn disconnect(&mut self) {
        let _within = self.runtime.enter();
        drop(self.link.take());
    }

    /// The next configuration, which is served from then on: each document that changed, by kind and id.
    fn next(&mut self) -> Vec<(String, Value)> {
        let (_, sender, receiver) = self.link.as_mut().unwrap();
        let transfer: std::sync::Arc<Transfer> = self.runtime.block_on(async {
            let next = async {
                loop {
                    if let Some(ToEdge::Transfer(transfer)) = receiver.next().await.unwrap() {
                        return transfer;
                    }
                }
            };
            tokio::time::timeout(Duration::from_secs(60), next).await.unwrap()
        });
        for verdict in [Verdict::Received, Verdict::Served(Findings::default())] {
            assert!(sender.send(&ToControl::Verdict(transfer.to.clone(), verdict)));
        }
        let named = |(key, text): &(DocumentKey, std::sync::Arc<str>)| {
            (format!("{}/{}", key.kind, key.id), serde_json::from_str(text).unwrap())
        };
        let mut documents: Vec<(String, Value)> = transfer.changed.iter().map(named).collect();
        documents.sort_by(|(one, _), (other, _)| one.cmp(other));
        documents
    }
}

impl Drop for OlderEdge {
    fn drop(&mut self) {
        self.disconnect();
    }
}

#[test]
fn an_edge_of_an_earlier_release_goes_without_what_answers_do_not_depend_on_and_without_no_guard() {
    let plane = Plane::new();
    let config = |id: &str, plugin: &str| json!({ "id": id, "plugin_name": plugin, "scope": "proxy_group", "config": {} });
    let proxy = |id: &str, path: &str, plugins: &[&str]| {
        let plugins: Vec<Value> = plugins.iter().map(|id| json!({ "plugin_config_id": id })).collect();
        json!({ "id": id, "listen_path": path, "backend_scheme": "http", "backend_host": "127.0.0.1", "backend_port": target("shop").port(), "plugins": plugins })
    };
    let batch = json!({
        "plugin_configs": [config("timing", "server_timing"), config("keys", "key_auth")],
        "proxies": [proxy("shop", "/", &["timing"]), proxy("admin", "/admin", &["timing", "keys"])],
    });
    plane.write(&batch);
    let mut older = OlderEdge::enrol(&plane.invite("old", "default"), "0.0.9", &["cors"]);
    let current = Edge::start(&plane.invite("new", "default"));
    let got = older.next();
    let names: Vec<&str> = got.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["plugin_configs/keys", "proxies/admin", "proxies/shop"]);
    assert_eq!(
        got[1].1["plugins"],
        json!([{ "plugin_config_id": "keys" }]),
        "it closes what the guard protects"
    );
    assert_eq!(got[2].1["plugins"], json!([]));
    plane.until_served("old");
    plane.until_served("new");
    assert!(current.get("/").header("server-timing").is_some(), "an edge of this release has all of it");
    assert_eq!(current.get("/admin").status, 401);
    let edge = plane.edge("old");
    assert_eq!(edge["left_out"], json!({ "count": 1, "objects": ["plugin_configs/timing"] }), "{edge}");
    assert_eq!(plane.edge("new")["left_out"]["count"], 0);
    let status = String::from_utf8(plane.command(&["status"]).stdout).unwrap();
    assert!(status.contains("without plugin_configs/timing"), "{status}");
    let object = plane.ask("GET", "/v1/fleet/objects/plugin_configs/timing", &Value::Null).json();
    let old = object["edges"].as_array().unwrap().iter().find(|edge| edge["name"] == "old").unwrap();
    assert!(old["why"].as_str().unwrap().contains("left out there"), "{object}");
    // Both are named when they are written.
    let answer = plane
        .ask(
            "POST",
            "/v1/batch?validate_only",
            &json!({ "plugin_configs": [config("more", "server_timing"), config("guard", "key_auth")] }),
        )
        .json();
    let lacking = json!({ "count": 1, "edges": [{ "edge": "old", "plugins": ["key_auth", "server_timing"], "settings": [], "left_out": ["server_timing"] }] });
    assert_eq!(answer["edges_lacking"], lacking, "{answer}");
    // Later changes come as such: what is new of them for this edge.
    plane.write(&json!({ "proxies": [proxy("more", "/more", &["timing"])] }));
    let got = older.next();
    assert_eq!(got.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["proxies/more"]);
    plane.until_served("old");
    assert!(plane.command(&["move", "old", "us"]).status.success());
    until("it has the view of its new group", || {
        plane.edge("old")["group"] == "us" && plane.edge("old")["left_out"]["count"] == 1
    });
}

/// What is left out for an older edge is made and kept while one is connected.
#[test]
fn the_view_of_older_edges_is_freed_with_the_last_of_them_and_made_again() {
    let plane = Plane::new();
    let timing = json!({ "id": "timing", "plugin_name": "server_timing", "scope": "global", "config": {} });
    plane.write(&json!({ "plugin_configs": [timing] }));
    let mut first = OlderEdge::enrol(&plane.invite("first", "default"), "0.0.9", &["cors"]);
    let mut second = OlderEdge::enrol(&plane.invite("second", "default"), "0.0.9", &["cors"]);
    let count = |name: &str| plane.edge(name)["left_out"]["count"].clone();
    until("both have their view", || [count("first"), count("second")] == [1, 1]);
    first.disconnect();
    until("the first is disconnected", || plane.edge("first")["standing"] == "disconnected");
    let proxy = |port: u16| json!({ "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "127.0.0.1", "backend_port": port }] });
    plane.write(&proxy(1));
    while !second.next().iter().any(|(name, _)| name == "proxies/a") {}
    assert_eq!(count("first"), 1, "the second has the same view");
    second.disconnect();
    until("the view is freed", || [count("first"), count("second")] == [0, 0]);
    plane.write(&proxy(2));
    first.connect();
    let got = first.next();
    assert_eq!(got.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["proxies/a"]);
    assert_eq!(got[0].1["backend_port"], 2);
    plane.until_served("first");
    assert_eq!(count("first"), 1);
}
