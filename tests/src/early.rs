//! Requests before the end of the handshake (0-RTT, RFC 8470): what is safe is carried out and marked, the rest waits.

mod quic;
mod tcp;

use crate::support::edge::Edge;
use crate::support::standing::Standing;
use crate::support::tls;

/// A gateway that takes early data, and its origin.
async fn early(more: &str) -> (Edge, Standing) {
    let origin = Standing::start("o").await;
    (Edge::start_with(&format!("{}{more}", settings("early_data: true")), &spec(&origin, "")), origin)
}

fn spec(origin: &Standing, more: &str) -> String {
    format!("proxies:\n  - {{id: a, listen_path: /, {}{more}}}\n", origin.backend())
}

/// The `tls` section with more in it.
fn settings(more: &str) -> String {
    let identity = tls::localhost();
    format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], {more}}}\n",
        identity.cert, identity.key
    )
}

/// RFC 8470 §5.1: the mark of an earlier hop is kept, whatever the client says about it, and 425 is for the client.
#[tokio::test]
async fn marks_of_others_go_on_and_their_425_comes_back() {
    let origin = Standing::start("o").await;
    let retry = ", retry: {max_retries: 3, budget_percent: 1000, retryable_status_codes: [425, 503]}";
    let mut edge = Edge::start(&spec(&origin, retry));
    let request = "GET / HTTP/1.1\r\nhost: a.test\r\nearly-data: 1\r\nconnection: early-data\r\n\r\n";
    let (_, body) = edge.ask(request).await;
    assert!(body.contains("\nearly-data: 1\n"), "{body}");
    edge.only_record().await;
    origin.answer(425);
    let (head, _) = edge.ask(request).await;
    assert_eq!(head.status(), 425);
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason(), record.attempts()), (425, "", 1));
}

#[tokio::test]
async fn a_proxy_may_refuse_what_came_early() {
    let origin = Standing::start("o").await;
    let mut edge = Edge::start(&spec(&origin, ", early_data: false"));
    let (head, _) = edge.ask("GET / HTTP/1.1\r\nhost: a.test\r\nearly-data: 1\r\n\r\n").await;
    assert_eq!((head.status(), head.field("proxy-status").contains("http_request_denied")), (425, true));
    let record = edge.only_record().await;
    assert_eq!((record.status(), record.reason()), (425, "too_early"));
    let (head, body) = edge.get("/").await;
    assert_eq!((head.status(), body.contains("early-data")), (200, false));
}
