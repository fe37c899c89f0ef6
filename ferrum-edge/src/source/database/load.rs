//! The first configuration of a gateway: everything the store has, or the last good copy of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use gateway_core::config::catalog::{Against, Catalog, OnRefusal, ResolvedEdit};
use gateway_core::config::changes::Changes;
use gateway_core::config::model::Settings;
use gateway_core::plugin::Registry;
use gateway_core::snapshot::Snapshot;
use gateway_core::snapshot::compile::{Compiled, Compiler};
use tokio::time::Instant;

use super::{Documents, LoadError, Mirror};
use crate::store::{Mark, Object, Store, StoreError};

/// Objects checked and compiled at a time.
const CHUNK: usize = 4096;
/// Threads that parse.
const PARSERS: usize = 2;
/// Chunks that wait at each step of each of them.
const WAITING: usize = 2;

/// Everything a store has, compiled.
pub(crate) struct Loaded {
    compiled: Compiled,
    compiler: Compiler,
    pub(super) catalog: Catalog,
    pub(super) mark: Mark,
    /// Why the store itself could not be read, when this is the last good copy.
    pub(super) stale: Option<String>,
}

/// What goes on when the first configuration is published.
pub(crate) struct AfterPublishing {
    pub(crate) compiler: Compiler,
    pub(crate) catalog: Catalog,
    pub(crate) mark: Mark,
}

impl Loaded {
    /// What could be used, and what could not.
    #[cfg(feature = "fleet")]
    pub(crate) const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What is to be published first, and what goes on.
    pub(crate) fn split(self) -> (Compiled, AfterPublishing) {
        let Self { compiled, compiler, catalog, mark, .. } = self;
        (compiled, AfterPublishing { compiler, catalog, mark })
    }
}

/// Where objects come from.
enum ObjectSource<'s> {
    Store(&'s Store),
    /// In the order of kinds, at this revision.
    #[cfg(feature = "fleet")]
    Objects(Vec<Object>, u64),
}

impl ObjectSource<'_> {
    async fn each(self, take: impl FnMut(Object) + Send) -> Result<Mark, StoreError> {
        match self {
            Self::Store(store) => store.load(take).await,
            #[cfg(feature = "fleet")]
            Self::Objects(objects, revision) => {
                objects.into_iter().for_each(take);
                Ok(Mark { revision, token: String::new() })
            }
        }
    }
}

/// Compiles objects that are in memory, in the order of kinds.
///
/// # Errors
/// When no thread can be started.
#[cfg(feature = "fleet")]
pub(crate) async fn compile(
    objects: Vec<Object>,
    revision: u64,
    documents: &Documents,
    settings: Arc<Settings>,
    registry: &Registry,
) -> Result<Loaded, LoadError> {
    Ok(read(ObjectSource::Objects(objects, revision), documents, settings, registry).await?)
}

/// Reads and compiles everything.
///
/// # Errors
/// When the store does not answer, and there is no last good copy.
pub(super) async fn load(
    store: &Store,
    documents: &Documents,
    settings: Arc<Settings>,
    registry: &Registry,
    mirror: Option<&Mirror>,
) -> Result<Loaded, LoadError> {
    match read(ObjectSource::Store(store), documents, settings.clone(), registry).await {
        Ok(loaded) => Ok(loaded),
        Err(error) => {
            let Some(mirror) = mirror else { return Err(error.into()) };
            let Some(mark) = mirror.mark().await else { return Err(error.into()) };
            let copy = ObjectSource::Store(mirror.store());
            let Ok(mut loaded) = read(copy, documents, settings, registry).await else {
                return Err(error.into());
            };
            loaded.compiled.snapshot.revision = mark.revision;
            loaded.mark = mark;
            loaded.stale = Some(error.to_string());
            Ok(loaded)
        }
    }
}

/// Reads on this thread, parses and builds plugins on two, checks on one, and compiles on one more.
async fn read(
    source: ObjectSource<'_>,
    documents: &Documents,
    settings: Arc<Settings>,
    registry: &Registry,
) -> Result<Loaded, StoreError> {
    // Some kinds of objects take longer to parse, some to compile. Chunks go to the parsing threads in turns, and come back in turns.
    let (mut rows, mut parsed, mut parsing) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PARSERS {
        let (chunks, to_parse) = sync_channel::<Vec<Object>>(WAITING);
        let (edits, to_compile) = sync_channel::<ResolvedEdit>(WAITING);
        let (documents, registry, redis) = (documents.clone(), registry.clone(), settings.redis.clone());
        parsing.push(thread("parse", move || {
            for objects in to_parse {
                let edit = ResolvedEdit::new(documents.edit(&objects), &registry, redis.as_ref());
                if edits.send(edit).is_err() {
                    return;
                }
            }
        })?);
        rows.push(chunks);
        parsed.push(to_compile);
    }
    let (checked, to_compile) = sync_channel::<Changes>(WAITING);
    let mut checking = Checking::new(settings.clone());
    let checking = thread("check", move || {
        let mut turns = parsed.iter().cycle();
        // In the order in which they were sent: the first thread that has no further one is the end of all.
        while let Some(edit) = turns.next().and_then(|edits| edits.recv().ok()) {
            if checked.send(checking.changes(edit)).is_err() {
                break;
            }
        }
        checking
    })?;
    let mut building = Building::new(settings, registry.clone());
    let compiling = thread("compile", move || {
        to_compile.iter().for_each(|changes| building.add(changes));
        building
    })?;
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut turns = rows.iter().cycle();
    let mut send = |chunk: Vec<Object>| {
        // Fails only when the others are gone, which is told below.
        if let Some(chunks) = turns.next() {
            drop(chunks.send(chunk));
        }
    };
    let mark = source
        .each(|object| {
            chunk.push(object);
            if chunk.len() == CHUNK {
                send(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)));
            }
        })
        .await;
    send(chunk);
    drop(rows);
    parsing.into_iter().for_each(joined);
    let (checking, building) = (joined(checking), joined(compiling));
    Ok(building.done(checking, mark?))
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StoreError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| StoreError::Io {
        at: "this machine".to_owned(),
        cause: format!("no thread could be started: {error}"),
    })
}

/// What turns chunks into changes.
///
/// An object of a load takes the place of none, so that of the snapshot before only the consumers matter: they may not share names
/// and credentials. So they are kept here, and chunks are checked while earlier ones are compiled.
struct Checking {
    catalog: Catalog,
    /// Nothing but settings and consumers.
    known: Snapshot,
}

impl Checking {
    fn new(settings: Arc<Settings>) -> Self {
        Self { catalog: Catalog::default(), known: Snapshot::empty(settings) }
    }

    fn changes(&mut self, edit: ResolvedEdit) -> Changes {
        let against = Against { previous: &self.known, folder: Path::new("") };
        // What refers to something comes after it, so nothing older is concerned.
        let applied = self.catalog.apply(edit, Vec::new(), against, OnRefusal::Object);
        let mut changes = applied.expect("a broken object is left alone and refuses nothing");
        std::mem::take(&mut changes.consumers).apply(&mut self.known.consumers);
        changes
    }
}

/// A configuration that grows chunk by chunk.
struct Building {
    compiler: Compiler,
    compiled: Compiled,
}

impl Building {
    fn new(settings: Arc<Settings>, registry: Registry) -> Self {
        let mut compiler = Compiler::new(registry);
        let empty = Snapshot::empty(settings);
        let compiled = compiler.apply(Changes::default(), &empty, Instant::now());
        Self { compiler, compiled }
    }

    fn add(&mut self, changes: Changes) {
        let nothing = Snapshot::empty(self.compiled.snapshot.settings.clone());
        let previous = std::mem::replace(&mut self.compiled.snapshot, nothing);
        let later = self.compiler.advance(changes, previous, Instant::now());
        self.compiled.absorb(later);
    }

    fn done(mut self, checking: Checking, mark: Mark) -> Loaded {
        let Checking { catalog, known } = checking;
        self.compiled.snapshot.consumers = known.consumers;
        self.compiled.snapshot.revision = mark.revision;
        let Self { compiler, compiled } = self;
        Loaded { compiled, compiler, catalog, mark, stale: None }
    }
}
