//! Who changed what: `audit`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use gateway_core::config::units::Seconds;
use gateway_core::plugin::Registry;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::admin::AdminArgs;
use super::{FAILED, OutputFormat, print};
use crate::audit::log::{page, verify};
use crate::audit::{ChainLine, KINDS, Query, Tip};
use gateway_telemetry::json::Rfc3339;

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Verify the chain of hashes instead of listing; exit code 1 if an entry was changed or removed
    #[arg(long)]
    verify: bool,
    /// With --verify: require this hash of this entry, from an earlier --verify or the audit log
    #[arg(long, value_name = "SEQ:HASH", requires = "verify")]
    expect: Option<Expect>,
    /// Read this audit log instead of asking a gateway; repeat it for rotated files and for each gateway on one database
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admin", "db_url", "db_type"])]
    file: Vec<PathBuf>,
    /// With --verify and --file: accept missing entries, because the files contain only a part of the log
    #[arg(long, requires = "verify", requires = "file")]
    partial: bool,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// `SEQ:HASH`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expect {
    seq: u64,
    hash: String,
}

impl std::str::FromStr for Expect {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(':').and_then(|(seq, hash)| Some((seq.parse().ok()?, hash)));
        let parts = parts.filter(|(_, hash)| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
        let (seq, hash) = parts.ok_or("write the number of an entry, a colon and its hash")?;
        Ok(Self { seq, hash: hash.to_ascii_lowercase() })
    }
}

impl Expect {
    fn as_tip(&self) -> Tip {
        Tip { seq: self.seq, hash: self.hash.clone() }
    }
}

#[derive(Debug, Args)]
struct Filter {
    /// Only entries of this actor: a token's name, the subject of a JWT, or a user
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only entries from this source
    #[arg(long, value_enum)]
    source: Option<Source>,
    /// Only entries with this outcome
    #[arg(long, value_enum)]
    outcome: Option<Ended>,
    /// Only changes of objects of this kind, such as proxies
    #[arg(long, value_name = "KIND", value_parser = KINDS)]
    kind: Option<String>,
    /// Only changes of the object with this id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Only newer entries, such as 1h or 7d; a plain number counts seconds
    #[arg(long, value_name = "TIME")]
    since: Option<Seconds>,
    /// Number of entries, newest first
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Source {
    AdminApi,
    CommandLine,
    Console,
    File,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ended {
    Allowed,
    Refused,
    Failed,
}

/// The value's name on the command line.
fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Entries that are asked for at a time.
const PAGE: u64 = 500;

/// Lists entries, or verifies their chain.
pub(super) fn audit(args: &AuditArgs, registry: Registry) -> u8 {
    let done = match (&*args.file, args.verify) {
        ([], is_verified) => args.admin.open_existing(registry).and_then(|admin| match is_verified {
            true => {
                let verified = admin.ask("GET", "/v1/audit/verify", None)?;
                let found = args.expect.as_ref().map(|expect| {
                    let path = format!("/v1/audit?limit=1&before={}", expect.seq.saturating_add(1));
                    let entry = admin.ask("GET", &path, None)?["items"][0].take();
                    let (seq, hash) = (entry["seq"].as_u64(), entry["hash"].as_str());
                    Ok::<_, u8>(seq.zip(hash).map(|(seq, hash)| Tip { seq, hash: hash.to_owned() }))
                });
                told(args, &verified, found.transpose()?.flatten())
            }
            false => listed(args, |path| admin.ask("GET", path, None)),
        }),
        (_, true) => verify_files(args),
        (_, false) => of_files(args),
    };
    done.unwrap_or_else(|code| code)
}

/// Verifies the chain in files.
fn verify_files(args: &AuditArgs) -> Result<u8, u8> {
    let checked = verify(&args.file).map_err(failed)?;
    if checked.foreign > 0 {
        print::error(format_args!("{} lines are not entries", checked.foreign));
    }
    if checked.unchained > 0 {
        let count = checked.unchained;
        print::error(format_args!("{count} entries are in no chain, because the database was away"));
    }
    if checked.missing > 0 {
        print::error(format_args!(
            "{} entries are not in these files. Give the files of all gateways on the database, each with --file, or say \
             --partial",
            checked.missing
        ));
    }
    let verified = serde_json::to_value(&checked).map_err(failed)?;
    let found = args.expect.as_ref().map(|expect| {
        let query = Query { before: Some(expect.seq.saturating_add(1)), limit: 1, ..Query::default() };
        newest(&args.file, &query).map(|lines| lines.first().map(ChainLine::tip))
    });
    let code = told(args, &verified, found.transpose()?.flatten())?;
    if let (0, Some(file)) = (checked.verified.entries + checked.unchained, args.file.first()) {
        return Ok(print::nothing_checked(file, "entry"));
    }
    Ok(if checked.missing > 0 && !args.partial { FAILED } else { code })
}

/// The newest entries of files that fit, the newest first.
fn newest(paths: &[PathBuf], query: &Query) -> Result<Vec<ChainLine>, u8> {
    let mut found = Vec::new();
    for path in paths {
        found.extend(page(path, query).map_err(failed)?);
    }
    // Those in no chain have a time only; of others the number says more.
    found.sort_by_key(|line| std::cmp::Reverse((line.at, line.seq)));
    found.dedup_by(|one, other| one.hash == other.hash);
    found.truncate(query.limit);
    Ok(found)
}

fn failed(error: impl std::fmt::Display) -> u8 {
    print::error(error);
    FAILED
}

/// Prints what verifying found; `found` is the entry that has to be the expected one.
fn told(args: &AuditArgs, verified: &Value, found: Option<Tip>) -> Result<u8, u8> {
    let number = |key: &str| verified[key].as_u64().unwrap_or_default();
    let newest = format!("{}:{}", number("last"), verified["hash"].as_str().unwrap_or_default());
    let is_expected = args.expect.as_ref().is_none_or(|expect| found.as_ref() == Some(&expect.as_tip()));
    let is_good = verified["valid"] == true && is_expected;
    match args.output {
        OutputFormat::Json => print::line(verified),
        OutputFormat::Text => {
            print::line(format_args!("{} entries, {} to {newest}", number("entries"), number("first")));
        }
    }
    let broken = &verified["broken"];
    if !broken.is_null() {
        let why = broken["why"].as_str().unwrap_or_default();
        print::error(format_args!("The chain is broken at entry {}: {why}", broken["seq"]));
    }
    if let Some(expect) = args.expect.as_ref().filter(|_| !is_expected) {
        let why = match found.filter(|found| found.seq == expect.seq) {
            Some(found) => format!("has the hash {}, which is not the expected one", found.hash),
            None => "is not there; it may be pruned".to_owned(),
        };
        print::error(format_args!("Entry {} {why}", expect.seq));
    }
    Ok(if is_good { 0 } else { FAILED })
}

/// Asks page by page.
fn listed(args: &AuditArgs, ask: impl Fn(&str) -> Result<Value, u8>) -> Result<u8, u8> {
    let filter = &args.filter;
    let mut pairs = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        let value = value.map(|value| utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string());
        pairs.extend(value.map(|value| format!("&{name}={value}")));
    };
    add("actor", filter.actor.clone());
    add("source", filter.source.map(name));
    add("outcome", filter.outcome.map(name));
    add("kind", filter.kind.clone());
    add("id", filter.id.clone());
    let since = filter.since.map(|since| SystemTime::now() - std::time::Duration::from_secs(since.0));
    add("since", since.map(|since| Rfc3339(since).to_string()));
    let (mut left, mut next) = (filter.count, String::new());
    loop {
        let path = format!("/v1/audit?limit={}{}{next}", left.min(PAGE), pairs.concat());
        let page = ask(&path)?;
        for entry in page["items"].as_array().into_iter().flatten() {
            show(entry, args.output);
            left = left.saturating_sub(1);
        }
        match page["next"].as_str() {
            Some(before) if left > 0 => next = format!("&before={before}"),
            _ => return Ok(0),
        }
    }
}

fn of_files(args: &AuditArgs) -> Result<u8, u8> {
    let filter = &args.filter;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let query = Query {
        actor: filter.actor.clone(),
        source: filter.source.map(name),
        outcome: filter.outcome.map(name),
        kind: filter.kind.clone(),
        id: filter.id.clone(),
        since: filter.since.map(|since| now.saturating_sub(since.0) * 1000),
        limit: usize::try_from(filter.count).unwrap_or(usize::MAX),
        ..Query::default()
    };
    for line in newest(&args.file, &query)? {
        let entry = serde_json::from_str(&ChainLine::with_hash(&line)).map_err(failed)?;
        show(&entry, args.output);
    }
    Ok(0)
}

/// Objects of one entry that are shown to people.
const MAX_CHANGES: usize = 50;

fn show(entry: &Value, output: OutputFormat) {
    match output {
        OutputFormat::Json => print::line(entry),
        OutputFormat::Text => print::line(text(entry)),
    }
}

/// One line for people, and one for each object. What clients sent is shown without control characters.
fn text(entry: &Value) -> String {
    let field = |value: &Value| match value {
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let with = |before: &str, value: &Value| match field(value) {
        text if text.is_empty() => text,
        text => format!("{before}{text}"),
    };
    let words = [
        if entry["unchained"] == true { "unchained".to_owned() } else { field(&entry["seq"]) },
        field(&entry["at"]),
        field(&entry["outcome"]),
        field(&entry["action"]),
        with("by ", &entry["actor"]),
        with("certificate ", &entry["certificate"]),
        with("from ", &entry["peer"]),
        with("status ", &entry["status"]),
        field(&entry["reason"]),
        with("revision ", &entry["revision"]),
        with("note: ", &entry["note"]),
        with("suppressed: ", &entry["suppressed"]),
    ];
    let mut text = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let changes = entry["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    for change in changes.iter().take(MAX_CHANGES) {
        let sign = match change["action"].as_str() {
            Some("create") => '+',
            Some("delete") => '-',
            _ => '~',
        };
        text.push_str(&format!("\n    {sign} {}/{}", field(&change["kind"]), field(&change["id"])));
    }
    if let Some(more @ 1..) = changes.len().checked_sub(MAX_CHANGES) {
        text.push_str(&format!("\n    … and {more} more; --output json has all"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MAX_CHANGES, text};

    #[test]
    fn an_import_does_not_fill_the_screen() {
        let change = json!({ "kind": "proxies", "id": "a", "action": "create" });
        let lines = |count: usize| text(&json!({ "seq": 1, "changes": vec![change.clone(); count] }));
        assert_eq!(lines(MAX_CHANGES).lines().count(), 1 + MAX_CHANGES);
        let many = lines(MAX_CHANGES + 7);
        assert_eq!(many.lines().count(), 2 + MAX_CHANGES);
        assert!(many.ends_with("… and 7 more; --output json has all"), "{many}");
    }

    #[test]
    fn an_entry_is_a_line_that_no_value_breaks() {
        let entry = json!({
            "seq": 7, "at": "T", "actor": "ann\u{1b}[31m\nroot", "outcome": "allowed", "action": "PUT /v1/proxies/a",
            "peer": "127.0.0.1:5", "revision": 3, "changes": [
                { "kind": "proxies", "id": "a", "action": "update" }, { "kind": "consumers", "id": "b", "action": "delete" },
            ],
        });
        assert_eq!(
            text(&entry),
            "7 T allowed PUT /v1/proxies/a by ann\u{fffd}[31m\u{fffd}root from 127.0.0.1:5 revision 3\n    ~ proxies/a\n    - consumers/b"
        );
    }
}
