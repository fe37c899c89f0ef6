//! `status`: prints the state and the problems of a gateway on one screen, and returns an exit code.

use clap::Args;
use gateway_core::plugin::Registry;
use serde_json::Value;

use super::admin::{Admin, AdminArgs};
use super::{FAILED, OutputFormat, TROUBLED, print};

/// Maximum number of problems that are printed. The output always contains their total number.
const MAX_SHOWN: usize = 40;

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Only asks whether the gateway is ready for traffic, as /readyz does: exit code 0 or 1
    #[arg(long, conflicts_with = "output")]
    ready: bool,
    /// How it is printed
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Prints the status of a gateway. Returns 5 if there are problems.
pub(super) fn status(args: &StatusArgs, registry: Registry) -> u8 {
    if args.ready {
        return args.admin.open_existing(registry).map_or_else(|code| code, |admin| ready(&admin));
    }
    let status =
        match args.admin.open_existing(registry).and_then(|admin| admin.ask("GET", "/v1/status", None)) {
            Ok(status) => status,
            Err(code) => return code,
        };
    match args.output {
        OutputFormat::Json => print::line(&status),
        OutputFormat::Text => text(&status, !args.admin.is_database()),
    }
    if status["problems"]["errors"].as_u64() > Some(0) { TROUBLED } else { 0 }
}

/// Checks readiness, for health checks of containers and load balancers.
fn ready(admin: &Admin) -> u8 {
    match admin.text("/readyz") {
        Ok((200, _)) => 0,
        Ok((_, why)) => {
            print::error(why.trim_end());
            FAILED
        }
        Err(error) => {
            print::error(format_args!("No gateway answers at {}: {error}", admin.address()));
            FAILED
        }
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "–".to_owned(),
        other => other.to_string(),
    }
}

fn text(status: &Value, is_running: bool) {
    let row = |name: &str, value: String| print::line(format_args!("{:<14}{value}", format!("{name}:")));
    row("version", word(&status["version"]));
    if is_running {
        row("up", format!("{} s, pid {}", word(&status["uptime_seconds"]), word(&status["pid"])));
        row("draining", word(&status["draining"]));
        row("http", word(&status["listeners"]["http"]));
        row("https", word(&status["listeners"]["https"]));
        row("connections", word(&status["connections"]));
        row("overload", word(&status["overload"]["level"]));
    }
    let config = &status["config"];
    // A database is read by this command, and applied by none.
    let since = config["applied_at"].as_str().filter(|_| is_running);
    let since = since.map(|at| format!(", applied at {at}")).unwrap_or_default();
    row("revision", format!("{}{since}", word(&config["revision"])));
    let proxies = &status["proxies"];
    let closed = format!("{}, {} closed", word(&proxies["count"]), word(&proxies["quarantined_count"]));
    let ports = proxies["ports_closed_count"].as_u64().filter(|count| *count > 0);
    let ports = ports.map(|count| format!(", {count} with closed ports")).unwrap_or_default();
    row("proxies", format!("{closed}{ports}"));
    if is_running {
        row("targets", targets(&status["upstreams"]));
    }
    let database = &status["database"];
    if !database.is_null() {
        let answers = match database["answers"].as_bool() {
            Some(true) => "answers".to_owned(),
            _ => format!("away since {}: {}", word(&database["away_since"]), word(&database["away_because"])),
        };
        row("database", format!("{}, {answers}", word(&database["location"])));
        row("broken", word(&database["broken_count"]));
        if let Some(count) = database["pending_changes"].as_u64().filter(|count| *count > 0) {
            row("changes", format!("{count} pending; `ferrum-edge changes list` lists them"));
        }
    }
    let fleet = &status["fleet"];
    if fleet["role"] == "edge" {
        row("control plane", word(&fleet["control_plane"]));
    }
    problems(&status["problems"]);
}

/// The number of healthy targets, out of all known targets of upstreams.
fn targets(upstreams: &Value) -> String {
    let lists = upstreams["list"].as_array().into_iter().flatten();
    let all: Vec<_> = lists.flat_map(|one| one["targets"].as_array().into_iter().flatten()).collect();
    if all.is_empty() {
        // Targets of proxies without an upstream have no health; `target_failing` reports them.
        return "no upstreams".to_owned();
    }
    let healthy = all.iter().filter(|target| target["healthy"] == true).count();
    format!("{healthy} of {} healthy", all.len())
}

/// Prints one line per problem, the worst first.
fn problems(problems: &Value) {
    let list: Vec<_> = problems["list"].as_array().into_iter().flatten().collect();
    let count = |name: &str| problems[name].as_u64().unwrap_or_default();
    print::line(format_args!(
        "{:<14}{}, {}",
        "problems:",
        print::counted(count("errors"), "error"),
        print::counted(count("warnings"), "warning")
    ));
    for problem in list.iter().take(MAX_SHOWN) {
        let about = word(&problem["about"]);
        let about = if about.is_empty() { about } else { format!("{about}: ") };
        let (level, code) = (word(&problem["level"]), word(&problem["code"]));
        print::line(format_args!("{level:<8}{code:<21} {about}{}", word(&problem["message"])));
        let remedy = word(&problem["remedy"]);
        if !remedy.is_empty() {
            print::line(format_args!("{:<30}-> {remedy}", ""));
        }
    }
    let hidden = (count("errors") + count("warnings")).saturating_sub(list.len().min(MAX_SHOWN) as u64);
    if hidden > 0 {
        print::line(format_args!("{hidden} more; `ferrum-edge status --output json` lists them"));
    }
}
