//! What a proxy does with a request, step by step, as proxies of ours: the first whose conditions hold.

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::changed::What;
use crate::cond::Cond;
use crate::draft::{Import, Match, Matcher, Plug, Proxy, Route, To};
use crate::report::At;

/// Proxies that one site may become.
const MAX_ITEMS: usize = 2000;
/// Plugins that all proxies of an import may have.
pub(crate) const MAX_PLUGINS: usize = 100_000;

/// A step of a request's way.
#[derive(Debug, Clone)]
pub(crate) enum RouteStep {
    /// Something is done on the way.
    Pass(Cond, Plug),
    /// The way ends.
    End(Cond, RouteEnd),
    /// A way within the way.
    Inner { cond: Cond, steps: Vec<Self>, group: Option<String>, ends: bool },
}

impl RouteStep {
    /// The group whose ways a request takes one of.
    fn group(&self) -> Option<&str> {
        if let Self::Inner { group, .. } = self { group.as_deref() } else { None }
    }

    /// Takes it for fewer requests: those that a condition means, too.
    pub(crate) fn narrow(&mut self, more: &Cond) {
        let (Self::Pass(cond, _) | Self::End(cond, _) | Self::Inner { cond, .. }) = self;
        *cond = std::mem::replace(cond, Cond::Never).and(more.clone());
    }
}

/// Where a way ends.
#[derive(Debug, Clone)]
pub(crate) struct RouteEnd {
    pub(crate) to: To,
    pub(crate) settings: Proxy,
    /// The prefix of its paths, which files are looked for without.
    pub(crate) stripped_prefix: Option<String>,
    /// The regex over its paths whose groups it names.
    pub(crate) captured: Option<String>,
    pub(crate) plugins: Vec<Plug>,
}

impl RouteEnd {
    pub(crate) fn new(_: At, to: To) -> Self {
        Self { to, settings: Proxy::default(), stripped_prefix: None, captured: None, plugins: Vec::new() }
    }

    pub(crate) fn answer(at: At, status: u16, body: &str) -> Self {
        Self::new(at, To::Answer(status, "text/plain; charset=utf-8".to_owned(), body.to_owned()))
    }
}

/// Requests and what becomes of them.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) cond: Cond,
    pub(crate) ending: RouteEnd,
    pub(crate) plugins: Vec<Plug>,
}

/// Follows steps; says the plugins of those who go on, or `None` when nobody does.
pub(crate) fn walk(
    steps: &[RouteStep],
    cond: &Cond,
    mut plugins: Vec<Plug>,
    items: &mut Vec<Item>,
) -> Option<Vec<Plug>> {
    let (mut counted, mut count) = (0, 0);
    let followers = Followers::of(steps);
    for (n, step) in steps.iter().enumerate() {
        count += self::count(items.get(counted..).unwrap_or_default());
        counted = items.len();
        if items.len() > MAX_ITEMS || count > MAX_PLUGINS {
            items.push(Item {
                cond: cond.clone(),
                ending: RouteEnd::new(At::default(), To::Closed),
                plugins: Vec::new(),
            });
            return None;
        }
        match step {
            RouteStep::Pass(Cond::Never, _) => {}
            RouteStep::Pass(when, plug) => {
                plugins.push(narrowed(plug, when.clone()));
            }
            RouteStep::End(when, ending) => {
                let taken = cond.clone().and(when.clone());
                if taken != Cond::Never {
                    let plugins = meant(&plugins, &taken);
                    items.push(Item { cond: taken, ending: ending.clone(), plugins });
                }
                if *when == Cond::Always {
                    return None;
                }
            }
            RouteStep::Inner { cond: when, steps: inner, group, ends } => {
                let only_passes = inner.iter().all(|step| matches!(step, RouteStep::Pass(..)));
                if only_passes && group.is_none() && !ends {
                    for step in inner {
                        if let RouteStep::Pass(own, plug) = step {
                            plugins.push(narrowed(plug, when.clone().and(own.clone())));
                        }
                    }
                    continue;
                }
                let taken = cond.clone().and(when.clone());
                if taken != Cond::Never {
                    let behind = followers.behind(steps, n, group.as_deref());
                    let behind = behind.take(if *ends { 0 } else { usize::MAX });
                    let whole: Vec<RouteStep> = inner.iter().chain(behind).cloned().collect();
                    if let Some(last) = walk(&whole, &taken, meant(&plugins, &taken), items) {
                        let ending = RouteEnd::answer(At::default(), 200, "");
                        items.push(Item { cond: taken, ending, plugins: last });
                    }
                }
                if *when == Cond::Always {
                    return None;
                }
            }
        }
    }
    Some(plugins)
}

/// A plugin for fewer requests: those that a condition means, too.
fn narrowed(plug: &Plug, cond: Cond) -> Plug {
    match cond {
        Cond::Always => plug.clone(),
        cond => plug.clone().when(cond.and(plug.cond()).when()),
    }
}

/// Steps that requests take behind a way within the way: those of everybody else, but for other ways of its group.
struct Followers {
    /// The only group that there is; then `free` says which steps are in none.
    group: Option<String>,
    free: Vec<usize>,
}

impl Followers {
    fn of(steps: &[RouteStep]) -> Self {
        let groups = steps.iter().filter_map(RouteStep::group).collect::<HashSet<_>>();
        let group = groups.iter().next().filter(|_| groups.len() == 1).map(|group| (*group).to_owned());
        let is_free = |(_, step): &(usize, &RouteStep)| step.group().is_none();
        let free = match group.is_some() {
            true => steps.iter().enumerate().filter(is_free).map(|(n, _)| n).collect(),
            false => Vec::new(),
        };
        Self { group, free }
    }

    fn behind<'s>(
        &'s self,
        steps: &'s [RouteStep],
        n: usize,
        group: Option<&'s str>,
    ) -> Box<dyn Iterator<Item = &'s RouteStep> + 's> {
        if group.is_some() && self.group.as_deref() == group {
            let start = self.free.partition_point(|at| *at <= n);
            return Box::new(self.free.iter().skip(start).filter_map(|at| steps.get(*at)));
        }
        let is_other = move |step: &&RouteStep| group.is_none() || step.group() != group;
        Box::new(steps.iter().skip(n + 1).filter(is_other))
    }
}

fn count(items: &[Item]) -> usize {
    items.iter().map(|item| item.plugins.len()).sum()
}

/// The plugins that run for any of these requests: those of other hosts don't.
fn meant(plugins: &[Plug], cond: &Cond) -> Vec<Plug> {
    let Cond::Is(cond) = cond else { return plugins.to_vec() };
    let is_meant = |plug: &&Plug| plug.when.as_ref().is_none_or(|when| !are_of_other_hosts(when, cond));
    plugins.iter().filter(is_meant).cloned().collect()
}

/// Whether both conditions name hosts, and no host is in both.
fn are_of_other_hosts(one: &Value, other: &Value) -> bool {
    parts(one).any(|one| parts(other).any(|other| are_apart(one, other)))
}

/// A condition, and those that have to hold for it.
fn parts(cond: &Value) -> impl Iterator<Item = &Value> {
    let all = cond.get("all").and_then(Value::as_array);
    std::iter::once(cond).chain(all.into_iter().flatten())
}

/// The same of what each says by itself, not of conditions within it.
fn are_apart(one: &Value, other: &Value) -> bool {
    ["/hosts", "/authority/one_of"].iter().any(|key| {
        let (Some(one), Some(other)) =
            (one.pointer(key).and_then(Value::as_array), other.pointer(key).and_then(Value::as_array))
        else {
            return false;
        };
        let is_plain = |host: &Value| host.as_str().is_some_and(|host| !host.contains('*'));
        let same = |one: &Value, other: &Value| match (one.as_str(), other.as_str()) {
            (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            _ => true,
        };
        one.iter().chain(other).all(is_plain) && !one.iter().any(|one| other.iter().any(|it| same(one, it)))
    })
}

/// Whether nobody goes on behind these steps.
pub(crate) fn ends(steps: &[RouteStep]) -> bool {
    steps.iter().any(|step| match step {
        RouteStep::End(when, _) => *when == Cond::Always,
        RouteStep::Inner { cond, steps, ends: is_end, .. } => {
            *cond == Cond::Always && (*is_end || ends(steps))
        }
        RouteStep::Pass(..) => false,
    })
}

/// Items in whose plugins no condition looks at what a plugin before it changes: the gateway asks it when the plugin's turn
/// comes, and it is said of what the client sent. Where it would, those it holds for become an item of their own.
fn settled(out: &mut Import, name: &str, items: Vec<Item>) -> Vec<Item> {
    let mut made = Vec::new();
    let mut left: Vec<Item> = items.into_iter().rev().collect();
    while let Some(mut item) = left.pop() {
        let Some(at) = unsettled(&item.plugins) else {
            made.push(item);
            continue;
        };
        if made.len() + left.len() > MAX_ITEMS {
            out.route_closed(
                At::default(),
                name,
                "its rules change requests in too many ways",
                "write it by hand",
            );
            item.ending = RouteEnd::new(At::default(), To::Closed);
            item.plugins.clear();
            made.push(item);
            continue;
        }
        let when = item.plugins[at].cond();
        item.plugins[at].when = None;
        let mut other = item.clone();
        other.plugins.remove(at);
        other.cond = other.cond.and(when.clone().negate());
        item.cond = item.cond.and(when);
        left.push(other);
        left.push(item);
    }
    made
}

/// The first plugin whose condition looks at what another changes before.
fn unsettled(plugins: &[Plug]) -> Option<usize> {
    plugins.iter().enumerate().position(|(at, plug)| {
        let Some(when) = &plug.when else { return false };
        plugins.iter().enumerate().any(|(n, other)| {
            let is_before = turn(other) < turn(plug) || turn(other) == turn(plug) && n < at;
            is_before && other.changes().iter().any(|what| what.concerns(when))
        })
    })
}

/// When a plugin runs: first those that guard, then what changes the path, headers, and responses.
fn turn(plug: &Plug) -> u8 {
    match plug.name {
        "rewrite" => 1,
        "request_transformer" => 2,
        "response_transformer" | "compression" => 3,
        _ => 0,
    }
}

impl Plug {
    /// When it runs.
    fn cond(&self) -> Cond {
        self.when.as_deref().map_or(Cond::Always, |when| Cond::Is(when.clone()))
    }

    /// What it changes about requests.
    fn changes(&self) -> Vec<What> {
        let has = |key: &str| self.config.get(key).is_some();
        match self.name {
            "rewrite" => {
                let path = has("path") || has("prefix") || has("regex");
                let host = has("host").then(|| What::AnyHeader("host".to_owned()));
                let query = (path || has("query")).then_some(What::AnyQuery);
                path.then_some(What::AnyPath).into_iter().chain(host).chain(query).collect()
            }
            "request_transformer" => {
                let rules = self.config["rules"].as_array();
                rules.into_iter().flatten().filter_map(What::of_rule).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A site's items as proxies; `lift` is by how much they go before those of other sites.
pub(crate) fn place(out: &mut Import, name: &str, facets: &[Match], items: Vec<Item>, lift: i64) {
    let items = settled(out, name, items);
    if out.plugin_configs.len() + count(&items) > MAX_PLUGINS {
        out.has_too_many_plugins = true;
        return;
    }
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    for (n, item) in items.into_iter().enumerate() {
        let mut route = Route::new(format!("{name}-{}", n + 1), item.ending.to);
        for facet in facets {
            route.matches.push(item.cond.with_path(Matcher::prefix("/")).with_facet(facet));
        }
        route.priority = Some((count - i64::try_from(n).unwrap_or(0)) * 10 + lift);
        route.settings = item.ending.settings;
        if let Some(regex) = item.ending.captured {
            route.matches.iter_mut().for_each(|one| one.path(Matcher::regex(&*regex)));
        }
        if let Some(prefix) = item.ending.stripped_prefix {
            for one in &mut route.matches {
                one.path(Matcher::prefix(&*prefix));
            }
            route.settings.strip_listen_path(true);
        }
        route.plugins = item.plugins;
        // What has a body of its own keeps it.
        if matches!(&route.to, To::Answer(_, _, body) | To::Page(_, _, body) if !body.is_empty()) {
            route.plugins.retain(|plug| plug.name != "error_pages");
        }
        route.plugins.extend(item.ending.plugins);
        join_rewrites(&mut route.plugins);
        join_error_pages(&mut route.plugins);
        out.route(route);
    }
}

/// Pages for all requests are one plugin; of those for a status, the ones that were said last hold.
fn join_error_pages(plugins: &mut Vec<Plug>) {
    let mut joined: Vec<Plug> = Vec::new();
    for plug in plugins.drain(..) {
        if plug.name != "error_pages" {
            joined.push(plug);
            continue;
        }
        let same = |known: &&mut Plug| {
            known.name == "error_pages" && known.when == plug.when && known.config["of"] == plug.config["of"]
        };
        let known = joined.iter_mut().find(same).map(|known| &mut Rc::make_mut(&mut known.config)["pages"]);
        let (Some(Value::Array(known)), Some(own)) = (known, plug.config["pages"].as_array()) else {
            joined.push(plug);
            continue;
        };
        let statuses = |page: &Value| -> Vec<String> {
            page["status"].to_string().trim_matches('"').split(',').map(|it| it.trim().to_owned()).collect()
        };
        let taken: Vec<String> = own.iter().flat_map(statuses).collect();
        known.retain_mut(|page| {
            let left: Vec<String> = statuses(page).into_iter().filter(|it| !taken.contains(it)).collect();
            page["status"] = json!(left.join(", "));
            !left.is_empty()
        });
        known.extend(own.iter().cloned());
    }
    *plugins = joined;
}

/// One `rewrite` for the path and one for the host are one plugin.
fn join_rewrites(plugins: &mut Vec<Plug>) {
    let mut joined: Vec<Plug> = Vec::new();
    for plug in plugins.drain(..) {
        if plug.name != "rewrite" {
            joined.push(plug);
            continue;
        }
        let same = joined.iter_mut().find(|known| {
            known.name == "rewrite" && known.when == plug.when && {
                let keys = |plug: &Plug| {
                    plug.config
                        .as_object()
                        .map(|it| it.keys().cloned().collect::<Vec<_>>())
                        .unwrap_or_default()
                };
                let (a, b) = (keys(known), keys(&plug));
                let makes_path = |key: &String| matches!(key.as_str(), "path" | "prefix" | "regex");
                a.iter().all(|key| !b.contains(key))
                    && !(a.iter().any(makes_path) && b.iter().any(makes_path))
            }
        });
        match same {
            Some(known) => {
                let more = Rc::unwrap_or_clone(plug.config);
                if let (Value::Object(known), Value::Object(more)) = (Rc::make_mut(&mut known.config), more) {
                    known.extend(more);
                }
            }
            None => joined.push(plug),
        }
    }
    *plugins = joined;
}
