//! Configurations, certificates and the gateway itself change while traffic flows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ferrum_edge::source::file;
use h2::client::SendRequest;
use http::{Method, Request};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Origin, Will, WireProtocol};
use crate::support::wire::{Wire, connect};
use crate::support::{soon, tls};

/// Asks over one HTTP/1.1 connection until told to stop; says each answer.
async fn ask_h1(mut talker: Talker, stop: Arc<AtomicBool>, done: mpsc::Sender<()>) {
    while !stop.load(Ordering::Relaxed) {
        talker.wire.send("GET /x HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let head = talker.response(&Method::GET).await.expect("the connection goes on");
        assert_eq!((head.status(), head.field("connection")), (200, ""));
        assert!(talker.body().await.expect("a body").starts_with(b"o\n"));
        done.send(()).await.expect("somebody counts");
    }
}

/// The same over one HTTP/2 connection.
async fn ask_h2(mut requests: SendRequest<Bytes>, stop: Arc<AtomicBool>, done: mpsc::Sender<()>) {
    while !stop.load(Ordering::Relaxed) {
        soon(std::future::poll_fn(|cx| requests.poll_ready(cx))).await.expect("the connection goes on");
        let request = Request::get("http://a/x").body(()).expect("a request");
        let (response, _) = requests.send_request(request, true).expect("the connection goes on");
        let response = soon(response).await.expect("an answer");
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        while let Some(_data) = crate::support::h2::data(&mut body).await.expect("a body") {}
        done.send(()).await.expect("somebody counts");
    }
}

/// Configurations that differ in everything but that `/x` leads to the origin.
fn nth_spec(number: usize, backend: &str) -> String {
    let mut spec = String::from("proxies:\n");
    for other in 0..number % 7 {
        spec.push_str(&format!("  - {{id: other{other}-{number}, listen_path: /other{other}, {backend}}}\n"));
    }
    let plugins = if number.is_multiple_of(2) { "" } else { ", plugins: [{plugin_config_id: id}]" };
    let id = if number.is_multiple_of(3) { "main" } else { "renamed" };
    spec.push_str(&format!(
        "  - {{id: {id}, listen_path: /, pool_max_idle_per_host: {}{plugins}, {backend}}}\n",
        8 + number % 5
    ));
    spec.push_str("plugin_configs:\n  - {id: id, plugin_name: correlation_id, scope: proxy_group}\n");
    spec
}

#[tokio::test]
async fn an_idle_connections_next_request_belongs_to_the_new_configuration() {
    let origin = Standing::start("o").await;
    let open = format!("proxies:\n  - {{id: main, listen_path: /, {}}}\n", origin.backend());
    let closed = format!(
        "proxies:\n  - {{id: main, listen_path: /, plugins: [{{plugin_config_id: shut}}], {}}}\nplugin_configs:\n  \
         - {{id: shut, plugin_name: request_termination, scope: proxy_group, config: {{status_code: 403}}}}\n",
        origin.backend()
    );
    let edge = Edge::start_with("  workers: 1", &open);
    let mut talker = edge.talker().await;
    for (spec, status) in [(&open, 200), (&closed, 403), (&open, 200)] {
        edge.reload(spec);
        talker.wire.send("GET /x HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(talker.response(&Method::GET).await.expect("an answer").status(), status);
        talker.body().await.expect("a body");
    }
}

#[tokio::test]
async fn a_hundred_reloads_under_load_fail_no_request_and_close_no_connection() {
    let origin = Standing::start("o").await;
    let edge = Edge::start_with("  workers: 2", &nth_spec(0, &origin.backend()));
    let (done, mut answered) = mpsc::channel(64);
    let stop = Arc::<AtomicBool>::default();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        clients.spawn(ask_h1(edge.talker().await, stop.clone(), done.clone()));
        let tls = Talker::new(Wire::new(connect(edge.https(), Some(&["http/1.1"])).await));
        clients.spawn(ask_h1(tls, stop.clone(), done.clone()));
        let requests = crate::support::h2::client(connect(edge.http(), None).await).await;
        for _ in 0..2 {
            clients.spawn(ask_h2(requests.clone(), stop.clone(), done.clone()));
        }
    }
    drop(done);
    for number in 1..=100 {
        // Every configuration is used by some requests before the next one comes.
        for _ in 0..20 {
            soon(answered.recv()).await.expect("clients go on");
        }
        edge.reload(&nth_spec(number, &origin.backend()));
    }
    stop.store(true, Ordering::Relaxed);
    let mut requests = 2000;
    while soon(answered.recv()).await.is_some() {
        requests += 1;
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no request failed");
    }
    assert_eq!(origin.served(), requests);
    assert_eq!(edge.gateway.snapshot().revision, 101);
}

#[tokio::test]
async fn a_bad_configuration_leaves_the_old_one_in_use() {
    let origin = Standing::start("o").await;
    let good = format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend());
    let edge = Edge::start(&good);
    let registry = ferrum_edge::plugins();
    for bad in ["proxies: [{id: a}]", "proxies: {", "proxys: []"] {
        file::parse(bad, "bad", &registry).expect_err("refused before it comes near the gateway");
    }
    let nothing = tls::authority().folder().join("nothing.pem");
    let settings =
        format!("gateway:\n  tls: {{certificates: [{{cert_path: {nothing:?}, key_path: {nothing:?}}}]}}\n");
    let text = format!("{settings}proxies: []\n");
    file::parse(&text, "bad", &registry).expect_err("refused while it is read");
    // One that goes between the reading and its use.
    let identity = tls::authority().issue("goes", &["goes.test"]);
    let (cert, key) = (&identity.cert, &identity.key);
    let model = file::parse(
        &format!(
            "gateway:\n  tls: {{certificates: [{{cert_path: {cert:?}, key_path: {key:?}}}]}}\nproxies: []\n"
        ),
        "goes",
        &registry,
    );
    let model = model.expect("the certificate is there");
    std::fs::remove_file(cert).unwrap();
    edge.gateway.reload(&model).expect_err("refused");
    assert_eq!(edge.get("/").await.0.status(), 200);
    assert_eq!(edge.gateway.snapshot().revision, 1);
}

/// Files that a plugin looks at now and then are in force with the reload already.
#[tokio::test]
async fn a_reload_reads_the_files_of_plugins() {
    let origin = Standing::start("o").await;
    let denied = tls::authority().folder().join("denied-by-a-reload.txt");
    std::fs::write(&denied, "192.0.2.0/24\n").unwrap();
    let spec = format!(
        "proxies:\n  - {{id: a, listen_path: /, {}}}\nplugin_configs:\n  - {{id: i, plugin_name: ip_restriction, scope: global, \
         config: {{deny_files: [{denied:?}]}}}}\n",
        origin.backend()
    );
    let edge = Edge::start(&spec);
    assert_eq!(edge.get("/").await.0.status(), 200);
    std::fs::write(&denied, "127.0.0.0/8\n").unwrap();
    let model = file::parse(&spec, "again", &ferrum_edge::plugins()).expect("the file is there");
    edge.gateway.reload(&model).expect("taken");
    assert_eq!(edge.get("/").await.0.status(), 403);
}

/// And the next one on its connection has the configuration that is in use when it comes.
#[tokio::test]
async fn a_waiting_connection_sees_the_new_configuration() {
    let origin = Standing::start("o").await;
    let edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend()));
    let mut talker = edge.talker().await;
    let mut requests = crate::support::h2::client(connect(edge.http(), None).await).await;
    for (spec, status) in [(None, 200), (Some("proxies:\n"), 404)] {
        if let Some(spec) = spec {
            edge.reload(spec);
        }
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(talker.response(&Method::GET).await.unwrap().status(), status);
        talker.body().await.unwrap();
        let request = Request::get("http://a/").body(()).unwrap();
        let (response, _) = requests.send_request(request, true).unwrap();
        assert_eq!(soon(response).await.unwrap().status(), status);
    }
}

/// A request keeps the configuration it began with.
#[tokio::test]
async fn what_is_under_way_ends_as_it_began() {
    let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
    let edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"));
    let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
    let mut client = Client::ask(&edge, WireProtocol::H1, ask).await;
    let mut served = origin.serve().await;
    served.respond(200, &[], Will::Length(4)).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    edge.reload("proxies:\n");
    assert_eq!(edge.get("/").await.0.status(), 404);
    served.send(b"body").await.unwrap();
    served.finish(&[]).await.unwrap();
    assert_eq!(client.body().await.unwrap(), b"body");
}

/// The leaf a server shows for `name`.
async fn leaf(edge: &Edge, name: &'static str) -> Vec<u8> {
    let tcp = TcpStream::connect(edge.https()).await.expect("a connection");
    let connector = TlsConnector::from(tls::authority().client(&["http/1.1"]));
    let name = ServerName::try_from(name).expect("a name");
    let stream = soon(connector.connect(name, tcp)).await.expect("a handshake");
    stream.get_ref().1.peer_certificates().expect("a certificate")[0].to_vec()
}

fn of_file(identity: &tls::Identity) -> Vec<u8> {
    CertificateDer::from_pem_file(&identity.cert).expect("a certificate").to_vec()
}

#[tokio::test]
async fn certificates_are_chosen_by_name_and_replaced_under_handshakes() {
    let one = tls::authority().issue("one", &["one.test", "gateway.test"]);
    let two = tls::authority().issue("two", &["*.two.test"]);
    let settings = format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}, {{cert_path: {:?}, key_path: {:?}}}]}}",
        one.cert, one.key, two.cert, two.key
    );
    let spec = "proxies:\n";
    let edge = Edge::start_with(&settings, spec);
    assert_eq!(leaf(&edge, "one.test").await, of_file(&one));
    assert_eq!(leaf(&edge, "x.two.test").await, of_file(&two));
    let mut old = Talker::new(Wire::new(connect(edge.https(), Some(&["http/1.1"])).await));
    for _ in 0..5 {
        tls::authority().reissue(&two, &["*.two.test"]);
        let (before, shaking) = (of_file(&one), leaf(&edge, "one.test"));
        let (shown, ()) = tokio::join!(shaking, async { edge.reload(spec) });
        assert_eq!(shown, before);
        assert_eq!(leaf(&edge, "x.two.test").await, of_file(&two));
    }
    // A connection from before goes on.
    old.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(old.response(&Method::GET).await.unwrap().status(), 404);
    // A half-written key is refused, and the old pair stays.
    let (cert, before) = (std::fs::read(&two.cert).unwrap(), of_file(&two));
    let registry = ferrum_edge::plugins();
    let text = format!("gateway:\n{settings}\nproxies: []\n");
    let model = file::parse(&text, "half", &registry).expect("it is whole as yet");
    std::fs::write(&two.cert, &cert[..40]).unwrap();
    edge.gateway.reload(&model).expect_err("refused");
    file::parse(&text, "half", &registry).expect_err("refused while it is read");
    assert_eq!(leaf(&edge, "x.two.test").await, before);
}

#[tokio::test]
async fn a_drain_lets_exchanges_end_and_closes_the_rest() {
    for down in [WireProtocol::H1, WireProtocol::H2] {
        let (mut origin, backend) = Origin::listen(WireProtocol::H1).await;
        let edge = Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, {backend}}}\n"));
        let ask = Ask { method: Method::GET, path: "/", headers: &[], body: Will::Nothing };
        let mut client = Client::ask(&edge, down, ask).await;
        let mut served = origin.serve().await;
        served.respond(200, &[], Will::Stream).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        let mut idle = edge.talker().await;
        idle.wire.send("GET / HTTP/1.1\r\nhost: marker.test\r\n\r\n").await;
        assert_eq!(idle.response(&Method::GET).await.unwrap().status(), 200);
        idle.body().await.unwrap();
        let address = edge.http();
        edge.gateway.begin_drain();
        idle.wire.closed().await;
        // The port is closed in the same step as idle connections were.
        assert!(TcpStream::connect(address).await.is_err(), "a new connection was taken");
        served.send(b"late").await.unwrap();
        served.finish(&[]).await.unwrap();
        assert_eq!(client.body().await.unwrap(), b"late", "{down:?}");
        drop(client);
        let Edge { gateway, .. } = edge;
        let clean = tokio::task::spawn_blocking(move || gateway.drain()).await.unwrap();
        assert!(clean, "{down:?}");
    }
}
