//! Changes that another user has to approve: which they are, how they are kept, and what an approval needs.
//!
//! A change waits as the documents that it would store, beside those that it was made to. It is applied only to these: whatever else was
//! changed meanwhile is checked together with it, as for any other write.

use std::borrow::Cow;
use std::sync::Arc;

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::changes::Changes;
use gateway_core::config::model::AdminApproval;

use super::error::{ApprovalError, WriteError};
use super::plan::{ObjectOutcome, Plan};
use super::{Reconciler, Request};
use crate::access::grants::{Grants, is_like};
use crate::access::{Caller, Role};
use crate::audit::Draft;
use crate::store::seal::SealError;
use crate::store::{
    Author, MAX_PENDING, MAX_PENDING_BYTES, MAX_PENDING_OBJECTS, MAX_PENDING_OF_AUTHOR, Op, PendingChange,
    PendingDecision, PendingDocument, PendingObject, PendingState, Transaction,
};

/// By whose will a write happens.
#[derive(Debug, Clone)]
pub(crate) enum Consent {
    /// The author's own, with this role; the settings decide whether another user has to approve it. The write itself needs the second
    /// role.
    Author { role: Role, needed: Role },
    /// The change of this number was approved.
    Approval(Approval),
}

/// An approval of a change.
#[derive(Debug, Clone)]
pub(crate) struct Approval {
    pub(crate) number: u64,
    pub(crate) by: Caller,
    /// Why, for people.
    pub(crate) reason: String,
    /// Applies the change without a second person: only for callers that are no persons, with the role admin.
    pub(crate) is_emergency: bool,
}

/// Whether the rules ask for an approval of this change.
pub(super) fn is_needed(
    rules: Option<&AdminApproval>,
    request: &Request,
    plan: &Plan,
    changes: &Changes,
) -> bool {
    let (Some(rules), Consent::Author { role, .. }) = (rules, &request.consent) else { return false };
    if !rules.roles.contains(&role.as_str()) {
        return false;
    }
    let changed = plan.done.iter().filter(|(done, _)| *done != ObjectOutcome::Unchanged);
    let keys: Vec<_> = changed.map(|(_, op)| op.key()).collect();
    if keys.is_empty() {
        return false;
    }
    let closed = changes.closed.iter().map(|(proxy, _)| proxy);
    let affected =
        changes.proxies.put.iter().chain(closed).map(|proxy| (ObjectKind::Proxies, proxy.id.as_str()));
    keys.into_iter().chain(affected).any(|(kind, id)| rules.objects.iter().any(|one| covers(one, kind, id)))
}

/// Whether a pattern such as `consumers/*` or `shop-*` covers an object.
fn covers(pattern: &str, kind: ObjectKind, id: &str) -> bool {
    match pattern.split_once('/') {
        Some((of, pattern)) => of == kind.as_str() && is_like(pattern, id),
        None => is_like(pattern, id),
    }
}

/// Whether two names may be one person's: users of a provider have its host behind their name.
pub(crate) fn is_same_person(one: &str, other: &str) -> bool {
    let person = |name: &str| name.split(" (").next().unwrap_or_default().trim().to_lowercase();
    person(one) == person(other)
}

/// Whether grants let a caller see a change: all of its objects, or none of it.
pub(crate) fn may_see(grants: Option<&Grants>, change: &PendingChange) -> bool {
    grants.is_none_or(|grants| {
        change.keys().count() == change.objects.len()
            && change.keys().all(|(kind, id)| kind != ObjectKind::Consumers && grants.may_see(id))
    })
}

/// Whether this caller may approve or reject a change by who he is; what the change does is checked when it is applied.
///
/// # Errors
/// Why not.
pub(crate) fn may_decide(
    rules: Option<&AdminApproval>,
    caller: &Caller,
    change: &PendingChange,
) -> Result<(), ApprovalError> {
    visible_and_pending(caller, change)?;
    if !caller.is_person {
        return Err(ApprovalError::NoPerson);
    }
    if is_same_person(&caller.name, &change.author.name) {
        return Err(ApprovalError::Own);
    }
    let by_admin = rules.is_some_and(|rules| rules.by_admin) || change.role != Role::Write.as_str();
    let needed = if by_admin { Role::Admin } else { Role::Write };
    if caller.role < needed {
        return Err(ApprovalError::Role(needed.as_str(), caller.role.as_str()));
    }
    granted(caller, change)
}

/// Whether this caller may apply a change in an emergency.
fn may_force(caller: &Caller, change: &PendingChange, reason: &str) -> Result<(), ApprovalError> {
    visible_and_pending(caller, change)?;
    if caller.is_person || caller.role < Role::Admin {
        return Err(ApprovalError::NoOperator);
    }
    if reason.trim().is_empty() { Err(ApprovalError::NoReason) } else { Ok(()) }
}

/// Whether this caller may withdraw a change.
fn may_withdraw(caller: &Caller, change: &PendingChange) -> Result<(), ApprovalError> {
    visible_and_pending(caller, change)?;
    match *caller.name == *change.author.name {
        true => Ok(()),
        false => Err(ApprovalError::NotOwn(change.author.name.clone())),
    }
}

/// Checks that the caller may see the change and that it is still pending.
fn visible_and_pending(caller: &Caller, change: &PendingChange) -> Result<(), ApprovalError> {
    if !may_see(caller.grants.as_deref(), change) {
        return Err(ApprovalError::Unknown(change.number));
    }
    match change.state {
        PendingState::Pending => Ok(()),
        other => Err(ApprovalError::Decided(change.number, other.as_str())),
    }
}

/// Whether the grants let a caller change each object.
fn granted(caller: &Caller, change: &PendingChange) -> Result<(), ApprovalError> {
    let Some(grants) = &caller.grants else { return Ok(()) };
    match change.keys().find(|(kind, id)| *kind == ObjectKind::Consumers || !grants.may_change(id)) {
        None => Ok(()),
        Some((kind, id)) => Err(ApprovalError::Grants(format!("changes of the {} `{id}`", kind.singular()))),
    }
}

/// How a change ends without being applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another user rejects it.
    Reject,
    /// Its author takes it back.
    Withdraw,
}

impl Reconciler {
    /// Rejects or withdraws a change.
    ///
    /// # Errors
    /// [`WriteError::Approval`], or when the database does not answer.
    pub(crate) async fn end_change(
        &self,
        number: u64,
        refusal: Refusal,
        caller: &Caller,
        reason: String,
        mut draft: Draft,
    ) -> Result<(), WriteError> {
        let rules = self.approval_rules();
        draft.note.clone_from(&reason);
        let (by, caller) = (caller.name.to_string(), caller.clone());
        let decide = move |change: Option<PendingChange>, draft: &mut Draft| {
            let change = change.ok_or(ApprovalError::Unknown(number))?;
            let state = match refusal {
                Refusal::Reject => {
                    may_decide(rules.as_deref(), &caller, &change)?;
                    PendingState::Rejected
                }
                Refusal::Withdraw => {
                    may_withdraw(&caller, &change)?;
                    PendingState::Withdrawn
                }
            };
            draft.reason = Some(format!("change {number} of {}: {}", change.author.name, state.as_str()));
            Ok::<_, ApprovalError>(PendingDecision { number, state, by, reason, revision: 0 })
        };
        let (draft, line) = self.store.decide_pending(number, decide, draft).await??;
        self.engine.audit.kept(&draft, &line);
        let counts = &self.engine.telemetry.control.approvals;
        match refusal {
            Refusal::Reject => counts.rejected.add(),
            Refusal::Withdraw => counts.withdrawn.add(),
        }
        self.pending_changed.notify_one();
        Ok(())
    }

    /// The rules in force; `None` where no change needs an approval.
    pub(crate) fn approval_rules(&self) -> Option<Arc<AdminApproval>> {
        self.engine.snapshot().settings.admin_approval.clone()
    }

    /// Keeps a write until it is approved.
    pub(super) async fn propose(
        &self,
        mut change: Transaction,
        author: Author,
        plan: &Plan,
        mut draft: Draft,
        request: &Request,
    ) -> Result<PendingChange, WriteError> {
        let (Some(rules), Consent::Author { needed, .. }) = (self.approval_rules(), &request.consent) else {
            return Err(WriteError::Stopping);
        };
        let (all, own) = change.pending_counts(&author.name).await?;
        if all >= MAX_PENDING || own >= MAX_PENDING_OF_AUTHOR {
            return Err(WriteError::TooManyPending { all, own });
        }
        let documents = documents(&mut change, plan.ops()).await?;
        let lengths = documents.iter().flat_map(|one| [&one.before, &one.after]).flatten().map(String::len);
        let bytes = lengths.sum::<usize>();
        if documents.len() > MAX_PENDING_OBJECTS || bytes > MAX_PENDING_BYTES {
            return Err(WriteError::TooLargeToPend { objects: documents.len(), bytes });
        }
        let now = change.time();
        let lasts = u64::try_from(rules.expires_after.as_millis()).unwrap_or(u64::MAX);
        let object = |one: &PendingDocument| PendingObject {
            kind: one.kind.clone(),
            id: one.id.clone(),
            action: one.action().to_owned(),
        };
        let pending = PendingChange {
            number: 0,
            state: PendingState::Pending,
            author,
            role: needed.as_str().to_owned(),
            note: request.note.clone(),
            base: change.base(),
            created_at: now,
            expires_at: now.saturating_add(lasts),
            decided_by: None,
            decided_at: None,
            reason: String::new(),
            revision: None,
            objects: documents.iter().map(object).collect(),
        };
        let pending = change.propose(pending, &documents).await?;
        draft.note.clone_from(&request.note);
        draft.status = Some(202);
        draft.reason = Some(format!("change {}: pending", pending.number));
        let line = change.audit(&draft).await?;
        change.commit_audit().await?;
        self.engine.audit.kept(&draft, &line);
        self.engine.telemetry.control.approvals.proposed.add();
        self.pending_changed.notify_one();
        tracing::info!(
            number = pending.number,
            author = pending.author.name,
            "a change waits for an approval"
        );
        Ok(pending)
    }

    /// What an approved change comes to. The transaction goes on in the name of its author.
    pub(super) async fn plan_approved(
        &self,
        change: &mut Transaction,
        approval: &Approval,
    ) -> Result<Plan, WriteError> {
        let number = approval.number;
        let now = change.time();
        let found = change.pending(number).await?;
        let (pending, documents) = found.ok_or(ApprovalError::Unknown(number))?;
        let pending = pending.at(now);
        match approval.is_emergency {
            true => may_force(&approval.by, &pending, &approval.reason)?,
            false => may_decide(self.approval_rules().as_deref(), &approval.by, &pending)?,
        }
        self.check_base(change, number, &documents).await?;
        let mut plan = Plan::default();
        for PendingDocument { kind, id, before, after } in documents {
            // A kind of a newer program would be left out of what was approved.
            let kind = ObjectKind::named(&kind).ok_or(ApprovalError::Unknown(number))?;
            let at = format!("{kind}.{id}");
            let unkept = |source: SealError| WriteError::Seal(vec![(at.clone(), source)]);
            let Some(mut document) = after else {
                plan.push(&at, ObjectOutcome::Deleted, Op::Delete { kind, id }, None);
                continue;
            };
            self.documents.seal_again(kind, &mut document).map_err(unkept)?;
            let opened = self.documents.opened(kind, &document).map(Cow::into_owned).map_err(unkept)?;
            let done = if before.is_some() { ObjectOutcome::Updated } else { ObjectOutcome::Created };
            plan.push(&at, done, Op::Put { kind, id, document }, Some(opened));
        }
        change.sign(&pending.author);
        plan.approved = Some(pending);
        Ok(plan)
    }

    /// Counts a change that was applied, and warns of an emergency.
    pub(super) fn count_approval(&self, request: &Request, plan: &Plan) {
        let (Consent::Approval(approval), Some(pending)) = (&request.consent, &plan.approved) else { return };
        let counts = &self.engine.telemetry.control.approvals;
        if approval.is_emergency {
            counts.forced.add();
            let (by, reason) = (&approval.by.name, &approval.reason);
            tracing::warn!(number = pending.number, %by, reason, "a change was applied without approval");
        } else {
            counts.approved.add();
        }
        self.pending_changed.notify_one();
    }

    /// Whether each object is as it was when the change was made.
    async fn check_base(
        &self,
        change: &mut Transaction,
        number: u64,
        documents: &[PendingDocument],
    ) -> Result<(), WriteError> {
        for kind in ObjectKind::ALL {
            let of_kind: Vec<_> = documents.iter().filter(|one| one.kind == kind.as_str()).collect();
            let ids: Vec<String> = of_kind.iter().map(|one| one.id.clone()).collect();
            if ids.is_empty() {
                continue;
            }
            let now = change.get_many(kind, &ids).await?;
            for one in of_kind {
                let object = now.iter().find(|object| object.id == one.id);
                if object.map(|object| &object.document) != one.before.as_ref() {
                    self.engine.telemetry.control.approvals.conflicts.add();
                    return Err(ApprovalError::Base { number, kind, id: one.id.clone() }.into());
                }
            }
        }
        Ok(())
    }
}

/// The decision that an applied change ends with, and how its revision and the audit tell of it.
pub(super) fn applied(
    approval: &Approval,
    pending: &PendingChange,
    revision: u64,
) -> (PendingDecision, String) {
    let by = approval.by.name.to_string();
    let how = match approval.is_emergency {
        true => format!("change {}, applied without approval by {by}: {}", pending.number, approval.reason),
        false => format!("change {}, approved by {by}", pending.number),
    };
    let note = if pending.note.is_empty() { how } else { format!("{} ({how})", pending.note) };
    let reason = match approval.is_emergency {
        true => format!("emergency: {}", approval.reason),
        false => approval.reason.clone(),
    };
    (PendingDecision { number: pending.number, state: PendingState::Approved, by, reason, revision }, note)
}

/// Each object as it is and as these steps leave it.
async fn documents(change: &mut Transaction, ops: Vec<Op>) -> Result<Vec<PendingDocument>, WriteError> {
    let mut before = std::collections::HashMap::new();
    for kind in ObjectKind::ALL {
        let ids: Vec<String> =
            ops.iter().map(Op::key).filter(|(of, _)| *of == kind).map(|(_, id)| id.to_owned()).collect();
        if !ids.is_empty() {
            let objects = change.get_many(kind, &ids).await?;
            before.extend(objects.into_iter().map(|object| ((kind, object.id), object.document)));
        }
    }
    let document = |op: Op| {
        let (kind, id) = (op.key().0, op.key().1.to_owned());
        let after = match op {
            Op::Put { document, .. } => Some(document),
            Op::Delete { .. } => None,
        };
        let before = before.remove(&(kind, id.clone()));
        PendingDocument { kind: kind.as_str().to_owned(), id, before, after }
    };
    Ok(ops.into_iter().map(document).collect())
}

#[cfg(test)]
mod tests;
