//! Who may use the admin API: static tokens and HS256 tokens, each with a role.

pub(crate) mod environment;
pub(crate) mod grants;
pub(crate) mod kept_token;
#[cfg(feature = "console")]
pub(crate) mod passkey;
#[cfg(feature = "console")]
pub(crate) mod password;
#[cfg(any(feature = "cli", feature = "console"))]
pub(crate) mod password_hash;
#[cfg(feature = "console")]
pub(crate) mod totp;

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::{constant_time, digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};

use grants::Grants;

/// What somebody may do; each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read everything but secrets.
    Read,
    /// Change objects.
    Write,
    /// Export with sealed secrets, import, roll back.
    Admin,
}

/// Bytes a shared secret must have: as many as HMAC-SHA-256 gives (RFC 7518 §3.2).
const MIN_SECRET_BYTES: usize = 32;
/// Bytes a static token must have.
const MIN_TOKEN_BYTES: usize = 16;
/// Longer ones are refused unread.
const MAX_BEARER_BYTES: usize = 8192;
/// How those come who send a request.
const ADMIN_API: &str = "admin-api";
/// Seconds by which clocks may differ.
const LEEWAY: f64 = 30.0;

/// Who may use the admin API. Nobody, until something is added.
#[derive(Clone, Default)]
pub struct Access {
    tokens: Vec<StaticToken>,
    jwt: Option<Jwt>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({} static tokens, HS256: {})", self.tokens.len(), self.jwt.is_some())
    }
}

#[derive(Clone)]
struct StaticToken {
    digest: [u8; digest::SHA256_OUTPUT_LEN],
    role: Role,
    name: Arc<str>,
    source: &'static str,
}

#[derive(Clone)]
struct Jwt {
    key: hmac::Key,
    issuer: Option<String>,
}

/// Why a credential can't be one.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Too easily guessed.
    #[error("it has {bytes} bytes, fewer than {least}; generate a longer random one")]
    Short {
        /// As given.
        bytes: usize,
        /// As needed.
        least: usize,
    },
}

/// Somebody who may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    /// `admin-api`, `console` or `command-line`.
    pub(crate) source: &'static str,
    /// Whether the name is one person's: a user's or the subject of a JWT. Static tokens and sockets are the operator's.
    pub(crate) is_person: bool,
    /// For what objects the role counts; `None` for all.
    pub(crate) grants: Option<Arc<Grants>>,
}

impl Caller {
    /// The user of this id, who owns the Unix socket of the admin API.
    pub(crate) fn socket_owner(uid: u32) -> Self {
        let name = format!("uid {uid}").into();
        Self { name, role: Role::Admin, source: ADMIN_API, is_person: false, grants: None }
    }
}

impl Role {
    /// The role of a name.
    #[cfg(feature = "console")]
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Read, Self::Write, Self::Admin].into_iter().find(|role| role.as_str() == name)
    }

    /// As tokens and messages name it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl Access {
    /// Adds a static token.
    ///
    /// # Errors
    /// When it is too short.
    pub fn add_token(&mut self, token: &str, role: Role) -> Result<(), AccessError> {
        long_enough(token, MIN_TOKEN_BYTES)?;
        let name = match role {
            Role::Read => "read token",
            Role::Write => "write token",
            Role::Admin => "admin token",
        };
        self.push(token, role, name.into(), ADMIN_API);
        Ok(())
    }

    /// Adds the token of a command that works on a database itself, for the user of this name.
    ///
    /// # Errors
    /// When it is too short.
    pub(crate) fn add_command(&mut self, token: &str, user: &str) -> Result<(), AccessError> {
        long_enough(token, MIN_TOKEN_BYTES)?;
        self.push(token, Role::Admin, user.into(), "command-line");
        Ok(())
    }

    fn push(&mut self, token: &str, role: Role, name: Arc<str>, source: &'static str) {
        self.tokens.push(StaticToken { digest: sha256(token.as_bytes()), role, name, source });
    }

    /// Takes HS256 tokens (RFC 7519) keyed by `secret`, with the claims `sub`, `exp` and `role` (`read`, `write` or
    /// `admin`), and perhaps `grants`, which narrow the role to some objects; also `iss`, when an issuer is given.
    ///
    /// # Errors
    /// When the secret is too short.
    pub fn set_jwt(&mut self, secret: &str, issuer: Option<String>) -> Result<(), AccessError> {
        long_enough(secret, MIN_SECRET_BYTES)?;
        self.jwt = Some(Jwt { key: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), issuer });
        Ok(())
    }

    /// Whether nobody may use it.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.jwt.is_none()
    }

    /// Who calls.
    ///
    /// # Errors
    /// Why that can't be told, for the caller.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, &'static str> {
        let header = headers.get(AUTHORIZATION).ok_or("Send `Authorization: Bearer` and a token")?;
        let text = header.to_str().map_err(|_| "The Authorization header is not text")?;
        let (scheme, bearer) = text.split_once(' ').ok_or("The Authorization header has no token")?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err("Send `Authorization: Bearer` and a token");
        }
        self.bearer(bearer.trim())
    }

    /// Whose token this is.
    ///
    /// # Errors
    /// Why it is nobody's, for the caller.
    pub(crate) fn bearer(&self, bearer: &str) -> Result<Caller, &'static str> {
        if bearer.len() > MAX_BEARER_BYTES {
            return Err("The token is too long");
        }
        let found = sha256(bearer.as_bytes());
        // Every token is compared, so that the time tells nothing of which one was nearly right.
        let mut caller = None;
        for token in &self.tokens {
            if constant_time::verify_slices_are_equal(&token.digest, &found).is_ok() {
                let (name, role, source) = (token.name.clone(), token.role, token.source);
                caller = Some(Caller { name, role, source, is_person: false, grants: None });
            }
        }
        match (caller, &self.jwt) {
            (Some(caller), _) => Ok(caller),
            (None, Some(jwt)) => jwt.caller(bearer),
            (None, None) => Err("Unknown token"),
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    iss: Option<String>,
    role: Option<Role>,
    grants: Option<serde_json::Value>,
}

/// Seconds since 1970 (RFC 7519 §2); a fraction of a second is cut off.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "f64")]
struct NumericDate(f64);

impl TryFrom<f64> for NumericDate {
    type Error = &'static str;

    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        if seconds.is_finite() && seconds >= 0.0 { Ok(Self(seconds.floor())) } else { Err("no date") }
    }
}

impl Jwt {
    fn caller(&self, token: &str) -> Result<Caller, &'static str> {
        const UNREADABLE: &str = "Unknown token, and not a JWT";
        let (signed, signature) = token.rsplit_once('.').ok_or(UNREADABLE)?;
        let (header, claims) = signed.split_once('.').ok_or(UNREADABLE)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| UNREADABLE)?;
        hmac::verify(&self.key, signed.as_bytes(), &signature)
            .map_err(|_| "The token's signature is wrong")?;
        let header: Header = part(header).ok_or(UNREADABLE)?;
        // Only what was verified above is believed, whatever the header says.
        if header.alg != "HS256" || header.crit.is_some() {
            return Err("Only HS256 tokens without critical extensions are taken");
        }
        let claims: Claims = part(claims).ok_or(
            "A claim of the token is of another kind: `sub` and `iss` are texts, `exp` and `nbf` seconds since 1970, \
             `role` is read, write or admin",
        )?;
        let name = claims.sub.filter(|name| !name.trim().is_empty()).ok_or("The token lacks `sub`")?;
        let ends = claims.exp.ok_or("The token lacks `exp`")?;
        let role = claims.role.ok_or("The token lacks `role` (read, write or admin)")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        if ends.0 + LEEWAY < now.floor() {
            return Err("The token has expired");
        }
        if claims.nbf.is_some_and(|begins| begins.0 > now + LEEWAY) {
            return Err("The token is not valid yet");
        }
        if self.issuer.is_some() && claims.iss != self.issuer {
            return Err("The token is of another issuer");
        }
        let grants = claims.grants.map(|written| Grants::of(written, role)).transpose();
        // What can't be read may not widen what the token is for.
        let grants = grants.map_err(|_| {
            "The token's `grants` are not valid: a list of objects with `objects` and perhaps `role`, `hosts`, `paths`, \
             `ports` and `protocols`, for the role read or write"
        })?;
        let (name, grants) = (name.into(), grants.map(Arc::new));
        Ok(Caller { name, role, source: ADMIN_API, is_person: true, grants })
    }
}

fn part<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

fn sha256(text: &[u8]) -> [u8; digest::SHA256_OUTPUT_LEN] {
    let mut out = [0; digest::SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest::digest(&digest::SHA256, text).as_ref());
    out
}

fn long_enough(text: &str, least: usize) -> Result<(), AccessError> {
    if text.len() < least { Err(AccessError::Short { bytes: text.len(), least }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
