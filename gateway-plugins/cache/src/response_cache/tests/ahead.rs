//! What is fetched before anybody waits for it.

use super::disk::beside;
use super::*;
use gateway_plugin_common::testing::net::Served;
use gateway_plugin_common::testing::{Machine, metric, until};

#[tokio::test(start_paused = true)]
async fn a_response_is_fetched_anew_before_it_is_stale() {
    for (percent, at, refreshed) in [(0, 59, false), (20, 47, false), (20, 48, true), (90, 6, true)] {
        let trial = trial(json!({ "refresh_ahead_percent": percent }), &[("cache-control", "max-age=60")]);
        trial.get("/a", &[]).await;
        tokio::time::advance(Duration::from_secs(at)).await;
        let got = trial.get("/a", &[]).await;
        assert_eq!(got.text(), "answer 1", "the client does not wait");
        assert!(status(&got).starts_with("ferrum-edge; hit; ttl="), "{}", status(&got));
        assert_eq!(trial.asked().len(), if refreshed { 2 } else { 1 }, "{percent} % after {at} s");
        if refreshed {
            tokio::time::advance(Duration::from_secs(20)).await;
            assert_eq!(trial.get("/a", &[]).await.text(), "answer 2");
        }
    }
}

#[tokio::test]
async fn urls_are_fetched_through_the_listener() {
    let machine = Machine::default();
    machine.net.serve(|sent| {
        let status = if sent.url.ends_with("/missing") { 404 } else { 200 };
        Served::Response(Response::builder().status(status).body(Body::full("x")).unwrap())
    });
    let world = machine.world();
    let config = json!({ "warm_up": {
        "urls": ["http://shop.test/a?x=1", "http://other.test:81/missing"], "through": ["http://gateway.test:8000"],
    } });
    let trial = beside(&world, &config, |_, _| Response::new(Body::empty()));
    let count = |outcome| metric(&world, "ferrum_response_cache_warm_up_total", &[outcome]);
    until("both are fetched", || (count("fetched"), count("refused")) == (1, 1)).await;
    let mut said: Vec<String> = (machine.net.sent().iter())
        .map(|sent| format!("{} for {} {:?}", sent.url, sent.field("host"), sent.query))
        .collect();
    said.sort();
    assert_eq!(
        said,
        [
            "gateway.test:8000/a for shop.test Some(\"x=1\")",
            "gateway.test:8000/missing for other.test:81 None"
        ]
    );
    assert!(machine.net.sent().iter().all(|sent| sent.field("accept-encoding") == "gzip, br"));
    let more = json!({ "urls": ["http://shop.test/b"] });
    assert_eq!(trial.act("response_cache", "warm", &more).unwrap(), json!({ "queued": 1 }));
    until("it is fetched", || count("fetched") == 2).await;
    assert_eq!(trial.act("response_cache", "warm", &json!({})).unwrap(), json!({ "queued": 2 }));
    until("both are fetched again", || (count("fetched"), count("refused")) == (3, 2)).await;
    let wrong = trial.act("response_cache", "warm", &json!({ "urls": ["https://shop.test/"] })).unwrap_err();
    assert!(wrong.to_string().contains("no listener with https"), "{wrong}");
    let none = super::trial(json!({}), &[]);
    assert!(none.act("response_cache", "warm", &more).unwrap_err().to_string().contains("through"));
}
