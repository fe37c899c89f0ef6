//! The engines of all modules: two for the process, each with a clock that ends guests which take too long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::{Config, Engine, Module, PoolingAllocationConfig};

use sha2::{Digest as _, Sha256};

use super::guest_error::{EngineError, GuestError};

/// What the clock counts in.
pub(super) const TICK: Duration = Duration::from_millis(2);
/// Bytes of a guest's stack.
const MAX_STACK: usize = 512 << 10;
/// Elements of one of a guest's tables.
pub(super) const MAX_TABLE: usize = 100_000;
/// Tables of an instance that lives for one call.
pub(super) const MAX_TABLES: u32 = 8;

/// The engine with its clock.
pub(super) struct Clockwork {
    pub(super) engine: Engine,
    /// Guests that run now, and all that ever began, in one number each.
    running: AtomicU64,
    begun: AtomicU64,
    clock: OnceLock<Result<Thread, EngineError>>,
}

/// How long a module's instances live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Instances {
    /// For as long as a plugin and its worker do.
    Kept,
    /// For one call, on one thread. They are made from a pool, which maps no memory for each.
    OnePerCall,
}

/// Calls at a time: no more than there are threads.
const MAX_CALLS: u32 = 1024;
/// Bytes of an instance's memory that are zeroed for the next one, rather than given back to the system and faulted in again.
const KEPT_MEMORY: usize = 128 << 10;

/// Bytes that describe an instance, its functions and globals among them.
const MAX_INSTANCE: usize = 16 << 20;

/// The process's engine for such instances; `Err` where this machine can't have one.
pub(super) fn clockwork(instances: Instances) -> Result<&'static Clockwork, EngineError> {
    static KEPT: OnceLock<Result<Clockwork, EngineError>> = OnceLock::new();
    static ONE_PER_CALL: OnceLock<Result<Clockwork, EngineError>> = OnceLock::new();
    let made = match instances {
        Instances::Kept => KEPT.get_or_init(|| Clockwork::new(config())),
        // The pool reserves terabytes of addresses, which a limit on them forbids.
        Instances::OnePerCall => {
            ONE_PER_CALL.get_or_init(|| Clockwork::new(pooled()).or_else(|error| without_pool(&error)))
        }
    };
    made.as_ref().map_err(Clone::clone)
}

fn without_pool(error: &EngineError) -> Result<Clockwork, EngineError> {
    tracing::warn!(
        %error,
        "there is no pool for instances of WebAssembly modules: each call maps memory of its own, which takes several times as long \
         (is the address space limited, as by `ulimit -v`?)"
    );
    Clockwork::new(config())
}

fn config() -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true).max_wasm_stack(MAX_STACK);
    config
}

fn pooled() -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(MAX_CALLS)
        .total_memories(MAX_CALLS)
        .total_tables(MAX_CALLS * MAX_TABLES)
        .max_core_instance_size(MAX_INSTANCE)
        .max_memories_per_module(1)
        .max_tables_per_module(MAX_TABLES)
        .table_elements(MAX_TABLE)
        .linear_memory_keep_resident(KEPT_MEMORY);
    let mut config = config();
    config.allocation_strategy(pool);
    config
}

/// One run of a guest; the clock ticks while there is any.
pub(super) struct GuestRun(&'static Clockwork);

impl Clockwork {
    fn new(config: Config) -> Result<Self, EngineError> {
        let engine = Engine::new(&config).map_err(|error| EngineError::Unusable(error.to_string()))?;
        Ok(Self { engine, running: AtomicU64::new(0), begun: AtomicU64::new(0), clock: OnceLock::new() })
    }

    /// A guest begins to run.
    ///
    /// # Errors
    /// When there is no clock, and so nothing that would end it.
    pub(super) fn begin(&'static self) -> Result<GuestRun, EngineError> {
        let clock = self.clock()?;
        self.begun.fetch_add(1, Ordering::Relaxed);
        // The clock's thread looks at this after its token, and `unpark` leaves it one: no beginning is missed.
        if self.running.fetch_add(1, Ordering::SeqCst) == 0 {
            clock.unpark();
        }
        Ok(GuestRun(self))
    }

    fn clock(&'static self) -> Result<&'static Thread, EngineError> {
        let clock = self.clock.get_or_init(|| {
            let started = thread::Builder::new().name("wasm-clock".to_owned()).spawn(move || self.tick());
            let started = started.map(|thread| thread.thread().clone());
            started.map_err(|error| EngineError::NoClock(error.to_string()))
        });
        clock.as_ref().map_err(Clone::clone)
    }

    fn tick(&self) {
        loop {
            let begun = self.begun.load(Ordering::Relaxed);
            thread::sleep(TICK);
            self.engine.increment_epoch();
            // Idle for a whole tick: wait for the next guest.
            while self.running.load(Ordering::SeqCst) == 0 && self.begun.load(Ordering::Relaxed) == begun {
                thread::park();
            }
        }
    }
}

impl Drop for GuestRun {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ticks that make up so much time, at least.
pub(super) fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u64::MAX / 2).saturating_add(1)
}

/// A module, compiled.
pub(super) struct Compiled {
    pub(super) module: Module,
    pub(super) digest: [u8; 32],
}

/// Compiles a module for such instances, or takes the same one that a plugin has already. Takes seconds for large modules: never on a worker.
///
/// # Errors
/// What is wrong with the module.
pub(super) fn compile(bytes: &[u8], instances: Instances) -> Result<Arc<Compiled>, GuestError> {
    type CompiledModules = HashMap<([u8; 32], Instances), Weak<Compiled>>;
    static KNOWN: Mutex<Option<CompiledModules>> = Mutex::new(None);
    let clockwork = clockwork(instances)?;
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(compiled) = known().get_or_insert_default().get(&(digest, instances)).and_then(Weak::upgrade)
    {
        return Ok(compiled);
    }
    let module = Module::new(&clockwork.engine, bytes)?;
    let compiled = Arc::new(Compiled { module, digest });
    let mut known = known();
    let known = known.get_or_insert_default();
    known.retain(|_, module| module.strong_count() > 0);
    known.insert((digest, instances), Arc::downgrade(&compiled));
    Ok(compiled)
}
