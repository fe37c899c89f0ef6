//! Recognises callers by signed requests: HTTP message signatures (RFC 9421), and the older `Authorization: hmac` that Kong
//! has.
//!
//! The secret is a consumer's `hmac_auth` credential; its owner signs under the username or custom id. Message signatures
//! may also be made with private keys whose public keys are in the settings. What has to be signed, how old a signature
//! may be, and whether it may be used twice is up to the settings; with `validate_request_body` the body has to be the one
//! whose digest is signed (RFC 9530). Used signatures are remembered by this gateway alone.

mod authorization;
mod digest;
mod fault;
mod keys;
mod message;
mod nonces;
mod signature;

use std::collections::HashSet;
use std::sync::Arc;

use gateway_core::config::credential::CredentialType;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Seconds};
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::Reply;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Authenticate, Claim, Family, Finding, Hooks, Need, Needs, Plugin, Seat, World};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::credential::{absent, now};
use authorization::Hash;
use digest::Digests;
use fault::SignatureError;
use keys::{PublicKey, PublicKeys};
use message::{Message, covers};
use nonces::{MAX_NONCES, Nonces, Use};

/// Settings of `hmac_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Which signatures are accepted: `message_signatures` (`Signature` and `Signature-Input`, RFC 9421) and
    /// `authorization` (`Authorization: hmac …`). Default both.
    #[schemars(length(max = 2))]
    schemes: Vec<Scheme>,
    /// Largest difference between the signature's date (`created`, or the signed `Date` or `X-Date`) and the gateway's
    /// clock, in either direction. Default 5m.
    #[schemars(range(min = 1, max = 86400))]
    clock_skew: Seconds,
    /// Hashes of the scheme `authorization`: `hmac-sha256`, `hmac-sha384`, `hmac-sha512`. Default all.
    #[schemars(length(max = 3))]
    algorithms: Vec<Hash>,
    /// What signatures of the scheme `authorization` must cover: header names, and `@request-target`, which
    /// `request-line` and `(request-target)` also satisfy. `X-Date` satisfies `date`. A date is always required.
    /// Default `[date, "@request-target", host]`.
    #[schemars(length(max = 64))]
    enforce_headers: Vec<String>,
    /// What message signatures must cover: header names and derived components such as `@method`. `@target-uri` and
    /// `@request-target` satisfy their parts. Default `["@method", "@authority", "@path", "@query"]`.
    #[schemars(length(max = 64))]
    required_components: Vec<String>,
    /// Label of the message signature to verify. Default: any valid one, of at most 4.
    signature_label: Option<String>,
    /// The `tag` of message signatures. Default any or none.
    tag: Option<String>,
    /// Public keys for message signatures, besides the secrets of consumers (`hmac-sha256`). Default none.
    #[schemars(length(max = 1000))]
    public_keys: Vec<PublicKey>,
    /// Verifies the body against a signed `Content-Digest` or `Digest` (SHA-256, SHA-512), which requests with a body
    /// must have. Default false.
    validate_request_body: bool,
    /// Size of a body to verify; a larger one gets 413. Default 1 MiB.
    max_body: Bytes,
    /// Accepts each signature once. Message signatures then require a `nonce`. After a million signatures within twice
    /// the clock skew, further requests get 503. Default false.
    replay_protection: bool,
    /// Removes the signature from the request. Default true.
    hide_credentials: bool,
    /// Username of the consumer for requests without a signature. A wrong signature is still rejected. Default none: a
    /// signature is required.
    anonymous: Option<String>,
}

/// How a request may be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scheme {
    MessageSignatures,
    Authorization,
}

impl Default for Config {
    fn default() -> Self {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        Self {
            schemes: vec![Scheme::MessageSignatures, Scheme::Authorization],
            clock_skew: Seconds(300),
            algorithms: vec![Hash::Sha256, Hash::Sha384, Hash::Sha512],
            enforce_headers: texts(&["date", "@request-target", "host"]),
            required_components: texts(&["@method", "@authority", "@path", "@query"]),
            signature_label: None,
            tag: None,
            public_keys: Vec::new(),
            validate_request_body: false,
            max_body: Bytes(1 << 20),
            replay_protection: false,
            hide_credentials: true,
            anonymous: None,
        }
    }
}

/// The plugin.
pub(crate) struct HmacAuth {
    config: Config,
    keys: PublicKeys,
    nonces: Arc<Nonces>,
    accepted: Counter,
    refused: Counter,
}

const SIGNATURE: HeaderName = HeaderName::from_static("signature");
const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");

const SIGNATURES: Metric =
    Metric::counter("ferrum_hmac_auth_signatures_total", "Signed requests by result: accepted or refused.");

/// Derived components that may have to be signed.
const DERIVED: [&str; 7] =
    ["@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query"];

/// Whether a signature can have this label, which is a key of structured fields (RFC 9651 §3.1.2).
fn is_label(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-.*".contains(&c))
}

impl Plugin for HmacAuth {
    const NAME: &'static str = "hmac_auth";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str =
        "Authenticates callers by signed requests (RFC 9421, and `Authorization: hmac`).";
    const CREDENTIAL: Option<&'static CredentialType> = Some(&keys::SECRET);
    const EXAMPLE: &'static str = include_str!("../examples/hmac_auth.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("algorithms", Need::IsByDefault("schemes", "authorization")),
        Needs::new("enforce_headers", Need::IsByDefault("schemes", "authorization")),
        Needs::new("required_components", Need::IsByDefault("schemes", "message_signatures")),
        Needs::new("signature_label", Need::IsByDefault("schemes", "message_signatures")),
        Needs::new("tag", Need::IsByDefault("schemes", "message_signatures")),
        Needs::new("public_keys", Need::IsByDefault("schemes", "message_signatures")),
        Needs::new("max_body", Need::Given(&["validate_request_body"])),
    ];
    type Config = Config;

    fn build(mut config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.schemes.is_empty() {
            problems.add("config.schemes", "no signature is accepted");
        }
        if config.algorithms.is_empty() {
            problems.add("config.algorithms", "no algorithm is accepted");
        }
        if let Some(label) = config.signature_label.as_ref().filter(|label| !is_label(label)) {
            problems.add("config.signature_label", format!("no signature has the label `{label}`")).remedy =
                Some("write small letters, digits, `_`, `-`, `.` and `*`, with a letter or `*` first".into());
        }
        names(&mut config.enforce_headers, "config.enforce_headers", &["@request-target"], &mut problems);
        names(&mut config.required_components, "config.required_components", &DERIVED, &mut problems);
        problems.into_result(())?;
        let written = std::mem::take(&mut config.public_keys);
        let count = |result| world.meters().counter(SIGNATURES, &["result"], &[result]);
        Ok(Self {
            keys: PublicKeys::read(written, "config.public_keys")?,
            nonces: world.kept("nonces", || Nonces::new(MAX_NONCES)),
            config,
            accepted: count("accepted"),
            refused: count("refused"),
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.authenticate(self);
    }
}

/// Reads names of header fields, and of what is derived from the request.
fn names(written: &mut [String], path: &str, derived: &[&str], problems: &mut Problems) {
    for (n, name) in written.iter_mut().enumerate() {
        *name = match name.as_str() {
            "x-date" | "X-Date" => "date".to_owned(),
            "request-line" | "(request-target)" => "@request-target".to_owned(),
            _ => name.to_ascii_lowercase(),
        };
        if !derived.contains(&name.as_str()) && HeaderName::from_bytes(name.as_bytes()).is_err() {
            problems.add(format!("{path}[{n}]"), format!("`{name}` can't be signed here"));
        }
    }
}

/// What was signed well: by whom, and with which digests of the body.
type Signed = (Arc<Identity>, Digests);

impl Authenticate for HmacAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let (identity, digests) = match self.verify(exchange, seat, now()) {
            Ok(signed) => signed,
            Err(SignatureError::Missing) => {
                return absent(
                    self.config.anonymous.as_deref(),
                    seat,
                    self.challenged(SignatureError::Missing),
                );
            }
            Err(fault) => return Claim::Refused(self.refusal(fault)),
        };
        if !self.config.validate_request_body {
            return Claim::Caller(self.recognised(exchange, identity));
        }
        let limit = self.config.max_body.0;
        Claim::wait(async move {
            match digest::verify(&mut exchange.body, digests, limit).await {
                Ok(()) => Finding::Caller(self.recognised(exchange, identity)),
                Err(fault) => Finding::Refused(self.refusal(fault)),
            }
        })
    }

    fn hide(&self, exchange: &mut Exchange) {
        if !self.config.hide_credentials {
            return;
        }
        exchange.remove_header(&SIGNATURE);
        exchange.remove_header(&SIGNATURE_INPUT);
        let headers = &mut exchange.request.headers;
        if headers.get(AUTHORIZATION).is_some_and(|value| authorization::parameters(value).is_some()) {
            headers.remove(AUTHORIZATION);
        }
    }
}

impl HmacAuth {
    fn refusal(&self, fault: SignatureError) -> Box<Reply> {
        self.refused.add(1);
        self.challenged(fault)
    }

    fn challenged(&self, fault: SignatureError) -> Box<Reply> {
        let mut reply = fault.reply();
        for scheme in &self.config.schemes {
            let challenge = match scheme {
                Scheme::MessageSignatures => "Signature realm=\"ferrum-edge\"",
                Scheme::Authorization => "hmac realm=\"ferrum-edge\"",
            };
            if reply.cause == gateway_core::http::reply::Cause::Unauthenticated {
                reply = reply.header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
        }
        Box::new(reply)
    }

    fn recognised(&self, exchange: &mut Exchange, identity: Arc<Identity>) -> Arc<Identity> {
        self.accepted.add(1);
        self.hide(exchange);
        identity
    }

    /// Who signed a request, at this second since 1970. All is verified but the body.
    fn verify(&self, exchange: &Exchange, seat: Seat<'_>, now: u64) -> Result<Signed, SignatureError> {
        let headers = &exchange.request.headers;
        let takes = |scheme| self.config.schemes.contains(&scheme);
        let mut older = headers.get_all(AUTHORIZATION).iter().filter_map(authorization::parameters);
        let older = (older.next().filter(|_| takes(Scheme::Authorization)), older.next());
        let newer = takes(Scheme::MessageSignatures)
            && (headers.contains_key("signature") || headers.contains_key("signature-input"));
        let message = Message::of(exchange);
        match (older, newer) {
            ((None, _), false) => Err(SignatureError::Missing),
            ((Some(parameters), None), false) => self.by_authorization(parameters, &message, seat, now),
            ((None, _), true) => self.by_signature(&message, seat, now),
            // Whichever were taken, somebody else could take the other.
            _ => Err(SignatureError::Malformed),
        }
    }

    fn by_authorization(
        &self,
        parameters: &str,
        message: &Message<'_>,
        seat: Seat<'_>,
        now: u64,
    ) -> Result<Signed, SignatureError> {
        let signed = authorization::Signed::read(parameters)?;
        if !self.config.algorithms.contains(&signed.hash) {
            return Err(SignatureError::Algorithm);
        }
        let covered = signed.covered();
        require(&covered, &self.config.enforce_headers)?;
        let second = signed.second(message).ok_or(SignatureError::Date)?;
        self.judge_date(second, now)?;
        let text = signed.text(message)?;
        let identity = keys::shared(
            &signed.username,
            signed.hash.algorithm(),
            text.as_bytes(),
            signed.signature.as_slice(),
            seat,
        )?;
        let digests = self.digests(message, &covered)?;
        self.use_once(&signed.username, &signed.signature, now)?;
        Ok((identity, digests))
    }

    fn by_signature(
        &self,
        message: &Message<'_>,
        seat: Seat<'_>,
        now: u64,
    ) -> Result<Signed, SignatureError> {
        let mut fault = SignatureError::Missing;
        for signed in signature::all(message.headers, self.config.signature_label.as_deref())? {
            match self.judge(&signed, message, seat, now) {
                Ok(good) => return Ok(good),
                // The first says why.
                Err(why) if fault == SignatureError::Missing => fault = why,
                Err(_) => {}
            }
        }
        Err(fault)
    }

    fn judge(
        &self,
        signed: &signature::Signed,
        message: &Message<'_>,
        seat: Seat<'_>,
        now: u64,
    ) -> Result<Signed, SignatureError> {
        if self.config.tag.is_some() && self.config.tag != signed.tag {
            return Err(SignatureError::Uncovered);
        }
        self.judge_date(signed.created.ok_or(SignatureError::Date)?, now)?;
        if signed.expires.is_some_and(|expires| now >= expires) {
            return Err(SignatureError::Date);
        }
        let (base, covered) = signed.base(message)?;
        require(&covered, &self.config.required_components)?;
        let identity = self.keys.verify(
            &signed.key_id,
            signed.method,
            base.as_bytes(),
            signed.signature.as_slice(),
            seat,
        )?;
        let digests = self.digests(message, &covered)?;
        if self.config.replay_protection {
            let nonce =
                signed.nonce.as_deref().filter(|nonce| !nonce.is_empty()).ok_or(SignatureError::Replay)?;
            self.use_once(&signed.key_id, nonce.as_bytes(), now)?;
        }
        Ok((identity, digests))
    }

    fn judge_date(&self, second: u64, now: u64) -> Result<(), SignatureError> {
        if second.abs_diff(now) > self.config.clock_skew.0 { Err(SignatureError::Date) } else { Ok(()) }
    }

    fn digests(&self, message: &Message<'_>, covered: &HashSet<String>) -> Result<Digests, SignatureError> {
        if !self.config.validate_request_body {
            return Ok(Vec::new());
        }
        digest::signed(message.headers, covered)
    }

    /// Refuses what was used before. A signature is good for the skew before its date and after it.
    fn use_once(&self, who: &str, what: &[u8], now: u64) -> Result<(), SignatureError> {
        if !self.config.replay_protection {
            return Ok(());
        }
        let window = self.config.clock_skew.0.saturating_mul(2).saturating_add(1);
        match self.nonces.note(who, what, window, now) {
            Use::First => Ok(()),
            Use::Again => Err(SignatureError::Replay),
            Use::Full => Err(SignatureError::Busy),
        }
    }
}

fn require(covered: &HashSet<String>, needed: &[String]) -> Result<(), SignatureError> {
    if needed.iter().all(|needed| covers(covered, needed)) { Ok(()) } else { Err(SignatureError::Uncovered) }
}

#[cfg(test)]
mod tests;
