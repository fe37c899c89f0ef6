//! TLS sessions resume after a reload and at the gateway that takes the place of another, unless clients must present certificates.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, HandshakeKind};

use crate::process::{Folder, Gateway, TIMEOUT, until};

const BOTH: [&rustls::SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// A gateway with this text, and further settings of TLS.
fn spec([https, admin]: [u16; 2], text: usize, more: &str) -> String {
    format!(
        "gateway: {{http: '127.0.0.1:0', admin: '127.0.0.1:{admin}', https: '127.0.0.1:{https}',\n  \
           tls: {{certificates: [{{cert_path: cert.pem, key_path: key.pem}}]{more}}}}}\n\
         proxies:\n  - {{id: all, listen_path: /, plugins: [{{plugin_config_id: answer}}]}}\n\
         plugin_configs:\n  - {{id: answer, plugin_name: request_termination, scope: proxy_group,\n      \
           config: {{status_code: 200, content_type: text/plain, body: '{text}'}}}}\n"
    )
}

/// A client of this version that keeps its tickets.
fn client(
    certificate: &rcgen::Certificate,
    version: &'static rustls::SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Asks once; how the handshake went, and the body.
fn ask(client: &Arc<ClientConfig>, https: u16) -> (HandshakeKind, String) {
    let mut connection = ClientConnection::new(client.clone(), "a.test".try_into().unwrap()).unwrap();
    let mut tcp = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], https))).unwrap();
    tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut tls = rustls::Stream::new(&mut connection, &mut tcp);
    tls.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    tls.read_to_string(&mut answer).unwrap();
    let body = answer.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned();
    (connection.handshake_kind().unwrap(), body)
}

#[test]
fn sessions_resume_after_a_reload_and_at_a_successor() {
    for version in BOTH {
        let folder = Folder::new();
        let pair = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        folder.write("cert.pem", &pair.cert.pem());
        folder.write("key.pem", &pair.signing_key.serialize_pem());
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = ports.map(|port| port.local_addr().unwrap().port());
        let start =
            || Gateway::start(&folder, |command| _ = command.args(["--replace", "--pid-file", "pid"]));
        folder.write("ferrum.yaml", &spec(ports, 0, ""));
        let mut first = start();
        let (old, https) = (client(&pair.cert, version), ports[0]);
        assert_eq!(ask(&old, https), (HandshakeKind::Full, "0".to_owned()), "{version:?}");
        // Without client certificates, nothing about a session depends on the configuration.
        folder.write("ferrum.yaml", &spec(ports, 1, ""));
        first.signal("HUP");
        until("the reload is served", || ask(&client(&pair.cert, version), https).1 == "1");
        assert_eq!(ask(&old, https), (HandshakeKind::Resumed, "1".to_owned()), "{version:?}");
        folder.write("ferrum.yaml", &spec(ports, 2, ""));
        let mut second = start();
        assert_eq!(first.wait(), Some(0), "{}", first.log());
        assert_eq!(ask(&old, https), (HandshakeKind::Resumed, "2".to_owned()), "{version:?}");
        second.signal("TERM");
        assert_eq!(second.wait(), Some(0));
    }
}
