//! Operators' own code in the gateway: the engines, and the plugins that run it.
//!
//! The plugins take their places in the table of `gateway-plugins`. Each engine is behind a cargo feature, so that a
//! program without it is as small, and starts as fast, as if it did not exist.

#[cfg(any(feature = "script", feature = "wasm"))]
mod message;
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
