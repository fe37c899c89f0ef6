//! Clients' certificates after their handshake. rustls judges them in a full handshake only: here they are judged again when a
//! session is resumed, and those of open connections when the trusted CAs change.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::config::model::FrontendTls;
use gateway_core::http::exchange::ClientTls;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use tokio::sync::Notify;

use super::key_pair::ServerTlsError;
use super::pem;

/// Which CAs clients' certificates must come from, and which of them are revoked, as the files were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRoots {
    roots: Vec<TrustAnchor<'static>>,
    /// `None` where nobody says: every list must be known otherwise.
    lists: Option<Vec<CertificateRevocationListDer<'static>>>,
    is_required: bool,
}

impl ClientRoots {
    /// Reads them; `None` where clients are not asked for certificates.
    ///
    /// # Errors
    /// When a file is of no use.
    pub fn read(rules: &FrontendTls) -> Result<Option<Self>, ServerTlsError> {
        let Some(path) = &rules.client_ca_path else { return Ok(None) };
        let lists = rules.client_crl_path.as_deref().map(pem::revocation_lists).transpose()?;
        Ok(Some(Self { roots: pem::roots(path)?.roots, lists, is_required: rules.client_cert_required }))
    }

    /// What judges certificates by them.
    ///
    /// # Errors
    /// When there are none, or a list can't be read.
    pub fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, ServerTlsError> {
        let roots = Arc::new(RootCertStore { roots: self.roots.clone() });
        let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, super::provider());
        if !self.is_required {
            verifier = verifier.allow_unauthenticated();
        }
        if let Some(lists) = &self.lists {
            verifier = verifier.with_crls(lists.iter().cloned()).enforce_revocation_expiration();
        }
        verifier.build().map_err(|error| ServerTlsError::Unusable(error.to_string()))
    }
}

/// The certificates of open connections, and what judges them now.
#[derive(Default)]
pub struct ClientTrust {
    /// Counts the changes of what is trusted.
    generation: AtomicU64,
    state: Mutex<OpenCertificates>,
}

#[derive(Default)]
struct OpenCertificates {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    next: u64,
    open: HashMap<u64, Shown>,
}

/// What one connection's client showed.
#[derive(Clone)]
struct Shown {
    leaf: Arc<[u8]>,
    chain: Box<[Arc<[u8]>]>,
    withdrawn: Arc<AtomicBool>,
    ending: Arc<Notify>,
}

impl Shown {
    fn verify(&self, verifier: Option<&dyn ClientCertVerifier>) -> Result<(), rustls::Error> {
        let Some(verifier) = verifier else { return Err(rustls::Error::NoCertificatesPresented) };
        let chain: Vec<_> = self.chain.iter().map(|der| CertificateDer::from(&**der)).collect();
        verifier.verify_client_cert(&CertificateDer::from(&*self.leaf), &chain, UnixTime::now()).map(drop)
    }

    fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Relaxed);
        self.ending.notify_one();
    }
}

impl ClientTrust {
    /// To be asked for before the handshake's rules are, and handed to [`enter`](Self::enter).
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    /// Takes in a connection whose handshake is over; `None` where the client showed no certificate. It is judged again if the handshake
    /// did not, or if what is trusted has changed since it began.
    ///
    /// # Errors
    /// When the certificate is not good any more.
    pub(crate) fn enter(
        self: &Arc<Self>,
        client: &mut ClientTls,
        is_verified: bool,
        Generation(since): Generation,
    ) -> Result<Option<Trusted>, rustls::Error> {
        let Some(leaf) = &client.certificate else { return Ok(None) };
        let (leaf, chain) = (leaf.clone(), client.chain.clone());
        let shown = Shown { leaf, chain, withdrawn: Arc::default(), ending: Arc::default() };
        client.withdrawn = Some(shown.withdrawn.clone());
        let (number, verifier) = {
            let mut state = self.state();
            let number = state.next;
            state.next += 1;
            state.open.insert(number, shown.clone());
            let is_verified = is_verified && self.generation.load(Ordering::Acquire) == since;
            (number, (!is_verified).then(|| state.verifier.clone()))
        };
        let trusted = Trusted { trust: self.clone(), number, ending: shown.ending.clone() };
        if let Some(verifier) = verifier {
            shown.verify(verifier.as_deref())?;
        }
        Ok(Some(trusted))
    }

    /// Judges by these from now on, and ends the connections whose certificates do not come from them. To be called when new handshakes
    /// are judged by them already. Returns how many connections it ends.
    ///
    /// # Errors
    /// When there are no roots among them; nothing has changed then.
    pub fn replace(&self, roots: Option<&ClientRoots>) -> Result<usize, ServerTlsError> {
        let verifier = roots.map(ClientRoots::verifier).transpose()?;
        let open: Vec<_> = {
            let mut state = self.state();
            state.verifier.clone_from(&verifier);
            self.generation.fetch_add(1, Ordering::Release);
            state.open.values().cloned().collect()
        };
        // Without the lock: signatures take their time, and new connections come meanwhile.
        let bad = open.iter().filter(|shown| shown.verify(verifier.as_deref()).is_err());
        Ok(bad.map(Shown::withdraw).count())
    }

    fn state(&self) -> MutexGuard<'_, OpenCertificates> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTrust(…)")
    }
}

/// What was trusted at some time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Generation(u64);

/// A connection whose certificate is trusted, until this is dropped.
pub(crate) struct Trusted {
    trust: Arc<ClientTrust>,
    number: u64,
    ending: Arc<Notify>,
}

impl Drop for Trusted {
    fn drop(&mut self) {
        self.trust.state().open.remove(&self.number);
    }
}

/// Serves a connection to its end, or until its client's certificate is not trusted any more. The future is lent: handed over, it
/// would take its room twice.
pub(crate) async fn while_trusted(trusted: Option<Trusted>, serving: Pin<&mut impl Future<Output = ()>>) {
    let Some(trusted) = trusted else { return serving.await };
    tokio::select! {
        () = serving => {}
        () = trusted.ending.notified() => {}
    }
}
