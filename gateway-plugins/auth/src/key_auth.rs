//! Recognises consumers by a key they send in a header, the query or a cookie.
//!
//! The key is one of the consumer's `key_auth` credentials; several may be valid at a time, so that a key can be
//! replaced without a gap. It is taken out of the request before the target sees it.

use std::sync::Arc;

use gateway_core::config::credential::{AtRest, CredentialType, any_text};
use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Authenticate, Claim, Family, Foreseen, Foresight, Hooks, Plugin, Seat, World};
use gateway_plugin_common::one_or_many::OneOrMany;
use http::HeaderValue;
use http::header::WWW_AUTHENTICATE;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::credential::absent;
use crate::credential::place::{CredentialLocations, CredentialLookup};

/// Settings of `key_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Where the key is: `header:NAME`, `query:NAME`, `cookie:NAME`, or a list of these. `header:Authorization` means
    /// `Authorization: Bearer KEY`. A request with two keys is rejected. Default `header:X-API-Key`.
    key_location: OneOrMany,
    /// Removes the key from the request, so that targets and their logs do not contain it. Default true.
    hide_credentials: bool,
    /// Username of the consumer for requests without a key. A wrong key is still rejected. Default none: a key is
    /// required.
    anonymous: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            key_location: OneOrMany::One("header:X-API-Key".into()),
            hide_credentials: true,
            anonymous: None,
        }
    }
}

/// The plugin.
pub(crate) struct KeyAuth {
    places: CredentialLocations,
    hide: bool,
    anonymous: Option<String>,
}

/// A key, which is to be made at random: its hash without salt is what finds its consumer.
static KEY: CredentialType = CredentialType {
    name: "key_auth",
    aliases: &["keyauth"],
    key: "key",
    instead: &["key_sha256"],
    optional: &[],
    check: any_text,
    min_bytes: 1,
    is_unique: true,
    at_rest: AtRest::Hashed("key_sha256"),
};

/// Longer keys are refused unseen.
const MAX_KEY: usize = 4096;

impl Plugin for KeyAuth {
    const NAME: &'static str = "key_auth";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str = "Authenticates consumers by a key in a header, the query or a cookie.";
    const CREDENTIAL: Option<&'static CredentialType> = Some(&KEY);
    const EXAMPLE: &'static str = include_str!("../examples/key_auth.yaml");
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let places = CredentialLocations::read(config.key_location.into_vec(), "config.key_location")?;
        Ok(Self { places, hide: config.hide_credentials, anonymous: config.anonymous })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.places.hide(hooks);
        hooks.authenticate(self);
    }

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        Some(match self.claim(foresight.exchange, foresight.seat) {
            Claim::Caller(identity) | Claim::Anonymous(identity) => Foreseen::Caller(identity),
            Claim::Absent(Some(reply)) => Foreseen::Absent(reply),
            Claim::Refused(reply) => Foreseen::Refuses(reply, "no consumer has this key".into()),
            Claim::Absent(None) | Claim::Wait(_) => return None,
        })
    }
}

impl Authenticate for KeyAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let claim = self.claim(exchange, seat);
        if self.hide && matches!(claim, Claim::Caller(_)) {
            self.places.take_out(exchange);
        }
        claim
    }

    fn hide(&self, exchange: &mut Exchange) {
        if self.hide {
            self.places.take_out(exchange);
        }
    }
}

impl KeyAuth {
    fn claim<'a>(&self, exchange: &Exchange, seat: Seat<'a>) -> Claim<'a> {
        let owner = match self.places.find(exchange) {
            CredentialLookup::Nothing => {
                return absent(self.anonymous.as_deref(), seat, refusal("a key is required"));
            }
            CredentialLookup::One(key) if (1..=MAX_KEY).contains(&key.len()) => {
                seat.consumers().by_credential(&KEY, &key)
            }
            // Two keys: whichever is taken, somebody else may take the other.
            CredentialLookup::One(_) | CredentialLookup::Several => None,
        };
        let Some(owner) = owner else {
            return Claim::Refused(refusal("the key is not valid"));
        };
        Claim::Caller(owner.clone())
    }
}

fn refusal(detail: &'static str) -> Box<Reply> {
    let challenge = HeaderValue::from_static("ApiKey realm=\"ferrum-edge\"");
    Box::new(Reply::new(Cause::Unauthenticated).detail(detail).header(WWW_AUTHENTICATE, challenge))
}

#[cfg(test)]
mod tests;
