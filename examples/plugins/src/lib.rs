//! A gateway with four plugins of its own: one asks a service about each request, one has a task, one answers with a stream,
//! and one passes a service's refusal on as it comes and ends uploads.
//!
//! `cargo run -- edge.yaml`, with a configuration such as
//!
//! ```yaml
//! gateway: {http: 127.0.0.1:8000, https: off}
//! proxies:
//!   - {id: api, listen_path: /api, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9001}
//! plugin_configs:
//!   - {id: ask, plugin_name: entitlements, proxy_id: api, config: {url: 'http://127.0.0.1:9002/may'}}
//!   - {id: deny, plugin_name: deny_list, proxy_id: api, config: {url: 'http://127.0.0.1:9002/denied'}}
//! ```
//!
//! Nothing here is known to the gateway but by its public interface.

mod countdown;
mod deny_list;
mod entitlements;
mod screening;

use std::error::Error;

use ferrum_edge::core::plugin::{Registry, entry};
use ferrum_edge::{Gateway, source};

/// The gateway's plugins and these. What was added last runs last.
pub fn registry() -> Registry {
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<deny_list::DenyList>());
    registry.add(entry::<entitlements::Entitlements>());
    registry.add(entry::<screening::Screening>());
    registry.add(entry::<countdown::Countdown>());
    registry
}

/// Serves a configuration file until Ctrl-C.
///
/// # Errors
/// When there is no such file, it is not right, or its listeners can't be opened.
pub fn run(path: Option<String>) -> Result<(), Box<dyn Error>> {
    let path = path.ok_or("which configuration? Name a file.")?;
    let text = std::fs::read_to_string(&path)?;
    let registry = registry();
    let gateway = Gateway::start(source::file::parse(&text, &path, &registry)?, registry)?;
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    waiting.block_on(tokio::signal::ctrl_c())?;
    gateway.drain();
    Ok(())
}
