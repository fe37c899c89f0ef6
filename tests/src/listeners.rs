//! Several addresses to listen on.

use http::Method;
use tokio::net::TcpStream;

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::standing::Standing;
use crate::support::wire::{Wire, connect};

#[tokio::test]
async fn each_address_is_served_and_closed_by_a_drain() {
    let origin = Standing::start("o").await;
    let spec = format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend());
    let edge = Edge::start_with(
        "  additional_http: ['127.0.0.2:0', '[::1]:0']\n  additional_https: ['127.0.0.2:0']",
        &spec,
    );
    let addresses = edge.gateway.addresses();
    assert_eq!((addresses.all_http.len(), addresses.all_https.len()), (3, 2));
    assert_eq!(
        (addresses.http, addresses.https),
        (Some(addresses.all_http[0]), Some(addresses.all_https[0]))
    );
    for address in &addresses.all_http {
        let mut talker = Talker::new(Wire::new(connect(*address, None).await));
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200, "{address}");
    }
    for address in &addresses.all_https {
        let mut talker = Talker::new(Wire::new(connect(*address, Some(&["http/1.1"])).await));
        talker.wire.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(talker.response(&Method::GET).await.unwrap().status(), 200, "{address}");
    }
    let mut idle = edge.talker().await;
    edge.gateway.begin_drain();
    idle.wire.closed().await;
    for address in addresses.all_http.iter().chain(&addresses.all_https) {
        // A socket that connects to a port of its own kind may meet itself.
        let taken = TcpStream::connect(address).await;
        let is_taken = taken.is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok());
        assert!(!is_taken, "{address} takes connections");
    }
}

/// A free port of 127.0.0.3, as others hold it only while they look for one.
fn free() -> u16 {
    std::net::TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn proxies_are_served_on_the_ports_and_addresses_that_they_name() {
    let (one, two) = (Standing::start("one").await, Standing::start("two").await);
    let (first, second) = (free(), free());
    let spec = format!(
        "proxies:\n\
         \x20 - {{id: one, hosts: [a.test], matches: [{{path: /, ports: [{first}]}}], {}}}\n\
         \x20 - {{id: two, matches: [{{path: /, ports: [{second}]}}, {{path: /three, addresses: [127.0.0.4]}}], {}}}\n",
        one.backend(),
        two.backend()
    );
    let listeners = format!(
        "  additional_http: ['127.0.0.3:{first}', '127.0.0.3:{second}', '127.0.0.4:{second}', '127.0.0.4:{first}']"
    );
    let edge = Edge::start_with(&listeners, &spec);
    let of = |ip: [u8; 4], port| std::net::SocketAddr::from((ip, port));
    let cases = [
        (of([127, 0, 0, 3], first), "/", "one"),
        (of([127, 0, 0, 3], second), "/", "two"),
        (of([127, 0, 0, 4], second), "/", "two"),
        (of([127, 0, 0, 3], first), "/three", "one"),
        (edge.http(), "/", ""),
        (edge.http(), "/three", ""),
    ];
    for (address, path, wanted) in cases {
        let mut talker = Talker::new(Wire::open(address).await);
        talker.wire.send(&format!("GET {path} HTTP/1.1\r\nhost: a.test\r\n\r\n")).await;
        let head = talker.response(&Method::GET).await.unwrap();
        assert_eq!(
            (head.field("x-origin"), head.status() == 404),
            (wanted, wanted.is_empty()),
            "{address} {path}"
        );
    }
}

/// A load balancer forwards its own port, and with it what its clients choose.
#[tokio::test]
async fn a_proxy_header_does_not_change_the_port_that_proxies_are_chosen_by() {
    let (one, two) = (Standing::start("one").await, Standing::start("two").await);
    let (first, second) = (free(), free());
    let spec = format!(
        "proxies:\n\
         \x20 - {{id: one, matches: [{{path: /, ports: [{first}]}}], {}}}\n\
         \x20 - {{id: two, matches: [{{path: /, ports: [{second}]}}], {}}}\n",
        one.backend(),
        two.backend()
    );
    let settings = format!(
        "  accept_proxy_protocol: true\n  trusted_proxies: [127.0.0.0/8]\n  \
         additional_http: ['127.0.0.3:{first}', '127.0.0.3:{second}']"
    );
    let _edge = Edge::start_with(&settings, &spec);
    for (port, said, name) in [(first, second, "one"), (first, 443, "one"), (second, first, "two")] {
        let address = std::net::SocketAddr::from(([127, 0, 0, 3], port));
        let mut talker = Talker::new(Wire::new(connect(address, None).await));
        let head =
            format!("PROXY TCP4 192.0.2.7 198.51.100.9 1111 {said}\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n");
        talker.wire.send(&head).await;
        let response = talker.response(&Method::GET).await.unwrap();
        assert_eq!(response.field("x-origin"), name, "{port} {said}");
    }
}
