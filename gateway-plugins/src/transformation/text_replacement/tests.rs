//! Bodies, whole and in pieces, and their header fields after replacements.

use std::collections::VecDeque;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::Trial;
use http::{HeaderMap, Response};
use http_body::Frame;
use serde_json::{Value, json};

use super::TextReplacement;
use super::search::{Pair, Replacing};

const PLUGINS: &[Entry] = &[entry::<TextReplacement>()];

fn trial(
    config: Value,
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    body: impl Into<Bytes>,
) -> Trial {
    let body = body.into();
    Trial::new(PLUGINS, "text_replacement", config).answering(move |_| {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(Body::full(body.clone())).unwrap()
    })
}

fn pairs(list: &[(&str, &str)]) -> Vec<Pair> {
    list.iter()
        .map(|(find, with)| Pair { find: find.as_bytes().to_vec(), with: with.to_string().into() })
        .collect()
}

/// A body that arrives in pieces.
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

/// What comes out of a text that arrives in pieces of this size.
async fn replaced(list: &[(&str, &str)], once: bool, text: &str, piece: usize) -> String {
    let replacing = Replacing::new(pairs(list), once, true, None).expect("a text");
    let pieces = text.as_bytes().chunks(piece).map(Bytes::copy_from_slice).collect();
    let (whole, _) = Body::stream(Pieces(pieces)).transform(replacing).collect(1 << 20).await.unwrap();
    String::from_utf8(whole.to_vec()).unwrap()
}

/// Texts and what takes their place, whether each is replaced once, a body, and what it becomes.
type Case = (&'static [(&'static str, &'static str)], bool, &'static str, &'static str);

#[tokio::test]
async fn matches_are_found_wherever_the_pieces_end() {
    let cases: &[Case] = &[
        (&[("http://app/", "/")], false, "a http://app/x HTTP://APP/http://ap", "a /x /http://ap"),
        (&[("</head>", "<script></head>")], true, "<head></head></head>", "<head><script></head></head>"),
        (&[("aab", "x")], false, "aaaabaab", "aaxx"),
        (&[("abcd", "1"), ("ab", "2"), ("bc", "3")], false, "abcabcdbcab", "2c132"),
        (&[("ab", "2"), ("abcd", "1")], false, "abcd", "2cd"),
        (&[("a", "aa")], false, "banana", "baanaanaa"),
        (&[("a", ""), ("b", "a")], true, "aabb", "aab"),
    ];
    for (list, once, text, wanted) in cases {
        for piece in 1..=text.len() {
            assert_eq!(replaced(list, *once, text, piece).await, *wanted, "{text} in {piece}");
        }
    }
}

#[tokio::test]
async fn only_these_media_types_and_what_describes_them() {
    let config = json!({"replacements": [{"find": "http://app", "with": "https://${request.host}"}]});
    const HTML: &[(&str, &str)] = &[
        ("content-type", "Text/HTML; charset=utf-8"),
        ("content-length", "12"),
        ("etag", "\"1\""),
        ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ("accept-ranges", "bytes"),
    ];
    let changed = trial(config.clone(), 200, HTML, "<http://app>").get("/", &[]).await;
    assert_eq!(changed.text(), "<https://client.test>");
    for gone in ["etag", "last-modified", "accept-ranges"] {
        assert_eq!(changed.field(gone), "", "{gone}");
    }
    assert!(!changed.headers.contains_key("content-length"));
    let head = trial(config.clone(), 200, HTML, "").request("HEAD", "/", &[], "").await;
    assert!(!head.headers.contains_key("content-length") && head.field("etag").is_empty());
    let same = trial(config, 200, &[("content-type", "text/plain"), ("etag", "\"1\"")], "http://app");
    let same = same.get("/", &[]).await;
    assert_eq!((same.text().as_str(), same.field("etag")), ("http://app", "\"1\""));
    let kept = json!({"replacements": [{"find": "a", "with": "b"}], "content_types": ["*"], "keep_last_modified": true});
    let kept = trial(kept, 200, HTML, "aA").get("/", &[]).await;
    assert_eq!((kept.text().as_str(), kept.field("etag")), ("bA", "W/\"1\""));
    assert!(!kept.field("last-modified").is_empty());
}

#[tokio::test]
async fn compressed_bodies_are_decoded_and_parts_stay() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"one two").unwrap();
    let packed = encoder.finish().unwrap();
    let config = json!({"replacements": [{"find": "two", "with": "2"}]});
    const GZIP: &[(&str, &str)] = &[("content-type", "text/html"), ("content-encoding", "gzip")];
    let trial_gzip = trial(config.clone(), 200, GZIP, packed);
    let plain = trial_gzip.get("/", &[("accept-encoding", "gzip"), ("range", "bytes=1-")]).await;
    assert_eq!((plain.text().as_str(), plain.field("content-encoding")), ("one 2", ""));
    let asked = trial_gzip.asked();
    assert!(!asked[0].headers.contains_key("accept-encoding") && !asked[0].headers.contains_key("range"));
    const ODD: &[(&str, &str)] = &[("content-type", "text/html"), ("content-encoding", "odd")];
    assert_eq!(trial(config.clone(), 200, ODD, "two").get("/", &[]).await.text(), "two");
    const PART: &[(&str, &str)] = &[("content-type", "text/html"), ("content-range", "bytes 0-2/9")];
    assert_eq!(trial(config, 206, PART, "two").get("/", &[]).await.text(), "two");
}

#[tokio::test]
async fn trailers_go_on_behind_what_was_held() {
    let config = json!({"replacements": [{"find": "abc", "with": "x"}]});
    let trial = Trial::new(PLUGINS, "text_replacement", config).answering(|_| {
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())]);
        let body = Body::full_with_trailers("abcab", trailers);
        Response::builder().header("content-type", "text/html").body(body).unwrap()
    });
    let got = trial.get("/", &[]).await;
    assert_eq!(got.text(), "xab");
    assert_eq!(
        got.trailers.as_ref().and_then(|all| all.get("x-sum")).map(|it| it.as_bytes()),
        Some(&b"1"[..])
    );
}

#[test]
fn settings_without_effect_are_rejected() {
    for (config, part) in [
        (json!({}), "nothing would change"),
        (json!({"replacements": [{"find": "", "with": "x"}]}), "1 to 512"),
        (json!({"replacements": [{"find": "a".repeat(513), "with": "x"}]}), "1 to 512"),
        (
            json!({"replacements": [{"find": "a", "with": "x"}], "content_types": ["html"]}),
            "not a media type",
        ),
        (json!({"replacements": [{"find": "a", "with": "${nothing}"}]}), "nothing"),
    ] {
        let problems = Trial::refused(PLUGINS, "text_replacement", &config).to_string();
        assert!(problems.contains(part), "{config}: {problems}");
    }
}
