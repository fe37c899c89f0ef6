//! What settings are checked to mean: the rules, compiled, and what becomes of what can't be inspected.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use aws_lc_rs::digest::{Context, SHA256};
use gateway_core::condition::{Condition, Use, compile as compile_condition};
use gateway_core::config::problem::{Problem, Problems};
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::World;
use gateway_waf::pack::{self, THRESHOLD_VARIABLE, from_files, own_rules};
use gateway_waf::{
    Buffers, Exclusion, ExclusionSpec, IdRange, Limits, Ruleset, Severity, Sources, Transaction,
};
use http::StatusCode;

use super::settings::{Config, ExclusionSettings, Mode, OnTrouble, ProfileName, RuleSettings};
use gateway_core::condition::Holds;

/// Files of a folder of rules.
const MAX_FILES: usize = 1000;
/// Bytes of one of them.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Folders below the given one in which rules are looked for.
const FOLDERS: [&str; 3] = ["", "rules", "plugins"];

/// Settings, checked.
pub(super) struct Policy {
    pub(super) mode: Mode,
    pub(super) ruleset: Arc<Ruleset>,
    pub(super) exclusions: Vec<(Option<Condition>, Exclusion)>,
    pub(super) deny_status: StatusCode,
    pub(super) body: BodyPolicy,
    pub(super) limits: Limits,
    pub(super) exceeded: OnTrouble,
    pub(super) response: Option<ResponsePolicy>,
    pub(super) messages: bool,
    /// Whether the messages of gRPC calls are inspected.
    pub(super) grpc: bool,
}

/// What becomes of bodies.
pub(super) struct BodyPolicy {
    pub(super) inspect: bool,
    pub(super) max_size: u64,
    pub(super) max_upload: u64,
    pub(super) over_limit: OnTrouble,
    pub(super) malformed: OnTrouble,
    pub(super) encoded: OnTrouble,
}

/// Which responses are inspected.
pub(super) struct ResponsePolicy {
    pub(super) max_size: u64,
    pub(super) content_types: Vec<String>,
}

/// What a plugin is made of.
pub(super) struct Built {
    pub(super) policy: Policy,
    pub(super) shadow: Option<Arc<Ruleset>>,
    pub(super) sample: f64,
}

impl Policy {
    /// Begins an inspection.
    pub(super) fn transaction(&self, buffers: Buffers) -> Transaction {
        let mut transaction = Transaction::new(self.ruleset.clone(), self.limits.clone(), buffers);
        if self.mode == Mode::Detect {
            transaction.only_detect();
        }
        transaction
    }

    /// What this request is not asked.
    pub(super) fn exclusions_of(&self, exchange: &Exchange) -> Vec<Exclusion> {
        let holding = self.exclusions.iter();
        let holding = holding.filter(|(when, _)| when.as_ref().is_none_or(|when| when.holds(exchange)));
        holding.map(|(_, exclusion)| exclusion.clone()).collect()
    }

    /// Leaves out what this request is not asked.
    pub(super) fn exclude(&self, transaction: &mut Transaction, exchange: &Exchange) {
        for (when, exclusion) in &self.exclusions {
            if when.as_ref().is_none_or(|when| when.holds(exchange)) {
                transaction.exclude(exclusion);
            }
        }
    }
}

/// Checks settings, and compiles the rules.
pub(super) fn read(config: Config, world: &World, problems: &mut Problems) -> Option<Built> {
    let ruleset = load(&config.rules, "config.rules", world, problems);
    let shadow = config.shadow.as_ref().map(|shadow| load(shadow, "config.shadow", world, problems));
    let ruleset = ruleset?;
    let exclusions = exclusions(config.exclusions, &ruleset, problems);
    if config.response.is_some() && !ruleset.inspects_responses() {
        problems.add("config.response", "the rules have none about responses").remedy =
            Some("leave it out, or give `rules.crs`".into());
    }
    if !(0.0..=1.0).contains(&config.audit_sample) {
        problems.add("config.audit_sample", "must be between 0 and 1");
    }
    let limits = Limits {
        arguments: config.limits.arguments,
        json_depth: config.limits.json_depth,
        xml_depth: config.limits.xml_depth,
        parts: config.limits.parts,
        value_size: usize::try_from(config.limits.value_size.0).unwrap_or(usize::MAX),
        budget_bytes: config.limits.budget.0,
        nested_json: config.limits.nested_json,
        graphql: config.body.graphql,
        ..Limits::default()
    };
    let body = config.body;
    let policy = Policy {
        mode: config.mode,
        ruleset,
        exclusions,
        deny_status: StatusCode::from_u16(config.deny_status).unwrap_or(StatusCode::BAD_REQUEST),
        body: BodyPolicy {
            inspect: body.inspect,
            max_size: body.max_size.0,
            max_upload: body.max_upload.0.max(body.max_size.0),
            over_limit: body.over_limit,
            malformed: body.malformed,
            encoded: body.encoded,
        },
        limits,
        exceeded: config.limits.exceeded,
        response: config.response.map(|response| ResponsePolicy {
            max_size: response.max_size.0,
            content_types: response.content_types.iter().map(|it| it.to_ascii_lowercase()).collect(),
        }),
        messages: config.websocket_messages,
        grpc: config.grpc_messages,
    };
    Some(Built { policy, shadow: shadow.flatten(), sample: config.audit_sample })
}

fn exclusions(
    settings: Vec<ExclusionSettings>,
    ruleset: &Ruleset,
    problems: &mut Problems,
) -> Vec<(Option<Condition>, Exclusion)> {
    let mut found = Vec::new();
    for (n, settings) in settings.into_iter().enumerate() {
        let at = format!("config.exclusions[{n}]");
        let spec = ExclusionSpec { ids: settings.rules, tags: settings.tags, targets: settings.targets };
        let exclusion = match Exclusion::new(ruleset, &spec) {
            Ok(exclusion) => Some(exclusion),
            Err(why) => {
                problems.add(at.clone(), why);
                None
            }
        };
        let when = settings.when.map(|when| compile_condition(&when, &format!("{at}.when"), Use::Plugin));
        let when = when.transpose().map_err(|Problems(found)| problems.extend(found));
        if let (Some(exclusion), Ok(when)) = (exclusion, when) {
            found.push((when, exclusion));
        }
    }
    found
}

/// Compiles one set of rules.
fn load(settings: &RuleSettings, at: &str, world: &World, problems: &mut Problems) -> Option<Arc<Ruleset>> {
    let mut sources = match (&settings.crs, settings.profile) {
        (Some(_), Some(_)) => {
            problems.add(format!("{at}.profile"), "is about our own rules, and `crs` names others");
            return None;
        }
        (Some(folder), None) => match folder_sources(folder, world) {
            Ok(sources) => sources,
            Err(why) => {
                problems.add(format!("{at}.crs"), why);
                return None;
            }
        },
        (None, profile) => own_rules(match profile {
            Some(ProfileName::Aggressive) => pack::Profile::Aggressive,
            Some(ProfileName::Balanced) | None => pack::Profile::Balanced,
        }),
    };
    variables(settings, at, &mut sources, problems);
    for (n, text) in settings.remove_rules.iter().enumerate() {
        match IdRange::read(text) {
            Some(range) => sources.removed_ids.push(range),
            None => {
                problems.add(format!("{at}.remove_rules[{n}]"), "is not a rule id or range of ids");
            }
        }
    }
    sources.removed_tags.clone_from(&settings.remove_tags);
    match compiled(&sources) {
        Ok(ruleset) => Some(ruleset),
        Err(found) => {
            let errors = found.into_iter().filter(|problem| problem.severity == Severity::Error);
            problems.extend(errors.map(|problem| Problem::new(at, problem.to_string())));
            None
        }
    }
}

/// Rules that are in use, by what they were made of.
type RulesetCache = Vec<([u8; 32], Weak<Ruleset>)>;

/// The rules made of these sources. Every plugin config with the same ones shares them, also with those of the configuration
/// before: compiling takes a quarter of a second.
fn compiled(sources: &Sources) -> Result<Arc<Ruleset>, Vec<gateway_waf::Problem>> {
    static KNOWN: Mutex<RulesetCache> = Mutex::new(Vec::new());
    let key = digest_of(sources);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(_, rules)| rules.strong_count() > 0);
    if let Some(rules) = known.iter().find(|(of, _)| *of == key).and_then(|(_, rules)| rules.upgrade()) {
        return Ok(rules);
    }
    let (ruleset, _) = gateway_waf::compile(sources)?;
    let ruleset = Arc::new(ruleset);
    known.push((key, Arc::downgrade(&ruleset)));
    Ok(ruleset)
}

fn digest_of(sources: &Sources) -> [u8; 32] {
    let mut digest = Context::new(&SHA256);
    let mut part = |bytes: &[u8]| {
        digest.update(&bytes.len().to_le_bytes());
        digest.update(bytes);
    };
    for file in &sources.files {
        part(file.name.as_bytes());
        part(file.text.as_bytes());
        part(&[u8::from(file.setup)]);
    }
    let mut data: Vec<_> = sources.data.iter().collect();
    data.sort_unstable();
    for (name, content) in data {
        part(name.as_bytes());
        part(content);
    }
    for (name, value) in &sources.variables {
        part(name.as_bytes());
        part(value.as_bytes());
    }
    part(format!("{:?} {:?}", sources.removed_ids, sources.removed_tags).as_bytes());
    let mut key = [0; 32];
    key.copy_from_slice(digest.finish().as_ref());
    key
}

/// The settings that the rules read as variables.
fn variables(settings: &RuleSettings, at: &str, sources: &mut Sources, problems: &mut Problems) {
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    let detection = settings.detection_paranoia_level.or(settings.paranoia_level);
    let methods = (!settings.allowed_methods.is_empty()).then(|| settings.allowed_methods.join(" "));
    let types: Vec<String> = settings.allowed_content_types.iter().map(|it| format!("|{it}|")).collect();
    let types = (!types.is_empty()).then(|| types.join(" "));
    let named = [
        ("blocking_paranoia_level", number(settings.paranoia_level.map(u32::from)), "paranoia_level"),
        ("detection_paranoia_level", number(detection.map(u32::from)), "detection_paranoia_level"),
        (THRESHOLD_VARIABLE, number(settings.threshold), "threshold"),
        ("outbound_anomaly_score_threshold", number(settings.outbound_threshold), "outbound_threshold"),
        ("allowed_methods", methods, "allowed_methods"),
        ("allowed_request_content_type", types, "allowed_content_types"),
    ];
    let named = named.into_iter().filter_map(|(name, value, setting)| Some((name, value?, setting)));
    let given = settings.variables.iter().map(|(name, value)| (name.as_str(), value.clone(), "variables"));
    for (name, value, setting) in named.chain(given) {
        let at = format!("{at}.{setting}");
        let is_name =
            !name.is_empty() && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-');
        if settings.crs.is_none() && setting != "threshold" {
            problems.add(at, "is about the Core Rule Set, and needs `crs`");
        } else if !is_name {
            problems.add(at, format!("`{name}` is not a name of a variable"));
        } else if value.contains(['\'', '"', '\\', ',', '%', '\n']) {
            problems.add(at, "has characters that rules can't hold: ' \" \\ , %");
        } else {
            let name = name.to_ascii_lowercase();
            sources.variables.retain(|(known, _)| *known != name);
            sources.variables.push((name, value));
        }
    }
    if detection.unwrap_or(4) < settings.paranoia_level.unwrap_or(1) {
        problems.add(format!("{at}.detection_paranoia_level"), "is below `paranoia_level`");
    }
}

/// Why a folder of rules can't be read.
#[derive(Debug, thiserror::Error)]
enum FolderError {
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} has no rule files (*.conf)", .0.display())]
    NoRules(PathBuf),
}

fn folder_sources(folder: &Path, world: &World) -> Result<Sources, FolderError> {
    let mut files = Vec::new();
    for below in FOLDERS {
        let path = if below.is_empty() { folder.to_owned() } else { folder.join(below) };
        let names = match world.files().list(&path, MAX_FILES) {
            Ok(names) => names,
            Err(_) if !below.is_empty() => continue,
            Err(error) => return Err(FolderError::File { path, error }),
        };
        for name in names.into_iter().filter(|name| pack::is_rule_file(name)) {
            let path = path.join(&name);
            let content = world.settings_file(&path, MAX_FILE_BYTES);
            let content = content.map_err(|error| FolderError::File { path: path.clone(), error })?;
            files.push((path.to_string_lossy().into_owned(), content.to_vec()));
        }
    }
    let sources = from_files(files);
    if sources.files.is_empty() {
        return Err(FolderError::NoRules(folder.to_owned()));
    }
    Ok(sources)
}
