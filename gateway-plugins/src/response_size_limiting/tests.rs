//! Responses with and without a length.

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use http::HeaderMap;
use serde_json::{Value, json};

use super::*;

fn trial(config: Value, bytes: usize, flows: bool) -> Trial {
    Trial::new(&[entry::<ResponseSizeLimiting>()], "response_size_limiting", config).answering(move |_| {
        let body = Body::full(vec![b'x'; bytes]);
        Response::new(if flows { body.map(Ok) } else { body })
    })
}

#[tokio::test]
async fn a_response_that_says_its_length_is_replaced() {
    for (bytes, status) in [(0, 200), (10, 200), (11, 502)] {
        let trial = trial(json!({ "max_bytes": 10 }), bytes, false);
        let got = trial.get("/", &[]).await;
        assert_eq!(got.status, status, "{bytes}");
        assert_eq!(trial.records()[0].reason, (status == 502).then_some("response_too_large"));
    }
}

#[tokio::test]
async fn another_is_cut_off() {
    let got = trial(json!({ "max_bytes": 10 }), 11, true).get("/", &[]).await;
    assert_eq!((got.status, got.body.len()), (200, 0));
    assert!(got.cut.is_some());
    let got = trial(json!({ "max_bytes": 10 }), 10, true).get("/", &[]).await;
    assert_eq!((got.status, got.body.len(), got.cut), (200, 10, None));
}

#[tokio::test]
async fn or_read_first() {
    let config = json!({ "max_bytes": 10, "buffer": true });
    let got = trial(config.clone(), 11, true).get("/", &[]).await;
    assert_eq!((got.status, got.cut), (502, None));
    let got = trial(config.clone(), 10, true).get("/", &[]).await;
    assert_eq!((got.status, got.body.len(), got.field("content-length")), (200, 10, "10"));
    let trailing = trial(config, 0, false).answering(|_| {
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())]);
        Response::new(Body::full_with_trailers("abc", trailers))
    });
    let got = trailing.get("/", &[]).await;
    assert_eq!((got.text().as_str(), got.trailers.map(|it| it.len())), ("abc", Some(1)));
}

#[test]
fn bad_settings_are_refused() {
    let entries = [entry::<ResponseSizeLimiting>()];
    let problems = Trial::refused(&entries, "response_size_limiting", &json!({ "max_bytes": 0 }));
    assert_eq!(problems.0[0].path, "config.max_bytes");
    Trial::refused(&entries, "response_size_limiting", &json!({}));
}
