//! Every row of the table, said in every dialect.

use super::*;

const ALL: &[Cause] = &[
    Cause::BadRequest,
    Cause::BadHost,
    Cause::HeadersTooLarge,
    Cause::CodingUnsupported,
    Cause::HttpVersionUnsupported,
    Cause::UriTooLong,
    Cause::BodyTooLarge,
    Cause::RequestTimeout,
    Cause::NoRoute,
    Cause::MethodNotAllowed,
    Cause::MethodUnknown,
    Cause::Unauthenticated,
    Cause::Forbidden,
    Cause::TooManyRequests,
    Cause::TooEarly,
    Cause::Quarantined,
    Cause::NoTarget,
    Cause::CircuitOpen,
    Cause::Overloaded,
    Cause::DnsFailed,
    Cause::ConnectFailed,
    Cause::ConnectTimeout,
    Cause::TlsFailed,
    Cause::TlsCertificate,
    Cause::UpstreamClosed,
    Cause::UpstreamGarbage,
    Cause::UpstreamTimeout,
    Cause::TotalTimeout,
    Cause::VersionUnsupported,
    Cause::UpgradeRefused,
    Cause::Internal,
];

#[test]
fn a_refusal_is_a_problem_document() {
    for cause in ALL {
        let mut response = Reply::new(*cause).detail("a \"detail\"").into_response(Dialect::Plain);
        assert_eq!(response.status(), cause.status());
        assert!(response.status().is_client_error() || response.status().is_server_error(), "{cause:?}");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        let body = response.body_mut().take_full().expect("a body");
        let document: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(document["status"], cause.status().as_u16());
        assert_eq!(document["code"], cause.reason());
        assert_eq!(document["detail"], "a \"detail\"");
        let status = response.headers()["proxy-status"].to_str().expect("text");
        assert!(status.starts_with("ferrum-edge; error="), "{status}");
    }
}

#[test]
fn grpc_hears_a_status_in_the_head() {
    for cause in ALL {
        let response = Reply::new(*cause).into_response(Dialect::Grpc);
        assert_eq!(response.status(), StatusCode::OK, "{cause:?}");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
        assert_eq!(response.headers()["grpc-status"], cause.grpc_status().to_string().as_str());
        assert!((1..=16).contains(&cause.grpc_status()), "{cause:?}");
        assert!(response.body().is_empty());
    }
}

#[test]
fn grpc_messages_are_percent_encoded() {
    let response = Reply::new(Cause::Forbidden).detail("100% für\nalle").into_response(Dialect::Grpc);
    assert_eq!(response.headers()["grpc-message"], "100%25 f%C3%BCr%0Aalle");
}

#[test]
fn reasons_are_stable_words_and_no_two_share_one() {
    let mut seen = std::collections::HashSet::new();
    for cause in ALL {
        let reason = cause.reason();
        assert!(reason.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{reason}");
        assert!(seen.insert(reason), "{reason} stands for two causes");
    }
}

#[test]
fn a_plugins_own_body_and_headers_are_kept() {
    let reply = Reply::fixed(StatusCode::IM_A_TEAPOT, "short and stout")
        .header(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    let mut response = reply.into_response(Dialect::Plain);
    assert_eq!(
        (response.status(), &response.headers()[CONTENT_TYPE]),
        (StatusCode::IM_A_TEAPOT, &HeaderValue::from_static("text/plain"))
    );
    assert_eq!(response.body_mut().take_full().expect("a body"), "short and stout");
    assert!(!response.headers().contains_key("proxy-status"));
}
