//! What was changed in a database, and the way back: `revisions`, `rollback`.

use clap::Args;
use gateway_core::plugin::Registry;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::admin::AdminArgs;
use super::changes::{is_pending, pending_number};
use super::gitops::show_changes;
use super::{OutputFormat, PENDING, print};
use crate::admin::field_changes::field_changes;

/// Arguments of `revisions`.
#[derive(Debug, Args)]
pub(super) struct RevisionsArgs {
    /// Show one revision: the objects that it changed, with the fields before and after
    revision: Option<u64>,
    /// How many, the newest first
    #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000), conflicts_with = "revision")]
    limit: u16,
    #[command(flatten)]
    admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Arguments of `rollback`.
#[derive(Debug, Args)]
pub(super) struct RollbackArgs {
    /// The revision to go back to
    revision: u64,
    /// Only check it, and show what it would change, with the fields before and after
    #[arg(long)]
    dry_run: bool,
    /// Leave the credentials of consumers as they are now
    #[arg(long)]
    keep_credentials: bool,
    /// Why, for `revisions`
    #[arg(long)]
    note: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Lists revisions, or shows one.
pub(super) fn revisions(args: &RevisionsArgs, registry: Registry) -> u8 {
    let path = match args.revision {
        Some(revision) => format!("/v1/revisions/{revision}"),
        None => format!("/v1/revisions?limit={}", args.limit),
    };
    let asked = args.admin.open_existing(registry).and_then(|admin| admin.ask("GET", &path, None));
    let answer = match asked {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    match (args.output, args.revision) {
        (OutputFormat::Json, _) => print::line(&answer),
        (OutputFormat::Text, None) => list(&answer["items"]).for_each(show),
        (OutputFormat::Text, Some(_)) => {
            show(&answer);
            show_changes(
                &json!({ "changes": list(&answer["changes"]).map(with_fields).collect::<Vec<_>>() }),
            );
        }
    }
    0
}

/// Makes the configuration what it was at a revision.
pub(super) fn rollback(args: &RollbackArgs, registry: Registry) -> u8 {
    let mut query = vec!["details=true".to_owned()];
    let switches = [("validate_only", args.dry_run), ("keep_credentials", args.keep_credentials)];
    query.extend(switches.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| format!("{name}=true")));
    query
        .extend(args.note.iter().map(|note| format!("note={}", utf8_percent_encode(note, NON_ALPHANUMERIC))));
    let path = format!("/v1/revisions/{}/rollback?{}", args.revision, query.join("&"));
    let opened = if args.dry_run { args.admin.open_existing(registry) } else { args.admin.open(registry) };
    let answer = match opened.and_then(|admin| admin.ask("POST", &path, None)) {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    if args.output == OutputFormat::Json {
        print::line(&answer);
        return if pending_number(&answer).is_some() { PENDING } else { 0 };
    }
    if is_pending(&answer) {
        return PENDING;
    }
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    let (created, updated, deleted) = (count("created"), count("updated"), count("deleted"));
    let what = if args.dry_run { "would become" } else { "is" };
    print::line(format_args!(
        "the configuration {what} that of revision {}: {created} created, {updated} updated, {deleted} deleted",
        args.revision
    ));
    if args.dry_run {
        show_changes(&answer);
    }
    0
}

fn show(revision: &Value) {
    let number = revision["revision"].as_u64().unwrap_or_default();
    let [at, author, note] = ["at", "author", "note"].map(|name| revision[name].as_str().unwrap_or_default());
    let count = |name: &str| revision[name].as_u64().unwrap_or_default();
    let counts = [("+", "created"), ("~", "updated"), ("-", "deleted")];
    let counts = counts.map(|(sign, name)| format!("{sign}{}", count(name))).join(" ");
    print::line(format_args!("{number:>6}  {at}  {counts:<12}  {author}  {note}"));
}

/// A change of a revision as `diff` prints it: what was done, and the fields before and after.
fn with_fields(change: &Value) -> Value {
    let (before, after) = (&change["before"], &change["after"]);
    let (action, fields) = match (before.is_null(), after.is_null()) {
        (true, _) => ("create", Vec::new()),
        (_, true) => ("delete", Vec::new()),
        _ => ("update", field_changes(before, after)),
    };
    json!({ "kind": change["kind"], "id": change["id"], "action": action, "fields": fields })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
