//! Certificates from a real CA for tests (Pebble), and from a scripted one.

mod issuing;
mod pebble;
mod scripted;
mod stored;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gateway_core::certificate::CertificateNames;
use gateway_core::config::model::{BackendHttp, BackendTls};
use gateway_protocols::tls;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use test_servers::ports::free_port;

use super::storage::Storage;
use crate::export::AcmeStatus;
use crate::{Gateway, source};

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ferrum-edge-acme-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// A certificate of no CA, in two files.
    fn identity(&self, name: &str) -> (PathBuf, PathBuf) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
        (
            self.put(&format!("{name}.pem"), &cert.pem()),
            self.put(&format!("{name}.key"), &signing_key.serialize_pem()),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Waits until this is true: for an event that is only to be seen by looking.
#[track_caller]
fn until(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(240);
    while !is_true() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Two ports on which a gateway listens for clients and for the CA.
#[derive(Clone, Copy)]
struct Doors {
    http: u16,
    tls: u16,
}

impl Doors {
    fn new() -> Self {
        Self { http: free_port(), tls: free_port() }
    }
}

/// A gateway's configuration: `acme` in flow style, its certificates, and one of no CA for `other.test`.
fn configuration(folder: &Folder, doors: Doors, acme: &str, certificates: &[&str]) -> String {
    let (cert, key) = folder.identity("other.test");
    let got: String = certificates.iter().map(|names| format!("{{ acme: [{names}] }}, ")).collect();
    format!(
        "
gateway:
  http: 127.0.0.1:{}
  https: 127.0.0.1:{}
  admin: off
  workers: 1
  acme: {{ accept_terms: true, {acme} }}
  tls: {{ certificates: [{got}{{ cert_path: {cert:?}, key_path: {key:?} }}] }}
proxies:
  - {{ id: all, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 1, plugins: [{{ plugin_config_id: ok }}] }}
plugin_configs:
  - {{ id: ok, plugin_name: request_termination, scope: proxy_group, config: {{ status_code: 200, body: routed }} }}
",
        doors.http, doors.tls
    )
}

fn start(configuration: &str) -> Gateway {
    let registry = crate::plugins();
    let model =
        source::file::parse(configuration, "test.yaml", &registry).unwrap_or_else(|why| panic!("{why}"));
    Gateway::start(model, registry).unwrap()
}

/// Takes every certificate, as a CA does that only looks at what it was shown: rustls' own reader refuses the critical
/// extension of an answer to a challenge.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        tls::provider().signature_verification_algorithms.supported_schemes()
    }
}

type TlsConnection = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

fn connection(port: u16, name: &str, alpn: &[&[u8]]) -> TlsConnection {
    let rules = BackendTls { verify: false, ca_path: None, client_cert: None, server_name: None };
    let mut config = tls::client::build(&rules, Some(BackendHttp::Http1)).unwrap();
    config.dangerous().set_certificate_verifier(Arc::new(Anything));
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let tcp = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    rustls::StreamOwned::new(connection, tcp)
}

/// A connection over which HTTP/1.1 can be spoken: its handshake is over.
fn tls_connection(port: u16, name: &str) -> TlsConnection {
    let mut stream = connection(port, name, &[b"http/1.1"]);
    stream.flush().unwrap();
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    stream
}

/// The leaf that a client is shown who asks for this name, and the protocol it gets; `None` where the handshake is refused.
fn handshake(port: u16, name: &str, alpn: &[&[u8]]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let mut stream = connection(port, name, alpn);
    stream.flush().ok()?;
    let connection = &stream.conn;
    let protocol = connection.alpn_protocol().map(<[u8]>::to_vec);
    Some((connection.peer_certificates()?.first()?.to_vec(), protocol))
}

fn leaf(port: u16, name: &str) -> Option<Vec<u8>> {
    handshake(port, name, &[b"http/1.1"]).map(|(leaf, _)| leaf)
}

fn names(leaf: &[u8]) -> Vec<String> {
    let mut names = CertificateNames::read(leaf).unwrap().alternative;
    names.sort();
    names
}

/// The status and the body of what is answered over plain HTTP.
fn get(port: u16, path: &str) -> (String, String) {
    let mut tcp = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    write!(tcp, "GET {path} HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

fn statuses(gateway: &Gateway) -> Vec<AcmeStatus> {
    gateway.telemetry().control.acme.statuses().clone()
}

/// The problem of the first certificate that has one.
fn problem(gateway: &Gateway) -> Option<String> {
    statuses(gateway).into_iter().find_map(|status| status.problem)
}

fn orders(gateway: &Gateway) -> (u64, u64) {
    let counts = &gateway.telemetry().control.acme;
    (counts.issued.load(Ordering::Relaxed), counts.failed.load(Ordering::Relaxed))
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().mode() & 0o777
}

/// Where a gateway keeps what is of this CA.
fn storage(gateway: &Gateway) -> (PathBuf, Storage) {
    let path = gateway.snapshot().settings.acme.as_ref().unwrap().storage.clone();
    (path.clone(), Storage::new(&path))
}
