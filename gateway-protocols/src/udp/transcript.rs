//! Transcripts of handshakes that differ from what the engine believes. It hashes them whole each time, and checks
//! signatures of them: its cryptography gets them as the client knows them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use dimpl::CryptoError;
use dimpl::crypto::{
    Buf, HashAlgorithm, HashContext, HashProvider, KeyProvider, SignatureAlgorithm, SignatureVerifier,
    SigningKey, aws_lc_rs,
};

use super::certificate_list::CertificateList;
use super::flight::Flight;
use super::offer::Offer;
use super::peer_chain::PeerChain;

/// How a handshake's transcript is put right.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript {
    /// It begins otherwise.
    pub(crate) beginning: Option<Arc<Beginnings>>,
    /// The server's first flight is another one (DTLS 1.2).
    pub(crate) flight: Option<Arc<Flight>>,
    /// The server shows more certificates (DTLS 1.3).
    pub(crate) list: Option<Arc<CertificateList>>,
    /// The client's hellos are other ones.
    pub(crate) offer: Option<Arc<Offer>>,
    /// Takes the certificates that the peer shows.
    pub(crate) peer: Option<Arc<PeerChain>>,
}

#[derive(Debug)]
pub(crate) struct Beginnings {
    /// As the engine believes.
    engine: Vec<u8>,
    /// As the client knows it.
    client: Vec<u8>,
}

thread_local! {
    /// The transcript of the engine that is being called.
    static CURRENT: RefCell<Option<Transcript>> = const { RefCell::new(None) };
}

impl Transcript {
    /// Whether it is as the engine believes, and nobody looks at it.
    pub(crate) fn is_right(&self) -> bool {
        let is_said = self.beginning.is_none() && self.flight.is_none() && self.list.is_none();
        is_said && self.offer.is_none() && self.peer.is_none()
    }

    /// The certificates that the engine shows that is being called, where it believes in one.
    pub(crate) fn current_list() -> Option<Arc<CertificateList>> {
        CURRENT.with_borrow(|current| current.as_ref()?.list.clone())
    }

    /// Calls an engine whose transcript this is.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Also where the work panics.
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.take();
            }
        }
        CURRENT.set(Some(self.clone()));
        let _reset = Reset;
        work()
    }

    /// The transcript as the client knows it; what is no transcript stays as it is.
    fn corrected<'d>(&self, data: &'d [u8]) -> Cow<'d, [u8]> {
        let begun = self.beginning.as_ref().and_then(|beginnings| beginnings.corrected(data));
        let data = begun.map_or(Cow::Borrowed(data), Cow::Owned);
        let right = match (&self.flight, &self.list, &self.offer) {
            (Some(flight), ..) => flight.transcript(&data),
            (None, Some(list), _) => list.transcript(&data),
            (None, None, Some(offer)) => offer.transcript(&data),
            (None, None, None) => None,
        };
        right.map_or(data, Cow::Owned)
    }
}

/// What the engine that is being called hashes or signs, as its peer knows it.
fn corrected(data: &[u8]) -> Cow<'_, [u8]> {
    let current = CURRENT.with_borrow(Clone::clone);
    current.map_or(Cow::Borrowed(data), |transcript| Cow::Owned(transcript.corrected(data).into_owned()))
}

impl Beginnings {
    pub(crate) fn new(engine: Vec<u8>, client: Vec<u8>) -> Self {
        Self { engine, client }
    }

    fn corrected(&self, data: &[u8]) -> Option<Vec<u8>> {
        data.strip_prefix(self.engine.as_slice()).map(|rest| [&self.client, rest].concat())
    }
}

/// aws-lc-rs' hashes, with the current transcript put right.
#[derive(Debug)]
pub(crate) struct TranscriptHashes;

impl HashProvider for TranscriptHashes {
    fn create_hash(&self, algorithm: HashAlgorithm) -> Box<dyn HashContext> {
        let plain = aws_lc_rs::default_provider().hash_provider.create_hash(algorithm);
        match CURRENT.with_borrow(Clone::clone) {
            None => plain,
            Some(transcript) => Box::new(Corrected { transcript, plain }),
        }
    }
}

#[derive(Debug)]
struct Corrected {
    transcript: Transcript,
    plain: Box<dyn HashContext>,
}

impl HashContext for Corrected {
    fn update(&mut self, data: &[u8]) {
        if let Some(peer) = &self.transcript.peer {
            peer.look(data);
        }
        self.plain.update(&self.transcript.corrected(data));
    }

    fn clone_and_finalize(&self, out: &mut Buf) {
        self.plain.clone_and_finalize(out);
    }
}

/// aws-lc-rs' checks of signatures; a client's is of the current transcript.
#[derive(Debug)]
pub(crate) struct TranscriptSignatures;

impl SignatureVerifier for TranscriptSignatures {
    fn verify_signature(
        &self,
        certificate: &[u8],
        data: &[u8],
        signature: &[u8],
        hash: HashAlgorithm,
        algorithm: SignatureAlgorithm,
    ) -> Result<(), CryptoError> {
        let plain = aws_lc_rs::default_provider().signature_verification;
        plain.verify_signature(certificate, &corrected(data), signature, hash, algorithm)
    }
}

/// aws-lc-rs' keys; in DTLS 1.2, a client signs the current transcript.
#[derive(Debug)]
pub(crate) struct TranscriptKeys;

impl KeyProvider for TranscriptKeys {
    fn load_private_key(&self, key: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        let plain = aws_lc_rs::default_provider().key_provider.load_private_key(key)?;
        Ok(Box::new(Signing(plain)))
    }
}

#[derive(Debug)]
struct Signing(Box<dyn SigningKey>);

impl SigningKey for Signing {
    fn sign(&mut self, data: &[u8], hash: HashAlgorithm, out: &mut Buf) -> Result<(), CryptoError> {
        self.0.sign(&corrected(data), hash, out)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        self.0.hash_algorithm()
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        self.0.supported_hash_algorithms()
    }
}
