//! Lets clients in or keeps them out by their address, for HTTP and for streams.
//!
//! Lists are in the settings or in files, which are read again when they change. A file that can't be read or has a line
//! that is no network is refused when the configuration is checked; later, the list of before stays in force and the
//! task's failure is logged and shown in `/v1/status`. Looking an address up takes a binary search, whatever the length
//! of the lists.
//!
//! Lists may also be fetched from URLs, again and again; the last good copy of each stays in force while it can't be fetched, with
//! `copy_path` also over a restart. Before there is any, `on_missing_list` decides about clients for whom it would matter.

mod networks;
mod remote;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis, Seconds};
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_core::plugin::{
    Family, Foreseen, Foresight, Gate, Hooks, Need, Needs, OnConnect, OnRequest, Plugin, Refusal, Seat,
    Starter, Step, World,
};
use gateway_core::stream::session::Session;
use gateway_plugin_common::watched::refresh_regularly;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use networks::{Networks, Parts};
use remote::{Counts, ListMatch, Remote};

/// Settings of `ip_restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Addresses and networks to admit, such as `192.0.2.1` or `2001:db8::/32`. If any list to admit is given, all
    /// other addresses are rejected. Default none.
    allow: Vec<String>,
    /// Addresses and networks to reject. Default none.
    deny: Vec<String>,
    /// Files with more of `allow`: one address or network per line, `#` begins a comment. Default none.
    #[schemars(extend("format" = "path"))]
    allow_files: Vec<PathBuf>,
    /// Files with more of `deny`. Default none.
    #[schemars(extend("format" = "path"))]
    deny_files: Vec<PathBuf>,
    /// How often the gateway checks the files for changes. At least 1 s. Default 60 s.
    #[schemars(range(min = 1))]
    refresh: Seconds,
    /// URLs with more of `allow`, in the same form as files. Default none.
    #[schemars(length(max = 32))]
    allow_urls: Vec<String>,
    /// URLs with more of `deny`. Default none.
    #[schemars(length(max = 32))]
    deny_urls: Vec<String>,
    /// How often URLs are fetched, at least 10 s. Default 1 h.
    #[schemars(range(min = 10))]
    url_refresh: Seconds,
    /// Time limit for a fetch, 100 ms to 10 min. Default 30 s.
    #[schemars(range(min = 0.1, max = 600))]
    url_timeout: Millis,
    /// Size of the list behind a URL, up to 64 MiB. Default 64 MiB.
    #[schemars(range(min = 1, max = 67_108_864))]
    max_url_size: Bytes,
    /// PEM file with the only trusted roots for these URLs. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    ca_path: Option<PathBuf>,
    /// Folder for a copy of each fetched list, for the next start. Default none.
    #[schemars(extend("format" = "path"))]
    copy_path: Option<PathBuf>,
    /// What happens to clients while a list that could decide has not been fetched yet: `deny` rejects them with 503,
    /// `allow` treats the list as empty. Default `deny`.
    on_missing_list: OnMissingList,
    /// Which list decides for an address on both: `deny_first` or `allow_first`. Default `deny_first`.
    mode: Mode,
    /// Status of rejections, 400 to 599. Default 403.
    #[schemars(range(min = 400, max = 599))]
    status_code: u16,
    /// Logs `ip_restriction.would_deny`, but rejects nothing. Default false.
    dry_run: bool,
}

/// Which list decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// The deny list.
    #[default]
    DenyFirst,
    /// The allow list.
    AllowFirst,
}

/// What happens to clients while a list is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnMissingList {
    /// They are rejected.
    #[default]
    Deny,
    /// The list counts as empty; a missing `allow` list admits every client.
    Allow,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            allow_files: Vec::new(),
            deny_files: Vec::new(),
            refresh: Seconds(60),
            allow_urls: Vec::new(),
            deny_urls: Vec::new(),
            url_refresh: Seconds(3600),
            url_timeout: Millis(30_000),
            max_url_size: Bytes(MAX_FILE),
            ca_path: None,
            copy_path: None,
            on_missing_list: OnMissingList::Deny,
            mode: Mode::DenyFirst,
            status_code: 403,
            dry_run: false,
        }
    }
}

/// The plugin.
pub(crate) struct IpRestriction {
    lists: ArcSwap<Lists>,
    /// Lists of those who may pass, and of those who may not, that are fetched.
    remote: (Vec<Arc<Remote>>, Vec<Arc<Remote>>),
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

/// Settings with URLs of lists.
const URLS: &[&str] = &["allow_urls", "deny_urls"];
/// Bytes one file may have.
const MAX_FILE: u64 = 64 << 20;
const DENIED: Metric = Metric::counter(
    "ferrum_ip_restriction_denied_total",
    "Requests and sessions refused for their address (would have been, in a dry run).",
);

const FETCHES: Metric = Metric::counter(
    "ferrum_ip_restriction_fetches_total",
    "Fetches of lists from URLs, by result: fetched, failed.",
);
const ENTRIES: Metric = Metric::gauge(
    "ferrum_ip_restriction_list_networks",
    "Networks in the list of a URL, once those that touch are one.",
);

/// Whether a client may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    In,
    Out,
    /// That depends on a list that has not been fetched yet.
    Unknown,
}

impl Plugin for IpRestriction {
    const NAME: &'static str = "ip_restriction";
    const FAMILY: Family = Family::Admission;
    const SUMMARY: &'static str = "Admits or rejects clients by their address.";
    const EXAMPLE: &'static str = include_str!("../../examples/ip_restriction.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("refresh", Need::Given(&["allow_files", "deny_files"])),
        Needs::new("url_refresh", Need::Given(URLS)),
        Needs::new("url_timeout", Need::Given(URLS)),
        Needs::new("max_url_size", Need::Given(URLS)),
        Needs::new("ca_path", Need::Begins(URLS, "https://")),
        Needs::new("copy_path", Need::Given(URLS)),
        Needs::new("on_missing_list", Need::Given(URLS)),
    ];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let texts = config.allow.len() + config.deny.len();
        let files = config.allow_files.len() + config.deny_files.len();
        let urls = config.allow_urls.len() + config.deny_urls.len();
        let mut problems = Problems::default();
        if texts + files + urls == 0 {
            problems.add("config", "nobody is allowed and nobody is denied").remedy =
                Some("give `allow` or `deny`, or lists of them in files or from URLs".into());
        }
        let is_both = |allow: usize, deny: usize| allow > 0 && deny > 0;
        if config.mode == Mode::AllowFirst
            && !is_both(
                config.allow.len() + config.allow_files.len() + config.allow_urls.len(),
                config.deny.len() + config.deny_files.len() + config.deny_urls.len(),
            )
        {
            problems.add("config.mode", "has no effect without lists of both kinds").remedy =
                Some("remove it, or give lists of those who may pass and of those who may not".into());
        }
        let read = read(&config, world);
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count = |result| world.meters().counter(FETCHES, &["plugin_config", "result"], &[owner, result]);
        let counts = Counts { fetched: count("fetched"), failed: count("failed") };
        let mut remotes = |setting: &str, urls: &[String]| -> Vec<Arc<Remote>> {
            let one = |(n, url): (usize, &String)| {
                let entries = world.meters().gauge(ENTRIES, &["plugin_config", "url"], &[owner, url]);
                let place = format!("config.{setting}[{n}]");
                Remote::new(&place, url, &config, world, &counts, entries, &mut problems)
            };
            urls.iter().enumerate().filter_map(one).collect()
        };
        let remote = (remotes("allow_urls", &config.allow_urls), remotes("deny_urls", &config.deny_urls));
        if urls == 0 && (config.copy_path.is_some() || config.ca_path.is_some()) {
            problems.add("config.copy_path", "this and `ca_path` need `allow_urls` or `deny_urls`");
        }
        let lists = match read {
            Ok(lists) if problems.is_empty() => lists,
            Ok(_) => return Err(problems),
            Err(wrong) => {
                problems.0.extend(wrong.0);
                return Err(problems);
            }
        };
        Ok(Self {
            remote,
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

    fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        let address = foresight.exchange.client_address;
        let judgement = self.judge(address);
        Some(match judgement {
            Judgement::In => Foreseen::Passes(format!("{address} is allowed")),
            Judgement::Out | Judgement::Unknown => Foreseen::refuses(
                self.refusal(judgement),
                format!("{address} is not allowed"),
                self.config.dry_run,
            ),
        })
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        for remote in self.remote.0.iter().chain(&self.remote.1) {
            let remote = remote.clone();
            starter.task("fetch", move |control| remote.clone().keep_fresh(control));
        }
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
            let read = world.settings_file(path, MAX_FILE).map_err(|error| error.to_string());
            if let Err(why) =
                read.and_then(|bytes| parts.add_lines(&bytes).map_err(|error| error.to_string()))
            {
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
        let judgement = self.judge(exchange.client_address);
        if judgement == Judgement::In {
            return Step::Next;
        }
        self.denied.add(1);
        if self.config.dry_run {
            exchange.note("ip_restriction.would_deny", true);
            return Step::Next;
        }
        Step::reply(self.refusal(judgement))
    }
}

impl OnConnect for IpRestriction {
    fn on_connect<'a>(&'a self, session: &'a mut Session, _seat: Seat<'a>) -> Gate<'a> {
        self.connect(session).map_or(Gate::Open, Gate::Refuse)
    }
}

impl IpRestriction {
    fn refusal(&self, judgement: Judgement) -> Reply {
        if judgement == Judgement::Unknown {
            return Reply::new(Cause::NoTarget).reason("address_list_missing").detail("retry later");
        }
        let reply =
            Reply::new(Cause::Forbidden).reason("address_denied").detail("your address is not allowed");
        if self.status == StatusCode::FORBIDDEN { reply } else { reply.status(self.status) }
    }

    fn connect(&self, session: &mut Session) -> Option<Refusal> {
        // A WebSocket was looked at as its request.
        let is_in = || self.judge(session.client_address) == Judgement::In;
        if session.head.is_some() || is_in() {
            return None;
        }
        self.denied.add(1);
        if self.config.dry_run {
            session.note("ip_restriction.would_deny", true);
            return None;
        }
        Some(Refusal::new("address_denied"))
    }

    fn judge(&self, address: IpAddr) -> Judgement {
        let lists = self.lists.load();
        let only_denials = self.config.allow.is_empty()
            && self.config.allow_files.is_empty()
            && self.config.allow_urls.is_empty();
        let find = |list: &Networks, remotes: &[Arc<Remote>]| match list.contains(address) {
            true => ListMatch::Yes,
            false => remote::find(remotes, address),
        };
        let allowed = || match find(&lists.allow, &self.remote.0) {
            ListMatch::Unknown if self.config.on_missing_list == OnMissingList::Allow => ListMatch::Yes,
            found => found,
        };
        let denied = || match find(&lists.deny, &self.remote.1) {
            ListMatch::Unknown if self.config.on_missing_list == OnMissingList::Allow => ListMatch::No,
            found => found,
        };
        match self.config.mode {
            Mode::DenyFirst => match denied() {
                ListMatch::Yes => Judgement::Out,
                denied if only_denials => known(denied == ListMatch::No),
                denied => match allowed() {
                    ListMatch::No => Judgement::Out,
                    allowed => known(denied == ListMatch::No && allowed == ListMatch::Yes),
                },
            },
            Mode::AllowFirst => match allowed() {
                ListMatch::Yes => Judgement::In,
                ListMatch::Unknown => Judgement::Unknown,
                ListMatch::No if only_denials => match denied() {
                    ListMatch::No => Judgement::In,
                    ListMatch::Yes => Judgement::Out,
                    ListMatch::Unknown => Judgement::Unknown,
                },
                ListMatch::No => Judgement::Out,
            },
        }
    }

    /// Reads files that have changed, for as long as the plugin is in use.
    async fn keep_fresh(self: Arc<Self>, control: TaskControl) -> Result<(), TaskError> {
        let (world, every) = (self.world.clone(), self.config.refresh.duration());
        refresh_regularly(&world, every, control, move || self.refresh()).await
    }

    fn refresh(&self) -> Result<(), Problems> {
        let files = self.config.allow_files.iter().chain(&self.config.deny_files);
        let now: Vec<u128> = files.map(|path| self.world.files().modified(path).unwrap_or(0)).collect();
        if now == self.lists.load().modified {
            return Ok(());
        }
        let lists = read(&self.config, &self.world)?;
        self.lists.store(Arc::new(lists));
        Ok(())
    }
}

/// Whether somebody may come in, where that is known.
const fn known(is_in: bool) -> Judgement {
    if is_in { Judgement::In } else { Judgement::Unknown }
}

#[cfg(test)]
mod tests;
