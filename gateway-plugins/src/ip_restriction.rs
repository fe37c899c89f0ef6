//! Lets clients in or keeps them out by their address, for HTTP and for streams.
//!
//! Lists are in the settings or in files, which are read again when they change. A file that can't be read or has a line
//! that is no network is refused when the configuration is checked; later, the list of before stays in force and the
//! task's failure is logged and shown in `/v1/status`. Looking an address up takes a binary search, whatever the length
//! of the lists.

mod networks;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::TaskControl;
use gateway_core::plugin::{Gate, Hooks, OnConnect, OnRequest, Plugin, Refusal, Seat, Starter, Step, World};
use gateway_core::record::Metric;
use gateway_core::stream::session::Session;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use networks::{Networks, Parts};

/// Settings of `ip_restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Addresses and networks that may pass, such as `192.0.2.1` or `2001:db8::/32`. Where any list of those who may
    /// pass is given, nobody else may. Default none.
    allow: Vec<String>,
    /// Addresses and networks that may not. Default none.
    deny: Vec<String>,
    /// Files with more of `allow`: an address or network a line, `#` begins a comment. Default none.
    allow_files: Vec<PathBuf>,
    /// Files with more of `deny`. Default none.
    deny_files: Vec<PathBuf>,
    /// How often files are looked at; they are read when they have changed. At least 1 s. Default 60 s.
    #[schemars(range(min = 1))]
    refresh: Seconds,
    /// Which list wins for an address that is on both: `deny_first` or `allow_first`. Default `deny_first`.
    mode: Mode,
    /// The refusal's status, 400 to 599. Default 403.
    #[schemars(range(min = 400, max = 599))]
    status_code: u16,
    /// Notes `ip_restriction.would_deny` in the access record, and refuses nobody. Default false.
    dry_run: bool,
}

/// Which list wins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// Who is denied stays out.
    #[default]
    DenyFirst,
    /// Who is allowed comes in.
    AllowFirst,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            allow_files: Vec::new(),
            deny_files: Vec::new(),
            refresh: Seconds(60),
            mode: Mode::DenyFirst,
            status_code: 403,
            dry_run: false,
        }
    }
}

/// The plugin.
pub(crate) struct IpRestriction {
    lists: ArcSwap<Lists>,
    config: Config,
    world: World,
    status: StatusCode,
    denied: Counter,
}

/// Both lists, and how the files were when they were read.
struct Lists {
    allow: Networks,
    deny: Networks,
    modified: Vec<u128>,
}

/// Bytes one file may have.
const MAX_FILE: u64 = 64 << 20;
const DENIED: Metric = Metric {
    name: "ferrum_ip_restriction_denied_total",
    kind: "counter",
    help: "Requests and sessions refused for their address (would have been, in a dry run).",
};

impl Plugin for IpRestriction {
    const NAME: &'static str = "ip_restriction";
    const SUMMARY: &'static str = "Lets clients in or keeps them out by their address.";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let lists =
            [config.allow.len(), config.deny.len(), config.allow_files.len(), config.deny_files.len()];
        if lists.iter().sum::<usize>() == 0 {
            let mut problems = Problems::default();
            problems.add("config", "nobody is allowed and nobody is denied").remedy =
                Some("give `allow`, `deny`, `allow_files` or `deny_files`".into());
            return Err(problems);
        }
        let lists = read(&config, world)?;
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        Ok(Self {
            lists: ArcSwap::from_pointee(lists),
            status: StatusCode::from_u16(config.status_code).unwrap_or(StatusCode::FORBIDDEN),
            config,
            world: world.clone(),
            denied: world.meters().counter(DENIED, &["plugin_config"], &[owner]),
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_connect(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        if self.config.allow_files.is_empty() && self.config.deny_files.is_empty() {
            return;
        }
        let plugin = self.clone();
        starter.task("refresh", move |control| plugin.clone().keep_fresh(control));
    }
}

/// Reads all lists; says everything that is wrong with them.
fn read(config: &Config, world: &World) -> Result<Lists, Problems> {
    let mut problems = Problems::default();
    let mut modified = Vec::new();
    let mut list = |name: &str, texts: &[String], files: &[PathBuf]| {
        let mut parts = Parts::default();
        for (n, text) in texts.iter().enumerate() {
            if parts.add(text).is_err() {
                problems.add(format!("config.{name}[{n}]"), format!("`{text}` is no address or network"));
            }
        }
        for (n, path) in files.iter().enumerate() {
            // Asked before it is read: a change while it is read is seen the next time.
            let changed = world.files().modified(path).unwrap_or(0);
            modified.push(changed);
            let read = world.files().read(path, MAX_FILE).map_err(|error| error.to_string());
            if let Err(why) = read.and_then(|bytes| parts.add_lines(&bytes)) {
                let place = format!("config.{name}_files[{n}]");
                problems.add(place, format!("{} can't be used: {why}", path.display()));
            }
        }
        parts.into_networks()
    };
    let allow = list("allow", &config.allow, &config.allow_files);
    let deny = list("deny", &config.deny, &config.deny_files);
    problems.into_result(Lists { allow, deny, modified })
}

impl OnRequest for IpRestriction {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        if self.admits(exchange.client_address) {
            return Step::Next;
        }
        self.denied.add(1);
        if self.config.dry_run {
            exchange.note("ip_restriction.would_deny", true);
            return Step::Next;
        }
        let reply =
            Reply::new(Cause::Forbidden).reason("address_denied").detail("your address is not allowed");
        Step::reply(if self.status == StatusCode::FORBIDDEN { reply } else { reply.status(self.status) })
    }
}

impl OnConnect for IpRestriction {
    fn on_connect<'a>(&'a self, session: &'a mut Session, _seat: Seat<'a>) -> Gate<'a> {
        self.connect(session).map_or(Gate::Open, Gate::Refuse)
    }
}

impl IpRestriction {
    fn connect(&self, session: &mut Session) -> Option<Refusal> {
        // A WebSocket was looked at as its request.
        if session.head.is_some() || self.admits(session.client_address) {
            return None;
        }
        self.denied.add(1);
        if self.config.dry_run {
            session.note("ip_restriction.would_deny", true);
            return None;
        }
        Some(Refusal::new("address_denied"))
    }

    fn admits(&self, address: IpAddr) -> bool {
        let lists = self.lists.load();
        let only_denials = self.config.allow.is_empty() && self.config.allow_files.is_empty();
        let allowed = || lists.allow.contains(address);
        let denied = || lists.deny.contains(address);
        match self.config.mode {
            Mode::DenyFirst => !denied() && (only_denials || allowed()),
            Mode::AllowFirst => allowed() || (only_denials && !denied()),
        }
    }

    /// Reads files that have changed, for as long as the plugin is in use.
    async fn keep_fresh(self: Arc<Self>, mut control: TaskControl) -> Result<(), String> {
        loop {
            tokio::select! {
                () = control.ended() => return Ok(()),
                () = tokio::time::sleep(self.config.refresh.duration()) => {}
            }
            let plugin = self.clone();
            // With every thread busy, the next time is early enough.
            let Ok(done) = self.world.run_blocking(move || plugin.refresh()).await else { continue };
            done?;
        }
    }

    fn refresh(&self) -> Result<(), String> {
        let files = self.config.allow_files.iter().chain(&self.config.deny_files);
        let now: Vec<u128> = files.map(|path| self.world.files().modified(path).unwrap_or(0)).collect();
        if now == self.lists.load().modified {
            return Ok(());
        }
        let lists = read(&self.config, &self.world).map_err(|problems| problems.to_string())?;
        self.lists.store(Arc::new(lists));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
