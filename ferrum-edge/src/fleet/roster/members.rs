//! The fleet's rows in memory: found by id, and brought up to date row by row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::super::rows::{EDGE, EdgeRow, GROUP, GroupRow, INVITATION, InvitationRow};
use crate::store::{FleetMark, FleetRow};

/// Patterns of the ids that workspaces cover, by name.
pub(super) type Workspaces = BTreeMap<String, Vec<String>>;

/// What is known of the roster, and as of which state of the store. Every row comes with its version.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) mark: FleetMark,
    edges: BTreeMap<String, (Arc<EdgeRow>, u64)>,
    pub(super) invitations: BTreeMap<String, (InvitationRow, u64)>,
    pub(super) groups: BTreeMap<String, (GroupRow, u64)>,
    /// Read only while a group names one.
    pub(super) workspaces: Workspaces,
    /// Edges that are not revoked.
    enrolled: usize,
    /// Edges that are not revoked, and invitations, of each group that has any.
    sizes: BTreeMap<String, usize>,
}

/// A row as it is now; `None`: it is gone.
#[derive(Debug)]
pub(super) enum MemberRow {
    Edge(String, Option<(EdgeRow, u64)>),
    Invitation(String, Option<(InvitationRow, u64)>),
    Group(String, Option<(GroupRow, u64)>),
}

/// What connections have to follow.
#[derive(Debug, Default)]
pub(super) struct MemberChanges {
    /// Id and name of edges that are accepted no more.
    pub(super) revoked: Vec<(String, String)>,
    /// Edges with their new groups.
    pub(super) moved: Vec<(String, String)>,
    /// A group has come or gone, or gets other objects.
    pub(super) are_groups_changed: bool,
}

impl MemberRow {
    /// Reads a row; `None` if it is of no member.
    pub(super) fn of(row: FleetRow) -> Option<Self> {
        let FleetRow { kind, id, content } = row;
        Some(match kind.as_str() {
            EDGE => {
                let content = content.and_then(|content| readable(&kind, &id, content));
                Self::Edge(id, content)
            }
            INVITATION => {
                let content = content.and_then(|content| readable(&kind, &id, content));
                Self::Invitation(id, content)
            }
            // A group whose row can't be read gets nothing that is meant for some only.
            GROUP => {
                let nothing = || GroupRow { proxies: Vec::new(), workspaces: Vec::new() };
                let content = content.map(|(document, version)| {
                    readable(&kind, &id, (document, version)).unwrap_or_else(|| (nothing(), version))
                });
                Self::Group(id, content)
            }
            _ => return None,
        })
    }

    /// Whether it is a group that names workspaces.
    pub(super) fn names_workspaces(&self) -> bool {
        matches!(self, Self::Group(_, Some((row, _))) if !row.workspaces.is_empty())
    }
}

fn readable<T: DeserializeOwned>(kind: &str, id: &str, content: (String, u64)) -> Option<(T, u64)> {
    let (document, version) = content;
    match serde_json::from_str(&document) {
        Ok(row) => Some((row, version)),
        Err(error) => {
            tracing::error!(kind, id, %error, "a row of the fleet can't be read");
            None
        }
    }
}

impl Members {
    /// An edge, and the version of its row.
    pub(super) fn edge(&self, id: &str) -> Option<&(Arc<EdgeRow>, u64)> {
        self.edges.get(id)
    }

    /// Edges by id.
    pub(super) fn edges(&self) -> impl Iterator<Item = (&String, &Arc<EdgeRow>)> {
        self.edges.iter().map(|(id, (row, _))| (id, row))
    }

    /// Edges that are not revoked.
    pub(super) const fn enrolled(&self) -> usize {
        self.enrolled
    }

    /// Groups that have edges, or will have them once they are enrolled.
    pub(super) fn groups_with_members(&self) -> BTreeSet<String> {
        self.sizes.keys().cloned().collect()
    }

    /// Whether a group names workspaces.
    pub(super) fn names_workspaces(&self) -> bool {
        self.groups.values().any(|(row, _)| !row.workspaces.is_empty())
    }

    /// Takes up rows; `is_whole`: there are no others.
    pub(super) fn apply(
        &mut self,
        rows: Vec<MemberRow>,
        is_whole: bool,
        workspaces: Option<Workspaces>,
        mark: FleetMark,
    ) -> MemberChanges {
        let mut changes = MemberChanges::default();
        let mut touched = BTreeMap::new();
        let gone = if is_whole { self.without(&rows) } else { Vec::new() };
        for row in gone.into_iter().chain(rows) {
            match row {
                MemberRow::Edge(id, row) => self.put_edge(id, row, &mut touched, &mut changes),
                MemberRow::Invitation(id, row) => self.put_invitation(id, row, &mut touched),
                MemberRow::Group(id, row) => {
                    let new = row.as_ref().map(|(row, _)| row.clone());
                    let old = match row {
                        Some(row) => self.groups.insert(id, row),
                        None => self.groups.remove(&id),
                    };
                    changes.are_groups_changed |= old.map(|(row, _)| row) != new;
                }
            }
        }
        if let Some(workspaces) = workspaces.filter(|new| *new != self.workspaces) {
            self.workspaces = workspaces;
            changes.are_groups_changed = true;
        }
        changes.are_groups_changed |=
            touched.iter().any(|(group, had_members)| self.sizes.contains_key(group) != *had_members);
        self.mark = mark;
        changes
    }

    /// The removal of every row that is not among these.
    fn without(&self, rows: &[MemberRow]) -> Vec<MemberRow> {
        let (mut edges, mut invitations, mut groups) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for row in rows {
            match row {
                MemberRow::Edge(id, _) => edges.insert(id),
                MemberRow::Invitation(id, _) => invitations.insert(id),
                MemberRow::Group(id, _) => groups.insert(id),
            };
        }
        let edges = self.edges.keys().filter(|id| !edges.contains(id));
        let invitations = self.invitations.keys().filter(|id| !invitations.contains(id));
        let groups = self.groups.keys().filter(|id| !groups.contains(id));
        let edges = edges.map(|id| MemberRow::Edge(id.clone(), None));
        let others = invitations.map(|id| MemberRow::Invitation(id.clone(), None));
        edges.chain(others).chain(groups.map(|id| MemberRow::Group(id.clone(), None))).collect()
    }

    fn put_edge(
        &mut self,
        id: String,
        row: Option<(EdgeRow, u64)>,
        touched: &mut BTreeMap<String, bool>,
        changes: &mut MemberChanges,
    ) {
        let row = row.map(|(row, version)| (Arc::new(row), version));
        let new = row.as_ref().map(|(row, _)| row.clone());
        let old = match row {
            Some(row) => self.edges.insert(id.clone(), row),
            None => self.edges.remove(&id),
        };
        let old = old.map(|(row, _)| row).filter(|row| row.revoked.is_none());
        let new = new.filter(|row| row.revoked.is_none());
        if let Some(row) = &new {
            self.enrolled += 1;
            self.add_to(&row.group, touched);
        }
        let Some(old) = old else { return };
        self.enrolled -= 1;
        self.remove_from(&old.group, touched);
        match new {
            None => changes.revoked.push((id, old.name.clone())),
            Some(new) if new.group != old.group => changes.moved.push((id, new.group.clone())),
            Some(_) => {}
        }
    }

    fn put_invitation(
        &mut self,
        id: String,
        row: Option<(InvitationRow, u64)>,
        touched: &mut BTreeMap<String, bool>,
    ) {
        if let Some((row, _)) = &row {
            self.add_to(&row.group, touched);
        }
        let old = match row {
            Some(row) => self.invitations.insert(id, row),
            None => self.invitations.remove(&id),
        };
        if let Some((old, _)) = old {
            self.remove_from(&old.group, touched);
        }
    }

    /// Counts a new member of a group.
    fn add_to(&mut self, group: &str, touched: &mut BTreeMap<String, bool>) {
        let size = self.size_before(group, touched);
        self.sizes.insert(group.to_owned(), size + 1);
    }

    /// Counts a member less.
    fn remove_from(&mut self, group: &str, touched: &mut BTreeMap<String, bool>) {
        match self.size_before(group, touched) {
            0 | 1 => drop(self.sizes.remove(group)),
            size => drop(self.sizes.insert(group.to_owned(), size - 1)),
        }
    }

    /// The members of a group; notes whether it had any before the first change.
    fn size_before(&self, group: &str, touched: &mut BTreeMap<String, bool>) -> usize {
        let size = self.sizes.get(group).copied().unwrap_or(0);
        touched.entry(group.to_owned()).or_insert(size > 0);
        size
    }
}
