//! Operators' own code in the gateway: the engines, and the plugins that run it.
//!
//! The plugins take their places in the table of `gateway-plugins`. Each engine is behind a cargo feature, so that a
//! program without it is as small, and starts as fast, as if it did not exist.
//!
//! # Where things are
//!
//! - `script.rs`: the plugin `script` on Rhai. `script/engine.rs` has limits and compiled scripts, `script/view.rs` what a script sees,
//!   `script/functions.rs` and `script/tools.rs` what it can call. `script/fetch.rs` makes calls after the function has returned, so that
//!   no script holds a worker while it waits.
//! - `wasm.rs`: the plugin `wasm` on wasmtime, for Proxy-Wasm 0.2. `wasm/engine.rs` has compiled modules and the clock that ends guests which
//!   take too long, `wasm/vm.rs` an instance, `wasm/pool.rs` the instances of a worker, `wasm/visit.rs` one exchange in an instance,
//!   `wasm/stream.rs` and `wasm/filter.rs` bytes and messages on their way, `wasm/abi/` what guests call, `wasm/wasi.rs` the part of WASI
//!   that exists. A guest never runs while its instance is borrowed, and nothing of it is kept over an await.
//! - `wasm/conduit.rs`: modules of Conduit's small interface, with a fresh instance for each call.
//! - `message.rs`: what any code may change of a message. `on_error.rs`: what a failure means for the exchange. `shared_table.rs`: bounded values that all requests share.

#[cfg(any(feature = "script", feature = "wasm"))]
mod message;
#[cfg(any(feature = "script", feature = "wasm"))]
mod on_error;
#[cfg(feature = "script")]
mod script;
#[cfg(any(feature = "script", feature = "wasm"))]
mod shared_table;
#[cfg(feature = "wasm")]
mod wasm;

#[cfg(any(feature = "script", feature = "wasm"))]
use gateway_core::plugin::{Entry, entry};

/// The row of `script`.
#[cfg(feature = "script")]
pub const SCRIPT: Entry = entry::<script::Script>();

/// The row of `wasm`.
#[cfg(feature = "wasm")]
pub const WASM: Entry = entry::<wasm::Wasm>();

#[cfg(all(test, any(feature = "script", feature = "wasm")))]
mod testing;
