//! DTLS clients that begin anew at the same address and port, and hellos that are sent in a client's name.

use tokio::net::UdpSocket;

use super::{OFFERS, Offer, Peer, at, plain_client, soon, terminating};
use crate::support::tls;

/// Another client at the same address and port.
fn again(socket: &UdpSocket, offer: Offer) -> Peer {
    use std::os::fd::{AsFd, OwnedFd};
    let twin: OwnedFd = socket.as_fd().try_clone_to_owned().unwrap();
    let twin = UdpSocket::from_std(twin.into()).unwrap();
    Peer::client_on(twin, offer, tls::localhost())
}

#[tokio::test]
async fn a_restarted_client_gets_in() {
    let (mut edge, port, _echo) = terminating("").await;
    for before in OFFERS {
        for after in OFFERS {
            let mut first = Peer::connect(at(port), before).await;
            assert_eq!(first.ask(b"before").await, b"before", "{before:?}");
            let mut second = again(&first.socket, after);
            second.shake().await;
            assert_eq!(second.ask(b"after it").await, b"after it", "{before:?}, {after:?}");
            // The old session is abandoned: what is sealed with its keys is nothing to the new client.
            second.heard.iter().for_each(|datagram| first.take(datagram));
            assert!(!first.is_closed(), "{before:?}, {after:?}");
            drop(first);
            let record = edge.session().await;
            assert_eq!((record.end(), record.carried()), ("restarted", (6, 6)), "{before:?}, {after:?}");
            second.close().await;
            let record = edge.session().await;
            assert_eq!((record.end(), record.carried()), ("closed", (8, 8)), "{before:?}, {after:?}");
        }
    }
    edge.nothing_recorded().await;
}

/// Its old session counts for as long as the new one is not there, and must not be what keeps it out.
#[tokio::test]
async fn a_restarted_client_finds_its_place_free() {
    let (mut edge, port, _echo) = terminating(", udp_max_sessions: 1").await;
    let mut first = Peer::connect(at(port), Offer::Both).await;
    assert_eq!(first.ask(b"before").await, b"before");
    let mut second = again(&first.socket, Offer::Both);
    drop(first);
    second.shake().await;
    assert_eq!(second.ask(b"after").await, b"after");
    assert_eq!(edge.session().await.end(), "restarted");
}

/// One that stops halfway, time and again, leaves the session alone.
#[tokio::test]
async fn half_a_restart_changes_nothing() {
    let (mut edge, port, _echo) = terminating("").await;
    for offer in OFFERS {
        let mut client = Peer::connect(at(port), offer).await;
        for n in 0..3_u8 {
            let mut half = again(&client.socket, offer);
            half.prove().await;
            for _ in 0..3 {
                assert_eq!(client.ask(&[n; 100]).await, [n; 100], "{offer:?}");
            }
        }
        // Each took the place of the one before.
        for _ in 0..2 {
            assert_eq!(edge.session().await.end(), "handshake_displaced", "{offer:?}");
        }
        let mut other = again(&client.socket, offer);
        other.shake().await;
        assert_eq!(edge.session().await.end(), "handshake_displaced", "{offer:?}");
        assert_eq!(edge.session().await.end(), "restarted", "{offer:?}");
        assert_eq!(other.ask(b"at last").await, b"at last", "{offer:?}");
        other.close().await;
        assert_eq!(edge.session().await.end(), "closed", "{offer:?}");
    }
    edge.nothing_recorded().await;
}

/// Hellos as an attacker would forge them: without a cookie, with one of nobody's, with one of another address.
async fn forged(port: u16) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for offer in OFFERS {
        all.push(Peer::hello(offer).await);
        let mut other = Peer::client(at(port), offer).await;
        let stolen = other.prove().await;
        let mut guessed = stolen.clone();
        let last = guessed.len() - 1;
        guessed[last] ^= 1;
        all.extend([stolen, guessed]);
    }
    all
}

#[tokio::test]
async fn forged_hellos_change_nothing() {
    let (mut edge, port, _echo) = terminating(", udp_idle_timeout: 2").await;
    let hellos = forged(port).await;
    let proved = OFFERS.len();
    let mut client = Peer::connect(at(port), Offer::Both).await;
    for hello in hellos.iter().cycle().take(50) {
        client.socket.send(hello).await.unwrap();
        assert_eq!(client.ask(b"still here").await, b"still here");
    }
    // Both at once: a new client between forged hellos.
    let mut second = again(&client.socket, Offer::Both);
    second.prove().await;
    for hello in &hellos {
        second.socket.send(hello).await.unwrap();
        assert_eq!(client.ask(b"beside").await, b"beside");
    }
    second.shake().await;
    assert_eq!(second.ask(b"mine").await, b"mine");
    let mut ends = Vec::new();
    // Those whose cookies were stolen began sessions of their own, and said no more.
    for _ in 0..=proved {
        ends.push(edge.session().await.end().to_owned());
    }
    ends.sort_unstable();
    assert_eq!(ends, [&vec!["idle"; proved][..], &["restarted"]].concat());
}

/// What nobody has sealed keeps no session alive.
#[tokio::test]
async fn forged_hellos_keep_no_session_alive() {
    let (mut edge, port, _echo) = terminating(", udp_idle_timeout: 1").await;
    let mut client = Peer::connect(at(port), Offer::Both).await;
    assert_eq!(client.ask(b"x").await, b"x");
    let hello = Peer::hello(Offer::Both).await;
    let attacker = again(&client.socket, Offer::Both).socket;
    let forging = async {
        let mut buffer = [0; 2048];
        loop {
            attacker.send(&hello).await.unwrap();
            soon(attacker.recv(&mut buffer)).await.unwrap();
        }
    };
    let record = tokio::select! {
        record = edge.session() => record,
        () = forging => unreachable!(),
    };
    assert_eq!(record.end(), "idle");
    // The port goes on for others.
    let other = plain_client(port).await;
    other.send(&hello).await.unwrap();
    soon(other.readable()).await.unwrap();
}
