//! Pages that are not in the configuration: files, responses of other servers, and redirects.

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::{Seat, World};
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Render, Template, TextContext};
use gateway_plugin_common::parse;
use http::header::{
    ALLOW, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LOCATION,
    PROXY_AUTHENTICATE, RANGE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::PageConfig;
use crate::content::content_source::{Source, SourceConfig};

/// Where a page is.
pub(super) struct ExternalPage {
    /// The path, or the URL of a redirect.
    place: Template,
    /// `None` for a redirect.
    source: Option<Source>,
}

impl PageConfig {
    pub(super) fn is_external(&self) -> bool {
        let sources = [self.url.is_some(), self.upstream_id.is_some(), self.root.is_some()];
        self.redirect.is_some() || self.path.is_some() || sources.contains(&true)
    }
}

impl ExternalPage {
    pub(super) fn read(at: &str, config: PageConfig, world: &World, problems: &mut Problems) -> Option<Self> {
        let PageConfig { redirect, root, url, upstream_id, path, timeout, .. } = config;
        if let Some(redirect) = redirect {
            if path.is_some() || root.is_some() || url.is_some() || upstream_id.is_some() {
                problems.add(at, "`redirect` excludes `root`, `url`, `upstream_id` and `path`");
            }
            let at = format!("{at}.redirect");
            let place = parse::template(&at, &redirect, Moment::Response, problems)?;
            if !place.fixes_host() {
                problems.add(&at, "a value of the request could decide where clients go").remedy =
                    Some("begin with `/`, or with `http://` or `https://` and a host of your own".into());
            }
            return Some(Self { place, source: None });
        }
        if root.is_none() && url.is_none() && upstream_id.is_none() {
            problems.add(at, "needs one of `body`, `redirect`, `root`, `url` and `upstream_id`");
            return None;
        }
        let source = Source::read(at, SourceConfig { root, url, upstream_id }, timeout, world, problems);
        let Some(path) = path.filter(|path| path.starts_with('/')) else {
            problems.add(format!("{at}.path"), "is needed, and begins with `/`");
            return None;
        };
        let place = parse::template(&format!("{at}.path"), &path, Moment::Response, problems)?;
        Some(Self { place, source: Some(source?) })
    }

    pub(super) fn captures(&self) -> impl Iterator<Item = &str> {
        self.place.captures()
    }

    pub(super) fn is_redirect(&self) -> bool {
        self.source.is_none()
    }

    /// The status of the page beside this error, where the configuration has none.
    pub(super) fn status_beside(&self, error: StatusCode) -> StatusCode {
        if self.is_redirect() { StatusCode::FOUND } else { error }
    }

    /// The URL of a redirect; `None` where it cannot be made.
    pub(super) fn location(&self, facts: &Facts<'_>) -> Option<HeaderValue> {
        HeaderValue::try_from(self.place(facts)?).ok()
    }

    /// The path or the URL; `None` where it cannot be made.
    pub(super) fn place(&self, facts: &Facts<'_>) -> Option<String> {
        let context = if self.is_redirect() { TextContext::Url } else { TextContext::Path };
        let mut out = Vec::new();
        self.place.render(facts, context, MAX_RENDERED, &mut out).ok()?;
        String::from_utf8(out).ok()
    }

    /// The page; `None` where its source cannot send it. Of a page that is sent as a success, clients may have a copy.
    pub(super) async fn respond(
        &self,
        exchange: &mut Exchange,
        place: &str,
        is_success: bool,
        seat: Seat<'_>,
    ) -> Option<Response<Body>> {
        let Some(source) = &self.source else {
            let mut response = Response::new(Body::empty());
            response.headers_mut().insert(LOCATION, HeaderValue::try_from(place).ok()?);
            return Some(response);
        };
        let encoded = place.trim_start_matches('/');
        let path = encoded.split('?').next().unwrap_or_default();
        let path = percent_encoding::percent_decode_str(path).decode_utf8().ok()?.into_owned();
        // Conditions and ranges are about the resource that failed.
        let own = exchange.request.headers.clone();
        for name in [IF_MATCH, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE] {
            exchange.request.headers.remove(name);
        }
        if !is_success {
            exchange.request.headers.remove(IF_NONE_MATCH);
            exchange.request.headers.remove(IF_MODIFIED_SINCE);
        }
        let fetched = source.fetch(exchange, &path, encoded, seat).await;
        exchange.request.headers = own;
        // A folder's redirect and the error of a server are no pages.
        let is_page =
            |status: StatusCode| status.is_success() || is_success && status == StatusCode::NOT_MODIFIED;
        let page = fetched.ok().filter(|response| is_page(response.status()));
        if page.is_none() {
            exchange.note_failure(format!("the error page {place} could not be read"));
        }
        page
    }
}

/// Keeps what an error says besides its body.
pub(super) fn keep(from: &HeaderMap, to: &mut HeaderMap) {
    for name in [WWW_AUTHENTICATE, PROXY_AUTHENTICATE, RETRY_AFTER, ALLOW] {
        for value in from.get_all(&name) {
            to.append(&name, value.clone());
        }
    }
}
