//! `consumers`: lists consumers with their credential types and groups.

use clap::Args;
use gateway_core::plugin::Registry;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::admin::AdminArgs;
use super::{OutputFormat, print};

/// Consumers per answer of the admin API.
const PAGE: usize = 1000;

/// Arguments of `consumers`.
#[derive(Debug, Args)]
pub(super) struct ConsumersArgs {
    /// Only consumers whose id or name contains this
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    /// How they are printed
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Lists the consumers.
pub(super) fn consumers(args: &ConsumersArgs, registry: Registry) -> u8 {
    let listed = args.admin.open_existing(registry).and_then(|admin| {
        let mut after: Option<String> = None;
        loop {
            let from = after.iter().map(|id| format!("&after={}", utf8_percent_encode(id, NON_ALPHANUMERIC)));
            let path = format!("/v1/consumers?limit={PAGE}{}", from.collect::<String>());
            let page = admin.ask("GET", &path, None)?;
            page["items"].as_array().into_iter().flatten().for_each(|one| show(args, one));
            match page["next"].as_str() {
                Some(next) => after = Some(next.to_owned()),
                None => return Ok(()),
            }
        }
    });
    listed.map_or_else(|code| code, |()| 0)
}

fn show(args: &ConsumersArgs, consumer: &Value) {
    let text = |name: &str| consumer[name].as_str().unwrap_or_default();
    let (id, name) = (text("id"), text("username"));
    if args.text.as_deref().is_some_and(|text| !id.contains(text) && !name.contains(text)) {
        return;
    }
    if args.output == OutputFormat::Json {
        return print::line(consumer);
    }
    let kinds = consumer["credentials"].as_object().into_iter().flatten().map(|(kind, all)| {
        let count = all.as_array().map_or(1, Vec::len);
        if count == 1 { kind.clone() } else { format!("{kind} ({count})") }
    });
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    let groups = consumer["acl_groups"].as_array().into_iter().flatten();
    let groups = groups.filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let or_none = |text: String| if text.is_empty() { "–".to_owned() } else { text };
    print::line(format_args!(
        "{id:<20} {:<20} credentials: {}  groups: {}",
        name,
        or_none(kinds),
        or_none(groups)
    ));
}
