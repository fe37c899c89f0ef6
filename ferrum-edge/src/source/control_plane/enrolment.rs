//! How an edge gets its first certificate, and the next ones.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_fleet::{
    CertifiedEdge, FleetTlsError, Invitation, Link, LinkError, client_config, enrolment_config, read_edge,
    signing_request,
};
use gateway_telemetry::json::Rfc3339;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::error::{CertificateError, EdgeError};
use super::identity::{EdgeIdentity, StateFolder, digest};
use super::options::EdgeOptions;

/// How often an edge asks a control plane that is busy with the enrolment of others, each time for up to ten seconds.
const MAX_TRIES: u32 = 30;
/// Between two of these.
const PAUSE: Duration = Duration::from_secs(2);

/// The identity that is there, else the one that an invitation gives. An invitation other than the one that gave the identity
/// replaces it: the edge was revoked or removed, or belongs to another control plane now.
pub(super) async fn identity(folder: &StateFolder, options: &EdgeOptions) -> Result<EdgeIdentity, EdgeError> {
    let known = folder.identity()?;
    let (known, invitation) = match (known, &options.invitation) {
        (Some(known), None) => return Ok(known),
        (None, None) => return Err(EdgeError::NotEnrolled),
        (Some(known), Some(invitation)) if !is_new(&known, invitation) => return Ok(known),
        (known, Some(invitation)) => (known, invitation),
    };
    match (enrol(folder, invitation).await, known) {
        (Err(error), Some(known)) => {
            tracing::error!(%error, edge = known.edge, "the new invitation is of no use; the edge keeps its identity");
            Ok(known)
        }
        (enrolled, _) => Ok(enrolled?),
    }
}

/// Whether an invitation is another one than the identity is from. Of an identity of an earlier version that is not known, and
/// it stays.
fn is_new(known: &EdgeIdentity, invitation: &Invitation) -> bool {
    known.invitation.as_ref().is_some_and(|used| *used != digest(invitation))
}

async fn enrol(folder: &StateFolder, invitation: &Invitation) -> Result<EdgeIdentity, CertificateError> {
    let (key, request) = signing_request()?;
    let link = Link::connect(&invitation.address, enrolment_config(&invitation.pin)?).await?;
    let mut tries = 1;
    let given = loop {
        match link.enrol(&invitation.code, &request, env!("CARGO_PKG_VERSION")).await {
            Err(LinkError::Busy(reason)) if tries < MAX_TRIES => {
                tracing::info!(reason, "this edge waits to be enrolled");
                tries += 1;
                tokio::time::sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
            }
            given => break given?,
        }
    };
    let identity = EdgeIdentity::new(given, key, invitation)?;
    folder.keep(&identity)?;
    tracing::info!(edge = identity.edge, group = identity.group, "this edge is enrolled");
    Ok(identity)
}

/// What an edge connects by.
pub(super) fn tls(identity: &EdgeIdentity) -> Result<Arc<ClientConfig>, FleetTlsError> {
    client_config(&identity.certificate, &identity.key, &identity.roots)
}

/// What its certificate says.
pub(super) fn certificate(identity: &EdgeIdentity) -> Result<CertifiedEdge, CertificateError> {
    let der = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    Ok(read_edge(&der)?)
}

/// Whether a third of a certificate's time is over.
pub(super) fn is_due(certificate: &CertifiedEdge) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let third = certificate.not_after.saturating_sub(certificate.not_before) / 3;
    now >= certificate.not_before + third
}

/// Tells of a certificate that has ended: no control plane accepts it, whatever it answers.
pub(super) fn ended(identity: &EdgeIdentity) -> Option<String> {
    let ends = UNIX_EPOCH + Duration::from_secs(certificate(identity).ok()?.not_after);
    let message = || {
        format!(
            "the certificate of this edge ended at {}; invite it again (`ferrum-edge fleet invite --again {}`), or correct the clock of \
             this machine",
            Rfc3339(ends),
            identity.edge
        )
    };
    (ends < SystemTime::now()).then(message)
}

/// Another certificate by a new key.
pub(super) async fn renewed(link: &Link, identity: &EdgeIdentity) -> Result<EdgeIdentity, CertificateError> {
    let (key, request) = signing_request()?;
    let given = link.renew(&request).await?;
    let mut renewed = identity.clone();
    (renewed.group, renewed.certificate, renewed.roots, renewed.key) =
        (given.group, given.certificate, given.roots, key);
    tls(&renewed)?;
    Ok(renewed)
}
