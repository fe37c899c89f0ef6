//! Checks peers' certificates, which the engine leaves to us.

use std::path::Path;
use std::sync::Arc;

use gateway_core::config::model::BackendTls;
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use webpki::{CertRevocationList, ExpirationPolicy, OwnedCertRevocationList, RevocationOptionsBuilder};

use crate::tls::client::{ClientTlsError, public_roots, server_name};
use crate::tls::pem::{self, PemError};

/// Checks the certificate of one kind of peer. The engine hands over the leaf alone; what is shown behind it is known too
/// (`peer_chain.rs`).
#[derive(Clone)]
pub(in crate::udp) struct Verifier {
    roots: Arc<RootCertStore>,
    /// Certificates that are not to be trusted any more; empty where nobody says.
    lists: Arc<[CertRevocationList<'static>]>,
    peer: Peer,
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
    pub(super) fn clients(ca_path: &Path, crl_path: Option<&Path>) -> Result<Self, PemError> {
        let lists = match crl_path {
            None => Arc::default(),
            Some(path) => {
                let lists = pem::revocation_lists(path)?.into_iter().map(|der| {
                    let read = OwnedCertRevocationList::from_der(&der);
                    read.map(CertRevocationList::from).map_err(|error| PemError::Unusable {
                        path: path.to_owned(),
                        reason: error.to_string(),
                    })
                });
                lists.collect::<Result<_, _>>()?
            }
        };
        Ok(Self { roots: Arc::new(pem::roots(ca_path)?), lists, peer: Peer::Client })
    }

    /// For a target; `None` where the operator switched verification off.
    ///
    /// # Errors
    /// When the CA file is of no use.
    pub(in crate::udp) fn target(rules: &BackendTls, host: &str) -> Result<Option<Self>, ClientTlsError> {
        if !rules.verify {
            return Ok(None);
        }
        let roots = match &rules.ca_path {
            Some(path) => Arc::new(pem::roots(path)?),
            None => public_roots(),
        };
        Ok(Some(Self { roots, lists: Arc::default(), peer: Peer::Target(server_name(rules, host)?) }))
    }

    /// Whether the certificate leads to a trusted one, by those `behind` it, is valid now, and is for this kind of peer; a
    /// target's must carry its name.
    pub(in crate::udp) fn accepts(&self, certificate: &[u8], behind: &[CertificateDer<'_>]) -> bool {
        let der = CertificateDer::from(certificate);
        let Ok(leaf) = webpki::EndEntityCert::try_from(&der) else { return false };
        let (usage, name) = match &self.peer {
            Peer::Client => (webpki::KeyUsage::client_auth(), None),
            Peer::Target(name) => (webpki::KeyUsage::server_auth(), Some(name)),
        };
        let lists: Vec<&CertRevocationList<'_>> = self.lists.iter().collect();
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
        chain.is_ok() && name.is_none_or(|name| leaf.verify_is_valid_for_subject_name(name).is_ok())
    }
}
