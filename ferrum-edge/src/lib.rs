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
//!
//! - A [`core::config::model::Model`] comes from [`source::file::parse`] (a text) or [`source::file::Source`] (a file
//!   with the environment over it); it can't be invalid.
//! - [`Gateway::start`] serves it on threads of its own and needs no runtime of the host's. [`Gateway::reload`] swaps
//!   the whole configuration between two requests; [`Gateway::drain`] lets exchanges end, dropping ends them.
//! - [`plugins`] are the ones that come with the gateway; add your own by
//!   `registry.add(core::plugin::entry::<MyPlugin>())`, as `examples/embed.rs` shows.
//! - [`Gateway::serve_admin`] adds health, status and metrics; [`Gateway::telemetry`] hands out the same numbers.
//! - [`cli::main`] is the whole program, for a binary that only wants to add plugins.
//!
//! What is not used need not be built: without default features there is a gateway whose configuration comes from a file,
//! a text or types. `database` adds configuration from a database, `admin` the admin listener (and `database`), `cli` the
//! program (and `admin`); `script`, `wasm` and `ldap` add plugins, `import` the importers.
//!
//! Nothing here installs a logger: events go to [`tracing`](https://docs.rs/tracing), metrics are scraped.
//!
//! # Where things are
//!
//! From the bottom up; nothing imports a file above it.
//!
//! - `line_file.rs`, `audit.rs` (entries and their chain of hashes), `access.rs` (roles).
//! - `store/`: the database of objects; see its own documentation.
//! - `export/`: metrics, access log and program log. Each worker writes its own share without a lock. `export/sinks/` are further places for
//!   records, each with a bounded queue; a reload replaces them as a whole. `export/traffic.rs` counts for `ferrum-edge top`.
//! - `control/`: what runs beside traffic on a runtime of its own: probes, DNS services, the certificate watch, the overload watch and
//!   plugins' tasks. `control/acme/` gets certificates: `manager.rs` decides what is due, `order.rs` is one order, `storage.rs` its files.
//!   An order is noted before it begins, and its key before the CA issues, so a killed process neither orders again nor loses a certificate.
//! - `app/engine.rs`: stages and publishes configurations.
//! - `source/`: where configurations come from: `file.rs`, `database.rs` with its reconciler, follower, loader and mirror.
//! - `explain.rs`: which way a request takes, for the command and the API.
//! - `fleet/`: a control plane. `source/control_plane/`: a gateway that gets its configuration from one.
//! - `admin/`: the admin API. `endpoints.rs` is its table; roles are checked before a body is read.
//! - `app.rs`: a running gateway: workers, listeners, certificates, drain. It puts the other parts together.
//! - `cli/`: one file a command. `cli/handover.rs` gives the listening sockets to the next process.

#![cfg_attr(
    not(feature = "cli"),
    allow(
        dead_code,
        unused_imports,
        reason = "what only the admin API or the program asks for stays in its place"
    )
)]

#[cfg(feature = "database")]
mod access;
#[cfg(feature = "admin")]
pub mod admin;
pub mod app;
mod audit;
mod audit_recorder;
#[cfg(feature = "cli")]
pub mod cli;
mod control;
mod engine;
#[cfg(feature = "admin")]
mod explain;
pub mod export;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "admin")]
mod forward_proxy;
mod line_file;
pub mod source;
#[cfg(feature = "database")]
pub mod store;
pub mod variables;
pub mod world;

pub use app::{Addresses, Gateway, Inherited, StartError};
pub use gateway_core as core;
#[cfg(feature = "import")]
pub use gateway_import as import;
// What plugins are written with, in the versions that the gateway uses.
pub use {bytes, http, schemars, serde};

use gateway_core::plugin::Registry;

/// The plugins that come with the gateway; add your own to it.
pub fn plugins() -> Registry {
    Registry::new(gateway_plugins::PLUGINS).with_world(world::world())
}
