//! Lists from URLs: fetched, kept, and not there yet.

use std::time::Duration;

use gateway_core::plugin::world::Owner;
use gateway_core::plugin::world::tasks::TaskError;
use gateway_plugin_common::testing::net::Served;
use gateway_plugin_common::testing::{Machine, metric};
use http::Response;

use super::*;

const URL: &str = "https://lists.test/deny?x=1";

fn owned(machine: &Machine) -> World {
    machine.world().owned_by(Owner { plugin: "ip_restriction", config: "i".parse().unwrap() })
}

fn plugin(world: &World, config: Value) -> Arc<IpRestriction> {
    let config = serde_json::from_value(config).unwrap();
    Arc::new(IpRestriction::build(config, world).unwrap_or_else(|problems| panic!("{problems}")))
}

fn serve(machine: &Machine, status: u16, text: &'static str) {
    machine.net.serve(move |sent| {
        let response = Response::builder().header("etag", "\"1\"");
        let same = sent.field("if-none-match") == "\"1\"" && status == 200 && text.contains("same");
        let response = response.status(if same { 304 } else { status });
        Served::Response(response.body(if same { "" } else { text }.into()).unwrap())
    });
}

/// Fetches once.
async fn fetch(remote: &Arc<Remote>) -> Result<(), TaskError> {
    let (_handle, control) = TaskControl::new();
    let keeping = remote.clone().keep_fresh(control);
    tokio::time::timeout(Duration::from_secs(1), keeping).await.unwrap_or(Ok(()))
}

fn judge(plugin: &IpRestriction, address: &str) -> Judgement {
    plugin.judge(address.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_list_is_fetched_and_its_last_good_copy_stays() {
    let machine = Machine::default();
    let world = owned(&machine);
    let plugin = plugin(&world, json!({ "deny_urls": [URL], "url_refresh": "1m" }));
    let remote = plugin.remote.1[0].clone();
    assert_eq!(judge(&plugin, "10.0.0.1"), Judgement::Unknown);
    serve(&machine, 200, "# same\n10.0.0.0/8\n192.0.2.1 # one\n");
    fetch(&remote).await.unwrap();
    assert_eq!(machine.net.sent()[0].query.as_deref(), Some("x=1"));
    assert_eq!(metric(&world, ENTRIES.name, &["lists.test"]), 2);
    for (address, judgement) in [("10.0.0.1", Judgement::Out), ("192.0.2.2", Judgement::In)] {
        assert_eq!(judge(&plugin, address), judgement, "{address}");
    }
    fetch(&remote).await.unwrap();
    assert_eq!(machine.net.sent()[1].field("if-none-match"), "\"1\"", "what is known is not sent again");
    assert_eq!(judge(&plugin, "10.0.0.1"), Judgement::Out);
    for (status, text) in [(500, "10.1.0.0/16"), (200, "<html>login</html>"), (304, "")] {
        serve(&machine, status, text);
        let fetched = fetch(&remote).await;
        assert_eq!(fetched.is_err(), status != 304, "{status} {text}");
        assert_eq!(judge(&plugin, "10.0.0.1"), Judgement::Out, "what was good stays");
    }
    assert_eq!(metric(&world, FETCHES.name, &["failed"]), 2);
    serve(&machine, 200, "203.0.113.0/24\n");
    fetch(&remote).await.unwrap();
    assert_eq!([judge(&plugin, "10.0.0.1"), judge(&plugin, "203.0.113.9")], [Judgement::In, Judgement::Out]);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_fetched_again_and_again() {
    let machine = Machine::default();
    let world = owned(&machine);
    let plugin = plugin(&world, json!({ "deny_urls": [URL], "url_refresh": "1m" }));
    serve(&machine, 200, "10.0.0.0/8\n");
    let (_handle, control) = TaskControl::new();
    let keeping = plugin.remote.1[0].clone().keep_fresh(control);
    assert!(tokio::time::timeout(Duration::from_secs(150), keeping).await.is_err());
    assert_eq!(machine.net.sent().len(), 3, "at once, after one minute and after two");
}

#[tokio::test(start_paused = true)]
async fn what_was_fetched_survives_changes_and_restarts() {
    let machine = Machine::default();
    let world = owned(&machine);
    let config = json!({ "allow_urls": [URL], "copy_path": "/copies" });
    let first = plugin(&world, config.clone());
    serve(&machine, 200, "10.0.0.0/8\n");
    fetch(&first.remote.0[0]).await.unwrap();
    let changed = plugin(&world, json!({ "allow_urls": [URL], "deny": ["10.0.0.1"] }));
    assert_eq!(judge(&changed, "10.0.0.2"), Judgement::In, "kept over a change of settings");
    let restarted = plugin(&owned(&machine), config.clone());
    assert_eq!(
        [judge(&restarted, "10.0.0.2"), judge(&restarted, "192.0.2.1")],
        [Judgement::In, Judgement::Out]
    );
    let without = plugin(&owned(&machine), json!({ "allow_urls": [URL] }));
    assert_eq!(judge(&without, "10.0.0.2"), Judgement::Unknown, "no copy was asked for");
    let copy = machine.files.list("/copies".as_ref(), 10).unwrap().remove(0);
    machine.files.put(&format!("/copies/{copy}"), "damaged");
    let damaged = plugin(&owned(&machine), config);
    assert_eq!(judge(&damaged, "10.0.0.2"), Judgement::Unknown);
}

#[tokio::test]
async fn who_comes_in_while_a_list_is_missing() {
    use Judgement::{In, Out, Unknown};
    for (config, judgements) in [
        (json!({ "deny_urls": [URL] }), [Unknown, Unknown]),
        (json!({ "deny_urls": [URL], "on_missing_list": "allow" }), [In, In]),
        (json!({ "deny_urls": [URL], "allow": ["10.0.0.0/8"] }), [Unknown, Out]),
        (json!({ "deny_urls": [URL], "allow": ["10.0.0.0/8"], "mode": "allow_first" }), [In, Out]),
        (json!({ "deny_urls": [URL], "deny": ["10.0.0.0/8"] }), [Out, Unknown]),
        (json!({ "allow_urls": [URL] }), [Unknown, Unknown]),
        (json!({ "allow_urls": [URL], "allow": ["10.0.0.0/8"] }), [In, Unknown]),
        (json!({ "allow_urls": [URL], "deny": ["10.0.0.0/8"] }), [Out, Unknown]),
        (json!({ "allow_urls": [URL], "on_missing_list": "allow" }), [In, In]),
    ] {
        let plugin = plugin(&Machine::default().world(), config.clone());
        assert_eq!([judge(&plugin, "10.0.0.1"), judge(&plugin, "192.0.2.1")], judgements, "{config}");
    }
    let trial = Trial::new(&[entry::<IpRestriction>()], "ip_restriction", json!({ "deny_urls": [URL] }));
    let got = trial.get("/", &[]).await;
    assert_eq!((got.status, trial.records()[0].reason), (503, Some("address_list_missing")));
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({ "deny_urls": ["lists.test"] }), "config.deny_urls[0]"),
        (json!({ "allow_urls": [URL, "ftp://a"] }), "config.allow_urls[1]"),
        (json!({ "deny_urls": [URL], "url_refresh": 1 }), "config.url_refresh"),
        (json!({ "deny_urls": [URL], "max_url_size": "1GiB" }), "config.max_url_size"),
        (json!({ "deny": ["10.0.0.0/8"], "copy_path": "/c" }), "config.copy_path"),
    ] {
        let problems = Trial::refused(&[entry::<IpRestriction>()], "ip_restriction", &config);
        assert_eq!(problems.0[0].path, path, "{config}: {problems}");
    }
}

#[test]
fn a_fetch_may_take_as_long_and_bring_as_much_as_the_settings_say() {
    let machine = Machine::default();
    let world = owned(&machine);
    plugin(&world, json!({ "deny_urls": [URL], "url_timeout": "3s", "max_url_size": 1000 }));
    plugin(&world, json!({ "deny_urls": [URL] }));
    let endpoints = machine.net.endpoints();
    let bounds: Vec<_> =
        endpoints.iter().map(|endpoint| (endpoint.timeout.as_secs(), endpoint.max_response)).collect();
    assert_eq!(bounds, [(3, 1000), (30, 64 << 20)]);
}
