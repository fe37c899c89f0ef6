//! TLS handshakes of HTTP clients that fail, and connections that TLS ends.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConnection, RootCertStore, ServerConfig};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::edge::Edge;
use crate::support::wire::Wire;
use crate::support::{h3, soon, tls};

#[tokio::test]
async fn a_failed_handshake_is_recorded_with_its_reason() {
    let ca = tls::authority().ca();
    let identity = tls::localhost();
    let settings = format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], client_ca_path: {ca:?}}}",
        identity.cert, identity.key
    );
    let mut edge = Edge::start_with(&settings, "proxies:\n");
    // What is not TLS.
    let mut tcp = soon(TcpStream::connect(edge.https())).await.unwrap();
    tcp.write_all(b"\0\x01 neither TLS nor HTTP\r\n\r\n").await.unwrap();
    soon(tcp.read_to_end(&mut Vec::new())).await.ok();
    let record = edge.only_record().await;
    assert_eq!((record.kind(), record.end()), ("http", "handshake_failed"));
    // A client without the certificate that is asked for.
    let connector = TlsConnector::from(tls::authority().client(&["http/1.1"]));
    let tcp = soon(TcpStream::connect(edge.https())).await.unwrap();
    if let Ok(mut stream) = soon(connector.connect("gateway.test".try_into().unwrap(), tcp)).await {
        soon(stream.read_to_end(&mut Vec::new())).await.ok();
    }
    assert_eq!(edge.only_record().await.end(), "tls_certificate_error");
    // Who connects and leaves is no failure.
    drop(soon(TcpStream::connect(edge.https())).await.unwrap());
    edge.nothing_recorded().await;
    let admin = edge.gateway.serve_admin(([127, 0, 0, 1], 0).into()).unwrap();
    let mut wire = Wire::open(admin).await;
    wire.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    let metrics = String::from_utf8(wire.rest().await.to_vec()).unwrap();
    for reason in ["handshake_failed", "tls_certificate_error"] {
        let sample = format!("ferrum_session_ends_total{{protocol=\"http\",reason=\"{reason}\"}} 1");
        assert!(metrics.contains(&sample), "{sample} in\n{metrics}");
    }
}

#[tokio::test]
async fn plain_http_on_a_port_for_tls_gets_400_with_the_cause() {
    for early_data in [false, true] {
        let identity = tls::localhost();
        let settings = format!(
            "  tls: {{early_data: {early_data}, certificates: [{{cert_path: {:?}, key_path: {:?}}}]}}",
            identity.cert, identity.key
        );
        let mut edge = Edge::start_with(&settings, "proxies:\n");
        let mut tcp = soon(TcpStream::connect(edge.https())).await.unwrap();
        tcp.write_all(b"GET /shop?a=1 HTTP/1.1\r\nhost: shop.test\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        soon(tcp.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(answer.contains("plain HTTP request was sent to HTTPS port"), "{answer}");
        assert!(answer.to_lowercase().contains("connection: close\r\n"), "{answer}");
        let record = edge.only_record().await;
        assert_eq!((record.status(), record.reason()), (400, "bad_request"));
        assert_eq!(record.0["error.message"], "plain HTTP request was sent to HTTPS port");
        assert_eq!(record.0["url.path"], "/shop");
    }
}

#[tokio::test]
async fn a_failed_handshake_over_quic_is_recorded_with_its_reason() {
    let (ca, identity) = (tls::authority().ca(), tls::localhost());
    let settings = format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], client_ca_path: {ca:?}}}\n",
        identity.cert, identity.key
    );
    let mut edge = h3::edge_with(&settings, "proxies:\n");
    for (alpn, reason) in [("h3", "tls_certificate_error"), ("other", "handshake_failed")] {
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let crypto =
            quinn::crypto::rustls::QuicClientConfig::try_from(tls::authority().client(&[alpn])).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let connecting = endpoint.connect_with(config, edge.https(), "gateway.test").unwrap();
        if let Ok(quic) = soon(connecting).await {
            soon(quic.closed()).await;
        }
        let record = edge.records.next().await;
        assert_eq!((record.kind(), record.end()), ("http", reason));
        assert_eq!(record.0["network.local.port"], edge.https().port());
    }
}

#[tokio::test]
async fn a_client_that_refuses_the_certificate_is_recorded() {
    let mut edge = Edge::start("proxies:\n");
    let trusting_nobody =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
    let tcp = soon(TcpStream::connect(edge.https())).await.unwrap();
    let connector = TlsConnector::from(Arc::new(trusting_nobody));
    soon(connector.connect("gateway.test".try_into().unwrap(), tcp)).await.unwrap_err();
    assert_eq!(edge.only_record().await.end(), "tls_alert_received");
}

#[tokio::test]
async fn a_record_that_cannot_be_deciphered_ends_the_connection_at_once() {
    // No timeout of the gateway's ends it.
    let edge = Edge::start_with("  client_timeouts: {header: 0ms, keep_alive: 0ms}", "proxies:\n");
    let address = edge.https();
    let closing = tokio::task::spawn_blocking(move || {
        let mut session =
            ClientConnection::new(tls::authority().client(&["http/1.1"]), "gateway.test".try_into().unwrap())
                .unwrap();
        let mut tcp = std::net::TcpStream::connect(address).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut tcp).unwrap();
        }
        tcp.write_all(&[23, 3, 3, 0, 32]).unwrap();
        tcp.write_all(&[7; 32]).unwrap();
        // An alert, and the end.
        tcp.read_to_end(&mut Vec::new()).ok();
    });
    soon(closing).await.unwrap();
}

#[tokio::test]
async fn what_could_be_read_of_a_bad_request_is_recorded_and_the_answer_says_what_is_wrong() {
    let mut edge = Edge::start("proxies:\n");
    for (request, method, path, detail) in [
        ("GET /a?key=k HTTP/1.1\r\nhost: a\r\nbad field: x\r\n\r\n", "GET", "/a", "field name"),
        ("POST /b\"c HTTP/1.1\r\nhost: a\r\n\r\n", "POST", "/b%22c", "request target"),
        (
            "GET /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked, chunked\r\n\r\n",
            "GET",
            "/c",
            "transfer-encoding",
        ),
        ("nonsense\r\n\r\n", "nonsense", "/", "request line"),
    ] {
        let (head, body) = edge.ask(request).await;
        assert_eq!(head.status(), 400, "{request}");
        assert!(body.contains(detail), "{detail} in {body}");
        let record = edge.only_record().await;
        assert_eq!(
            (record.0["http.request.method"].as_str(), record.path()),
            (Some(method), path),
            "{request}"
        );
        let message = record.0["error.message"].as_str().unwrap_or_default();
        assert!(message.contains(detail), "{detail} in {record:?}");
        assert_eq!(record.0["server.address"] == "a", request.contains("host: a"), "{record:?}");
    }
}

/// The record of a request to an https target on this port.
async fn refused_by(port: u16) -> Value {
    let ca = tls::authority().ca();
    let mut edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, hosts: [a.test], backend_scheme: https, backend_host: 127.0.0.1, backend_port: {port}, \
         backend_tls_ca_path: {ca:?}, backend_connect_timeout: 3s}}\n"
    ));
    let (head, _) = edge.get("/").await;
    assert_eq!(head.status(), 502);
    edge.only_record().await.0
}

#[tokio::test]
async fn a_target_that_does_not_end_the_handshake_is_no_failed_connection() {
    // The system takes the connection, and nobody reads it.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let record = refused_by(port).await;
    assert_eq!(record["error.type"], "tls_failed", "{record}");
    let message = record["error.message"].as_str().unwrap();
    assert!(message.contains(&format!("TCP to 127.0.0.1:{port} is connected")), "{message}");
}

#[tokio::test]
async fn a_target_that_wants_a_client_certificate_is_told_with_the_setting() {
    let mut roots = RootCertStore::empty();
    roots.add(tls::authority().issuer().der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let identity = tls::localhost();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(tls::server(identity, &[]).cert_resolver.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let accepting = TlsAcceptor::from(Arc::new(config.clone())).accept(tcp).into_fallible();
            tokio::spawn(async move {
                // Stays until the client leaves: a reset could overtake the alert.
                if let Err((_, mut tcp)) = accepting.await {
                    tcp.read_to_end(&mut Vec::new()).await.ok();
                }
            });
        }
    });
    let record = refused_by(port).await;
    assert_eq!(record["error.type"], "tls_failed", "{record}");
    let message = record["error.message"].as_str().unwrap();
    assert!(
        message.contains("CertificateRequired") && message.contains("backend_tls_client_cert_path"),
        "{message}"
    );
}
