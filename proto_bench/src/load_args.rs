//! Flags in the habit of wrk, oha and h2load.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;

use crate::plan::{Expect, ExpectBody, Load, Message, Method, Pace, Plan, Protocol, Target, Timing};

/// Flags that would have no effect on a target.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{url} has one request in flight on a connection; -m is for HTTP/2, HTTP/3 and gRPC")]
    OneAtATime { url: String },
    #[error("--body is for POST over HTTP/1.1")]
    BodyElsewhere,
}

/// How much load, for how long, and what the answers must be.
#[derive(Debug, Clone, Args)]
pub struct LoadArgs {
    /// Connections [default: 200]; `clients` has --steps instead.
    #[arg(short = 'c', long, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub connections: Option<u32>,
    /// Requests in flight on each connection; HTTP/2, HTTP/3 and gRPC only.
    #[arg(short = 'm', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub streams: u32,
    /// Measured time, such as 10s, 500ms or 2m [default: 10s; of `compare`, 1s].
    #[arg(short = 'd', long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Load before the measured time that is not counted [default: 2s; of `compare`, 300ms].
    #[arg(short = 'w', long, value_parser = parse_duration)]
    warm_up: Option<Duration>,
    /// Payload bytes of each request or message.
    #[arg(short = 's', long, default_value_t = 64, value_parser = payload_size)]
    pub size: usize,
    /// Open loop: requests a second over all connections. Without it each connection waits for its answers.
    #[arg(short = 'r', long)]
    pub rate: Option<f64>,
    /// Threads of the generator; one a core unless told.
    #[arg(short = 't', long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Request header, `Name: value`; may be repeated.
    #[arg(short = 'H', long = "header", value_parser = parse_header)]
    pub headers: Vec<(String, String)>,
    /// POST sends the payload and expects it back; GET sends none [default: POST; of `run` over HTTP, GET].
    #[arg(long)]
    pub method: Option<Method>,
    /// File that every POST sends in place of stamped bytes; an echo must return it. HTTP/1.1 only.
    #[arg(long, value_name = "FILE", value_parser = read_content, conflicts_with = "size")]
    pub body: Option<Bytes>,
    /// Status every answer must have [default: 200].
    #[arg(long)]
    pub expect_status: Option<u16>,
    /// File whose bytes every answer must have as its body.
    #[arg(long, value_name = "FILE", value_parser = read_content, conflicts_with_all = ["expect_size", "no_verify_body"])]
    pub expect_body: Option<Bytes>,
    /// Body bytes every answer must have, content unchecked; the report says so.
    #[arg(long, visible_alias = "expect-body-bytes")]
    pub expect_size: Option<usize>,
    /// Accepts any body; the report says so.
    #[arg(long, conflicts_with = "expect_size")]
    pub no_verify_body: bool,
    /// How long an answer may take before it is an error.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// A new connection for each request.
    #[arg(long)]
    pub fresh: bool,
    /// Verifies server certificates against this PEM file; any certificate is accepted without it.
    #[arg(long, value_name = "PEM")]
    pub verify_tls: Option<PathBuf>,
    /// Runs of each row; medians are reported, with their spread [default: 1; of `compare`, 9].
    #[arg(short = 'R', long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
    /// Repeats a round that other processes disturbed, up to this many times, once the machine is quiet.
    #[arg(long, default_value_t = 0, value_name = "TIMES")]
    pub repeat_disturbed: u32,
}

/// Where results go.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// Writes the result as JSON, in a folder that is made if need be; `-` is standard output, in place of the text.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes a web page with charts; as --json does.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Writes a Markdown table; as --json does.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// No progress on standard error.
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

const CONNECTIONS: u32 = 200;
const LARGEST_PAYLOAD: usize = 64 * 1024 * 1024;
/// A round of `compare`, the load before it, and how many there are.
const SLICE: Duration = Duration::from_secs(1);
const SLICE_WARM_UP: Duration = Duration::from_millis(300);
const SLICES: u32 = 9;

impl LoadArgs {
    /// With short rounds, and more of them, unless told otherwise: a machine that is disturbed now and then then spoils
    /// some of them and not all.
    #[must_use]
    pub fn in_slices(&self) -> Self {
        let mut sliced = self.clone();
        sliced.duration.get_or_insert(SLICE);
        sliced.warm_up.get_or_insert(SLICE_WARM_UP);
        sliced.rounds.get_or_insert(SLICES);
        sliced
    }

    /// Measured time of a round.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration.unwrap_or_else(|| Timing::default().duration)
    }

    /// Load before it.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        self.warm_up.unwrap_or_else(|| Timing::default().warm_up)
    }

    /// Runs of each row.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(1)
    }

    /// Connections.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.unwrap_or(CONNECTIONS)
    }

    /// What requests are.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method.unwrap_or(Method::Post)
    }

    /// With GET unless told otherwise, for servers that send nothing back.
    #[must_use]
    pub fn for_any_server(&self, target: &Target) -> Self {
        let is_http = matches!(target.protocol, Protocol::Http1 | Protocol::Http2 | Protocol::Http3);
        let mut load = self.clone();
        if is_http && load.method.is_none() && load.body.is_none() {
            load.method = Some(Method::Get);
        }
        load
    }

    /// Whether answers have to be as the first one is: they are of GET, and nothing says what they must be.
    #[must_use]
    pub fn takes_first_answer(&self) -> bool {
        let says = self.expect_status.is_some() || self.expect_body.is_some() || self.expect_size.is_some();
        self.method() == Method::Get && !says && !self.no_verify_body
    }

    /// Whether a test against this target can be as it is asked for.
    ///
    /// # Errors
    /// What would have no effect.
    pub fn suits(&self, target: &Target) -> Result<(), LoadError> {
        if self.streams > 1 && !target.protocol.multiplexes() {
            return Err(LoadError::OneAtATime { url: target.url() });
        }
        if self.body.is_some() && (target.protocol != Protocol::Http1 || self.method() != Method::Post) {
            return Err(LoadError::BodyElsewhere);
        }
        Ok(())
    }

    /// The plan of one round against this target.
    #[must_use]
    pub fn plan(&self, target: Target) -> Plan {
        let body = match (self.expect_size, self.no_verify_body, self.method()) {
            (Some(size), _, _) => ExpectBody::Size(size),
            (None, true, _) => ExpectBody::Unverified,
            (None, false, Method::Post) => ExpectBody::Echo,
            // Our own backends answer 64 bytes to any GET.
            (None, false, Method::Get) => ExpectBody::Size(64),
        };
        let mut plan = Plan::new(target);
        let streams = if plan.target.protocol.multiplexes() { self.streams } else { 1 };
        let pace = self.rate.map_or(Pace::Closed, |rate| Pace::Open { rate });
        plan.load = Load { connections: self.connections(), streams, pace };
        plan.timing = Timing {
            warm_up: self.warm_up(),
            duration: self.duration(),
            timeout: self.timeout,
            ..Timing::default()
        };
        plan.message = Message {
            method: self.method(),
            payload: self.size,
            headers: self.headers.clone(),
            fresh: self.fresh,
            body: None,
            varied: false,
        };
        plan.expect = Expect { status: self.expect_status.unwrap_or(200), body, refused: None };
        if let Some(body) = &self.body {
            (plan.message.body, plan.message.payload) = (Some(body.clone()), body.len());
            if plan.expect.body == ExpectBody::Echo {
                plan.expect_content(body.clone());
            }
        }
        if let Some(content) = &self.expect_body {
            plan.expect_content(content.clone());
        }
        plan.threads = self.threads.map_or(plan.threads, usize::from);
        plan.verify_tls.clone_from(&self.verify_tls);
        plan
    }
}

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("`{0}` is no duration; write 10s or 500ms")]
    Number(String),
    #[error("unknown unit `{0}`; write ms, s, m or h")]
    Unit(String),
    #[error("`{0}` is out of range")]
    Range(String),
}

/// Why a text is no header field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum HeaderError {
    #[error("`{0}` has no colon")]
    NoColon(String),
    #[error("`{0}` is not a valid header name")]
    Name(String),
    #[error("control characters in a header value")]
    Value,
}

/// Why a file is no content of requests or answers.
#[derive(Debug, thiserror::Error)]
enum ContentFileError {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error("bodies end at 64 MiB")]
    TooLarge,
}

/// Why a text is no size of payloads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum SizeError {
    #[error("`{0}` is no size; write 64, 16k or 1m")]
    Number(String),
    #[error("payloads end at 64m")]
    TooLarge,
}

/// Reads `10`, `10s`, `500ms`, `2m` or `1h`.
///
/// # Errors
/// Anything else.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits).unwrap_or_default();
    let number: f64 = digits.parse().map_err(|_| DurationError::Number(text.to_owned()))?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(DurationError::Unit(unit.to_owned())),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| DurationError::Range(text.to_owned()))
}

fn parse_header(text: &str) -> Result<(String, String), HeaderError> {
    let (name, value) = text.split_once(':').ok_or_else(|| HeaderError::NoColon(text.to_owned()))?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(HeaderError::Name(name.to_owned()));
    }
    let value = value.trim();
    if value.bytes().any(|byte| byte < 32 && byte != 9) {
        return Err(HeaderError::Value);
    }
    Ok((name.to_ascii_lowercase(), value.to_owned()))
}

fn read_content(path: &str) -> Result<Bytes, ContentFileError> {
    let content = std::fs::read(path)?;
    if content.len() > LARGEST_PAYLOAD {
        return Err(ContentFileError::TooLarge);
    }
    Ok(content.into())
}

fn payload_size(text: &str) -> Result<usize, SizeError> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (text.trim_end_matches(['k', 'K']), 1024),
        Some(b'm' | b'M') => (text.trim_end_matches(['m', 'M']), 1024 * 1024),
        _ => (text, 1),
    };
    let number: usize = digits.parse().map_err(|_| SizeError::Number(text.to_owned()))?;
    number.checked_mul(factor).filter(|size| *size <= LARGEST_PAYLOAD).ok_or(SizeError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, milliseconds) in [("10", 10_000), ("1.5s", 1_500), ("250ms", 250), ("2m", 120_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "ms", "10x", "-1s", "s10"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn headers_cannot_break_the_request() {
        assert_eq!(parse_header("X-A: b"), Ok(("x-a".to_owned(), "b".to_owned())));
        for text in ["no colon", ": v", "a b: v", "a: b\r\nc: d"] {
            assert!(parse_header(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_have_units_and_an_end() {
        assert_eq!(payload_size("16k"), Ok(16_384));
        assert!(payload_size("65m").is_err() && payload_size("k").is_err());
    }
}
