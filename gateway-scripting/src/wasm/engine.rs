//! The engine of all modules: one for the process, with a clock that ends guests which take too long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::{Config, Engine, Module};

use sha2::{Digest as _, Sha256};

/// What the clock counts in.
pub(super) const TICK: Duration = Duration::from_millis(2);
/// Bytes of a guest's stack.
const MAX_STACK: usize = 512 << 10;

/// The engine with its clock.
pub(super) struct Clockwork {
    pub(super) engine: Engine,
    /// Guests that run now, and all that ever began, in one number each.
    running: AtomicU64,
    begun: AtomicU64,
    clock: OnceLock<Thread>,
}

/// The process's engine; `Err` where this machine can't have one.
pub(super) fn clockwork() -> Result<&'static Clockwork, &'static str> {
    static ONE: OnceLock<Result<Clockwork, String>> = OnceLock::new();
    let made = ONE.get_or_init(|| {
        let mut config = Config::new();
        config.epoch_interruption(true).max_wasm_stack(MAX_STACK);
        let engine = Engine::new(&config).map_err(|error| error.to_string())?;
        let clock = OnceLock::new();
        Ok(Clockwork { engine, running: AtomicU64::new(0), begun: AtomicU64::new(0), clock })
    });
    made.as_ref().map_err(String::as_str)
}

/// One run of a guest; the clock ticks while there is any.
pub(super) struct GuestRun(&'static Clockwork);

impl Clockwork {
    /// A guest begins to run.
    pub(super) fn begin(&'static self) -> GuestRun {
        self.begun.fetch_add(1, Ordering::Relaxed);
        // The clock's thread looks at this after its token, and `unpark` leaves it one: no beginning is missed.
        if self.running.fetch_add(1, Ordering::SeqCst) == 0 {
            self.clock().unpark();
        }
        GuestRun(self)
    }

    fn clock(&'static self) -> &'static Thread {
        self.clock.get_or_init(|| {
            let started = thread::Builder::new().name("wasm-clock".to_owned()).spawn(move || self.tick());
            match started {
                Ok(thread) => thread.thread().clone(),
                Err(error) => {
                    tracing::error!(%error, "cannot start the clock of WebAssembly modules");
                    thread::current()
                }
            }
        })
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

/// Compiles a module, or takes the same one that a plugin has already. Takes seconds for large modules: never on a worker.
///
/// # Errors
/// What is wrong with the module.
pub(super) fn compile(bytes: &[u8]) -> Result<Arc<Compiled>, String> {
    static KNOWN: Mutex<Option<HashMap<[u8; 32], Weak<Compiled>>>> = Mutex::new(None);
    let clockwork = clockwork()?;
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(compiled) = known().get_or_insert_default().get(&digest).and_then(Weak::upgrade) {
        return Ok(compiled);
    }
    let module = Module::new(&clockwork.engine, bytes).map_err(|error| format!("{error:#}"))?;
    let compiled = Arc::new(Compiled { module, digest });
    let mut known = known();
    let known = known.get_or_insert_default();
    known.retain(|_, module| module.strong_count() > 0);
    known.insert(digest, Arc::downgrade(&compiled));
    Ok(compiled)
}
