//! Early data over QUIC, past a middlebox that decides when the gateway's packets go on.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::{settings, spec};
use crate::support::edge::Edge;
use crate::support::h3::{Client, edge_with};
use crate::support::standing::Standing;
use crate::support::{soon, tls};

/// Carries packets between one client and the gateway; while it holds, none of the gateway's.
struct Middlebox {
    address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Middlebox {
    async fn start(to: SocketAddr) -> Self {
        let here = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let there = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        there.connect(to).await.unwrap();
        let address = here.local_addr().unwrap();
        let (open, mut opened) = watch::channel(true);
        tokio::spawn(async move {
            let (mut up, mut down) = ([0; 2048], [0; 2048]);
            let mut client = None;
            loop {
                let may_pass = *opened.borrow_and_update();
                tokio::select! {
                    Ok((length, from)) = here.recv_from(&mut up) => {
                        client = Some(from);
                        drop(there.send(&up[..length]).await);
                    }
                    Ok(length) = there.recv(&mut down), if may_pass => {
                        if let Some(client) = client {
                            drop(here.send_to(&down[..length], client).await);
                        }
                    }
                    changed = opened.changed() => if changed.is_err() { return },
                }
            }
        });
        Self { address, open }
    }
}

fn config() -> ClientConfig {
    let mut config = rustls::ClientConfig::clone(&tls::authority().client(&["h3"]));
    config.enable_early_data = true;
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
}

fn endpoint(config: ClientConfig) -> Endpoint {
    let mut endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    endpoint.set_default_client_config(config);
    endpoint
}

/// A connection like any other, which leaves tickets.
async fn acquaint(edge: &mut Edge, endpoint: &Endpoint, to: SocketAddr) {
    let connecting = endpoint.connect(to, "gateway.test").unwrap();
    let quic = soon(connecting).await.unwrap();
    let client = Client::over(endpoint.clone(), quic).await;
    let answer = client.get("/").await;
    assert!(!String::from_utf8_lossy(&answer.body).contains("early-data"));
    edge.only_record().await;
}

async fn start() -> (Edge, Standing, Middlebox, Endpoint) {
    let origin = Standing::start("o").await;
    let mut edge = edge_with(&settings("early_data: true"), &spec(&origin, ""));
    let (middlebox, endpoint) = (Middlebox::start(edge.https()).await, endpoint(config()));
    acquaint(&mut edge, &endpoint, middlebox.address).await;
    (edge, origin, middlebox, endpoint)
}

#[tokio::test]
async fn a_safe_request_is_carried_out_before_the_handshake_is_over() {
    let (mut edge, origin, middlebox, endpoint) = start().await;
    middlebox.open.send(false).unwrap();
    let connecting = endpoint.connect(middlebox.address, "gateway.test").unwrap();
    let (quic, accepted) = connecting.into_0rtt().expect("leave for early data");
    let client = Client::over(endpoint, quic).await;
    let mut early = client.begin("GET", "/early").await;
    early.finish().await;
    // The answer is on the way, and the handshake can't be over.
    let record = edge.only_record().await;
    assert_eq!((record.status(), &record.0["tls.early_data"]), (200, &1.into()));
    assert_eq!(record.0["tls.client.server_name"], "gateway.test");
    assert_eq!(origin.served(), 2);
    middlebox.open.send(true).unwrap();
    assert!(soon(accepted).await);
    let answer = early.answer().await.unwrap();
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.head.status() == 200 && text.contains("\nearly-data: 1\n"), "{text}");
    let answer = client.get("/late").await;
    assert!(!String::from_utf8_lossy(&answer.body).contains("early-data"));
    assert!(edge.only_record().await.0.get("tls.early_data").is_none());
}

#[tokio::test]
async fn what_is_not_safe_waits_for_the_handshake() {
    let (mut edge, origin, middlebox, endpoint) = start().await;
    middlebox.open.send(false).unwrap();
    let connecting = endpoint.connect(middlebox.address, "gateway.test").unwrap();
    let (quic, accepted) = connecting.into_0rtt().expect("leave for early data");
    let client = Client::over(endpoint, quic).await;
    let mut post = client.begin("POST", "/").await;
    post.data(Bytes::from_static(b"body")).await;
    post.finish().await;
    let mut delete = client.begin("DELETE", "/").await;
    delete.finish().await;
    // Passed by what came after them.
    let mut get = client.begin("GET", "/").await;
    get.finish().await;
    assert_eq!(edge.only_record().await.0["http.request.method"], "GET");
    assert_eq!(origin.served(), 2);
    middlebox.open.send(true).unwrap();
    assert!(soon(accepted).await);
    for mut stream in [post, delete] {
        let answer = stream.answer().await.unwrap();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.head.status() == 200 && !text.contains("early-data"), "{text}");
        assert!(edge.records.next().await.0.get("tls.early_data").is_none());
    }
    assert_eq!(origin.served(), 4);
}

#[tokio::test]
async fn nothing_is_taken_early_unless_it_is_asked_for() {
    let (_willing, _origin, _middlebox, endpoint) = start().await;
    let origin = Standing::start("o").await;
    let mut edge = edge_with("", &spec(&origin, ""));
    // With leave that somebody else of the name has given.
    let connecting = endpoint.connect(edge.https(), "gateway.test").unwrap();
    let (quic, accepted) = connecting.into_0rtt().expect("leave for early data");
    let (mut send, _recv) = soon(quic.open_bi()).await.unwrap();
    soon(send.write_all(b"\x01\x05never")).await.unwrap();
    assert!(!soon(accepted).await);
    let client = Client::over(endpoint, quic).await;
    let answer = client.get("/").await;
    assert!(!String::from_utf8_lossy(&answer.body).contains("early-data"));
    assert_eq!((origin.served(), edge.only_record().await.status()), (1, 200));
}

/// A client whose address could be anybody's is not answered early.
#[tokio::test]
async fn an_address_has_to_be_proven() {
    let origin = Standing::start("o").await;
    let mut edge = edge_with(&settings("early_data: true"), &spec(&origin, ""));
    let middlebox = Middlebox::start(edge.https()).await;
    let mut config = config();
    config.token_store(Arc::new(quinn::NoneTokenStore));
    let endpoint = endpoint(config);
    acquaint(&mut edge, &endpoint, middlebox.address).await;
    middlebox.open.send(false).unwrap();
    let connecting = endpoint.connect(middlebox.address, "gateway.test").unwrap();
    let (quic, accepted) = connecting.into_0rtt().expect("leave for early data");
    let client = Client::over(endpoint, quic).await;
    let mut get = client.begin("GET", "/").await;
    get.finish().await;
    edge.nothing_recorded().await;
    assert_eq!(origin.served(), 1);
    middlebox.open.send(true).unwrap();
    assert!(soon(accepted).await);
    let answer = get.answer().await.unwrap();
    assert!(!String::from_utf8_lossy(&answer.body).contains("early-data"));
    assert!(edge.only_record().await.0.get("tls.early_data").is_none());
}

/// A client comes back to another worker than it left, and is known there.
#[tokio::test]
async fn any_worker_knows_who_comes_back() {
    let origin = Standing::start("o").await;
    let settings = format!("  workers: 3\n{}", settings("early_data: true"));
    let mut edge = edge_with(&settings, &spec(&origin, ""));
    let config = config();
    let to = edge.https();
    acquaint(&mut edge, &endpoint(config.clone()), to).await;
    for _ in 0..8 {
        // From another port each time, which is what chooses the worker.
        let endpoint = endpoint(config.clone());
        let connecting = endpoint.connect(to, "gateway.test").unwrap();
        let (quic, accepted) = connecting.into_0rtt().expect("leave for early data");
        let client = Client::over(endpoint, quic).await;
        let answer = client.get("/").await;
        assert!(answer.head.status() == 200 && soon(accepted).await);
        edge.only_record().await;
    }
}
