//! PROXY protocol headers in front of HTTP.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::edge::Edge;
use crate::support::standing::Standing;
use crate::support::wire::Wire;
use crate::support::{soon, tls};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.9 1111 2222\r\n";
const GET: &str = "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";

/// The same in version 2, with these extensions.
fn v2(extensions: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    header.extend_from_slice(&u16::try_from(12 + extensions.len()).unwrap().to_be_bytes());
    header.extend_from_slice(&[192, 0, 2, 7, 198, 51, 100, 9]);
    header.extend_from_slice(&1111_u16.to_be_bytes());
    header.extend_from_slice(&2222_u16.to_be_bytes());
    header.extend_from_slice(extensions);
    header
}

/// Version 2 with as many extensions as its length can say.
fn longest() -> Vec<u8> {
    let mut extensions = vec![4, 0xff, 0xf0];
    extensions.resize(65_523, 0);
    v2(&extensions)
}

fn edge(origin: &Standing, settings: &str) -> Edge {
    let spec = format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend());
    Edge::start_with(&format!("  accept_proxy_protocol: true\n{settings}"), &spec)
}

fn trusting(origin: &Standing, more: &str) -> Edge {
    edge(origin, &format!("  trusted_proxies: [127.0.0.0/8]\n{more}"))
}

/// A connection that began with these bytes, in pieces of this size; over TLS after them when asked.
async fn open(edge: &Edge, header: &[u8], slice: usize, over_tls: bool) -> Wire {
    let address = if over_tls { edge.https() } else { edge.http() };
    let mut tcp = soon(TcpStream::connect(address)).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    for piece in header.chunks(slice) {
        soon(tcp.write_all(piece)).await.unwrap();
    }
    if !over_tls {
        return Wire::new(Box::new(tcp));
    }
    let connector = TlsConnector::from(tls::authority().client(&["http/1.1"]));
    let name = "gateway.test".try_into().unwrap();
    Wire::new(Box::new(soon(connector.connect(name, tcp)).await.unwrap()))
}

#[tokio::test]
async fn a_trusted_proxy_says_who_the_client_is() {
    let origin = Standing::start("origin").await;
    let identity = tls::localhost();
    let early = format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], early_data: true}}",
        identity.cert, identity.key
    );
    for settings in ["", &early] {
        let mut edge = trusting(&origin, settings);
        for (header, slice) in
            [(V1.to_vec(), 1), (V1.to_vec(), 99), (v2(&[]), 1), (v2(&[]), 99), (longest(), 9_999)]
        {
            for over_tls in [false, true] {
                let mut client = open(&edge, &header, slice, over_tls).await;
                client.send(GET).await;
                let answer = client.rest().await;
                let answer = String::from_utf8_lossy(&answer);
                assert!(answer.contains("x-forwarded-for: 192.0.2.7\n"), "{answer}");
                let record = edge.records.next().await;
                assert_eq!((record.status(), &record.0["client.address"]), (200, &"192.0.2.7".into()));
            }
        }
    }
}

/// HTTP/2 with prior knowledge, in the same packet as the header.
#[tokio::test]
async fn what_follows_the_header_is_not_lost() {
    let origin = Standing::start("origin").await;
    let edge = trusting(&origin, "");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let together = [V1, preface].concat();
    let mut client = open(&edge, &together, together.len(), false).await;
    // Its settings come in return.
    let frame = client.some_exactly(9).await;
    assert_eq!(frame[3], 4, "a SETTINGS frame: {frame:?}");
    let together = [&v2(&[])[..], GET.as_bytes()].concat();
    let mut client = open(&edge, &together, together.len(), false).await;
    assert!(client.rest().await.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn without_a_good_header_it_is_closed() {
    let origin = Standing::start("origin").await;
    let mut edge = trusting(&origin, "");
    let mut broken = v2(&[3, 0, 4, 1, 2, 3, 4]);
    broken.extend_from_slice(GET.as_bytes());
    for (bytes, reason) in [
        (GET.as_bytes(), "proxy_protocol_malformed"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.9 1111\r\nGET / HTTP/1.1\r\n\r\n", "proxy_protocol_malformed"),
        (&broken, "proxy_protocol_malformed"),
        (&[&v2(&[4, 0, 9])[..], GET.as_bytes()].concat(), "proxy_protocol_malformed"),
        (b"PROXY TCP4", "closed_early"),
        (b"", "closed_early"),
        // What a TLS client says first.
        (&[22, 3, 1, 0, 50], "proxy_protocol_malformed"),
    ] {
        for address in [edge.http(), edge.https()] {
            let mut client = Wire::open(address).await;
            drop(client.try_send(bytes).await);
            client.shutdown().await;
            assert!(client.rest().await.is_empty(), "it was answered: {bytes:?}");
            let record = edge.session().await;
            assert_eq!((record.kind(), record.end()), ("http", reason), "{bytes:?}");
        }
    }
    assert_eq!(origin.served(), 0);
}

#[tokio::test]
async fn who_is_not_trusted_is_closed() {
    let origin = Standing::start("origin").await;
    let mut edge = edge(&origin, "  trusted_proxies: [192.0.2.1]");
    for bytes in [[V1, GET.as_bytes()].concat(), GET.as_bytes().to_vec()] {
        let mut client = Wire::open(edge.http()).await;
        drop(client.try_send(&bytes).await);
        assert!(client.rest().await.is_empty());
        assert_eq!(edge.session().await.end(), "proxy_protocol_untrusted");
    }
    assert_eq!(origin.served(), 0);
}
