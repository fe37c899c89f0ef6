//! A client of DTLS 1.3 whose first key share is of a group that nobody here has: it is changed on the way out, and the
//! client hashes what it really sent.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use dimpl::Config;
use dimpl::crypto::{CryptoProvider, Dtls13CipherSuite, NamedGroup, SupportedKxGroup, aws_lc_rs};
use tokio::net::UdpSocket;

use super::super::tls;
use super::hashes::Hashes;
use super::{Offer, Peer};

/// Hellos as their clients believe them, and as they were sent; without what only datagrams have.
static SENT: Mutex<Vec<(Vec<u8>, Vec<u8>)>> = Mutex::new(Vec::new());

/// Hashes hellos as they were sent.
static AS_SENT: Hashes = Hashes(|data| {
    let sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    sent.iter().find(|(believed, _)| believed == data).map(|(_, sent)| sent.clone())
});

impl Peer {
    /// A client whose first key share is of X448, and whose suite is this; before its handshake.
    pub(crate) fn client_retrying(socket: UdpSocket, suite: Dtls13CipherSuite) -> Self {
        /// The last one of others is the first one here: what is offered is not what the gateway would ask for.
        static GROUPS: LazyLock<&[&dyn SupportedKxGroup]> = LazyLock::new(|| {
            let groups = aws_lc_rs::default_provider().kx_groups;
            Box::leak(groups.iter().rev().copied().collect::<Box<[_]>>())
        });
        let provider =
            CryptoProvider { hash_provider: &AS_SENT, kx_groups: *GROUPS, ..aws_lc_rs::default_provider() };
        let config = Config::builder()
            .with_crypto_provider(provider)
            .mtu(1200)
            .dtls13_cipher_suites(&[suite])
            .kx_groups(&[NamedGroup::Secp384r1, NamedGroup::X25519])
            .build()
            .expect("a configuration");
        Self::client_with(socket, Offer::Dtls13, Arc::new(config), tls::localhost())
    }

    /// Says its first hello, with the group of its key share changed.
    pub(crate) async fn say_unknown_share(&mut self) {
        self.say_changed(|hello, share| hello[share + 7] = 30).await;
    }

    /// Says its first hello with a key share of the same group that is another than in its second, as wolfSSL does.
    pub(crate) async fn say_other_key(&mut self) {
        // The last byte of the key, which is 97 bytes long.
        self.say_changed(|hello, share| hello[share + 8 + 2 + 96] ^= 1).await;
    }

    async fn say_changed(&mut self, change: impl FnOnce(&mut Vec<u8>, usize)) {
        let words = self.words();
        let [hello] = words.as_slice() else { panic!("one hello, not {}", words.len()) };
        // The extension, its length, that of the list, and the group.
        let share = [0, 51, 0, 103, 0, 101, 0, 24];
        let at = hello.windows(share.len()).position(|bytes| bytes == share).expect("a key share");
        let mut sent = hello.clone();
        change(&mut sent, at);
        let transcript = |datagram: &[u8]| [&datagram[13..17], &datagram[25..]].concat();
        let pair = (transcript(hello), transcript(&sent));
        SENT.lock().unwrap_or_else(PoisonError::into_inner).push(pair);
        self.socket.send(&sent).await.expect("sent");
    }
}
