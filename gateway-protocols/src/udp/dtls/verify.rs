//! Checks peers' certificates, which the engine leaves to us.

use std::path::Path;
use std::sync::Arc;

use gateway_core::config::model::BackendTls;
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};

use webpki::{CertRevocationList, ExpirationPolicy, OwnedCertRevocationList, RevocationOptionsBuilder};

use crate::tls::client::{ClientTlsError, public_roots, server_name};
use crate::tls::own_root::OwnRoots;
use crate::tls::pem::{self, PemError};

/// Checks the certificate of one kind of peer. The engine hands over the leaf alone; what is shown behind it is known too
/// (`peer_chain.rs`).
#[derive(Clone)]
pub(crate) struct Verifier {
    roots: Arc<RootCertStore>,
    /// Certificates of targets that are their own roots.
    own: Arc<OwnRoots>,
    /// Certificates that are not to be trusted any more; empty where nobody says.
    lists: Arc<Lists>,
    peer: Peer,
}

/// Revocation lists.
#[derive(Default)]
struct Lists {
    lists: Vec<CertRevocationList<'static>>,
    /// What they were read from, to tell whether others have changed anything.
    der: Vec<CertificateRevocationListDer<'static>>,
}

impl Lists {
    fn read(path: &Path) -> Result<Self, PemError> {
        let unusable =
            |error: webpki::Error| PemError::Unusable { path: path.to_owned(), reason: error.to_string() };
        let der = pem::revocation_lists(path)?;
        let lists =
            der.iter().map(|der| OwnedCertRevocationList::from_der(der).map(CertRevocationList::from));
        Ok(Self { lists: lists.collect::<Result<_, _>>().map_err(unusable)?, der })
    }
}

/// What a certificate must be good for.
#[derive(Clone)]
enum Peer {
    Client,
    Target(ServerName<'static>),
}

impl Verifier {
    /// For clients.
    ///
    /// # Errors
    /// When the CA file, or a revocation list, is of no use.
    pub(crate) fn clients(ca_path: &Path, crl_path: Option<&Path>) -> Result<Self, PemError> {
        let lists = match crl_path {
            None => Lists::default(),
            Some(path) => Lists::read(path)?,
        };
        let (roots, lists) = (Arc::new(pem::roots(ca_path)?), Arc::new(lists));
        Ok(Self { roots, own: Arc::default(), lists, peer: Peer::Client })
    }

    /// For a target; `None` where the operator switched verification off.
    ///
    /// # Errors
    /// When the CA file is of no use.
    pub(crate) fn target(rules: &BackendTls, host: &str) -> Result<Option<Self>, ClientTlsError> {
        if !rules.verify {
            return Ok(None);
        }
        let (roots, own) = match &rules.ca_path {
            Some(path) => (Arc::new(pem::roots(path)?), Arc::new(OwnRoots::read(path)?)),
            None => (public_roots(), Arc::default()),
        };
        Ok(Some(Self { roots, own, lists: Arc::default(), peer: Peer::Target(server_name(rules, host)?) }))
    }

    /// Whether both judge by the same CAs and lists: a copy of one, or read again with the same content.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.roots, &other.roots)
    }

    /// This one, or `before` where that judges by the same CAs and lists.
    pub(crate) fn or_same(self, before: Option<&Self>) -> Self {
        let is_same =
            |before: &&Self| before.roots.roots == self.roots.roots && before.lists.der == self.lists.der;
        before.filter(is_same).cloned().unwrap_or(self)
    }

    /// Whether it judges clients.
    pub(crate) fn is_for_clients(&self) -> bool {
        matches!(self.peer, Peer::Client)
    }

    /// Whether the certificate leads to a trusted one, by those `behind` it, is valid now, and is for this kind of peer; a
    /// target's must carry its name.
    pub(crate) fn accepts(&self, certificate: &[u8], behind: &[CertificateDer<'_>]) -> bool {
        let der = CertificateDer::from(certificate);
        let Ok(leaf) = webpki::EndEntityCert::try_from(&der) else { return false };
        let (usage, name) = match &self.peer {
            Peer::Client => (webpki::KeyUsage::client_auth(), None),
            Peer::Target(name) => (webpki::KeyUsage::server_auth(), Some(name)),
        };
        let lists: Vec<&CertRevocationList<'_>> = self.lists.lists.iter().collect();
        // Without lists there is nothing to go by.
        let revocation = RevocationOptionsBuilder::new(&lists).ok();
        let revocation =
            revocation.map(|options| options.with_expiration_policy(ExpirationPolicy::Enforce).build());
        let chain = leaf.verify_for_usage(
            crate::tls::provider().signature_verification_algorithms.all,
            &self.roots.roots,
            behind,
            UnixTime::now(),
            usage,
            revocation,
            None,
        );
        if let (Err(webpki::Error::CaUsedAsEndEntity), Some(name)) = (&chain, name) {
            return self.own.judge(certificate, name, UnixTime::now()).is_ok();
        }
        chain.is_ok() && name.is_none_or(|name| leaf.verify_is_valid_for_subject_name(name).is_ok())
    }
}
