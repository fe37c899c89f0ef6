//! TLS that begins after plain text: SMTP, IMAP, POP3 and PostgreSQL, ended at the gateway, begun by it, and passed through by name.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{edge_with, one};
use crate::support::edge::Edge;
use crate::support::stream::{LOOPBACK, at, free_port, tcp_backend};
use crate::support::{soon, tls};

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// What a mail server says: its greeting, each command with its answer, and the command after which TLS begins.
struct Mail {
    protocol: &'static str,
    greeting: &'static str,
    hello: (&'static str, &'static str),
    starttls: (&'static str, &'static str),
    asked_by_gateway: &'static str,
}

const MAILS: [Mail; 3] = [
    Mail {
        protocol: "smtp",
        greeting: "220 target\r\n",
        hello: ("EHLO me\r\n", "250-target\r\n250 STARTTLS\r\n"),
        starttls: ("STARTTLS\r\n", "220 go\r\n"),
        asked_by_gateway: "STARTTLS\r\n",
    },
    Mail {
        protocol: "imap",
        greeting: "* OK target\r\n",
        hello: ("a1 NOOP\r\n", "a1 OK target\r\n"),
        starttls: ("a2 STARTTLS\r\n", "g OK go\r\n"),
        asked_by_gateway: "g STARTTLS\r\n",
    },
    Mail {
        protocol: "pop3",
        greeting: "+OK target\r\n",
        hello: ("CAPA\r\n", "+OK\r\nSTLS\r\n.\r\n"),
        starttls: ("STLS\r\n", "+OK go\r\n"),
        asked_by_gateway: "STLS\r\n",
    },
];

trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

async fn line(io: &mut (impl Io + ?Sized)) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        match soon(io.read_u8()).await {
            Ok(byte) => line.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(line).unwrap()
}

/// Answers every line by the hello's answer, and begins TLS where it is asked for.
async fn mail_target(mail: &'static Mail) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut io: Box<dyn Io> = Box::new(listener.accept().await.unwrap().0);
        io.write_all(mail.greeting.as_bytes()).await.unwrap();
        let mut plain = true;
        loop {
            let said = line(&mut *io).await;
            if said.is_empty() {
                drop(io.shutdown().await);
                return;
            }
            if plain && said == mail.asked_by_gateway {
                io.write_all(mail.starttls.1.as_bytes()).await.unwrap();
                let acceptor = TlsAcceptor::from(tls::server(tls::localhost(), &[]));
                io = Box::new(acceptor.accept(io).await.unwrap());
                plain = false;
                continue;
            }
            io.write_all(mail.hello.1.as_bytes()).await.unwrap();
            io.flush().await.unwrap();
        }
    });
    address
}

/// Begins TLS with the gateway as a client of this protocol does.
async fn begin(mail: &Mail, port: u16) -> impl Io + use<> {
    let mut tcp = soon(TcpStream::connect(at(port))).await.unwrap();
    assert!(line(&mut tcp).await.len() > 3, "a greeting");
    tcp.write_all(mail.hello.0.as_bytes()).await.unwrap();
    let mut said = line(&mut tcp).await;
    let is_over = |said: &str| match mail.protocol {
        "smtp" => said.lines().last().is_some_and(|last| last.starts_with("250 ")),
        "imap" => said.contains("a1 OK"),
        _ => said.ends_with(".\r\n"),
    };
    while !is_over(&said) {
        said += &line(&mut tcp).await;
    }
    tcp.write_all(mail.starttls.0.as_bytes()).await.unwrap();
    assert!(line(&mut tcp).await.len() > 3, "consent");
    let connector = TlsConnector::from(tls::authority().client(&[]));
    soon(connector.connect("gateway.test".try_into().unwrap(), tcp)).await.unwrap()
}

#[tokio::test]
async fn mail_begins_tls_with_the_gateway_and_the_target() {
    let ca = tls::authority().ca();
    for mail in &MAILS {
        let both = format!(
            "backend_scheme: tcps, backend_starttls: {}, backend_tls_ca_path: {}",
            mail.protocol,
            ca.display()
        );
        for to_target in ["backend_scheme: tcp", &both] {
            let target = mail_target(mail).await;
            let (mut edge, port) = edge_with(&format!(
                "frontend_tls: true, frontend_starttls: {}, {to_target}, backend_host: localhost, backend_port: {}",
                mail.protocol,
                target.port()
            ));
            let mut client = begin(mail, port).await;
            client.write_all(mail.hello.0.as_bytes()).await.unwrap();
            let mut answer = vec![0; mail.hello.1.len()];
            soon(client.read_exact(&mut answer)).await.unwrap();
            assert_eq!(String::from_utf8(answer).unwrap(), mail.hello.1, "no second greeting");
            client.shutdown().await.unwrap();
            let record = edge.only_record().await;
            let carried = (mail.hello.0.len() as u64, mail.hello.1.len() as u64);
            assert_eq!((record.end(), record.carried()), ("closed", carried), "{}", mail.protocol);
            assert_eq!(record.0["tls.client.server_name"], "gateway.test");
        }
    }
}

/// A PostgreSQL server that takes TLS and then returns what it gets.
async fn postgres(identity: Arc<ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let identity = identity.clone();
            tokio::spawn(async move {
                let mut request = [0; 8];
                tcp.read_exact(&mut request).await.unwrap();
                assert_eq!(request, SSL_REQUEST);
                tcp.write_all(b"S").await.unwrap();
                let tls = TlsAcceptor::from(identity).accept(tcp).await.unwrap();
                let (mut reading, mut writing) = tokio::io::split(tls);
                tokio::io::copy(&mut reading, &mut writing).await.unwrap();
                drop(writing.shutdown().await);
            });
        }
    });
    address
}

/// Whether bytes come back to a client that asks for `name`, by `SSLRequest` or by TLS at once.
async fn is_echoed(port: u16, name: &'static str, directly: bool) -> bool {
    let mut tcp = soon(TcpStream::connect(at(port))).await.unwrap();
    if !directly {
        // As libpq does that could encrypt by Kerberos.
        tcp.write_all(&[0, 0, 0, 8, 4, 210, 22, 48]).await.unwrap();
        assert_eq!(soon(tcp.read_u8()).await.unwrap(), b'N');
        tcp.write_all(&SSL_REQUEST).await.unwrap();
        assert_eq!(soon(tcp.read_u8()).await.unwrap(), b'S');
    }
    let connector = TlsConnector::from(tls::authority().client(&[]));
    let mut client = soon(connector.connect(name.try_into().unwrap(), tcp)).await.unwrap();
    client.write_all(b"startup").await.unwrap();
    let mut got = [0; 7];
    soon(client.read_exact(&mut got)).await.unwrap();
    client.shutdown().await.unwrap();
    &got == b"startup"
}

#[tokio::test]
async fn postgresql_is_passed_through_by_name() {
    let port = free_port();
    let mut spec = String::from("proxies:\n");
    for name in ["db1.test", "db2.test"] {
        let identity = tls::authority().issue(name, &[name]);
        let target = postgres(tls::server(&identity, &[])).await;
        spec.push_str(&format!(
            "  - {{id: {name}, listen_port: {port}, passthrough: true, frontend_starttls: postgres, hosts: [{name}], {}}}\n",
            tcp_backend(target)
        ));
    }
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    for (name, directly) in [("db1.test", false), ("db2.test", false), ("db1.test", true)] {
        assert!(is_echoed(port, name, directly).await);
        let record = edge.session().await;
        assert_eq!((record.end(), record.proxy()), ("closed", name));
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn postgresql_ends_and_begins_at_the_gateway() {
    let target = postgres(tls::server(tls::localhost(), &[])).await;
    let (mut edge, port) = edge_with(&format!(
        "frontend_tls: true, frontend_starttls: postgres, backend_scheme: tcps, backend_starttls: postgres, \
         backend_tls_ca_path: {}, backend_host: localhost, backend_port: {}",
        tls::authority().ca().display(),
        target.port()
    ));
    for directly in [false, true] {
        assert!(is_echoed(port, "gateway.test", directly).await);
        let record = edge.session().await;
        assert_eq!((record.end(), record.carried()), ("closed", (7, 7)));
    }
}

#[tokio::test]
async fn plain_text_injected_bytes_and_unwilling_targets_are_refused() {
    let unwilling = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free_port();
    let fields = format!(
        "passthrough: true, frontend_starttls: postgres, {}",
        tcp_backend(unwilling.local_addr().unwrap())
    );
    let mut edge = Edge::start_with(LOOPBACK, &one(port, &fields));
    let injected = [&SSL_REQUEST[..], b"\0\0\0\x09\0\x03\0\0\0"].concat();
    for (sent, answer, reason) in
        [(&b"\0\0\0\x09\0\x03\0\0\0"[..], b'E', "starttls_missing"), (&injected, 0, "starttls_injected")]
    {
        let mut tcp = soon(TcpStream::connect(at(port))).await.unwrap();
        tcp.write_all(sent).await.unwrap();
        let mut got = Vec::new();
        drop(soon(tcp.read_to_end(&mut got)).await);
        assert_eq!(got.first().copied().unwrap_or_default(), answer);
        assert_eq!(edge.session().await.end(), reason);
    }
    // A target without TLS gets nothing of the client's.
    let mut tcp = soon(TcpStream::connect(at(port))).await.unwrap();
    tcp.write_all(&SSL_REQUEST).await.unwrap();
    assert_eq!(soon(tcp.read_u8()).await.unwrap(), b'S');
    tcp.write_all(&super::names::hello("db.test")).await.unwrap();
    let (mut far, _) = soon(unwilling.accept()).await.unwrap();
    let mut request = [0; 8];
    soon(far.read_exact(&mut request)).await.unwrap();
    far.write_all(b"N").await.unwrap();
    let mut rest = Vec::new();
    drop(soon(far.read_to_end(&mut rest)).await);
    assert!(rest.is_empty(), "{} bytes", rest.len());
    assert_eq!(edge.session().await.end(), "tls_failed");
}
