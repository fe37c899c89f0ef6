//! Answers errors with pages of the operator's own, chosen by status and by what the client accepts, and hides what
//! targets say in theirs.
//!
//! A page is text of the configuration, a file, the response of another server, or a redirect. The status stays unless the page has
//! one of its own. Fields that describe the old body go (`Content-Encoding`, `ETag`, …); `Retry-After`, `WWW-Authenticate` and the like
//! stay. Answers that are gRPC are left alone: their errors stand in trailers.
//!
//! If a file or a server cannot be read, the client receives the original error. Requests that no proxy matches get texts and
//! redirects only.

mod external_page;

use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::Reply;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnResponse, OnUnrouted, Plugin, Seat, SeatNumber, Step, Verdict,
    World,
};
use gateway_core::template::{Facts, Moment};
use gateway_plugin_common::accept;
use gateway_plugin_common::facts;
use gateway_plugin_common::headers;
use gateway_plugin_common::list_fields;
use gateway_plugin_common::parse;
use gateway_plugin_common::response_origin::ResponseOrigin;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::page::Page;
use external_page::ExternalPage;

/// Settings of `error_pages`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The pages; at least one. If several pages match a status, the gateway negotiates by `Accept`, and sends the
    /// first if the client accepts none.
    pages: Vec<PageConfig>,
    /// Which errors get a page: `all`, those of the `target`, or those of the `gateway` itself. Default `all`.
    of: ResponseOrigin,
    /// Header fields to remove from a response that gets a page, such as `x-powered-by`. Default none.
    remove_headers: Vec<String>,
}

/// One page: exactly one of `body`, `redirect`, `root`, `url` and `upstream_id`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PageConfig {
    /// Statuses of the page: `404`, `4xx`, `500-504`, or several separated by commas; 400 to 599.
    status: Statuses,
    /// Media type of `body`, by which the gateway negotiates. Default `text/html; charset=utf-8`.
    #[serde(default = "html")]
    content_type: String,
    /// The page, as a template with values of request and response (`${response.status}`, `${request.id}`). Values are
    /// escaped for HTML, XML and JSON.
    #[serde(default)]
    body: Option<String>,
    /// URL to redirect the client to, as a template. It begins with `/`, or with `http://`, `https://` or
    /// `${request.scheme}://` and a host. The host may contain only the values `${request.host}` and
    /// `${request.authority}`.
    #[serde(default)]
    redirect: Option<String>,
    /// Folder that contains the page.
    #[serde(default)]
    #[schemars(extend("format" = "path"))]
    root: Option<PathBuf>,
    /// Server that sends the page, as `http://host:port/path`; its path precedes `path`.
    #[serde(default)]
    url: Option<String>,
    /// Upstream that sends the page, over plain HTTP.
    #[serde(default)]
    upstream_id: Option<String>,
    /// Path of the page below `root`, `url` or `upstream_id`, as a template such as `/${response.status}.html`.
    #[serde(default)]
    path: Option<String>,
    /// Status that the client receives, 200 to 599. Default: that of the error; of a redirect 302.
    #[serde(default)]
    #[schemars(range(min = 200, max = 599))]
    response_status: Option<u16>,
    /// Time limit for the response head of `url` or `upstream_id`. Default 5 s.
    #[serde(default = "timeout")]
    #[schemars(range(min = 0.001, max = 60))]
    timeout: Millis,
}

fn timeout() -> Millis {
    Millis(5000)
}

/// One status, or a text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Statuses {
    /// A status.
    One(u16),
    /// Statuses and ranges.
    Text(String),
}

fn html() -> String {
    "text/html; charset=utf-8".to_owned()
}

/// The plugin.
pub(crate) struct ErrorPages {
    pages: Vec<Choice>,
    of: ResponseOrigin,
    removed: Vec<HeaderName>,
}

struct Choice {
    statuses: Vec<(u16, u16)>,
    content_type: HeaderValue,
    /// The type without parameters, in lower case.
    essence: String,
    content: Content,
    status: Option<StatusCode>,
}

/// What a client gets.
enum Content {
    Page(Page),
    External(ExternalPage),
}

/// What gRPC's media types begin with, gRPC-Web's among them.
const GRPC: &[u8] = b"application/grpc";
/// What describes the body that is replaced.
const OF_THE_BODY: &[&str] = &[
    "content-encoding",
    "content-language",
    "content-disposition",
    "content-range",
    "etag",
    "last-modified",
    "content-location",
    "trailer",
];

impl Plugin for ErrorPages {
    const NAME: &'static str = "error_pages";
    const EXAMPLE: &'static str = include_str!("../../examples/error_pages.yaml");
    const FAMILY: Family = Family::Content;
    const SUMMARY: &'static str = "Answers errors with custom pages, and hides the error pages of targets.";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.pages.is_empty() {
            problems.add("config.pages", "there is no page");
        }
        let pages = config.pages.into_iter().enumerate();
        let pages = pages.filter_map(|(n, page)| Choice::read(n, page, world, &mut problems)).collect();
        let names = config.remove_headers.iter().enumerate();
        let removed = names.filter_map(|(n, name)| {
            let at = format!("config.remove_headers[{n}]");
            let name = parse::header_name(&at, name, &mut problems)?;
            if headers::is_framing(&name) {
                problems.add(at, format!("`{name}` is the gateway's own to write"));
            }
            Some(name)
        });
        let removed = removed.collect();
        problems.into_result(Self { pages, of: config.of, removed })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::AttendsEveryReply])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        for (n, choice) in self.pages.iter().enumerate() {
            let at = format!("config.pages[{n}]");
            match &choice.content {
                Content::Page(page) => hooks.goes_by_captures(&at, page.captures()),
                Content::External(page) => hooks.goes_by_captures(&at, page.captures()),
            }
        }
        hooks.on_response(self.clone());
        if self.of != ResponseOrigin::Target {
            hooks.on_unrouted(self);
        }
    }
}

impl Choice {
    fn read(n: usize, mut config: PageConfig, world: &World, problems: &mut Problems) -> Option<Self> {
        let at = format!("config.pages[{n}]");
        let written = match &config.status {
            Statuses::One(status) => status.to_string(),
            Statuses::Text(text) => text.clone(),
        };
        let statuses = statuses(&written);
        if statuses.is_none() {
            problems.add(format!("{at}.status"), format!("`{written}` names no error statuses")).remedy =
                Some("such as `404`, `5xx` or `500-504, 403`".into());
        }
        let essence = config.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let content_type = HeaderValue::from_str(&config.content_type).ok().filter(|_| essence.contains('/'));
        if content_type.is_none() {
            problems
                .add(format!("{at}.content_type"), format!("`{}` is not a media type", config.content_type));
        }
        let status = config.response_status.and_then(|status| StatusCode::from_u16(status).ok());
        let content = match config.body.take() {
            Some(_) if config.is_external() => {
                problems.add(&at, "`body` excludes `redirect`, `root`, `url`, `upstream_id` and `path`");
                None
            }
            Some(body) => Page::read(&format!("{at}.body"), &body, &essence, Moment::Response, problems)
                .map(Content::Page),
            None => ExternalPage::read(&at, config, world, problems).map(Content::External),
        };
        Some(Self { statuses: statuses?, content_type: content_type?, essence, content: content?, status })
    }

    fn covers(&self, status: u16) -> bool {
        self.statuses.iter().any(|(low, high)| (*low..=*high).contains(&status))
    }

    /// How much the client wants this type, in thousandths.
    fn wanted(&self, exchange: &Exchange) -> u16 {
        let headers = &exchange.request.headers;
        if !headers.contains_key(ACCEPT) {
            return 1000;
        }
        let main = self.essence.split('/').next().unwrap_or_default();
        let rank = |member: &str| {
            let member = member.to_ascii_lowercase();
            match member.as_str() {
                "*/*" => 1,
                _ if member == self.essence => 3,
                _ if member.strip_suffix("/*") == Some(main) => 2,
                _ => 0,
            }
        };
        accept::quality(headers, ACCEPT, rank).unwrap_or(0)
    }
}

/// `404`, `4xx`, `500-504`, with commas between.
fn statuses(text: &str) -> Option<Vec<(u16, u16)>> {
    let read = |part: &str| {
        let part = part.trim();
        let range = match part.to_ascii_lowercase().as_str() {
            "4xx" => (400, 499),
            "5xx" => (500, 599),
            other => match other.split_once('-') {
                Some((low, high)) => (low.trim().parse().ok()?, high.trim().parse().ok()?),
                None => (other.parse().ok()?, other.parse().ok()?),
            },
        };
        (range.0 >= 400 && range.1 <= 599 && range.0 <= range.1).then_some(range)
    };
    text.split(',').map(read).collect()
}

fn is_grpc(response: &Response<Body>) -> bool {
    let media_type = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    media_type.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
}

impl OnResponse for ErrorPages {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let status = response.status();
        // What the request says of itself is for its sender to choose, and hides no error of the target.
        if !self.of.has(exchange) || status < StatusCode::BAD_REQUEST || is_grpc(response) {
            return Step::Next;
        }
        let Some((choice, is_negotiated)) = self.choose(exchange, status, |_| true) else {
            return Step::Next;
        };
        let facts = facts::with_response(exchange, seat, status, response.headers());
        let page = match &choice.content {
            Content::Page(page) => {
                let text = page.render(&facts);
                self.describe(response.headers_mut(), status, choice, is_negotiated);
                *response.body_mut() = Body::full(text);
                *response.status_mut() = choice.status.unwrap_or(status);
                return Step::Next;
            }
            Content::External(page) => page,
        };
        // What cannot be written of this request is no page.
        let Some(place) = page.place(&facts) else { return Step::Next };
        Step::wait(async move {
            let own = choice.status.unwrap_or_else(|| page.status_beside(status));
            if let Some(mut made) = page.respond(exchange, &place, own == StatusCode::OK, seat).await {
                if made.status() != StatusCode::NOT_MODIFIED {
                    *made.status_mut() = own;
                }
                external_page::keep(response.headers(), made.headers_mut());
                if is_negotiated {
                    list_fields::add_names(made.headers_mut(), VARY, &HeaderValue::from_static("Accept"));
                }
                *response = made;
            }
            Verdict::Next
        })
    }
}

impl OnUnrouted for ErrorPages {
    fn on_unrouted(&self, exchange: &mut Exchange, reply: &mut Reply, _place: SeatNumber) {
        let status = reply.status.unwrap_or_else(|| reply.cause.status());
        let is_page = status >= StatusCode::BAD_REQUEST && exchange.dialect == Dialect::Plain;
        // No server is asked and no file read for them.
        let is_at_hand = |choice: &Choice| match &choice.content {
            Content::Page(_) => true,
            Content::External(page) => page.is_redirect(),
        };
        let chosen = self.choose(exchange, status, is_at_hand).filter(|_| is_page);
        let Some((choice, is_negotiated)) = chosen else { return };
        let facts = Facts { response: Some((status, &reply.headers)), ..Facts::of(exchange) };
        let own = choice.status.unwrap_or(status);
        match &choice.content {
            Content::Page(page) => {
                let text = page.render(&facts);
                self.describe(&mut reply.headers, status, choice, is_negotiated);
                (reply.status, reply.body) = (Some(own), Some(Body::full(text)));
            }
            Content::External(page) => {
                let Some(location) = page.location(&facts) else { return };
                reply.headers.insert(LOCATION, location);
                let own = choice.status.unwrap_or_else(|| page.status_beside(status));
                (reply.status, reply.body) = (Some(own), Some(Body::empty()));
            }
        }
    }
}

impl ErrorPages {
    /// The page for a status that the client wants most, and whether there were several.
    fn choose(
        &self,
        exchange: &Exchange,
        status: StatusCode,
        is_possible: impl Fn(&Choice) -> bool,
    ) -> Option<(&Choice, bool)> {
        let several = self.pages.iter().filter(|page| page.covers(status.as_u16()) && is_possible(page));
        let mut best: Option<(&Choice, u16)> = None;
        let mut count = 0;
        for page in several {
            count += 1;
            let wanted = page.wanted(exchange);
            if best.is_none_or(|(_, known)| wanted > known) {
                best = Some((page, wanted));
            }
        }
        best.map(|(choice, _)| (choice, count > 1))
    }

    /// Makes a response's header fields those of a page.
    fn describe(&self, headers: &mut HeaderMap, status: StatusCode, choice: &Choice, is_negotiated: bool) {
        headers::forget_bytes(headers);
        for name in OF_THE_BODY {
            // There it says how long the resource is (RFC 9110 §15.5.17), not what the body is.
            if status != StatusCode::RANGE_NOT_SATISFIABLE || *name != "content-range" {
                headers.remove(*name);
            }
        }
        for name in &self.removed {
            headers.remove(name);
        }
        headers.insert(CONTENT_TYPE, choice.content_type.clone());
        if is_negotiated {
            list_fields::add_names(headers, VARY, &HeaderValue::from_static("Accept"));
        }
    }
}

#[cfg(test)]
mod tests;
