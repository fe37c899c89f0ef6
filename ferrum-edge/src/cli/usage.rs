//! What keys of traffic quotas have used: `usage`.

use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use gateway_telemetry::json::Rfc3339;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::admin::GatewayArgs;
use super::{FAILED, OutputFormat, print};

/// Arguments of `usage`.
#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// Only the quotas of this plugin config
    #[arg(long, value_name = "ID")]
    config: Option<String>,
    /// Only this key, such as a consumer, a proxy or an address
    #[arg(long)]
    key: Option<String>,
    /// Only the NUMBER keys of each quota with the highest usage, in descending order
    #[arg(long, value_name = "NUMBER", conflicts_with = "reset")]
    top: Option<u64>,
    /// Also show the bytes of each minute (7 days) or hour (90 days)
    #[arg(long, value_enum)]
    history: Option<HistoryStep>,
    /// Forgive what --key has used, or with --all every key
    #[arg(long)]
    reset: bool,
    /// With --reset: every key
    #[arg(long, requires = "reset", conflicts_with = "key")]
    all: bool,
    #[command(flatten)]
    admin: GatewayArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// How fine a history is.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum HistoryStep {
    Minute,
    Hour,
}

/// Shows what keys have used, or forgives it.
pub(super) fn usage(args: &UsageArgs) -> u8 {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut query: Vec<String> =
        args.config.iter().map(|config| format!("plugin_config={}", encode(config))).collect();
    let asked = if args.reset {
        if args.key.is_none() && !args.all {
            print::error("--reset needs --key or --all");
            return 2;
        }
        let path = format!("/v1/plugins/traffic_quota/actions/reset?{}", query.join("&"));
        let input = args.key.as_ref().map_or_else(|| json!({}), |key| json!({ "key": key }));
        args.admin.open().and_then(|admin| admin.ask("POST", &path, Some(&input)))
    } else {
        query.extend(args.key.iter().map(|key| format!("key={}", encode(key))));
        query.extend(args.top.map(|top| format!("top={top}")));
        query.extend(args.history.map(|step| match step {
            HistoryStep::Minute => "history=minute".to_owned(),
            HistoryStep::Hour => "history=hour".to_owned(),
        }));
        let path = format!("/v1/usage?{}", query.join("&"));
        args.admin.open().and_then(|admin| admin.ask("GET", &path, None))
    };
    let answer = match asked {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    match args.output {
        OutputFormat::Json => print::line(&answer),
        _ if is_nothing(&answer, args) => {
            print::error(match &args.key {
                Some(key) => {
                    format!("no quota counts anything of `{key}`; `ferrum-edge usage` lists the keys")
                }
                None => "no quota counts anything yet".to_owned(),
            });
            return FAILED;
        }
        OutputFormat::Text if args.reset => {
            for each in items(&answer["results"]) {
                let (config, count) = (text(&each["plugin_config"]), each["result"]["reset"].as_u64());
                print::line(format_args!("{config}: {} reset", count.unwrap_or_default()));
            }
        }
        OutputFormat::Text => items(&answer["items"]).for_each(show),
    }
    0
}

fn show(usage: &Value) {
    let config = text(&usage["plugin_config"]);
    for key in items(&usage["keys"]) {
        let (used, limit) = (number(&key["used"]), number(&key["limit"]));
        let percent = u128::from(used) * 100 / u128::from(limit.max(1));
        let ends = key["period_ends"].as_u64().map(|at| format!(", until {}", time(at))).unwrap_or_default();
        let closed = key["closed"].as_str().map(|reason| format!(", {reason}")).unwrap_or_default();
        let name = text(&key["key"]);
        print::line(format_args!("{config} {name}: {used} of {limit} bytes ({percent} %){ends}{closed}"));
        for part in items(&key["history"]) {
            print::line(format_args!("  {} {}", time(number(&part["at"])), number(&part["bytes"])));
        }
    }
}

/// Whether an answer has no key at all, where one was asked for.
fn is_nothing(answer: &Value, args: &UsageArgs) -> bool {
    let is_asked = args.key.is_some() || args.config.is_some();
    let counted = |each: &Value| each["keys"].as_array().is_some_and(|keys| !keys.is_empty());
    let reset = |each: &Value| each["result"]["reset"].as_u64().is_some_and(|count| count > 0);
    is_asked
        && match args.reset {
            true => !items(&answer["results"]).any(reset),
            false => !items(&answer["items"]).any(counted),
        }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn time(at: u64) -> Rfc3339 {
    Rfc3339(UNIX_EPOCH + Duration::from_secs(at))
}
