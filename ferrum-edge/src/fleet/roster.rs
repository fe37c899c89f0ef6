//! The members of the fleet: edges and invitations, in the database and in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_fleet::{
    Authority, CertifiedEdge, Hello, Hub, Invitation, Membership, NewIdentity, Refusal, VALIDITY, id_of,
    new_code,
};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::rows::{AcceptedCertificate, EDGE, EdgeRow, GROUP, GroupRow, INVITATION, InvitationRow};
use super::scope::Patterns;
use super::version_skew::Skew;
use crate::store::seal::Keys;
use crate::store::{FleetOp, Store, StoreError};

/// Certificates of an edge that are accepted at a time: the newest, and those that it may still use while it renews.
const MAX_CERTIFICATES: usize = 4;
/// Codes that are checked at a time: each takes 19 MiB.
const MAX_CHECKS: usize = 2;
/// How long an edge waits until its code is checked, while many enrol.
const CHECK_WAIT: Duration = Duration::from_secs(10);
/// Invitations that wait at a time.
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

/// What is known of the roster, and with which version.
#[derive(Debug, Clone, Default)]
struct Members {
    stamp: u64,
    edges: BTreeMap<String, (EdgeRow, u64)>,
    invitations: BTreeMap<String, (InvitationRow, u64)>,
    groups: BTreeMap<String, (GroupRow, u64)>,
    /// Patterns of the ids that workspaces cover; read only while a group names one.
    workspaces: BTreeMap<String, Vec<String>>,
}

/// Who belongs to the fleet.
pub(crate) struct Roster {
    store: Store,
    keys: Keys,
    authority: Authority,
    hub: Arc<Hub>,
    known: RwLock<Arc<Members>>,
    checks: Semaphore,
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
    /// The roster of a database.
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
        let roster = Arc::new(Self {
            store,
            keys,
            authority,
            hub,
            known: RwLock::default(),
            checks: Semaphore::new(MAX_CHECKS),
            skew,
            groups_changed: Notify::new(),
        });
        roster.refresh().await?;
        Ok(roster)
    }

    fn known(&self) -> Arc<Members> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Edges by id.
    pub(crate) fn edges(&self) -> Vec<(String, EdgeRow)> {
        self.known().edges.iter().map(|(id, (row, _))| (id.clone(), row.clone())).collect()
    }

    /// Groups that have edges, or will have them once they are enrolled.
    pub(super) fn groups(&self) -> BTreeSet<String> {
        let known = self.known();
        let edges = known.edges.values().filter(|(edge, _)| edge.revoked.is_none());
        let groups = edges.map(|(edge, _)| &edge.group);
        groups.chain(known.invitations.values().map(|(invitation, _)| &invitation.group)).cloned().collect()
    }

    /// The proxies that a group gets: those assigned to it, and those of its workspaces. An unknown workspace has none.
    pub(crate) fn patterns(&self, group: &str) -> Patterns {
        let known = self.known();
        let (row, _) = known.groups.get(group)?;
        let of_workspaces = row.workspaces.iter().filter_map(|name| known.workspaces.get(name)).flatten();
        Some(row.proxies.iter().chain(of_workspaces).cloned().collect())
    }

    /// What is assigned to a group; `None`: everything.
    pub(super) fn assigned(&self, group: &str) -> Option<GroupRow> {
        self.known().groups.get(group).map(|(row, _)| row.clone())
    }

    /// The groups that get the objects of a workspace.
    pub(crate) fn groups_of_workspace(&self, workspace: &str) -> Vec<String> {
        let known = self.known();
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
        self.refresh().await?;
        let expected = self.known().groups.get(group).map(|(_, version)| *version);
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

    /// Looks whether another control plane has changed something.
    pub(super) async fn poll(&self) -> Result<(), StoreError> {
        if self.store.fleet_stamp().await? != self.known().stamp {
            self.refresh().await?;
        }
        Ok(())
    }

    /// Reads everything, and lets connections follow: of revoked edges they end, moved edges get another configuration.
    pub(super) async fn refresh(&self) -> Result<(), StoreError> {
        let (stamp, rows) = self.store.fleet().await?;
        let mut known = Members { stamp, ..Members::default() };
        for row in rows {
            let unreadable = |error| tracing::error!(kind = row.kind, id = row.id, %error, "a row of the fleet can't be read");
            match row.kind.as_str() {
                EDGE => match serde_json::from_str(&row.document) {
                    Ok(edge) => drop(known.edges.insert(row.id, (edge, row.version))),
                    Err(error) => unreadable(error),
                },
                INVITATION => match serde_json::from_str(&row.document) {
                    Ok(invitation) => drop(known.invitations.insert(row.id, (invitation, row.version))),
                    Err(error) => unreadable(error),
                },
                // A group whose row can't be read gets nothing that is meant for some only.
                GROUP => {
                    let group = serde_json::from_str(&row.document).unwrap_or_else(|error| {
                        unreadable(error);
                        GroupRow { proxies: Vec::new(), workspaces: Vec::new() }
                    });
                    known.groups.insert(row.id, (group, row.version));
                }
                _ => {}
            }
        }
        if known.groups.values().any(|(row, _)| !row.workspaces.is_empty()) {
            let stored = self.store.workspaces().await?.into_iter();
            let objects = stored.filter_map(|one| Some((one.name, one.covers?.objects().to_vec())));
            known.workspaces = objects.collect();
        }
        let groups = |known: &Members| -> BTreeSet<String> {
            known.edges.values().map(|(edge, _)| edge.group.clone()).collect()
        };
        let known = Arc::new(known);
        let before = {
            let mut slot = self.known.write().unwrap_or_else(PoisonError::into_inner);
            // Of two that read at the same time, the later state stays.
            if slot.stamp > known.stamp {
                return Ok(());
            }
            std::mem::replace(&mut *slot, known.clone())
        };
        self.apply(&before, &known);
        let is_meant_otherwise = before.groups != known.groups || before.workspaces != known.workspaces;
        let is_invited = before.invitations.len() != known.invitations.len();
        if groups(&before) != groups(&known) || is_invited || is_meant_otherwise {
            self.groups_changed.notify_one();
        }
        Ok(())
    }

    fn apply(&self, before: &Members, now: &Members) {
        for (id, (old, _)) in &before.edges {
            let new = now.edges.get(id).map(|(edge, _)| edge);
            let is_gone = new.is_none_or(|new| new.revoked.is_some());
            if is_gone && old.revoked.is_none() {
                tracing::warn!(edge = id, name = old.name, "an edge was revoked");
                self.hub.act(|core, _| core.revoke(id, "this edge was revoked"));
            } else if let Some(new) = new.filter(|new| new.group != old.group) {
                self.hub.act(|core, now| {
                    let hello =
                        core.edges().get(id.as_str()).map(|edge| edge.hello.clone()).unwrap_or_default();
                    core.move_edge(id, &self.view_of(&new.group, &hello), now)
                });
            }
        }
    }

    /// The view that an edge of this group gets.
    pub(super) fn view_of(&self, group: &str, hello: &Hello) -> Arc<str> {
        let (view, is_new) = self.skew.view(group, hello);
        if is_new {
            self.groups_changed.notify_one();
        }
        view
    }

    /// What is known of this edge and this certificate of it.
    pub(super) fn membership_of(&self, edge: &str, serial: &str) -> Membership {
        match self.known().edges.get(edge) {
            Some((row, _)) if row.revoked.is_some() => Membership::Revoked,
            Some((row, _)) if row.certificates.iter().any(|it| it.serial == serial) => Membership::Enrolled,
            _ => Membership::Unknown,
        }
    }

    /// The keys that open the secrets of a group's documents.
    pub(super) fn keys_of(&self, group: &str) -> String {
        self.keys.of_group(group)
    }

    /// Invites an edge; `address` is where it finds a control plane.
    ///
    /// # Errors
    /// When a name is not one, or the database does not answer.
    pub(crate) async fn invite(
        &self,
        name: Option<&str>,
        group: Option<&str>,
        again: Option<&str>,
        address: &str,
    ) -> Result<(Invitation, u64), RosterError> {
        let known = self.known();
        let row = match again {
            Some(id) => {
                let (edge, _) = known.edges.get(id).ok_or_else(|| RosterError::Unknown(id.to_owned()))?;
                Some(edge.clone())
            }
            None => None,
        };
        let group = group.map(str::to_owned).or_else(|| row.as_ref().map(|row| row.group.clone()));
        let group = group.unwrap_or_else(|| DEFAULT_GROUP.to_owned());
        let name = name.map(str::to_owned).or_else(|| row.map(|row| row.name)).unwrap_or_default();
        checked(&group, "group")?;
        if !name.is_empty() {
            checked(&name, "name")?;
        }
        let time = now();
        let expired = known.invitations.iter().filter(|(_, (row, _))| row.expires <= time);
        let mut ops: Vec<_> = expired.map(|(id, (_, version))| removal(INVITATION, id, *version)).collect();
        if known.invitations.len() - ops.len() >= MAX_INVITATIONS {
            return Err(RosterError::Crowded);
        }
        let failed = |error: &dyn std::fmt::Display| RosterError::Code(error.to_string());
        let made = tokio::task::spawn_blocking(new_code).await.map_err(|error| failed(&error))?;
        let (id, code, hash) = made.map_err(|error| failed(&error))?;
        let expires = time + VALIDITY.as_secs();
        let row = InvitationRow { code: hash, expires, name, group, edge: again.map(str::to_owned) };
        ops.push(FleetOp { kind: INVITATION, id, expected: None, document: document(&row) });
        self.change(&ops).await?;
        Ok((Invitation { address: address.to_owned(), code, pin: self.authority.pin() }, expires))
    }

    /// Changes an edge.
    ///
    /// # Errors
    /// When there is none, or the database does not answer.
    pub(crate) async fn update(
        &self,
        id: &str,
        change: impl FnOnce(&mut EdgeRow) -> Result<(), RosterError>,
    ) -> Result<EdgeRow, RosterError> {
        self.refresh().await?;
        let known = self.known();
        let (row, version) = known.edges.get(id).ok_or_else(|| RosterError::Unknown(id.to_owned()))?;
        let mut row = row.clone();
        change(&mut row)?;
        let op =
            FleetOp { kind: EDGE, id: id.to_owned(), expected: Some(*version), document: document(&row) };
        self.change(&[op]).await?;
        Ok(row)
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
        self.refresh().await?;
        let known = self.known();
        let (_, version) = known.edges.get(id).ok_or_else(|| RosterError::Unknown(id.to_owned()))?;
        self.change(&[removal(EDGE, id, *version)]).await
    }

    async fn change(&self, ops: &[FleetOp]) -> Result<(), RosterError> {
        let is_done = self.store.change_fleet(ops).await?;
        self.refresh().await?;
        if is_done { Ok(()) } else { Err(RosterError::Changed) }
    }

    pub(super) async fn take_in(&self, code: &str, request: &str) -> Result<NewIdentity, Refusal> {
        let denied =
            || Refusal::Denied("the code is wrong, used or expired; make another invitation".to_owned());
        let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
        let invitation = id_of(code).ok_or_else(denied)?;
        self.poll().await.map_err(|error| failed(&error))?;
        let known = self.known();
        let (row, version) = known.invitations.get(invitation).ok_or_else(denied)?;
        if row.expires <= now() {
            return Err(denied());
        }
        // Strangers do not wait here: the invitation exists.
        let place = timeout(CHECK_WAIT, self.checks.acquire()).await;
        let place = place.map_err(|_| Refusal::Busy)?.map_err(|error| failed(&error))?;
        let (hash, sent) = (row.code.clone(), code.to_owned());
        let is_right = tokio::task::spawn_blocking(move || hash.verify(&sent)).await;
        drop(place);
        if !is_right.map_err(|error| failed(&error))? {
            return Err(denied());
        }
        let id = row.edge.clone().unwrap_or_else(|| format!("e{:012x}", fastrand::u64(..1 << 48)));
        let issued = self.authority.issue_edge(&id, &row.group, request);
        let issued = issued.map_err(|error| Refusal::Denied(error.to_string()))?;
        let name = if row.name.is_empty() { id.clone() } else { row.name.clone() };
        let edge = EdgeRow {
            name,
            group: row.group.clone(),
            certificates: vec![AcceptedCertificate { serial: issued.serial, not_after: issued.not_after }],
            enrolled: now(),
            revoked: None,
        };
        let expected = known.edges.get(&id).map(|(_, version)| *version);
        let ops = [
            removal(INVITATION, invitation, *version),
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
            let time = now();
            row.certificates.retain(|certificate| certificate.not_after > time);
            let surplus = (row.certificates.len() + 1).saturating_sub(MAX_CERTIFICATES);
            row.certificates.drain(..surplus);
            row.certificates.push(new);
            Ok(())
        };
        let row = self.update(&edge.edge, change).await.map_err(|error| failed(&error))?;
        tracing::info!(edge = edge.edge, serial = issued.serial, "an edge's certificate was renewed");
        let (edge, roots) = (edge.edge.clone(), self.authority.roots().to_owned());
        Ok(NewIdentity { edge, group: row.group, certificate: issued.certificate, roots })
    }

    pub(super) fn accepted(&self, edge: &CertifiedEdge) -> Result<EdgeRow, Refusal> {
        let known = self.known();
        let row = known
            .edges
            .get(&edge.edge)
            .filter(|_| self.membership_of(&edge.edge, &edge.serial) == Membership::Enrolled);
        row.map(|(row, _)| row.clone())
            .ok_or_else(|| Refusal::Denied("this edge is not accepted; invite it again".to_owned()))
    }
}

fn removal(kind: &'static str, id: &str, version: u64) -> FleetOp {
    FleetOp { kind, id: id.to_owned(), expected: Some(version), document: None }
}
