//! Sends clients elsewhere: to a URL made from a template, or to the same URL with another scheme, host, port, path or
//! trailing slash.
//!
//! With `table`, requests for its paths are redirected, each to its own URL, and others by `location`, or not at all.
//! With `location` every request is redirected; one that already asked for that very URL is answered 508, since it
//! would come back for ever. With parts (`scheme`, `host`, `port`, `path`, `trailing_slash`) a request that already has
//! them all goes on to the target, so that `scheme: https` redirects plain requests only. Behind a trusted proxy the
//! scheme is what `X-Forwarded-Proto` says. A proxy that matches `scheme: http` needs no target beside `scheme: https`;
//! requests that a trusted proxy received over TLS get 503 there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::path;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Capabilities, Capability, Family, Hooks, OnRequest, Plugin, Seat, Step, World};
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Render, Template, TextContext};
use gateway_plugin_common::facts;
use gateway_plugin_common::parse;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

/// Paths that a table may have.
const MAX_TABLE: usize = 10_000;

/// Settings of `redirect`; `location`, `table`, or at least one of the parts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Status: 301, 302, 303, 307 or 308. 307 and 308 keep the method and the body. Default 302.
    status_code: u16,
    /// The URL, as a template. A path alone is sent as it is, so that clients keep their scheme and host, also behind a
    /// proxy that terminates TLS. It begins with `/`, `http://`, `https://` or `${request.scheme}://`, so that no value
    /// of a request decides where clients are sent. Not together with parts. Default: made from the parts.
    location: Option<String>,
    /// URLs by path, each as in `location`, such as `/old: /new`. The whole path must match, without the query. Other
    /// paths are redirected by `location`, or pass without it. At most 10,000 paths. Not together with parts. Default
    /// none.
    #[schemars(extend("maxProperties" = MAX_TABLE))]
    table: BTreeMap<String, String>,
    /// New scheme. This also removes the port, unless `port` is given. Default: as requested.
    scheme: Option<Scheme>,
    /// New host, as a template, without port. Default: as requested.
    host: Option<String>,
    /// New port, 1 to 65535. Default: as requested, or the default port if `scheme` or `host` is given.
    #[schemars(range(min = 1))]
    port: Option<u16>,
    /// New path, as a template that begins with `/`. Default: as requested.
    path: Option<String>,
    /// Adds a slash to the end of the path, or removes it. Default: neither.
    trailing_slash: Option<TrailingSlash>,
    /// What happens to the query. A query in `location` or `path` is kept in front. Default `keep`.
    query: Keep,
}

/// A scheme to redirect to.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Scheme {
    Http,
    Https,
}

/// What happens to the slash at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TrailingSlash {
    Add,
    Remove,
}

/// What happens to the query.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Keep {
    Keep,
    Drop,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            status_code: 302,
            location: None,
            table: BTreeMap::new(),
            scheme: None,
            host: None,
            port: None,
            path: None,
            trailing_slash: None,
            query: Keep::Keep,
        }
    }
}

/// The plugin.
pub(crate) struct Redirect {
    status: StatusCode,
    to: To,
    keeps_query: bool,
}

/// Where to.
enum To {
    Urls {
        table: HashMap<Box<str>, Template>,
        /// For paths that are not in the table.
        other: Option<Template>,
    },
    Parts(Box<Parts>),
}

struct Parts {
    scheme: Option<&'static str>,
    host: Option<Template>,
    port: Option<u16>,
    path: Option<Template>,
    trailing_slash: Option<TrailingSlash>,
}

/// A URL in its pieces.
#[derive(PartialEq)]
struct Url {
    scheme: &'static str,
    authority: String,
    /// Path and query.
    target: String,
}

/// Where a client is sent.
struct Destination {
    url: Url,
    /// Sent without scheme and host (RFC 9110 §10.2.2): the client knows better which it used, also behind a proxy that ends TLS.
    is_relative: bool,
}

impl Plugin for Redirect {
    const NAME: &'static str = "redirect";
    const FAMILY: Family = Family::Content;
    const SUMMARY: &'static str = "Redirects clients to another URL, or changes parts of it.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let status = match config.status_code {
            301 | 302 | 303 | 307 | 308 => StatusCode::from_u16(config.status_code).ok(),
            other => {
                let problem = problems.add("config.status_code", format!("{other} does not redirect"));
                problem.remedy = Some("write 301, 302, 303, 307 or 308".into());
                None
            }
        };
        let to = to(&config, &mut problems);
        let keeps_query = config.query == Keep::Keep;
        match (status, to) {
            (Some(status), Some(to)) => problems.into_result(Self { status, to, keeps_query }),
            _ => Err(problems),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let has_https = matches!(&self.to, To::Parts(parts) if parts.scheme == Some("https"));
        Capabilities::NONE
            .with_if(matches!(self.to, To::Urls { other: Some(_), .. }), Capability::NeedsNoTarget)
            .with_if(has_https, Capability::AnswersPlainRequests)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        match &self.to {
            To::Urls { table, other } => {
                hooks.renders("config.location", other.as_ref());
                for (path, location) in table {
                    hooks.renders(&format!("config.table.{path}"), Some(location));
                }
            }
            To::Parts(parts) => {
                hooks.renders("config.host", parts.host.as_ref());
                hooks.renders("config.path", parts.path.as_ref());
            }
        }
        hooks.on_request(self);
    }
}

fn to(config: &Config, problems: &mut Problems) -> Option<To> {
    let parts = Parts {
        scheme: config.scheme.map(|scheme| match scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }),
        host: config
            .host
            .as_ref()
            .and_then(|host| parse::template("config.host", host, Moment::Request, problems)),
        port: config.port,
        path: config.path.as_ref().and_then(|path| {
            if !path.starts_with('/') {
                problems.add("config.path", "a path begins with `/`");
            }
            parse::template("config.path", path, Moment::Request, problems)
        }),
        trailing_slash: config.trailing_slash,
    };
    let has_parts = config.scheme.is_some()
        || config.host.is_some()
        || config.port.is_some()
        || config.path.is_some()
        || config.trailing_slash.is_some();
    if config.location.is_none() && config.table.is_empty() {
        if !has_parts {
            problems.add("config", "this says nowhere to go").remedy =
                Some("give `location`, `table`, or parts such as `scheme: https`".into());
        }
        return problems.is_empty().then(|| To::Parts(Box::new(parts)));
    }
    if has_parts {
        let at = if config.location.is_some() { "config.location" } else { "config.table" };
        problems.add(at, "cannot be combined with parts of a URL").remedy =
            Some("give the whole URL or its parts, not both".into());
    }
    let other = match &config.location {
        Some(location) => Some(url("config.location", location, problems)?),
        None => None,
    };
    table(&config.table, problems).map(|table| To::Urls { table, other })
}

/// A URL as a template; no value of a request decides which host it names.
fn url(at: &str, location: &str, problems: &mut Problems) -> Option<Template> {
    let is_absolute =
        ["http://", "https://", "${request.scheme}://"].iter().any(|it| location.starts_with(it));
    if !is_absolute && (!location.starts_with('/') || location.starts_with("//")) {
        problems.add(at, "a value of the request could decide where clients go").remedy =
            Some("begin with `/`, `http://`, `https://` or `${request.scheme}://`".into());
    }
    parse::template(at, location, Moment::Request, problems)
}

/// Paths in the spelling of requests, with their URLs.
fn table(written: &BTreeMap<String, String>, problems: &mut Problems) -> Option<HashMap<Box<str>, Template>> {
    if written.len() > MAX_TABLE {
        let what = format!("has {} paths; {MAX_TABLE} are the most", written.len());
        problems.add("config.table", what).remedy =
            Some("use several proxies, each with a part of it".into());
        return None;
    }
    let mut table = HashMap::with_capacity(written.len());
    for (path, location) in written {
        let at = format!("config.table.{path}");
        let spelled = parse::request_path(&at, path, problems);
        let location = url(&at, location, problems);
        if !path.starts_with('/') {
            problems.add(&*at, "a path begins with `/`");
        } else if let (Some(spelled), Some(location)) = (spelled, location)
            && table.insert(spelled.into_boxed_str(), location).is_some()
        {
            problems.add(&*at, "another path of the table is the same, spelled otherwise");
        }
    }
    problems.is_empty().then_some(table)
}

impl OnRequest for Redirect {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let asked = asked(exchange);
        let facts = facts::of(exchange, seat);
        let query = exchange.request.uri.query().filter(|_| self.keeps_query);
        let made = match &self.to {
            To::Urls { table, other } => {
                let listed = if table.is_empty() { None } else { table.get(exchange.path()) };
                match listed.or(other.as_ref()) {
                    Some(location) => located(location, &facts, query, &asked),
                    None => return Step::Next,
                }
            }
            To::Parts(parts) => parts
                .apply(&facts, query, &asked)
                .map(|url| Destination { url, is_relative: parts.stay_with_host() }),
        };
        let Some(Destination { url, is_relative }) = made else {
            let reply = Reply::new(Cause::BadRequest).detail("this can't be redirected");
            return Step::reply(reply.reason("redirect_not_possible"));
        };
        if url == asked {
            if matches!(self.to, To::Parts(_)) {
                return Step::Next;
            }
            let reply = Reply::new(Cause::Internal).status(StatusCode::LOOP_DETECTED);
            return Step::reply(reply.detail("this redirect leads to itself").reason("redirect_loop"));
        }
        let Url { scheme, authority, target } = url;
        let location = if is_relative { target } else { format!("{scheme}://{authority}{target}") };
        let Ok(location) = HeaderValue::try_from(location) else {
            return Step::reply(Reply::new(Cause::BadRequest).reason("redirect_not_possible"));
        };
        let mut reply = Reply::fixed(self.status, "").header(LOCATION, location);
        reply.reason = Some("redirect");
        Step::reply(reply)
    }
}

/// The URL that the client asked for.
fn asked(exchange: &Exchange) -> Url {
    let scheme = exchange.scheme();
    let uri = &exchange.request.uri;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    Url {
        scheme,
        authority: plain(scheme, exchange.authority().unwrap_or_default()),
        target: target.to_owned(),
    }
}

/// An authority in lower case and without its scheme's own port.
fn plain(scheme: &str, authority: &str) -> String {
    let own = if scheme == "https" { ":443" } else { ":80" };
    authority.strip_suffix(own).unwrap_or(authority).to_ascii_lowercase()
}

fn rendered(template: &Template, facts: &Facts<'_>, place: TextContext) -> Option<String> {
    let mut out = Vec::new();
    template.render(facts, place, MAX_RENDERED, &mut out).ok()?;
    String::from_utf8(out).ok()
}

/// Adds the request's query behind one that a target has of its own.
fn with_query(mut target: String, query: Option<&str>) -> String {
    if let Some(query) = query {
        target.push(if target.contains('?') { '&' } else { '?' });
        target.push_str(query);
    }
    target
}

fn located(location: &Template, facts: &Facts<'_>, query: Option<&str>, asked: &Url) -> Option<Destination> {
    let text = rendered(location, facts, TextContext::Url)?;
    let absolute = text
        .strip_prefix("https://")
        .map(|rest| ("https", rest))
        .or_else(|| text.strip_prefix("http://").map(|rest| ("http", rest)));
    let Some((scheme, rest)) = absolute else {
        // Two slashes at its beginning would make a host of what follows.
        let target = with_query(format!("/{}", text.trim_start_matches(['/', '\\'])), query);
        let url = Url { scheme: asked.scheme, authority: asked.authority.clone(), target };
        return Some(Destination { url, is_relative: true });
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    let target = match target.split_once('#') {
        Some((target, fragment)) => format!("{}#{fragment}", with_query(target.to_owned(), query)),
        None => with_query(target, query),
    };
    // What stands before an `@` is a user's name, not the host it looks like.
    parse::is_authority(authority).then(|| {
        let url = Url { scheme, authority: plain(scheme, authority), target };
        Destination { url, is_relative: false }
    })
}

impl Parts {
    /// Whether neither scheme, host nor port change.
    fn stay_with_host(&self) -> bool {
        self.scheme.is_none() && self.host.is_none() && self.port.is_none()
    }

    fn apply(&self, facts: &Facts<'_>, query: Option<&str>, asked: &Url) -> Option<Url> {
        let scheme = self.scheme.unwrap_or(asked.scheme);
        let path = match &self.path {
            Some(path) => rendered(path, facts, TextContext::Path)?,
            None => facts.exchange.request.uri.path().to_owned(),
        };
        let (path, own) = match path.split_once('?') {
            Some((path, own)) => (path.to_owned(), Some(own.to_owned())),
            None => (path, None),
        };
        // No two slashes at its beginning, and no dot segments that a client would resolve.
        let mut path = path::normalise(&path, true).ok()?.text.into_owned();
        match self.trailing_slash {
            Some(TrailingSlash::Add) if !path.ends_with('/') => path.push('/'),
            Some(TrailingSlash::Remove) if path.len() > 1 => {
                path.truncate(path.trim_end_matches('/').len().max(1))
            }
            _ => {}
        }
        let own = own.map_or_else(|| path.clone(), |own| format!("{path}?{own}"));
        Some(Url { scheme, authority: self.authority(scheme, facts, asked)?, target: with_query(own, query) })
    }

    fn authority(&self, scheme: &str, facts: &Facts<'_>, asked: &Url) -> Option<String> {
        let (name, port) = split_port(&asked.authority);
        let moves = self.host.is_some() || scheme != asked.scheme;
        let name = match &self.host {
            Some(host) => rendered(host, facts, TextContext::Host)?,
            None => name.to_owned(),
        };
        if !parse::is_authority(&name) {
            return None;
        }
        Some(match (self.port, port) {
            (Some(port), _) => plain(scheme, &format!("{name}:{port}")),
            (None, Some(port)) if !moves => plain(scheme, &format!("{name}:{port}")),
            _ => name.to_ascii_lowercase(),
        })
    }
}

/// Host and port; the colons of an IPv6 address stand in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests;
