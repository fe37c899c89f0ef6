//! Looking after databases and gateways: `migrate`, `status`.

use clap::Args;
use gateway_core::plugin::Registry;
use serde_json::Value;

use super::admin::AdminArgs;
use super::database::DatabaseArgs;
use super::{FAILED, MISUSED, OutputFormat, print};
use crate::audit::{AuditOutcome, Draft, Who};
use crate::store::{Options, Store, StoreError};

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Only list the pending migrations
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// How it is printed
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Brings a database's schema to this program's.
pub(super) fn migrate(args: &MigrateArgs) -> u8 {
    let location = match args.database.location() {
        Ok(location) => location,
        Err(problems) => {
            print::error(problems);
            return MISUSED;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let migrated = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let told = |error: StoreError| format!("{error} ({})", error.remedy());
        runtime.block_on(async {
            let store = Store::open(location, Options::default());
            let pending = match store.pending_migrations().await {
                Ok(pending) => pending,
                // There is no file yet: everything is to be done.
                Err(StoreError::NoFile(_)) => Vec::new(),
                Err(error) => return Err(told(error)),
            };
            if args.dry_run {
                return Ok((store.location().to_string(), pending));
            }
            let migrated = store.migrate().await.map_err(told)?;
            if !pending.is_empty() || migrated.from != migrated.to {
                let who = Who { actor: super::user(), source: "command-line", ..Who::default() };
                let mut draft = Draft::new(who, "migrate", AuditOutcome::Allowed);
                draft.note = format!("schema {} to {}", migrated.from, migrated.to);
                store.audit(&[draft]).await.map_err(told)?;
            }
            Ok((store.location().to_string(), pending))
        })
    });
    match migrated {
        Ok((at, pending)) if pending.is_empty() => {
            print::line(format_args!("{at} is as this program needs it."));
            0
        }
        Ok((at, pending)) => {
            let done = if args.dry_run { "to be done" } else { "done" };
            pending.iter().for_each(|step| print::line(format_args!("{at}: {step}: {done}")));
            0
        }
        Err(error) => {
            print::error(error);
            FAILED
        }
    }
}

/// Shows the status of a gateway.
pub(super) fn status(args: &StatusArgs, registry: Registry) -> u8 {
    let status =
        match args.admin.open_existing(registry).and_then(|admin| admin.ask("GET", "/v1/status", None)) {
            Ok(status) => status,
            Err(code) => return code,
        };
    match args.output {
        OutputFormat::Json => print::line(&status),
        OutputFormat::Text => text(&status, !args.admin.is_database()),
    }
    0
}

fn text(status: &Value, is_running: bool) {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "–".to_owned(),
        other => other.to_string(),
    };
    let row = |name: &str, value: String| print::line(format_args!("{:<14}{value}", format!("{name}:")));
    row("version", word(&status["version"]));
    if is_running {
        row("up", format!("{} s, pid {}", word(&status["uptime_seconds"]), word(&status["pid"])));
        row("draining", word(&status["draining"]));
        row("http", word(&status["listeners"]["http"]));
        row("https", word(&status["listeners"]["https"]));
        row("connections", word(&status["connections"]));
    }
    row("revision", word(&status["config"]["revision"]));
    let proxies = &status["proxies"];
    let closed = format!("{}, {} closed", word(&proxies["count"]), word(&proxies["quarantined_count"]));
    let ports = proxies["ports_closed_count"].as_u64().filter(|count| *count > 0);
    let ports = ports.map(|count| format!(", {count} with closed ports")).unwrap_or_default();
    row("proxies", format!("{closed}{ports}"));
    for object in proxies["ports_closed"].as_array().into_iter().flatten() {
        print::line(format_args!("ports closed {}: {}", word(&object["id"]), word(&object["problem"])));
    }
    let database = &status["database"];
    if !database.is_null() {
        let answers = match database["answers"].as_bool() {
            Some(true) => "answers".to_owned(),
            _ => format!("away since {}: {}", word(&database["away_since"]), word(&database["away_because"])),
        };
        row("database", format!("{}, {answers}", word(&database["location"])));
        row("broken", word(&database["broken_count"]));
    }
    let lists = [("closed", &proxies["quarantined"]), ("broken", &database["broken"])];
    for (what, list) in lists {
        for object in list.as_array().into_iter().flatten() {
            for problem in object["problems"].as_array().into_iter().flatten() {
                print::line(format_args!("{what} {}: {}", word(&object["id"]), word(problem)));
            }
        }
    }
}
