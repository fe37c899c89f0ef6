//! Serves what a target names in `X-Accel-Redirect` or `X-Sendfile`: a file of a folder, or the answer of another server.
//!
//! The target decides whether the client may have it, and the gateway sends it. Only prefixes in the settings are served. The field, and
//! nginx's `X-Accel-*` fields beside it, never reach the client. If what the target names cannot be served, the client receives an error
//! with a reason, never the target's own body.
//!
//! Limits: a name has at most 4096 bytes. A response that was redirected is not redirected again.

mod name;

use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::limit::epoch::Epoch;
use gateway_core::limit::{ByteRate, Meter, Meters};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{Family, Hooks, OnResponse, Plugin, Seat, Step, Verdict, World};
use gateway_core::stream::session::Direction;
use gateway_plugin_common::headers;
use gateway_plugin_common::parse;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, EXPIRES, HeaderName, SET_COOKIE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::content_source::{Source, SourceConfig};
use name::Name;

/// Settings of `internal_redirect`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Header fields of the target's response that name what the client receives; the first that is present counts. Default
    /// `x-accel-redirect` and `x-sendfile`.
    headers: Vec<String>,
    /// What targets may name. The longest prefix that matches applies. Without an entry, every name is answered 502.
    locations: Vec<Location>,
    /// Header fields of the target's response that replace those of what is served. Default `content-type`, `content-disposition`,
    /// `set-cookie`, `cache-control`, `expires` and `accept-ranges`, as in nginx.
    keep_headers: Vec<String>,
    /// Time limit for the response head of `url` or `upstream_id`. Default 60 s.
    #[schemars(range(min = 0.001, max = 3600))]
    timeout: Millis,
}

/// Names with one prefix, and where they lead: to exactly one of `root`, `url` and `upstream_id`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Location {
    /// Prefix of the name, such as `/protected/`. It matches whole segments.
    prefix: String,
    /// Folder that contains the files.
    #[serde(default)]
    #[schemars(extend("format" = "path"))]
    root: Option<PathBuf>,
    /// Server, as `http://host:port/path`; its path precedes the rest of the name.
    #[serde(default)]
    url: Option<String>,
    /// Upstream, over plain HTTP.
    #[serde(default)]
    upstream_id: Option<String>,
    /// Removes the prefix from the name before it is looked up. Default true.
    #[serde(default = "yes")]
    strip_prefix: bool,
}

fn yes() -> bool {
    true
}

impl Default for Config {
    fn default() -> Self {
        let names = |names: &[HeaderName]| names.iter().map(ToString::to_string).collect();
        Self {
            headers: vec![ACCEL_REDIRECT.to_owned(), "x-sendfile".to_owned()],
            locations: Vec::new(),
            keep_headers: names(&[
                CONTENT_TYPE,
                CONTENT_DISPOSITION,
                SET_COOKIE,
                CACHE_CONTROL,
                EXPIRES,
                ACCEPT_RANGES,
            ]),
            timeout: Millis(60_000),
        }
    }
}

const ACCEL_REDIRECT: &str = "x-accel-redirect";
const CHARSET: HeaderName = HeaderName::from_static("x-accel-charset");
const LIMIT_RATE: HeaderName = HeaderName::from_static("x-accel-limit-rate");
/// nginx's instructions to itself, which clients do not receive.
const INSTRUCTIONS: [HeaderName; 4] = [
    CHARSET,
    LIMIT_RATE,
    HeaderName::from_static("x-accel-buffering"),
    HeaderName::from_static("x-accel-expires"),
];
/// Locations one plugin config may have.
const MAX_LOCATIONS: usize = 256;

/// The plugin.
pub(crate) struct InternalRedirect {
    headers: Vec<HeaderName>,
    /// The longest prefix first.
    prefixes: Vec<MappedPrefix>,
    kept: Vec<HeaderName>,
    epoch: Epoch,
    counts: Counts,
}

struct MappedPrefix {
    prefix: String,
    strips: bool,
    source: Source,
}

struct Counts {
    served: Counter,
    refused: Counter,
    failed: Counter,
}

const RESPONSES: Metric = Metric::counter(
    "ferrum_internal_redirect_responses_total",
    "Responses in which the target named what the client receives, by result: served, refused (the name is not allowed), failed (it cannot be sent).",
);

impl Plugin for InternalRedirect {
    const NAME: &'static str = "internal_redirect";
    const FAMILY: Family = Family::Content;
    const SUMMARY: &'static str =
        "Serves the file or URL that a target names in X-Accel-Redirect or X-Sendfile.";
    const EXAMPLE: &'static str = include_str!("../../examples/internal_redirect.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.headers.is_empty() {
            problems.add("config.headers", "there is none, so nothing would be redirected");
        }
        if config.locations.len() > MAX_LOCATIONS {
            problems.add("config.locations", format!("has more than {MAX_LOCATIONS} entries"));
        }
        let headers = header_names("config.headers", &config.headers, &mut problems);
        let kept = header_names("config.keep_headers", &config.keep_headers, &mut problems);
        let mut prefixes: Vec<MappedPrefix> = Vec::new();
        for (n, location) in config.locations.into_iter().enumerate() {
            let at = format!("config.locations[{n}]");
            let Some(mapped) = map_prefix(&at, location, config.timeout, world, &mut problems) else {
                continue;
            };
            if prefixes.iter().any(|known| known.prefix == mapped.prefix) {
                problems.add(format!("{at}.prefix"), format!("`{}` is configured twice", mapped.prefix));
            }
            prefixes.push(mapped);
        }
        prefixes.sort_by_key(|mapped| std::cmp::Reverse(mapped.prefix.len()));
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(RESPONSES, &["plugin_config", "outcome"], &[owner, outcome]);
        let counts = Counts { served: count("served"), refused: count("refused"), failed: count("failed") };
        problems.into_result(Self {
            headers,
            prefixes,
            kept,
            epoch: Epoch::starting(tokio::time::Instant::now()),
            counts,
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_response(self);
    }
}

fn header_names(at: &str, names: &[String], problems: &mut Problems) -> Vec<HeaderName> {
    let read = |(n, name): (usize, &String)| {
        let at = format!("{at}[{n}]");
        let name = parse::header_name(&at, name, problems)?;
        if headers::is_framing(&name) {
            problems.add(at, format!("the gateway sets `{name}` itself"));
        }
        Some(name)
    };
    names.iter().enumerate().filter_map(read).collect()
}

/// A location as it is meant.
fn map_prefix(
    at: &str,
    location: Location,
    timeout: Millis,
    world: &World,
    problems: &mut Problems,
) -> Option<MappedPrefix> {
    let Location { prefix, root, url, upstream_id, strip_prefix } = location;
    let Some(prefix) = name::prefix(&prefix) else {
        problems.add(format!("{at}.prefix"), format!("`{prefix}` is not a path that begins with a slash"));
        return None;
    };
    let source = Source::read(at, SourceConfig { root, url, upstream_id }, timeout, world, problems);
    Some(MappedPrefix { prefix, strips: strip_prefix, source: source? })
}

impl OnResponse for InternalRedirect {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let name = self.headers.iter().find_map(|name| response.headers().get(name)).cloned();
        let Some(name) = name else {
            // They are for the gateway, with or without a redirect.
            self.take_instructions(response);
            return Step::Next;
        };
        if exchange.dialect == Dialect::Grpc {
            return Step::Reply(self.refuse("internal_redirect_grpc"));
        }
        Step::wait(async move {
            match self.redirected(exchange, response, &name, seat).await {
                Ok(()) => Verdict::Next,
                Err(reply) => Verdict::Reply(reply),
            }
        })
    }
}

impl InternalRedirect {
    /// Obeys the instructions beside the name, and removes all of them.
    fn take_instructions(&self, response: &mut Response<Body>) {
        let headers = response.headers_mut();
        let charset = headers.remove(CHARSET);
        let rate = headers.remove(LIMIT_RATE);
        INSTRUCTIONS.iter().chain(&self.headers).for_each(|name| while headers.remove(name).is_some() {});
        if let Some(charset) = charset {
            set_charset(headers, &charset);
        }
        let rate = rate.map(|rate| rate.to_str().ok().and_then(|rate| rate.trim().parse::<u64>().ok()));
        match rate {
            // `off` and 0 are no limit, as in nginx.
            None | Some(None | Some(0)) => {}
            Some(Some(bytes)) => {
                let mut meters = Meters::default();
                meters.down.push(Meter::Rate(Arc::new(ByteRate::new(
                    bytes,
                    ByteRate::default_burst(bytes),
                    self.epoch,
                ))));
                let body = std::mem::take(response.body_mut());
                *response.body_mut() = body.metered(meters, Direction::Down);
            }
        }
    }

    /// Replaces the response of the target by what it names.
    async fn redirected(
        &self,
        exchange: &mut Exchange,
        response: &mut Response<Body>,
        name: &HeaderValue,
        seat: Seat<'_>,
    ) -> Result<(), Box<Reply>> {
        let Some(name) = Name::read(name.as_bytes()) else {
            return Err(self.refuse("internal_redirect_name"));
        };
        let mapped = self.prefixes.iter().find(|mapped| name.is_beneath(&mapped.prefix));
        let Some(mapped) = mapped else { return Err(self.refuse("internal_redirect_unlisted")) };
        exchange.note("internal_redirect.prefix", mapped.prefix.as_str());
        let path = if mapped.strips { name.beneath(&mapped.prefix) } else { name.path.as_str() };
        let made = mapped.source.fetch(exchange, path, &name.encoded(path), seat).await;
        let mut made = made.inspect_err(|_| self.counts.failed.add(1))?;
        // One that is redirected again could go on forever.
        if self.headers.iter().any(|name| made.headers().contains_key(name)) {
            return Err(self.refuse("internal_redirect_twice"));
        }
        for name in self.kept.iter().chain(&[CHARSET, LIMIT_RATE]) {
            if made.status().is_success() && response.headers().contains_key(name) {
                made.headers_mut().remove(name);
                for value in response.headers().get_all(name) {
                    made.headers_mut().append(name, value.clone());
                }
            }
        }
        *response = made;
        self.counts.served.add(1);
        self.take_instructions(response);
        Ok(())
    }

    fn refuse(&self, reason: &'static str) -> Box<Reply> {
        self.counts.refused.add(1);
        let reply = Reply::new(Cause::Plugin).status(StatusCode::BAD_GATEWAY);
        Box::new(reply.detail("the target names what may not be served").reason(reason))
    }
}

/// Sets the charset of a text.
fn set_charset(headers: &mut HeaderMap, charset: &HeaderValue) {
    let good = |c: &u8| c.is_ascii_alphanumeric() || b"-_.:".contains(c);
    if !charset.as_bytes().iter().all(good) || charset.as_bytes().eq_ignore_ascii_case(b"off") {
        return;
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.is_empty() {
        return;
    }
    let text = format!("{essence}; charset={}", charset.to_str().unwrap_or_default());
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(CONTENT_TYPE, value);
    }
}

#[cfg(test)]
mod tests;
