//! User names and passwords in requests (RFC 7617), for the plugins that check them.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue};

/// What clients are told.
pub(crate) struct Answers {
    challenge: HeaderValue,
    hide: bool,
}

impl Answers {
    /// For this realm; what is wrong with it goes to `problems`. `hide` takes passwords out of requests.
    pub(crate) fn new(realm: &str, hide: bool, problems: &mut Problems) -> Option<Self> {
        let is_plain = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
        let value = HeaderValue::try_from(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
        let value = value.ok().filter(|_| realm.chars().all(is_plain));
        if value.is_none() {
            problems.add("config.realm", "only printable ASCII without quotes is possible here");
        }
        value.map(|challenge| Self { challenge, hide })
    }

    /// The password is right: the request goes on as this caller's.
    pub(crate) fn recognised(&self, exchange: &mut Exchange, identity: Arc<Identity>) -> Arc<Identity> {
        self.take_out(exchange);
        identity
    }

    /// Takes passwords out of a request, where the settings say so. Another scheme is another plugin's, and stays.
    pub(crate) fn take_out(&self, exchange: &mut Exchange) {
        let headers = &mut exchange.request.headers;
        if self.hide && headers.get_all(AUTHORIZATION).iter().any(|value| basic(value).is_some()) {
            headers.remove(AUTHORIZATION);
        }
    }

    /// There is no password.
    pub(crate) fn missing(&self) -> Box<Reply> {
        self.refusal("password_missing", "a user name and a password are required")
    }

    /// There is something else.
    pub(crate) fn malformed(&self) -> Box<Reply> {
        self.refusal("credentials_malformed", "the credentials are malformed")
    }

    /// There is no such user, or it is not the user's password.
    pub(crate) fn wrong(&self) -> Box<Reply> {
        self.refusal("password_wrong", "the user name or the password is wrong")
    }

    /// The password could not be checked: 503.
    pub(crate) fn unavailable(reason: &'static str, detail: &'static str) -> Box<Reply> {
        let reply = Reply::new(Cause::Overloaded).reason(reason).detail(detail);
        Box::new(reply.header(RETRY_AFTER, HeaderValue::from_static("1")))
    }

    fn refusal(&self, reason: &'static str, detail: &'static str) -> Box<Reply> {
        let reply = Reply::new(Cause::Unauthenticated).detail(detail).reason(reason);
        Box::new(reply.header(WWW_AUTHENTICATE, self.challenge.clone()))
    }
}

/// What a request brings.
pub(crate) enum Given {
    /// No credential for this plugin.
    Nothing,
    Malformed,
    Password(String, Vec<u8>),
}

/// Bytes of user name and password; longer ones are refused unseen.
const MAX_CREDENTIALS: usize = 4096;

/// Padding may be left out, as some clients do.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The user name and password of a request.
pub(crate) fn given(headers: &HeaderMap) -> Given {
    let mut all = headers.get_all(AUTHORIZATION).iter().filter_map(basic);
    let Some(encoded) = all.next() else { return Given::Nothing };
    // Two credentials: whichever is taken, somebody else may take the other.
    if all.next().is_some() || headers.get_all(AUTHORIZATION).iter().count() > 1 {
        return Given::Malformed;
    }
    read(encoded).map_or(Given::Malformed, |(user, password)| Given::Password(user, password))
}

/// What follows the scheme; `None` for another scheme.
fn basic(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, rest) = value.as_bytes().split_at_checked(5)?;
    (scheme.eq_ignore_ascii_case(b"basic") && rest.first().is_none_or(|c| *c == b' '))
        .then(|| rest.trim_ascii())
}

fn read(encoded: &[u8]) -> Option<(String, Vec<u8>)> {
    if encoded.len() > MAX_CREDENTIALS * 4 / 3 + 4 {
        return None;
    }
    let decoded = BASE64.decode(encoded).ok().filter(|decoded| decoded.len() <= MAX_CREDENTIALS)?;
    let at = decoded.iter().position(|c| *c == b':')?;
    let user = std::str::from_utf8(decoded.get(..at)?).ok()?;
    let password = decoded.get(at + 1..)?;
    // Some hashes end at a zero byte: everything after it would not count.
    let is_text = !user.is_empty() && !user.chars().any(char::is_control) && !password.contains(&0);
    is_text.then(|| (user.to_owned(), password.to_vec()))
}
