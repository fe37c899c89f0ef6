//! Targets that offer HTTP/3 in their answers (RFC 7838): taken at their word, and only at their own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use tokio::net::UdpSocket;

use super::raw::{PLAIN, Raw, RawOrigin, headers};
use crate::support::edge::Edge;
use crate::support::h1::{Head, Talker};
use crate::support::h3::origin;
use crate::support::soon;
use crate::support::tls;
use crate::support::wire::{Port, Wire};

/// A target over TCP whose answers say `tcp`, and whatever else it is told to say.
struct Target {
    address: SocketAddr,
    says: Arc<Mutex<String>>,
}

impl Target {
    async fn start(alpn: Option<&[&str]>) -> Self {
        let port = Port::listen(alpn).await;
        let (address, says) = (port.address, Arc::<Mutex<String>>::default());
        let said = says.clone();
        tokio::spawn(async move {
            loop {
                let talker = Talker::new(Wire::new_patient(port.accept_ever().await));
                tokio::spawn(answer(talker, said.clone()));
            }
        });
        Self { address, says }
    }

    async fn encrypted() -> Self {
        Self::start(Some(&["http/1.1"])).await
    }

    fn say(&self, alt_svc: &str) {
        alt_svc.clone_into(&mut self.says.lock().unwrap());
    }

    fn edge(&self, more: &str) -> Edge {
        Edge::start(&format!(
            "proxies:\n  - {{id: a, listen_path: /, backend_scheme: https, backend_host: 127.0.0.1, backend_port: {}, \
             backend_connect_timeout: 60000ms, backend_tls_ca_path: {:?}{more}}}\n",
            self.address.port(),
            tls::authority().ca()
        ))
    }
}

async fn answer(mut talker: Talker, said: Arc<Mutex<String>>) {
    while talker.request().await.is_ok() && talker.body().await.is_ok() {
        let mut alt_svc = said.lock().unwrap().clone();
        if !alt_svc.is_empty() {
            alt_svc = format!("alt-svc: {alt_svc}\r\n");
        }
        let answer = format!("HTTP/1.1 200 OK\r\n{alt_svc}content-length: 3\r\n\r\ntcp");
        if talker.wire.try_send(&answer).await.is_err() {
            return;
        }
    }
}

fn offer(port: u16) -> String {
    format!("h3=\":{port}\"; ma=600")
}

/// Answers every stream of a connection with these fields and `quic`; the requests' heads as they come.
fn serve(target: &Raw, fields: &[(&str, &str)]) -> tokio::sync::mpsc::UnboundedReceiver<Vec<u8>> {
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    let quic = target.quic.clone();
    let answer = [&headers(fields)[..], &[0, 4], b"quic"].concat();
    tokio::spawn(async move {
        while let Ok((mut send, mut recv)) = quic.accept_bi().await {
            let Ok(request) = recv.read_to_end(1 << 16).await else { continue };
            drop(sender.send(request));
            drop(send.write_all(&answer).await);
            drop(send.finish());
        }
    });
    requests
}

/// Asks until the answer comes over this, and then that answer.
async fn until(edge: &mut Edge, over: &str) -> Head {
    soon(async {
        loop {
            let (head, body) = edge.get("/").await;
            let record = edge.records.next().await;
            assert_eq!((record.status(), record.reason(), record.attempts()), (200, "", 1));
            if body == over {
                return head;
            }
        }
    })
    .await
}

#[tokio::test]
async fn what_is_offered_is_used_and_not_passed_on() {
    let target = Target::encrypted().await;
    let (address, mut streams) = origin(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let offered = offer(address.port());
    target.say(&offered);
    let mut edge = target.edge("");
    // The first answer tells; nobody waits for QUIC.
    let (head, body) = edge.get("/").await;
    assert_eq!((body.as_str(), head.headers.contains_key("alt-svc")), ("tcp", false));
    edge.only_record().await;
    let used = address.to_string();
    tokio::spawn(async move {
        while let Some((request, mut stream)) = streams.recv().await {
            // RFC 7838 §5: it is told which one was chosen; what a client says of its own choice is none of this.
            assert_eq!(request.headers()["alt-used"], used);
            assert_eq!(request.headers().get_all("alt-used").iter().count(), 1);
            let head = Response::builder().header("alt-svc", &offered).body(()).unwrap();
            soon(stream.send_response(head)).await.unwrap();
            soon(stream.send_data(Bytes::from_static(b"quic"))).await.unwrap();
            soon(stream.finish()).await.unwrap();
        }
    });
    let head = until(&mut edge, "quic").await;
    assert!(!head.headers.contains_key("alt-svc"), "what a target says of itself is no business of clients");
    for request in [
        "GET / HTTP/1.1\r\nhost: a.test\r\nalt-used: a.test:8443\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 2\r\n\r\nhi",
    ] {
        let (_, body) = edge.ask(request).await;
        assert_eq!(body, "quic", "{request}");
        edge.only_record().await;
    }
}

/// Of two proxies with one target, one takes the offer.
#[tokio::test]
async fn a_proxy_that_takes_no_offers_goes_on_over_tcp() {
    let (target, origin) = (Target::encrypted().await, RawOrigin::start());
    target.say(&offer(origin.address.port()));
    let backend = format!(
        "backend_scheme: https, backend_host: 127.0.0.1, backend_port: {}, backend_tls_ca_path: {:?}",
        target.address.port(),
        tls::authority().ca()
    );
    let mut edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, {backend}}}\n  \
         - {{id: b, listen_path: /tcp, backend_alt_svc: false, {backend}}}\n"
    ));
    edge.get("/").await;
    edge.records.next().await;
    let quic = origin.accept(PLAIN).await;
    let _requests = serve(&quic, &[(":status", "200")]);
    until(&mut edge, "quic").await;
    for (path, over) in [("/tcp", "tcp"), ("/", "quic"), ("/tcp", "tcp"), ("/", "quic")] {
        assert_eq!(edge.get(path).await.1, over);
        edge.records.next().await;
    }
}

#[tokio::test]
async fn it_is_over_when_the_target_says_so() {
    let (target, origin) = (Target::encrypted().await, RawOrigin::start());
    target.say(&offer(origin.address.port()));
    let mut edge = target.edge("");
    edge.get("/").await;
    edge.records.next().await;
    let quic = origin.accept(PLAIN).await;
    let _requests = serve(&quic, &[(":status", "200"), ("alt-svc", "clear")]);
    target.say("");
    until(&mut edge, "quic").await;
    for _ in 0..3 {
        assert_eq!(edge.get("/").await.1, "tcp");
        edge.records.next().await;
    }
    // No stream was under way, so nothing keeps the connection.
    assert_eq!(quic.closed().await, 0x100);
}

#[tokio::test]
async fn tcp_goes_on_when_quic_does_not() {
    let (target, origin) = (Target::encrypted().await, RawOrigin::start());
    target.say(&offer(origin.address.port()));
    let mut edge = target.edge("");
    edge.get("/").await;
    edge.records.next().await;
    for round in 0..3 {
        let quic = origin.accept(PLAIN).await;
        let _requests = serve(&quic, &[(":status", "200")]);
        until(&mut edge, "quic").await;
        // Gone without a word of HTTP: whoever asks now is answered at once, and the next connection is made beside it.
        quic.quic.close(0x100_u32.into(), b"");
        drop(quic);
        let (head, body) = edge.get("/").await;
        assert_eq!((head.status(), body.as_str()), (200, "tcp"), "round {round}");
        assert_eq!(edge.records.next().await.reason(), "");
    }
}

/// RFC 7838 §6: an alternative that is none says 421, and the target itself is asked.
#[tokio::test]
async fn a_misdirected_request_goes_to_the_target_itself() {
    let (target, origin) = (Target::encrypted().await, RawOrigin::start());
    target.say(&offer(origin.address.port()));
    let mut edge = target.edge("");
    edge.get("/").await;
    edge.records.next().await;
    let quic = origin.accept(PLAIN).await;
    let mut requests = serve(&quic, &[(":status", "421")]);
    let mut asked = false;
    while !asked {
        let (head, body) = edge.get("/").await;
        assert_eq!((head.status(), body.as_str()), (200, "tcp"));
        assert_eq!(edge.records.next().await.attempts(), 1);
        asked = requests.try_recv().is_ok();
    }
    // And it is left alone, though the target goes on offering it.
    for _ in 0..5 {
        assert_eq!(edge.get("/").await.1, "tcp");
        edge.records.next().await;
    }
    assert!(requests.try_recv().is_err());
}

/// An alternative shows the certificate of somebody else.
#[tokio::test]
async fn who_can_not_prove_to_be_the_target_gets_nothing() {
    let target = Target::encrypted().await;
    let other = tls::authority().issue("alternative", &["other.test"]);
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls::server(&other, &["h3"])).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = quinn::Endpoint::server(quinn::ServerConfig::with_crypto(Arc::new(crypto)), any).unwrap();
    target.say(&offer(endpoint.local_addr().unwrap().port()));
    let mut edge = target.edge("");
    assert_eq!(edge.get("/").await.1, "tcp");
    edge.only_record().await;
    let incoming = soon(endpoint.accept()).await.unwrap();
    soon(incoming.accept().unwrap()).await.expect_err("a connection to somebody else");
    for _ in 0..3 {
        assert_eq!(edge.get("/").await.1, "tcp");
        edge.only_record().await;
    }
}

/// Whether a target that says `alt_svc` of the port is sought there.
async fn is_sought(target: &Target, edge: &Edge, alt_svc: impl Fn(u16) -> String) -> bool {
    let alternative = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    target.say(&alt_svc(alternative.local_addr().unwrap().port()));
    for _ in 0..4 {
        assert_eq!(edge.get("/").await.1, "tcp");
    }
    alternative.try_recv_from(&mut [0; 2048]).is_ok()
}

#[tokio::test]
async fn only_what_is_offered_of_the_target_itself_is_sought() {
    let target = Target::encrypted().await;
    let same_host = |port| format!("h2=\":1\", h3=\"127.0.0.1:{port}\"");
    assert!(is_sought(&target, &target.edge(""), same_host).await);
    let named = ", backend_tls_server_name: localhost";
    assert!(is_sought(&target, &target.edge(named), |port| format!("h3=\"localhost:{port}\"")).await);
    for (settings, said) in [
        ("", "h3=\"localhost:PORT\""),
        ("", "h3=\"127.0.0.2:PORT\""),
        ("", "h3=\":PORT\"; ma=0"),
        ("", "h3-29=\":PORT\""),
        (", backend_alt_svc: false", "h3=\":PORT\""),
        (", backend_http_version: '1.1'", "h3=\":PORT\""),
        (", backend_tls_verify_server_cert: false", "h3=\":PORT\""),
    ] {
        let edge = target.edge(settings);
        let said = |port: u16| said.replace("PORT", &port.to_string());
        assert!(!is_sought(&target, &edge, said).await, "{settings}");
    }
    let plain = Target::start(None).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: {}}}\n",
        plain.address.port()
    ));
    assert!(!is_sought(&plain, &edge, offer).await);
}
