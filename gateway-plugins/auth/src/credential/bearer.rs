//! Tokens in requests: where they are, what targets are told of them, and which are worth nothing any more. What `jwt_auth`,
//! `jwks_auth` and `oauth2_introspection` have in common.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::{Claim, Hooks, Seat, World};
use gateway_plugin_common::one_or_many::OneOrMany;
use schemars::JsonSchema;
use serde::Deserialize;

use super::absent;
use super::headers::ClaimHeaders;
use super::place::{CredentialLocations, CredentialLookup};
use super::revoked::Revoked;
use crate::jose::fault;

/// Where the token is, and what targets receive of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct BearerSettings {
    /// Where the token is: `header:NAME`, `query:NAME`, `cookie:NAME`, or a list of these. `header:Authorization` means
    /// `Authorization: Bearer TOKEN`. A request with two tokens is rejected. Default `header:Authorization`.
    token_lookup: OneOrMany,
    /// Header fields that targets receive, by claim: `{sub: X-User-Id, realm_access.roles: X-Roles}`. The gateway
    /// removes these fields from client requests. Elements of lists are separated by commas. Default none.
    claims_to_headers: BTreeMap<String, String>,
    /// Removes the token from the request, so that targets do not receive it. Default false.
    hide_credentials: bool,
    /// Username of the consumer for requests without a token. A wrong token is still rejected. Default none: a token is
    /// required.
    anonymous: Option<String>,
}

impl Default for BearerSettings {
    fn default() -> Self {
        Self {
            token_lookup: OneOrMany::One("header:Authorization".into()),
            claims_to_headers: BTreeMap::new(),
            hide_credentials: false,
            anonymous: None,
        }
    }
}

/// Checks of a signed token besides its signature, and how long the result is cached.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct SignedSettings {
    /// Largest difference between the clocks of issuer and gateway. Default 1m, at most 300.
    #[schemars(range(max = 300))]
    pub(crate) leeway: Seconds,
    /// Rejects tokens that never expire. Default true.
    pub(crate) require_exp: bool,
    /// Verified tokens that each worker caches until they expire, so that their signatures are not verified again. A
    /// changed consumer and new keys of an issuer take effect at once. 0 disables the cache. Default 1000.
    #[schemars(range(max = 1_000_000))]
    pub(crate) cached_tokens: u32,
    /// IDs (`jti`) of tokens to reject, also if they are cached. Default none.
    #[schemars(length(max = 10_000))]
    #[schemars(extend("format" = "secret"))]
    revoked_tokens: Vec<String>,
    /// Files with more token IDs, one per line; `#` begins a comment. Default none.
    #[schemars(length(max = 100))]
    #[schemars(extend("format" = "path"))]
    revoked_token_files: Vec<PathBuf>,
    /// How often the gateway checks these files for changes. At least 1 s. Default 10 s.
    #[schemars(range(min = 1))]
    revocation_refresh: Seconds,
}

impl Default for SignedSettings {
    fn default() -> Self {
        Self {
            leeway: Seconds(60),
            require_exp: true,
            cached_tokens: 1000,
            revoked_tokens: Vec::new(),
            revoked_token_files: Vec::new(),
            revocation_refresh: Seconds(10),
        }
    }
}

impl SignedSettings {
    /// The tokens that are revoked.
    pub(crate) fn revoked(self, world: &World) -> Result<Revoked, Problems> {
        Revoked::read(world, self.revoked_tokens, self.revoked_token_files, self.revocation_refresh)
    }
}

/// Tokens in requests, by checked settings.
#[derive(Debug)]
pub(crate) struct Bearer {
    places: CredentialLocations,
    headers: ClaimHeaders,
    hide: bool,
    anonymous: Option<String>,
}

/// The caller whom a plugin recognised, until its targets are told.
struct Recognised(Arc<Identity>);

impl Bearer {
    /// Checks settings.
    pub(crate) fn read(settings: BearerSettings) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let places = CredentialLocations::read(settings.token_lookup.into_vec(), "config.token_lookup");
        let headers = ClaimHeaders::read(settings.claims_to_headers, "config.claims_to_headers");
        match (places, headers) {
            (Ok(places), Ok(headers)) => {
                Ok(Self { places, headers, hide: settings.hide_credentials, anonymous: settings.anonymous })
            }
            (places, headers) => {
                problems.extend(places.err().into_iter().chain(headers.err()).flat_map(|more| more.0));
                Err(problems)
            }
        }
    }

    /// Declares which query parameters hold tokens, so that logs don't show them, and which header fields hold claims.
    pub(crate) fn declare(&self, hooks: &mut Hooks) {
        self.places.hide(hooks);
        self.headers.declare(hooks);
    }

    /// Whether targets are told anything of tokens.
    pub(crate) fn tells(&self) -> bool {
        !self.headers.is_empty()
    }

    /// The token of a request.
    pub(crate) fn find<'e>(&self, exchange: &'e Exchange) -> CredentialLookup<'e> {
        self.places.find(exchange)
    }

    /// What becomes of a request without one.
    pub(crate) fn missing<'a>(&self, seat: Seat<'a>) -> Claim<'a> {
        absent(self.anonymous.as_deref(), seat, fault::missing())
    }

    /// Notes who the caller is.
    pub(crate) fn recognised(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
        identity: Arc<Identity>,
    ) -> Arc<Identity> {
        self.take_out(exchange);
        if self.tells() {
            exchange.state.put(seat, Recognised(identity.clone()));
        }
        identity
    }

    /// Takes tokens out of a request, where the settings say so.
    pub(crate) fn take_out(&self, exchange: &mut Exchange) {
        if self.hide {
            self.places.take_out(exchange);
        }
    }

    /// Tells the target what the claims say. Whom another plugin recognised has none here: what a client sends under these names
    /// is removed all the same.
    pub(crate) fn tell(&self, exchange: &mut Exchange, seat: Seat<'_>) {
        let claims = exchange.state.of::<Recognised>(seat).and_then(|it| it.0.claims.clone());
        self.headers.set(exchange, claims.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use gateway_plugin_common::testing::Machine;

    #[test]
    fn files_with_revoked_tokens_are_looked_at_as_often_as_the_settings_say() {
        let machine = Machine::default();
        machine.files.put("revoked", "a\n");
        for (refresh, expected) in [(None, 10), (Some(3), 3)] {
            let mut settings = json!({ "revoked_token_files": ["revoked"] });
            if let Some(refresh) = refresh {
                settings["revocation_refresh"] = refresh.into();
            }
            let settings: SignedSettings = serde_json::from_value(settings).expect("settings");
            let revoked = settings.revoked(&machine.world()).unwrap_or_else(|problems| panic!("{problems}"));
            assert_eq!(revoked.every(), Duration::from_secs(expected));
        }
    }
}
