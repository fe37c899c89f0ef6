//! The state of the fleet, for the admin API and for metrics.

use std::time::{Duration, SystemTime};

use gateway_fleet::{ControlCore, EdgeState, Findings, Position};
use gateway_telemetry::json::Rfc3339;
use serde_json::{Value, json};

use super::plane::ControlPlane;
use super::rows::EdgeRow;

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

impl ControlPlane {
    /// Brings the numbers up to date.
    pub(super) fn report(&self) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let enrolled = self.roster.edges().iter().filter(|(_, edge)| edge.revoked.is_none()).count();
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

    /// The whole fleet.
    pub(crate) fn status(&self) -> Value {
        let edges = self.roster.edges();
        self.hub.read(|core| {
            let groups = core.views().filter_map(|name| {
                let view = core.view(name)?;
                let members = core.edges().values().filter(|edge| edge.view == *name);
                let mut counts = std::collections::BTreeMap::<&str, usize>::new();
                for member in members {
                    *counts.entry(standing(member, Some(view.position()))).or_default() += 1;
                }
                Some(json!({
                    "name": &**name,
                    "position": position(Some(view.position())),
                    "proxies": self.roster.patterns(name),
                    "objects": view.documents().len(),
                    "edges": counts,
                }))
            });
            let groups: Vec<_> = groups.collect();
            let edges = edges.iter().map(|(id, row)| self.edge_report(core, id, row));
            json!({
                "epoch": &**self.epoch.borrow(),
                "address": self.address(),
                "listening": self.listening(),
                "connected": core.connected(),
                "groups": groups,
                "edges": edges.collect::<Vec<_>>(),
            })
        })
    }

    /// One edge.
    pub(crate) fn edge_status(&self, id: &str) -> Option<Value> {
        let (id, row) = self.roster.edges().into_iter().find(|(of, _)| of == id)?;
        Some(self.hub.read(|core| self.edge_report(core, &id, &row)))
    }

    /// Plugins that objects of the group name and this edge has not got: what they protect is closed there.
    fn lacks(&self, group: &str, edge: &EdgeState) -> Vec<String> {
        if edge.hello.version.is_empty() {
            return Vec::new();
        }
        let plugins = self.plugins.borrow();
        let named = plugins.get(group).into_iter().flatten();
        let has = |plugin: &str| {
            edge.hello.capabilities.iter().any(|one| one.strip_prefix("plugin:") == Some(plugin))
        };
        named.filter(|plugin| !has(plugin)).cloned().collect()
    }

    fn edge_report(&self, core: &ControlCore, id: &str, row: &EdgeRow) -> Value {
        let state = core.edges().get(id).cloned().unwrap_or_default();
        let newest = core.view(&row.group).map(|view| view.position());
        let parked = state
            .parked
            .as_ref()
            .map(|(at, reason)| json!({ "position": position(Some(at)), "reason": reason }));
        let lacks = self.lacks(&row.group, &state);
        let ends = row.certificates.iter().map(|certificate| certificate.not_after).max();
        let standing = if row.revoked.is_some() { "revoked" } else { standing(&state, newest) };
        json!({
            "id": id,
            "name": row.name,
            "group": row.group,
            "standing": standing,
            "connected": state.session.is_some(),
            "version": state.hello.version,
            "served": position(state.served.as_ref()),
            "newest": position(newest),
            "refused": parked,
            "broken": findings(&state.findings),
            "lacks_plugins": lacks,
            "clock_skew_ms": (state.skew.abs() > MAX_SKEW).then_some(state.skew),
            "enrolled_at": date(row.enrolled),
            "certificate_ends_at": ends.map(date),
            "revoked_at": row.revoked.map(date),
        })
    }
}
