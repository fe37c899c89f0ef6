//! Following the store: other gateways' writes, hands on the database, backups restored.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use gateway_core::config::catalog::{Affected, Catalog, Closes, Edit, ObjectKind, OnRefusal};
use gateway_core::config::model::Id;

use super::{Live, Reconciler, heavy, texts};
use crate::engine::error::StartError;
use crate::engine::listeners::Ports;
use crate::store::{Followed, Mark, Object, Op, Signal, StoreError};

/// Before trying again after a store that answered could not be followed.
const RETRY: Duration = Duration::from_secs(1);

/// How the store stands, as seen from this gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The revision served.
    pub(crate) revision: u64,
    /// Since when the store does not answer, and why.
    pub(crate) away: Option<(SystemTime, String)>,
    /// Objects that can't be used.
    pub(crate) broken: usize,
}

/// Follows until the reconciler is gone.
pub(super) async fn run(reconciler: Weak<Reconciler>) -> Result<(), Infallible> {
    let Some(mut signals) = reconciler.upgrade().map(|reconciler| reconciler.store.watch()) else {
        return Ok(());
    };
    // When the changes could not be read for the first time, and whether that was only once so far.
    let mut behind: Option<(SystemTime, bool)> = None;
    loop {
        let Some(this) = reconciler.upgrade() else { return Ok(()) };
        let signal = signals.borrow_and_update().clone();
        let is_default = signal == Signal::default();
        let mut away = signal.away.map(|away| (away.since, away.cause));
        let failed = match signal.mark {
            Some(mark) if away.is_none() => this.catch_up(&mark).await.err(),
            _ => None,
        };
        behind = failed.as_ref().map(|_| match behind {
            None => (SystemTime::now(), true),
            Some((since, _)) => (since, false),
        });
        match (&failed, behind) {
            // A database that answers, and whose changes can't be read, is of no more use than one that is away.
            (Some(error), Some((since, false))) => {
                away = Some((since, format!("its changes can't be read: {error}")));
            }
            (Some(error), _) => {
                tracing::warn!(%error, "the database could not be followed; what was served goes on")
            }
            _ => {}
        }
        // Before the first answer nothing is known that wasn't at the start.
        if !is_default {
            this.stand(away);
        }
        if failed.is_some() {
            tokio::time::sleep(RETRY).await;
            signals.mark_changed();
        }
        drop(this);
        if signals.changed().await.is_err() {
            return Ok(());
        }
    }
}

impl Reconciler {
    /// Tells of a store that goes away or comes back, once.
    fn stand(&self, away: Option<(SystemTime, String)>) {
        self.standing.send_if_modified(|standing| {
            match (&standing.away, &away) {
                (None, Some((_, cause))) => tracing::error!(
                    cause,
                    revision = standing.revision,
                    "database unreachable: serving the last configuration, rejecting writes"
                ),
                (Some(_), None) => tracing::info!("the database answers again"),
                _ => {}
            }
            self.engine.telemetry.control.database_away.store(away.is_some(), Ordering::Relaxed);
            let changed = standing.away != away;
            standing.away = away;
            changed
        });
    }

    /// Serves what the store has.
    async fn catch_up(&self, seen: &Mark) -> Result<(), StoreError> {
        let mut live = self.live.lock().await;
        // A smaller number, or another token, is another history: a backup was restored.
        if live.mark == *seen {
            return Ok(());
        }
        self.follow(&mut live).await
    }

    /// Brings what is served to the store's revision of now.
    pub(super) async fn follow(&self, live: &mut Live) -> Result<(), StoreError> {
        let from = live.mark.clone();
        let mut edit = Edit::default();
        let now: &Live = live;
        // All from one state: a proxy of a later one may name what is not known yet.
        let followed = self.store.follow(&from, |objects| {
            edit = self.edit(objects);
            match now.catalog.affected(&edit) {
                Affected::Some(ids) => texts(&ids),
                Affected::All => self.other_proxies(now, &edit),
            }
        });
        let (mark, objects, affected) = match followed.await? {
            Some(Followed { mark, objects, proxies }) => (mark, objects, self.as_stored(proxies)),
            None => {
                // Everything there is, so that there is nothing else to be concerned.
                let (mark, objects) = self.everything(now).await?;
                edit = self.edit(&objects);
                (mark, objects, Vec::new())
            }
        };
        if mark == from {
            return Ok(());
        }
        let revision = mark.revision;
        let ops = match self.mirror {
            Some(_) => objects.iter().map(|(kind, id, object)| op(*kind, id, object.as_ref())).collect(),
            None => Vec::new(),
        };
        let (mut catalog, mut changes) =
            heavy(|| self.tried(&live.catalog, edit, affected, OnRefusal::Object))
                .expect("a broken object is left alone and refuses nothing");
        for (kind, id, _) in objects.iter().filter(|(.., object)| object.is_none()) {
            catalog.forget_broken(*kind, id);
        }
        changes.revision = Some(revision);
        let staged = heavy(|| self.engine.stage(changes, Ports::Possible));
        // What is not served is not taken as served: the next look begins from the same revision.
        let staged = staged.map_err(|error| StoreError::Unserved { revision, cause: error.to_string() })?;
        // What is told of a revision is there before the revision is.
        self.now_at(live, catalog, mark.clone()).await;
        let served = self.engine.publish(staged);
        if let Some(mirror) = &self.mirror {
            mirror.feed(from, mark, ops);
        }
        served.everywhere().await;
        tracing::info!(revision, objects = objects.len(), "followed the database");
        Ok(())
    }

    /// Looks again at objects that can't be used: what they lacked, such as a connection of `gateway.redis`, a file or a variable,
    /// may be there now.
    pub(super) async fn retry_broken(&self, live: &mut Live) -> Result<(), StoreError> {
        let mut edit = Edit::default();
        let mut is_any = false;
        for kind in ObjectKind::ALL {
            let broken = live.catalog.broken();
            let ids: Vec<String> =
                broken.iter().filter(|(of, ..)| *of == kind).map(|(_, id, _)| id.to_owned()).collect();
            if ids.is_empty() {
                continue;
            }
            for object in self.store.get_many(kind, &ids).await? {
                self.documents.put(&mut edit, &object);
                is_any = true;
            }
        }
        if !is_any {
            return Ok(());
        }
        let ids = match live.catalog.affected(&edit) {
            Affected::Some(ids) => texts(&ids),
            Affected::All => self.other_proxies(live, &edit),
        };
        let affected = self.as_stored(self.store.get_many(ObjectKind::Proxies, &ids).await?);
        let tried = heavy(|| self.tried(&live.catalog, edit, affected, OnRefusal::Object));
        let (catalog, mut changes) = tried.expect("a broken object is left alone and refuses nothing");
        let repaired = live.catalog.broken().len().saturating_sub(catalog.broken().len());
        let mark = live.mark.clone();
        changes.revision = Some(mark.revision);
        let staged = heavy(|| self.engine.stage(changes, Ports::Possible));
        let unserved =
            |error: StartError| StoreError::Unserved { revision: mark.revision, cause: error.to_string() };
        let staged = staged.map_err(unserved)?;
        self.now_at(live, catalog, mark).await;
        self.engine.publish(staged).everywhere().await;
        if repaired > 0 {
            tracing::info!(objects = repaired, "repaired objects are in use");
        }
        Ok(())
    }

    /// What the store has, as an edit.
    fn edit(&self, objects: &[(ObjectKind, String, Option<Object>)]) -> Edit {
        let mut edit = Edit::default();
        for (kind, id, object) in objects {
            match object {
                Some(object) => self.documents.put(&mut edit, object),
                // What never was an object of ours can't go.
                None => edit.gone.extend(id.parse::<Id>().ok().map(|id| (*kind, id))),
            }
        }
        edit
    }

    /// Notes what is served now.
    pub(super) async fn now_at(&self, live: &mut Live, catalog: Catalog, mark: Mark) {
        let broken = catalog.broken().len();
        if catalog.broken().len() != live.catalog.broken().len() {
            say_broken(&catalog);
        }
        *self.seen.write().await = catalog.clone();
        let revision = mark.revision;
        *live = Live { catalog, mark };
        self.engine.telemetry.control.broken.store(broken as u64, Ordering::Relaxed);
        self.standing.send_modify(|standing| {
            standing.revision = revision;
            standing.broken = broken;
        });
    }

    /// Every proxy but those the edit is about.
    pub(super) fn other_proxies(&self, live: &Live, edit: &Edit) -> Vec<String> {
        let mut ids = live.catalog.ids(ObjectKind::Proxies, &*self.engine.snapshot());
        edit.proxies.iter().filter_map(|put| put.object.id.as_ref()).for_each(|id| {
            ids.remove(id);
        });
        let gone = edit.gone.iter().filter(|(kind, _)| *kind == ObjectKind::Proxies);
        gone.for_each(|(_, id)| {
            ids.remove(id.as_str());
        });
        ids.into_iter().collect()
    }

    /// Everything the store has, and everything served that it has no more.
    async fn everything(
        &self,
        live: &Live,
    ) -> Result<(Mark, Vec<(ObjectKind, String, Option<Object>)>), StoreError> {
        tracing::warn!(
            revision = live.mark.revision,
            "the database's history does not reach back to what is served; it is read anew"
        );
        let mut objects = Vec::new();
        let mut there: [BTreeSet<String>; ObjectKind::ALL.len()] = Default::default();
        let mark = self
            .store
            .load(|object| {
                there[object.kind as usize].insert(object.id.clone());
                objects.push((object.kind, object.id.clone(), Some(object)));
            })
            .await?;
        let snapshot = self.engine.snapshot();
        for kind in ObjectKind::ALL {
            let known = live.catalog.ids(kind, &*snapshot);
            let gone = known.into_iter().filter(|id| !there[kind as usize].contains(id));
            objects.extend(gone.map(|id| (kind, id, None)));
        }
        Ok((mark, objects))
    }
}

fn op(kind: ObjectKind, id: &str, object: Option<&Object>) -> Op {
    match object {
        Some(object) => Op::Put { kind, id: id.to_owned(), document: object.document.clone() },
        None => Op::Delete { kind, id: id.to_owned() },
    }
}

/// Names what can't be used, for whoever looks into the log.
pub(crate) fn say_broken(catalog: &Catalog) {
    for (kind, id, object) in catalog.broken().iter().take(MAX_TOLD) {
        for problem in &object.problems.0 {
            tracing::error!(kind = kind.singular(), id, %problem, "this object can't be used");
        }
    }
    // What closes everything is named whatever else is broken: nothing is served before it is repaired.
    let configs = catalog.broken().iter().filter(|(kind, ..)| *kind == ObjectKind::PluginConfigs);
    let closing = configs.filter(|(_, id, object)| catalog.closes(id, object) == Closes::Everything);
    for (_, id, _) in closing.take(MAX_TOLD) {
        tracing::error!(id, "every proxy answers 503 until this plugin config is repaired or deleted");
    }
}

/// Broken objects named in the log at a time; the admin API has all.
const MAX_TOLD: usize = 20;
