//! Calls that the gateway ends once their head has gone out end with a status, not with a stream that breaks off.

use http::{HeaderMap, Request};

use super::*;
use crate::support::h3::{Client as H3Client, edge_with};

/// A message that the firewall refuses.
fn attack() -> Bytes {
    let text = b"<script>alert(1)</script>";
    message(&[&[0x0a, u8::try_from(text.len()).unwrap()], &text[..]].concat())
}

/// How a client speaks to the gateway.
enum Caller {
    H2(SendRequest<Bytes>),
    H3(H3Client),
}

/// A call under way.
enum Calling {
    H2(ResponseFuture, SendStream<Bytes>),
    H3(Box<crate::support::h3::Stream>),
}

impl Caller {
    async fn call(&mut self, more: &[(&str, &str)]) -> Calling {
        match self {
            Self::H2(requests) => {
                let (answer, up) = call(requests, "/echo.Echo/Bidi", more).await;
                Calling::H2(answer, up)
            }
            Self::H3(client) => {
                let mut request =
                    Request::post("https://a.test/echo.Echo/Bidi").header("content-type", "application/grpc");
                request.headers_mut().unwrap().extend(map(more));
                Calling::H3(Box::new(client.send(request.body(()).unwrap()).await))
            }
        }
    }
}

impl Calling {
    async fn say(&mut self, text: Bytes) {
        match self {
            Self::H2(_, up) => send(up, &text, false).await.unwrap(),
            Self::H3(stream) => stream.data(text).await,
        }
    }

    /// Waits for the head, and runs something before the rest is read; the messages and the trailers.
    async fn rest(self, between: impl AsyncFnOnce(&mut Self)) -> (Vec<u8>, HeaderMap) {
        let mut calling = self;
        let mut recv = None;
        match &mut calling {
            Self::H2(answer, _) => recv = Some(soon(answer).await.unwrap().into_body()),
            Self::H3(stream) => assert_eq!(stream.head().await.unwrap().status(), 200),
        }
        between(&mut calling).await;
        match (calling, recv) {
            (Self::H3(mut stream), _) => {
                let rest = stream.rest().await.unwrap();
                (rest.body.to_vec(), rest.trailers)
            }
            (Self::H2(..), recv) => {
                let (mut recv, mut got) = (recv.unwrap(), Vec::new());
                while let Some(piece) = data(&mut recv).await.unwrap() {
                    got.extend_from_slice(&piece);
                }
                (got, soon(recv.trailers()).await.unwrap().unwrap_or_default())
            }
        }
    }
}

/// A gateway with the firewall, callers over both versions, and the target's streams.
async fn stand() -> (Edge, [Caller; 2], mpsc::UnboundedReceiver<Stream>) {
    let port = Port::listen(None).await;
    let backend = WireProtocol::H2.backend(port.address);
    let edge = edge_with(
        "",
        &format!(
            "proxies:\n  - {{id: g, listen_path: /echo.Echo, {backend}, plugins: [{{plugin_config_id: w}}]}}\n\
             plugin_configs:\n  - {{id: w, plugin_name: waf, scope: proxy_group, config: {{}}}}\n"
        ),
    );
    let callers =
        [Caller::H2(client(&edge, WireProtocol::H2).await), Caller::H3(H3Client::open(edge.https()).await)];
    (edge, callers, origin(port))
}

#[tokio::test]
async fn a_message_that_is_refused_ends_its_call_with_a_status() {
    let (mut edge, callers, mut streams) = stand().await;
    for mut caller in callers {
        let calling = caller.call(&[]).await;
        let (request, mut respond) = soon(streams.recv()).await.unwrap();
        let mut down = respond.send_response(ok(), false).unwrap();
        send(&mut down, &message(b"first"), false).await.unwrap();
        let (got, trailers) = calling.rest(async |calling| calling.say(attack()).await).await;
        assert_eq!((got, &trailers["grpc-status"]), (message(b"first").to_vec(), &"3".parse().unwrap()));
        assert!(!trailers["grpc-message"].is_empty());
        let record = edge.only_record().await;
        assert_eq!(record.0["rpc.grpc.status_code"], 3, "{record:?}");
        assert_eq!((record.status(), record.reason()), (200, "bad_request"));
        // The target is told that nobody waits any more, and has got nothing of the message.
        soon(std::future::poll_fn(|cx| down.poll_reset(cx))).await.unwrap();
        assert!(!matches!(data(&mut request.into_body()).await, Ok(Some(_))));
    }
}

#[tokio::test]
async fn a_deadline_ends_a_call_with_a_status() {
    let (mut edge, callers, mut streams) = stand().await;
    for mut caller in callers {
        let calling = caller.call(&[("grpc-timeout", "500m")]).await;
        let (_request, mut respond) = soon(streams.recv()).await.unwrap();
        let mut down = respond.send_response(ok(), false).unwrap();
        send(&mut down, &message(b"first"), false).await.unwrap();
        let (got, trailers) = calling.rest(async |_| {}).await;
        assert_eq!((got, &trailers["grpc-status"]), (message(b"first").to_vec(), &"4".parse().unwrap()));
        let record = edge.only_record().await;
        assert_eq!((record.reason(), &record.0["rpc.grpc.status_code"]), ("total_timeout", &4.into()));
        soon(std::future::poll_fn(|cx| down.poll_reset(cx))).await.unwrap();
    }
}

/// What is no call has no such end.
#[tokio::test]
async fn other_answers_break_off_as_before() {
    let (mut edge, [mut caller, _], mut streams) = stand().await;
    let Calling::H2(answer, _up) = caller.call(&[("grpc-timeout", "500m")]).await else { unreachable!() };
    let (_request, mut respond) = soon(streams.recv()).await.unwrap();
    let head = Response::builder().header("content-type", "text/plain").body(()).unwrap();
    let mut down = respond.send_response(head, false).unwrap();
    send(&mut down, b"first", false).await.unwrap();
    let mut near = soon(answer).await.unwrap().into_body();
    assert_eq!(data(&mut near).await.unwrap().unwrap(), "first");
    data(&mut near).await.expect_err("the stream was cut");
    assert_eq!(edge.only_record().await.reason(), "total_timeout");
}

#[tokio::test]
async fn a_call_whose_key_is_gone_ends_with_a_status() {
    let port = Port::listen(None).await;
    let backend = WireProtocol::H2.backend(port.address);
    let spec = |key: &str| {
        format!(
            "proxies:\n  - {{id: g, listen_path: /echo.Echo, {backend}}}\n\
             plugin_configs:\n  - {{id: k, plugin_name: key_auth, proxy_id: g}}\n\
             consumers:\n  - {{id: ann, username: ann, credentials: {{key_auth: {key}}}}}\n"
        )
    };
    let mut edge = edge_with("  session_check: 1\n", &spec("sesame"));
    let callers =
        [Caller::H2(client(&edge, WireProtocol::H2).await), Caller::H3(H3Client::open(edge.https()).await)];
    let mut streams = origin(port);
    for mut caller in callers {
        edge.reload(&spec("sesame"));
        let calling = caller.call(&[("x-api-key", "sesame")]).await;
        let (_request, mut respond) = soon(streams.recv()).await.unwrap();
        let mut down = respond.send_response(ok(), false).unwrap();
        send(&mut down, &message(b"first"), false).await.unwrap();
        let (got, trailers) = calling.rest(async |_| edge.reload(&spec("another"))).await;
        assert_eq!((got, &trailers["grpc-status"]), (message(b"first").to_vec(), &"14".parse().unwrap()));
        soon(std::future::poll_fn(|cx| down.poll_reset(cx))).await.unwrap();
        assert_eq!(edge.only_record().await.reason(), "revoked");
    }
}
