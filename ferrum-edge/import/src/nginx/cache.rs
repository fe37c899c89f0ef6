//! `proxy_cache`, `fastcgi_cache` and what belongs to them, as the plugin `response_cache`.

use super::asked::Test;
use super::blocks::Directive;
use super::{Nginx, said};
use crate::cond::Cond;
use crate::draft::{CacheKey, CasedRules, HeaderRule, Plug, ResponseCache, draft};
use crate::text;

/// The directives that are converted.
pub(super) const NAMES: &[&str] = &[
    "proxy_cache",
    "proxy_cache_bypass",
    "proxy_cache_key",
    "proxy_cache_methods",
    "proxy_cache_path",
    "proxy_cache_use_stale",
    "proxy_cache_background_update",
    "proxy_cache_valid",
    "proxy_no_cache",
    "fastcgi_cache",
    "fastcgi_cache_bypass",
    "fastcgi_cache_key",
    "fastcgi_cache_methods",
    "fastcgi_cache_path",
    "fastcgi_cache_use_stale",
    "fastcgi_cache_background_update",
    "fastcgi_cache_valid",
    "fastcgi_no_cache",
];
/// Those that need no counterpart: the gateway does so anyway.
pub(super) const NOT_NEEDED: &[&str] =
    &["proxy_cache_lock", "proxy_cache_lock_age", "proxy_cache_lock_timeout", "proxy_cache_revalidate"];

/// What nginx calls how a response came about.
pub(super) const CACHE_STATUS: &str = "$upstream_cache_status";

/// How long nginx keeps a stale response that nobody asks for.
const STALE: &str = "600s";
const TODO: &str = "use the plugin `response_cache`";

/// The directives of one of nginx's caches: those for targets that speak HTTP, or for FastCGI.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheOf<'l, 'd> {
    handler: &'static str,
    levels: &'l [&'d Directive],
}

impl<'l, 'd> CacheOf<'l, 'd> {
    /// The cache of what a location passes requests to.
    pub(super) fn location(levels: &'l [&'d Directive]) -> Self {
        let own = levels.iter().rev().take_while(|level| level.name != "server");
        let is_fastcgi = own.flat_map(|level| &level.block).any(|it| it.name == "fastcgi_pass");
        Self { handler: if is_fastcgi { "fastcgi" } else { "proxy" }, levels }
    }

    /// The directives that apply, by their name without the handler's: `cache_valid`.
    fn directives(self, name: &str) -> Vec<&'d Directive> {
        said(self.levels, &format!("{}_{name}", self.handler))
    }

    /// The directive that switches it on.
    fn zone(self) -> Option<&'d Directive> {
        let cache = self.directives("cache").first().copied()?;
        cache.arguments.first().filter(|zone| *zone != "off").map(|_| cache)
    }
}

impl Nginx<'_> {
    /// The cache of a location, where it has one that can be converted.
    pub(super) fn cache(&mut self, place: &str, levels: &[&Directive]) -> Option<Plug> {
        let own = CacheOf::location(levels);
        let cache = own.zone()?;
        let what = format!("{place}: {cache}");
        let mut config = ResponseCache::default();
        let (Some(when), Some(())) = (self.cached_when(own), self.cache_key(own, &mut config)) else {
            let why = "which requests it is for, or by what it tells responses apart, can't be said here: nothing is cached";
            self.out.not_converted(cache.at, what, why, TODO);
            return None;
        };
        self.cache_times(place, own, &mut config);
        for stale in own.directives("cache_use_stale") {
            let has = |word: &str| stale.arguments.iter().any(|it| it == word);
            if has("updating") {
                config.stale_while_revalidate(STALE);
            }
            if stale.arguments.iter().any(|it| !matches!(it.as_str(), "off" | "updating")) {
                config.stale_if_error(STALE);
            }
            self.out.converted(stale.at, format_args!("{place}: {stale}"));
        }
        // nginx does not ask what clients say of caches, and tells them nothing.
        config.client_directives(false);
        config.cache_status(false);
        let tells = |it: &&Directive| it.arguments.get(1).is_some_and(|value| value == CACHE_STATUS);
        if said(levels, "add_header").iter().any(tells) {
            config.x_cache(true);
        }
        let why = "responses are kept in memory, up to 64 MiB, and none of a time that only the configuration says to requests with cookies or credentials";
        self.out.partial(cache.at, what, why, "see `max_size` and `disk` of `response_cache`");
        Some(Plug::of(config).when(when.when()))
    }

    /// The rules that give `X-Cache` of the cache the name that `add_header NAME $upstream_cache_status` says, and set it for
    /// requests that are not cached; none where nothing is.
    pub(super) fn cache_status(
        &mut self,
        what: &str,
        header: &Directive,
        levels: &[&Directive],
        status: Option<u16>,
    ) -> Option<CasedRules> {
        let own = CacheOf::location(levels);
        if own.zone().is_none() || status.is_some() {
            self.out.not_needed(header.at, what, "it is empty where nothing is cached, and not sent");
            return None;
        }
        let key = self.cache_key(own, &mut ResponseCache::default());
        let passing = self.any_is_true(own, "cache_bypass").filter(|_| key.is_some());
        let Some((passing, unsaved)) = passing.zip(self.any_is_true(own, "no_cache")) else {
            self.out.not_converted(header.at, what, "nothing is cached", TODO);
            return None;
        };
        let name = header.arguments.first()?;
        let why =
            "`UPDATING` of nginx is `STALE` here, and answers that nginx sends without it have `X-Cache`";
        self.out.partial(header.at, what, why, "");
        let mut rules = Vec::new();
        if !name.eq_ignore_ascii_case("x-cache") {
            let rule =
                draft!(HeaderRule { operation: "rename", target: "header", key: "x-cache", new_key: name });
            rules.push((None, rule));
        }
        let unsaved = unsaved.and(passing.clone().negate());
        for (cond, word) in [(passing, "BYPASS"), (unsaved, "MISS")] {
            if cond != Cond::Never {
                rules.push((cond.when(), HeaderRule::field("set", name, word)));
            }
        }
        Some(rules)
    }

    /// The requests that `proxy_cache_bypass` and `proxy_no_cache` leave.
    fn cached_when(&self, own: CacheOf<'_, '_>) -> Option<Cond> {
        let mut made = Cond::Always;
        for name in ["cache_bypass", "no_cache"] {
            for value in own.directives(name).iter().flat_map(|it| &it.arguments) {
                made = made.and(self.vars_here.holds(value, &Test::True, 0)?.negate());
            }
        }
        Some(made)
    }

    /// When any value of a directive is neither empty nor `0`.
    fn any_is_true(&self, own: CacheOf<'_, '_>, name: &str) -> Option<Cond> {
        let values = own.directives(name).into_iter().flat_map(|it| &it.arguments);
        let each = values.map(|value| self.vars_here.holds(value, &Test::True, 0));
        each.collect::<Option<Vec<Cond>>>().map(Cond::any)
    }

    /// `proxy_cache_key`: what tells responses apart besides the URL.
    fn cache_key(&self, own: CacheOf<'_, '_>, config: &mut ResponseCache) -> Option<()> {
        let Some(key) = own.directives("cache_key").first().copied() else { return Some(()) };
        let (mut headers, mut cookies, mut has_path) = (Vec::new(), Vec::new(), false);
        for name in key.arguments.iter().flat_map(|word| word.split('$').skip(1)) {
            let name = name.trim_start_matches('{');
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
            let name = name.get(..end)?;
            has_path |= matches!(name, "request_uri" | "uri" | "document_uri");
            match name {
                "scheme" | "host" | "http_host" | "server_name" | "proxy_host" | "request_method"
                | "request_uri" | "uri" | "document_uri" | "args" | "is_args" | "query_string"
                | "proxy_port" | "server_port" => {}
                _ => match (name.strip_prefix("http_"), name.strip_prefix("cookie_")) {
                    (Some(header), _) => headers.push(header.replace('_', "-")),
                    (None, Some(cookie)) => cookies.push(cookie.to_owned()),
                    (None, None) => return None,
                },
            }
        }
        if !headers.is_empty() || !cookies.is_empty() {
            config.key(draft!(CacheKey { headers, cookies }));
        }
        has_path.then_some(())
    }

    /// `proxy_cache_valid [CODE ...] TIME`.
    fn cache_times(&mut self, place: &str, own: CacheOf<'_, '_>, config: &mut ResponseCache) {
        // Statuses and their seconds.
        let (mut good, mut bad) = (Vec::<(u16, u64)>::new(), Vec::new());
        for valid in own.directives("cache_valid") {
            let what = format!("{place}: {valid}");
            let parts = valid.arguments.split_last();
            let Some((time, codes)) =
                parts.and_then(|(time, codes)| Some((text::millis(time, 1000)? / 1000, codes)))
            else {
                self.out.not_converted(valid.at, what, "this time can't be converted", TODO);
                continue;
            };
            let is_any = codes.iter().any(|code| code == "any");
            let codes: Vec<u16> = match (codes.is_empty(), is_any) {
                (true, _) => vec![200, 301, 302],
                (false, true) => vec![200, 203, 204, 300, 301, 302, 308, 404, 405, 410, 414, 501],
                (false, false) => codes.iter().filter_map(|code| code.parse().ok()).collect(),
            };
            for code in codes.into_iter().filter(|code| !matches!(code, 206 | 304)) {
                let list = if code < 400 { &mut good } else { &mut bad };
                // The first that names a status holds for it.
                if !list.iter().any(|(known, _)| *known == code) {
                    list.push((code, time));
                }
            }
            self.out.converted(valid.at, what);
        }
        let (ttl, statuses) = self.one_time(place, own, &good).unzip();
        config.default_ttl(ttl);
        config.statuses(statuses);
        let (ttl, statuses) = self.one_time(place, own, &bad).unzip();
        config.negative_ttl(ttl);
        config.negative_statuses(statuses);
        let methods = own.directives("cache_methods");
        if let Some(posts) = methods.iter().find(|it| it.arguments.iter().any(|it| it == "POST")) {
            let why = "responses to GET and HEAD alone are kept";
            self.out.partial(posts.at, format_args!("{place}: {posts}"), why, "");
        }
    }

    /// One time for all statuses, the shortest, and the statuses; `None` where there are none.
    fn one_time(
        &mut self,
        place: &str,
        own: CacheOf<'_, '_>,
        list: &[(u16, u64)],
    ) -> Option<(String, Vec<u16>)> {
        let least = list.iter().map(|(_, time)| *time).min()?;
        if list.iter().any(|(_, time)| *time != least) {
            let why = format!("statuses with different times are all kept for the shortest, {least} s");
            if let Some(valid) = own.directives("cache_valid").first() {
                self.out.partial(valid.at, format_args!("{place}: {valid}"), why, "");
            }
        }
        Some((format!("{least}s"), list.iter().map(|(code, _)| *code).collect()))
    }
}
