//! Why a certificate could not be had, in plain words, and when to try again.

use std::time::{Duration, SystemTime};

use gateway_core::config::problem::shorten;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use serde::Deserialize;
use tokio::task::JoinError;

use super::error::{AnswerError, CertificateError, KeyError, StorageError};

/// What the names of problems begin with (RFC 8555, section 6.7).
const PREFIX: &str = "urn:ietf:params:acme:error:";
/// Bytes of a CA's text that are kept.
const MAX_TEXT: usize = 500;
/// Bytes that are kept of all that is said of one failure: it is stored, and shown.
const MAX_WHOLE: usize = 2000;
/// Problems of single names that are told.
const MAX_PARTS: usize = 5;

/// A document by which a CA says what is wrong.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CaProblem {
    #[serde(rename = "type")]
    kind: String,
    detail: String,
    identifier: Option<Named>,
    subproblems: Vec<Self>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Named {
    value: String,
}

/// Why a certificate could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// In plain words.
    pub(super) text: String,
    /// What the protocol calls it, without what all begin with; empty where the CA did not say anything.
    pub(super) kind: String,
    /// How long the CA asks to be left alone.
    pub(super) retry_after: Option<Duration>,
    /// The CA could not be asked, before it was told to issue; nothing counts against its limits then.
    pub(super) is_unreachable: bool,
    /// The same order would fail again.
    pub(super) is_final: bool,
    /// Orders for other certificates would fail as well.
    pub(super) is_for_all: bool,
}

impl Failure {
    /// Something that is not the CA's doing.
    pub(super) fn here(text: impl Into<String>) -> Self {
        Self {
            // It may have text of a CA in it, such as a URL or a status.
            text: cut_to(&text.into(), MAX_WHOLE),
            kind: String::new(),
            retry_after: None,
            is_unreachable: false,
            is_final: false,
            is_for_all: false,
        }
    }

    /// The CA did not answer.
    pub(super) fn unreachable(text: impl Into<String>) -> Self {
        Self { is_unreachable: true, is_for_all: true, ..Self::here(text) }
    }

    /// What a CA says is wrong.
    pub(super) fn of(problem: &CaProblem, retry_after: Option<Duration>) -> Self {
        let kind = problem.kind.strip_prefix(PREFIX).unwrap_or(&problem.kind);
        let kind = cut(kind);
        let mut text = match (meaning(&kind), problem.detail.as_str()) {
            (Some(meaning), "") => meaning.to_owned(),
            (Some(meaning), detail) => format!("{meaning}: {}", cut(detail)),
            (None, "") => format!("the CA refused with `{}`", cut(&kind)),
            (None, detail) => format!("the CA refused: {}", cut(detail)),
        };
        for part in problem.subproblems.iter().take(MAX_PARTS) {
            let name = part.identifier.as_ref().map(|named| named.value.as_str()).unwrap_or_default();
            text.push_str(&format!("; {} {}", cut(name), cut(&part.detail)));
        }
        Self { kind, retry_after, ..Self::here(text) }
    }

    /// What an answer without success says.
    pub(super) fn of_answer(status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Self {
        let retry_after = retry_after(headers, now);
        let failure = match serde_json::from_slice::<CaProblem>(body) {
            Ok(problem) if !problem.kind.is_empty() || !problem.detail.is_empty() => {
                Self::of(&problem, retry_after)
            }
            _ => Self { retry_after, ..Self::here(format!("the CA answered with the status {status}")) },
        };
        // What is said of nonces, times and limits says nothing about the request.
        let is_final =
            (400..500).contains(&status) && !matches!(status, 408 | 429) && failure.kind != "badNonce";
        Self { is_final, is_for_all: status == 429, ..failure }
    }

    /// The same with what was being done before it.
    #[must_use]
    pub(super) fn while_doing(mut self, what: &str) -> Self {
        self.text = cut_to(&format!("{}: {}", cut(what), self.text), MAX_WHOLE);
        self
    }

    /// The same for something that trying again does not mend.
    #[must_use]
    pub(super) fn for_good(self) -> Self {
        Self { is_final: true, ..self }
    }

    /// The same once the CA was told to issue: whether it did is not known, and may count against its limits.
    #[must_use]
    pub(super) fn after_finalizing(self) -> Self {
        Self { is_unreachable: false, is_for_all: false, ..self }
    }
}

/// What fails on this machine says nothing about the CA.
macro_rules! here {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::here(error.to_string())
            }
        })*
    };
}

here!(AnswerError, CertificateError, JoinError, KeyError, StorageError);

/// What the problems mean that operators can do something about.
fn meaning(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "rateLimited" => "the CA's rate limit is reached",
        "rejectedIdentifier" => "the CA does not issue certificates for this name",
        "externalAccountRequired" => "the CA asks for an account that exists there; set `external_account`",
        "unauthorized" => "the CA did not get the right answer from this name",
        "connection" => "the CA could not connect to this name",
        "dns" => "the CA could not find this name in DNS",
        "tls" => "the CA could not make a TLS handshake with this name",
        "caa" => "a CAA record of this name forbids the CA to issue",
        "incorrectResponse" => "the CA got another answer than it expects",
        "invalidContact" | "unsupportedContact" => "the CA does not take `email`",
        "userActionRequired" => "the CA asks you to do something, such as to accept new terms",
        "accountDoesNotExist" => "the CA does not know the account any more",
        "badCSR" => "the CA does not take the request for a certificate",
        "serverInternal" => "the CA has a failure of its own",
        _ => return None,
    })
}

/// How long `Retry-After` (RFC 9110 §10.2.3) asks to wait: seconds, or until a date.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    httpdate::parse_http_date(text).ok()?.duration_since(now).ok()
}

/// A CA's text on one line and not longer than is of use: it goes to logs and status pages.
pub(super) fn cut(text: &str) -> String {
    cut_to(text, MAX_TEXT)
}

fn cut_to(text: &str, longest: usize) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    // Behind the longest part that is kept, a word may go on.
    let mut text: String = text.chars().take(longest + 1).map(plain).collect();
    shorten(&mut text, longest - '…'.len_utf8());
    text
}

/// The first pause after a refusal; each further one doubles it. Public CAs allow five failures an hour and name.
const REFUSED: Duration = Duration::from_secs(5 * 60);
/// The longest pause after refusals.
const MAX_REFUSED: Duration = Duration::from_secs(12 * 3600);
/// The first pause where the CA could not be asked.
const UNREACHABLE: Duration = Duration::from_secs(15);
/// The longest pause where it could not.
pub(super) const MAX_UNREACHABLE: Duration = Duration::from_secs(30 * 60);
/// The longest time for which a CA is left alone because it asks for that.
pub(super) const MAX_ASKED: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long to wait after so many failures of its kind in a row; `spread` from 0 to 1 keeps gateways from coming all at once.
pub(super) fn pause(failure: &Failure, failures: u32, spread: f64) -> Duration {
    let (first, longest) = match failure.is_unreachable {
        true => (UNREACHABLE, MAX_UNREACHABLE),
        false => (REFUSED, MAX_REFUSED),
    };
    let doubled = doubled(first, failures).min(longest);
    let pause = doubled.mul_f64(1.0 + 0.2 * spread.clamp(0.0, 1.0));
    pause.max(failure.retry_after.unwrap_or_default().min(MAX_ASKED))
}

/// How long to wait with another order when so many in a row did not come to any end, as when the process is killed.
pub(super) fn pause_after_begun(begun: u32) -> Duration {
    doubled(REFUSED, begun).min(MAX_REFUSED)
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.saturating_sub(1).min(16))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn headers(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_problem_is_said_in_plain_words() {
        let body = json!({
            "type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many\ncertificates",
            "subproblems": [{ "detail": "no", "identifier": { "type": "dns", "value": "a.test" } }],
        });
        let failure =
            Failure::of_answer(429, &headers("3600"), body.to_string().as_bytes(), SystemTime::now());
        assert_eq!(failure.text, "the CA's rate limit is reached: too many certificates; a.test no");
        assert_eq!(failure.kind, "rateLimited");
        assert_eq!(failure.retry_after, Some(Duration::from_secs(3600)));
        let html = Failure::of_answer(503, &HeaderMap::new(), b"<html>", SystemTime::now());
        assert_eq!(html.text, "the CA answered with the status 503");
        let long = json!({ "type": "x", "detail": "y".repeat(10_000) }).to_string();
        let long = Failure::of_answer(400, &HeaderMap::new(), long.as_bytes(), SystemTime::now());
        assert!(long.text.len() < 600);
        let huge = "y".repeat(2 << 20);
        assert!(Failure::here(&huge).while_doing(&huge).text.len() <= MAX_WHOLE);
        let kind = json!({ "type": huge, "detail": "" }).to_string();
        let kind = Failure::of_answer(400, &HeaderMap::new(), kind.as_bytes(), SystemTime::now());
        assert!(kind.kind.len() + kind.text.len() < 1200);
    }

    #[test]
    fn a_date_says_how_long_to_wait_as_well() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777 - 60);
        let left = retry_after(&headers("Sun, 06 Nov 1994 08:49:37 GMT"), now);
        assert_eq!(left, Some(Duration::from_secs(60)));
        assert_eq!(retry_after(&headers("soon"), now), None);
    }

    #[test]
    fn pauses_grow_to_hours_and_give_way_to_what_the_ca_asks() {
        let refused = Failure::here("no");
        let away = Failure::unreachable("away");
        let minutes = |failure: &Failure, n| pause(failure, n, 0.0).as_secs_f64() / 60.0;
        assert_eq!([1, 2, 3].map(|n| minutes(&refused, n)), [5.0, 10.0, 20.0]);
        assert_eq!([1, 2, 3].map(|n| minutes(&away, n)), [0.25, 0.5, 1.0]);
        assert_eq!((minutes(&refused, 500), minutes(&away, 500)), (720.0, 30.0));
        assert!(pause(&refused, 1, 1.0) > pause(&refused, 1, 0.0));
        let asked =
            |hours: u64| Failure { retry_after: Some(Duration::from_secs(hours * 3600)), ..refused.clone() };
        assert_eq!(pause(&asked(48), 1, 0.0), Duration::from_secs(48 * 3600));
        assert_eq!(pause(&asked(0), 1, 0.0), REFUSED);
        assert_eq!(pause(&asked(24 * 365), 1, 0.0), MAX_ASKED);
    }
}
