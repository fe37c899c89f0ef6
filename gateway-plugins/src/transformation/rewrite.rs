//! Changes what the target is asked: the path, the query and the host. The client sees nothing of it.
//!
//! A path that is rewritten is the whole path the target gets: `strip_listen_path` and `backend_path` don't apply to it.
//! A rewrite that would lead out of its folder (`..` in a value of the request) is answered 400.

use gateway_core::template::Render;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::path;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Family, Hooks, OnRequest, Plugin, Seat, Step, World};
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Template, TextContext};
use gateway_plugin_common::facts;
use gateway_plugin_common::parse;
use gateway_plugin_common::query::{self, Query};
use http::HeaderValue;
use http::uri::PathAndQuery;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `rewrite`; at least one must be given, and at most one of `path`, `prefix` and `regex`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// New path, as a template that begins with `/` or `${request.path}`, with the route's captures (`/v2/${capture.rest}`). Its query
    /// precedes the request's. Characters that a path may not contain are percent-encoded. Default: unchanged.
    path: Option<String>,
    /// Replaces a prefix of the path. Other paths stay unchanged. Default: unchanged.
    prefix: Option<Prefix>,
    /// Regexes with their replacements; the first that matches the path applies. Default none.
    regex: Vec<Replace>,
    /// Changes to the query. Default none.
    query: Changes,
    /// `Host` for the target, as a template, with a port if it needs one. The connection still goes to the same target.
    /// Default: as the proxy's settings specify.
    host: Option<String>,
}

/// A prefix of whole segments, and its replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Prefix {
    /// Prefix of the path, such as `/api`. It does not match `/apiary`.
    from: String,
    /// Replacement, such as `/internal/v2`, or `/`.
    to: String,
}

/// A regex, and the replacement of its match.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Replace {
    /// Regex over the path, without the query. Anchor it with `^` and `$` to match the whole path.
    from: String,
    /// Replacement of the match; `$1` and `${name}` are groups, `$$` is a dollar sign.
    to: String,
    /// Whether every match is replaced, not only the first. Default false.
    #[serde(default)]
    all: bool,
}

/// Changes to the query, in this order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Changes {
    /// Whether all parameters of the request are removed, before others are set or added. Default false.
    remove_all: bool,
    /// Parameters to remove, with all their values. Default none.
    remove: Vec<String>,
    /// Parameters to set, as templates; this replaces all values of a name. Default none.
    set: Vec<Parameter>,
    /// Parameters to add to those present. Default none.
    add: Vec<Parameter>,
}

/// A query parameter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameter {
    /// Name, not encoded.
    name: String,
    /// Value, as a template; the gateway encodes it.
    value: String,
}

/// The plugin.
pub(crate) struct Rewrite {
    path: NewPath,
    removes_all: bool,
    remove: Vec<String>,
    set: Vec<(String, Template)>,
    add: Vec<(String, Template)>,
    host: Option<Template>,
}

enum NewPath {
    Same,
    Template(Template),
    Prefix { from: String, to: String },
    Regex(Vec<Replacing>),
}

/// A regex that is looked for in paths, and what takes the place of its matches.
struct Replacing {
    regex: Regex,
    to: String,
    all: bool,
}

/// Why a request can't be rewritten.
struct RewriteRefusal(&'static str);

impl Plugin for Rewrite {
    const NAME: &'static str = "rewrite";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str = "Changes the path, the query and the `Host` that the target receives.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let ways = [config.path.is_some(), config.prefix.is_some(), !config.regex.is_empty()];
        if ways.iter().filter(|given| **given).count() > 1 {
            problems.add("config", "`path`, `prefix` and `regex` each make the whole path").remedy =
                Some("keep one of them".into());
        }
        let path = new_path(config.path, config.prefix, config.regex, &mut problems);
        let Changes { remove_all: removes_all, remove, set, add } = config.query;
        let mut read = |list: Vec<Parameter>, name: &str| -> Vec<(String, Template)> {
            let templates = list.into_iter().enumerate().filter_map(|(n, parameter)| {
                let at = format!("config.query.{name}[{n}].value");
                let value = parse::template(&at, &parameter.value, Moment::Request, &mut problems)?;
                Some((parameter.name, value))
            });
            templates.collect()
        };
        let (set, add) = (read(set, "set"), read(add, "add"));
        let host = config
            .host
            .and_then(|host| parse::template("config.host", &host, Moment::Request, &mut problems));
        let this = Self { path, removes_all, remove, set, add, host };
        if problems.is_empty()
            && matches!(this.path, NewPath::Same)
            && !this.changes_query()
            && this.host.is_none()
        {
            problems.add("config", "this rewrites nothing").remedy =
                Some("give `path`, `prefix`, `regex`, `query` or `host`".into());
        }
        problems.into_result(this)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        if let NewPath::Template(path) = &self.path {
            hooks.renders("config.path", Some(path));
        }
        hooks.renders("config.host", self.host.as_ref());
        for (name, list) in [("set", &self.set), ("add", &self.add)] {
            for (n, (_, value)) in list.iter().enumerate() {
                hooks.renders(&format!("config.query.{name}[{n}].value"), Some(value));
            }
        }
        hooks.on_request(self);
    }
}

fn new_path(
    path: Option<String>,
    prefix: Option<Prefix>,
    regex: Vec<Replace>,
    problems: &mut Problems,
) -> NewPath {
    if let Some(path) = path {
        // The path of a request begins with a slash itself.
        if !path.starts_with('/') && !path.starts_with("${request.path}") {
            problems.add("config.path", "a path begins with `/`");
        }
        let template = parse::template("config.path", &path, Moment::Request, problems);
        if let Some(c) = template.iter().flat_map(Template::literals).flat_map(str::chars).find(can_not_stand)
        {
            problems.add("config.path", format!("a path can't have {c:?} in it")).remedy =
                Some(format!("write `{}`", encoded(c)));
        }
        return template.map_or(NewPath::Same, NewPath::Template);
    }
    if let Some(Prefix { from, to }) = prefix {
        for (name, text) in [("from", &from), ("to", &to)] {
            let is_path =
                text.starts_with('/') && !text.contains(['?', '#']) && text.parse::<PathAndQuery>().is_ok();
            if !is_path {
                problems.add(format!("config.prefix.{name}"), format!("`{text}` is not a path")).remedy =
                    Some("begin it with `/`; leave the query out".into());
            }
        }
        let mut plain = |name: &str, text: &str| {
            let spelled = parse::request_path(&format!("config.prefix.{name}"), text, problems);
            spelled.unwrap_or_default().trim_end_matches('/').to_owned()
        };
        return NewPath::Prefix { from: plain("from", &from), to: plain("to", &to) };
    }
    let read = regex.into_iter().enumerate().filter_map(|(n, Replace { from, to, all })| {
        let regex = parse::path_regex(&format!("config.regex[{n}].from"), &from, problems)?;
        Some(Replacing { regex, to, all })
    });
    let regexes: Vec<_> = read.collect();
    if regexes.is_empty() { NewPath::Same } else { NewPath::Regex(regexes) }
}

/// Whether a character can't be in a request's target unless it is encoded.
fn can_not_stand(c: &char) -> bool {
    !c.is_ascii_graphic() || *c == '#'
}

fn encoded(c: char) -> String {
    utf8_percent_encode(c.encode_utf8(&mut [0; 4]), NON_ALPHANUMERIC).to_string()
}

impl OnRequest for Rewrite {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        match self.apply(exchange, seat) {
            Ok(()) => Step::Next,
            Err(RewriteRefusal(detail)) => {
                Step::reply(Reply::new(Cause::BadRequest).detail(detail).reason("rewrite_not_possible"))
            }
        }
    }
}

impl Rewrite {
    fn changes_query(&self) -> bool {
        self.removes_all || !(self.remove.is_empty() && self.set.is_empty() && self.add.is_empty())
    }

    fn apply(&self, exchange: &mut Exchange, seat: Seat<'_>) -> Result<(), RewriteRefusal> {
        let (path, old_query) = query::current(exchange);
        let facts = facts::of(exchange, seat);
        let host = self.host.as_ref().map(|host| new_host(host, &facts)).transpose()?;
        let new = self.path.of(&path, &facts)?;
        let changed =
            if self.changes_query() { Some(self.query(old_query.as_deref(), &facts)?) } else { None };
        if let Some(new) = new {
            let (new, own) = new.split_once('?').map_or((&*new, None), |(path, own)| (path, Some(own)));
            let rest = match &changed {
                Some(query) => query.text(),
                None => old_query,
            };
            let all: Vec<&str> = own.into_iter().chain(rest.as_deref()).filter(|it| !it.is_empty()).collect();
            let all = (!all.is_empty()).then(|| all.join("&"));
            let target = query::join(&checked(new)?, all.as_deref());
            if target.parse::<PathAndQuery>().is_err() {
                return Err(RewriteRefusal("the rewritten path is not one"));
            }
            exchange.forward_path = Some(target);
        } else if let Some(query) = &changed
            && !query::replace(exchange, query)
        {
            return Err(RewriteRefusal("the rewritten query is not one"));
        }
        if let Some(host) = host {
            exchange.set_forward_host(host);
        }
        Ok(())
    }

    fn query(&self, old: Option<&str>, facts: &Facts<'_>) -> Result<Query, RewriteRefusal> {
        let mut query = Query::of(old.filter(|_| !self.removes_all));
        for name in &self.remove {
            query.remove(name);
        }
        for (name, value) in &self.set {
            query.set(name, &rendered(value, facts, TextContext::Query)?);
        }
        for (name, value) in &self.add {
            query.append(name, &rendered(value, facts, TextContext::Query)?);
        }
        Ok(query)
    }
}

impl NewPath {
    /// The new path; `None` where it stays.
    fn of(&self, path: &str, facts: &Facts<'_>) -> Result<Option<String>, RewriteRefusal> {
        match self {
            Self::Same => Ok(None),
            Self::Template(template) => rendered(template, facts, TextContext::Path).map(Some),
            Self::Prefix { from, to } => {
                let rest = path.strip_prefix(from.as_str());
                let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
                Ok(rest.map(|rest| {
                    let made = format!("{to}{rest}");
                    if made.is_empty() { "/".to_owned() } else { made }
                }))
            }
            Self::Regex(regexes) => {
                let fits = regexes.iter().find(|one| one.regex.is_match(path));
                Ok(fits.map(|Replacing { regex, to, all }| {
                    // None is all of them.
                    let most = if *all { 0 } else { 1 };
                    regex.replacen(path, most, to.as_str()).into_owned()
                }))
            }
        }
    }
}

fn rendered(template: &Template, facts: &Facts<'_>, place: TextContext) -> Result<String, RewriteRefusal> {
    let mut out = Vec::new();
    let made = template.render(facts, place, MAX_RENDERED, &mut out);
    made.map_err(|_| RewriteRefusal("the request has a value that can't be used"))?;
    String::from_utf8(out).map_err(|_| RewriteRefusal("the request has a value that can't be used"))
}

/// Refuses what a target could take for another path: one that is not the same after its dot segments are resolved.
fn checked(path: &str) -> Result<String, RewriteRefusal> {
    if !path.starts_with('/') {
        return Err(RewriteRefusal("the rewritten path does not begin with a slash"));
    }
    let clean = path::normalise(path, true).map_err(|_| RewriteRefusal("the rewritten path is malformed"))?;
    if clean.oddities.backslash {
        return Err(RewriteRefusal("the rewritten path has a backslash"));
    }
    let leaves = path.split('/').any(|segment| {
        let plain = percent_encoding::percent_decode_str(segment).collect::<Vec<u8>>();
        plain == b".." || plain == b"."
    });
    if leaves {
        Err(RewriteRefusal("the rewritten path has dot segments"))
    } else {
        Ok(clean.text.into_owned())
    }
}

fn new_host(template: &Template, facts: &Facts<'_>) -> Result<HeaderValue, RewriteRefusal> {
    let refused = RewriteRefusal("the request has a value that can't be used in a host");
    let Ok(host) = rendered(template, facts, TextContext::Host) else { return Err(refused) };
    let value = HeaderValue::try_from(host.as_str()).ok().filter(|_| parse::is_authority(&host));
    value.ok_or(refused)
}

#[cfg(test)]
mod tests;
