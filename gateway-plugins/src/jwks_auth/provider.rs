//! An issuer: what it asks of its tokens, and whom they name.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::plugin::{Seat, World};
use serde_json::{Map, Value};

use super::ProviderConfig;
use super::source::{Pace, Source};
use crate::jose::jwk::KeySet;
use crate::jose::{Algorithm, Fault, Rules, Token, claims};

pub(super) struct Provider {
    pub(super) issuer: String,
    pub(super) source: Arc<Source>,
    algorithms: Vec<Algorithm>,
    rules: Rules,
    scopes: (String, Vec<String>),
    roles: (String, Vec<String>),
    caller_claim: String,
    requires_consumer: bool,
}

impl Provider {
    /// Reads what is written at `at`.
    pub(super) fn new(
        written: ProviderConfig,
        world: &World,
        ((leeway, requires_expiry), pace): ((u64, bool), Pace),
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
        problems.into_result(())?;
        let (url, option) = match (written.jwks_uri, written.discovery_url) {
            (Some(url), _) => (url, "jwks_uri"),
            (None, Some(url)) => (url, "discovery_url"),
            (None, None) => {
                let base = written.issuer.trim_end_matches('/');
                (format!("{base}/.well-known/openid-configuration"), "issuer")
            }
        };
        let place = (url.as_str(), option != "jwks_uri");
        let source =
            Source::new(world, (&written.issuer, written.ca_path), place, pace).map_err(|mut all| {
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
                audiences: written.audience.into_vec(),
                leeway,
                requires_expiry,
            },
            scopes: (written.scope_claim, written.required_scopes),
            roles: (written.role_claim, written.required_roles),
            caller_claim: written.consumer_identity_claim,
            requires_consumer: written.require_consumer,
        })
    }

    /// Whether these are still the issuer's keys.
    pub(super) fn has(&self, keys: &Arc<KeySet>) -> bool {
        self.source.keys().is_some_and(|now| Arc::ptr_eq(&now, keys))
    }

    /// Judges what a token says, all but its signature; says when it expires.
    pub(super) fn judge(&self, token: &Token<'_>, now: u64) -> Result<u64, Fault> {
        if !self.algorithms.contains(&token.algorithm) {
            return Err(Fault::Algorithm);
        }
        self.rules.judge(&token.claims, now)
    }

    /// The caller of a verified token, if it grants what is needed.
    pub(super) fn caller(&self, all: Map<String, Value>, seat: Seat<'_>) -> Result<Arc<Identity>, Fault> {
        let scopes = words(claims::find(&all, &self.scopes.0));
        let roles = words(claims::find(&all, &self.roles.0));
        let has_scopes = self.scopes.1.iter().all(|needed| scopes.contains(needed));
        let has_role = self.roles.1.is_empty() || self.roles.1.iter().any(|role| roles.contains(role));
        let name = claims::find(&all, &self.caller_claim).and_then(Value::as_str).ok_or(Fault::Claim)?;
        let identity = match seat.consumers().by_name(name) {
            Some(consumer) => Identity::clone(consumer),
            None if self.requires_consumer => return Err(Fault::Caller),
            None => Identity::external(name),
        };
        if !has_scopes || !has_role {
            return Err(Fault::Scope);
        }
        let groups = roles.into_iter().map(Arc::from).collect();
        Ok(Arc::new(Identity { claims: Some(Arc::new(all)), groups, ..identity }))
    }
}

/// The words of a claim: of a list, or of a text with spaces between them.
fn words(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::String(text)) => {
            text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
        }
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
