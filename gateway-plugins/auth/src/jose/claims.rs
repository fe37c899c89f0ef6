//! What the claims of a verified token must say (RFC 7519 §4.1).

pub(crate) use gateway_core::consumer::find_claim as find;
use serde_json::{Map, Value};

use super::TokenError;

/// What is asked of a token.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Accepted issuers; empty accepts any.
    pub(crate) issuers: Vec<String>,
    /// Audiences of which a token must name one; empty asks for none.
    pub(crate) audiences: Vec<String>,
    /// Claims that a token must have, and for each the values of which it must have one.
    pub(crate) claims: Vec<(String, Vec<String>)>,
    /// Seconds by which clocks may differ.
    pub(crate) leeway: u64,
    /// Refuses tokens without `exp`.
    pub(crate) requires_expiry: bool,
}

/// The first second that no token reaches.
pub(crate) const NEVER: u64 = u64::MAX;

impl Rules {
    /// Judges the claims at this second since 1970; says from which second on the token is worth nothing.
    pub(crate) fn judge(&self, claims: &Map<String, Value>, now: u64) -> Result<u64, TokenError> {
        let until = match claims.get("exp") {
            None if self.requires_expiry => return Err(TokenError::Claim),
            None => NEVER,
            Some(expiry) => second(expiry)?.saturating_add(self.leeway),
        };
        if now >= until {
            return Err(TokenError::Expired);
        }
        if let Some(start) = claims.get("nbf")
            && second(start)? > now.saturating_add(self.leeway)
        {
            return Err(TokenError::NotYetValid);
        }
        if !self.issuers.is_empty() {
            let issuer = claims.get("iss").and_then(Value::as_str).ok_or(TokenError::Issuer)?;
            if !self.issuers.iter().any(|known| known == issuer) {
                return Err(TokenError::Issuer);
            }
        }
        if !self.audiences.is_empty() && !self.is_audience(claims.get("aud")) {
            return Err(TokenError::Audience);
        }
        if !self.claims.iter().all(|(name, values)| has_one(find(claims, name), values)) {
            return Err(TokenError::Claim);
        }
        Ok(until)
    }

    fn is_audience(&self, named: Option<&Value>) -> bool {
        let is_ours = |name: &str| self.audiences.iter().any(|ours| ours == name);
        match named {
            Some(Value::String(name)) => is_ours(name),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(is_ours),
            _ => false,
        }
    }
}

/// Whether a claim is one of these values, or a list with one of them. Numbers and booleans are compared as JSON writes them.
fn has_one(claim: Option<&Value>, values: &[String]) -> bool {
    match claim {
        Some(Value::String(text)) => values.contains(text),
        Some(Value::Array(list)) => {
            list.iter().filter_map(Value::as_str).any(|text| values.iter().any(|value| value == text))
        }
        Some(other @ (Value::Bool(_) | Value::Number(_))) => values.contains(&other.to_string()),
        Some(Value::Null | Value::Object(_)) | None => false,
    }
}

/// A NumericDate in whole seconds; a date before 1970 is 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, as it should"
)]
fn second(date: &Value) -> Result<u64, TokenError> {
    match date {
        Value::Number(number) => {
            let fraction = || number.as_f64().map(|date| date as u64);
            number.as_u64().or_else(fraction).ok_or(TokenError::Malformed)
        }
        _ => Err(TokenError::Malformed),
    }
}
