//! The members of the fleet: edges and invitations, in the database and in memory.

mod invitations;
mod members;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_fleet::{Abilities, Authority, CertifiedEdge, Hub, Membership, NewIdentity, Refusal, id_of};
use serde::Serialize;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::time::timeout;

use super::rows::{AcceptedCertificate, EDGE, EdgeRow, GROUP, GroupRow, INVITATION};
use super::scope::Patterns;
use super::version_skew::Skew;
use crate::store::seal::Keys;
use crate::store::{FleetChanges, FleetOp, Store, StoreError};
pub(crate) use invitations::NewInvitation;
use members::{MemberChanges, MemberRow, Members};

/// Codes that are checked at a time: each takes 19 MiB.
const MAX_CHECKS: usize = 2;
/// How long an edge waits until its code is checked, while many enrol.
const CHECK_WAIT: Duration = Duration::from_secs(10);
/// How often the same row may be changed by other control planes while it is changed by this one.
const MAX_COLLISIONS: usize = 5;
/// Pending invitations at a time.
const MAX_INVITATIONS: usize = 1000;
/// Bytes of a name.
const MAX_NAME: usize = 64;
/// The group of edges for which none is named.
pub(super) const DEFAULT_GROUP: &str = "default";

/// Why the roster was not changed.
#[derive(Debug, Error)]
pub(crate) enum RosterError {
    #[error("there is no edge `{0}`")]
    Unknown(String),
    #[error("there is no pending invitation `{0}`: it was used or withdrawn, or it has expired")]
    NoInvitation(String),
    #[error("there is no workspace `{0}`; `ferrum-edge workspaces list` lists them")]
    Workspace(String),
    #[error("`{0}` is not a {1}; use up to 64 letters, digits, `.`, `_` and `-`")]
    Name(String, &'static str),
    #[error("edge `{0}` is revoked; invite it again")]
    Revoked(String),
    #[error("{MAX_INVITATIONS} invitations wait already; they expire within ten minutes")]
    Crowded,
    #[error("another control plane changed the same edge; try again")]
    Changed,
    #[error("no code can be made: {0}")]
    Code(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who belongs to the fleet.
pub(crate) struct Roster {
    store: Store,
    keys: Keys,
    authority: Authority,
    hub: Arc<Hub>,
    known: RwLock<Members>,
    /// Held while the store's changes are read, so that they are taken up in their order.
    following: Mutex<()>,
    checks: Semaphore,
    /// Itself, and the runtime that the database's connections belong to, for connections of edges, which have other threads.
    pub(super) own: Weak<Self>,
    pub(super) control: Handle,
    /// What older edges go without.
    pub(super) skew: Skew,
    /// Wakes who renders configurations for groups.
    pub(super) groups_changed: Notify,
}

impl std::fmt::Debug for Roster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Roster").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !text.is_empty() && text.len() <= MAX_NAME && text.chars().all(is_inner)
}

fn checked(text: &str, what: &'static str) -> Result<(), RosterError> {
    if is_name(text) { Ok(()) } else { Err(RosterError::Name(text.to_owned(), what)) }
}

fn document(row: &impl Serialize) -> Option<String> {
    // Rows have text keys only, so they can be written.
    Some(serde_json::to_string(row).unwrap_or_default())
}

impl Roster {
    /// The roster of a database. What edges ask of the database runs on the runtime in which this is called.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(super) async fn load(
        store: Store,
        keys: Keys,
        authority: Authority,
        hub: Arc<Hub>,
        skew: Skew,
    ) -> Result<Arc<Self>, StoreError> {
        let roster = Arc::new_cyclic(|own| Self {
            store,
            keys,
            authority,
            hub,
            known: RwLock::default(),
            following: Mutex::default(),
            checks: Semaphore::new(MAX_CHECKS),
            own: own.clone(),
            control: Handle::current(),
            skew,
            groups_changed: Notify::new(),
        });
        roster.follow().await?;
        Ok(roster)
    }

    fn members(&self) -> RwLockReadGuard<'_, Members> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Edges by id.
    pub(crate) fn edges(&self) -> Vec<(String, Arc<EdgeRow>)> {
        self.members().edges().map(|(id, row)| (id.clone(), row.clone())).collect()
    }

    /// One edge.
    pub(super) fn edge(&self, id: &str) -> Option<Arc<EdgeRow>> {
        self.members().edge(id).map(|(row, _)| row.clone())
    }

    /// Edges that are not revoked.
    pub(super) fn enrolled(&self) -> usize {
        self.members().enrolled()
    }

    /// Groups that have edges, or will have them once they are enrolled.
    pub(super) fn groups(&self) -> BTreeSet<String> {
        self.members().groups_with_members()
    }

    /// The proxies that a group gets: those assigned to it, and those of its workspaces. An unknown workspace has none.
    pub(crate) fn patterns(&self, group: &str) -> Patterns {
        let known = self.members();
        let (row, _) = known.groups.get(group)?;
        let of_workspaces = row.workspaces.iter().filter_map(|name| known.workspaces.get(name)).flatten();
        Some(row.proxies.iter().chain(of_workspaces).cloned().collect())
    }

    /// What is assigned to a group; `None`: everything.
    pub(super) fn assigned(&self, group: &str) -> Option<GroupRow> {
        self.members().groups.get(group).map(|(row, _)| row.clone())
    }

    /// The groups that get the objects of a workspace.
    pub(crate) fn groups_of_workspace(&self, workspace: &str) -> Vec<String> {
        let known = self.members();
        let has = |row: &GroupRow| row.workspaces.iter().any(|name| name == workspace);
        known.groups.iter().filter(|(_, (row, _))| has(row)).map(|(group, _)| group.clone()).collect()
    }

    /// Assigns proxies and workspaces to a group; `None`: everything.
    ///
    /// # Errors
    /// When a name is not one, there is no such workspace, or the database does not answer.
    pub(crate) async fn assign(&self, group: &str, row: Option<GroupRow>) -> Result<(), RosterError> {
        checked(group, "group")?;
        for pattern in row.iter().flat_map(|row| &row.proxies) {
            checked(&pattern.replace('*', "x"), "pattern of proxies' ids")?;
        }
        let workspaces = row.iter().flat_map(|row| &row.workspaces);
        let workspaces: Vec<&String> = workspaces.collect();
        if !workspaces.is_empty() {
            let known = self.store.workspaces().await?;
            let is_unknown = |name: &&&String| !known.iter().any(|one| one.name == ***name);
            if let Some(unknown) = workspaces.iter().find(is_unknown) {
                return Err(RosterError::Workspace((*unknown).clone()));
            }
        }
        self.follow().await?;
        let expected = self.members().groups.get(group).map(|(_, version)| *version);
        let document = row.and_then(|row| document(&row));
        if document.is_none() && expected.is_none() {
            return Ok(());
        }
        self.change(&[FleetOp { kind: GROUP, id: group.to_owned(), expected, document }]).await
    }

    /// The authority.
    pub(super) const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Takes up what any control plane has changed, and lets connections follow: of revoked edges they end, moved edges get another
    /// configuration.
    ///
    /// # Errors
    /// When the database does not answer; what is known stays.
    pub(super) async fn follow(&self) -> Result<(), StoreError> {
        let _turn = self.following.lock().await;
        let since = self.members().mark.clone();
        let FleetChanges { mark, is_whole, rows } = self.store.follow_fleet(&since).await?;
        if mark == since {
            return Ok(());
        }
        let rows: Vec<MemberRow> = rows.into_iter().filter_map(MemberRow::of).collect();
        // A change of a workspace is not listed, so it has everything read.
        let may_differ = is_whole || rows.iter().any(MemberRow::names_workspaces);
        let are_named = rows.iter().any(MemberRow::names_workspaces) || self.members().names_workspaces();
        let workspaces = match may_differ && are_named {
            true => {
                let stored = self.store.workspaces().await?.into_iter();
                let covered = stored.filter_map(|one| Some((one.name, one.covers?.objects().to_vec())));
                Some(covered.collect())
            }
            false => None,
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let changes = known.apply(rows, is_whole, workspaces, mark);
        drop(known);
        self.carry_out(changes);
        Ok(())
    }

    fn carry_out(&self, changes: MemberChanges) {
        for (id, name) in changes.revoked {
            tracing::warn!(edge = id, name, "an edge was revoked");
            self.hub.act(|core, _| core.revoke(&id, "this edge was revoked"));
        }
        for (id, group) in changes.moved {
            self.hub.act(|core, now| {
                let abilities = core.edges().get(id.as_str()).map(|edge| edge.abilities.clone());
                core.move_edge(&id, &self.view_of(&group, &abilities.unwrap_or_default()), now)
            });
        }
        if changes.are_groups_changed {
            self.groups_changed.notify_one();
        }
    }

    /// The view that an edge of this group gets.
    pub(super) fn view_of(&self, group: &str, abilities: &Abilities) -> Arc<str> {
        let (view, is_new) = self.skew.view(group, abilities);
        if is_new {
            self.groups_changed.notify_one();
        }
        view
    }

    /// What is known of this edge and this certificate of it.
    pub(super) fn membership_of(&self, edge: &str, serial: &str) -> Membership {
        match self.members().edge(edge) {
            Some((row, _)) if row.revoked.is_some() => Membership::Revoked,
            Some((row, _)) if row.certificates.iter().any(|it| it.serial == serial) => Membership::Enrolled,
            _ => Membership::Unknown,
        }
    }

    /// The keys that open the secrets of a group's documents.
    pub(super) fn keys_of(&self, group: &str) -> String {
        self.keys.of_group(group)
    }

    /// Changes an edge, also while another control plane changes it: neither change takes the other back.
    ///
    /// # Errors
    /// When there is none, or the database does not answer.
    pub(crate) async fn update(
        &self,
        id: &str,
        change: impl Fn(&mut EdgeRow) -> Result<(), RosterError>,
    ) -> Result<EdgeRow, RosterError> {
        for _ in 0..MAX_COLLISIONS {
            self.follow().await?;
            let found = self.members().edge(id).cloned();
            let (row, version) = found.ok_or_else(|| RosterError::Unknown(id.to_owned()))?;
            let mut row = Arc::unwrap_or_clone(row);
            change(&mut row)?;
            let (id, document) = (id.to_owned(), document(&row));
            match self.change(&[FleetOp { kind: EDGE, id, expected: Some(version), document }]).await {
                Ok(()) => return Ok(row),
                Err(RosterError::Changed) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RosterError::Changed)
    }

    /// Changes an edge's name or group.
    ///
    /// # Errors
    /// When there is none, a name is not one, or the database does not answer.
    pub(crate) async fn rename(
        &self,
        id: &str,
        name: Option<&str>,
        group: Option<&str>,
    ) -> Result<EdgeRow, RosterError> {
        name.map_or(Ok(()), |name| checked(name, "name"))?;
        group.map_or(Ok(()), |group| checked(group, "group"))?;
        let change = |row: &mut EdgeRow| {
            if let Some(name) = name {
                name.clone_into(&mut row.name);
            }
            if let Some(group) = group {
                group.clone_into(&mut row.group);
            }
            Ok(())
        };
        self.update(id, change).await
    }

    /// Accepts an edge no more.
    ///
    /// # Errors
    /// When there is none, or the database does not answer.
    pub(crate) async fn revoke(&self, id: &str) -> Result<EdgeRow, RosterError> {
        let change = |row: &mut EdgeRow| {
            row.revoked.get_or_insert_with(now);
            row.certificates.clear();
            Ok(())
        };
        self.update(id, change).await
    }

    /// Forgets an edge, which is then not accepted, either.
    ///
    /// # Errors
    /// When there is none, or the database does not answer.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), RosterError> {
        for _ in 0..MAX_COLLISIONS {
            self.follow().await?;
            let version = self.members().edge(id).map(|(_, version)| *version);
            let version = version.ok_or_else(|| RosterError::Unknown(id.to_owned()))?;
            match self.change(&[removal(EDGE, id, version)]).await {
                Err(RosterError::Changed) => {}
                changed => return changed,
            }
        }
        Err(RosterError::Changed)
    }

    async fn change(&self, ops: &[FleetOp]) -> Result<(), RosterError> {
        let is_done = self.store.change_fleet(ops).await?;
        self.follow().await?;
        if is_done { Ok(()) } else { Err(RosterError::Changed) }
    }

    pub(super) async fn take_in(&self, code: &str, request: &str) -> Result<NewIdentity, Refusal> {
        let denied =
            || Refusal::Denied("the code is wrong, used or expired; make another invitation".to_owned());
        let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
        let invitation = id_of(code).ok_or_else(denied)?;
        self.follow().await.map_err(|error| failed(&error))?;
        let found = self.members().invitations.get(invitation).cloned();
        let (row, version) = found.ok_or_else(denied)?;
        if row.expires <= now() {
            return Err(denied());
        }
        // Strangers do not wait here: the invitation exists.
        let place = timeout(CHECK_WAIT, self.checks.acquire()).await;
        let place = place.map_err(|_| Refusal::Busy)?.map_err(|error| failed(&error))?;
        let (hash, sent) = (row.code, code.to_owned());
        let is_right = tokio::task::spawn_blocking(move || hash.verify(&sent)).await;
        drop(place);
        if !is_right.map_err(|error| failed(&error))? {
            return Err(denied());
        }
        let id = row.edge.unwrap_or_else(|| format!("e{:012x}", fastrand::u64(..1 << 48)));
        let issued = self.authority.issue_edge(&id, &row.group, request);
        let issued = issued.map_err(|error| Refusal::Denied(error.to_string()))?;
        let name = if row.name.is_empty() { id.clone() } else { row.name };
        let edge = EdgeRow {
            name,
            group: row.group,
            certificates: vec![AcceptedCertificate { serial: issued.serial, not_after: issued.not_after }],
            enrolled: now(),
            revoked: None,
        };
        let expected = self.members().edge(&id).map(|(_, version)| *version);
        let ops = [
            removal(INVITATION, invitation, version),
            FleetOp { kind: EDGE, id: id.clone(), expected, document: document(&edge) },
        ];
        // Of two that send the same code at the same time, one finds the invitation.
        match self.change(&ops).await {
            Ok(()) => {}
            Err(RosterError::Changed) => return Err(denied()),
            Err(error) => return Err(failed(&error)),
        }
        tracing::info!(edge = id, name = edge.name, group = edge.group, "an edge was enrolled");
        let roots = self.authority.roots().to_owned();
        Ok(NewIdentity { edge: id, group: edge.group, certificate: issued.certificate, roots })
    }

    pub(super) async fn reissue(&self, edge: &CertifiedEdge, request: &str) -> Result<NewIdentity, Refusal> {
        let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
        let row = self.accepted(edge)?;
        let issued = self.authority.issue_edge(&edge.edge, &row.group, request);
        let issued = issued.map_err(|error| Refusal::Denied(error.to_string()))?;
        let new = AcceptedCertificate { serial: issued.serial.clone(), not_after: issued.not_after };
        let change = |row: &mut EdgeRow| {
            if row.revoked.is_some() {
                return Err(RosterError::Revoked(edge.edge.clone()));
            }
            row.accept(new.clone(), &edge.serial, now());
            Ok(())
        };
        let row = self.update(&edge.edge, change).await.map_err(|error| failed(&error))?;
        tracing::info!(edge = edge.edge, serial = issued.serial, "an edge's certificate was renewed");
        let (edge, roots) = (edge.edge.clone(), self.authority.roots().to_owned());
        Ok(NewIdentity { edge, group: row.group, certificate: issued.certificate, roots })
    }

    pub(super) fn accepted(&self, edge: &CertifiedEdge) -> Result<Arc<EdgeRow>, Refusal> {
        let is_enrolled = self.membership_of(&edge.edge, &edge.serial) == Membership::Enrolled;
        self.edge(&edge.edge)
            .filter(|_| is_enrolled)
            .ok_or_else(|| Refusal::Denied("this edge is not accepted; invite it again".to_owned()))
    }
}

fn removal(kind: &'static str, id: &str, version: u64) -> FleetOp {
    FleetOp { kind, id: id.to_owned(), expected: Some(version), document: None }
}
