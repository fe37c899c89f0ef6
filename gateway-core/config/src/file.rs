//! Configuration as written: the document's types, and reading a text into them with every problem in it.
//!
//! A text becomes a tree whose every node knows its line. The tree is checked against the schema of these very types
//! (the same schema that editors and the reference page get), and then read item by item, so that one bad proxy
//! hides neither its own further problems nor another's. What the words mean together is [`super::resolve`]'s matter.

mod acme;
mod admin_approval;
mod admin_oidc;
mod admin_role;
mod check;
mod consumer;
mod failures;
mod fastcgi;
mod foreign;
mod forwarded;
mod gateway;
mod hedging;
mod hints;
mod json;
mod legacy;
mod log;
mod places;
mod plugin;
mod proxy;
mod reading;
mod redis;
mod reference;
mod rules;
mod tree;
mod upstream;
mod yaml;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, de::DeserializeOwned};

use super::problem::{Problem, Problems};
pub use crate::nearest::nearest;
pub use acme::{Acme, AcmeChallenge, ExternalAccount};
pub use admin_approval::AdminApproval;
pub use admin_oidc::{AdminOidc, AdminOidcGrant, AdminOidcRoles, GrantProtocol};
pub use admin_role::AdminRole;
pub use consumer::Consumer;
pub use failures::{Backoff, CircuitBreaker, ExponentialBackoff, FixedBackoff, Retry};
pub use fastcgi::{FastCgi, Param};
pub use forwarded::Forwarded;
pub use gateway::{
    AccessLog, AdminTls, Certificate, ClientTimeouts, DrainStreams, Gateway, Limits, Listener, ListenerParts,
    NotReady, Overload, Tls, TlsVersion, UnderscoresInHeaders,
};
pub use hedging::Hedging;
pub use legacy::OldSpelling;
pub use log::{
    FileSink, HttpSink, KafkaAcks, KafkaMechanism, KafkaSasl, KafkaSink, LogFormat, LogSink, LokiSink,
    Metrics, MetricsOtlp, MetricsStatsd, StdoutSink, SyslogSink, TcpSink,
};
pub use places::Positions;
pub use plugin::{PluginConfig, Scope};
pub use proxy::{
    AuthMode, BackendHttpVersion, HeaderDatagrams, LoadPriority, Parameters, PathPolicy, PathRules, Plugin,
    PortMapping, Protocol, Proxy, ProxyTlv, Scheme, Starttls, UpgradeProtocol,
};
use reading::convert;
pub use reading::plugin_settings;
pub use redis::{Redis, RedisMode};
pub use reference::{KeepReferences, NoReferences, References, literal};
pub use rules::Rules;
use tree::{Node, Value};
pub use upstream::{
    ActiveHealth, Algorithm, CookieConfig, HealthChecks, PassiveHealth, ProbeType, SameSite, Target, Upstream,
};

/// Bytes a configuration text may have; beyond it the text isn't read at all.
pub const MAX_BYTES: usize = 1 << 30;

/// A whole configuration file. Every part is optional.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Version of the format. Default `"1"`, the only one.
    pub version: Option<String>,
    /// Settings of the gateway as a whole: listeners, limits, timeouts.
    pub gateway: Option<Gateway>,
    /// Proxies, which receive the traffic.
    pub proxies: Vec<Proxy>,
    /// Consumers, the known callers.
    pub consumers: Vec<Consumer>,
    /// Upstreams, named groups of targets.
    pub upstreams: Vec<Upstream>,
    /// Plugins, and where they run.
    pub plugin_configs: Vec<PluginConfig>,
}

impl File {
    /// The JSON Schema of the whole document, for editors, for the reference page and for our own checks.
    pub fn schema() -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| schema_for!(File));
        &SCHEMA
    }

    /// The schema as our own checks go by it.
    fn rules() -> &'static Rules {
        static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::new(File::schema().as_value()));
        &RULES
    }
}

/// The settings that one text stands for, its `path` inside the `gateway` section; numbers and truth values are
/// read from the text.
pub(super) fn setting(path: &str, value: Vec<String>, is_list: bool) -> Result<Gateway, Problems> {
    let text = |text| Node { line: 0, value: Value::Text { text, loose: true } };
    let mut texts = value.into_iter().map(text);
    let leaf = match texts.next() {
        Some(only) if !is_list => only,
        first => Node { line: 0, value: Value::List(first.into_iter().chain(texts).collect()) },
    };
    let mut node = path.rsplit('.').fold(leaf, |value, key| {
        let entry = tree::MapEntry { key: key.to_owned(), line: 0, value };
        Node { line: 0, value: Value::Map(vec![entry]) }
    });
    static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::new(schema_for!(Gateway).as_value()));
    let mut problems = Problems::default();
    check::check(&RULES, RULES.root(), &mut node, "", &mut problems);
    let read = if problems.is_empty() { convert(node, "", &mut problems) } else { None };
    read.ok_or(problems)
}

/// Where a text comes from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// What problems call it: the file's path as the user wrote it, or a name such as `admin api`.
    pub name: String,
    /// Relative paths in the text start here.
    pub folder: PathBuf,
    /// How to read it; `None` goes by the name's ending, else by the first character.
    pub format: Option<Format>,
}

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2.
    Yaml,
    /// JSON.
    Json,
}

impl Origin {
    /// A file: its folder is where relative paths start.
    pub fn file(path: &Path) -> Self {
        Self {
            name: path.display().to_string(),
            folder: path.parent().map(Path::to_path_buf).unwrap_or_default(),
            format: None,
        }
    }

    fn format(&self, text: &str) -> Format {
        let ending = Path::new(&self.name).extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match (self.format, ending.as_deref()) {
            (Some(format), _) => format,
            (None, Some("json")) => Format::Json,
            (None, Some("yaml" | "yml")) => Format::Yaml,
            _ if text.trim_start().starts_with(['{', '[']) => Format::Json,
            _ => Format::Yaml,
        }
    }
}

/// What could be read from a text, and what was wrong with the rest.
#[derive(Debug, Default)]
pub struct Document {
    /// The settings section, without what couldn't be read of it.
    pub gateway: Gateway,
    /// The paths of problems in the settings section.
    pub gateway_damage: Vec<String>,
    /// Whether the text has any section at all.
    pub has_sections: bool,
    /// Whether there is a `proxies` section, be it an empty list.
    pub has_proxies: bool,
    /// Readable proxies.
    pub proxies: Items<Proxy>,
    /// Readable consumers.
    pub consumers: Items<Consumer>,
    /// Readable upstreams.
    pub upstreams: Items<Upstream>,
    /// Readable plugin configs.
    pub plugin_configs: Items<PluginConfig>,
    /// Old spellings of settings, which were read as the new ones; at most a hundred.
    pub old_spellings: Vec<OldSpelling>,
    /// Problems so far, with their lines.
    pub problems: Problems,
    /// Where everything stands, for the problems still to be found.
    pub places: Positions,
}

impl Document {
    /// Refuses a text without a `proxies` section: an empty or half-written file is not a wish to serve nothing.
    pub fn require_proxies(&mut self) {
        self.require(self.has_proxies);
    }

    /// Refuses a text without any section, which may well be a file that was not written yet.
    pub fn require_sections(&mut self) {
        self.require(self.has_sections);
    }

    fn require(&mut self, is_there: bool) {
        if !is_there && self.problems.is_empty() {
            let mut problem = Problem::new("", "there is no `proxies` section");
            problem.file.clone_from(&self.places.file);
            self.problems.push(problem.remedy("write `proxies: []` for a gateway without proxies"));
        }
    }
}

/// The readable items of one section.
#[derive(Debug)]
pub struct Items<T> {
    /// Each with its position in the section, counted from 0 and including unreadable ones.
    pub read: Vec<(usize, T)>,
    /// Which of them lack what couldn't be read of them, with the paths of those problems.
    pub damaged: HashMap<usize, Vec<String>>,
    /// The ids of items that couldn't be read at all, so that references to them aren't called dangling.
    pub unread: Vec<String>,
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { read: Vec::new(), damaged: HashMap::new(), unread: Vec::new() }
    }
}

/// Reads a text. Its problems stand in the document, beside everything that could be read.
pub fn parse(text: &str, origin: &Origin, references: &dyn References) -> Document {
    let mut problems = Problems::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        problems
            .add("", format!("the text has {} bytes, more than the {MAX_BYTES} that are read", text.len()));
        return Document { problems: named(problems, origin), ..Document::default() };
    }
    let format = origin.format(text);
    let root = tree(text, format, &mut problems);
    // Nothing else is to be said about a file of another program.
    let other = match &root {
        Some(Node { value: Value::Map(_), .. }) => root.as_ref().and_then(foreign::document),
        Some(Node { value: Value::Null, .. }) => None,
        _ => foreign::text(&origin.name, text),
    };
    if let Some(other) = other {
        return Document { problems: named(Problems(vec![other]), origin), ..Document::default() };
    }
    let mut document = match root {
        Some(mut root) => {
            // A key that stands twice is read once; everything found from here on leaves a value unusable.
            let before = problems.0.len();
            reference::expand(&mut root, &origin.folder, references, &mut problems);
            read(root, problems, before)
        }
        None => Document { problems, ..Document::default() },
    };
    document.problems = named(document.problems, origin);
    document.places = Positions::new(&origin.name, text, format);
    document
}

/// Reads one object (a proxy, a consumer, …) that stands by itself, such as an admin request's body.
///
/// # Errors
/// Every problem in it, its path beginning with `at`.
pub fn parse_item<T: DeserializeOwned + JsonSchema>(
    text: &str,
    origin: &Origin,
    at: &str,
    references: &dyn References,
) -> Result<T, Problems> {
    match parse_part(text, origin, at, references) {
        (Some(item), problems) if problems.is_empty() => Ok(item),
        (_, problems) => Err(problems),
    }
}

/// As [`parse_item`], and also hands out what could be read of an object with problems, so that the rest of it can be
/// looked at further.
pub fn parse_part<T: DeserializeOwned + JsonSchema>(
    text: &str,
    origin: &Origin,
    at: &str,
    references: &dyn References,
) -> (Option<T>, Problems) {
    let mut problems = Problems::default();
    let rules = File::rules();
    let item = tree(text, origin.format(text), &mut problems).and_then(|mut node| {
        if reference::has_any(text) {
            let mut refused = Problems::default();
            reference::expand(&mut node, &origin.folder, references, &mut refused);
            problems.0.extend(refused.0.into_iter().map(|problem| problem.within(at)));
        }
        match rules.definition(&T::schema_name()) {
            Some(rule) => check::check(rules, rule, &mut node, at, &mut problems),
            None => {
                let rules = Rules::new(schema_for!(T).as_value());
                check::check(&rules, rules.root(), &mut node, at, &mut problems)
            }
        };
        if problems.is_empty() {
            return convert(node, at, &mut problems);
        }
        let damage: Vec<String> = problems.0.iter().map(|problem| problem.path.clone()).collect();
        // What is left may lack what it can't be read without: that is no further problem.
        let mut ignored = Problems::default();
        if prune(&mut node, at, &damage) { convert(node, at, &mut ignored) } else { None }
    });
    (item, named(problems, origin))
}

/// Reads a whole text as a JSON document, references in it answered: what an admin API is sent. Checked against the
/// schema only; what the words mean together is for whoever takes it.
///
/// # Errors
/// Every problem of the text.
pub fn document(
    text: &str,
    origin: &Origin,
    references: &dyn References,
) -> Result<serde_json::Value, Problems> {
    let mut problems = Problems::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = tree(text, origin.format(text), &mut problems).map(|mut root| {
        reference::expand(&mut root, &origin.folder, references, &mut problems);
        let rules = File::rules();
        check::check(rules, rules.root(), &mut root, "", &mut problems);
        root.into_json()
    });
    match root {
        Some(document) if problems.is_empty() => Ok(document),
        _ => Err(named(problems, origin)),
    }
}

/// Reads a YAML or JSON text of another program's as a JSON document: nothing is known of what it means.
///
/// # Errors
/// What keeps it from being read.
pub fn foreign(text: &str, origin: &Origin) -> Result<serde_json::Value, Problems> {
    let mut problems = Problems::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match tree(text, origin.format(text), &mut problems) {
        Some(root) if problems.is_empty() => Ok(root.into_json()),
        _ => Err(named(problems, origin)),
    }
}

fn tree(text: &str, format: Format, problems: &mut Problems) -> Option<Node> {
    match format {
        Format::Yaml => yaml::parse(text, problems),
        Format::Json => json::parse(text, problems),
    }
}

fn named(mut problems: Problems, origin: &Origin) -> Problems {
    for problem in &mut problems.0 {
        problem.file.clone_from(&origin.name);
    }
    problems
}

fn read(mut root: Node, problems: Problems, before: usize) -> Document {
    let mut document = Document { problems, ..Document::default() };
    if matches!(root.value, Value::Null) {
        return document;
    }
    let rules = File::rules();
    document.old_spellings = check::check(rules, rules.root(), &mut root, "", &mut document.problems);
    let Value::Map(entries) = root.value else {
        return document;
    };
    let mut damage = Damage::new(&document.problems.0[before..]);
    for mut entry in entries {
        let problems = &mut document.problems;
        document.has_sections = true;
        match entry.key.as_str() {
            "version" => version(&entry.value, problems),
            "gateway" => {
                document.gateway_damage = damage.gateway.clone();
                if prune(&mut entry.value, "gateway", &damage.gateway) {
                    document.gateway = convert(entry.value, "gateway", problems).unwrap_or_default();
                }
            }
            "proxies" => {
                document.has_proxies = true;
                document.proxies = items(entry.value, "proxies", &mut damage, problems);
            }
            "consumers" => document.consumers = items(entry.value, "consumers", &mut damage, problems),
            "upstreams" => document.upstreams = items(entry.value, "upstreams", &mut damage, problems),
            "plugin_configs" => {
                document.plugin_configs = items(entry.value, "plugin_configs", &mut damage, problems);
            }
            _ => {}
        }
    }
    document
}

/// The paths of the check's problems, by where they are.
struct Damage {
    gateway: Vec<String>,
    /// By section and position.
    items: HashMap<(String, usize), Vec<String>>,
}

impl Damage {
    fn new(problems: &[Problem]) -> Self {
        let mut damage = Self { gateway: Vec::new(), items: HashMap::new() };
        for Problem { path, .. } in problems {
            if path.starts_with("gateway") {
                damage.gateway.push(path.clone());
            } else if let Some((section, rest)) = path.split_once('[')
                && let Some(n) = rest.split(']').next().and_then(|n| n.parse().ok())
            {
                damage.items.entry((section.to_owned(), n)).or_default().push(path.clone());
            }
        }
        damage
    }
}

/// Takes the keys with problems out of an object, so that what is left can be read and looked at further.
/// False when the object as a whole has a problem.
fn prune(node: &mut Node, at: &str, damage: &[String]) -> bool {
    let Value::Map(entries) = &mut node.value else {
        return false;
    };
    for path in damage {
        let rest = path.strip_prefix(at);
        let key = if at.is_empty() { rest } else { rest.and_then(|rest| rest.strip_prefix('.')) };
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            return false;
        };
        let key = key.split(['.', '[']).next().unwrap_or(key);
        entries.retain(|entry| entry.key != key);
    }
    true
}

fn version(node: &Node, problems: &mut Problems) {
    if let Value::Text { text, .. } = &node.value
        && text != "1"
    {
        problems.push(
            Problem { line: node.line, ..Problem::new("version", format!("version `{text}` is not known")) }
                .remedy("write \"1\""),
        );
    }
}

fn items<T: DeserializeOwned>(
    section: Node,
    name: &str,
    damage: &mut Damage,
    problems: &mut Problems,
) -> Items<T> {
    let mut items = Items::default();
    let Value::List(nodes) = section.value else {
        return items;
    };
    for (n, mut node) in nodes.into_iter().enumerate() {
        let at = format!("{name}[{n}]");
        let id = node.id().map(str::to_owned);
        let damage = damage.items.remove(&(name.to_owned(), n)).unwrap_or_default();
        let item = if prune(&mut node, &at, &damage) {
            // What is left of a damaged item may lack what it can't be read without: that is no further problem.
            let mut ignored = Problems::default();
            convert(node, &at, if damage.is_empty() { problems } else { &mut ignored })
        } else {
            None
        };
        match item {
            Some(item) => items.read.push((n, item)),
            None => items.unread.extend(id),
        }
        if !damage.is_empty() {
            items.damaged.insert(n, damage);
        }
    }
    items
}
