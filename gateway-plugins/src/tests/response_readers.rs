//! Plugins that read the bodies of responses: the target is asked for a plain one, and the client gets what it likes all the same.

use std::collections::VecDeque;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use gateway_core::http::body::BodyError;
use gateway_core::testing::{Got, Trial};
use http::HeaderValue;
use http_body::Frame;
use serde_json::{Value, json};

use super::*;

fn readers() -> Vec<(&'static str, Value, &'static str)> {
    let rule = json!({ "operation": "set", "target": "body", "key": "/a", "value": 2 });
    vec![
        ("response_transformer", json!({ "rules": [rule] }), "application/json"),
        ("sse", json!({}), "text/event-stream"),
    ]
}

#[tokio::test]
async fn the_target_is_asked_for_a_body_that_can_be_read() {
    for (name, config, kind) in readers() {
        for method in ["GET", "HEAD"] {
            let plugins = [("compression", json!({ "min_content_length": 0 })), (name, config.clone())];
            let trial = Trial::of_plugins(PLUGINS, &plugins).answering(move |_| {
                let response = Response::builder().header("content-type", kind);
                response
                    .body(Body::from(r#"{"a":1,"b":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}"#))
                    .unwrap()
            });
            let browser = [("accept-encoding", "gzip, br"), ("accept", "text/event-stream, */*")];
            let got = trial.request(method, "/", &browser, "").await;
            assert_eq!(trial.asked()[0].field("accept-encoding"), "", "{name} {method}");
            assert_eq!((got.status, got.field("content-encoding")), (200, "br"), "{name} {method}");
        }
    }
}

/// What a target answers, and what the client gets of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetAnswer {
    /// Compressed, though it was asked for a plain body.
    Compressed,
    /// In pieces, without a length.
    Streamed,
    /// With trailers.
    Trailers,
    /// To HEAD, with the length of the body.
    Head,
    /// 304 with a validator.
    NotModified,
    /// The first bytes of a longer body.
    Part,
}

impl TargetAnswer {
    const ALL: [Self; 6] =
        [Self::Compressed, Self::Streamed, Self::Trailers, Self::Head, Self::NotModified, Self::Part];

    fn response(self) -> Response<Body> {
        let response = Response::builder()
            .header("content-type", "application/json")
            .header("cache-control", "max-age=60")
            .header("etag", "\"v1\"");
        let (response, body) = match self {
            Self::Compressed => (response.header("content-encoding", "gzip"), Body::full(gzip(BODY))),
            Self::Streamed => {
                (response, Body::stream(Pieces(BODY.as_bytes().chunks(5).map(Bytes::from).collect())))
            }
            Self::Trailers => {
                let trailers = [("x-checksum".parse().unwrap(), HeaderValue::from_static("1"))];
                (response, Body::full_with_trailers(BODY, trailers.into_iter().collect()))
            }
            Self::Head => (response.header("content-length", BODY.len()), Body::default()),
            Self::NotModified => (response.status(304), Body::default()),
            Self::Part => {
                let range = format!("bytes 0-9/{}", BODY.len());
                (response.status(206).header("content-range", range), Body::full(&BODY.as_bytes()[..10]))
            }
        };
        response.body(body).unwrap()
    }
}

const BODY: &str =
    r#"{"a":1,"long":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;

/// A body whose pieces come one after the other.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// The body as the client reads it.
fn read(got: &Got) -> String {
    match got.field("content-encoding") {
        "" => got.text(),
        "gzip" => std::io::read_to_string(flate2::read::GzDecoder::new(&got.body[..])).unwrap(),
        other => panic!("{other}"),
    }
}

/// What a plugin makes of a body.
type Change = fn(&str) -> String;

/// Plugins that hold, read or change bodies, with their settings.
fn all_readers() -> Vec<(&'static str, Value, Change)> {
    fn same(body: &str) -> String {
        body.to_owned()
    }
    fn changed(body: &str) -> String {
        body.replacen("1", "2", 1)
    }
    let rule = json!({ "operation": "set", "target": "body", "key": "/a", "value": 2 });
    let replacement = json!({ "find": "\"a\":1", "with": "\"a\":2" });
    vec![
        ("response_transformer", json!({ "rules": [rule] }), changed),
        (
            "text_replacement",
            json!({ "replacements": [replacement], "content_types": ["application/json"] }),
            changed,
        ),
        ("compression", json!({ "min_content_length": 0, "algorithms": ["gzip"] }), same),
        ("response_cache", json!({}), same),
        ("response_size_limiting", json!({ "max_size": 1000 }), same),
        ("request_deduplication", json!({}), same),
        ("server_timing", json!({}), same),
        ("sse", json!({}), same),
    ]
}

/// Every plugin that touches bodies, with every kind of response: the client reads what the plugin makes of a plain body, or the body as
/// it is where only a part of it is known; no length, validator or trailer tells of another body than the client gets.
#[tokio::test]
async fn every_kind_of_response_passes_every_plugin_that_touches_bodies() {
    for (name, config, makes) in all_readers() {
        for answer in TargetAnswer::ALL {
            let case = format!("{name}, {answer:?}");
            let trial =
                Trial::of_plugins(PLUGINS, &[(name, config.clone())]).answering(move |_| answer.response());
            let method = if answer == TargetAnswer::Head { "HEAD" } else { "GET" };
            let got = trial
                .request(method, "/", &[("accept-encoding", "gzip"), ("if-none-match", "\"v0\"")], "")
                .await;
            assert!(got.cut.is_none(), "{case}: {:?}", got.cut);
            if got.status == 502 && answer == TargetAnswer::Part && name == "response_transformer" {
                // A part of JSON can't be changed, and does not pass unchanged.
                continue;
            }
            let (status, body) = match answer {
                TargetAnswer::Head => (200, String::new()),
                TargetAnswer::NotModified => (304, String::new()),
                TargetAnswer::Part => (206, BODY.chars().take(10).collect()),
                _ => (200, makes(BODY)),
            };
            assert_eq!(
                (got.status, if method == "HEAD" { got.text() } else { read(&got) }),
                (status, body),
                "{case}"
            );
            let length =
                got.headers.get("content-length").map(|it| it.to_str().unwrap().parse::<usize>().unwrap());
            match answer {
                TargetAnswer::Head => {
                    assert!(
                        length.is_none_or(|length| length == BODY.len() && makes(BODY) == BODY),
                        "{case}: {length:?}"
                    );
                }
                TargetAnswer::NotModified => assert_eq!(length, None, "{case}"),
                _ => assert!(length.is_none_or(|length| length == got.body.len()), "{case}: {length:?}"),
            }
            if answer == TargetAnswer::Trailers && name != "response_cache" {
                assert_eq!(
                    got.trailers.as_ref().map(|it| &it["x-checksum"]),
                    Some(&HeaderValue::from_static("1")),
                    "{case}"
                );
            }
            // A strong validator names these very bytes.
            let is_other = makes(BODY) != BODY
                || (got.headers.contains_key("content-encoding") && answer != TargetAnswer::Compressed);
            if is_other && answer != TargetAnswer::Part && answer != TargetAnswer::NotModified {
                assert_ne!(got.field("etag"), "\"v1\"", "{case}");
            }
        }
    }
}
