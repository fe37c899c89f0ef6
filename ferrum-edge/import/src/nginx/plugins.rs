//! What nginx says by directives and the gateway by plugins: limits, headers, compression.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde_json::Value;

use super::blocks::Directive;
use super::cache::CACHE_STATUS;
use super::login::{answer_variables, passed_on};
use super::values::is_of_answer;
use super::{Nginx, first, said};
use crate::cond::Cond;
use crate::draft::{
    CasedRules, Compression, ConcurrencyLimiting, HeaderRule, Limit, Matcher, Plug, RateLimiting,
    RequestTransformer, ResponseTransformer, Rewrite, draft,
};
use crate::own_fields::is_framing;
use crate::report::At;

/// Directives that become plugins of a location. Each level that has one of a name has all of that name.
pub(super) const NAMES: &[&str] = &[
    "add_header",
    "expires",
    "limit_rate",
    "proxy_set_header",
    "grpc_set_header",
    "proxy_hide_header",
    "gzip",
    "gzip_types",
    "gzip_min_length",
    "gzip_comp_level",
    "limit_conn",
    "limit_conn_status",
    "limit_req",
    "limit_req_status",
];

/// Headers the gateway sets by itself, with the values that it sets.
const OWN_HEADERS: &[(&str, &[&str])] = &[
    ("x-forwarded-for", &["$proxy_add_x_forwarded_for", "$http_x_forwarded_for"]),
    ("x-forwarded-proto", &["$scheme", "$http_x_forwarded_proto"]),
    ("x-forwarded-host", &["$http_host", "$http_x_forwarded_host"]),
    ("x-forwarded-port", &["$http_x_forwarded_port"]),
];

/// A zone of `limit_req_zone` or `limit_conn_zone`: by what it counts, for which requests, and how many.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    keys: Vec<(Cond, String)>,
    rate: Option<(u64, &'static str)>,
    /// What the first place that limits by it says besides.
    used: Option<(u64, u16)>,
}

/// Zones by name.
pub(super) type Zones = HashMap<String, Zone>;

/// Statuses of responses to which `add_header` without `always` adds its field.
const GOOD_STATUSES: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

/// Why a limit is not converted.
const NO_ZONE: &str = "its zone is not converted";

impl Nginx<'_> {
    /// Reads a zone; false when its key or rate is not known here.
    pub(super) fn zone(&mut self, directive: &Directive) -> bool {
        let Some(key) = directive.arguments.first() else { return false };
        let keys = match limited_by(key) {
            Some(by) => vec![(Cond::Always, by)],
            None => {
                // By cases, as where a `map` leaves some clients out.
                let Some(cases) = self.vars.texts(&key.replace("$binary_remote_addr", "$remote_addr")) else {
                    return false;
                };
                let by = |text: String| match text.as_str() {
                    "${client.address}" => "address".to_owned(),
                    _ => format!("template:{text}"),
                };
                cases
                    .into_iter()
                    .filter(|(_, text)| !text.is_empty())
                    .map(|(cond, text)| (cond, by(text)))
                    .collect()
            }
        };
        let argument =
            |name: &str| directive.arguments.iter().find_map(|argument| argument.strip_prefix(name));
        let Some(name) = argument("zone=").and_then(|zone| zone.split(':').next()) else { return false };
        let rate = match argument("rate=") {
            None => None,
            Some(rate) => {
                let Some((number, unit)) = rate.split_once("r/") else { return false };
                let Ok(number) = number.parse() else { return false };
                Some((number, if unit == "m" { "1m" } else { "1s" }))
            }
        };
        self.zones.insert(name.to_owned(), Zone { keys, rate, used: None });
        true
    }

    /// The plugins of a location, besides those that guard it.
    pub(super) fn plugins(&mut self, place: &str, levels: &[&Directive]) -> Vec<Plug> {
        let mut made = Vec::new();
        self.limits(place, levels, &mut made);
        self.limit_rate(place, levels, &mut made);
        self.request_headers(place, levels, &mut made);
        self.response_headers(place, levels, None, &mut made);
        self.sub_filter(place, levels, &mut made);
        if first(levels, "gzip") == Some("on") {
            made.push(gzip(levels));
        }
        made
    }

    fn limits(&mut self, place: &str, levels: &[&Directive], made: &mut Vec<Plug>) {
        let status =
            |name: &str| first(levels, name).and_then(|status| status.parse::<u16>().ok()).unwrap_or(503);
        for limit in said(levels, "limit_req") {
            let what = format!("{place}: {limit}");
            let argument =
                |name: &str| limit.arguments.iter().find_map(|argument| argument.strip_prefix(name));
            let zone = argument("zone=").and_then(|name| self.zones.get(name).cloned());
            let Some((zone, (rate, per))) = zone.and_then(|zone| Some((zone.clone(), zone.rate?))) else {
                self.out.not_converted(limit.at, what, NO_ZONE, "use the plugin `rate_limiting`");
                continue;
            };
            let burst = argument("burst=").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0);
            if burst > 0 && !limit.arguments.iter().any(|it| it == "nodelay") {
                self.out.partial(
                    limit.at,
                    &what,
                    "requests within the burst pass at once: they are not delayed",
                    "",
                );
            } else {
                self.out.converted(limit.at, &what);
            }
            let name = argument("zone=").unwrap_or_default();
            let status_code = status("limit_req_status");
            self.use_zone(limit, &what, name, (burst, status_code));
            for (cond, by) in zone.keys {
                let config = draft!(RateLimiting {
                    limits: [draft!(Limit { rate, per, burst: burst + 1 })],
                    headers: "none",
                    status_code,
                    on_missing: on_missing(&by),
                    limit_by: by,
                });
                made.push(Plug { zone: Some(name.into()), ..Plug::of(config).when(cond.when()) });
            }
        }
        for limit in said(levels, "limit_conn") {
            let what = format!("{place}: {limit}");
            let zone = limit.arguments.first().and_then(|name| self.zones.get(name).cloned());
            let most = limit.arguments.get(1).and_then(|most| most.parse::<u64>().ok());
            let (Some(zone), Some(most)) = (zone, most) else {
                self.out.not_converted(limit.at, what, NO_ZONE, "use the plugin `concurrency_limiting`");
                continue;
            };
            let refusal = match status("limit_conn_status") {
                code @ (429 | 503) => code,
                _ => 503,
            };
            self.out.converted(limit.at, &what);
            let name = limit.arguments.first().map_or("", String::as_str);
            self.use_zone(limit, &what, name, (most, refusal));
            for (cond, by) in zone.keys {
                let config = draft!(ConcurrencyLimiting {
                    max_concurrent: most,
                    status_code: refusal,
                    on_missing: on_missing(&by),
                    limit_by: by,
                });
                made.push(Plug { zone: Some(name.into()), ..Plug::of(config).when(cond.when()) });
            }
        }
    }

    /// Notes how a place limits by a zone. Others that say the same share its counters.
    fn use_zone(&mut self, limit: &Directive, what: &str, name: &str, says: (u64, u16)) {
        let Some(zone) = self.zones.get_mut(name) else { return };
        let is_other = *zone.used.get_or_insert(says) != says;
        if is_other {
            let why = "another place limits by this zone with other numbers: each of them counts for itself";
            self.out.partial(limit.at, what, why, "write the same numbers in both");
        }
    }

    /// Reports a construct that is converted with this template, as partial if the template contains a parameter of the query.
    pub(super) fn report_template(&mut self, at: At, what: impl fmt::Display, template: &str) {
        if template.contains("${request.query.") {
            let why =
                "parameters of the query (`$arg_…`) are decoded in it; nginx has them as they were sent";
            self.out.partial(at, what, why, "");
        } else {
            self.out.converted(at, what);
        }
    }

    /// `add_header` and `proxy_hide_header`, for answers of this status or, where there is none, for those of targets. Without
    /// `always`, fields are not added to refusals and errors.
    pub(super) fn response_headers(
        &mut self,
        place: &str,
        levels: &[&Directive],
        status: Option<u16>,
        made: &mut Vec<Plug>,
    ) {
        let (mut rules, mut of_good): (CasedRules, CasedRules) = (Vec::new(), Vec::new());
        for hidden in said(levels, "proxy_hide_header") {
            if let Some(name) = hidden.arguments.first() {
                rules.push((None, HeaderRule::no_field(name)));
                self.out.converted(hidden.at, format_args!("{place}: {hidden}"));
            }
        }
        let answered = answer_variables(levels);
        for header in said(levels, "add_header") {
            let what = format!("{place}: {header}");
            // `forward_auth` passes it on.
            if matches!(header.arguments.as_slice(), [name, value, ..] if passed_on(name, value, &answered)) {
                continue;
            }
            let [name, value, rest @ ..] = header.arguments.as_slice() else {
                self.directive_not_converted(place, header);
                continue;
            };
            let is_always = rest.iter().any(|it| it == "always");
            if value == CACHE_STATUS {
                let list = if is_always { &mut rules } else { &mut of_good };
                list.extend(self.cache_status(&what, header, levels, status).into_iter().flatten());
                continue;
            }
            let own = self.if_missing(name, value);
            let operation = if own.is_some() { "add" } else { "append" };
            let cases = own.map(|text| vec![(Cond::Always, text)]).or_else(|| self.vars_here.texts(value));
            let Some(cases) = cases else {
                self.out.not_converted(header.at, what, "a variable in it has no counterpart", "");
                continue;
            };
            if let Some((_, text)) = cases.iter().find(|(_, text)| text.contains("${request.query.")) {
                self.report_template(header.at, &what, text);
            }
            // Errors don't get it.
            if !is_always && status.is_some_and(|status| !GOOD_STATUSES.contains(&status)) {
                continue;
            }
            self.out.converted(header.at, what);
            let rules = if is_always || status.is_some() { &mut rules } else { &mut of_good };
            for (cond, text) in cases.into_iter().filter(|(_, text)| !text.is_empty()) {
                rules.push((cond.when(), HeaderRule::field(operation, name, text)));
            }
        }
        // Plugins see responses in the reverse of their order: what is hidden goes before anything is added.
        let statuses = GOOD_STATUSES.map(|status| status.to_string());
        let for_good = |rules| Plug::of(draft!(ResponseTransformer { rules, statuses: statuses.clone() }));
        grouped(of_good, for_good, made);
        grouped(rules, |rules| Plug::of(draft!(ResponseTransformer { rules })), made);
        self.expires(place, levels, status, made);
    }

    /// The value of a variable that a `map` sets where the target does not send this field.
    fn if_missing(&self, name: &str, value: &str) -> Option<String> {
        let (field, text) = self.missing_fields.get(value.strip_prefix('$')?)?;
        field.eq_ignore_ascii_case(name).then(|| text.replace('$', "$$"))
    }

    /// What `proxy_set_header` sets beside the gateway's own fields.
    fn request_headers(&mut self, place: &str, levels: &[&Directive], made: &mut Vec<Plug>) {
        let mut rules = Vec::new();
        if first(levels, "auth_basic").is_none_or(|realm| realm == "off") {
            // It is the name that the client says, whether its password is right or not.
            self.vars_here.set_unknown("remote_user");
        }
        let sets = said(levels, "proxy_set_header").into_iter().chain(said(levels, "grpc_set_header"));
        // What the authorization server answers is in the request by then, under its own name.
        let taken = answer_variables(levels);
        let before = self.vars_here.clone();
        for (name, field) in &taken {
            let value = format!("$http_{}", field.replace('-', "_"));
            self.vars_here.set(name.trim_start_matches('$'), &value, Cond::Always);
        }
        let mut names: HashSet<String> = HashSet::new();
        for header in sets {
            let [name, value] = header.arguments.as_slice() else { continue };
            let lower = name.to_ascii_lowercase();
            let is_further = names.contains(&lower) && !value.is_empty();
            if is_further {
                // nginx sends one field for each of them.
                let why = "another `proxy_set_header` sets this field, too: targets get one of them";
                self.out.partial(header.at, format_args!("{place}: {header}"), why, "");
            }
            names.insert(lower);
            if name.eq_ignore_ascii_case("host") && is_further {
                continue;
            }
            if name.eq_ignore_ascii_case("host") {
                self.host_header(place, header, value, made);
            } else {
                self.request_header(place, header, name, value, &mut rules);
            }
        }
        self.vars_here = before;
        self.vars_here.unset("remote_user");
        // Targets get it under the names that are set alone.
        let mut extra: Vec<&String> = taken.values().filter(|field| !names.contains(*field)).collect();
        extra.sort();
        extra.dedup();
        let is_set = !rules.is_empty();
        grouped(rules, |rules| Plug::of(draft!(RequestTransformer { rules })), made);
        if is_set && !extra.is_empty() {
            let rules: Vec<HeaderRule> = extra.into_iter().map(HeaderRule::no_field).collect();
            made.push(Plug::of(draft!(RequestTransformer { rules })));
        }
    }

    /// `proxy_set_header Host …`.
    fn host_header(&mut self, place: &str, header: &Directive, value: &str, made: &mut Vec<Plug>) {
        let what = format!("{place}: {header}");
        if super::settings::is_usual_host(value) || self.vars_here.is_client_host(value) {
            return;
        }
        match self.vars_here.template(value) {
            Some(host) => {
                self.out.converted(header.at, what);
                made.push(Plug::of(draft!(Rewrite { host })));
            }
            None => self.out.not_converted(header.at, what, "a variable in it has no counterpart", ""),
        }
    }

    /// `proxy_set_header NAME VALUE`, whose value may differ by cases.
    fn request_header(
        &mut self,
        place: &str,
        header: &Directive,
        name: &str,
        value: &str,
        rules: &mut CasedRules,
    ) {
        let what = format!("{place}: {header}");
        let lower = name.to_ascii_lowercase();
        let is_own = |(own, values): &(&str, &[&str])| *own == lower && values.contains(&value);
        if is_framing(&lower) || OWN_HEADERS.iter().any(is_own) {
            return self.out.not_needed(header.at, what, "the gateway sets it by itself");
        }
        let remove = HeaderRule::no_field(name);
        if value.is_empty() {
            rules.push((None, remove));
            return self.out.converted(header.at, what);
        }
        let cases = self.vars_here.texts(value);
        let is_early = |cases: &Vec<(Cond, String)>| !cases.iter().any(|(_, text)| is_of_answer(text));
        let Some(cases) = cases.filter(is_early) else {
            // What a client sends under this name does not pass for what nginx would have said.
            rules.push((None, remove));
            let why = "a variable in it has no counterpart; the field is removed";
            return self.out.not_converted(header.at, what, why, "");
        };
        let quoted = format!("\"{lower}\"");
        let own = |cond: &Cond| matches!(cond, Cond::Is(value) if value.to_string().contains(&quoted));
        if cases.len() > 2 && cases.iter().any(|(cond, _)| own(cond)) {
            rules.push((None, remove));
            let why = "its cases go by the field that it sets; the field is removed";
            return self.out.not_converted(header.at, what, why, "");
        }
        let all: String = cases.iter().map(|(_, text)| text.as_str()).collect();
        self.report_template(header.at, what, &all);
        for (cond, text) in cases {
            if text.is_empty() {
                rules.push((cond.when(), remove.clone()));
                continue;
            }
            // nginx sends no field whose value is empty.
            let there = not_empty(&text);
            let set = HeaderRule::field("set", name, text);
            rules.push((cond.clone().and(there.clone()).when(), set));
            if there != Cond::Always {
                rules.push((cond.and(there.negate()).when(), remove.clone()));
            }
        }
    }
}

/// Rules as one plugin for each condition, in their order.
fn grouped(rules: CasedRules, plugin: impl Fn(Vec<HeaderRule>) -> Plug, made: &mut Vec<Plug>) {
    let mut groups: Vec<(Option<Value>, Vec<HeaderRule>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (when, rule) in rules {
        let said = when.as_ref().map_or_else(String::new, Value::to_string);
        let place = *places.entry(said).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, list)) => list.push(rule),
            None => groups.push((when, vec![rule])),
        }
    }
    let mut plugs: Vec<Plug> = groups.into_iter().map(|(when, rules)| plugin(rules).when(when)).collect();
    // What holds always comes first, and plugins see responses in the reverse of their order.
    plugs.sort_by_key(|plug| plug.when.is_some() != (plug.name == "response_transformer"));
    made.append(&mut plugs);
}

/// When a text is not empty; always where that is not known.
fn not_empty(text: &str) -> Cond {
    let mut any = Cond::Never;
    let mut rest = text;
    while let Some(after) = rest.strip_prefix("${") {
        let Some((name, behind)) = after.split_once('}') else { return Cond::Always };
        any = any.or(is_there(name));
        rest = behind;
    }
    if rest.is_empty() { any } else { Cond::Always }
}

/// When a variable of the gateway's is not empty.
fn is_there(name: &str) -> Cond {
    let something = Matcher::regex(".+");
    let family = |prefix: &str| name.strip_prefix(prefix);
    match (family("request.header."), family("request.query."), family("request.cookie.")) {
        (Some(name), ..) => Cond::header(name, something),
        (_, Some(name), _) => Cond::query(name, something),
        (.., Some(name)) => Cond::cookie(name, something),
        _ => match name {
            "request.query" => Cond::query_string(something),
            "tls.version" | "tls.cipher" => Cond::scheme("https"),
            "tls.client.subject" => Cond::client_certificate(),
            _ => Cond::Always,
        },
    }
}

fn gzip(levels: &[&Directive]) -> Plug {
    let mut types = vec!["text/html".to_owned()];
    types.extend(said(levels, "gzip_types").iter().flat_map(|d| d.arguments.clone()));
    types.dedup();
    let is_any = types.iter().any(|kind| kind == "*");
    let least = first(levels, "gzip_min_length").and_then(|least| least.parse::<u64>().ok());
    let level = first(levels, "gzip_comp_level").and_then(|level| level.parse::<u64>().ok());
    Plug::of(draft!(Compression {
        algorithms: ["gzip"],
        content_types: (!is_any).then_some(types),
        min_content_length: least.unwrap_or(20),
        gzip_level: level.unwrap_or(1).clamp(1, 9),
    }))
}

/// What becomes of requests without what a limit counts by. nginx does not count those for which the key is empty; an address is
/// always there.
fn on_missing(by: &str) -> Option<&'static str> {
    (by != "address").then_some("allow")
}

/// A zone's key as `limit_by`; `None` for what only a template can say.
fn limited_by(key: &str) -> Option<String> {
    match key {
        "$binary_remote_addr" | "$remote_addr" => Some("address".to_owned()),
        _ => match (key.strip_prefix("$http_"), key.strip_prefix("$cookie_")) {
            (Some(header), _) => Some(format!("header:{}", header.replace('_', "-"))),
            (None, Some(cookie)) => Some(format!("cookie:{cookie}")),
            (None, None) => None,
        },
    }
}
