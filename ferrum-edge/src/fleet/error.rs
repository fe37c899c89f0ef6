//! Why a control plane can't serve its fleet.

use std::io;
use std::net::SocketAddr;

use gateway_fleet::{AuthorityError, FleetTlsError};
use thiserror::Error;

use crate::store::StoreError;

/// Why a control plane can't start.
#[derive(Debug, Error)]
pub(crate) enum FleetStartError {
    #[error(
        "a control plane needs FERRUM_DB_ENCRYPTION_KEY: it encrypts the fleet's authority and what edges get; `openssl rand -base64 32` \
         makes one"
    )]
    NoKey,
    #[error("{0} ({remedy})", remedy = .0.remedy())]
    Store(#[from] StoreError),
    #[error(transparent)]
    Authority(#[from] FleetAuthorityError),
    #[error(transparent)]
    Tls(#[from] FleetTlsError),
    #[error("can't start the threads for edges' connections: {0}")]
    Threads(#[source] io::Error),
    #[error("can't listen for edges on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
}

/// Why there is no authority that could issue certificates for edges.
#[derive(Debug, Error)]
pub(crate) enum FleetAuthorityError {
    /// The operator's own one.
    #[error("FERRUM_FLEET_CA_CERT and FERRUM_FLEET_CA_KEY: {0}")]
    Own(FleetTlsError),
    #[error("the fleet's authority: {0}")]
    Store(#[from] StoreError),
    #[error("the fleet's authority: {0}")]
    Row(#[from] serde_json::Error),
    /// `FERRUM_DB_ENCRYPTION_KEY` is another one than it was encrypted with.
    #[error("the fleet's authority: its key can't be decrypted: {0}")]
    Sealed(&'static str),
    #[error("the fleet's authority: there is no key to encrypt with")]
    NoKey,
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}
