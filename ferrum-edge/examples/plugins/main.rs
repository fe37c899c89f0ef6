//! A gateway with three plugins of its own: one calls out, one has a task, one answers with a stream.
//!
//! `cargo run -p ferrum-edge --example plugins -- edge.yaml`, with a configuration such as
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

#![allow(unreachable_pub, reason = "a test calls it")]

mod countdown;
mod deny_list;
mod entitlements;

use ferrum_edge::core::plugin::{Registry, entry};
use ferrum_edge::{Gateway, source};

/// The gateway's plugins and these.
pub(crate) fn registry() -> Registry {
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<deny_list::DenyList>());
    registry.add(entry::<entitlements::Entitlements>());
    registry.add(entry::<countdown::Countdown>());
    registry
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which configuration? Name a file.")?;
    let text = std::fs::read_to_string(&path)?;
    let registry = registry();
    let gateway = Gateway::start(source::file::parse(&text, &path, &registry)?, registry)?;
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    waiting.block_on(tokio::signal::ctrl_c())?;
    gateway.drain();
    Ok(())
}
