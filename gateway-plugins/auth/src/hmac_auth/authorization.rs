//! The older scheme: `Authorization: hmac username="…", algorithm="…", headers="…", signature="…"`, as Kong has it.

use std::collections::HashSet;
use std::time::UNIX_EPOCH;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fault::SignatureError;
use super::message::Message;

/// Header fields that one signature may cover.
const MAX_FIELDS: usize = 64;

/// A hash that signatures may be made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Hash {
    #[serde(rename = "hmac-sha256")]
    Sha256,
    #[serde(rename = "hmac-sha384")]
    Sha384,
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

impl Hash {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "hmac-sha256" => Self::Sha256,
            "hmac-sha384" => Self::Sha384,
            "hmac-sha512" => Self::Sha512,
            _ => return None,
        })
    }

    pub(super) fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// What follows the scheme, if it is this one.
pub(super) fn parameters(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?;
    let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
    scheme.eq_ignore_ascii_case("hmac").then_some(rest)
}

/// A signature of this scheme, not verified yet.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) username: String,
    pub(super) hash: Hash,
    pub(super) signature: Vec<u8>,
    /// The names that are signed, in their order.
    names: Vec<String>,
}

impl Signed {
    pub(super) fn read(parameters: &str) -> Result<Self, SignatureError> {
        let (mut username, mut hash, mut names, mut signature) = (None, None, None, None);
        let mut rest = parameters.trim();
        while !rest.is_empty() {
            let (name, value, after) = parameter(rest).ok_or(SignatureError::Malformed)?;
            rest = after;
            let place = match name {
                "username" => &mut username,
                "algorithm" => &mut hash,
                "headers" => &mut names,
                "signature" => &mut signature,
                _ => return Err(SignatureError::Malformed),
            };
            if place.replace(value).is_some() {
                return Err(SignatureError::Malformed);
            }
        }
        let (Some(username), Some(hash), Some(signature)) = (username, hash, signature) else {
            return Err(SignatureError::Malformed);
        };
        let names: Vec<String> =
            names.unwrap_or("date").split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
        if username.is_empty() || names.is_empty() || names.len() > MAX_FIELDS {
            return Err(SignatureError::Malformed);
        }
        Ok(Self {
            username: username.to_owned(),
            hash: Hash::named(hash).ok_or(SignatureError::Algorithm)?,
            signature: STANDARD.decode(signature).map_err(|_| SignatureError::Malformed)?,
            names,
        })
    }

    /// What is signed.
    pub(super) fn text(&self, message: &Message<'_>) -> Result<String, SignatureError> {
        let line = |name: &String| match name.as_str() {
            "request-line" => Ok(message.line()),
            "@request-target" | "(request-target)" => {
                Ok(format!("{name}: {} {}", message.method.to_ascii_lowercase(), message.target()))
            }
            name => {
                let value = message.field(name).ok_or(SignatureError::Uncovered)?;
                Ok(format!("{name}: {value}"))
            }
        };
        let lines: Result<Vec<String>, SignatureError> = self.names.iter().map(line).collect();
        Ok(lines?.join("\n"))
    }

    /// The names that are signed; the three spellings of the request's target are one.
    pub(super) fn covered(&self) -> HashSet<String> {
        let name = |name: &String| match name.as_str() {
            "request-line" | "(request-target)" => "@request-target".to_owned(),
            "x-date" => "date".to_owned(),
            name => name.to_owned(),
        };
        self.names.iter().map(name).collect()
    }

    /// The second since 1970 of its signed date: `X-Date`, else `Date`.
    pub(super) fn second(&self, message: &Message<'_>) -> Option<u64> {
        let name = ["x-date", "date"].into_iter().find(|name| self.names.iter().any(|it| it == name))?;
        let date = httpdate::parse_http_date(&message.field(name)?).ok()?;
        date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
    }
}

/// Name and value of the first parameter, and what is left after its comma.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    let (value, after) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?,
        None => rest.split_at_checked(rest.find(',').unwrap_or(rest.len()))?,
    };
    let after = after.trim_start();
    let after = match after.strip_prefix(',') {
        Some(next) => next.trim_start(),
        None if after.is_empty() => "",
        None => return None,
    };
    (!value.contains('\\')).then_some((name.trim(), value.trim(), after))
}
