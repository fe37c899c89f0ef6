//! Bodies and trailers, translated both ways.

use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use serde_json::json;

use super::*;

/// A gateway whose target answers with one message and trailers.
fn trial() -> Trial {
    Trial::new(&[entry::<GrpcWeb>()], "grpc_web", json!({})).answering(|_| {
        let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
        let body = Body::full_with_trailers(&b"\0\0\0\0\x01a"[..], HeaderMap::from_iter([status]));
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
        response
    })
}

async fn post(trial: &Trial, content_type: &str, body: impl Into<Bytes>) -> Got {
    trial.request("POST", "/s/m", &[("content-type", content_type)], body).await
}

const WITH_TRAILERS: &[u8] = b"\0\0\0\0\x01a\x80\0\0\0\x10grpc-status: 0\r\n";

#[tokio::test]
async fn binary_bodies_pass_and_trailers_become_the_last_frame() {
    let trial = trial();
    let got = post(&trial, "application/grpc-web+proto", &b"\0\0\0\0\x01q"[..]).await;
    let asked = trial.asked().remove(0);
    assert_eq!((asked.field("content-type"), &asked.body[..]), ("application/grpc", &b"\0\0\0\0\x01q"[..]));
    assert_eq!(got.field("content-type"), "application/grpc-web+proto");
    assert_eq!(got.field("access-control-expose-headers"), "grpc-status, grpc-message");
    assert_eq!(got.body, WITH_TRAILERS);
    assert!(got.trailers.is_none(), "a browser would not see them");
}

#[tokio::test]
async fn text_bodies_are_decoded_and_encoded() {
    let trial = trial();
    // Two messages, each padded on its own.
    let sent = format!("{}{}\r\n", STANDARD.encode(b"\0\0\0\0\x01q"), STANDARD.encode(b"\0\0\0\0\x02rs"));
    let got = post(&trial, "application/grpc-web-text", sent).await;
    assert_eq!(trial.asked()[0].body, &b"\0\0\0\0\x01q\0\0\0\0\x02rs"[..]);
    assert_eq!(got.field("content-type"), "application/grpc-web-text");
    let groups = got.body.as_chunks::<4>().0;
    let decoded: Vec<u8> = groups.iter().flat_map(|group| STANDARD.decode(group).unwrap()).collect();
    assert_eq!(decoded, WITH_TRAILERS);
}

#[tokio::test]
async fn torn_or_foreign_text_is_refused() {
    for sent in ["AAA", "AA*A", "====="] {
        let got = post(&trial(), "application/grpc-web-text", sent).await;
        assert_ne!(got.field("grpc-status"), "0", "{sent}");
    }
}

#[tokio::test]
async fn other_types_are_left_alone() {
    for content_type in ["application/grpc", "application/grpc-webx", "application/json"] {
        let trial = trial();
        let got = post(&trial, content_type, &b"AAAA"[..]).await;
        assert_eq!(trial.asked()[0].field("content-type"), content_type);
        assert_eq!(got.field("content-type"), "application/grpc+proto");
        assert!(got.trailers.is_some());
    }
}
