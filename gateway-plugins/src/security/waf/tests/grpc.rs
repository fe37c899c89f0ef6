//! Messages of gRPC calls, and documents of GraphQL.

use std::io::Write as _;

use super::*;

/// A message of one field.
fn message(flag: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![flag];
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
    out
}

fn field(text: &str) -> Vec<u8> {
    assert!(text.len() < 128 * 128);
    let mut out = vec![0x0a];
    if text.len() > 127 {
        out.push((text.len() & 0x7f) as u8 | 0x80);
        out.push((text.len() >> 7) as u8);
    } else {
        out.push(text.len() as u8);
    }
    out.extend_from_slice(text.as_bytes());
    out
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A body that comes in these pieces.
struct Pieces(std::collections::VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = gateway_core::http::body::BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.pop_front().map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

async fn call(trial: &Trial, encoding: &str, body: Vec<u8>) -> Got {
    let request =
        Request::post("/s/m").header("host", "h.example").header("content-type", "application/grpc");
    let request = if encoding.is_empty() { request } else { request.header("grpc-encoding", encoding) };
    // In pieces, as networks deliver it.
    let (first, second) = body.split_at(body.len() / 2);
    let frames = [first, second].map(Bytes::copy_from_slice).to_vec();
    trial.send(request.body(Body::stream(Pieces(frames.into()))).unwrap()).await
}

const ATTACK: &str = "<script>alert(1)</script>";

fn is_refused(got: &Got) -> bool {
    got.headers.get("grpc-status").is_some()
}

#[tokio::test]
async fn messages_of_calls_are_inspected_each() {
    let attack = message(0, &field(ATTACK));
    let calm = message(0, &field("hello"));
    let block = trial(json!({}));
    assert!(!is_refused(&call(&block, "", calm.clone()).await));
    assert_eq!(block.asked()[0].body[..], calm, "the body goes on as it came");
    assert!(is_refused(&call(&block, "", attack.clone()).await));
    assert!(is_refused(&call(&block, "", [calm.clone(), attack.clone()].concat()).await));
    // JSON under the type of gRPC, for targets that do not look at the type.
    let json = format!("{{\"a\":\"{ATTACK}\"}}");
    assert!(is_refused(&call(&block, "", message(0, json.as_bytes())).await));
    assert!(is_refused(&call(&block, "", json.into_bytes()).await), "what is not framed is refused");
    let large = field(&format!("{}{ATTACK}", "a ".repeat(3000)));
    assert!(is_refused(&call(&block, "", message(0, &large)).await));
    let off = trial(json!({"grpc_messages": false}));
    assert!(!is_refused(&call(&off, "", attack.clone()).await));
    let detect = trial(json!({"mode": "detect"}));
    assert!(!is_refused(&call(&detect, "", attack.clone()).await));
    let excluded = trial(json!({"exclusions": [{"tags": ["attack-xss"], "when": {"path": "/s/m"}}]}));
    assert!(!is_refused(&call(&excluded, "", attack).await));
}

#[tokio::test]
async fn compressed_messages_are_opened() {
    let attack = message(1, &gzip(&field(ATTACK)));
    let block = trial(json!({}));
    assert!(is_refused(&call(&block, "gzip", attack.clone()).await));
    assert!(!is_refused(&call(&block, "gzip", message(1, &gzip(&field("hello")))).await));
    assert!(is_refused(&call(&block, "snappy", message(1, b"xx")).await));
    let lax = trial(json!({"body": {"encoded": "pass"}}));
    assert!(!is_refused(&call(&lax, "snappy", message(1, b"xx")).await));
    // A small message that becomes a large one.
    let bomb = message(1, &gzip(&vec![0; 1 << 20]));
    assert!(is_refused(&call(&block, "gzip", bomb.clone()).await));
    let lax = trial(json!({"body": {"over_limit": "pass"}}));
    assert!(!is_refused(&call(&lax, "gzip", bomb).await));
}

#[tokio::test]
async fn messages_beyond_the_limit_follow_its_policy() {
    let large = message(0, &field(&"a".repeat(2000)));
    let strict = trial(json!({"body": {"max_size": 1000}}));
    assert!(is_refused(&call(&strict, "", large.clone()).await));
    let lax = trial(json!({"body": {"max_size": 1000, "over_limit": "pass"}}));
    let body = [large, message(0, &field("hello"))].concat();
    assert!(!is_refused(&call(&lax, "", body.clone()).await));
    assert_eq!(lax.asked()[0].body[..], body);
    let attack = [body, message(0, &field(ATTACK))].concat();
    assert!(is_refused(&call(&lax, "", attack).await), "what comes behind is inspected");
}

#[tokio::test]
async fn grpc_web_is_inspected_as_well() {
    let block = trial(json!({}));
    let attack = message(0, &field(ATTACK));
    let got = post(&block, "application/grpc-web+proto", attack).await;
    assert_eq!((got.field("grpc-status"), block.asked().len()), ("3", 0));
    let got = post(&block, "application/grpc-web+proto", message(0, &field("hello"))).await;
    assert_eq!((got.field("grpc-status"), block.asked().len()), ("", 1));
}

/// The quote is an escape within a string within JSON.
#[tokio::test]
async fn strings_of_graphql_are_inspected() {
    let body = r#"{"query":"{ user(name: \"x\\u0027 or \\u00271\\u0027=\\u00271\") { id } }"}"#;
    assert_eq!(post(&trial(json!({})), "application/json", body).await.status, 400);
    let off = trial(json!({"body": {"graphql": false}}));
    assert_eq!(post(&off, "application/json", body).await.status, 200);
    let nested = r#"{"data":"{\"q\":\"\\u0027 or \\u00271\\u0027=\\u00271\"}"}"#;
    assert_eq!(post(&trial(json!({})), "application/json", nested).await.status, 400);
    let flat = trial(json!({"limits": {"nested_json": 0}}));
    assert_eq!(post(&flat, "application/json", nested).await.status, 200);
}

/// What is no gRPC can't be inspected as such; where nothing is refused it goes on as it came.
#[tokio::test]
async fn what_is_not_framed_is_refused_or_goes_on_whole() {
    let calm = message(0, &field("hello"));
    let bodies = [b"{\"query\":1}".to_vec(), calm[..8].to_vec(), [calm.clone(), b"xyz".to_vec()].concat()];
    for body in bodies {
        let block = trial(json!({}));
        assert!(is_refused(&call(&block, "", body.clone()).await), "{body:?}");
        assert!(block.asked().is_empty());
        for config in [json!({"mode": "detect"}), json!({"body": {"malformed": "pass"}})] {
            let passes = trial(config.clone());
            assert!(!is_refused(&call(&passes, "", body.clone()).await), "{config} {body:?}");
            assert_eq!(passes.asked()[0].body[..], body, "{config}");
        }
    }
}

/// gRPC knows no content codings: whoever decodes such a body reads something that was not inspected.
#[tokio::test]
async fn a_coded_call_is_refused() {
    let body = message(0, &field("hello"));
    for (config, status) in [(json!({}), "12"), (json!({"mode": "detect"}), "")] {
        let trial = trial(config);
        let fields = [("content-type", "application/grpc"), ("content-encoding", "br")];
        assert_eq!(trial.request("POST", "/s/m", &fields, body.clone()).await.field("grpc-status"), status);
    }
}
