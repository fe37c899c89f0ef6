//! Whether this machine and what the configuration names are fit to run it: `doctor`.

mod acme;
mod certificates;
mod collectors;
mod network;
mod ports;
mod redis;
mod system;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use gateway_core::config::model::{Model, Settings};
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::plugin::Registry;
use serde::Serialize;
use serde_json::json;

use super::database::DatabaseArgs;
use super::run::Mode;
use super::{BAD_CONFIG, FAILED, MISUSED, OutputFormat, SpecArgs, Verbosity, logs, print};
use crate::access::Access;
use crate::app::Gateway;
use crate::source::database::Database;
use crate::source::warnings;
use crate::store::{Location, Options, Store, StoreError};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Configuration file, instead of --spec
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    spec: SpecArgs,
    /// Where the rest of the configuration comes from; with a database, the file contains only settings
    #[arg(long, env = "FERRUM_MODE", value_enum, default_value_t, value_name = "MODE")]
    mode: Mode,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Check only this machine: no DNS, targets or Redis servers
    #[arg(long)]
    offline: bool,
    /// Time limit for a DNS lookup, connection or handshake, such as 500ms or 5s
    #[arg(long, default_value = "3s", value_name = "TIME")]
    timeout: Millis,
    /// Fails if there is a warning
    #[arg(long)]
    deny_warnings: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Error,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// What was looked at, as a stable word.
    check: &'static str,
    level: Level,
    /// Which file, target or setting it is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    about: String,
    message: String,
    /// What to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    remedy: String,
}

/// All that was looked at.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, about: impl Into<String>, message: impl Into<String>) {
        let (about, message) = (about.into(), message.into());
        self.0.push(Finding { check, level: Level::Ok, about, message, remedy: String::new() });
    }

    fn warning(
        &mut self,
        check: &'static str,
        about: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (about, message, remedy) = (about.into(), message.into(), remedy.into());
        self.0.push(Finding { check, level: Level::Warning, about, message, remedy });
    }

    fn error(
        &mut self,
        check: &'static str,
        about: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (about, message, remedy) = (about.into(), message.into(), remedy.into());
        self.0.push(Finding { check, level: Level::Error, about, message, remedy });
    }

    fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }
}

/// Looks at everything and says what to do.
pub(super) fn doctor(args: &DoctorArgs, registry: Registry) -> u8 {
    logs::init(Verbosity { verbose: 0 });
    let mut findings = Findings::default();
    let is_database = args.mode == Mode::Database || args.database.is_given();
    let spec = args.spec.or(args.file.clone());
    let source = match is_database {
        true => spec.settings(Vec::new()),
        false => match spec.source(Vec::new()) {
            Some(source) => source,
            None => return MISUSED,
        },
    };
    let loaded = if is_database { source.load_settings(&registry) } else { source.load(&registry) };
    let mut model = None;
    match loaded {
        Ok(loaded) => {
            findings.ok("configuration", source.spec.to_string(), "it can be used");
            ports::examine(&mut findings, &loaded);
            model = Some(loaded);
        }
        Err(problems) => {
            for problem in &problems.0 {
                let remedy = problem.shown_remedy().unwrap_or(CORRECT);
                findings.error("configuration", problem.place(), problem.message.as_str(), remedy);
            }
        }
    }
    let settings = model.as_ref().map(|model| model.settings.clone()).unwrap_or_default();
    // What runs from the database is found there; the file has the settings of the gateway as a whole.
    if is_database {
        model = of_database(args, &mut findings, &settings, registry.clone());
    }
    let has_datagrams = settings.http3 || model.as_ref().is_some_and(system::has_datagrams);
    system::look(&mut findings, &settings, Path::new("/"), has_datagrams);
    certificates::look(&mut findings, &settings, model.as_ref());
    if let Some(model) = &model {
        match warnings::of(model, &registry) {
            Ok(warnings) => warnings.into_iter().for_each(|warning| {
                findings.warning("configuration", warning.path, warning.message, warning.remedy);
            }),
            Err(Problems(problems)) => problems.iter().for_each(|problem| {
                findings.error("configuration", problem.place(), problem.message.as_str(), CORRECT);
            }),
        }
        if !args.offline {
            beyond(&mut findings, model, Duration::from_millis(args.timeout.0.max(1)));
        }
    }
    shown(args, &findings)
}

/// The remedy for what has none of its own.
const CORRECT: &str = "correct it; `ferrum-edge check` shows the same";

/// Looks at what is reached over the network.
fn beyond(findings: &mut Findings, model: &Model, timeout: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(async {
            network::look(findings, model, collectors::all(model), timeout).await;
            redis::look(findings, model, timeout).await;
        }),
        Err(error) => findings.error("network", "", error.to_string(), "free memory or descriptors"),
    }
}

/// Looks at the database, and hands out what is in it.
fn of_database(
    args: &DoctorArgs,
    findings: &mut Findings,
    settings: &Settings,
    registry: Registry,
) -> Option<Model> {
    let location = match args.database.location() {
        Ok(location) => location,
        Err(problems) => return refused(findings, &problems),
    };
    let at = location.to_string();
    if let Err((message, remedy)) = store(findings, &location) {
        findings.error("store", at, message, remedy);
        return None;
    }
    let database = match Database::for_tools(location, Access::default()) {
        Ok(database) => database,
        Err(problems) => return refused(findings, &problems),
    };
    let (tls, redis) = (settings.tls.clone(), settings.redis.clone());
    let closed =
        Settings { http: None, https: None, workers: 1, access_log: None, tls, redis, ..Settings::default() };
    let gateway = match Gateway::start_closed(closed.into(), database, registry) {
        Ok(gateway) => gateway,
        Err(error) => {
            findings.error("store", at, error.to_string(), "correct it");
            return None;
        }
    };
    broken(findings, &gateway);
    let snapshot = gateway.snapshot();
    for (id, route) in &snapshot.quarantined {
        for problem in route.quarantine.iter().flat_map(|problems| &problems.0) {
            let message = format!("the proxy is closed and answers 503: {problem}");
            findings.error("configuration", format!("proxies.{id}"), message, "correct the object");
        }
    }
    // With the listeners that a gateway would open, by which some of it is judged.
    Some(Model { settings: settings.clone().into(), ..snapshot.model() })
}

/// Names the objects that can't be used; a database may hold thousands.
fn broken(findings: &mut Findings, gateway: &Gateway) {
    const MAX_TOLD: usize = 100;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let (Some(reconciler), Ok(runtime)) = (gateway.reconciler(), runtime) else { return };
    let catalog = runtime.block_on(reconciler.catalog());
    for (kind, id, object) in catalog.broken().iter().take(MAX_TOLD) {
        let problems: Vec<_> = object.problems.0.iter().take(3).map(ToString::to_string).collect();
        let message = format!("this object can't be used: {}", problems.join("; "));
        let about = format!("{}.{id}", kind.as_str());
        findings.error("configuration", about, message, "correct the object, or what it refers to");
    }
    let more = catalog.broken().len().saturating_sub(MAX_TOLD);
    if more > 0 {
        let message = format!("{more} more objects can't be used");
        findings.error("configuration", "", message, "`/v1/status` of a gateway lists them");
    }
}

fn refused(findings: &mut Findings, problems: &Problems) -> Option<Model> {
    for problem in &problems.0 {
        let remedy = problem.shown_remedy().unwrap_or("correct it");
        findings.error("store", problem.path.as_str(), problem.message.as_str(), remedy);
    }
    None
}

/// Asks a database; else says what is wrong with it, and what to do.
fn store(findings: &mut Findings, location: &Location) -> Result<(), (String, &'static str)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (error.to_string(), "free memory or descriptors"))?;
    let told = |error: StoreError| (error.to_string(), error.remedy());
    runtime.block_on(async {
        let store = Store::open(location.clone(), Options::default());
        let begun = Instant::now();
        if !store.pending_migrations().await.map_err(told)?.is_empty() {
            return Err(("its schema is older than this program's".to_owned(), "run `ferrum-edge migrate`"));
        }
        let revision = store.revision().await.map_err(told)?;
        let took = begun.elapsed().as_millis();
        findings.ok(
            "store",
            location.to_string(),
            format!("it answers within {took} ms, revision {revision}"),
        );
        if let Some(broken) = store.audit_verified().await.map_err(told)?.broken {
            let message = format!("the chain is broken at entry {}: {}", broken.seq, broken.why);
            let remedy = "find out who wrote to the database; compare it with the audit log";
            findings.error("audit", location.to_string(), message, remedy);
        }
        Ok(())
    })
}

fn shown(args: &DoctorArgs, findings: &Findings) -> u8 {
    let (errors, warnings) = (findings.count(Level::Error), findings.count(Level::Warning));
    let is_bad_config = findings.0.iter().any(|it| it.check == "configuration" && it.level == Level::Error);
    let code = match (errors, warnings) {
        (1.., _) if is_bad_config => BAD_CONFIG,
        (1.., _) => FAILED,
        (0, 1..) if args.deny_warnings => FAILED,
        _ => 0,
    };
    if args.json || matches!(args.output, OutputFormat::Json) {
        print::line(
            json!({ "healthy": code == 0, "errors": errors, "warnings": warnings, "findings": findings.0 }),
        );
        return code;
    }
    for Finding { check, level, about, message, remedy } in &findings.0 {
        let word = match level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        let colon = if about.is_empty() { "" } else { ": " };
        print::line(format_args!("{word:<8}{check:<14} {about}{colon}{message}"));
        if !remedy.is_empty() {
            print::line(format_args!("{:<23}-> {remedy}", ""));
        }
    }
    let [errors, warnings] =
        [(errors, "error"), (warnings, "warning")].map(|(number, what)| print::counted(number as u64, what));
    print::line(format_args!("{errors}, {warnings}"));
    code
}
