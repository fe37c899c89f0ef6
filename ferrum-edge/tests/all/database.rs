//! Database mode from the user's side: traffic over real connections while the configuration changes.

mod api;
mod approval;
mod audit;
mod broken;
mod cli;
mod conditions;
#[cfg(feature = "console")]
mod console;
mod crash;
mod disk;
mod files;
mod grants;
mod hammer;
mod peers;
mod place;
mod plugin_secrets;
mod propagation;
mod quotas;
mod retried;
mod rights;
mod services;
mod sessions;
