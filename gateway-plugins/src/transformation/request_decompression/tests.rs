//! What a target gets of a compressed request, and what it is spared.

use std::io::Write;

use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::RequestDecompression;

const PLUGINS: &[Entry] = &[entry::<RequestDecompression>()];

fn encoded(coding: &str, plain: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" | "x-gzip" => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            writer.write_all(plain).unwrap();
            writer.finish().unwrap()
        }
        "deflate" => {
            let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
            writer.write_all(plain).unwrap();
            writer.finish().unwrap()
        }
        "br" => {
            let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 22);
            writer.write_all(plain).unwrap();
            writer.into_inner()
        }
        _ => zstd::stream::encode_all(plain, 3).unwrap(),
    }
}

async fn send(
    config: Value,
    coding: &str,
    body: Vec<u8>,
) -> (u16, Option<gateway_core::testing::ReceivedRequest>) {
    let trial = Trial::new(PLUGINS, "request_decompression", config);
    let fields = [("content-encoding", coding), ("content-length", "1")];
    let got = trial.request("POST", "/", &fields, body).await;
    (got.status, trial.asked().pop())
}

const CODINGS: [&str; 5] = ["gzip", "x-gzip", "deflate", "br", "zstd"];

#[tokio::test]
async fn every_coding_is_decoded() {
    for coding in CODINGS {
        let (status, asked) = send(json!({}), &coding.to_uppercase(), encoded(coding, b"hello")).await;
        let asked = asked.unwrap_or_else(|| panic!("{coding}: {status}"));
        assert_eq!(asked.body, "hello", "{coding}");
        assert_eq!((asked.field("content-encoding"), asked.headers.get("content-length")), ("", None));
    }
}

#[tokio::test]
async fn a_bomb_does_not_go_off() {
    let zeros = vec![0; 4 << 20];
    for coding in CODINGS {
        let bomb = encoded(coding, &zeros);
        assert!(bomb.len() < 20_000, "{coding}");
        let small = json!({"max_size": "1MiB"});
        assert_eq!(send(small, coding, bomb.clone()).await.0, 413, "{coding}");
        let (status, asked) = send(json!({"max_size": "4MiB"}), coding, bomb).await;
        assert_eq!((status, asked.map(|asked| asked.body.len())), (200, Some(4 << 20)), "{coding}");
    }
}

#[tokio::test]
async fn what_is_broken_is_refused() {
    for coding in CODINGS {
        let whole = encoded(coding, "some words, and some more words".as_bytes());
        let cut = whole[..whole.len() - 3].to_vec();
        for body in [cut, b"this was never compressed".to_vec()] {
            let (status, asked) = send(json!({}), coding, body).await;
            assert_eq!((status, asked.is_some()), (400, false), "{coding}");
        }
    }
}

#[tokio::test]
async fn codings_that_are_not_known() {
    for coding in ["compress", "gzip, gzip", "gzip, br", "x"] {
        assert_eq!(send(json!({}), coding, b"x".to_vec()).await.0, 415, "{coding}");
        let (status, asked) = send(json!({"pass_unknown": true}), coding, b"x".to_vec()).await;
        assert_eq!((status, asked.unwrap().field("content-encoding")), (200, coding));
    }
    assert_eq!(send(json!({}), "identity", b"x".to_vec()).await.0, 200);
    Trial::refused(PLUGINS, "request_decompression", &json!({"max_size": 0}));
}

#[tokio::test]
async fn a_media_type_switches_nothing_off() {
    let trial = Trial::new(PLUGINS, "request_decompression", json!({"max_size": 100}));
    let fields = [("content-encoding", "gzip"), ("content-type", "application/grpc")];
    let got = trial.request("POST", "/", &fields, encoded("gzip", b"hello")).await;
    assert_eq!((got.status, trial.asked()[0].body.clone()), (200, "hello".into()));
    let got = trial.request("POST", "/", &fields, encoded("gzip", &[0; 1000])).await;
    assert_eq!((got.field("grpc-status"), trial.asked().len()), ("8", 1));
}
