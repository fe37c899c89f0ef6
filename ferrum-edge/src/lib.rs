//! The gateway as a library: configuration in, traffic through, reload, drain.
//!
//! ```no_run
//! use ferrum_edge::{Gateway, source};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = ferrum_edge::plugins();
//! let model = source::file::parse("proxies: []", "inline", &registry)?;
//! let gateway = Gateway::start(model, registry)?;
//! println!("serving on {:?}", gateway.addresses().http);
//! gateway.drain();
//! # Ok(())
//! # }
//! ```

mod admin;
pub mod app;
pub mod cli;
mod control;
pub mod export;
pub mod source;

pub use app::{Addresses, Gateway, StartError};
pub use gateway_core as core;

use gateway_core::plugin::Registry;

/// The plugins that come with the gateway; add your own to it.
pub fn plugins() -> Registry {
    Registry::new(gateway_plugins::PLUGINS)
}
