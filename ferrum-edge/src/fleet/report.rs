//! The state of the fleet, for the admin API and for metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_core::config::catalog::ObjectKind;
use gateway_fleet::{Abilities, ControlCore, DocumentKey, EdgeState, Findings, Position};
use gateway_telemetry::json::Rfc3339;
use serde_json::{Value, json};

use super::plane::ControlPlane;
use super::rows::EdgeRow;
use super::version_skew::{LackingOf, group_of, is_whole};

/// Differences of clocks that are worth a word, in milliseconds.
const MAX_SKEW: i64 = 60_000;

/// What an edge does with the newest configuration of its group, in a word.
fn standing(edge: &EdgeState, newest: Option<&Position>) -> &'static str {
    let is_newest = |at: &Option<Position>| at.as_ref().map(|at| at.hash) == newest.map(|newest| newest.hash);
    let parked = edge.parked.as_ref().map(|(position, _)| position.clone());
    match (&edge.session, newest) {
        (_, None) => "unknown",
        (_, Some(_)) if is_newest(&parked) => "refused",
        (Some(_), Some(_)) if is_newest(&edge.served) => "served",
        (Some(_), Some(_)) => "pending",
        (None, Some(_)) => "disconnected",
    }
}

fn position(position: Option<&Position>) -> Value {
    position.map_or(Value::Null, |position| {
        json!({ "epoch": &*position.epoch, "revision": position.revision, "hash": position.hash.to_string() })
    })
}

fn findings(findings: &Findings) -> Value {
    let broken = findings.broken.iter();
    let broken = broken
        .map(|object| json!({ "kind": &*object.key.kind, "id": &*object.key.id, "reason": object.reason }));
    json!({ "count": findings.count, "objects": broken.collect::<Vec<_>>() })
}

fn date(seconds: u64) -> String {
    Rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// What the core knows at one moment.
struct KnownEdges {
    edges: BTreeMap<Arc<str>, EdgeState>,
    /// Position and number of objects of each view.
    views: BTreeMap<Arc<str>, (Position, usize)>,
    connected: usize,
}

impl KnownEdges {
    fn of(core: &ControlCore, edges: BTreeMap<Arc<str>, EdgeState>) -> Self {
        let views = core.views().filter_map(|name| {
            let view = core.view(name)?;
            Some((name.clone(), (view.position().clone(), view.documents().len())))
        });
        Self { edges, views: views.collect(), connected: core.connected() }
    }

    /// The newest configuration that there is for an edge; before its first connection its group's.
    fn newest_of(&self, edge: &EdgeState, row: &EdgeRow) -> Option<&Position> {
        own_or_groups(edge, row, |view| self.views.get(view)).map(|(position, _)| position)
    }
}

/// The view that an edge gets; before its first connection, and until it follows a move, its group's.
fn own_or_groups<V>(edge: &EdgeState, row: &EdgeRow, find: impl Fn(&str) -> Option<V>) -> Option<V> {
    let own = Some(&*edge.view).filter(|view| group_of(view) == row.group);
    own.and_then(&find).or_else(|| find(&row.group))
}

/// Why an edge does not serve an object as it is since a revision; `None` if it does.
fn unserved(edge: &EdgeState, newest: &Position, key: &DocumentKey, revision: u64) -> Option<String> {
    if let Some(broken) = edge.findings.broken.iter().find(|object| object.key == *key) {
        return Some(format!("it can't be used there: {}", broken.reason));
    }
    // Revisions count within an epoch only; the same hash is the same configuration.
    let is_served =
        |at: &Position| at.hash == newest.hash || at.epoch == newest.epoch && at.revision >= revision;
    if edge.served.as_ref().is_some_and(is_served) {
        return None;
    }
    match (&edge.parked, standing(edge, Some(newest))) {
        (Some((_, reason)), "refused") => Some(format!("the edge refused the configuration: {reason}")),
        (_, "disconnected") => Some("the edge is not connected".to_owned()),
        _ => Some("the edge has not applied the configuration yet".to_owned()),
    }
}

/// The plugins that an edge, as it said at its last connection, has not got.
fn missing<'p>(edge: &EdgeState, plugins: impl Iterator<Item = &'p String>) -> Vec<String> {
    if edge.abilities.version.is_empty() {
        return Vec::new();
    }
    let has = |plugin: &str| {
        edge.abilities.capabilities.iter().any(|one| one.strip_prefix("plugin:") == Some(plugin))
    };
    plugins.filter(|plugin| !has(plugin)).cloned().collect()
}

impl ControlPlane {
    /// Brings the numbers up to date.
    pub(super) fn report(&self) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let enrolled = self.roster.enrolled();
        let (mut behind, mut refusing, mut broken) = (0, 0, 0);
        let connected = self.hub.read(|core| {
            for edge in core.edges().values().filter(|edge| edge.session.is_some()) {
                let newest = core.view(&edge.view).map(|view| view.position());
                let standing = standing(edge, newest);
                behind += count(usize::from(standing != "served"));
                refusing += count(usize::from(standing == "refused"));
                broken += i64::try_from(edge.findings.count).unwrap_or(i64::MAX);
            }
            core.connected()
        });
        self.meters.enrolled.set(count(enrolled));
        self.meters.connected.set(count(connected));
        self.meters.behind.set(behind);
        self.meters.refusing.set(refusing);
        self.meters.broken.set(broken);
    }

    /// The whole fleet. Edges wait for a copy of what is known of them, and not for the document.
    pub(crate) fn status(&self) -> Value {
        let rows = self.roster.edges();
        let known = self.hub.read(|core| KnownEdges::of(core, core.edges().clone()));
        let mut standings = BTreeMap::<&str, BTreeMap<&str, usize>>::new();
        for edge in known.edges.values() {
            let group = group_of(&edge.view);
            let newest = known.views.get(&edge.view).or_else(|| known.views.get(group));
            let counts = standings.entry(group).or_default();
            *counts.entry(standing(edge, newest.map(|(position, _)| position))).or_default() += 1;
        }
        let groups =
            known.views.iter().filter(|(name, _)| is_whole(name)).map(|(name, (newest, objects))| {
                let assigned = self.roster.assigned(name);
                json!({
                    "name": &**name,
                    "position": position(Some(newest)),
                    "proxies": assigned.as_ref().map(|row| &row.proxies),
                    "workspaces": assigned.as_ref().map(|row| &row.workspaces),
                    "objects": objects,
                    "edges": standings.get(&**name).cloned().unwrap_or_default(),
                })
            });
        let groups: Vec<_> = groups.collect();
        let edges = rows.iter().map(|(id, row)| self.edge_report(&known, id, row));
        json!({
            "epoch": &**self.epoch.borrow(),
            "address": self.address(),
            "listening": self.listening(),
            "connected": known.connected,
            "groups": groups,
            "edges": edges.collect::<Vec<_>>(),
        })
    }

    /// One edge.
    pub(crate) fn edge_status(&self, id: &str) -> Option<Value> {
        let row = self.roster.edge(id)?;
        let known = self.hub.read(|core| {
            let edge = core.edges().get_key_value(id).map(|(id, edge)| (id.clone(), edge.clone()));
            KnownEdges::of(core, edge.into_iter().collect())
        });
        Some(self.edge_report(&known, id, &row))
    }

    /// For each edge whose group gets this object: whether every worker serves it as it is since this revision, and why not.
    pub(crate) fn object_status(&self, key: &DocumentKey, revision: u64) -> Value {
        let rows = self.roster.edges();
        let edges = self.hub.read(|core| {
            let rows = rows.iter().filter(|(_, row)| row.revoked.is_none());
            let edges = rows.filter_map(|(id, row)| {
                core.view(&row.group).filter(|view| view.documents().get(key).is_some())?;
                let state = core.edges().get(id.as_str()).cloned().unwrap_or_default();
                let view = own_or_groups(&state, row, |view| core.view(view))?;
                let why = match view.documents().get(key) {
                    Some(_) => unserved(&state, view.position(), key, revision),
                    None => Some(format!(
                        "it is left out there: version {} does not know it",
                        state.abilities.version
                    )),
                };
                Some(json!({
                    "id": id,
                    "name": row.name,
                    "group": row.group,
                    "connected": state.session.is_some(),
                    "serves": why.is_none(),
                    "served": position(state.served.as_ref()),
                    "why": why,
                }))
            });
            edges.collect::<Vec<_>>()
        });
        json!({ "kind": &*key.kind, "id": &*key.id, "revision": revision, "edges": edges })
    }

    /// The edges, by name, whose version lacks something of these documents, and what. Costs by the versions of edges, not by edges.
    pub(crate) fn edges_lacking(&self, documents: &[(ObjectKind, Value)]) -> Vec<(String, LackingOf)> {
        let kinds: Vec<Arc<Abilities>> = self.hub.read(|core| core.kinds().cloned().collect());
        let lacking = kinds.into_iter().map(|kind| (self.roster.skew.lacking_of(&kind, documents), kind));
        let mut edges = BTreeMap::new();
        for (lacking, kind) in lacking.filter(|(lacking, _)| *lacking != LackingOf::default()) {
            self.hub
                .read(|core| edges.extend(core.edges_of_kind(&kind).map(|id| (id.clone(), lacking.clone()))));
        }
        let named = edges.into_iter().filter_map(|(id, lacking)| {
            let row = self.roster.edge(&id).filter(|row| row.revoked.is_none())?;
            let name = if row.name.is_empty() { id.to_string() } else { row.name.clone() };
            Some((name, lacking))
        });
        named.collect()
    }

    /// Plugins that objects of the group name and this edge has not got: what they protect is closed there.
    fn lacks(&self, group: &str, edge: &EdgeState) -> Vec<String> {
        let plugins = self.plugins.borrow();
        missing(edge, plugins.get(group).into_iter().flatten())
    }

    fn edge_report(&self, known: &KnownEdges, id: &str, row: &EdgeRow) -> Value {
        let never = EdgeState::default();
        let state = known.edges.get(id).unwrap_or(&never);
        let newest = known.newest_of(state, row);
        let parked = state
            .parked
            .as_ref()
            .map(|(at, reason)| json!({ "position": position(Some(at)), "reason": reason }));
        let lacks = self.lacks(&row.group, state);
        let left_out = self.left_out.borrow().get(&state.view).cloned().unwrap_or_default();
        let ends = row.certificates.iter().map(|certificate| certificate.not_after).max();
        let standing = if row.revoked.is_some() { "revoked" } else { standing(state, newest) };
        json!({
            "id": id,
            "name": row.name,
            "group": row.group,
            "standing": standing,
            "connected": state.session.is_some(),
            "version": state.abilities.version,
            "served": position(state.served.as_ref()),
            "newest": position(newest),
            "refused": parked,
            "broken": findings(&state.findings),
            "lacks_plugins": lacks,
            "left_out": { "count": left_out.count, "objects": left_out.first },
            "clock_skew_ms": (state.skew.abs() > MAX_SKEW).then_some(state.skew),
            "enrolled_at": date(row.enrolled),
            "certificate_ends_at": ends.map(date),
            "revoked_at": row.revoked.map(date),
        })
    }
}
