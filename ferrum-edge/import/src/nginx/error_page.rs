//! `error_page`: files, locations that pass on or answer by themselves, and redirects, instead of errors.

use serde_json::Value;

use super::asked::Test;
use super::blocks::Directive;
use super::guards::is_guarded_besides;
use super::location::{Location, LocationKind};
use super::login::is_of_refusals;
use super::media_types::media_type;
use super::site::Site;
use super::{Nginx, first, said};
use crate::draft::{ErrorPages, Page, Plug, draft};

const TODO: &str = "use the plugin `error_pages`";
/// Statuses that nginx has for itself alone: a head that is too large, a bad certificate, none, plain HTTP on a port for TLS, and a
/// client that went away. The gateway answers 431 or 400, and closes.
const OWN_STATUSES: [u16; 5] = [494, 495, 496, 497, 499];

/// The words of an `error_page`.
struct ErrorPage<'d> {
    codes: Vec<u16>,
    /// `=` or `=CODE`; 0 stands for the status of the page itself.
    status: Option<u16>,
    uri: &'d str,
}

impl<'d> Nginx<'_> {
    /// The plugin for the error pages of a location, where it has any.
    pub(super) fn error_pages(
        &mut self,
        site: &Site<'d>,
        place: &str,
        levels: &[&Directive],
    ) -> Option<Plug> {
        let asks_server = first(levels, "auth_request").is_some_and(|uri| uri != "off");
        let mut pages = Vec::new();
        for directive in said(levels, "error_page") {
            // `forward_auth` leads to a login.
            if asks_server && is_of_refusals(directive) {
                continue;
            }
            let what = format!("{place}: {directive}");
            let page = ErrorPage::read(directive).ok_or("its statuses are not errors");
            let page = page.and_then(|page| self.without_own_statuses(directive, &what, page));
            match page.and_then(|page| self.page(site, &page)) {
                Ok(page) => {
                    if page.get("url").is_some() || page.get("upstream_id").is_some() {
                        let why = "the server of the page gets its own address as `Host`";
                        self.out.partial(directive.at, what, why, "check whether it matters");
                    } else {
                        self.out.converted(directive.at, what);
                    }
                    pages.push(page);
                }
                Err(why) => self.out.not_converted(directive.at, what, why, TODO),
            }
        }
        if pages.is_empty() {
            return None;
        }
        let is_on = |name: &str| first(levels, name) == Some("on");
        let of = match is_on("proxy_intercept_errors") || is_on("fastcgi_intercept_errors") {
            true => "all",
            false => "gateway",
        };
        Some(Plug::of(draft!(ErrorPages { of, pages })))
    }

    /// The page without statuses that only nginx has, which are reported.
    fn without_own_statuses<'p>(
        &mut self,
        directive: &Directive,
        what: &str,
        mut page: ErrorPage<'p>,
    ) -> Result<ErrorPage<'p>, &'static str> {
        let before = page.codes.len();
        page.codes.retain(|code| !OWN_STATUSES.contains(code));
        if page.codes.is_empty() {
            return Err(
                "no request has this status here: the gateway answers 400 where nginx has 495 to 497 (plain HTTP on a port for TLS), and 431 for 494",
            );
        }
        if page.codes.len() < before {
            let why =
                "no request has a status of nginx's own (494 to 499) here: the gateway answers 400 or 431";
            self.out.partial(directive.at, what, why, TODO);
        }
        Ok(page)
    }

    /// A page of `error_pages`.
    fn page(&self, site: &Site<'d>, page: &ErrorPage<'_>) -> Result<Page, &'static str> {
        let codes: Vec<String> = page.codes.iter().map(ToString::to_string).collect();
        let mut made = draft!(Page { status: codes.join(", ") });
        if page.uri.starts_with("http://") || page.uri.starts_with("https://") {
            let to = self.page_url(page.uri)?;
            made.redirect(to);
            if let Some(status @ (301 | 303 | 307 | 308)) = page.status {
                made.response_status(status);
            }
            return Ok(made);
        }
        if page.uri.contains('$') {
            return Err("where it leads is not known beforehand");
        }
        let location = self.leads_to(site, page.uri)?;
        let block = location.map_or(&[][..], |location| &location.directive.block);
        // What a `return` makes of the page is looked at below.
        if location.is_some_and(|location| is_guarded_besides(location, "return")) {
            return Err("the location of the page is guarded");
        }
        // A page that is there is what `try_files $uri` finds.
        let looks_elsewhere = |it: &Directive| match it.name.as_str() {
            "if" | "set" | "fastcgi_pass" | "uwsgi_pass" => true,
            "try_files" => first_file(it).is_none() && !it.arguments.iter().any(|word| word == "$uri"),
            _ => false,
        };
        if block.iter().any(looks_elsewhere) {
            return Err("the location of the page can't be converted");
        }
        let mut levels = vec![site.http, site.directive];
        levels.extend(location.map(|location| location.directive));
        let status = match block.iter().find(|it| it.name == "return") {
            Some(answer) => self.returned_page(answer, &levels, page, &mut made)?,
            None => {
                let path = rewritten(block, page.uri)?;
                let mut source = self
                    .page_source(location, &levels, path)
                    .ok_or("the location of the page can't be converted")?;
                made.append(&mut source);
                page.status.map(|status| if status == 0 { 200 } else { status })
            }
        };
        if let Some(status) = status {
            made.response_status(status);
        }
        Ok(made)
    }

    /// A URL as a template, in which no value of the request names the host, except `Host` itself.
    fn page_url(&self, url: &str) -> Result<String, &'static str> {
        let made = self.vars_here.template(url).ok_or("a variable in it has no counterpart")?;
        let host =
            made.split_once("://").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
        let is_fixed = match host {
            Some(host) => {
                let known = host.replace("${request.host}", "").replace("${request.authority}", "");
                !known.replace("$$", "").contains('$')
            }
            None => made.starts_with('/') && !made.starts_with("//"),
        };
        is_fixed.then_some(made).ok_or("a value of the request would decide where clients go")
    }

    /// The location of a page.
    fn leads_to<'s>(&self, site: &'s Site<'d>, uri: &str) -> Result<Option<&'s Location<'d>>, &'static str> {
        if uri.starts_with('@') {
            let named = |it: &&Location<'d>| matches!(&it.way, LocationKind::Named(name) if name == uri);
            return site.locations.iter().find(named).map(Some).ok_or("there is no such location");
        }
        if let Some(location) = site.led_to(uri, true) {
            return Ok(Some(location));
        }
        let regex = |it: &&Location<'d>| matches!(&it.way, LocationKind::Regex(regex, ignores) if Test::Regex(regex, *ignores).fits_text(uri));
        let found = site.locations.iter().find(regex);
        let may_be_other = site.locations.iter().any(|it| !it.inner.is_empty() || it.before_regexes);
        match found {
            Some(_) if may_be_other => Err("which location the page has is not known beforehand"),
            found => Ok(found),
        }
    }

    /// `return` in the location of a page: the status that the client gets, where it is another one.
    fn returned_page(
        &self,
        answer: &Directive,
        levels: &[&Directive],
        page: &ErrorPage<'_>,
        made: &mut Page,
    ) -> Result<Option<u16>, &'static str> {
        let status = answer.arguments.first().and_then(|status| status.parse::<u16>().ok());
        match (status, answer.arguments.get(1)) {
            (Some(status @ (301 | 302 | 303 | 307 | 308)), Some(to)) => {
                let to = self.page_url(to)?;
                made.redirect(to);
                Ok(Some(status).filter(|status| *status != 302))
            }
            (Some(status), Some(text)) => {
                let text = &self.vars_here.template(text).ok_or("a variable in it has no counterpart")?;
                made.content_type(media_type(levels, page.uri));
                made.body(text);
                // Without `=`, the status of the error stays.
                Ok(page.status.map(|own| if own == 0 { status } else { own }))
            }
            _ => Err("the location of the page can't be converted"),
        }
    }

    /// Where a page comes from: a folder, a server or an upstream, and its path there.
    fn page_source(
        &self,
        location: Option<&Location<'d>>,
        levels: &[&Directive],
        path: &str,
    ) -> Option<Page> {
        let way = location.map(|location| &location.way);
        let own = match way {
            Some(LocationKind::Exact(own) | LocationKind::Prefix(own)) => own.as_str(),
            _ => "",
        };
        // A named location passes the client's own path and method on.
        let passes = levels.last()?.block.iter().any(|it| it.name == "proxy_pass");
        if passes && matches!(way, Some(LocationKind::Named(_) | LocationKind::Regex(..))) {
            return None;
        }
        let mut source = self.internal_source(levels, own)?;
        source.shift_remove("prefix");
        let path = match source.shift_remove("strip_prefix") {
            Some(Value::Bool(false)) => path.to_owned(),
            _ => format!("/{}", path.strip_prefix(own)?.trim_start_matches('/')),
        };
        let mut made = Page::default();
        made.append(&mut source);
        made.path(path.replace('$', "$$"));
        Some(made)
    }
}

impl<'d> ErrorPage<'d> {
    fn read(directive: &'d Directive) -> Option<Self> {
        let (uri, words) = directive.arguments.split_last()?;
        let (mut codes, mut status) = (Vec::new(), None);
        for word in words {
            match word.strip_prefix('=') {
                Some("") => status = Some(0),
                Some(code) => status = Some(code.parse().ok()?),
                None => codes.push(word.parse::<u16>().ok().filter(|code| (400..=599).contains(code))?),
            }
        }
        let is_good = status.is_none_or(|status| status == 0 || (200..=599).contains(&status));
        (is_good && !codes.is_empty()).then_some(Self { codes, status, uri })
    }
}

/// The file that a `try_files` begins with, if it is the same for all requests.
fn first_file(tried: &Directive) -> Option<&str> {
    let [first, _, ..] = tried.arguments.as_slice() else { return None };
    Some(first.as_str()).filter(|path| path.starts_with('/') && !path.contains('$'))
}

/// The path of a page behind the `rewrite` of its location: `rewrite ^(.*)$ /maintenance.html break`.
fn rewritten<'a>(block: &'a [Directive], uri: &'a str) -> Result<&'a str, &'static str> {
    let mut rewrites = block.iter().filter(|it| it.name == "rewrite");
    let tried = block.iter().find(|it| it.name == "try_files").and_then(first_file);
    match (rewrites.next().map(|it| it.arguments.as_slice()), rewrites.next()) {
        (None, _) if tried.is_some() => Ok(tried.unwrap_or(uri)),
        (None, _) if uri.starts_with('@') => Err("the location passes the client's own path on"),
        (None, _) => Ok(uri),
        (Some([from, to, flag]), None)
            if matches!(from.as_str(), "^(.*)$" | "^" | "^.*$" | ".*" | "^(.*)" | "(.*)" | "^/(.*)$")
                && flag == "break"
                && to.starts_with('/')
                && !to.contains(['$', '?']) =>
        {
            Ok(to)
        }
        _ => Err("the location of the page can't be converted"),
    }
}
