//! The configuration of a database as a file, and back: `dump`, `diff`, `apply`, `sync`.
//!
//! What `dump` writes, `diff` finds no difference to: also credentials, which are dumped as they are stored.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gateway_core::config::file::{self, KeepReferences, Origin, References};
use gateway_core::plugin::Registry;
use serde_json::Value;

use super::admin::{Admin, AdminArgs, exit_code, tell};
use super::changes::{is_pending, pending_number};
use super::traffic;
use super::{BAD_CONFIG, DIFFERENT, FAILED, MISUSED, OutputFormat, PENDING, print};
use crate::source::file::{Machine, read_text};

/// Arguments of `dump`.
#[derive(Debug, Args)]
pub(super) struct DumpArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Writes here instead of standard output; nobody else may read it, since it holds hashed and sealed credentials
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How it is written
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How a configuration is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Yaml,
    /// For machines
    Json,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The configuration, YAML or JSON
    file: PathBuf,
    /// Sends references such as ${env:X} unresolved, so that the gateways resolve them
    #[arg(long)]
    keep_references: bool,
    /// Compares with recorded requests instead: an access log in JSON. Lists those that FILE would send elsewhere, refuse or admit
    #[arg(long, value_name = "LOG")]
    traffic: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text", conflicts_with = "traffic")]
    output: OutputFormat,
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// The configuration, YAML or JSON
    file: PathBuf,
    /// Sends references such as ${env:X} unresolved, so that the gateways resolve them
    #[arg(long)]
    keep_references: bool,
    #[command(flatten)]
    admin: AdminArgs,
    /// Reason, for the history
    #[arg(long, default_value = "", value_name = "TEXT")]
    note: String,
    /// Validates everything and writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints the change of each object, with fields before and after, and writes nothing; exit code 4 if there are changes
    #[arg(long, conflicts_with = "dry_run")]
    plan: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Arguments of `sync`.
#[derive(Debug, Args)]
pub(super) struct SyncArgs {
    #[command(flatten)]
    apply: ApplyArgs,
    /// Deletes objects that the file does not contain
    #[arg(long)]
    prune: bool,
}

/// Characters of a value that a difference shows.
const MAX_VALUE_CHARS: usize = 120;

/// Writes the configuration as a file.
pub(super) fn dump(args: &DumpArgs, registry: Registry) -> u8 {
    if let Some(word @ ("json" | "yaml" | "text")) = args.output.as_deref().and_then(Path::to_str) {
        print::error(format_args!(
            "--output names a file; write --format {word}, or -o ./{word} for a file of this name"
        ));
        return MISUSED;
    }
    told(args.admin.open_existing(registry).and_then(|admin| {
        let document = admin.ask("GET", "/v1/export", None)?;
        let text = match args.format {
            Format::Json => serde_json::to_string_pretty(&document).map_err(|error| error.to_string()),
            Format::Yaml => serde_saphyr::to_string(&document).map_err(|error| error.to_string()),
        };
        let text = text.map_err(|error| failed(&error))?;
        match &args.output {
            None => print::raw(format_args!("{}\n", text.trim_end())),
            Some(path) => {
                write(path, &text).map_err(|error| failed(&format!("{}: {error}", path.display())))?
            }
        }
        Ok(0)
    }))
}

/// Shows the differences between a file and the configuration in use.
pub(super) fn diff(args: &DiffArgs, registry: Registry) -> u8 {
    if let Some(log) = &args.traffic {
        return traffic::compare(&args.file, log, registry);
    }
    told(args.admin.open_existing(registry).and_then(|admin| {
        let document = read(&args.file, args.keep_references)?;
        let answer = send(&admin, "/v1/import?validate_only&details", &args.file, &document)?;
        Ok(print_changes(&answer, args.output))
    }))
}

/// Prints the changes that the gateway found, in this format.
fn print_changes(answer: &Value, output: OutputFormat) -> u8 {
    match output {
        OutputFormat::Text => show_changes(answer),
        OutputFormat::Json => {
            print::line(answer);
            if answer["changes"].as_array().is_none_or(Vec::is_empty) { 0 } else { DIFFERENT }
        }
    }
}

/// Prints what would be done to each object, with the fields before and after. The code is 4 when there is anything.
pub(super) fn show_changes(answer: &Value) -> u8 {
    let changes = answer["changes"].as_array().map_or(&[][..], Vec::as_slice);
    for change in changes {
        let sign = match change["action"].as_str() {
            Some("create") => '+',
            Some("delete") => '-',
            _ => '~',
        };
        let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
        print::line(format_args!("{sign} {}/{}", text("kind"), text("id")));
        for field in change["fields"].as_array().into_iter().flatten() {
            let path = from_pointer(field["path"].as_str().unwrap_or_default());
            let value = |key: &str| match &field[key] {
                Value::Null => "(none)".to_owned(),
                value => shortened(&value.to_string()),
            };
            print::line(format_args!("    {path}: {} -> {}", value("before"), value("after")));
        }
    }
    if changes.is_empty() { 0 } else { DIFFERENT }
}

/// The beginning of a long value.
fn shortened(text: &str) -> String {
    if text.chars().count() <= MAX_VALUE_CHARS {
        return text.to_owned();
    }
    text.chars().take(MAX_VALUE_CHARS).chain(['…']).collect()
}

/// Puts what a file has; what else there is stays.
pub(super) fn apply(args: &ApplyArgs, registry: Registry) -> u8 {
    put(args, Rest::Kept, registry)
}

/// As `apply`; with `--prune` what the file doesn't have goes.
pub(super) fn sync(args: &SyncArgs, registry: Registry) -> u8 {
    put(&args.apply, if args.prune { Rest::Deleted } else { Rest::Kept }, registry)
}

/// What a command does with objects that the file does not contain.
#[derive(Debug, Clone, Copy)]
enum Rest {
    Kept,
    Deleted,
}

fn put(args: &ApplyArgs, rest: Rest, registry: Registry) -> u8 {
    // Who only checks makes no database either.
    let writes = !args.dry_run && !args.plan;
    let admin = if !writes { args.admin.open_existing(registry) } else { args.admin.open(registry) };
    told(admin.and_then(|admin| {
        let document = read(&args.file, args.keep_references)?;
        let note: String =
            percent_encoding::utf8_percent_encode(&args.note, percent_encoding::NON_ALPHANUMERIC).collect();
        let check = match (args.plan, args.dry_run) {
            (true, _) => "&validate_only&details",
            (_, true) => "&validate_only",
            _ => "",
        };
        let path = match rest {
            Rest::Deleted => format!("/v1/import?note={note}{check}"),
            Rest::Kept => format!("/v1/batch?note={note}{check}"),
        };
        let answer = send(&admin, &path, &args.file, &document)?;
        if args.plan {
            return Ok(print_changes(&answer, args.output));
        }
        if matches!(args.output, OutputFormat::Json) {
            print::line(&answer);
            return Ok(if pending_number(&answer).is_some() { PENDING } else { 0 });
        }
        if is_pending(&answer) {
            return Ok(PENDING);
        }
        let number = |key: &str| answer[key].as_u64().unwrap_or_default();
        print::line(format_args!(
            "revision {}: {} created, {} updated, {} deleted, {} unchanged{}",
            number("revision"),
            number("created"),
            number("updated"),
            number("deleted"),
            number("unchanged"),
            if args.dry_run { "; nothing was written" } else { "" },
        ));
        lacking_edges(&answer["edges_lacking"]);
        Ok(0)
    }))
}

/// Names the edges of a control plane whose version lacks a plugin of the file.
fn lacking_edges(lacking: &Value) {
    for one in lacking["edges"].as_array().into_iter().flatten() {
        let texts = |key: &str| one[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        let edge = one["edge"].as_str().unwrap_or_default();
        let left_out: Vec<&str> = texts("left_out").collect();
        let closed = texts("plugins").chain(texts("settings")).filter(|name| !left_out.contains(name));
        let closed: Vec<&str> = closed.collect();
        if !closed.is_empty() {
            print::line(format_args!(
                "edge {edge} lacks {}: what it protects is closed there",
                closed.join(", ")
            ));
        }
        if !left_out.is_empty() {
            print::line(format_args!("edge {edge} lacks {}: it is left out there", left_out.join(", ")));
        }
    }
}

/// A file as the admin API takes it, references in it answered here.
fn read(path: &Path, keeps_references: bool) -> Result<Value, u8> {
    let refused = |error: &dyn std::fmt::Display| {
        print::error(error);
        BAD_CONFIG
    };
    let text = read_text(path).map_err(|error| refused(&format!("{}: {error}", path.display())))?;
    let references: &dyn References = if keeps_references { &KeepReferences } else { &Machine };
    let mut document =
        file::document(&text, &Origin::file(path), references).map_err(|problems| refused(&problems))?;
    if !keeps_references {
        literal(&mut document);
    }
    if let Value::Object(sections) = &mut document {
        sections.shift_remove("version");
        if sections.shift_remove("gateway").is_some_and(|gateway| !gateway.is_null()) {
            print::error("The settings under `gateway` stay with each gateway; they are left out.");
        }
    }
    Ok(document)
}

/// Sends a file's document; problems are told by the file's lines.
fn send(admin: &Admin, path: &str, file: &Path, document: &Value) -> Result<Value, u8> {
    let answer = admin.exchange("POST", path, Some(document)).map_err(|error| {
        print::error(format_args!("The gateway does not answer: {error}"));
        FAILED
    })?;
    if (200..300).contains(&answer.status) {
        return Ok(answer.body);
    }
    match located(&answer.body, file) {
        Some(problems) if answer.status == 422 => {
            print::error(problems);
            Err(BAD_CONFIG)
        }
        _ => {
            tell(&answer);
            Err(exit_code(&answer))
        }
    }
}

/// The problems of an answer at their places in the file.
fn located(body: &Value, path: &Path) -> Option<gateway_core::config::problem::Problems> {
    use gateway_core::config::problem::{Problem, Problems};
    let errors = body.get("errors")?.as_array()?;
    let text = std::fs::read_to_string(path).ok()?;
    let problems = errors.iter().map(|error| {
        let of = |key: &str| error.get(key).and_then(Value::as_str);
        let mut problem = Problem::new(from_pointer(of("pointer")?), of("detail")?);
        problem.remedy = of("remedy").map(str::to_owned);
        Some(problem)
    });
    let problems = Problems(problems.collect::<Option<Vec<_>>>()?);
    Some(file::Positions::of(&text, &Origin::file(path)).locate(problems))
}

/// `/proxies/2/hosts/0` as `proxies[2].hosts[0]`.
fn from_pointer(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').filter(|part| !part.is_empty()) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push_str(&format!("[{part}]"));
            continue;
        }
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(&part.replace("~1", "/").replace("~0", "~"));
    }
    path
}

/// Texts that look like references stay what they are where they are read again.
fn literal(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("${") => {
            *text = text.replace("${env:", "$${env:").replace("${file:", "$${file:");
        }
        Value::Array(items) => items.iter_mut().for_each(literal),
        Value::Object(fields) => fields.values_mut().for_each(literal),
        _ => {}
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // The file may have been there, for others to read.
    if file.metadata()?.is_file() {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    file.write_all(text.as_bytes())
}

fn failed(error: &dyn std::fmt::Display) -> u8 {
    print::error(error);
    FAILED
}

fn told(result: Result<u8, u8>) -> u8 {
    result.unwrap_or_else(|code| code)
}
