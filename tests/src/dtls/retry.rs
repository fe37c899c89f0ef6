//! DTLS 1.3 clients that have to be asked for another key share (RFC 8446 §4.1.4).

use dimpl::crypto::Dtls13CipherSuite;

use super::{Peer, plain_client, soon, terminating};

const SUITES: [Dtls13CipherSuite; 2] =
    [Dtls13CipherSuite::AES_128_GCM_SHA256, Dtls13CipherSuite::AES_256_GCM_SHA384];

#[tokio::test]
async fn a_client_with_an_unknown_key_share_gets_in() {
    let (mut edge, port, _echo) = terminating("").await;
    for suite in SUITES {
        let mut client = Peer::client_retrying(plain_client(port).await, suite);
        client.say_unknown_share().await;
        client.shake().await;
        for payload in [&b"one"[..], b"two"] {
            assert_eq!(client.ask(payload).await, payload, "{suite:?}");
        }
        client.close().await;
        let record = edge.session().await;
        assert_eq!((record.kind(), record.end(), record.carried()), ("dtls", "closed", (6, 6)), "{suite:?}");
    }
    edge.nothing_recorded().await;
}

/// Whatever its second hello has in the place of what its first had, the transcript begins with the first one.
#[tokio::test]
async fn a_client_with_another_key_in_its_second_hello_gets_in() {
    let (mut edge, port, _echo) = terminating("").await;
    for suite in SUITES {
        let mut client = Peer::client_retrying(plain_client(port).await, suite);
        client.say_other_key().await;
        client.shake().await;
        assert_eq!(client.ask(b"one").await, b"one", "{suite:?}");
        client.close().await;
        assert_eq!(edge.session().await.end(), "closed", "{suite:?}");
    }
    edge.nothing_recorded().await;
}

/// Its cookie is bound to its address, as any other, and to the hash it carries.
#[tokio::test]
async fn its_cookie_is_of_no_use_elsewhere() {
    let (mut edge, port, _echo) = terminating("").await;
    for suite in SUITES {
        let mut client = Peer::client_retrying(plain_client(port).await, suite);
        client.say_unknown_share().await;
        let proved = client.prove().await;
        let thief = plain_client(port).await;
        thief.send(&proved).await.unwrap();
        let mut changed = proved.clone();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        thief.send(&changed).await.unwrap();
        client.shake().await;
        assert_eq!(client.ask(b"mine").await, b"mine", "{suite:?}");
        assert!(thief.try_recv(&mut [0; 16]).is_err(), "{suite:?}: the thief was answered");
        client.close().await;
        assert_eq!(edge.session().await.end(), "closed", "{suite:?}");
    }
    edge.nothing_recorded().await;
}

/// A changed hash is refused before anything is kept.
#[tokio::test]
async fn a_changed_hash_begins_no_session() {
    let (mut edge, port, _echo) = terminating("").await;
    let mut client = Peer::client_retrying(plain_client(port).await, SUITES[0]);
    client.say_unknown_share().await;
    let mut answer = vec![0; 2048];
    let length = soon(client.socket.recv(&mut answer)).await.unwrap();
    // The cookie is the last thing in it.
    answer.truncate(length);
    answer[length - 1] ^= 1;
    client.take(&answer);
    assert!(!client.is_let_in().await);
    edge.nothing_recorded().await;
}
