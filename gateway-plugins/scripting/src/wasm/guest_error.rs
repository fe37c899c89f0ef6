//! Why a module can't be used, or its instance was ended.

use wasmtime::Trap;

/// Why this machine can't run modules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EngineError {
    /// The library needs what the processor or the system lacks.
    #[error("{0}")]
    Unusable(String),
    /// Without it nothing would end a guest that runs for ever.
    #[error("the clock of WebAssembly modules can't be started: {0}")]
    NoClock(String),
}

/// Why a module can't be used, or its instance was ended. Operators read it after "the module does not start" or "the module failed".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum GuestError {
    /// This machine can't run modules.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It is written for another interface.
    #[error("the module does not say that it is written for Proxy-Wasm ABI 0.2")]
    AbiVersion,
    /// There is nothing to pass values in.
    #[error("the module exports no `memory`")]
    NoMemory,
    /// A function of the interface that takes or gives something else.
    #[error("`{0}` has other parameters than in Proxy-Wasm ABI 0.2")]
    Signature(&'static str),
    /// The module's own answer to a setting.
    #[error("the module refuses `{0}`")]
    Refused(&'static str),
    /// A call went on for longer than `timeout` or `start_timeout`.
    #[error("it takes longer than it may")]
    TooLong,
    /// The code did what WebAssembly forbids.
    #[error("{0}")]
    Trap(Trap),
    /// The module is no WebAssembly, lacks an import, or called a function of the gateway wrongly: the causes, in one line.
    #[error("{0}")]
    Module(String),
    /// The client was told another length in the head.
    #[error("it has changed the length of a body without removing `content-length` from the head")]
    BodyLength,
    /// A guest calls into the gateway while the gateway needs its instance.
    #[error("the instance is in use")]
    InUse,
    /// Its exchange began with an instance that failed since.
    #[error("its instance has been replaced")]
    Replaced,
    /// The guest has ended the exchange's context.
    #[error("its context is gone")]
    NoContext,
}

impl From<wasmtime::Error> for GuestError {
    fn from(error: wasmtime::Error) -> Self {
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => Self::TooLong,
            Some(trap) => Self::Trap(*trap),
            None => {
                // Where in the module it was is in a cause of its own, which says nothing to those who did not write it.
                let causes = error.chain().map(ToString::to_string);
                let told =
                    causes.filter(|cause| !cause.starts_with("error while executing at wasm backtrace"));
                let lines: Vec<String> =
                    told.map(|cause| cause.lines().next().unwrap_or_default().to_owned()).collect();
                Self::Module(lines.join(": "))
            }
        }
    }
}
