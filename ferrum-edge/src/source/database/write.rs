//! Writing: checked, compiled, stored, served, answered, in this order.

mod approval;
mod document;
mod error;
mod files;
mod plan;
mod precondition;
mod rollback;
mod scope;
mod step;
mod targets;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::catalog::{Affected, Catalog, ObjectKind, OnRefusal};
use serde_json::{Map, Value};
use tokio::sync::MutexGuard;

pub(crate) use approval::{Approval, Consent, Refusal, may_decide, may_see};
use document::{keep_credentials, normal, patched};
pub(crate) use error::{ApprovalError, WriteError};
pub(crate) use plan::ObjectOutcome;
use plan::Plan;
pub(crate) use precondition::Precondition;
pub(crate) use rollback::Rollback;
use rollback::{credentials_of_now, existing};
pub(crate) use step::WriteStep;
pub(crate) use targets::{TargetAddress, TargetChange};

use super::{Documents, Live, Reconciler, heavy, texts};
use crate::access::grants::Grants;
use crate::audit::Draft;
use crate::engine::Staged;
use crate::engine::error::StartError;
use crate::engine::listeners::Ports;
use crate::store::{Author, Away, Counts, Mark, Object, Op, PendingChange, StoreError, Transaction};

/// How long a caller waits for those before it.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// What is to be written, all of it or nothing.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Each with the place in the request its problems name.
    pub(crate) steps: Vec<(String, WriteStep)>,
    /// Removes every object of these kinds that no step puts.
    pub(crate) prune: Vec<ObjectKind>,
    /// Goes back to this revision; then there are no steps.
    pub(crate) rollback: Option<Rollback>,
    /// The revision that has to be the newest: who asks made it a condition.
    pub(crate) expected: Option<u64>,
    /// Validates everything and writes nothing.
    pub(crate) validate_only: bool,
    /// Why, for people.
    pub(crate) note: String,
    /// What it may be about; `None` is everything.
    pub(crate) grants: Option<Arc<Grants>>,
    /// By whose will it happens.
    pub(crate) consent: Consent,
}

/// What was written.
#[derive(Debug)]
pub(crate) struct CommittedWrite {
    /// The revision that is served by every worker now; with `validate_only` the one of before.
    pub(crate) revision: u64,
    /// Whether anything is different.
    pub(crate) counts: Counts,
    /// What was done to which object, in the order of the request.
    pub(crate) ops: Vec<(ObjectOutcome, Op)>,
    /// The object as it was left, where the request was about one and did not delete it. Whoever reads it again may find what somebody
    /// else has made of it by then.
    pub(crate) object: Option<Object>,
    /// Consumers whose earlier credentials a rollback made valid again.
    pub(crate) revived: Vec<String>,
    /// With `validate_only`: another user would have to approve it.
    pub(crate) needs_approval: bool,
}

/// What became of a write.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    Committed(CommittedWrite),
    /// It waits until another user approves it.
    Pending(PendingChange),
}

impl Reconciler {
    /// Writes, and answers once every worker serves it. Goes on to the end when the caller leaves.
    pub(crate) async fn write(
        self: &Arc<Self>,
        author: Author,
        draft: Draft,
        request: Request,
    ) -> Result<WriteOutcome, WriteError> {
        let reconciler = self.clone();
        let writing = tokio::spawn(async move { reconciler.write_to_end(author, draft, request).await });
        writing.await.unwrap_or(Err(WriteError::Stopping))
    }

    async fn write_to_end(
        &self,
        author: Author,
        draft: Draft,
        request: Request,
    ) -> Result<WriteOutcome, WriteError> {
        scope::names(&request)?;
        let mut live = self.turn().await?;
        let name = author.name.clone();
        let mut change = self.store.begin(author.clone()).await?;
        if *change.base_mark() != live.mark {
            // Somebody else wrote: what they wrote is served first. Nobody writes meanwhile, we hold the lock.
            self.follow(&mut live).await?;
        }
        if let Some(expected) = request.expected.filter(|expected| *expected != change.base()) {
            return Err(WriteError::Moved { expected, revision: change.base() });
        }
        let mut plan = self.plan(&mut change, &live, &request).await?;
        let (revision, time) = (change.base() + 1, change.time());
        let Stage { catalog, staged, needs_approval } =
            self.stage(&mut change, &live, &plan, revision, &request).await?;
        if needs_approval && !request.validate_only {
            self.engine.discard(staged);
            return self.propose(change, author, &plan, draft, &request).await.map(WriteOutcome::Pending);
        }
        let committed = self.commit(change, &plan, draft, &request).await;
        let (mark, counts) = match committed {
            Ok((mark, counts)) if mark != live.mark => (mark, counts),
            // Nothing was to be written, or nothing is different.
            Ok((_, counts)) => {
                self.engine.discard(staged);
                return Ok(WriteOutcome::Committed(CommittedWrite {
                    revision: live.mark.revision,
                    counts,
                    object: plan.only,
                    ops: plan.done,
                    revived: plan.revived,
                    needs_approval,
                }));
            }
            Err(error) => {
                self.engine.discard(staged);
                return Err(error.into());
            }
        };
        let (from, revision) = (live.mark.clone(), mark.revision);
        self.now_at(&mut live, catalog, mark.clone()).await;
        let served = self.engine.publish(staged);
        drop(live);
        if let Some(mirror) = &self.mirror {
            mirror.feed(from, mark, plan.ops());
        }
        served.everywhere().await;
        self.count_approval(&request, &plan);
        let Counts { created, updated, deleted } = counts;
        tracing::info!(revision, author = name, created, updated, deleted, "the configuration was changed");
        if !plan.revived.is_empty() {
            let (count, first) = (plan.revived.len(), &plan.revived[0]);
            tracing::warn!(
                revision,
                count,
                first,
                "the rollback made earlier credentials of consumers valid again"
            );
        }
        let object = plan.object_after(time, revision);
        let (ops, revived) = (plan.done, plan.revived);
        Ok(WriteOutcome::Committed(CommittedWrite { revision, counts, object, ops, revived, needs_approval }))
    }

    /// The right to write, for one caller at a time. Whoever waited while the database turned out to be away is told so
    /// without trying: each try takes its time, and those of all callers before would add up.
    async fn turn(&self) -> Result<MutexGuard<'_, Live>, WriteError> {
        if let Ok(live) = self.live.try_lock() {
            return Ok(live);
        }
        let waiting = tokio::time::timeout(TURN_TIMEOUT, self.live.lock());
        let live = waiting.await.map_err(|_| StoreError::Busy { waited: TURN_TIMEOUT })?;
        match self.store.away() {
            None => Ok(live),
            Some(Away { cause, .. }) => Err(StoreError::Away { cause }.into()),
        }
    }

    async fn commit(
        &self,
        mut change: Transaction,
        plan: &Plan,
        mut draft: Draft,
        request: &Request,
    ) -> Result<(Mark, Counts), StoreError> {
        change.gather();
        let (base, counts) = (change.base_mark().clone(), change.put(plan.ops()).await?);
        if request.validate_only || counts.total() == 0 {
            change.rollback().await;
            return Ok((base, counts));
        }
        draft.note.clone_from(&request.note);
        if let (Consent::Approval(approval), Some(pending)) = (&request.consent, &plan.approved) {
            let (decision, note) = approval::applied(approval, pending, base.revision + 1);
            change.end_pending(&decision).await?;
            draft.note = note;
        }
        draft.revision = Some(base.revision + 1);
        draft.gathered(change.gathered(), |kind, document| {
            ObjectKind::named(kind).map_or(Value::Null, |kind| Documents::shown(kind, document))
        });
        let line = change.audit(&draft).await?;
        let mark = change.commit_marked(&draft.note).await?;
        self.engine.audit.kept(&draft, &line);
        Ok((mark, counts))
    }

    /// Tries the plan on a copy of the catalog, and compiles it.
    async fn stage(
        &self,
        change: &mut Transaction,
        live: &Live,
        plan: &Plan,
        revision: u64,
        request: &Request,
    ) -> Result<Stage, WriteError> {
        scope::plugins(request, plan)?;
        let edit = heavy(|| plan.edit(&self.documents));
        let affected = match live.catalog.affected(&edit) {
            Affected::Some(ids) => texts(&ids),
            Affected::All => self.other_proxies(live, &edit),
        };
        let affected = self.as_stored(change.get_many(ObjectKind::Proxies, &affected).await?);
        heavy(|| {
            let tried = self.tried(&live.catalog, edit, affected, OnRefusal::Edit);
            let (mut catalog, mut changes) = tried.map_err(|problems| scope::problems(request, problems))?;
            let unusable = plan.unusable(&changes);
            if !unusable.is_empty() {
                return Err(scope::problems(request, unusable));
            }
            scope::effects(request, &changes)?;
            for (_, op) in plan.done.iter().filter(|(done, _)| *done == ObjectOutcome::Deleted) {
                catalog.forget_broken(op.key().0, op.key().1);
            }
            let rules = self.approval_rules();
            let needs_approval = approval::is_needed(rules.as_deref(), request, plan, &changes);
            changes.revision = Some(revision);
            let staged = self.engine.stage(changes, Ports::Available).map_err(|error| match error {
                StartError::Mistakes(problems) => WriteError::Invalid(problems),
                error => WriteError::Port(error),
            })?;
            Ok(Stage { catalog, staged, needs_approval })
        })
    }

    /// What the request comes to, given what there is.
    async fn plan(
        &self,
        change: &mut Transaction,
        live: &Live,
        request: &Request,
    ) -> Result<Plan, WriteError> {
        if let Consent::Approval(approval) = &request.consent {
            return self.plan_approved(change, approval).await;
        }
        let mut plan = Plan::default();
        if let Some(rollback) = request.rollback {
            let mut ops = change.undo_ops(rollback.revision).await?;
            plan.revived = credentials_of_now(change, &mut ops, rollback.keep_credentials).await?;
            let existing = existing(change, &ops).await?;
            for mut op in ops {
                let at = format!("{}.{}", op.key().0, op.key().1);
                if let Op::Put { kind, document, .. } = &mut op {
                    let sealed = self.documents.seal_again(*kind, document);
                    sealed.map_err(|source| WriteError::Seal(vec![(at.clone(), source)]))?;
                }
                let opened = op.document().map(|document| self.documents.opened(op.key().0, document));
                let opened =
                    opened.transpose().map_err(|source| WriteError::Seal(vec![(at.clone(), source)]));
                plan.sent.push(opened?.map(Cow::into_owned));
                let (kind, id) = op.key();
                let done = match op.document() {
                    None => ObjectOutcome::Deleted,
                    Some(_) if existing.contains(&(kind, id.to_owned())) => ObjectOutcome::Updated,
                    Some(_) => ObjectOutcome::Created,
                };
                plan.places.push(at);
                plan.done.push((done, op));
            }
            return Ok(plan);
        }
        let before = self.before(change, request).await?;
        let mut unkept = Vec::new();
        for (at, step) in &request.steps {
            match self.planned(&mut plan, at, step, &before) {
                // All of them are reported in one pass, as problems of objects are.
                Err(WriteError::Seal(more)) => unkept.extend(more),
                planned => planned?,
            }
        }
        if !unkept.is_empty() {
            return Err(WriteError::Seal(unkept));
        }
        for kind in &request.prune {
            self.pruned(&mut plan, *kind, live);
        }
        plan.cascade(live);
        if request.steps.len() == 1 {
            plan.only = before.into_values().next();
        }
        Ok(plan)
    }

    /// The objects the steps are about, as they are.
    async fn before(&self, change: &mut Transaction, request: &Request) -> Result<Before, StoreError> {
        let mut before = Before::new();
        for kind in ObjectKind::ALL {
            let of_kind = request.steps.iter().map(|(_, step)| step.key()).filter(|(of, _)| *of == kind);
            let ids: Vec<String> = of_kind.map(|(_, id)| id.to_string()).collect();
            if !ids.is_empty() {
                let objects = change.get_many(kind, &ids).await?;
                before.extend(objects.into_iter().map(|object| ((kind, object.id.clone()), object)));
            }
        }
        Ok(before)
    }

    fn planned(
        &self,
        plan: &mut Plan,
        at: &str,
        step: &WriteStep,
        before: &Before,
    ) -> Result<(), WriteError> {
        let (kind, id) = step.key();
        let object = before.get(&(kind, id.to_string()));
        step.precondition().check(kind, id, at, object)?;
        let Some(Wanted { request, document }) = self.wanted(step, object)? else {
            if object.is_some() {
                plan.push(at, ObjectOutcome::Deleted, Op::Delete { kind, id: id.to_string() }, None);
            }
            return Ok(());
        };
        let unkept = |source| WriteError::Seal(vec![(at.to_owned(), source)]);
        let stored = object.map(|object| object.document.as_str());
        let document = self.documents.retained(kind, &normal(document, id), stored).map_err(unkept)?;
        self.documents.check_binding(kind, &request, &document, stored).map_err(unkept)?;
        let sealed = self.documents.seal(kind, &document, stored).map_err(unkept)?;
        let document = self.documents.opened(kind, &document).map_err(unkept)?.into_owned();
        match object {
            Some(object) if Documents::same(kind, &object.document, &sealed) => {
                let op = Op::Put { kind, id: id.to_string(), document: object.document.clone() };
                // Checked all the same: whoever sends it wants to know.
                plan.push(at, ObjectOutcome::Unchanged, op, Some(document));
            }
            object => {
                let done = if object.is_some() { ObjectOutcome::Updated } else { ObjectOutcome::Created };
                let op = Op::Put { kind, id: id.to_string(), document: sealed };
                plan.push(at, done, op, Some(document));
            }
        }
        Ok(())
    }

    /// What was sent, and what the object is to be; nothing where it is to go.
    fn wanted<'s>(
        &self,
        step: &'s WriteStep,
        object: Option<&Object>,
    ) -> Result<Option<Wanted<'s>>, WriteError> {
        let stored = object.map(|object| object.document.as_str());
        Ok(Some(match step {
            WriteStep::Delete { .. } => return Ok(None),
            WriteStep::Put { kind, document: sent, .. } => {
                let mut document = sent.clone();
                if let Some(stored) = stored.filter(|_| *kind == ObjectKind::Consumers) {
                    keep_credentials(&mut document, stored);
                }
                Wanted { request: Cow::Borrowed(sent), document }
            }
            WriteStep::Merge { patch, .. } => {
                let merged =
                    patched(stored, patch, |one, other| self.documents.is_same_credential(one, other));
                Wanted { request: Cow::Borrowed(patch), document: merged }
            }
            WriteStep::Target { id, address, change, .. } => {
                Wanted { request: Cow::default(), document: targets::changed(id, stored, address, change)? }
            }
        }))
    }

    /// Removes what no step puts.
    fn pruned(&self, plan: &mut Plan, kind: ObjectKind, live: &Live) {
        let mut ids = live.catalog.ids(kind, &*self.engine.snapshot());
        for (_, op) in &plan.done {
            if op.key().0 == kind {
                ids.remove(op.key().1);
            }
        }
        for id in ids {
            plan.push("", ObjectOutcome::Deleted, Op::Delete { kind, id }, None);
        }
    }
}

/// A write that was tried on a copy of the catalog, and compiled.
struct Stage {
    catalog: Catalog,
    staged: Staged,
    needs_approval: bool,
}

type Before = HashMap<(ObjectKind, String), Object>;

/// What was sent, and what the object is to be.
struct Wanted<'s> {
    request: Cow<'s, Map<String, Value>>,
    document: Map<String, Value>,
}
