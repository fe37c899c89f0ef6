//! An issuer: what it asks of its tokens, and whom they name.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::plugin::{Seat, World};
use serde_json::{Map, Value};

use super::ProviderConfig;
use super::source::{Pace, Source};
use crate::credential::bearer::SignedSettings;
use crate::credential::grants::Grants;
use crate::credential::{required_claims, texts};
use crate::jose::jwk::KeySet;
use crate::jose::{Algorithm, Rules, Token, TokenError};

pub(super) struct Provider {
    pub(super) issuer: String,
    pub(super) source: Arc<Source>,
    algorithms: Vec<Algorithm>,
    rules: Rules,
    grants: Grants,
}

impl Provider {
    /// Reads what is written at `at`.
    pub(super) fn new(
        written: ProviderConfig,
        world: &World,
        signed: &SignedSettings,
        pace: Pace,
        at: &str,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if written.issuer.is_empty() {
            problems.add(format!("{at}.issuer"), "`issuer` is missing");
        }
        if written.algorithms.is_empty() {
            problems.add(format!("{at}.algorithms"), "no algorithm is accepted");
        }
        if written.algorithms.iter().any(|name| name.is_symmetric()) {
            problems
                .add(format!("{at}.algorithms"), "an issuer's keys are public: HS algorithms can't be used");
        }
        if written.jwks_uri.is_some() && written.discovery_url.is_some() {
            let message = "only one of `jwks_uri` and `discovery_url` may be given";
            problems.add(format!("{at}.discovery_url"), message);
        }
        if written.consumer_identity_claim.is_empty() {
            problems.add(format!("{at}.consumer_identity_claim"), "no claim has an empty name");
        }
        let audiences = texts(&format!("{at}.audience"), written.audience, &mut problems);
        let claims =
            required_claims(&format!("{at}.required_claims"), written.required_claims, &mut problems);
        let grants = Grants {
            scopes: (written.scope_claim, written.required_scopes),
            roles: (written.role_claim, written.required_roles),
            caller_claims: vec![written.consumer_identity_claim],
            requires_consumer: written.require_consumer,
        };
        grants.check(at, &mut problems);
        problems.into_result(())?;
        let (url, option) = match (written.jwks_uri, written.discovery_url) {
            (Some(url), _) => (url, "jwks_uri"),
            (None, Some(url)) => (url, "discovery_url"),
            (None, None) => {
                let base = written.issuer.trim_end_matches('/');
                (format!("{base}/.well-known/openid-configuration"), "issuer")
            }
        };
        let source = Source::new(world, &written.issuer, written.ca_path, &url, option != "jwks_uri", pace)
            .map_err(|mut all| {
            all.0.iter_mut().for_each(|problem| problem.path = format!("{at}.{option}"));
            all
        })?;
        Ok(Self {
            issuer: written.issuer,
            source: Arc::new(source),
            algorithms: written.algorithms,
            rules: Rules {
                // The issuer is what this provider was found by.
                issuers: Vec::new(),
                audiences,
                claims,
                leeway: signed.leeway.0,
                requires_expiry: signed.require_exp,
            },
            grants,
        })
    }

    /// Whether these are still the issuer's keys.
    pub(super) fn has(&self, keys: &Arc<KeySet>) -> bool {
        self.source.keys().is_some_and(|now| Arc::ptr_eq(&now, keys))
    }

    /// Judges what a token says, all but its signature; says when it expires.
    pub(super) fn judge(&self, token: &Token<'_>, now: u64) -> Result<u64, TokenError> {
        if !self.algorithms.contains(&token.algorithm) {
            return Err(TokenError::Algorithm);
        }
        self.rules.judge(&token.claims, now)
    }

    /// The caller of a verified token, if it grants what is needed.
    pub(super) fn caller(
        &self,
        all: Map<String, Value>,
        seat: Seat<'_>,
    ) -> Result<Arc<Identity>, TokenError> {
        self.grants.caller(all, seat)
    }
}
