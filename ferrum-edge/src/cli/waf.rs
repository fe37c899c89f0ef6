//! `waf`: what of a folder of rules can be used, and what rules say of a request.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use gateway_waf::pack::{Profile, from_files, is_rule_file, own_rules};
use gateway_waf::{
    Buffers, Limits, Problem, Report, RequestHead, Ruleset, Severity, Sources, Transaction, compile,
};
use serde_json::{Value, json};

use super::{BAD_CONFIG, FAILED, MISUSED, OutputFormat, print};

/// Arguments of `waf`.
#[derive(Debug, Args)]
pub(super) struct WafArgs {
    #[command(subcommand)]
    command: WafCommand,
}

#[derive(Debug, Subcommand)]
enum WafCommand {
    /// Report unusable rules of a folder, with file and line; exit code 3 if there are any
    Check(CheckArgs),
    /// Run a request through rules, and report the matches
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The folder: *.conf and *.data in it and in its folders `rules` and `plugins`
    folder: PathBuf,
    /// Paranoia level of the Core Rule Set: rules of higher levels are not checked
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=4))]
    paranoia_level: u8,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

#[derive(Debug, Args)]
struct ExplainArgs {
    /// The method
    method: String,
    /// Path and query, such as `/?q=1`
    target: String,
    /// `balanced`, `aggressive`, or a folder of rules
    #[arg(long, default_value = "balanced")]
    rules: String,
    /// The paranoia level of the Core Rule Set
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    paranoia_level: Option<u8>,
    /// A header field, such as `Content-Type: application/json`; may be given several times. Default `Host: localhost`
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The body. `Content-Length` is added, and without a `Content-Type` that of a form, as in curl
    #[arg(long, short = 'd')]
    data: Option<String>,
    /// The client's address
    #[arg(long, default_value = "203.0.113.1")]
    client: IpAddr,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Does what the arguments say.
pub(super) fn waf(args: &WafArgs) -> u8 {
    match &args.command {
        WafCommand::Check(args) => check(args),
        WafCommand::Explain(args) => explain(args),
    }
}

/// Bytes of one file of rules.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Why a folder of rules can't be read.
#[derive(Debug, thiserror::Error)]
enum FolderError {
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} has more than {MAX_FILE_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    #[error("{} has no rule files (*.conf)", .0.display())]
    NoRules(PathBuf),
}

fn folder_sources(folder: &Path) -> Result<Sources, FolderError> {
    let mut files = Vec::new();
    for below in ["", "rules", "plugins"] {
        let path = if below.is_empty() { folder.to_owned() } else { folder.join(below) };
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(_) if !below.is_empty() => continue,
            Err(error) => return Err(FolderError::File { path, error }),
        };
        for entry in entries {
            let path = entry.map_err(|error| FolderError::File { path: path.clone(), error })?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !path.is_file() || !is_rule_file(name) {
                continue;
            }
            let failed = |error| FolderError::File { path: path.clone(), error };
            if fs::metadata(&path).map_err(failed)?.len() > MAX_FILE_BYTES {
                return Err(FolderError::TooLarge(path));
            }
            files.push((path.to_string_lossy().into_owned(), fs::read(&path).map_err(failed)?));
        }
    }
    let sources = from_files(files);
    if sources.files.is_empty() {
        return Err(FolderError::NoRules(folder.to_owned()));
    }
    Ok(sources)
}

const OLD: &str = "these are rules of the Core Rule Set 3, whose patterns need another engine; use version 4";

/// Whether a file says that it is of the Core Rule Set 3.
fn is_old(sources: &Sources) -> bool {
    sources.files.iter().any(|file| file.text.contains("OWASP_CRS/3."))
}

fn set_level(sources: &mut Sources, level: u8) {
    for name in ["blocking_paranoia_level", "detection_paranoia_level"] {
        sources.variables.push((name.to_owned(), level.to_string()));
    }
}

fn check(args: &CheckArgs) -> u8 {
    let mut sources = match folder_sources(&args.folder) {
        Ok(sources) => sources,
        Err(message) => {
            print::error(&message);
            return FAILED;
        }
    };
    set_level(&mut sources, args.paranoia_level);
    let (summary, mut problems) = match compile(&sources) {
        Ok((ruleset, notes)) => (Some(ruleset.summary().clone()), notes),
        Err(problems) => (None, problems),
    };
    problems
        .sort_by(|one, other| (&one.place.file, one.place.line).cmp(&(&other.place.file, other.place.line)));
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    if args.output == OutputFormat::Json {
        let problems: Vec<Value> = problems.iter().map(document).collect();
        let rules = summary.as_ref().map(|it| json!({"written": it.written, "active": it.active}));
        print::line(json!({ "valid": summary.is_some(), "rules": rules, "problems": problems }));
    } else {
        for problem in &problems {
            print::line(problem);
        }
        if summary.is_none() && is_old(&sources) {
            print::line(OLD);
        }
        match &summary {
            Some(it) => print::line(format_args!("{} rules, {} of them active", it.written, it.active)),
            None => print::line(print::counted(errors as u64, "problem")),
        }
    }
    if summary.is_some() { 0 } else { BAD_CONFIG }
}

fn document(problem: &Problem) -> Value {
    json!({
        "file": &*problem.place.file,
        "line": problem.place.line,
        "severity": if problem.severity == Severity::Error { "error" } else { "note" },
        "message": problem.message,
    })
}

fn load(rules: &str, level: Option<u8>) -> Result<Ruleset, u8> {
    let mut sources = match rules {
        "balanced" => own_rules(Profile::Balanced),
        "aggressive" => own_rules(Profile::Aggressive),
        folder => folder_sources(Path::new(folder)).map_err(|message| {
            print::error(&message);
            FAILED
        })?,
    };
    if let Some(level) = level {
        set_level(&mut sources, level);
    }
    match compile(&sources) {
        Ok((ruleset, _)) => Ok(ruleset),
        Err(problems) => {
            for problem in problems.iter().filter(|problem| problem.severity == Severity::Error) {
                print::error(problem);
            }
            if is_old(&sources) {
                print::error(OLD);
            }
            Err(BAD_CONFIG)
        }
    }
}

fn explain(args: &ExplainArgs) -> u8 {
    let ruleset = match load(&args.rules, args.paranoia_level) {
        Ok(ruleset) => ruleset,
        Err(code) => return code,
    };
    let mut headers: Vec<(&str, &str)> = Vec::new();
    for field in &args.headers {
        let Some((name, value)) = field.split_once(':') else {
            print::error(format_args!("`{field}` is not like `Name: value`"));
            return MISUSED;
        };
        headers.push((name.trim(), value.trim()));
    }
    let length = args.data.as_ref().map(|data| data.len().to_string());
    let form = length.as_ref().map(|_| "application/x-www-form-urlencoded");
    let has = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    // Every client sends these, and rules ask for them.
    let length = length.as_deref().filter(|_| !has("transfer-encoding"));
    let usual = [("Host", Some("localhost")), ("Content-Type", form), ("Content-Length", length)];
    let missing: Vec<(&str, &str)> = usual
        .into_iter()
        .filter(|(name, _)| !has(name))
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    headers.extend(missing);
    let headers: Vec<(&[u8], &[u8])> =
        headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let mut transaction = Transaction::new(Arc::new(ruleset), Limits::default(), Buffers::without_cache());
    transaction.only_detect();
    transaction.request_head(&RequestHead {
        method: args.method.as_bytes(),
        target: args.target.as_bytes(),
        version: "HTTP/1.1",
        headers: &headers,
        client: args.client,
        unique_id: b"",
    });
    transaction.request_body(args.data.as_deref().unwrap_or_default().as_bytes());
    let report = transaction.report();
    match args.output {
        OutputFormat::Json => print::line(explained(&report)),
        OutputFormat::Text => print_report(&report),
    }
    0
}

fn explained(report: &Report) -> Value {
    let matches: Vec<Value> = (report.matches.iter())
        .map(|found| {
            json!({
                "rule": found.rule, "place": found.place, "message": found.message,
                "variable": found.variable, "excerpt": found.excerpt, "score": found.score, "tags": found.tags,
            })
        })
        .collect();
    json!({
        "refused_by": report.denied.map(|denial| denial.rule),
        "score": report.score,
        "matches": matches,
        "body_error": report.body_error,
    })
}

fn print_report(report: &Report) {
    for found in &report.matches {
        print::line(format_args!("{:>8} {:>+4}  {}", found.rule, found.score, found.message));
        if !found.variable.is_empty() {
            print::line(format_args!("{:15}{}: {}", "", found.variable, found.excerpt));
        }
        if !found.tags.is_empty() {
            print::line(format_args!("{:15}tags: {}", "", found.tags.join(", ")));
        }
    }
    // Rules that write no log are not listed, but their scores count.
    let unlisted = report.score - report.matches.iter().map(|found| found.score).sum::<i64>();
    if unlisted != 0 {
        print::line(format_args!("{:>8} {unlisted:>+4}  rules that write no log", ""));
    }
    if let Some(error) = report.body_error {
        print::line(format_args!("the body can't be read: {error}"));
    }
    match report.denied {
        Some(denial) => print::line(format_args!("refused by {}, score {}", denial.rule, report.score)),
        None => print::line(format_args!("passes, score {}", report.score)),
    }
}
