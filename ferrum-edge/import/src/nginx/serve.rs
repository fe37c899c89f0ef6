//! Where a location's requests go: to a server, to files, or nowhere.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::Nginx;
use super::blocks::{Directive, HANDLERS};
use super::file_conditions::{PATH_REST, PATH_REST_REGEX};
use super::item::{Item, Passed, Rewritten, place, same_path};
use super::location::{Base, LocationKind, Turn, label};
use super::missing_slash::beside_folder;
use super::path_groups::begins_with_slash;
use super::response_rewrites::PassedTo;
use super::site::{ScriptPlace, Site};
use super::values::is_of_answer;
use super::variable_names::WITH_QUERY;
use crate::cond::Cond;
use crate::draft::{Plug, Proxy, QueryChanges, Redirect, Replaced, Rewrite, Route, To, draft};
use crate::text;

/// The setting for `client_max_body_size`.
const MOST_BYTES: &str = "max_request_body";

impl<'d> Nginx<'_> {
    /// What becomes of the requests of a location.
    pub(super) fn turn(&mut self, site: &Site<'d>, turn: &Turn<'d>, items: &mut Vec<Item>) {
        let mut levels = vec![site.http, site.directive];
        levels.extend(turn.levels.iter().copied());
        if turn.levels.is_empty() && turn.way != LocationKind::Prefix("/".to_owned()) {
            // A regex that is none here: all that it may take.
            items.push(Item::new(&turn.base, To::Closed, "regex"));
            return;
        }
        let place = place(site, &levels);
        let own = turn.levels.last();
        // It holds for the locations within it, too.
        let mut internal =
            turn.levels.iter().flat_map(|level| &level.block).filter(|it| it.name == "internal");
        if let Some(internal) = internal.next() {
            self.out.converted(internal.at, format_args!("{place}: internal"));
            let answer = To::Answer(404, "text/plain".to_owned(), String::new());
            items.push(Item::new(&turn.base, answer.clone(), &label(&turn.way)));
            self.without_slash(site, turn, &levels, answer, items);
            return;
        }
        if let Some(location) = own {
            for inner in &location.block {
                self.report_directive(&place, inner);
            }
        }
        let before = self.vars_here.clone();
        let switches = self.switches.len();
        if let LocationKind::Regex(regex, _) = &turn.way {
            self.vars_here.fitted(regex);
        }
        let start = items.len();
        let way = ScriptPlace { site, base: &turn.base, levels: &levels, jumps: 0 };
        let goes_on = turn.levels.is_empty() || self.scripted(way, items);
        for item in items.iter_mut().skip(start) {
            item.label = format!("{}-{}", label(&turn.way), item.label);
        }
        if goes_on {
            self.untried(site, turn, &levels, items);
            let names_rest = |it: &Directive| {
                it.name == "try_files" && it.arguments.last().is_some_and(|last| last.contains(PATH_REST))
            };
            let base = match own.is_some_and(|own| own.block.iter().any(names_rest)) {
                true => turn.base.captured(PATH_REST_REGEX),
                false => turn.base.clone(),
            };
            self.serve(site, &base, &levels, &turn.way, &Rewritten::No, items);
            if let LocationKind::Exact(path) | LocationKind::Prefix(path) = &turn.way {
                let to = To::Redirect(draft!(Redirect { status_code: 301, location: path }));
                self.without_slash(site, turn, &levels, to, items);
            }
        }
        self.vars_here = before;
        self.switches.truncate(switches);
        if own.is_some_and(|_| {
            turn.levels.iter().any(|level| level.block.iter().any(|it| it.name == "access_log"))
        }) {
            let logs = self.log_places(&place, &levels);
            items.iter_mut().skip(start).for_each(|item| item.logs = Some(logs.clone()));
        }
        let is_closed = items.iter().skip(start).any(|item| item.to == To::Closed);
        self.out.closed_locations.0 += usize::from(is_closed);
        self.out.closed_locations.1 += 1;
    }

    /// Requests for which an `if` sets a variable in a location with `try_files`: nginx looks for their own file only.
    fn untried(&mut self, site: &Site<'d>, turn: &Turn<'d>, levels: &[&'d Directive], items: &mut Vec<Item>) {
        let Some(own) = turn.levels.last().copied() else { return };
        let has = |name: &str| own.block.iter().any(|it| it.name == name);
        if !has("try_files") || own.block.iter().any(|it| HANDLERS.contains(&it.name.as_str())) {
            return;
        }
        let sets = |it: &&Directive| it.name == "if" && it.block.iter().all(|it| it.name == "set");
        for branch in own.block.iter().filter(sets) {
            let Some(cond) = self.asked(&branch.arguments) else { continue };
            let inner: Vec<&Directive> = levels.iter().copied().chain([branch]).collect();
            self.serve(site, &turn.base.and(cond), &inner, &turn.way, &Rewritten::No, items);
        }
    }

    /// What becomes of requests after the rewrite directives.
    pub(super) fn serve(
        &mut self,
        site: &Site<'d>,
        base: &Base,
        levels: &[&'d Directive],
        way: &LocationKind,
        rewritten: &Rewritten,
        items: &mut Vec<Item>,
    ) {
        let place = place(site, levels);
        let label = label(way);
        let guards = self.guards(&place, levels);
        if guards.is_closed {
            items.push(Item::new(base, To::Closed, &label));
            return;
        }
        let pages = self.error_pages(site, &place, levels);
        for (cond, status, name) in [(guards.uncertified, 400, "uncertified"), (guards.denied, 403, "denied")]
        {
            let Some(cond) = cond else { continue };
            let answer = To::Answer(status, "text/plain".to_owned(), String::new());
            let is_all = cond == Cond::Always;
            let mut item = Item::new(&base.and(cond), answer, &format!("{label}-{name}"));
            self.response_headers(&place, levels, Some(status), &mut item.plugins);
            item.plugins.extend(pages.clone());
            items.push(item);
            if is_all {
                return;
            }
        }
        let plugins = self.plugins(&place, levels);
        let mut settings = self.settings(&place, levels);
        let own_most = settings.get(MOST_BYTES).and_then(Value::as_u64);
        let mut handled = self.handled(site, &place, levels, way, rewritten).into_iter().peekable();
        while let Some(mut passed) = handled.next() {
            let (base, beside) = beside_folder(base, &passed, way);
            if let Some(paths) = beside {
                // What goes on within the segment, `/ax` of `/a`, is a file beside the folder to nginx.
                let beside = Base { paths, cond: base.cond.clone().and(passed.cond.clone()) };
                let none = To::Answer(404, "text/plain".to_owned(), String::new());
                let mut item = Item::new(&beside, none, &format!("{label}-beside"));
                item.plugins.clone_from(&guards.plugins);
                items.push(item);
            }
            if let Some(mut slash) = self.folder_itself(&base, &passed, way) {
                slash.plugins.clone_from(&guards.plugins);
                self.response_headers(&place, levels, Some(301), &mut slash.plugins);
                items.push(slash);
            }
            let mut item = Item::new(&base.and(passed.cond), passed.to, &label);
            // Of another location, its settings hold alone.
            if passed.plugins.is_none() {
                let is_last = handled.peek().is_none();
                item.settings = if is_last { std::mem::take(&mut settings) } else { settings.clone() };
            }
            item.settings.append(&mut passed.settings);
            item.files = passed.files;
            let most = item.settings.get(MOST_BYTES).and_then(Value::as_u64);
            // Of a named location, too, which is looked at after this one.
            let least = [own_most, most].into_iter().flatten().filter(|it| *it > 0).min();
            if let Some(least) = least {
                item.settings.max_request_body(least);
            }
            let is_application = item.settings.contains_key("backend_protocol");
            item.plugins.clone_from(&guards.plugins);
            item.plugins.extend(self.switches.clone());
            // Another location has its own pages among its plugins.
            let pages = pages.clone().filter(|_| passed.plugins.is_none());
            item.plugins.extend(passed.plugins.unwrap_or_else(|| plugins.clone()));
            // Plugins see responses in the reverse of their order.
            item.plugins.extend(passed.answers);
            item.plugins.extend(pages);
            if is_application {
                // `proxy_set_header` is for targets that speak HTTP.
                item.plugins.retain(|plug| plug.name != "request_transformer");
                item.settings
                    .retain(|name, _| !name.starts_with("backend_tls_") && name != "preserve_host_header");
            }
            if let Some(rewrite) = passed.rewrite {
                join_rewrite(&mut item.plugins, rewrite);
            }
            items.push(item);
        }
    }

    /// Where requests go, by cases.
    pub(super) fn handled(
        &mut self,
        site: &Site<'d>,
        place: &str,
        levels: &[&'d Directive],
        way: &LocationKind,
        rewritten: &Rewritten,
    ) -> Vec<Passed> {
        // Locations within it have none of a location's, but its `if`s do.
        let ifs = levels.iter().rev().take_while(|level| level.name == "if").count();
        let own = levels.iter().rev().take(ifs + 1).filter(|level| level.name != "server");
        let handler =
            own.flat_map(|level| level.block.iter()).find(|it| HANDLERS.contains(&it.name.as_str()));
        let Some(handler) = handler else {
            return vec![self.files(site, place, levels, way, rewritten)];
        };
        let what = format!("{place}: {handler}");
        let closed_route = || vec![Passed::new(To::Closed, Proxy::default())];
        if handler.name == "fastcgi_pass" {
            let scripts = self.scripts(site, place, levels, rewritten, handler);
            return scripts.map_or_else(closed_route, |it| vec![it]);
        }
        if !matches!(handler.name.as_str(), "proxy_pass" | "grpc_pass") {
            let (why, todo) = match handler.name.as_str() {
                "uwsgi_pass" | "scgi_pass" => (
                    "the gateway speaks HTTP and FastCGI to servers",
                    "put an HTTP server in front of the application",
                ),
                "stub_status" => ("it answers 503", "see /metrics and /v1/status of the admin port"),
                _ => ("the gateway does not support this; it answers 503", ""),
            };
            self.out.not_converted(handler.at, what, why, todo);
            return closed_route();
        }
        let url = handler.arguments.first().map_or("", String::as_str);
        // What stands behind the host may be the request's own path as a whole.
        let tail = TAILS.into_iter().find(|tail| url.ends_with(tail)).unwrap_or("");
        let plain = url.strip_suffix(tail).unwrap_or(url);
        let own_query = self.vars_here.without_query(plain).filter(|_| tail.is_empty());
        let keeps_query = own_query.is_some() || tail.ends_with("$args") || tail == "$request_uri";
        let plain = own_query.unwrap_or(plain);
        let tail = url.contains('$').then_some(tail);
        let cases = match plain.contains('$') {
            false => Some(vec![(Cond::Always, plain.to_owned())]),
            true => self.vars_here.texts(&with_slash(plain, way)),
        };
        let Some(cases) = cases.filter(|cases| cases.iter().all(|(_, url)| leads_to_one(url))) else {
            let why = "where it passes to is not known beforehand: a variable of the request; it answers 503";
            self.out.not_converted(handler.at, what, why, "name the targets, one proxy for each");
            return closed_route();
        };
        self.out.converted(handler.at, &what);
        let host =
            |it: &&Directive| it.arguments.first().is_some_and(|name| name.eq_ignore_ascii_case("host"));
        let says_host = super::said(levels, "proxy_set_header").iter().any(host);
        let mut made = Vec::new();
        let opens_websockets = super::said(levels, "proxy_set_header").iter().any(is_upgrade);
        for (cond, url) in cases {
            match self.passed(handler, says_host, &what, &url, Sent { way, rewritten, tail, keeps_query }) {
                Some(mut passed) => {
                    if handler.name == "proxy_pass" {
                        let url = Some(url.as_str()).filter(|_| !plain.contains('$') && tail.is_none());
                        passed.answers.extend(self.response_rewrites(place, levels, &PassedTo { way, url }));
                        passed.answers.extend(self.cache(place, levels));
                    }
                    if !opens_websockets && handler.name == "proxy_pass" {
                        // nginx passes no `Upgrade` on unless it is told to.
                        passed.settings.allowed_upgrades(Vec::<String>::new());
                    }
                    made.push(Passed { cond, ..passed });
                }
                None => made.extend(closed_route().into_iter().map(|it| Passed { cond: cond.clone(), ..it })),
            }
        }
        made
    }

    /// `proxy_pass URL`.
    fn passed(
        &mut self,
        handler: &Directive,
        says_host: bool,
        what: &str,
        url: &str,
        sent: Sent<'_>,
    ) -> Option<Passed> {
        let full = if handler.name == "grpc_pass" && !url.contains("://") {
            format!("grpc://{url}")
        } else {
            url.to_owned()
        };
        let Some(url) = socket_url(&full).or_else(|| text::url(&full)) else {
            self.out.not_converted(
                handler.at,
                what,
                format_args!("`{url}` is not a URL; it answers 503"),
                "",
            );
            return None;
        };
        let is_tls = matches!(url.scheme.as_str(), "https" | "grpcs");
        let mut settings = Proxy::default();
        if handler.name == "grpc_pass" {
            settings.backend_http_version("2");
        }
        if let Some(upstream) = self.upstreams.get(&url.host)
            && url.port.is_none()
        {
            let to = To::Upstream { id: upstream.id.clone(), is_tls };
            let (mut changes, mut rewrite) = self.forwarded(handler, what, &url.path, sent);
            settings.append(&mut changes);
            if !says_host {
                // Its servers are told the group's name.
                rewrite.get_or_insert_default().host(url.host);
            }
            return Some(Passed { rewrite, ..Passed::new(to, settings) });
        }
        let port = url.port.unwrap_or(if is_tls { 443 } else { 80 });
        let to = To::Host { host: url.host.clone(), port, is_tls };
        let (mut changes, rewrite) = self.forwarded(handler, what, &url.path, sent);
        settings.append(&mut changes);
        Some(Passed { rewrite, ..Passed::new(to, settings) })
    }

    /// Which path the target gets: the request's, or that of `proxy_pass` in the place of what the location matched.
    fn forwarded(
        &mut self,
        handler: &Directive,
        what: &str,
        path: &str,
        sent: Sent<'_>,
    ) -> (Proxy, Option<Rewrite>) {
        let mut settings = draft!(Proxy { strip_listen_path: false });
        let Sent { way, rewritten, tail, keeps_query } = sent;
        if let Some(tail) = tail.filter(|tail| !tail.is_empty() || !path.is_empty()) {
            // nginx sends what it says as it is.
            let mut rewrite = as_written(path, tail, rewritten);
            if !keeps_query {
                rewrite.get_or_insert_with(same_path).query(draft!(QueryChanges { remove_all: true }));
            }
            return (settings, rewrite);
        }
        let own = match way {
            LocationKind::Exact(own) | LocationKind::Prefix(own) => Some(own.as_str()),
            LocationKind::Regex(..) | LocationKind::Named(_) => None,
        };
        match (rewritten, own) {
            (Rewritten::Break(new), _) => return (settings, Some(draft!(Rewrite { path: new }))),
            (Rewritten::Last(new), Some(own)) if !path.is_empty() => {
                let rest = new.strip_prefix(own).unwrap_or(new);
                return (settings, Some(draft!(Rewrite { path: format!("{path}{rest}") })));
            }
            (Rewritten::Last(new), _) => return (settings, Some(draft!(Rewrite { path: new }))),
            (Rewritten::No, _) => {}
        }
        if path.is_empty() {
            return (settings, None);
        }
        let Some(own) = own else {
            let why = "a location by regex has no path in `proxy_pass`; the request's own is sent";
            self.out.partial(handler.at, what, why, "");
            return (settings, None);
        };
        if matches!(way, LocationKind::Exact(_)) {
            return (settings, Some(draft!(Rewrite { path })));
        }
        if own == path {
            return (settings, None);
        }
        if own.ends_with('/') && path.ends_with('/') && !path.contains('?') {
            if own != "/" {
                settings.strip_listen_path(true);
            }
            if path != "/" {
                settings.backend_path(path.trim_end_matches('/'));
            }
            return (settings, None);
        }
        if !own.ends_with('/') && path == "/" {
            self.out.partial(handler.at, what, "slashes in a row are one in what the target gets", "");
        }
        let from = format!("^{}(.*)$", text::literal(own));
        let to = format!("{}${{1}}", path.replace('$', "$$"));
        (settings, Some(draft!(Rewrite { regex: [draft!(Replaced { from, to })] })))
    }

    /// Makes proxies of a server's items, the first with the highest priority.
    pub(super) fn place_items(&mut self, site: &Site<'d>, items: Vec<Item>) {
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let needs_order = items.len() > 1 || site.lift > 0;
        let internal = self.internal_redirect(site);
        let logs = self.log_places(&site.place, &[site.http, site.directive]);
        for (n, item) in items.into_iter().enumerate() {
            if item.base.cond == Cond::Never {
                continue;
            }
            if self.out.is_too_large() {
                return;
            }
            let mut route = Route::new(format!("{}-{}", site.called, item.label), item.to);
            for facet in &site.facets {
                for path in &item.base.paths {
                    route.matches.push(item.base.cond.with_path(path).with_facet(facet));
                }
            }
            let n = i64::try_from(n).unwrap_or(0);
            route.priority = needs_order.then_some((count - n) * 10 + site.lift);
            route.settings = item.settings;
            route.plugins = item.plugins;
            route.plugins.extend(item.files.map(Plug::of));
            if matches!(route.to, To::Upstream { .. } | To::Host { .. }) {
                route.plugins.extend(internal.clone());
            }
            let id = self.out.route(route);
            for log in item.logs.as_ref().unwrap_or(&logs) {
                self.logs.add(*log, &id);
            }
        }
    }
}

/// Whether targets are sent the client's wish to switch protocols.
fn is_upgrade(header: &&Directive) -> bool {
    let mut words = header.arguments.iter();
    words.next().is_some_and(|name| name.eq_ignore_ascii_case("upgrade"))
        && words.next().is_some_and(|value| !value.is_empty())
}

/// What may stand behind the host of a `proxy_pass` for the request's path.
const TAILS: [&str; 3] = ["$request_uri", "$uri$is_args$args", "$uri"];
/// What a target is sent of a request's path.
#[derive(Clone, Copy)]
struct Sent<'a> {
    way: &'a LocationKind,
    rewritten: &'a Rewritten,
    /// Of a `proxy_pass` with variables, which of [`TAILS`] it ends with, or nothing.
    tail: Option<&'a str>,
    /// Whether it ends with the query of the request.
    keeps_query: bool,
}

/// The URL of a `proxy_pass` with a slash before a group of the location's regex that begins with one: two are one.
fn with_slash(url: &str, way: &LocationKind) -> String {
    let LocationKind::Regex(regex, _) = way else { return url.to_owned() };
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('$')?))) {
        Some((scheme, (host, path)))
            if !host.contains('/') && begins_with_slash(&format!("${path}"), regex) =>
        {
            format!("{scheme}://{host}/${path}")
        }
        _ => url.to_owned(),
    }
}

/// Whether a URL, as a template, has the same host and port for all requests, and a path that a request has before it is sent.
fn leads_to_one(url: &str) -> bool {
    let Some((start, templates)) = url.split_once("${") else { return true };
    let is_in_path = start.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    let has_target = templates.contains("request.target");
    is_in_path && !has_target && !is_of_answer(url) && !url.contains(WITH_QUERY)
}

/// The `rewrite` for a `proxy_pass` with variables: its own path, and the request's as far as it names that.
fn as_written(path: &str, tail: &str, rewritten: &Rewritten) -> Option<Rewrite> {
    let has_template = path.contains("${");
    let path = if has_template { path.to_owned() } else { path.replace('$', "$$") };
    match (tail, rewritten) {
        ("", _) => Some(draft!(Rewrite { path })),
        ("$uri" | "$uri$is_args$args", Rewritten::Break(new) | Rewritten::Last(new)) => {
            Some(draft!(Rewrite { path: format!("{path}{new}") }))
        }
        _ if path.is_empty() => None,
        _ if has_template => Some(draft!(Rewrite { path: format!("{path}${{request.path}}") })),
        _ => {
            let whole = draft!(Replaced { from: "^(.*)$", to: format!("{path}${{1}}") });
            Some(draft!(Rewrite { regex: [whole] }))
        }
    }
}

/// `http://unix:/run/app.sock:/path` in its parts.
fn socket_url(text: &str) -> Option<text::Url> {
    let (scheme, rest) = text.split_once("://")?;
    let path = rest.strip_prefix("unix:").filter(|path| path.starts_with('/'))?;
    let (socket, path) = path.split_once(':').unwrap_or((path, ""));
    let host = format!("unix:{socket}");
    Some(text::Url { scheme: scheme.to_ascii_lowercase(), host, port: None, path: path.to_owned() })
}

/// A proxy's plugins have one `rewrite`, for the path and the host.
fn join_rewrite(plugins: &mut Vec<Plug>, rewrite: Rewrite) {
    match plugins.iter_mut().find(|plug| plug.name == "rewrite" && plug.when.is_none()) {
        Some(plug) => {
            if let Value::Object(known) = Rc::make_mut(&mut plug.config) {
                known.extend(Map::from(rewrite));
            }
        }
        None => plugins.push(Plug::of(rewrite)),
    }
}
