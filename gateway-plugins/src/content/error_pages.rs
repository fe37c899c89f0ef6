//! Answers errors with pages of the operator's own, chosen by status and by what the client accepts, and hides what
//! targets say in theirs.
//!
//! The status stays. Fields that describe the old body go (`Content-Encoding`, `ETag`, …); `Retry-After`,
//! `WWW-Authenticate` and the like stay. Answers that are gRPC are left alone: their errors stand in trailers.

mod page;

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::Reply;
use gateway_core::plugin::{
    Capabilities, Capability, Hooks, OnResponse, OnUnrouted, Plugin, Seat, SeatNumber, Step, World,
};
use gateway_core::template::Facts;
use gateway_plugin_common::accept;
use gateway_plugin_common::facts;
use gateway_plugin_common::headers;
use gateway_plugin_common::list_fields;
use gateway_plugin_common::parse;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use page::Page;

/// Settings of `error_pages`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The pages; at least one. Of those for a status, the one that the client accepts best is sent, the first where it
    /// accepts none.
    pages: Vec<PageConfig>,
    /// Whose errors get a page: `all`, those of the `target`, or those of the `gateway` itself. Default `all`.
    of: Whose,
    /// Header fields to remove from a response that gets a page, such as `x-powered-by`. Default none.
    remove_headers: Vec<String>,
}

/// One page.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PageConfig {
    /// The statuses it is for: `404`, `4xx`, `500-504`, and several with commas between; 400 to 599.
    status: Statuses,
    /// The page's media type. Default `text/html; charset=utf-8`.
    #[serde(default = "html")]
    content_type: String,
    /// The page, with values of request and response as in templates (`${response.status}`, `${request.id}`). Values are
    /// escaped for HTML, XML and JSON.
    body: String,
}

/// Statuses as written: one, or text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Statuses {
    /// A status.
    One(u16),
    /// Statuses and ranges.
    Text(String),
}

/// Whose errors get a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Whose {
    #[default]
    All,
    Target,
    Gateway,
}

fn html() -> String {
    "text/html; charset=utf-8".to_owned()
}

/// The plugin.
pub(crate) struct ErrorPages {
    pages: Vec<Choice>,
    of: Whose,
    removed: Vec<HeaderName>,
}

struct Choice {
    statuses: Vec<(u16, u16)>,
    content_type: HeaderValue,
    /// The type without parameters, in lower case.
    essence: String,
    page: Page,
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
    const SUMMARY: &'static str =
        "Answers errors with pages of the operator's own, and hides what targets say in theirs.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.pages.is_empty() {
            problems.add("config.pages", "there is no page");
        }
        let pages = config.pages.into_iter().enumerate();
        let pages = pages.filter_map(|(n, page)| Choice::read(n, page, &mut problems)).collect();
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
            hooks.goes_by_captures(&format!("config.pages[{n}]"), choice.page.captures());
        }
        hooks.on_response(self.clone());
        if self.of != Whose::Target {
            hooks.on_unrouted(self);
        }
    }
}

impl Choice {
    fn read(n: usize, config: PageConfig, problems: &mut Problems) -> Option<Self> {
        let at = format!("config.pages[{n}]");
        let written = match config.status {
            Statuses::One(status) => status.to_string(),
            Statuses::Text(text) => text,
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
        let page = Page::read(&format!("{at}.body"), &config.body, &essence, problems);
        Some(Self { statuses: statuses?, content_type: content_type?, essence, page: page? })
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
        let is_meant = match self.of {
            Whose::All => true,
            Whose::Target => exchange.is_from_target(),
            Whose::Gateway => !exchange.is_from_target(),
        };
        let status = response.status();
        // What the request says of itself is for its sender to choose, and hides no error of the target.
        if !is_meant || status < StatusCode::BAD_REQUEST || is_grpc(response) {
            return Step::Next;
        }
        let Some((choice, is_negotiated)) = self.choose(exchange, status) else { return Step::Next };
        let text = choice.page.render(&facts::with_response(exchange, seat, status, response.headers()));
        self.describe(response.headers_mut(), status, choice, is_negotiated);
        *response.body_mut() = Body::full(text);
        Step::Next
    }
}

impl OnUnrouted for ErrorPages {
    fn on_unrouted(&self, exchange: &mut Exchange, reply: &mut Reply, _place: SeatNumber) {
        let status = reply.status.unwrap_or_else(|| reply.cause.status());
        let is_page = status >= StatusCode::BAD_REQUEST && exchange.dialect == Dialect::Plain;
        let Some((choice, is_negotiated)) = self.choose(exchange, status).filter(|_| is_page) else { return };
        let text =
            choice.page.render(&Facts { response: Some((status, &reply.headers)), ..Facts::of(exchange) });
        self.describe(&mut reply.headers, status, choice, is_negotiated);
        (reply.status, reply.body) = (Some(status), Some(Body::full(text)));
    }
}

impl ErrorPages {
    /// The page for a status that the client wants most, and whether there were several.
    fn choose(&self, exchange: &Exchange, status: StatusCode) -> Option<(&Choice, bool)> {
        let several = self.pages.iter().filter(|page| page.covers(status.as_u16()));
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
