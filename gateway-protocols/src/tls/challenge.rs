//! TLS handshakes by which a CA checks that a name is this gateway's (RFC 8737).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::ServerConnection;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::server::{Certificates, ServerTlsError};

/// What such a handshake asks for in the place of an application protocol.
pub const ALPN: &[u8] = b"acme-tls/1";

/// A certificate that answers a challenge, and its key.
pub type ChallengeCertificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// The challenges under way, by name.
#[derive(Default)]
pub struct TlsChallenges(ArcSwapOption<HashMap<Box<str>, Arc<CertifiedKey>>>);

impl TlsChallenges {
    /// Puts these in the place of those before.
    ///
    /// # Errors
    /// When a key can't be used; those before stay.
    pub fn replace(
        &self,
        certificates: impl IntoIterator<Item = (Box<str>, ChallengeCertificate)>,
    ) -> Result<(), ServerTlsError> {
        let mut under_way = HashMap::new();
        for (name, (certificate, key)) in certificates {
            let key = super::provider().key_provider.load_private_key(key);
            let key = key.map_err(|error| ServerTlsError::Unusable(format!("{name}: {error}")))?;
            // Whether the two go together is not asked: the extension that answers is critical, and unknown to who could say.
            under_way.insert(name, Arc::new(CertifiedKey::new(vec![certificate], key)));
        }
        self.0.store((!under_way.is_empty()).then(|| Arc::new(under_way)));
        Ok(())
    }

    fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref()?.get(name).cloned()
    }
}

/// The certificates shown to clients, and to a CA those that answer its challenges.
pub struct WithChallenges {
    /// Those for clients.
    pub certificates: Arc<Certificates>,
    /// Those for the CA.
    pub challenges: Arc<TlsChallenges>,
}

impl ResolvesServerCert for WithChallenges {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Who offers something else as well is no CA, and gets that.
        let asks = |mut protocols: Box<dyn Iterator<Item = &[u8]> + '_>| {
            protocols.next() == Some(ALPN) && protocols.next().is_none()
        };
        if hello.alpn().is_some_and(|protocols| asks(Box::new(protocols))) {
            return self.challenges.find(hello.server_name()?);
        }
        self.certificates.resolve(hello)
    }
}

impl fmt::Debug for WithChallenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WithChallenges(…)")
    }
}

/// Whether a handshake was one of a CA's: nothing is served over its connection.
pub(crate) fn is_challenge(session: &ServerConnection) -> bool {
    session.alpn_protocol() == Some(ALPN)
}
