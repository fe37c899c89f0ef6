//! Looking after stored responses: `cache purge`, `cache warm`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::admin::GatewayArgs;
use super::{OutputFormat, print};

/// Arguments of `cache`.
#[derive(Debug, Args)]
pub(super) struct CacheArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Remove stored responses from the caches of a running gateway, in all their tiers
    Purge(PurgeArgs),
    /// Fetch URLs into the cache of a running gateway in advance
    Warm(WarmArgs),
}

/// Arguments of `cache warm`.
#[derive(Debug, Args)]
struct WarmArgs {
    /// URLs with the scheme and host that clients use; without any, those of `warm_up.urls`
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// What all of them take.
#[derive(Debug, Args)]
struct Common {
    /// Only the cache of this plugin config
    #[arg(long, value_name = "ID")]
    config: Option<String>,
    #[command(flatten)]
    admin: GatewayArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Arguments of `cache purge`.
#[derive(Debug, Args)]
struct PurgeArgs {
    #[command(flatten)]
    which: Which,
    /// Mark them stale instead, so that they are revalidated
    #[arg(long)]
    soft: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The response of exactly this URL, such as `https://example.com/a?b=c`; the scheme is ignored
    #[arg(long)]
    url: Option<String>,
    /// The responses whose URLs begin with this one
    #[arg(long, value_name = "URL")]
    prefix: Option<String>,
    /// The responses with this tag in Surrogate-Key or Cache-Tag
    #[arg(long)]
    tag: Option<String>,
    /// All responses
    #[arg(long)]
    all: bool,
}

/// Looks after stored responses.
pub(super) fn cache(args: &CacheArgs) -> u8 {
    match &args.what {
        What::Purge(args) => purge(args),
        What::Warm(args) => warm(args),
    }
}

fn purge(args: &PurgeArgs) -> u8 {
    let mut purge = json!({ "soft": args.soft, "all": args.which.all });
    let given = [("url", &args.which.url), ("prefix", &args.which.prefix), ("tag", &args.which.tag)];
    for (name, value) in given {
        if let Some(value) = value {
            purge[name] = json!(value);
        }
    }
    let done = if args.soft { "marked stale" } else { "removed" };
    act(&args.common, "purge", &purge, |result| {
        let count = result["purged"].as_u64().unwrap_or_default();
        let noun = if count == 1 { "response" } else { "responses" };
        format!("{count} {noun} {done}")
    })
}

fn warm(args: &WarmArgs) -> u8 {
    let input = if args.urls.is_empty() { json!({}) } else { json!({ "urls": args.urls }) };
    act(&args.common, "warm", &input, |result| {
        let count = result["queued"].as_u64().unwrap_or_default();
        let noun = if count == 1 { "URL is" } else { "URLs are" };
        format!("{count} {noun} being fetched")
    })
}

/// Has the caches do something, and prints what came of it.
fn act(args: &Common, action: &str, input: &Value, say: impl Fn(&Value) -> String) -> u8 {
    let mut path = format!("/v1/plugins/response_cache/actions/{action}");
    if let Some(config) = &args.config {
        let config = percent_encoding::utf8_percent_encode(config, percent_encoding::NON_ALPHANUMERIC);
        path = format!("{path}?plugin_config={config}");
    }
    let asked = args.admin.open().and_then(|admin| admin.ask("POST", &path, Some(input)));
    let answer = match asked {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    match args.output {
        OutputFormat::Json => print::line(&answer),
        OutputFormat::Text => {
            for each in answer["results"].as_array().into_iter().flatten() {
                let config = each["plugin_config"].as_str().unwrap_or_default();
                print::line(format_args!("{config}: {}", say(&each["result"])));
            }
        }
    }
    0
}
