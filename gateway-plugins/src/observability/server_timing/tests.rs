//! What a client is told about times.

use std::time::Duration;

use gateway_core::http::body::Body;
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, Trial};
use http::Response;
use serde_json::{Value, json};

use super::ServerTiming;
use crate::content::request_termination::RequestTermination;

const PLUGINS: &[Entry] = &[entry::<ServerTiming>(), entry::<RequestTermination>()];

async fn got(config: Value) -> Got {
    let trial = Trial::new(PLUGINS, "server_timing", config).answering(|_| {
        std::thread::sleep(Duration::from_millis(30));
        Response::builder().header("server-timing", "db;dur=1").body(Body::from("ok")).unwrap()
    });
    trial.get("/", &[]).await
}

fn said(got: &Got) -> Vec<(String, f64)> {
    let values =
        got.headers.get_all("server-timing").iter().flat_map(|value| value.to_str().unwrap().split(", "));
    let part = |part: &str| {
        let (name, took) = part.split_once(";dur=").unwrap();
        (name.to_owned(), took.parse().unwrap())
    };
    values.map(part).collect()
}

#[tokio::test]
async fn both_parts_behind_the_targets_own() {
    let got = got(json!({})).await;
    let [db, gateway, target] = &said(&got)[..] else { panic!("{:?}", got.headers) };
    assert_eq!((db.0.as_str(), gateway.0.as_str(), target.0.as_str()), ("db", "gateway", "target"));
    assert!(target.1 >= 30.0 && gateway.1 >= 0.0, "{target:?} {gateway:?}");
    assert!(!got.headers.contains_key("timing-allow-origin"));
}

#[tokio::test]
async fn names_origins_and_the_targets_own_are_settable() {
    let config = json!({"gateway_name": "", "target_name": "up", "keep_target": false, "allow_origin": "*"});
    let got = got(config).await;
    let said = said(&got);
    assert_eq!((said.len(), said[0].0.as_str()), (1, "up"));
    assert_eq!(got.field("timing-allow-origin"), "*");
}

#[tokio::test]
async fn an_answer_of_the_gateways_own_has_no_target() {
    let plugins = [("server_timing", json!({})), ("request_termination", json!({}))];
    let got = Trial::of_plugins(PLUGINS, &plugins).get("/", &[]).await;
    let said = said(&got);
    assert_eq!((said.len(), said[0].0.as_str()), (1, "gateway"));
}

#[test]
fn settings_that_can_not_be_meant_are_refused() {
    for config in [
        json!({"gateway_name": "a b"}),
        json!({"target_name": "a;b"}),
        json!({"gateway_name": "", "target_name": ""}),
        json!({"allow_origin": "a\nb"}),
    ] {
        Trial::refused(PLUGINS, "server_timing", &config);
    }
}
