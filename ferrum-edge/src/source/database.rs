//! Configuration from a database, changed while traffic flows.
//!
//! The store is the truth; the [`Reconciler`] keeps what is served equal to it. A write of this gateway's is checked and
//! compiled inside the store's transaction, committed, and only then published: what is refused was never written, and
//! what is answered is served. Other gateways' writes are followed, one revision to the next. Every step costs by what
//! changed.
//!
//! What is found in the store and can't be used is broken alone: see [`gateway_core::config::catalog`].

mod documents;
mod environment;
mod follow;
mod load;
mod mirror;
mod paths;
mod pending;
mod references;
mod usage;
mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::config::catalog::{Against, Catalog, Edit, ObjectKind, OnRefusal, Put, ResolvedEdit};
use gateway_core::config::changes::Changes;
use gateway_core::config::file;
use gateway_core::config::model::{Id, Settings};
use gateway_core::config::problem::Problems;
use gateway_core::plugin::Registry;
use tokio::sync::{Mutex, Notify, RwLock, watch};

use crate::access::Access;
use crate::engine::Engine;
use crate::engine::error::ReloadError;
pub use crate::store::LoadError;
use crate::store::seal::Keys;
use crate::store::{Location, Mark, Object, Options, Store};
pub(crate) use documents::Documents;
pub use environment::{location, token_file};
pub(crate) use follow::{Standing, say_broken};
pub(crate) use load::Loaded;
#[cfg(feature = "fleet")]
pub(crate) use load::compile;
use load::load;
use mirror::{Mirror, MirrorStanding};
pub use references::Permitted;
use usage::DatabaseUsage;
pub(crate) use write::{
    Approval, ApprovalError, CommittedWrite, Consent, ObjectOutcome, Precondition, Refusal, Request,
    Rollback, TargetAddress, TargetChange, WriteError, WriteOutcome, WriteStep, may_decide, may_see,
};

/// A database and how it is used.
pub struct Database {
    /// Where it is.
    pub location: Location,
    /// Limits and intervals.
    pub options: Options,
    /// The keys for secrets at rest.
    pub keys: Keys,
    /// What objects may refer to by `${env:NAME}` and `${file:PATH}`.
    pub references: Permitted,
    /// The file of the last good configuration; `None` keeps none.
    pub mirror: Option<PathBuf>,
    /// Who may use the admin API.
    pub access: Access,
}

/// A database that answered.
pub(crate) struct OpenedDatabase {
    store: Store,
    documents: Documents,
    registry: Registry,
    mirror: Option<Mirror>,
    access: Access,
    /// Since when it does not answer, and why, when this is the last good copy.
    away: Option<(SystemTime, String)>,
}

impl Database {
    /// Opens and reads it. SQLite is created and migrated; a server's schema has to be there. With `keeps_usage`, traffic quotas can
    /// store their usage in it.
    ///
    /// # Errors
    /// When it does not answer, and there is no last good configuration.
    pub(crate) async fn open(
        self,
        settings: Arc<Settings>,
        registry: Registry,
        keeps_usage: bool,
    ) -> Result<(OpenedDatabase, Loaded), LoadError> {
        let store = Store::open(self.location, self.options);
        if store.location().engine() == crate::store::Engine::Sqlite {
            store.migrate().await?;
        }
        let documents = Documents::new(&registry, self.keys, self.references);
        let mirror = match self.mirror {
            Some(path) => mirror_at(path, &store).await,
            None => None,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if keeps_usage {
            let usage = DatabaseUsage::open(store.clone(), now).await;
            registry.world().keep_usage_in(Arc::new(usage));
        }
        let loaded = load(&store, &documents, settings, &registry, mirror.as_ref()).await?;
        match (&loaded.stale, &mirror) {
            (Some(cause), _) => tracing::error!(
                cause,
                revision = loaded.mark.revision,
                "the database does not answer; the last good configuration serves until it does"
            ),
            (None, Some(mirror)) => mirror.follow(loaded.mark.clone()),
            (None, None) => {}
        }
        say_broken(&loaded.catalog);
        let away = loaded.stale.clone().map(|cause| (SystemTime::now(), cause));
        Ok((OpenedDatabase { store, documents, registry, mirror, access: self.access, away }, loaded))
    }
}

/// The last good configuration. A gateway whose database answers does without rather than not start.
async fn mirror_at(path: PathBuf, store: &Store) -> Option<Mirror> {
    let shown = path.display().to_string();
    let opened = Mirror::open(path, store.clone()).await;
    opened
        .inspect_err(|error| {
            tracing::error!(path = shown, %error, "the last good configuration can't be kept; remove the file, or name another by FERRUM_DB_LAST_GOOD");
        })
        .ok()
}

/// Keeps what is served equal to what is stored. One a gateway.
pub(crate) struct Reconciler {
    engine: Arc<Engine>,
    store: Store,
    documents: Documents,
    registry: Registry,
    /// Held by whoever changes what is served: one at a time, each against what the one before published.
    live: Mutex<Live>,
    /// What is known of the store, for status and metrics.
    standing: watch::Sender<Standing>,
    /// The catalog in use, for readers that must not wait for a write.
    seen: RwLock<Catalog>,
    mirror: Option<Mirror>,
    access: Access,
    /// A change waits for an approval, or does no longer.
    pending_changed: Arc<Notify>,
}

/// What is served, in the form in which it can be changed.
struct Live {
    catalog: Catalog,
    mark: Mark,
}

impl Reconciler {
    /// Takes over what was loaded, and follows the store from now on. Has to be called on the control runtime.
    pub(crate) fn start(
        engine: Arc<Engine>,
        opened: OpenedDatabase,
        catalog: Catalog,
        mark: Mark,
    ) -> Arc<Self> {
        let OpenedDatabase { store, documents, registry, mirror, access, away } = opened;
        let broken = catalog.broken().len();
        engine.telemetry.control.broken.store(broken as u64, Ordering::Relaxed);
        engine.telemetry.control.database_away.store(away.is_some(), Ordering::Relaxed);
        let reconciler = Arc::new(Self {
            engine,
            documents,
            registry,
            standing: watch::Sender::new(Standing { revision: mark.revision, away, broken }),
            seen: RwLock::new(catalog.clone()),
            live: Mutex::new(Live { catalog, mark }),
            store,
            mirror,
            access,
            pending_changed: Arc::default(),
        });
        reconciler.engine.audit.keep_in(reconciler.store.clone());
        let followed = Arc::downgrade(&reconciler);
        let tasks = reconciler.engine.shared.tasks.clone();
        let counted = followed.clone();
        let counting = tasks.clone().supervise("pending_changes", move || pending::run(counted.clone()));
        tokio::spawn(counting);
        tokio::spawn(tasks.supervise("database_follower", move || follow::run(followed.clone())));
        reconciler
    }

    /// Who may use the admin API.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Puts other settings of the gateway as a whole in use.
    ///
    /// # Errors
    /// When they can't be used.
    pub(crate) async fn reload(&self, settings: Arc<Settings>) -> Result<(), ReloadError> {
        let mut live = self.live.lock().await;
        let missing = live.catalog.without_redis(&settings);
        if !missing.is_empty() {
            let refused = ReloadError::from(missing);
            self.engine.telemetry.refused(&refused);
            return Err(refused);
        }
        heavy(|| self.engine.reload_settings(settings, live.mark.revision))?;
        if let Err(error) = self.retry_broken(&mut live).await {
            tracing::warn!(%error, "objects that could not be used were not looked at again");
        }
        Ok(())
    }

    /// How documents are read and their secrets opened.
    #[cfg(feature = "fleet")]
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// The store itself, for reading.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// How the store stands.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// How the copy of the last good configuration stands; `None` where none is kept.
    pub(crate) fn last_good(&self) -> Option<(&Path, MirrorStanding)> {
        let mirror = self.mirror.as_ref()?;
        Some((mirror.store().location().path()?, mirror.standing()))
    }

    /// The catalog in use.
    pub(crate) async fn catalog(&self) -> Catalog {
        self.seen.read().await.clone()
    }

    /// What serves.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Tries an edit on a copy of the catalog.
    fn tried(
        &self,
        catalog: &Catalog,
        edit: Edit,
        affected: Vec<Put<file::Proxy>>,
        refusal: OnRefusal,
    ) -> Result<(Catalog, Changes), Problems> {
        let mut trial = catalog.clone();
        let previous = self.engine.snapshot();
        let folder = PathBuf::new();
        let against = Against { previous: &*previous, folder: &folder };
        let edit = ResolvedEdit::new(edit, &self.registry, previous.settings.redis.as_ref());
        let changes = trial.apply(edit, affected, against, refusal)?;
        Ok((trial, changes))
    }

    /// The proxies an edit concerns, as they are stored.
    fn as_stored(&self, objects: Vec<Object>) -> Vec<Put<file::Proxy>> {
        let place = |object: &Object| format!("{}.{}", ObjectKind::Proxies, object.id);
        objects.into_iter().map(|object| self.documents.stored(place(&object), &object)).collect()
    }
}

/// Runs what takes long and never waits, without holding up the control runtime's other tasks.
pub(crate) fn heavy<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Ids of proxies, for the store.
fn texts(ids: &BTreeSet<Id>) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
