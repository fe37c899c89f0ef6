//! The roster creates invitations, lists the pending ones and withdraws them.

use gateway_fleet::{Invitation, VALIDITY, new_code};

use super::super::rows::{INVITATION, InvitationRow};
use super::{DEFAULT_GROUP, MAX_INVITATIONS, Roster, RosterError, checked, document, now, removal};
use crate::store::FleetOp;

/// An invitation that was just made.
#[derive(Debug)]
pub(crate) struct NewInvitation {
    /// Names it in the API; it is no secret.
    pub(crate) id: String,
    pub(crate) invitation: Invitation,
    /// Seconds since 1970.
    pub(crate) expires: u64,
}

/// An invitation that an edge can still use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PendingInvitation {
    pub(crate) id: String,
    /// The name that the edge will have; empty: its id.
    pub(crate) name: String,
    pub(crate) group: String,
    /// The edge that enrols again.
    pub(crate) edge: Option<String>,
    /// Seconds since 1970.
    pub(crate) expires: u64,
}

impl Roster {
    /// Lists the pending invitations, ordered by when they expire.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn invitations(&self) -> Result<Vec<PendingInvitation>, RosterError> {
        self.follow().await?;
        let time = now();
        let known = self.members();
        let waiting = known.invitations.iter().filter(|(_, (row, _))| row.expires > time);
        let mut pending: Vec<_> = waiting
            .map(|(id, (row, _))| PendingInvitation {
                id: id.clone(),
                name: row.name.clone(),
                group: row.group.clone(),
                edge: row.edge.clone(),
                expires: row.expires,
            })
            .collect();
        pending.sort_by(|one, other| (one.expires, &one.id).cmp(&(other.expires, &other.id)));
        Ok(pending)
    }

    /// Withdraws an invitation, so that no edge can enrol with its code.
    ///
    /// # Errors
    /// When no pending invitation has this id, or the database does not answer.
    pub(crate) async fn withdraw(&self, id: &str) -> Result<(), RosterError> {
        self.follow().await?;
        let time = now();
        let waiting = self.members().invitations.get(id).filter(|(row, _)| row.expires > time).cloned();
        let gone = || RosterError::NoInvitation(id.to_owned());
        let (_, version) = waiting.ok_or_else(gone)?;
        match self.change(&[removal(INVITATION, id, version)]).await {
            // Rows of invitations never change: an edge has used it, or somebody else has withdrawn it.
            Err(RosterError::Changed) => Err(gone()),
            done => done,
        }
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
    ) -> Result<NewInvitation, RosterError> {
        let row = match again {
            Some(id) => Some(self.edge(id).ok_or_else(|| RosterError::Unknown(id.to_owned()))?),
            None => None,
        };
        let group = group.map(str::to_owned).or_else(|| row.as_ref().map(|row| row.group.clone()));
        let group = group.unwrap_or_else(|| DEFAULT_GROUP.to_owned());
        let name = name.map(str::to_owned).or_else(|| row.map(|row| row.name.clone())).unwrap_or_default();
        checked(&group, "group")?;
        if !name.is_empty() {
            checked(&name, "name")?;
        }
        let failed = |error: &dyn std::fmt::Display| RosterError::Code(error.to_string());
        let time = now();
        if self.waiting(time) >= MAX_INVITATIONS {
            return Err(RosterError::Crowded);
        }
        let made = tokio::task::spawn_blocking(new_code).await.map_err(|error| failed(&error))?;
        let (id, code, hash) = made.map_err(|error| failed(&error))?;
        let expires = time + VALIDITY.as_secs();
        let row = InvitationRow { code: hash, expires, name, group, edge: again.map(str::to_owned) };
        let new = FleetOp { kind: INVITATION, id: id.clone(), expected: None, document: document(&row) };
        let mut ops = self.expired(time);
        ops.push(new.clone());
        match self.change(&ops).await {
            // Another invitation has removed what had expired.
            Err(RosterError::Changed) if ops.len() > 1 => self.change(&[new]).await?,
            changed => changed?,
        }
        let invitation = Invitation { address: address.to_owned(), code, pin: self.authority.pin() };
        Ok(NewInvitation { id, invitation, expires })
    }

    /// Invitations that can still be used.
    fn waiting(&self, time: u64) -> usize {
        self.members().invitations.values().filter(|(row, _)| row.expires > time).count()
    }

    /// The removal of invitations that have expired.
    fn expired(&self, time: u64) -> Vec<FleetOp> {
        let known = self.members();
        let expired = known.invitations.iter().filter(|(_, (row, _))| row.expires <= time);
        expired.map(|(id, (_, version))| removal(INVITATION, id, *version)).collect()
    }
}
