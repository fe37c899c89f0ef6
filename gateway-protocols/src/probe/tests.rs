//! Probes against scripted peers.

use gateway_core::balance::Targets;
use gateway_core::config::model::{TargetRules, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn rules(probe: Probe) -> ActiveHealth {
    ActiveHealth {
        probe,
        interval: Duration::from_secs(10),
        timeout: Duration::from_secs(5),
        healthy_threshold: 1,
        unhealthy_threshold: 1,
    }
}

fn http(path: &str) -> Probe {
    Probe::Http { path: path.into(), healthy_status_codes: vec![200, 302], tls: false }
}

/// A target at an address, as an upstream has it.
fn target(address: SocketAddr) -> Arc<Target> {
    let rules = TargetRules::new(address.ip().to_string().into(), address.port());
    let upstream = Upstream::new(id("group"), vec![Arc::new(rules)]);
    Targets::build(&upstream, None, Instant::now()).list()[0].clone()
}

/// An id can only be made by resolving a configuration.
fn id(name: &str) -> gateway_core::config::model::Id {
    use gateway_core::config::{file, resolve};
    let text = format!("upstreams: [{{ id: {name}, targets: [{{ host: localhost, port: 1 }}] }}]");
    let read = file::parse(&text, &file::Origin::default(), &file::NoReferences);
    resolve::document(&read, std::path::Path::new(""), &|_: &str, _: &_| Ok(())).unwrap().upstreams[0]
        .id
        .clone()
}

async fn probe(address: SocketAddr, probe: Probe) -> Result<(), ProbeError> {
    Prober::new(Arc::default(), Arc::default()).probe(&target(address), &rules(probe), None).await
}

/// A peer that reads a request's head and says `answer`; hands the head back.
async fn peer(answer: &'static [u8]) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert_ne!(tcp.read_buf(&mut head).await.unwrap(), 0);
        }
        tcp.write_all(answer).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    (address, serving)
}

#[tokio::test]
async fn http_goes_by_the_status() {
    let (address, serving) = peer(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    probe(address, http("/health?deep=1")).await.unwrap();
    let head = serving.await.unwrap();
    assert!(head.starts_with("GET /health?deep=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nhost: {address}\r\n")), "{head}");
    let (address, _) =
        peer(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 302 Found\r\n\r\n").await;
    probe(address, http("/")).await.unwrap();
    let (address, _) = peer(b"HTTP/1.1 503 No\r\n\r\n").await;
    assert!(matches!(probe(address, http("/")).await, Err(ProbeError::Status(503))));
}

#[tokio::test]
async fn http_that_is_none_is_bad() {
    for answer in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"", b"HTTP/1.1 200"] {
        let (address, _) = peer(answer).await;
        assert!(matches!(probe(address, http("/")).await, Err(ProbeError::Malformed)), "{answer:?}");
    }
    let endless: &'static [u8] = vec![b'x'; 1 << 20].leak();
    let (address, _) = peer(endless).await;
    assert!(probe(address, http("/")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_target_that_says_nothing_runs_out_of_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    assert!(matches!(probe(address, http("/")).await, Err(ProbeError::Timeout(_))));
}

#[tokio::test]
async fn tcp_asks_for_a_connection_only() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    probe(address, tcp(b"", None)).await.unwrap();
    drop(listener);
    assert!(matches!(probe(address, tcp(b"", None)).await, Err(ProbeError::Io(_))));
}

fn tcp(send: &[u8], expect: Option<Text>) -> Probe {
    Probe::Tcp { tls: false, send: send.into(), expect }
}

/// What an answer has to be, as users write it.
fn expected(written: &str) -> Text {
    use gateway_core::config::{file, resolve};
    let text = format!(
        "upstreams: [{{ id: a, targets: [{{ host: localhost, port: 1 }}], health_checks: {{ active: {{ probe_type: tcp, expect: {written} }} }} }}]"
    );
    let read = file::parse(&text, &file::Origin::default(), &file::NoReferences);
    let model = resolve::document(&read, std::path::Path::new(""), &|_: &str, _: &_| Ok(())).unwrap();
    let active = model.upstreams[0].active_health.clone();
    match active.unwrap().probe {
        Probe::Tcp { expect: Some(expect), .. } => expect,
        other => panic!("{other:?}"),
    }
}

/// A peer that says its lines, each once it has read as many bytes as stand before it.
async fn dialogue(lines: &[(usize, &'static [u8])]) -> SocketAddr {
    let lines = lines.to_vec();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        for (wanted, line) in lines {
            tcp.read_exact(&mut vec![0; wanted]).await.unwrap();
            tcp.write_all(line).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn tcp_sends_and_reads_until_the_answer_is_the_expected_one() {
    for (expect, lines, wrong) in [
        ("{prefix: '+PONG'}", &[(4, &b"+PO"[..]), (0, b"NG\r\n")][..], None),
        ("{prefix: '+PONG'}", &[(4, b"-ERR no\r\n")], Some("it answered `-ERR no`")),
        ("{contains: ready}", &[(4, b"not yet, "), (0, b"but ready now")], None),
        ("{regex: '220[ -].*'}", &[(4, b"220 mail\r\n")], None),
        ("{regex: '220[ -].*'}", &[(4, b"554 go away\r\n")], Some("it answered `554 go away`")),
        ("{present: true}", &[(4, b"x")], None),
        ("{present: true}", &[(4, b"")], Some("it closed the connection without an answer")),
    ] {
        let address = dialogue(lines).await;
        let said = probe(address, tcp(b"ask\n", Some(expected(expect)))).await.err().map(|it| it.to_string());
        assert_eq!(said.as_deref(), wrong, "{expect}");
    }
    // A peer that keeps the connection open is not waited for in vain: its answer is reported.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(b"-NOAUTH\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let ask = tcp(b"PING\r\n", Some(expected("{prefix: '+PONG'}")));
    let rules = ActiveHealth { timeout: Duration::from_millis(200), ..rules(ask) };
    let prober = Prober::new(Arc::default(), Arc::default());
    let said = prober.probe(&target(address), &rules, None).await.unwrap_err().to_string();
    assert_eq!(said, "it answered `-NOAUTH`");
    // An endless answer is read to a limit.
    static ENDLESS: [u8; 10_000] = [b'x'; 10_000];
    let address = dialogue(&[(0, &ENDLESS)]).await;
    let said = probe(address, tcp(b"", Some(expected("{suffix: y}")))).await.unwrap_err().to_string();
    assert_eq!(said, format!("it answered `{}...`", "x".repeat(80)));
}

#[tokio::test]
async fn databases_are_asked_in_their_own_words() {
    let redis = || Probe::Redis { tls: false };
    const PING: usize = 14;
    for (ask, lines, wrong) in [
        (redis(), &[(PING, &b"+PONG\r\n"[..])][..], None),
        (redis(), &[(PING, b"-NOAUTH Authentication required.\r\n")], None),
        (redis(), &[(PING, b"-LOADING it\r\n")], Some("it answered `-LOADING it`")),
        (redis(), &[(PING, b"")], Some("it closed the connection without an answer")),
        (Probe::Postgres, &[(26, b"R\0\0\0\x08\0\0\0\x03")], None),
        (Probe::Postgres, &[(26, b"E\0\0\0\x13SFATAL\0C28000\0\0")], None),
        (
            Probe::Postgres,
            &[(26, b"E\0\0\0\x23SFATAL\0C57P03\0Mit is starting\0\0")],
            Some("it answered `it is starting`"),
        ),
        (Probe::Postgres, &[(26, b"HTTP/1.1 400\r\n")], Some("it answered `H`")),
        (Probe::Mysql, &[(0, b"\x05\0\0\0\x0a8.0\0")], None),
        (Probe::Mysql, &[(0, b"\x08\0\0\0\xff\x10\x04Host!")], Some("it answered `Host!`")),
        (Probe::Mysql, &[(0, b"")], Some("it closed the connection without an answer")),
    ] {
        let address = dialogue(lines).await;
        let said = probe(address, ask.clone()).await.err().map(|it| it.to_string());
        assert_eq!(said.as_deref(), wrong, "{ask:?} {lines:?}");
    }
}

#[tokio::test]
async fn udp_may_want_one_answer() {
    for (expect, wrong) in [("{prefix: po}", None), ("{prefix: pi}", Some("it answered `pong`"))] {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let (_, from) = socket.recv_from(&mut [0; 16]).await.unwrap();
            socket.send_to(b"pong", from).await.unwrap();
        });
        let ask = Probe::Udp { payload: b"ping".to_vec(), expect: Some(expected(expect)) };
        let said = probe(address, ask).await.err().map(|it| it.to_string());
        assert_eq!(said.as_deref(), wrong, "{expect}");
    }
}

#[tokio::test]
async fn udp_wants_any_answer() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let mut buffer = [0; 16];
        let (n, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(b"pong", from).await.unwrap();
        buffer[..n].to_vec()
    });
    probe(address, Probe::Udp { payload: b"ping".to_vec(), expect: None }).await.unwrap();
    assert_eq!(serving.await.unwrap(), b"ping");
    // Its socket is closed by now, which the system tells.
    assert!(probe(address, Probe::Udp { payload: b"ping".to_vec(), expect: None }).await.is_err());
}

/// A gRPC server that answers one check.
async fn grpc_peer(
    message: &'static [u8],
    status: &'static str,
) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut connection = ::h2::server::handshake(tcp).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let path = request.uri().path().to_owned();
        let response = ::http::Response::builder().header("content-type", "application/grpc");
        let mut body = respond.send_response(response.body(()).unwrap(), false).unwrap();
        body.send_data(message.into(), false).unwrap();
        let trailers =
            ::http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
        body.send_trailers(trailers).unwrap();
        while connection.accept().await.is_some() {}
        path
    });
    (address, serving)
}

#[tokio::test]
async fn grpc_asks_the_health_service() {
    let grpc = || Probe::Grpc { service: "users".into(), tls: false };
    let (address, serving) = grpc_peer(&[0, 0, 0, 0, 2, 8, 1], "0").await;
    probe(address, grpc()).await.unwrap();
    assert_eq!(serving.await.unwrap(), "/grpc.health.v1.Health/Check");
    let (address, _) = grpc_peer(&[0, 0, 0, 0, 2, 8, 2], "0").await;
    assert!(matches!(probe(address, grpc()).await, Err(ProbeError::NotServing(2))));
    let (address, _) = grpc_peer(&[], "5").await;
    assert!(matches!(probe(address, grpc()).await, Err(ProbeError::Grpc(code)) if code == "5"));
}
