//! Database mode as its users see it: traffic over real connections while the configuration changes.

#![allow(clippy::unwrap_used, reason = "helpers of tests may, too")]

#[path = "database/api.rs"]
mod api;
#[path = "database/audit.rs"]
mod audit;
#[path = "database/broken.rs"]
mod broken;
#[path = "database/cli.rs"]
mod cli;
#[path = "database/client.rs"]
mod client;
#[path = "database/conditions.rs"]
mod conditions;
#[cfg(feature = "console")]
#[path = "database/console.rs"]
mod console;
#[path = "database/crash.rs"]
mod crash;
#[path = "database/disk.rs"]
mod disk;
#[path = "database/files.rs"]
mod files;
#[path = "database/hammer.rs"]
mod hammer;
#[path = "database/peers.rs"]
mod peers;
#[path = "database/place.rs"]
mod place;
#[path = "database/plugin_secrets.rs"]
mod plugin_secrets;
#[allow(dead_code, reason = "written for the tests of the command line")]
#[path = "cli/process.rs"]
mod process;
#[path = "database/propagation.rs"]
mod propagation;
#[allow(dead_code, reason = "written for the tests of the store")]
#[path = "database/retried.rs"]
mod retried;
#[path = "store/servers.rs"]
mod servers;
#[path = "database/services.rs"]
mod services;
#[path = "database/sessions.rs"]
mod sessions;
