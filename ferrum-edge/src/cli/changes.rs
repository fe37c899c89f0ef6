//! Changes that another user has to approve: `changes`.

use clap::{Args, Subcommand, ValueEnum};
use gateway_core::plugin::Registry;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::admin::{Admin, AdminArgs};
use super::{OutputFormat, print};

/// Arguments of `changes`.
#[derive(Debug, Args)]
pub(super) struct ChangesArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List changes that wait for an approval, or what became of them
    List(ListArgs),
    /// Show what a change does to each object
    Show(NumberArgs),
    /// Apply a change of another user, if its objects are as they were
    Approve(ApproveArgs),
    /// Reject a change of another user
    Reject(EndArgs),
    /// Withdraw your own change
    Withdraw(EndArgs),
}

/// What all of them take.
#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only changes in this state
    #[arg(long, value_enum, default_value = "pending")]
    state: StateFilter,
    /// How many, the newest first
    #[arg(short = 'n', long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=200))]
    limit: u8,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct NumberArgs {
    /// The number of the change
    number: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct EndArgs {
    /// The number of the change
    number: u64,
    /// Why, for the author and the audit
    #[arg(long, default_value = "", value_name = "TEXT")]
    note: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct ApproveArgs {
    #[command(flatten)]
    of: EndArgs,
    /// Only check whether it still can be applied, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Apply it without a second person, by a token with the role admin, the Unix socket or the database; needs --note
    #[arg(long, requires = "note")]
    emergency: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateFilter {
    /// Changes that wait
    Pending,
    /// Applied changes
    Approved,
    /// Rejected changes
    Rejected,
    /// Changes that their authors took back
    Withdrawn,
    /// Changes that nobody decided in time
    Expired,
    /// All of them
    All,
}

/// Lists changes, shows one, or ends one.
pub(super) fn changes(args: &ChangesArgs, registry: Registry) -> u8 {
    let common = match &args.what {
        What::List(args) => &args.common,
        What::Show(args) => &args.common,
        What::Approve(args) => &args.of.common,
        What::Reject(args) | What::Withdraw(args) => &args.common,
    };
    match common.admin.open_existing(registry).and_then(|admin| run(&args.what, &admin)) {
        Err(code) => code,
        Ok(document) => {
            match common.output {
                OutputFormat::Json => print::line(&document),
                OutputFormat::Text => text(&args.what, &document),
            }
            0
        }
    }
}

fn run(what: &What, admin: &Admin) -> Result<Value, u8> {
    let note = |args: &EndArgs| utf8_percent_encode(&args.note, NON_ALPHANUMERIC).to_string();
    match what {
        What::List(args) => {
            let state = args.state.to_possible_value().filter(|_| args.state != StateFilter::All);
            let state = state.map_or_else(String::new, |state| format!("&state={}", state.get_name()));
            admin.ask("GET", &format!("/v1/changes?limit={}{state}", args.limit), None)
        }
        What::Show(args) => admin.ask("GET", &format!("/v1/changes/{}", args.number), None),
        What::Approve(args) => {
            let EndArgs { number, .. } = args.of;
            let (note, dry_run, emergency) = (note(&args.of), args.dry_run, args.emergency);
            let query = format!("note={note}&validate_only={dry_run}&emergency={emergency}");
            admin.ask("POST", &format!("/v1/changes/{number}/approve?{query}"), None)
        }
        What::Reject(args) => {
            admin.ask("POST", &format!("/v1/changes/{}/reject?note={}", args.number, note(args)), None)
        }
        What::Withdraw(args) => {
            admin.ask("DELETE", &format!("/v1/changes/{}?note={}", args.number, note(args)), None)
        }
    }
}

fn text(what: &What, document: &Value) {
    match what {
        What::List(_) => {
            let changes = document["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            if changes.is_empty() {
                print::line("There are no such changes.");
            }
            changes.iter().for_each(show);
        }
        What::Show(_) => {
            show(document);
            for change in document["changes"].as_array().into_iter().flatten() {
                show_object(change);
            }
            if let Some(why) = document["refusal"]["detail"].as_str() {
                print::line(why);
            }
        }
        What::Approve(args) => {
            let number = args.of.number;
            let revision = document["revision"].as_u64().unwrap_or_default();
            match args.dry_run {
                true => print::line(format_args!("change {number} can be applied to revision {revision}")),
                false => print::line(format_args!("change {number} is revision {revision}")),
            }
        }
        What::Reject(args) => print::line(format_args!("change {} is rejected", args.number)),
        What::Withdraw(args) => print::line(format_args!("change {} is withdrawn", args.number)),
    }
}

fn show(change: &Value) {
    let number = change["number"].as_u64().unwrap_or_default();
    let [state, at, author, note] =
        ["state", "created_at", "author", "note"].map(|name| change[name].as_str().unwrap_or_default());
    let objects = change["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let first = objects.first().map_or_else(String::new, |object| {
        let [kind, id] = ["kind", "id"].map(|name| object[name].as_str().unwrap_or_default());
        format!("{kind}/{id}")
    });
    let more = match objects.len() {
        0 | 1 => String::new(),
        many => format!(" +{}", many - 1),
    };
    print::line(format_args!("{number:>6}  {state:<9}  {at}  {author:<16}  {first}{more}  {note}"));
    if let Some(by) = change["decided_by"].as_str() {
        let reason = change["reason"].as_str().unwrap_or_default();
        print::line(format_args!("        by {by}  {reason}"));
    }
}

fn show_object(change: &Value) {
    let [kind, id, action] = ["kind", "id", "action"].map(|name| change[name].as_str().unwrap_or_default());
    let sign = match action {
        "create" => '+',
        "delete" => '-',
        _ => '~',
    };
    let stale = if change["fits"] == false { "  (changed meanwhile)" } else { "" };
    print::line(format_args!("{sign} {kind}/{id}{stale}"));
    let (before, after) = (&change["before"], &change["after"]);
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (before, after) = (fields(before), fields(after));
    for (key, old) in &before {
        match after.get(key) {
            Some(new) if new == old => {}
            Some(new) => print::line(format_args!("    {key}: {old} -> {new}")),
            None => print::line(format_args!("    {key}: {old} -> (none)")),
        }
    }
    for (key, new) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        print::line(format_args!("    {key}: (none) -> {new}"));
    }
}

/// The number of the change that waits, if a write answers that one does.
pub(super) fn pending_number(answer: &Value) -> Option<u64> {
    answer["number"].as_u64().filter(|_| answer["state"] == "pending")
}

/// Tells that a write waits for an approval; whether it does.
pub(super) fn is_pending(answer: &Value) -> bool {
    let number = pending_number(answer);
    if let Some(number) = number {
        print::line(format_args!(
            "change {number} waits until another user approves it: `ferrum-edge changes approve {number}`"
        ));
    }
    number.is_some()
}
