//! What the authentication plugins have in common: where credentials are, and a cache of those that were checked.

pub(crate) mod basic;
pub(crate) mod bearer;
pub(crate) mod checked;
pub(crate) mod grants;
pub(crate) mod headers;
pub(crate) mod place;
pub(crate) mod revoked;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::config::problem::Problems;
use gateway_core::consumer::{Consumers, Identity, Standing};
use gateway_core::http::reply::Reply;
use gateway_core::plugin::{Claim, Seat};
use gateway_plugin_common::one_or_many::OneOrMany;

/// The texts of a setting that may be matched: an empty one matches nothing, and would be what an empty variable leaves.
pub(crate) fn texts(path: &str, written: OneOrMany, problems: &mut Problems) -> Vec<String> {
    let texts = written.into_vec();
    if texts.iter().any(String::is_empty) {
        problems.add(path, "is empty").remedy = Some("write what is accepted, or leave it out".into());
    }
    texts
}

/// The setting `required_claims` at `path`: claims by name, and the values of which one is needed.
pub(crate) fn required_claims(
    path: &str,
    written: BTreeMap<String, OneOrMany>,
    problems: &mut Problems,
) -> Vec<(String, Vec<String>)> {
    let read = written.into_iter().map(|(name, values)| {
        let place = format!("{path}.{name}");
        if name.is_empty() {
            problems.add(path, "no claim has an empty name");
        }
        let values = texts(&place, values, problems);
        if values.is_empty() {
            problems.add(place, "no value is accepted");
        }
        (name, values)
    });
    read.collect()
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The answer for a request without a credential: the anonymous consumer where one is named, otherwise `refusal`. A
/// named consumer that does not exist lets nobody in.
pub(crate) fn absent<'a>(anonymous: Option<&str>, seat: Seat<'a>, refusal: Box<Reply>) -> Claim<'a> {
    match anonymous.and_then(|name| seat.consumers().by_name(name)) {
        Some(consumer) => Claim::Anonymous(consumer.clone()),
        None => Claim::Absent(Some(refusal)),
    }
}

/// For as long as a credential is good by itself.
#[derive(Debug)]
pub(crate) struct ExpiryStanding {
    /// The second since 1970 from which on it is not.
    pub(crate) until: u64,
}

impl Standing for ExpiryStanding {
    fn holds(&self, _consumers: &Consumers) -> bool {
        now() < self.until
    }
}

/// Whether the consumer of an identity is still the one that is configured under its name, or there is still none.
pub(crate) fn is_current(identity: &Arc<Identity>, seat: Seat<'_>) -> bool {
    let Some(consumer) = &identity.consumer else {
        return seat.consumers().by_name(&identity.name).is_none();
    };
    let known = seat.consumers().by_id(consumer.id.as_str()).and_then(|known| known.consumer.as_ref());
    known.is_some_and(|known| Arc::ptr_eq(known, consumer))
}
