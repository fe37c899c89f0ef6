//! What the tests share: a gateway in this process, scripted peers on both of its sides, and its records.

pub(crate) mod censor;
pub(crate) mod collector;
pub(crate) mod dtls;
pub(crate) mod edge;
pub(crate) mod fastcgi;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod h3;
pub(crate) mod names;
pub(crate) mod php;
pub(crate) mod prometheus;
pub(crate) mod records;
pub(crate) mod redis;
pub(crate) mod rsyslog;
pub(crate) mod slapd;
pub(crate) mod standing;
pub(crate) mod stream;
pub(crate) mod talk;
pub(crate) mod tls;
pub(crate) mod wire;

use std::future::Future;
use std::time::Duration;

/// How long anything may take before a test gives up on it: no measure of speed, only an end to hanging.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for something that has to happen.
#[track_caller]
pub(crate) fn soon<F: Future>(what: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(TIMEOUT, what).await {
            Ok(output) => output,
            Err(_) => panic!("nothing happened for {TIMEOUT:?} at {caller}"),
        }
    }
}
