//! TLS: what is shown to clients, and how targets are judged. One crypto provider, aws-lc-rs, named everywhere.

pub mod challenge;
pub mod client;
pub mod early;
mod failure;
mod key_pair;
pub(crate) mod names;
pub(crate) mod own_root;
pub mod pem;
pub mod server;
mod sessions;
mod stand_in;
pub(crate) mod tickets;
pub mod trust;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub(crate) use failure::{handshake_failure, is_about_certificate, preventing_setting, refusal, remedy};

/// The one crypto provider, made once.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    PROVIDER.clone()
}
