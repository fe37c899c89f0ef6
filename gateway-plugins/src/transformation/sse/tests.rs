//! When comments come, and where a stream ends.

use std::sync::Mutex;

use futures_util::FutureExt;
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, Trial};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

const PLUGINS: &[Entry] = &[entry::<Sse>()];

/// A body that comes when the test says so.
struct Coming(UnboundedReceiver<&'static str>);

impl HttpBody for Coming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| piece.map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}

/// Plays a stream: what comes, and the seconds that pass; says what the client got.
async fn played(config: Value, script: &[(&'static str, u64)]) -> Got {
    let (sender, receiver) = unbounded_channel();
    let body = Mutex::new(Some(receiver));
    let trial = Trial::new(PLUGINS, "sse", config).answering(move |_| {
        let body = Body::stream(Coming(body.lock().unwrap().take().unwrap()));
        Response::builder().header("content-type", "text/event-stream; charset=utf-8").body(body).unwrap()
    });
    let mut got = Box::pin(trial.get("/", &[]));
    let mut sender: Option<UnboundedSender<_>> = Some(sender);
    for (text, seconds) in script {
        match *text {
            "" => {}
            "end" => sender = None,
            text => drop(sender.as_ref().map(|sender| sender.send(text))),
        }
        if let Some(got) = got.as_mut().now_or_never() {
            return got;
        }
        tokio::time::advance(Duration::from_secs(*seconds)).await;
        if let Some(got) = got.as_mut().now_or_never() {
            return got;
        }
    }
    panic!("the stream is still open");
}

#[tokio::test(start_paused = true)]
async fn a_comment_is_sent_when_nothing_else_is() {
    let script =
        [("data: 1\n\n", 14), ("data: 2\n\n", 14), ("", 1), ("", 15), ("data: 3\n\n", 1), ("end", 0)];
    let got = played(json!({}), &script).await;
    assert_eq!(got.text(), "data: 1\n\ndata: 2\n\n:\n:\ndata: 3\n\n");
    assert_eq!((got.field("x-accel-buffering"), got.field("cache-control")), ("no", "no-cache"));
}

#[tokio::test(start_paused = true)]
async fn a_comment_is_never_within_a_line_and_ends_no_event() {
    let got =
        played(json!({}), &[("data: 1", 40), ("2\n", 15), ("data: 3\r\n\r", 40), ("\n", 1), ("end", 0)])
            .await;
    assert_eq!(got.text(), "data: 12\n:\ndata: 3\r\n\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_byte_order_mark_never_gets_behind_the_first_line() {
    let got = played(json!({ "retry": "7ms" }), &[("\u{feff}data: 1\n\n", 1), ("end", 0)]).await;
    assert_eq!(got.text(), "retry: 7\n\ndata: 1\n\n");
    let got = played(json!({}), &[("", 16), ("\u{feff}", 1), ("\u{feff}data: 1\n\n", 1), ("end", 0)]).await;
    assert_eq!(got.text(), ":\n\u{feff}data: 1\n\n", "one of them is the mark");
    let got = played(json!({}), &[("\u{fe00}", 1), ("data: 1\n\n", 1), ("end", 0)]).await;
    assert_eq!(got.text(), "\u{fe00}data: 1\n\n");
}

#[tokio::test(start_paused = true)]
async fn it_ends_between_events() {
    let config = json!({ "heartbeat": 0, "max_duration": 60 });
    let got = played(config.clone(), &[("data: 1\n\n", 59), ("data: 2", 2), ("\n\n", 1)]).await;
    assert_eq!((got.text().as_str(), got.cut), ("data: 1\n\ndata: 2\n\n", None));
    let got = played(config.clone(), &[("data: 1\r\n\r\n", 60)]).await;
    assert_eq!(got.text(), "data: 1\r\n\r\n");
    let got = played(config, &[("data: 1", 60), ("", 9), ("", 1)]).await;
    assert_eq!(got.text(), "data: 1", "whoever stops within an event is not waited for without end");
}

#[tokio::test(start_paused = true)]
async fn clients_learn_when_to_come_back() {
    let got =
        played(json!({ "retry": "3s", "no_buffering": false }), &[("data: 1\n\n", 1), ("end", 0)]).await;
    assert_eq!(got.text(), "retry: 3000\n\ndata: 1\n\n");
    assert_eq!((got.headers.get("x-accel-buffering"), got.headers.get("cache-control")), (None, None));
}

#[tokio::test]
async fn other_responses_are_left_alone() {
    for (name, value) in [("content-type", "text/plain"), ("content-encoding", "gzip")] {
        let trial = Trial::new(PLUGINS, "sse", json!({ "retry": "1000ms" })).answering(move |_| {
            let mut response = Response::new(Body::from("data: 1\n\n"));
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
            response.headers_mut().insert("content-length", HeaderValue::from_static("9"));
            response.headers_mut().insert(name, HeaderValue::from_static(value));
            response
        });
        let got = trial.get("/", &[]).await;
        assert_eq!((got.text().as_str(), got.field("content-length")), ("data: 1\n\n", "9"), "{name}");
        assert_eq!(got.headers.get("x-accel-buffering"), None);
    }
}

#[test]
fn one_that_does_nothing_is_refused() {
    for (config, path) in [
        (json!({ "heartbeat": 0, "no_buffering": false }), "config"),
        (json!({ "retry": "0ms" }), "config.retry"),
        (json!({ "heartbeat": "2d" }), "config.heartbeat"),
    ] {
        assert_eq!(Trial::refused(PLUGINS, "sse", &config).0[0].path, path, "{config}");
    }
}

#[test]
fn the_example_is_taken() {
    let config = json!({ "heartbeat": "20s", "retry": "2000ms", "max_duration": "1h" });
    assert!(gateway_core::plugin::Registry::new(PLUGINS).build("sse", None, &config).is_ok());
}

#[tokio::test]
async fn a_stream_is_one_whatever_the_request_calls_itself() {
    let trial = Trial::new(PLUGINS, "sse", json!({})).answering(|_| {
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from("data: 1\n\n"))
            .unwrap()
    });
    let got = trial.request("POST", "/", &[("content-type", "application/grpc")], "x").await;
    assert_eq!((got.field("x-accel-buffering"), got.text().as_str()), ("no", "data: 1\n\n"));
}
