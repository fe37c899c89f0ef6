//! gRPC through the gateway, over plain HTTP/2 and over TLS: unary and streaming, deadlines, refusals, slow readers.

mod ends;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response};
use tokio::sync::mpsc;

use crate::support::edge::Edge;
use crate::support::h2::{Stream, data, map, origin, send};
use crate::support::soon;
use crate::support::stream::{at, free_port};
use crate::support::talk::WireProtocol;
use crate::support::wire::{Port, Wire, connect};

/// Both ways of carrying it.
const KINDS: [WireProtocol; 2] = [WireProtocol::H2, WireProtocol::H2Tls];

/// A gateway in front of a scripted server, both spoken to in the same way.
struct Stand {
    edge: Edge,
    requests: SendRequest<Bytes>,
    streams: mpsc::UnboundedReceiver<Stream>,
}

impl Stand {
    async fn new(kind: WireProtocol, fields: &str) -> Self {
        Self::with("", kind, fields).await
    }

    /// With these settings.
    async fn with(settings: &str, kind: WireProtocol, fields: &str) -> Self {
        let port = Port::listen(kind.is_tls().then_some(&["h2"][..])).await;
        let backend = kind.backend(port.address);
        let spec = format!(
            "proxies:\n  - {{id: g, listen_path: /echo.Echo, strip_listen_path: false, {backend}{fields}}}\n"
        );
        let edge = Edge::start_with(settings, &spec);
        let requests = client(&edge, kind).await;
        Self { edge, requests, streams: origin(port) }
    }

    /// Begins a call.
    async fn call(&mut self, method: &str, more: &[(&str, &str)]) -> (ResponseFuture, SendStream<Bytes>) {
        call(&mut self.requests, &format!("/echo.Echo/{method}"), more).await
    }

    /// The server's side of the next call.
    async fn serve(&mut self) -> (Request<RecvStream>, SendResponse<Bytes>) {
        soon(self.streams.recv()).await.unwrap()
    }
}

async fn client(edge: &Edge, kind: WireProtocol) -> SendRequest<Bytes> {
    let io = match kind.is_tls() {
        true => connect(edge.https(), Some(&["h2"])).await,
        false => connect(edge.http(), None).await,
    };
    // As gRPC's own clients do, it lets one stream take a share of the connection's window only.
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(256 << 10).initial_connection_window_size(4 << 20);
    let (requests, connection) = soon(builder.handshake(io)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    requests
}

async fn call(
    requests: &mut SendRequest<Bytes>,
    path: &str,
    more: &[(&str, &str)],
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://a.test{path}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .body(())
        .unwrap();
    request.headers_mut().extend(map(more));
    soon(std::future::poll_fn(|cx| requests.poll_ready(cx))).await.unwrap();
    requests.send_request(request, false).unwrap()
}

/// A message behind its prefix.
fn message(text: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(text.len()).unwrap());
    framed.put_slice(text);
    framed.freeze()
}

/// A message as it comes, however it is sliced into frames.
async fn expect(recv: &mut RecvStream, text: &[u8]) {
    let wanted = message(text);
    let mut got = Vec::new();
    while got.len() < wanted.len() {
        got.extend_from_slice(&data(recv).await.unwrap().expect("a message"));
    }
    assert!(got == wanted, "another message of {} bytes", got.len());
}

async fn trailers(recv: &mut RecvStream) -> HeaderMap {
    assert!(data(recv).await.unwrap().is_none(), "the stream goes on");
    soon(recv.trailers()).await.unwrap().expect("trailers")
}

fn ok() -> Response<()> {
    Response::builder().header("content-type", "application/grpc+proto").body(()).unwrap()
}

const FINE: &[(&str, &str)] = &[("grpc-status", "0"), ("grpc-message", "fine"), ("x-more", "1")];

/// gRPC's status of an answer without a body: it stands in the head.
fn status_in_head<T>(answer: &Response<T>) -> &str {
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    answer.headers()["grpc-status"].to_str().unwrap()
}

#[tokio::test]
async fn a_unary_call() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        let (answer, mut sending) = stand.call("Unary", &[("x-meta", "m"), ("grpc-timeout", "9S")]).await;
        send(&mut sending, &message(b"ping"), true).await.unwrap();
        let (request, mut respond) = stand.serve().await;
        assert_eq!(request.uri().path(), "/echo.Echo/Unary");
        for (name, value) in [("te", "trailers"), ("x-meta", "m"), ("content-type", "application/grpc+proto")]
        {
            assert_eq!(request.headers()[name], value);
        }
        assert!(request.headers().contains_key("grpc-timeout"));
        let mut recv = request.into_body();
        expect(&mut recv, b"ping").await;
        assert!(data(&mut recv).await.unwrap().is_none());
        let mut sending = respond.send_response(ok(), false).unwrap();
        send(&mut sending, &message(b"pong"), false).await.unwrap();
        sending.send_trailers(map(FINE)).unwrap();
        let answer = soon(answer).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));
        let mut recv = answer.into_body();
        expect(&mut recv, b"pong").await;
        let trailers = trailers(&mut recv).await;
        for (name, value) in FINE {
            assert_eq!(trailers[*name], *value);
        }
        let record = stand.edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (200, ""), "{kind:?}");
    }
}

#[tokio::test]
async fn messages_stream_both_ways_at_once() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        let (answer, mut up) = stand.call("Bidi", &[]).await;
        let (request, mut respond) = stand.serve().await;
        let mut down = respond.send_response(ok(), false).unwrap();
        let mut far = request.into_body();
        let answer = soon(answer).await.unwrap();
        let mut near = answer.into_body();
        // Each message waits for the one before it, so nothing may be held back anywhere.
        for n in 0..50_u8 {
            let text = vec![n; usize::from(n) * 700];
            send(&mut up, &message(&text), false).await.unwrap();
            expect(&mut far, &text).await;
            send(&mut down, &message(&text), false).await.unwrap();
            expect(&mut near, &text).await;
        }
        up.send_data(Bytes::new(), true).unwrap();
        assert!(data(&mut far).await.unwrap().is_none());
        down.send_trailers(map(FINE)).unwrap();
        assert_eq!(trailers(&mut near).await["grpc-status"], "0");
        assert_eq!(stand.edge.only_record().await.status(), 200);
    }
}

/// As watches and subscriptions do: for longer than either side may be silent, the other one speaks alone.
#[tokio::test]
async fn a_stream_lasts_while_one_side_speaks() {
    let settings = "  client_timeouts: {body: 2000ms}";
    let mut stand =
        Stand::with(settings, WireProtocol::H2, ", backend_first_byte_timeout: 2s, backend_idle_timeout: 2s")
            .await;
    let (answer, mut up) = stand.call("Watch", &[]).await;
    let (request, mut respond) = stand.serve().await;
    let mut down = respond.send_response(ok(), false).unwrap();
    let mut near = soon(answer).await.unwrap().into_body();
    let mut far = request.into_body();
    let mut every = tokio::time::interval(std::time::Duration::from_millis(50));
    for is_client in [false, true] {
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(4500) {
            every.tick().await;
            let (sending, receiving) = if is_client { (&mut up, &mut far) } else { (&mut down, &mut near) };
            send(sending, &message(b"news"), false).await.unwrap();
            expect(receiving, b"news").await;
        }
    }
    up.send_data(Bytes::new(), true).unwrap();
    down.send_trailers(map(FINE)).unwrap();
    assert_eq!(trailers(&mut near).await["grpc-status"], "0");
    let record = stand.edge.only_record().await;
    assert_eq!((record.status(), record.reason()), (200, ""));
}

#[tokio::test]
async fn messages_stream_one_way() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        // The client streams, the server answers once.
        let (answer, mut up) = stand.call("Client", &[]).await;
        let (request, mut respond) = stand.serve().await;
        let mut far = request.into_body();
        for n in 0..20_u8 {
            send(&mut up, &message(&[n; 999]), n == 19).await.unwrap();
            expect(&mut far, &[n; 999]).await;
        }
        assert!(data(&mut far).await.unwrap().is_none());
        let mut down = respond.send_response(ok(), false).unwrap();
        send(&mut down, &message(b"one"), false).await.unwrap();
        down.send_trailers(map(FINE)).unwrap();
        let mut near = soon(answer).await.unwrap().into_body();
        expect(&mut near, b"one").await;
        assert_eq!(trailers(&mut near).await["grpc-status"], "0");
        stand.edge.only_record().await;
        // The server streams, and answers with an error in the end.
        let (answer, mut up) = stand.call("Server", &[]).await;
        send(&mut up, &message(b"go"), true).await.unwrap();
        let (_request, mut respond) = stand.serve().await;
        let mut down = respond.send_response(ok(), false).unwrap();
        let mut near = soon(answer).await.unwrap().into_body();
        for n in 0..20_u8 {
            send(&mut down, &message(&[n; 999]), false).await.unwrap();
            expect(&mut near, &[n; 999]).await;
        }
        down.send_trailers(map(&[("grpc-status", "8"), ("grpc-message", "enough")])).unwrap();
        let trailers = trailers(&mut near).await;
        assert_eq!(
            (&trailers["grpc-status"], &trailers["grpc-message"]),
            (&"8".parse().unwrap(), &"enough".parse().unwrap())
        );
        stand.edge.only_record().await;
    }
}

#[tokio::test]
async fn an_answer_of_trailers_only_stays_one() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        let (answer, mut up) = stand.call("Unary", &[]).await;
        send(&mut up, &message(b"x"), true).await.unwrap();
        let (_request, mut respond) = stand.serve().await;
        let mut head = ok();
        head.headers_mut().extend(map(&[("grpc-status", "5"), ("grpc-message", "no such thing")]));
        respond.send_response(head, true).unwrap();
        let answer = soon(answer).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "5");
        assert_eq!(answer.headers()["grpc-message"], "no such thing");
        assert!(answer.body().is_end_stream(), "the head is all of it");
        stand.edge.only_record().await;
    }
}

#[tokio::test]
async fn a_deadline_is_kept() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        let (answer, mut up) = stand.call("Unary", &[("grpc-timeout", "200m")]).await;
        send(&mut up, &message(b"x"), true).await.unwrap();
        let (request, mut respond) = stand.serve().await;
        let answer = soon(answer).await.unwrap();
        assert_eq!(status_in_head(&answer), "4");
        assert!(answer.body().is_end_stream());
        let record = stand.edge.only_record().await;
        assert_eq!(record.reason(), "total_timeout");
        // The server is told that nobody waits any more.
        let reset = soon(std::future::poll_fn(|cx| respond.poll_reset(cx))).await.unwrap();
        assert_eq!(reset, Reason::CANCEL);
        drop(request);
        // In the middle of a stream, what comes after the deadline must not look whole.
        let (answer, _up) = stand.call("Server", &[("grpc-timeout", "400m")]).await;
        let (_request, mut respond) = stand.serve().await;
        let mut down = respond.send_response(ok(), false).unwrap();
        send(&mut down, &message(b"first"), false).await.unwrap();
        let mut near = soon(answer).await.unwrap().into_body();
        expect(&mut near, b"first").await;
        assert_eq!(trailers(&mut near).await["grpc-status"], "4");
        assert_eq!(stand.edge.only_record().await.reason(), "total_timeout");
        assert_eq!(soon(std::future::poll_fn(|cx| down.poll_reset(cx))).await.unwrap(), Reason::CANCEL);
    }
}

/// Whoever is turned away at the gateway's limits is told so in gRPC as well.
#[tokio::test]
async fn a_gateway_at_its_limits_speaks_grpc() {
    let mut stand = Stand::with("  limits: {max_requests: 1}", WireProtocol::H2, "").await;
    let (_held, _up) = stand.call("Held", &[]).await;
    let _serving = stand.serve().await;
    let (answer, _) = stand.call("Refused", &[]).await;
    assert_eq!(status_in_head(&soon(answer).await.unwrap()), "14");
}

#[tokio::test]
async fn refusals_speak_grpc() {
    for kind in KINDS {
        let backend = WireProtocol::H2.backend(at(free_port()));
        let mut edge = Edge::start(&format!("proxies:\n  - {{id: g, listen_path: /echo.Echo, {backend}}}\n"));
        let mut requests = client(&edge, kind).await;
        for (path, status, reason) in
            [("/other.Service/Call", "12", "no_route"), ("/echo.Echo/Call", "14", "connect_failed")]
        {
            let (answer, mut up) = call(&mut requests, path, &[]).await;
            drop(send(&mut up, &message(b"x"), true).await);
            let answer = soon(answer).await.unwrap();
            assert_eq!(status_in_head(&answer), status, "{path}");
            assert!(answer.body().is_end_stream(), "trailers only");
            assert_eq!(edge.records.next().await.reason(), reason);
        }
        // The same to somebody who does not speak gRPC.
        let plain = Request::post("http://a.test/other.Service/Call").body(()).unwrap();
        let answer = soon(requests.send_request(plain, true).unwrap().0).await.unwrap();
        assert_eq!(answer.status(), 404);
        assert_eq!(edge.only_record().await.reason(), "no_route");
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_is_not_taken_for_a_whole_answer() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        // Before its head.
        let (answer, mut up) = stand.call("Unary", &[]).await;
        send(&mut up, &message(b"x"), true).await.unwrap();
        let (_request, mut respond) = stand.serve().await;
        respond.send_reset(Reason::INTERNAL_ERROR);
        let answer = soon(answer).await.unwrap();
        assert_eq!(status_in_head(&answer), "14");
        assert_eq!(stand.edge.only_record().await.reason(), "upstream_closed");
        // After it.
        let (answer, _up) = stand.call("Server", &[]).await;
        let (_request, mut respond) = stand.serve().await;
        let mut down = respond.send_response(ok(), false).unwrap();
        send(&mut down, &message(b"first"), false).await.unwrap();
        let mut near = soon(answer).await.unwrap().into_body();
        expect(&mut near, b"first").await;
        down.send_reset(Reason::INTERNAL_ERROR);
        data(&mut near).await.expect_err("the stream was cut");
        let record = stand.edge.only_record().await;
        assert_eq!(record.reason(), "upstream_closed");
    }
}

#[tokio::test]
async fn a_client_that_cancels_is_gone_for_the_server_too() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        let (answer, mut up) = stand.call("Bidi", &[]).await;
        send(&mut up, &message(b"x"), false).await.unwrap();
        let (_request, mut respond) = stand.serve().await;
        // Before the head, and after it.
        up.send_reset(Reason::CANCEL);
        drop(answer);
        soon(std::future::poll_fn(|cx| respond.poll_reset(cx))).await.unwrap();
        assert_eq!(stand.edge.only_record().await.reason(), "client_gone");
        let (answer, mut up) = stand.call("Bidi", &[]).await;
        let (_request, mut respond) = stand.serve().await;
        let mut down = respond.send_response(ok(), false).unwrap();
        let near = soon(answer).await.unwrap().into_body();
        up.send_reset(Reason::CANCEL);
        drop(near);
        soon(std::future::poll_fn(|cx| down.poll_reset(cx))).await.unwrap();
        assert_eq!(stand.edge.only_record().await.reason(), "client_gone");
    }
}

/// One stream is not read until its window and the connection's share of it are full; others go on, on the same
/// connection and on others.
#[tokio::test]
async fn a_slow_reader_stalls_nobody_else() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        let (answer, _up) = stand.call("Slow", &[]).await;
        let (_request, mut respond) = stand.serve().await;
        let mut down = respond.send_response(ok(), false).unwrap();
        let slow = soon(answer).await.unwrap().into_body();
        let long = message(&vec![b's'; 12 << 20]);
        let flood = long.clone();
        let flooding = tokio::spawn(async move {
            // Written until everything between here and the client is full, and then waited with.
            let mut rest = flood;
            while !rest.is_empty() {
                down.reserve_capacity(rest.len());
                let room = std::future::poll_fn(|cx| down.poll_capacity(cx)).await.unwrap().unwrap();
                let piece = rest.split_to(room.min(rest.len()));
                down.send_data(piece, false).unwrap();
            }
            down.send_trailers(map(FINE)).unwrap();
        });
        let mut other = client(&stand.edge, kind).await;
        for n in 0..30_u8 {
            let mut same = stand.requests.clone();
            let requests = if n % 2 == 0 { &mut same } else { &mut other };
            let (answer, mut up) = call(requests, "/echo.Echo/Quick", &[]).await;
            send(&mut up, &message(&[n; 5000]), true).await.unwrap();
            let (request, mut respond) = stand.serve().await;
            let mut far = request.into_body();
            expect(&mut far, &[n; 5000]).await;
            let mut down = respond.send_response(ok(), false).unwrap();
            send(&mut down, &message(&[n; 5000]), false).await.unwrap();
            down.send_trailers(map(FINE)).unwrap();
            let mut near = soon(answer).await.unwrap().into_body();
            expect(&mut near, &[n; 5000]).await;
            assert_eq!(trailers(&mut near).await["grpc-status"], "0");
        }
        assert!(!flooding.is_finished(), "the gateway took 12 MiB that nobody read");
        let mut slow = slow;
        expect(&mut slow, &long[5..]).await;
        assert_eq!(trailers(&mut slow).await["grpc-status"], "0");
        soon(flooding).await.unwrap();
    }
}

/// A deadline of the future's distant kind, and nonsense, do no harm.
#[tokio::test]
async fn odd_deadlines_do_no_harm() {
    let mut stand = Stand::new(WireProtocol::H2, "").await;
    for timeout in ["99999999H", "999999999S", "1", "S", "-1S", "1.5S", "", "1x"] {
        let (answer, mut up) = stand.call("Unary", &[("grpc-timeout", timeout)]).await;
        send(&mut up, &message(b"x"), true).await.unwrap();
        let (_request, mut respond) = stand.serve().await;
        respond.send_response(ok(), true).unwrap();
        assert_eq!(soon(answer).await.unwrap().status(), 200, "{timeout}");
        assert_eq!(stand.edge.records.next().await.reason(), "");
    }
    let (answer, _up) = stand.call("Unary", &[("grpc-timeout", "0n")]).await;
    assert_eq!(status_in_head(&soon(answer).await.unwrap()), "4");
}

/// Ends a call without a message: the status is in the head.
fn end_at_once(mut respond: SendResponse<Bytes>, status: &str) {
    let mut head = ok();
    head.headers_mut().extend(map(&[("grpc-status", status)]));
    drop(respond.send_response(head, true).unwrap());
}

/// Sends one message, and ends with this status.
async fn end_with(mut respond: SendResponse<Bytes>, status: &str) {
    let mut down = respond.send_response(ok(), false).unwrap();
    send(&mut down, &message(b"pong"), false).await.unwrap();
    down.send_trailers(map(&[("grpc-status", status)])).unwrap();
}

#[tokio::test]
async fn statuses_are_recorded_and_counted() {
    for kind in KINDS {
        let mut stand = Stand::new(kind, "").await;
        for (status, in_head) in [("0", false), ("5", true), ("14", false), ("99", true)] {
            let (answer, mut up) = stand.call("Unary", &[]).await;
            send(&mut up, &message(b"ping"), true).await.unwrap();
            let (request, respond) = stand.serve().await;
            match in_head {
                true => end_at_once(respond, status),
                false => end_with(respond, status).await,
            }
            drop(request);
            let mut recv = soon(answer).await.unwrap().into_body();
            while data(&mut recv).await.unwrap().is_some() {}
            drop(soon(recv.trailers()).await);
            let record = stand.edge.records.next().await;
            assert_eq!(record.0["rpc.grpc.status_code"].to_string(), status, "{kind:?} {record:?}");
        }
        // What the gateway answers itself.
        let (answer, _up) = call(&mut stand.requests, "/other.Service/Call", &[]).await;
        assert_eq!(status_in_head(&soon(answer).await.unwrap()), "12");
        assert_eq!(stand.edge.only_record().await.0["rpc.grpc.status_code"], 12);
        let page = stand.edge.metrics().await;
        for (status, count) in [("0", 1), ("5", 1), ("12", 1), ("14", 1), ("_other", 1)] {
            let sample =
                format!("ferrum_grpc_responses_total{{rpc_grpc_status_code=\"{status}\"}} {count}\n");
            assert!(page.contains(&sample), "{sample}{page}");
        }
    }
}

/// gRPC-Web has its status in the body; the record has it all the same.
#[tokio::test]
async fn statuses_of_web_calls_are_recorded() {
    let port = Port::listen(None).await;
    let backend = WireProtocol::H2.backend(port.address);
    let mut streams = origin(port);
    let mut edge = Edge::start(&format!(
        "proxies:
  - {{id: g, listen_path: /, {backend}}}
plugin_configs:
  - {{id: web, plugin_name: grpc_web, scope: proxy, proxy_id: g, config: {{}}}}
"
    ));
    let request = "POST /s/m HTTP/1.1\r\nhost: a.test\r\ncontent-type: application/grpc-web\r\ncontent-length: 0\r\n\r\n";
    let (asked, ()) = tokio::join!(edge.ask(request), async {
        let (_request, respond) = soon(streams.recv()).await.unwrap();
        end_with(respond, "5").await;
    });
    assert!(asked.1.ends_with("grpc-status: 5\r\n"), "{}", asked.1);
    let record = edge.only_record().await;
    assert_eq!(record.0["rpc.grpc.status_code"], 5, "{record:?}");
}

/// A call that the target ends without a message counts by the HTTP status that stands for its own.
#[tokio::test]
async fn calls_of_named_methods_are_tried_again() {
    let retry = ", retry: {max_retries: 1, retryable_status_codes: [503], grpc_methods: [echo.Echo/Get], budget_percent: 1000}";
    for kind in KINDS {
        let mut stand = Stand::new(kind, retry).await;
        let (answer, mut up) = stand.call("Get", &[]).await;
        // It is read whole, in however many pieces it comes.
        let ping = message(b"ping");
        send(&mut up, &ping.slice(..4), false).await.unwrap();
        send(&mut up, &ping.slice(4..), true).await.unwrap();
        let (request, respond) = stand.serve().await;
        expect(&mut request.into_body(), b"ping").await;
        end_at_once(respond, "14");
        let (request, respond) = stand.serve().await;
        expect(&mut request.into_body(), b"ping").await;
        end_with(respond, "0").await;
        expect(&mut soon(answer).await.unwrap().into_body(), b"pong").await;
        let record = stand.edge.only_record().await;
        assert_eq!((record.attempts(), &record.0["rpc.grpc.status_code"]), (2, &0.into()), "{record:?}");
        // Another status, and another method, are passed on.
        for (method, status) in [("Get", "5"), ("Put", "14")] {
            let (answer, mut up) = stand.call(method, &[]).await;
            send(&mut up, &message(b"ping"), true).await.unwrap();
            let (request, respond) = stand.serve().await;
            expect(&mut request.into_body(), b"ping").await;
            end_at_once(respond, status);
            assert_eq!(soon(answer).await.unwrap().headers()["grpc-status"], status);
            assert_eq!(stand.edge.only_record().await.attempts(), 1, "{method}");
        }
    }
}

#[tokio::test]
async fn a_target_that_ends_calls_at_once_opens_its_breaker() {
    let breaker = ", circuit_breaker: {failure_threshold: 2, timeout: 3600}";
    let mut stand = Stand::new(WireProtocol::H2, breaker).await;
    // Callers' mistakes don't count.
    for status in ["14", "5", "12", "14", "14"] {
        let (answer, mut up) = stand.call("Get", &[]).await;
        send(&mut up, &message(b"ping"), true).await.unwrap();
        let (_request, respond) = stand.serve().await;
        end_at_once(respond, status);
        assert_eq!(soon(answer).await.unwrap().headers()["grpc-status"], status);
        drop(stand.edge.only_record().await);
    }
    let (answer, _up) = stand.call("Get", &[]).await;
    assert_eq!(status_in_head(&soon(answer).await.unwrap()), "14");
    assert_eq!(stand.edge.only_record().await.reason(), "circuit_open");
}

/// Whoever answers HTTP/2 as a server that has never heard of it, and everything else with 204.
async fn http1_only(port: Port) {
    loop {
        let mut wire = Wire::new_patient(port.accept_ever().await);
        tokio::spawn(async move {
            while let Ok(head) = wire.until(b"\r\n\r\n").await {
                let is_preface = head.starts_with(b"PRI");
                let answer: &[u8] = match is_preface {
                    true => b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                    false => b"HTTP/1.1 204 No Content\r\n\r\n",
                };
                if wire.try_send(answer).await.is_err() || is_preface {
                    break;
                }
            }
        });
    }
}

/// Clients choose the content type; they must not choose which targets are healthy by it.
#[tokio::test]
async fn a_target_without_http2_is_not_to_blame_for_calls() {
    let port = Port::listen(None).await;
    let address = port.address;
    let target = tokio::spawn(http1_only(port));
    let mut edge = Edge::start(&format!(
        "proxies:
  - {{id: g, listen_path: /, upstream_id: u, circuit_breaker: {{failure_threshold: 1, timeout: 3600}}}}
upstreams:
  - {{id: u, health_checks: {{passive: {{unhealthy_threshold: 1}}}}, targets: [{{host: 127.0.0.1, port: {}}}]}}
",
        address.port()
    ));
    for _ in 0..3 {
        let call = "POST /s/m HTTP/1.1\r\nhost: a.test\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n\r\n";
        let (head, _) = edge.ask(call).await;
        assert_eq!(head.field("grpc-status"), "12");
        assert_eq!(edge.records.next().await.reason(), "version_unsupported");
        assert_eq!(edge.get("/").await.0.status(), 204);
        assert_eq!(edge.records.next().await.status(), 204);
    }
    target.abort();
}

/// One that has spoken it before is.
#[tokio::test]
async fn a_target_that_loses_its_http2_is_to_blame() {
    let port = Port::listen(None).await;
    let address = port.address;
    let mut edge = Edge::start(&format!(
        "proxies:
  - {{id: g, listen_path: /, backend_host: 127.0.0.1, backend_port: {},
      circuit_breaker: {{failure_threshold: 1, timeout: 3600}}}}
",
        address.port()
    ));
    let mut requests = client(&edge, WireProtocol::H2).await;
    let io = {
        let (answer, mut up) = call(&mut requests, "/s/m", &[]).await;
        send(&mut up, &message(b"x"), true).await.unwrap();
        let mut connection = soon(h2::server::handshake(port.accept().await)).await.unwrap();
        let (_request, respond) = soon(connection.accept()).await.unwrap().unwrap();
        end_at_once(respond, "0");
        let driven = tokio::spawn(async move { while connection.accept().await.is_some() {} });
        assert_eq!(soon(answer).await.unwrap().headers()["grpc-status"], "0");
        assert_eq!(edge.records.next().await.status(), 200);
        driven
    };
    io.abort();
    drop(io.await);
    drop(port);
    let target = tokio::spawn(http1_only(Port::listen_on(address, None).await));
    let (answer, _up) = call(&mut requests, "/s/m", &[]).await;
    assert_eq!(status_in_head(&soon(answer).await.unwrap()), "14");
    // It closes with frames unread, and its reset may overtake what it said.
    let reason = edge.records.next().await.reason().to_owned();
    assert!(["upstream_garbage", "upstream_closed"].contains(&&*reason), "{reason}");
    let (answer, _up) = call(&mut requests, "/s/m", &[]).await;
    assert_eq!(status_in_head(&soon(answer).await.unwrap()), "14");
    assert_eq!(edge.records.next().await.reason(), "circuit_open");
    target.abort();
}

/// Servers take media types without regard to case, and some take any: rules about calls must not be passed by with one.
#[tokio::test]
async fn rules_about_calls_hold_in_every_disguise() {
    let spec = "proxies:
  - {id: g, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}
plugin_configs:
  - {id: t, plugin_name: request_termination, scope: proxy, proxy_id: g, config: {status_code: 403}, when: {grpc: {service: x.Admin}}}
  - {id: any, plugin_name: ip_restriction, scope: proxy, proxy_id: g, config: {deny: [127.0.0.0/8]}, when: {grpc: {}}}
  - {id: web, plugin_name: grpc_web, scope: proxy, proxy_id: g, config: {}}
";
    let mut edge = Edge::start(spec);
    for (path, content_type, reason) in [
        ("/x.Admin/Del", "application/grpc", "plugin"),
        ("/x.Admin/Del", "Application/GRPC", "plugin"),
        ("/x.Admin/Del", "application/grpc\t;a=b", "plugin"),
        ("/x.Admin/Del", "application/grpc-web", "plugin"),
        ("/x.Admin/Del", "application/x", "plugin"),
        ("/x.Other/Del", "application/grpc", "address_denied"),
        ("/x.Other/Del", "Application/gRPC+proto", "address_denied"),
        ("/x.Other/Del", "application/grpc-web-text", "address_denied"),
        ("/x.Other/Del", "application/x", "connect_failed"),
    ] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: a.test\r\ncontent-type: {content_type}\r\ncontent-length: 0\r\n\r\n"
        );
        drop(edge.ask(&request).await);
        assert_eq!(edge.records.next().await.reason(), reason, "{path} {content_type}");
    }
}
