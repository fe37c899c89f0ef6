//! What is compressed, in what, and what is left alone.

use std::io::Read;

use gateway_core::http::body::BodyError;
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, Trial};
use http_body::Frame;
use serde_json::{Value, json};

use super::*;

const PLUGINS: &[Entry] = &[entry::<Compression>()];

fn text() -> String {
    "the same words, again and again. ".repeat(100)
}

fn trial(config: Value, status: u16, fields: &[(&'static str, &'static str)]) -> Trial {
    let fields = fields.to_vec();
    Trial::new(PLUGINS, "compression", config).answering(move |_| {
        let mut response = Response::builder().status(status);
        for (name, value) in &fields {
            response = response.header(*name, *value);
        }
        response.body(Body::full(text())).unwrap()
    })
}

async fn got(config: Value, accepted: &str, fields: &[(&'static str, &'static str)]) -> Got {
    trial(config, 200, fields).get("/", &[("accept-encoding", accepted)]).await
}

fn decoded(got: &Got) -> String {
    let mut out = String::new();
    match got.field("content-encoding") {
        "gzip" => _ = flate2::read::GzDecoder::new(&got.body[..]).read_to_string(&mut out).unwrap(),
        "br" => _ = brotli::Decompressor::new(&got.body[..], 4096).read_to_string(&mut out).unwrap(),
        "zstd" => {
            _ = zstd::stream::read::Decoder::new(&got.body[..]).unwrap().read_to_string(&mut out).unwrap()
        }
        _ => out = got.text(),
    }
    out
}

const TEXT: &[(&str, &str)] = &[("content-type", "text/html; charset=utf-8")];

#[tokio::test]
async fn the_coding_that_is_liked_best() {
    for (accepted, coding) in [
        ("gzip", "gzip"),
        ("br", "br"),
        ("zstd", "zstd"),
        ("gzip, br, zstd", "zstd"),
        ("gzip, deflate, br", "br"),
        ("gzip;q=1, br;q=0.5", "gzip"),
        ("gzip;q=0, br;q=0, zstd;q=0", ""),
        ("*", "zstd"),
        ("zstd;q=0, *", "br"),
        ("GZIP", "gzip"),
        ("gzip;q=0.5, identity", ""),
        ("identity;q=0.5, gzip", "gzip"),
        ("deflate", ""),
        ("", ""),
    ] {
        let got = got(json!({}), accepted, TEXT).await;
        assert_eq!(got.field("content-encoding"), coding, "{accepted}");
        assert_eq!(decoded(&got), text(), "{accepted}");
        assert_eq!(got.field("vary"), "Accept-Encoding", "{accepted}");
        assert_eq!(got.body.len() < 500, !coding.is_empty(), "{accepted}");
    }
    let gzip_first = json!({"algorithms": ["gzip", "br"]});
    assert_eq!(got(gzip_first, "br, gzip, zstd", TEXT).await.field("content-encoding"), "gzip");
}

#[tokio::test]
async fn what_is_left_alone() {
    let plain: &[&[(&'static str, &'static str)]] = &[
        &[("content-type", "image/png")],
        &[("content-type", "application/grpc-web+proto")],
        &[],
        &[("content-type", "text/html"), ("content-encoding", "br")],
        &[("content-type", "text/html"), ("cache-control", "public, No-Transform")],
        &[("content-type", "text/html"), ("content-length", "255")],
        &[("content-type", "text/html"), ("content-range", "bytes 0-1/2")],
    ];
    for fields in plain {
        let got = got(json!({}), "gzip", fields).await;
        assert_eq!((got.text(), got.field("vary")), (text(), ""), "{fields:?}");
    }
    for status in [204, 206, 304] {
        let got = trial(json!({}), status, TEXT).get("/", &[("accept-encoding", "gzip")]).await;
        assert_eq!(got.field("content-encoding"), "", "{status}");
    }
    let trial = trial(json!({}), 200, TEXT);
    let got = trial.get("/", &[("accept-encoding", "gzip"), ("range", "bytes=0-9")]).await;
    assert_eq!((got.field("content-encoding"), got.field("vary")), ("", "Accept-Encoding"));
    assert_eq!(trial.get("/", &[]).await.field("content-encoding"), "");
}

/// RFC 9110 §9.3.2 and §15.4.5: caches bring up to date with them what they have.
#[tokio::test]
async fn heads_and_304s_say_what_the_whole_response_says() {
    let fields = [("content-type", "text/css"), ("content-length", "3300"), ("etag", "\"1\"")];
    let gzip = ("accept-encoding", "gzip");
    for method in ["GET", "HEAD"] {
        let got = trial(json!({}), 200, &fields).request(method, "/", &[gzip], "").await;
        let said = ["content-encoding", "vary", "etag", "content-length"].map(|name| got.field(name));
        assert_eq!(said, ["gzip", "Accept-Encoding", "W/\"1\"", ""], "{method}");
        let got = trial(json!({}), 200, &fields).request(method, "/", &[], "").await;
        let said = ["content-encoding", "vary", "etag", "content-length"].map(|name| got.field(name));
        assert_eq!(said, ["", "Accept-Encoding", "\"1\"", "3300"], "{method}");
    }
    let got = trial(json!({}), 200, &[("content-type", "text/css"), ("content-length", "9")]);
    assert_eq!(got.request("HEAD", "/", &[gzip], "").await.field("content-length"), "9");
    for (fields, asked, vary, tag) in [
        (&[("etag", "\"1\"")][..], "W/\"0\", W/\"1\"", "Accept-Encoding", "W/\"1\""),
        (&[("etag", "\"1\"")][..], "\"1\"", "Accept-Encoding", "\"1\""),
        (&[("etag", "W/\"1\"")][..], "W/\"1\"", "Accept-Encoding", "W/\"1\""),
        (&[("etag", "\"1\""), ("content-type", "image/png")][..], "W/\"1\"", "", "\"1\""),
        (&[("etag", "\"1\""), ("content-encoding", "br")][..], "W/\"1\"", "", "\"1\""),
    ] {
        let got = trial(json!({}), 304, fields).get("/", &[gzip, ("if-none-match", asked)]).await;
        assert_eq!((got.field("vary"), got.field("etag")), (vary, tag), "{fields:?} {asked}");
    }
}

#[tokio::test]
async fn what_describes_the_bytes_changes_with_them() {
    let fields = [
        ("content-type", "application/vnd.api+json"),
        ("etag", "\"1\""),
        ("content-length", "3300"),
        ("accept-ranges", "bytes"),
        ("vary", "Origin"),
    ];
    let compressed = got(json!({}), "gzip", &fields).await;
    assert_eq!((compressed.field("etag"), compressed.field("content-encoding")), ("W/\"1\"", "gzip"));
    assert_eq!((compressed.field("accept-ranges"), compressed.headers.get("content-length")), ("", None));
    assert_eq!(compressed.headers.get_all("vary").iter().count(), 2);
    let spared = got(json!({"disable_on_etag": true}), "gzip", &fields).await;
    assert_eq!((spared.field("etag"), spared.field("content-encoding")), ("\"1\"", ""));
    let weak =
        got(json!({"disable_on_etag": true}), "gzip", &[("content-type", "text/css"), ("etag", "W/\"1\"")]);
    let weak = weak.await;
    assert_eq!((weak.field("etag"), weak.field("content-encoding")), ("W/\"1\"", "gzip"));
}

#[tokio::test]
async fn types_sizes_and_levels_are_settable() {
    let only = json!({"content_types": ["image/*"], "flush_types": []});
    assert_eq!(got(only.clone(), "gzip", TEXT).await.field("content-encoding"), "");
    assert_eq!(got(only, "gzip", &[("content-type", "image/x")]).await.field("content-encoding"), "gzip");
    let large = json!({"min_content_length": "4KiB"});
    assert_eq!(got(large, "gzip", TEXT).await.field("content-encoding"), "");
    let words: String =
        (0..20_000_u32).map(|n| format!("{} ", n.wrapping_mul(2_654_435_761) >> 20)).collect();
    for (coding, option, low, high) in
        [("gzip", "gzip_level", 1, 9), ("br", "brotli_quality", 0, 9), ("zstd", "zstd_level", 1, 19)]
    {
        let mut sizes = Vec::new();
        for level in [low, high] {
            let words = words.clone();
            let trial = Trial::new(PLUGINS, "compression", json!({ option: level })).answering(move |_| {
                Response::builder()
                    .header("content-type", "text/plain")
                    .body(Body::full(words.clone()))
                    .unwrap()
            });
            sizes.push(trial.get("/", &[("accept-encoding", coding)]).await.body.len());
        }
        assert!(sizes[1] < sizes[0], "{coding} {sizes:?}");
    }
}

#[tokio::test]
async fn the_target_need_not_know() {
    for (hides, told) in [(true, ""), (false, "br")] {
        let trial = trial(json!({"remove_accept_encoding": hides}), 200, TEXT);
        let got = trial.get("/", &[("accept-encoding", "br")]).await;
        assert_eq!((got.field("content-encoding"), trial.asked()[0].field("accept-encoding")), ("br", told));
    }
}

/// A target that compresses by itself would hide its answer from the plugins that read it.
#[tokio::test]
async fn the_target_need_not_know_of_what_calls_itself_grpc() {
    let trial = trial(json!({"remove_accept_encoding": true}), 200, &[("content-type", "text/plain")]);
    let fields = [("accept-encoding", "gzip"), ("content-type", "application/grpc")];
    let got = trial.request("POST", "/", &fields, "x").await;
    assert_eq!((got.text(), trial.asked()[0].field("accept-encoding")), (text(), ""));
}

fn pieces(coding: Coding, flushes: bool) -> Vec<usize> {
    let mut encoder = Encoder::new(coding, 4, flushes).unwrap();
    let mut body = Vec::new();
    for _ in 0..3 {
        let mut out = gateway_core::http::body::TransformOutput::default();
        gateway_core::http::body::Transform::data(&mut encoder, "data: x\n\n".into(), &mut out).unwrap();
        body.push(format!("{out:?}").matches("Data").count());
    }
    body
}

#[test]
fn events_go_out_at_once() {
    for coding in [Coding::Gzip, Coding::Br, Coding::Zstd] {
        assert_eq!(pieces(coding, true), [1, 1, 1], "{coding:?}");
        assert_eq!(pieces(coding, false)[1..], [0, 0], "{coding:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_not_ended_well() {
    struct Broken(u8);
    impl http_body::Body for Broken {
        type Data = bytes::Bytes;
        type Error = BodyError;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<bytes::Bytes>, BodyError>>> {
            self.0 += 1;
            std::task::Poll::Ready(Some(match self.0 {
                1 => Ok(Frame::data("data: x\n\n".into())),
                _ => Err(BodyError::Incomplete),
            }))
        }
    }
    let trial = Trial::new(PLUGINS, "compression", json!({})).answering(|_| {
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(Body::stream(Broken(0))).unwrap()
    });
    let got = trial.get("/", &[("accept-encoding", "gzip")]).await;
    assert!(got.cut.is_some());
    let mut out = String::new();
    assert!(flate2::read::GzDecoder::new(&got.body[..]).read_to_string(&mut out).is_err());
    assert_eq!(out, "data: x\n\n", "the event itself came through");
}

#[test]
fn settings_that_can_not_be_meant_are_refused() {
    for config in [
        json!({"algorithms": []}),
        json!({"algorithms": ["deflate"]}),
        json!({"gzip_level": 0}),
        json!({"brotli_quality": 12}),
        json!({"zstd_level": 20}),
        json!({"content_types": ["html"]}),
    ] {
        Trial::refused(PLUGINS, "compression", &config);
    }
}

/// Bodies of the same text at each load, in this coding.
async fn at_loads(config: Value, coding: &str, loads: &[f64]) -> (Vec<Vec<u8>>, String) {
    let world = World::default();
    let spec = json!({
        "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http"}],
        "plugin_configs": [{"id": "c", "plugin_name": "compression", "proxy_id": "a", "config": config}],
    });
    // Levels differ on what repeats itself in parts and far apart.
    let text: String = (0..4000_u64).map(|n| format!("{} {} ", n * n % 977, n % 53)).collect();
    let sent = text.clone();
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &world).answering(move |_| {
        let response = Response::builder().header("content-type", "text/plain");
        response.body(Body::full(sent.clone())).unwrap()
    });
    let mut bodies = Vec::new();
    for load in loads {
        // Until what was before does not count any more.
        (0..12).for_each(|_| world.busyness().measured(*load));
        let got = trial.get("/", &[("accept-encoding", coding)]).await;
        assert_eq!(decoded(&got), text, "{coding} at {load}");
        bodies.push(got.body.to_vec());
    }
    let metrics = world.meters().text();
    (bodies, metrics)
}

#[tokio::test]
async fn levels_fall_with_the_load_and_come_back_late() {
    let levels = json!({"gzip_level": 9, "brotli_quality": 8, "zstd_level": 9});
    let with = |more: Value| {
        let mut config = levels.clone();
        config["adapt_to_load"] = more;
        config
    };
    for (coding, lowest) in [
        ("gzip", json!({"gzip_level": 1})),
        ("br", json!({"brotli_quality": 0})),
        ("zstd", json!({"zstd_level": 1})),
    ] {
        let (own, _) = at_loads(levels.clone(), coding, &[0.0, 1.0]).await;
        assert_eq!(own[0], own[1], "without the option the load does not matter");
        let (low, _) = at_loads(lowest, coding, &[0.0]).await;
        assert_ne!(own[0], low[0], "{coding}: the text has to tell levels apart");
        let loads = [0.0, 0.59, 0.95, 0.88, 0.70, 0.5];
        let (bodies, metrics) = at_loads(with(json!({})), coding, &loads).await;
        assert!(bodies[0] == own[0] && bodies[1] == own[0], "{coding} below the load");
        assert!(bodies[2] == low[0] && bodies[3] == low[0], "{coding} beyond it, and not far enough below");
        assert!(bodies[4] != own[0] && bodies[4] != low[0], "{coding} between");
        assert!(bodies[5] == own[0], "{coding} after it");
        assert!(metrics.contains("ferrum_compression_load_step{plugin_config=\"c\"} 0\n"), "{metrics}");
        assert!(metrics.contains("ferrum_compression_lowered_total{plugin_config=\"c\"} 3\n"), "{metrics}");
    }
    let (bodies, metrics) =
        at_loads(with(json!({"from_percent": 10, "to_percent": 20})), "gzip", &[0.3]).await;
    let (low, _) = at_loads(json!({"gzip_level": 1}), "gzip", &[0.0]).await;
    assert_eq!(bodies, low);
    assert!(metrics.contains("ferrum_compression_load_step{plugin_config=\"c\"} 4\n"), "{metrics}");
}

#[test]
fn loads_that_can_not_be_meant_are_refused() {
    for rules in [
        json!({"from_percent": 90, "to_percent": 90}),
        json!({"from_percent": 0}),
        json!({"to_percent": 101}),
        json!({"from_percent": 95}),
        json!({"percent": 1}),
    ] {
        Trial::refused(PLUGINS, "compression", &json!({"adapt_to_load": rules}));
    }
}

/// A body that comes in pieces, with a pause before each.
struct Pausing {
    left: u32,
    is_due: bool,
}

impl http_body::Body for Pausing {
    type Data = bytes::Bytes;
    type Error = BodyError;
    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<bytes::Bytes>, BodyError>>> {
        self.is_due = !self.is_due;
        if self.is_due {
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        let Some(left) = self.left.checked_sub(1) else {
            return std::task::Poll::Ready(Some(Err(BodyError::Incomplete)));
        };
        self.left = left;
        std::task::Poll::Ready(Some(Ok(Frame::data("<p>piece</p>".into()))))
    }
}

#[tokio::test]
async fn what_came_before_a_pause_of_the_target_goes_out() {
    for kind in ["text/html", "application/json", "text/event-stream"] {
        for coding in ["gzip", "br", "zstd"] {
            let trial = Trial::new(PLUGINS, "compression", json!({})).answering(move |_| {
                let response = Response::builder().header("content-type", kind);
                response.body(Body::stream(Pausing { left: 3, is_due: false })).unwrap()
            });
            let got = trial.get("/", &[("accept-encoding", coding)]).await;
            assert!(got.cut.is_some(), "it never ends well");
            let mut out = Vec::new();
            let read = match coding {
                "gzip" => flate2::read::GzDecoder::new(&got.body[..]).read_to_end(&mut out).map(drop),
                "br" => brotli::Decompressor::new(&got.body[..], 4096).read_to_end(&mut out).map(drop),
                _ => zstd::stream::read::Decoder::new(&got.body[..]).unwrap().read_to_end(&mut out).map(drop),
            };
            assert!(read.is_err(), "{coding}");
            assert_eq!(String::from_utf8(out).unwrap(), "<p>piece</p>".repeat(3), "{kind} {coding}");
        }
    }
}

#[tokio::test]
async fn a_304_has_no_length_of_another_form() {
    let fields = [("content-type", "text/css"), ("content-length", "3300"), ("etag", "\"1\"")];
    for asked in ["W/\"1\"", "\"1\""] {
        let trial = trial(json!({}), 304, &fields);
        let got = trial.get("/", &[("accept-encoding", "gzip"), ("if-none-match", asked)]).await;
        assert_eq!(got.field("content-length"), "", "{asked}");
    }
}
