//! Whom an issuer vouches for, and whether that is enough here.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::plugin::Seat;
use serde_json::{Map, Value};

use crate::jose::TokenError;
use crate::jose::claims::find;

/// What is asked of claims, and where in them the caller is named.
#[derive(Debug)]
pub(crate) struct Grants {
    /// The claim with the scopes, and those that are needed, every one.
    pub(crate) scopes: (String, Vec<String>),
    /// The claim with the roles, and those of which one is needed.
    pub(crate) roles: (String, Vec<String>),
    /// Claims that name the caller; the first that is there counts.
    pub(crate) caller_claims: Vec<String>,
    /// Refuses callers who are no consumers.
    pub(crate) requires_consumer: bool,
}

impl Grants {
    /// Says what can never be met, in settings under `path`.
    pub(crate) fn check(&self, path: &str, problems: &mut Problems) {
        // Scopes are words: of a list, or of a text with spaces between them.
        for (n, scope) in self.scopes.1.iter().enumerate() {
            if scope.is_empty() || scope.contains(' ') {
                problems
                    .add(format!("{path}.required_scopes[{n}]"), format!("no token has the scope `{scope}`"))
                    .remedy = Some("write one scope, without spaces".into());
            }
        }
        for (n, role) in self.roles.1.iter().enumerate().filter(|(_, role)| role.is_empty()) {
            problems.add(format!("{path}.required_roles[{n}]"), format!("no token has the role `{role}`"));
        }
        for (name, claim) in [("scope_claim", &self.scopes.0), ("role_claim", &self.roles.0)] {
            if claim.is_empty() {
                problems.add(format!("{path}.{name}"), "no claim has an empty name");
            }
        }
    }

    /// The caller of verified claims, if they grant what is needed.
    pub(crate) fn caller(
        &self,
        all: Map<String, Value>,
        seat: Seat<'_>,
    ) -> Result<Arc<Identity>, TokenError> {
        let scopes = words(find(&all, &self.scopes.0));
        let roles = words(find(&all, &self.roles.0));
        let has_scopes = self.scopes.1.iter().all(|needed| scopes.contains(needed));
        let has_role = self.roles.1.is_empty() || self.roles.1.iter().any(|role| roles.contains(role));
        let named = self.caller_claims.iter().find_map(|claim| find(&all, claim));
        // A name that is blank, or can't be a header's value, would reach targets as nobody's.
        let is_name = |name: &&str| !name.trim().is_empty() && !name.contains(char::is_control);
        let name = named.and_then(Value::as_str).filter(is_name).ok_or(TokenError::Claim)?;
        let identity = match seat.consumers().by_name(name) {
            Some(consumer) => Identity::clone(consumer),
            None if self.requires_consumer => return Err(TokenError::Caller),
            None => Identity::external(name),
        };
        if !has_scopes || !has_role {
            return Err(TokenError::Scope);
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
