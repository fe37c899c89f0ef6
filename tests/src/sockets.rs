//! Targets that are Unix sockets.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::support::edge::Edge;
use crate::support::stream::{LOOPBACK, free_port, open};
use crate::support::{soon, tls};

/// A socket's path; the file goes when the test ends.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ferrum-{}-{}.sock", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    fn listen(&self) -> UnixListener {
        UnixListener::bind(&self.0).expect("the path is free")
    }

    /// The host of a target.
    fn host(&self) -> String {
        format!("unix:{}", self.0.display())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// Serves HTTP/1.1 at this place: each answer is the request's path and host.
fn serve(place: &Place) {
    let listener = place.listen();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
}

async fn answer(stream: UnixStream) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut line) = (Vec::new(), String::new());
        while stream.read_line(&mut line).await.ok().filter(|bytes| *bytes > 0)? > 2 {
            head.push(std::mem::take(&mut line));
        }
        let path = head.first()?.split(' ').nth(1)?;
        let host = head.iter().find_map(|line| line.strip_prefix("host: ")).unwrap_or("none").trim();
        let body = format!("{path} {host}");
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.get_mut().write_all(answer.as_bytes()).await.ok()?;
    }
}

#[tokio::test]
async fn requests_go_over_kept_connections() {
    let place = Place::new();
    serve(&place);
    let edge =
        Edge::start(&format!("proxies:\n  - {{id: a, listen_path: /, backend_host: {:?}}}\n", place.host()));
    for n in 0..5 {
        let (head, body) = edge.get(&format!("/{n}")).await;
        assert_eq!(head.status(), 200);
        assert_eq!(body, format!("/{n} localhost"));
    }
}

#[tokio::test]
async fn http2_and_tls_work_as_over_tcp() {
    let place = Place::new();
    let listener = place.listen();
    let acceptor = TlsAcceptor::from(tls::server(tls::localhost(), &["h2"]));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(acceptor.accept(stream).await.ok()?).await.ok()?;
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let mut sending = respond.send_response(Response::new(()), false).ok()?;
                    sending.send_data(Bytes::from(request.uri().path().to_owned()), true).ok()?;
                }
                Some(())
            });
        }
    });
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, backend_scheme: https, backend_host: {:?}, backend_http_version: '2',\n      \
         backend_tls_server_name: gateway.test, backend_tls_ca_path: {:?}}}\n",
        place.host(),
        tls::authority().ca()
    ));
    let (head, body) = edge.get("/over-h2").await;
    assert_eq!((head.status(), body.as_str()), (200, "/over-h2"));
}

#[tokio::test]
async fn streams_are_relayed() {
    let place = Place::new();
    let listener = place.listen();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                drop(tokio::io::copy(&mut from, &mut to).await);
                drop(to.shutdown().await);
            });
        }
    });
    let port = free_port();
    let spec = format!(
        "proxies:\n  - {{id: a, listen_port: {port}, backend_scheme: tcp, backend_host: {:?}}}\n",
        place.host()
    );
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    let mut client = open(port).await;
    client.send("hello").await;
    client.expect("hello").await;
    client.shutdown().await;
    client.closed().await;
    let record = edge.session().await;
    assert_eq!((record.end(), record.carried(), record.target()), ("closed", (5, 5), place.host().as_str()));
}

/// A socket that nobody listens on costs nobody an error while another target is there.
#[tokio::test]
async fn another_target_answers_when_nobody_listens() {
    let (dead, place) = (Place::new(), Place::new());
    serve(&place);
    let spec = format!(
        "upstreams:\n  - {{id: u, targets: [{{host: {:?}}}, {{host: {:?}}}]}}\n\
         proxies:\n  - {{id: a, listen_path: /, upstream_id: u}}\n  - {{id: b, listen_path: /dead, backend_host: {:?}}}\n",
        dead.host(),
        place.host(),
        dead.host()
    );
    let edge = Edge::start(&spec);
    for _ in 0..4 {
        assert_eq!(edge.get("/x").await.0.status(), 200);
    }
    assert_eq!(edge.get("/dead").await.0.status(), 502);
}

/// Probes go over the socket, too.
#[tokio::test]
async fn a_probe_finds_a_target_again() {
    let place = Place::new();
    let spec = format!(
        "upstreams:\n  - id: u\n    targets: [{{host: {:?}}}]\n    health_checks:\n      \
         {{active: {{interval: 1, http_path: /health, healthy_threshold: 1, unhealthy_threshold: 1}}}}\n\
         proxies:\n  - {{id: a, listen_path: /, upstream_id: u}}\n",
        place.host()
    );
    let listener = place.listen();
    let _edge = Edge::start(&spec);
    let (mut stream, _) = soon(listener.accept()).await.expect("a probe comes");
    let mut head = [0; 11];
    soon(stream.read_exact(&mut head)).await.expect("it asks");
    assert_eq!(&head, b"GET /health");
}
