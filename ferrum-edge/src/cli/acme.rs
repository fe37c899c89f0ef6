//! `acme list` and `acme renew`: certificates that the gateway gets from a CA.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::admin::{Admin, GatewayArgs};
use super::{FAILED, OutputFormat, print};

/// Arguments of `acme`.
#[derive(Debug, Args)]
pub(super) struct AcmeArgs {
    #[command(subcommand)]
    command: AcmeCommand,
}

#[derive(Debug, Subcommand)]
enum AcmeCommand {
    /// List the certificates, with their standing and the next order
    List {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// How they are printed
        #[arg(long, value_enum, default_value = "text")]
        output: OutputFormat,
    },
    /// Order a certificate now, whatever its dates say, and wait for the result; CAs limit how often a name is ordered
    Renew {
        /// One of its names
        name: String,
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Ends at once instead of waiting for the result
        #[arg(long)]
        no_wait: bool,
    },
}

/// How long the command waits for an order.
const TIMEOUT: Duration = Duration::from_secs(180);
/// The interval between two requests for the status.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs the command.
pub(super) fn acme(args: &AcmeArgs) -> u8 {
    let done = match &args.command {
        AcmeCommand::List { gateway, output } => gateway.open().and_then(|admin| list(&admin, *output)),
        AcmeCommand::Renew { name, gateway, no_wait } => {
            gateway.open().and_then(|admin| renew(&admin, name, !no_wait))
        }
    };
    done.map_or_else(|code| code, |()| 0)
}

fn certificates(admin: &Admin) -> Result<Vec<Value>, u8> {
    let status = admin.ask("GET", "/v1/status", None)?;
    Ok(status["acme"]["list"].as_array().cloned().unwrap_or_default())
}

fn list(admin: &Admin, output: OutputFormat) -> Result<(), u8> {
    let certificates = certificates(admin)?;
    if output == OutputFormat::Json {
        print::line(Value::from(certificates));
        return Ok(());
    }
    for one in &certificates {
        let text = |name: &str| one[name].as_str().unwrap_or("–").to_owned();
        print::line(format_args!(
            "{:<8} {}  ends {}  next order {}",
            text("status"),
            names(one),
            text("ends_at"),
            text("next_order_at")
        ));
        if let Some(problem) = one["problem"].as_str() {
            print::line(format_args!("         {problem}"));
        }
    }
    Ok(())
}

fn names(certificate: &Value) -> String {
    let names = certificate["names"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

/// Finds the certificate with this name.
fn of<'c>(certificates: &'c [Value], name: &str) -> Option<&'c Value> {
    let has = |one: &&Value| {
        let mut names = one["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.any(|known| known.eq_ignore_ascii_case(name))
    };
    certificates.iter().find(has)
}

fn renew(admin: &Admin, name: &str, waits: bool) -> Result<(), u8> {
    let before = certificates(admin)?;
    let before = of(&before, name).cloned().unwrap_or_default();
    let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
    admin.ask("POST", &format!("/v1/acme/renew?name={encoded}"), None)?;
    if !waits {
        print::line("The order is noted.");
        return Ok(());
    }
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        std::thread::sleep(PAUSE);
        let all = certificates(admin)?;
        let Some(now) = of(&all, name) else { break };
        if now["ends_at"] != before["ends_at"] && !now["ends_at"].is_null() {
            print::line(format_args!(
                "A certificate for {} was issued; it ends {}.",
                names(now),
                word(&now["ends_at"])
            ));
            return Ok(());
        }
        if now["failed_at"] != before["failed_at"] && !now["failed_at"].is_null() {
            print::error(format_args!("No certificate was issued: {}", word(&now["problem"])));
            print::error(format_args!("The gateway tries again at {}.", word(&now["next_order_at"])));
            return Err(FAILED);
        }
    }
    print::error(format_args!(
        "Nothing came of it within {TIMEOUT:?}; `ferrum-edge acme list` shows its standing."
    ));
    Err(FAILED)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("–")
}
