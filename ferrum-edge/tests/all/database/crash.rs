//! A gateway that is killed while batches are written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::client::{Client, until};
use crate::database::place::{ADMIN, Api, consumer, key_auth, proxy, text};
use crate::process::{Folder, Gateway};

/// Proxies of a batch, each with its plugin config and consumer.
const BATCH: usize = 60;

pub(crate) fn start(folder: &Folder) -> Gateway {
    folder.write(
        "ferrum.yaml",
        "gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 2 }\n",
    );
    let url = format!("sqlite:{}", folder.path("f.db").display());
    Gateway::start(folder, |command| {
        command.args(["--mode", "database", "--db-url", &url]).env("FERRUM_ADMIN_TOKEN", ADMIN);
    })
}

pub(crate) fn api(gateway: &Gateway) -> Api {
    Api { client: Client::new(gateway.admin), token: ADMIN.to_owned() }
}

fn batch(number: u64) -> Value {
    let target = ([127, 0, 0, 1], 9).into();
    let ids: Vec<String> = (0..BATCH).map(|n| format!("b{number}-{n}")).collect();
    json!({
        "proxies": ids.iter().map(|id| proxy(id, &format!("/{id}"), target)).collect::<Vec<_>>(),
        "plugin_configs": ids.iter().map(|id| key_auth(&format!("{id}-key"), id)).collect::<Vec<_>>(),
        "consumers": ids.iter().map(|id| consumer(id, &[&format!("key of {id}")])).collect::<Vec<_>>(),
    })
}

/// How many objects of each batch there are.
fn found(api: &mut Api, kind: &str) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = api.get(&format!("/v1/{kind}?limit=1000{after}")).json();
        for object in page["items"].as_array().unwrap() {
            let number =
                text(&object["id"]).trim_start_matches('b').split('-').next().unwrap().parse().unwrap();
            *found.entry(number).or_default() += 1;
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return found,
        }
    }
}

#[test]
fn after_a_kill_each_batch_is_there_as_a_whole_or_not_at_all() {
    let folder = Folder::new();
    let acknowledged = AtomicU64::new(0);
    let mut next = 1;
    for round in 1..=4_u64 {
        let gateway = start(&folder);
        let mut writer = api(&gateway);
        let sent = thread::scope(|scope| {
            let acknowledged = &acknowledged;
            let writing = scope.spawn(move || {
                for number in next.. {
                    let body = batch(number).to_string();
                    match writer.client.try_ask("POST", "/v1/batch", &auth(), body.as_bytes()) {
                        Some(answer) => assert_eq!(answer.status, 200, "{answer:?}"),
                        None => return number,
                    }
                    acknowledged.store(number, Ordering::SeqCst);
                }
                unreachable!("it is killed before")
            });
            // In the middle of whatever comes after a few batches.
            until("batches are written", || acknowledged.load(Ordering::SeqCst) >= next + round);
            drop(gateway);
            writing.join().unwrap()
        });
        let gateway = start(&folder);
        let mut reader = api(&gateway);
        let last = acknowledged.load(Ordering::SeqCst);
        let proxies = found(&mut reader, "proxies");
        let there = *proxies.keys().last().unwrap();
        assert!(there == last || there == sent, "{there} of {last} acknowledged, {sent} sent");
        assert!((1..=there).all(|number| proxies.get(&number) == Some(&BATCH)), "{proxies:?}");
        assert_eq!(found(&mut reader, "consumers"), proxies);
        assert_eq!(found(&mut reader, "plugin_configs"), proxies);
        let status = gateway.status();
        assert_eq!(status["proxies"]["count"], json!(BATCH as u64 * there));
        assert_eq!(status["database"]["broken_count"], 0);
        // It is served, and protected.
        let mut client = Client::new(gateway.http);
        for n in [0, BATCH - 1] {
            let id = format!("b{there}-{n}");
            assert_eq!(client.get(&format!("/{id}"), None).status, 401);
            assert_eq!(client.get(&format!("/{id}"), Some(&format!("key of {id}"))).status, 502);
        }
        acknowledged.store(there, Ordering::SeqCst);
        next = there + 1;
    }
}

fn auth() -> String {
    format!("authorization: Bearer {ADMIN}\r\n")
}
