//! DTLS through the gateway: ended and begun there, attacked, stalled, and closed.

mod certificates;
mod chains;
mod restarts;
mod retry;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use futures_util::future::join_all;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::support::dtls::{Offer, Peer};
use crate::support::edge::Edge;
use crate::support::stream::{LOOPBACK, at, free_port, udp_backend};
use crate::support::{soon, tls};

const OFFERS: [Offer; 3] = [Offer::Both, Offer::Dtls12, Offer::Dtls13];

fn one(port: u16, fields: &str) -> String {
    format!("proxies:\n  - {{id: a, listen_port: {port}, {fields}}}\n")
}

fn edge_with(fields: &str) -> (Edge, u16) {
    let port = free_port();
    (Edge::start_with(LOOPBACK, &one(port, fields)), port)
}

/// A plain UDP echo.
async fn echo() -> (SocketAddr, JoinSet<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut buffer = vec![0; 65_536];
        loop {
            if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                drop(socket.send_to(&buffer[..length], from).await);
            }
        }
    });
    (address, task)
}

/// A gateway that ends DTLS in front of an echo.
async fn terminating(more: &str) -> (Edge, u16, JoinSet<()>) {
    let (address, task) = echo().await;
    let (edge, port) = edge_with(&format!("frontend_tls: true{more}, {}", udp_backend(address)));
    (edge, port, task)
}

#[tokio::test]
async fn it_ends_at_the_gateway_in_every_version() {
    let (mut edge, port, _echo) = terminating("").await;
    for offer in OFFERS {
        let mut client = Peer::connect(at(port), offer).await;
        // The first one comes on the heels of the handshake.
        for n in 0..20_usize {
            let payload = vec![b'd'; 1 + n * 50];
            assert_eq!(client.ask(&payload).await, payload, "{offer:?}");
        }
        client.close().await;
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end(), record.proxy()), ("dtls", "closed", "a"), "{offer:?}");
        let bytes = (0..20).map(|n| 1 + n * 50).sum::<u64>();
        assert_eq!(record.carried(), (bytes, bytes));
    }
    edge.nothing_recorded().await;
}

/// DTLS 1.3 lets a client send payload right behind its last words, in the same datagram even.
#[tokio::test]
async fn payload_on_the_heels_of_the_handshake_is_not_lost() {
    let (mut edge, port, _echo) = terminating("").await;
    let mut client = Peer::client(at(port), Offer::Dtls13).await;
    client.shake_in_one_breath(b"at once").await;
    assert_eq!(client.next().await, b"at once");
    client.close().await;
    assert_eq!(edge.only_record().await.carried(), (7, 7));
}

#[tokio::test]
async fn an_idle_session_is_closed_in_order() {
    let (mut edge, port, _echo) = terminating(", udp_idle_timeout: 1").await;
    let mut client = Peer::connect(at(port), Offer::Both).await;
    assert_eq!(client.ask(b"x").await, b"x");
    client.close_notify().await;
    assert_eq!(edge.only_record().await.end(), "idle");
}

/// Another implementation, where it is installed.
#[tokio::test]
async fn openssl_is_served() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        return;
    }
    let (mut edge, port, _echo) = terminating("").await;
    let talking = tokio::task::spawn_blocking(move || {
        let mut client = Command::new("openssl")
            .args(["s_client", "-dtls1_2", "-quiet", "-no_ign_eof", "-connect"])
            .arg(format!("127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = client.stdin.take().unwrap();
        let mut stdout = BufReader::new(client.stdout.take().unwrap());
        for n in 0..5 {
            writeln!(stdin, "line {n}").unwrap();
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            assert_eq!(line, format!("line {n}\n"));
        }
        drop(stdin);
        client.wait().unwrap();
    });
    soon(talking).await.unwrap();
    let record = edge.only_record().await;
    assert_eq!((record.end(), record.carried()), ("closed", (35, 35)));
}

/// Datagrams that anybody can send in a client's name.
fn garbage() -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(), vec![0], vec![22], vec![255; 1200], b"GET / HTTP/1.1\r\n\r\n".to_vec()];
    for (kind, version) in [(20, 0xfefd_u16), (21, 0xfefd), (22, 0xfefd), (23, 0xfefd), (22, 0xfeff)] {
        // Records of each kind whose lengths say too little, the truth, and too much.
        for length in [0_u16, 2, 40, 0xffff] {
            let mut record = vec![kind];
            record.extend_from_slice(&version.to_be_bytes());
            record.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 77]);
            record.extend_from_slice(&length.to_be_bytes());
            record.extend_from_slice(&[1; 40]);
            all.push(record);
        }
        // Of the epoch in use, and of DTLS 1.3's unified header.
        let mut record = vec![kind, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 99, 0, 40];
        record.extend_from_slice(&[7; 40]);
        all.push(record);
        all.push([&[0x2f, kind, 0, 0, 30][..], &[9; 30]].concat());
    }
    // A fatal alert, which nobody has signed.
    all.push(vec![21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 2, 40]);
    all.push(vec![21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 1, 0]);
    all
}

#[tokio::test]
async fn garbage_ends_no_session_that_stands() {
    let (mut edge, port, _echo) = terminating("").await;
    for offer in [Offer::Dtls12, Offer::Dtls13] {
        let mut client = Peer::connect(at(port), offer).await;
        assert_eq!(client.ask(b"before").await, b"before");
        for (n, datagram) in garbage().into_iter().enumerate() {
            // From the client's own address, as an attacker would forge it.
            client.socket.send(&datagram).await.unwrap();
            assert_eq!(client.ask(b"after").await, b"after", "{offer:?} {n}: {datagram:02x?}");
        }
        client.close().await;
        assert_eq!(edge.session().await.end(), "closed");
    }
    edge.nothing_recorded().await;
}

#[tokio::test]
async fn garbage_from_strangers_does_no_harm() {
    let (edge, port, _echo) = terminating(", udp_idle_timeout: 1").await;
    for datagram in garbage() {
        let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        stranger.connect(at(port)).await.unwrap();
        stranger.send(&datagram).await.unwrap();
        stranger.send(&datagram).await.unwrap();
    }
    let mut client = Peer::connect(at(port), Offer::Both).await;
    assert_eq!(client.ask(b"x").await, b"x");
    let Edge { gateway, .. } = edge;
    assert!(!gateway.is_draining());
}

/// Nobody is answered at more length than it asked before its address is proved.
#[tokio::test]
async fn a_first_hello_is_not_amplified() {
    let (_edge, port, _echo) = terminating("").await;
    for offer in [Offer::Dtls12, Offer::Dtls13] {
        let hello = Peer::hello(offer).await;
        let (asked, mut buffer) = (hello.len(), vec![0; 65_536]);
        let attacker = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        attacker.connect(at(port)).await.unwrap();
        attacker.send(&hello).await.unwrap();
        let answered = soon(attacker.recv(&mut buffer)).await.unwrap();
        assert!(answered <= asked, "{offer:?}: {answered} bytes for {asked}");
        assert!(attacker.try_recv(&mut buffer).is_err(), "{offer:?}: more than one datagram");
    }
}

#[tokio::test]
async fn a_handshake_that_stalls_is_given_up() {
    let origin = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let fields = udp_backend(origin.local_addr().unwrap());
    let (mut edge, port) =
        edge_with(&format!("frontend_tls: true, udp_idle_timeout: 1, udp_max_sessions: 3, {fields}"));
    for offer in OFFERS {
        let mut stalled = Vec::new();
        for _ in 0..3 {
            let mut client = Peer::client(at(port), offer).await;
            client.prove().await;
            stalled.push(client);
        }
        for _ in 0..3 {
            let record = edge.session().await;
            assert_eq!(record.kind(), "dtls");
            // On a slow machine the handshake's own timeout may pass before anybody looks.
            assert!(matches!(record.end(), "idle" | "dtls_timeout"), "{}", record.end());
            assert_eq!((record.target(), record.carried()), ("", (0, 0)), "no target was asked");
        }
    }
    edge.nothing_recorded().await;
    assert!(origin.try_recv(&mut [0; 16]).is_err(), "the target heard of it");
}

/// The settings' own timeouts hold, long before the session would be idle.
#[tokio::test]
async fn handshakes_take_as_long_as_the_settings_say() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let silent = silent.local_addr().unwrap();
    let settings = format!("{LOOPBACK}\n  client_timeouts: {{handshake: 300ms}}");
    let (port, other) = (free_port(), free_port());
    let fields = format!("frontend_tls: true, udp_idle_timeout: 9, {}", udp_backend(silent));
    let mut edge = Edge::start_with(&settings, &one(port, &fields));
    let mut client = Peer::client(at(port), Offer::Both).await;
    client.prove().await;
    assert_eq!(edge.session().await.end(), "dtls_timeout", "a client that never goes on");
    let fields = format!(
        "udp_idle_timeout: 9, backend_connect_timeout: 300ms, {}",
        dtls_backend(silent, &tls::authority().ca())
    );
    edge.reload(&one(other, &fields));
    plain_client(other).await.send(b"anybody?").await.unwrap();
    assert_eq!(edge.session().await.end(), "target_dtls_timeout", "a target that never answers");
}

/// First words from anywhere take nobody's place: there is one session and one is all there may be.
#[tokio::test]
async fn a_flood_of_hellos_keeps_nobody_out() {
    let (mut edge, port, _echo) = terminating(", udp_max_sessions: 1").await;
    let hello = Peer::hello(Offer::Both).await;
    for _ in 0..1500 {
        let stranger = plain_client(port).await;
        stranger.send(&hello).await.unwrap();
        // The gateway has seen it when it answers.
        soon(stranger.readable()).await.unwrap();
    }
    let mut client = Peer::connect(at(port), Offer::Both).await;
    assert_eq!(client.ask(b"let in").await, b"let in");
    client.close().await;
    assert_eq!(edge.only_record().await.end(), "closed", "nothing else was ever a session");
}

/// DTLS 1.0 is not spoken, and its clients need not wait to learn of it.
#[tokio::test]
async fn a_hello_of_dtls_1_0_gets_an_alert() {
    let (mut edge, port, _echo) = terminating("").await;
    let mut hello = Peer::hello(Offer::Dtls12).await;
    // `client_version`, behind the heads of the record and the message.
    hello[25..27].copy_from_slice(&[0xFE, 0xFF]);
    let client = plain_client(port).await;
    client.send(&hello).await.unwrap();
    let mut answer = [0; 64];
    let length = soon(client.recv(&mut answer)).await.unwrap();
    assert_eq!(answer[..length], [21, 0xFE, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 70]);
    edge.nothing_recorded().await;
}

/// Proved addresses may stall too, and more of them than there may be handshakes.
#[tokio::test]
async fn the_oldest_handshake_makes_room() {
    let (mut edge, port, _echo) = terminating("").await;
    // One hello for all: 1025 handshakes have to be open before the first one's time is over, on slow machines as well.
    let hello = Peer::hello(Offer::Dtls12).await;
    let mut open = vec![certificates::begun(port, &hello).await];
    for _ in 0..32 {
        open.extend(join_all((0..32).map(|_| certificates::begun(port, &hello))).await);
    }
    let mut client = Peer::connect(at(port), Offer::Both).await;
    assert_eq!(client.ask(b"let in").await, b"let in");
    assert_eq!(edge.session().await.end(), "handshake_displaced");
}

/// A cookie is good for the address it was sent to, and for the hello it was sent for.
#[tokio::test]
async fn a_cookie_is_of_no_use_elsewhere() {
    let (mut edge, port, _echo) = terminating("").await;
    for offer in OFFERS {
        let mut client = Peer::client(at(port), offer).await;
        let proved = client.prove().await;
        let thief = plain_client(port).await;
        thief.send(&proved).await.unwrap();
        let mut changed = proved.clone();
        changed[40] ^= 1;
        thief.send(&changed).await.unwrap();
        client.shake().await;
        assert_eq!(client.ask(b"mine").await, b"mine", "{offer:?}");
        assert!(thief.try_recv(&mut [0; 16]).is_err(), "{offer:?}: the thief was answered");
        client.close().await;
        assert_eq!(edge.session().await.end(), "closed", "{offer:?}");
    }
    edge.nothing_recorded().await;
}

/// The fields of a proxy that begins DTLS to `address`, trusting this CA.
fn dtls_backend(address: SocketAddr, ca: &std::path::Path) -> String {
    let fields = udp_backend(address).replace("udp", "dtls");
    format!("backend_tls_ca_path: {ca:?}, {fields}")
}

async fn plain_client(port: u16) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(at(port)).await.unwrap();
    client
}

#[tokio::test]
async fn it_begins_at_the_gateway_and_nothing_is_lost_meanwhile() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (mut edge, port) = edge_with(&dtls_backend(socket.local_addr().unwrap(), &tls::authority().ca()));
    let client = plain_client(port).await;
    for n in 0..5_u8 {
        client.send(&[n; 9]).await.unwrap();
    }
    let mut far = Peer::server(socket).await;
    far.shake().await;
    for n in 0..5_u8 {
        assert_eq!(far.next().await, [n; 9]);
    }
    far.send(b"answer").await;
    let mut buffer = [0; 64];
    let length = soon(client.recv(&mut buffer)).await.unwrap();
    assert_eq!(&buffer[..length], b"answer");
    // The target ends it.
    far.close().await;
    let record = edge.only_record().await;
    assert_eq!((record.kind(), record.end(), record.carried()), ("udp", "closed", (45, 6)));
}

#[tokio::test]
async fn a_target_of_another_ca_or_name_gets_nothing() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let other = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let wrong = tls::authority().folder().join("other-ca.pem");
    std::fs::write(&wrong, other.pem()).unwrap();
    for named in [false, true] {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let fields = match named {
            false => dtls_backend(address, &wrong),
            true => {
                let good = dtls_backend(address, &tls::authority().ca());
                format!("backend_tls_server_name: other.test, {good}")
            }
        };
        let (mut edge, port) = edge_with(&fields);
        let client = plain_client(port).await;
        client.send(b"secret").await.unwrap();
        let mut far = Peer::server(socket).await;
        assert!(!far.hears_payload().await, "a stranger was told the payload");
        let record = edge.only_record().await;
        assert_eq!((record.end(), record.carried().1), ("target_certificate_refused", 0));
    }
}

/// A target that does not answer, or shows a wrong certificate, is one that can't be connected to: sessions go elsewhere.
#[tokio::test]
async fn a_target_whose_handshake_fails_is_left_alone() {
    let (silent, good) =
        (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let ports = [&silent, &good].map(|socket| socket.local_addr().unwrap().port());
    let port = free_port();
    let mut edge = Edge::start_with(
        LOOPBACK,
        &format!(
            "proxies:\n  - {{id: a, listen_port: {port}, backend_scheme: dtls, upstream_id: u, \
             backend_connect_timeout: 300ms, backend_tls_ca_path: {:?}}}\n\
             upstreams:\n  - {{id: u, health_checks: {{passive: {{unhealthy_threshold: 1}}}}, \
             targets: [{{host: 127.0.0.1, port: {}, priority: 0}}, {{host: 127.0.0.1, port: {}, priority: 1}}]}}\n",
            tls::authority().ca(),
            ports[0],
            ports[1]
        ),
    );
    let client = plain_client(port).await;
    client.send(b"lost").await.unwrap();
    let record = edge.session().await;
    assert_eq!((record.kind(), record.end()), ("udp", "target_dtls_timeout"));
    client.send(b"found").await.unwrap();
    let mut far = Peer::server(good).await;
    far.shake().await;
    assert_eq!(far.next().await, b"found");
    drop(silent);
}

#[tokio::test]
async fn both_sides_have_their_own() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let fields = dtls_backend(socket.local_addr().unwrap(), &tls::authority().ca());
    let (mut edge, port) = edge_with(&format!("frontend_tls: true, {fields}"));
    let (mut client, mut far) = tokio::join!(async { Peer::connect(at(port), Offer::Both).await }, async {
        // The target is asked once the client's handshake is done.
        let mut far = Peer::server(socket).await;
        far.shake().await;
        far
    });
    client.send(b"up").await;
    assert_eq!(far.next().await, b"up");
    far.send(b"down").await;
    assert_eq!(client.next().await, b"down");
    client.close().await;
    far.close_notify().await;
    let record = edge.only_record().await;
    assert_eq!((record.kind(), record.end(), record.carried()), ("dtls", "closed", (2, 4)));
}

/// A peer that is not told sends into nothing: over UDP nobody else says it.
#[tokio::test]
async fn clients_are_told_when_the_port_is_closed_or_the_gateway_stops() {
    for (offer, stops) in
        [(Offer::Dtls12, false), (Offer::Dtls13, false), (Offer::Dtls12, true), (Offer::Dtls13, true)]
    {
        let (edge, port, _echo) = terminating("").await;
        let mut client = Peer::connect(at(port), offer).await;
        assert_eq!(client.ask(b"x").await, b"x", "{offer:?}");
        if stops {
            // It waits for its threads.
            let ended = tokio::task::spawn_blocking(move || drop(edge));
            client.close_notify().await;
            soon(ended).await.unwrap();
        } else {
            edge.reload("proxies: []\n");
            client.close_notify().await;
        }
    }
}
