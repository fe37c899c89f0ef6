//! Responses with and without a length.

use std::pin::Pin;
use std::task::{Context, Poll};

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
        let trial = trial(json!({ "max_size": 10 }), bytes, false);
        let got = trial.get("/", &[]).await;
        assert_eq!(got.status, status, "{bytes}");
        assert_eq!(trial.records()[0].reason, (status == 502).then_some("response_too_large"));
    }
}

/// A body whose pieces come one after the other.
struct Slow {
    left: u32,
    is_due: bool,
}

impl http_body::Body for Slow {
    type Data = bytes::Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, BodyError>>> {
        self.is_due = !self.is_due;
        if self.is_due {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        self.left = left;
        Poll::Ready(Some(Ok(http_body::Frame::data("12345".into()))))
    }
}

#[tokio::test]
async fn streams_are_not_held_until_they_end() {
    for (kind, held) in [
        ("text/plain", true),
        ("text/event-stream; charset=utf-8", false),
        ("Application/X-NDJSON", false),
        ("application/grpc", false),
    ] {
        let trial = trial(json!({ "max_size": 10, "buffer": true }), 0, false).answering(move |_| {
            let response = Response::builder().header("content-type", kind);
            response.body(Body::stream(Slow { left: 3, is_due: false })).unwrap()
        });
        let got = trial.get("/", &[]).await;
        // Held, it is refused; else its beginning has gone out before it is cut off.
        assert_eq!((got.status, got.cut.is_some()), if held { (502, false) } else { (200, true) }, "{kind}");
    }
}

#[tokio::test]
async fn another_is_cut_off() {
    let slow = |left| {
        trial(json!({ "max_size": 10 }), 0, false)
            .answering(move |_| Response::new(Body::stream(Slow { left, is_due: false })))
    };
    let trial = slow(3);
    let got = trial.get("/", &[]).await;
    assert_eq!((got.status, got.body.len()), (200, 10));
    assert!(got.cut.is_some());
    assert_eq!(trial.records()[0].reason, Some("response_too_large"));
    let got = slow(2).get("/", &[]).await;
    assert_eq!((got.body.len(), got.cut), (10, None));
}

#[tokio::test]
async fn unless_too_much_comes_with_its_head() {
    let plugins = [("correlation_id", json!({})), ("response_size_limiting", json!({ "max_size": 10 }))];
    let trial = Trial::of_plugins(crate::PLUGINS, &plugins)
        .answering(|_| Response::new(Body::full(vec![b'x'; 11]).map(Ok)));
    let got = trial.get("/", &[("x-request-id", "a")]).await;
    assert_eq!((got.status, got.cut, got.field("x-request-id")), (502, None, "a"));
    assert_eq!(got.json()["code"], "response_too_large");
    assert_eq!(trial.records()[0].reason, Some("response_too_large"));
    let got = self::trial(json!({ "max_size": 10 }), 10, true).get("/", &[]).await;
    assert_eq!((got.status, got.body.len(), got.cut), (200, 10, None));
}

#[tokio::test]
async fn or_read_first() {
    let config = json!({ "max_size": 10, "buffer": true });
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
    let problems = Trial::refused(&entries, "response_size_limiting", &json!({ "max_size": 0 }));
    assert_eq!(problems.0[0].path, "config.max_size");
    Trial::refused(&entries, "response_size_limiting", &json!({}));
}
