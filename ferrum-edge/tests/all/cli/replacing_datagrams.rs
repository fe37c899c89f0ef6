//! A gateway replaces another one: HTTP/3 clients that keep their UDP socket, and datagram sessions.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use bytes::Buf;
use h3::client::SendRequest;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use test_servers::ports::free_port;

use crate::process::{Folder, Gateway, TIMEOUT, until};

/// A target that answers each datagram with the port of its sender.
fn target() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut datagram) {
            drop(socket.send_to(from.port().to_string().as_bytes(), from));
        }
    });
    address
}

/// A free UDP port, and some TCP ports.
fn ports() -> (u16, [u16; 2]) {
    (free_port(), [free_port(), free_port()])
}

fn replacing(folder: &Folder) -> Gateway {
    Gateway::start(folder, |command| _ = command.args(["--replace", "--pid-file", "pid"]))
}

fn with_datagrams(workers: usize, udp: u16, [http, admin]: [u16; 2], target: SocketAddr) -> String {
    format!(
        "gateway: {{http: '127.0.0.1:{http}', admin: '127.0.0.1:{admin}', https: off, workers: {workers},\n\
           stream_address: 127.0.0.1, drain_timeout: 60s}}\n\
         proxies:\n  - {{id: u, listen_port: {udp}, backend_scheme: udp, backend_host: 127.0.0.1, backend_port: {}}}\n",
        target.port()
    )
}

/// A chain of gateways, in which each one replaces the one before. If a test fails, their logs are printed.
struct Row(Vec<Gateway>);

impl Row {
    /// Waits until all earlier gateways drain, then adds the next one.
    fn add(&mut self, next: Gateway) {
        until("the gateway before it drains", || self.0.iter().all(|one| one.log().contains("draining")));
        self.0.push(next);
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.iter().for_each(|gateway| eprintln!("{}: {}", gateway.pid(), gateway.log()));
        }
    }
}

/// A client that sends datagrams.
struct Flow {
    socket: UdpSocket,
    /// The target-side port of its session.
    session: String,
}

impl Flow {
    fn open(to: u16) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", to)).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut flow = Self { socket, session: String::new() };
        flow.session = flow.ask();
        flow
    }

    /// Checks that each datagram gets an answer, and returns the port of the session.
    fn ask(&self) -> String {
        let mut answer = [0; 64];
        self.socket.send(b"x").unwrap();
        let length = self.socket.recv(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    fn goes_on(&self) {
        assert_eq!(self.ask(), self.session, "another session");
    }
}

#[test]
fn sessions_of_datagrams_outlive_restarts() {
    let (folder, target, (udp, tcp)) = (Folder::new(), target(), ports());
    folder.write("ferrum.yaml", &with_datagrams(2, udp, tcp, target));
    let mut gateways = Row(vec![replacing(&folder)]);
    let mut flows: Vec<Flow> = (0..20).map(|_| Flow::open(udp)).collect();
    // Once with more workers than sockets, once with fewer.
    for workers in [3, 1, 2] {
        folder.write("ferrum.yaml", &with_datagrams(workers, udp, tcp, target));
        let (stop, stopped) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let flows = &flows;
            scope.spawn(move || {
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    flows.iter().for_each(Flow::goes_on);
                }
            });
            gateways.add(replacing(&folder));
            drop(stop);
        });
        flows.iter().for_each(Flow::goes_on);
        flows.extend((0..10).map(|_| Flow::open(udp)));
    }
    flows.iter().for_each(Flow::goes_on);
    // After a gateway ends, the next datagram of its sessions opens a new session.
    let mut first = gateways.0.remove(0);
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    flows.iter().for_each(|flow| assert!(!flow.ask().is_empty()));
}

#[test]
fn a_gateway_reads_again_when_its_successor_dies() {
    let (folder, target, (udp, tcp)) = (Folder::new(), target(), ports());
    folder.write("ferrum.yaml", &with_datagrams(2, udp, tcp, target));
    let first = replacing(&folder);
    let flows: Vec<Flow> = (0..10).map(|_| Flow::open(udp)).collect();
    let mut second = replacing(&folder);
    until("the first one drains", || first.log().contains("draining"));
    flows.iter().for_each(Flow::goes_on);
    second.signal("KILL");
    assert_eq!(second.wait(), None);
    until("the first one reads", || first.log().contains("reads its UDP sockets again"));
    flows.iter().for_each(Flow::goes_on);
}

/// A configuration with two proxies: the gateway itself answers with `text`, and a target answers `/slow`.
/// Whether a gateway has sessions.
fn lists_sessions(admin: SocketAddr, token: &str) -> bool {
    let mut tcp = TcpStream::connect(admin).unwrap();
    let head = "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer";
    write!(tcp, "{head} {token}\r\n\r\n").unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    !answer.contains("\"open\":0")
}

/// A gateway that is killed after it took over leaves one behind that drains, and the sockets of its sessions. The next one finds
/// that one, and takes over from it as from any other.
#[test]
fn a_gateway_that_died_after_taking_over_is_replaced() {
    let (folder, target, (udp, tcp)) = (Folder::new(), target(), ports());
    folder.write("ferrum.yaml", &with_datagrams(2, udp, tcp, target));
    let mut gateways = Row(vec![replacing(&folder)]);
    let flows: Vec<Flow> = (0..10).map(|_| Flow::open(udp)).collect();
    for _ in 0..2 {
        gateways.add(replacing(&folder));
        let first = gateways.0[0].pid().to_string();
        until("the first one drains", || gateways.0[0].log().contains("draining"));
        let mut second = gateways.0.pop().unwrap();
        second.signal("KILL");
        assert_eq!(second.wait(), None);
        until("the pid file names the first one again", || folder.read("pid").trim() == first);
        flows.iter().for_each(Flow::goes_on);
    }
    // Asked again, it goes on draining: its sessions are not cut.
    let third = replacing(&folder);
    assert_eq!(folder.read("pid").trim(), third.pid().to_string());
    flows.iter().for_each(Flow::goes_on);
    // Until it reads the sockets, new sessions are the first one's, and end with it.
    until("the third one reads", || {
        drop(Flow::open(udp));
        lists_sessions(third.admin, folder.read("state/admin.token").trim())
    });
    let new: Vec<Flow> = (0..10).map(|_| Flow::open(udp)).collect();
    let mut first = gateways.0.remove(0);
    first.signal("KILL");
    assert_eq!(first.wait(), None);
    new.iter().for_each(Flow::goes_on);
}

fn with_http3(workers: usize, https: u16, [http, admin]: [u16; 2], text: usize, slow: u16) -> String {
    format!(
        "gateway: {{http: '127.0.0.1:{http}', admin: '127.0.0.1:{admin}', https: '127.0.0.1:{https}', http3: true,\n\
           workers: {workers}, drain_timeout: 60s, tls: {{certificates: [{{cert_path: cert.pem, key_path: key.pem}}]}}}}\n\
         proxies:\n  - {{id: all, listen_path: /, plugins: [{{plugin_config_id: answer}}]}}\n  \
         - {{id: slow, listen_path: /slow, backend_host: 127.0.0.1, backend_port: {slow}}}\n\
         plugin_configs:\n  - {{id: answer, plugin_name: request_termination, scope: proxy_group,\n      \
           config: {{status_code: 200, content_type: text/plain, body: '{text}'}}}}\n"
    )
}

/// A client that uses one UDP socket for all its connections.
struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    to: SocketAddr,
}

type Requests = SendRequest<h3_quinn::OpenStreams, bytes::Bytes>;

impl Client {
    fn new(certificate: &rcgen::Certificate, https: u16) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self { endpoint, config, to: SocketAddr::from(([127, 0, 0, 1], https)) }
    }

    async fn connect(&self) -> (quinn::Connection, Requests) {
        let connecting = self.endpoint.connect_with(self.config.clone(), self.to, "a.test").unwrap();
        let quic = connecting.await.expect("a connection is taken");
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await.unwrap();
        tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        (quic, requests)
    }
}

async fn get(requests: &mut Requests, path: &str) -> String {
    let request = http::Request::get(format!("https://a.test{path}")).body(()).unwrap();
    let mut stream = requests.send_request(request).await.expect("a request is sent");
    stream.finish().await.unwrap();
    let head = stream.recv_response().await.expect("a response");
    assert_eq!(head.status(), 200);
    let mut body = String::new();
    while let Some(mut piece) = stream.recv_data().await.expect("the whole body") {
        body.push_str(&String::from_utf8_lossy(&piece.copy_to_bytes(piece.remaining())));
    }
    body
}

/// A target that answers each request when the test permits it.
fn slow_target() -> (u16, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (answer, told) = mpsc::channel();
    thread::spawn(move || {
        let (mut tcp, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && tcp.read(&mut byte).unwrap() > 0 {
            head.push(byte[0]);
        }
        let _told = told.recv();
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate").unwrap();
    });
    (port, answer)
}

#[test]
fn connections_over_quic_outlive_restarts_and_new_ones_are_never_refused() {
    let (folder, (_, tcp)) = (Folder::new(), ports());
    let https = free_port();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    folder.write("cert.pem", &certificate.pem());
    folder.write("key.pem", &key.serialize_pem());
    let (slow, answer) = slow_target();
    let write = |text, workers| folder.write("ferrum.yaml", &with_http3(workers, https, tcp, text, slow));
    write(0, 2);
    let mut gateways = Row(vec![replacing(&folder)]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = Arc::new(runtime.block_on(async { Client::new(&certificate, https) }));
    // A request that is in flight from the first gateway to the last.
    let late = runtime.spawn({
        let client = client.clone();
        async move {
            let (_quic, mut requests) = client.connect().await;
            assert_eq!(get(&mut requests, "/").await, "0");
            get(&mut requests, "/slow").await
        }
    });
    for (text, workers) in [(1, 3), (2, 1), (3, 2)] {
        write(text, workers);
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        // All these connections use the same socket as the request in flight.
        let asking = runtime.spawn({
            let client = client.clone();
            async move {
                let mut count = 0;
                while stopped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty) {
                    let (quic, mut requests) = client.connect().await;
                    get(&mut requests, "/").await;
                    quic.close(0_u32.into(), b"");
                    count += 1;
                }
                count
            }
        });
        gateways.add(replacing(&folder));
        for _ in 0..10 {
            let asked = runtime.block_on(async {
                let (_quic, mut requests) = client.connect().await;
                get(&mut requests, "/").await
            });
            assert_eq!(asked, text.to_string(), "the newest gateway answers");
        }
        drop(stop);
        assert!(runtime.block_on(asking).expect("no connection is refused or lost") > 0);
    }
    assert!(!late.is_finished());
    answer.send(()).unwrap();
    let body = runtime.block_on(async { tokio::time::timeout(TIMEOUT, late).await });
    let body = body.expect("in time").expect("the request is answered");
    assert_eq!(body, "late");
}
