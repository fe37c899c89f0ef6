//! `check`: every problem of a configuration at once.

use std::path::PathBuf;

use clap::Args;
use gateway_core::config::model::Model;
use gateway_core::config::problem::{Problem, Problems};
use gateway_core::plugin::Registry;
use serde_json::json;

use super::run::Mode;
use super::{BAD_CONFIG, MISUSED, OutputFormat, SpecArgs, Verbosity, logs, print};
use crate::access::environment::access_given;
use crate::source::warnings;
use crate::variables::NOT_UTF_8;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Configuration file, instead of --spec
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    spec: SpecArgs,
    /// Where the rest of the configuration comes from; with a database, the file contains only settings
    #[arg(long, env = "FERRUM_MODE", value_enum, default_value_t, value_name = "MODE")]
    mode: Mode,
    /// Fails if there is a warning
    #[arg(long)]
    deny_warnings: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Checks and says so.
pub(super) fn check(args: &CheckArgs, registry: &Registry) -> u8 {
    logs::init(Verbosity { verbose: 0 });
    let Some(source) = args.spec.or(args.file.clone()).source(Vec::new()) else { return MISUSED };
    let result = match args.mode {
        Mode::File => source.load(registry),
        _ => source.load_settings(registry),
    };
    let result = with_tokens(result).and_then(|model| {
        let warnings = match args.mode {
            Mode::File => warnings::of(&model, registry)
                .map_err(|problems| problems.in_file(&source.spec.to_string()))?,
            // Everything but the settings is in the database.
            _ => warnings::of_environment(&model),
        };
        Ok((model, warnings))
    });
    let (result, warnings) = match result {
        Ok((model, warnings)) => (Ok(model), warnings),
        Err(problems) => (Err(problems), Vec::new()),
    };
    let (code, problems) = match &result {
        Ok(_) if args.deny_warnings && !warnings.is_empty() => (BAD_CONFIG, &[][..]),
        Ok(_) => (0, &[][..]),
        Err(Problems(problems)) => (BAD_CONFIG, &problems[..]),
    };
    match (args.output, &result) {
        (OutputFormat::Json, _) => {
            let problems: Vec<_> = problems.iter().map(document).collect();
            print::line(
                json!({ "valid": code == 0, "problems": problems, "warnings": warnings.iter().map(warnings::document).collect::<Vec<_>>() }),
            );
        }
        (OutputFormat::Text, Ok(model)) => {
            for warning in &warnings {
                print::line(format_args!("warning: {warning}"));
            }
            if code != 0 {
                print::line(format_args!("{} warnings, which are denied", warnings.len()));
                return code;
            }
            let counts = [
                (model.proxies.len(), "proxy", "proxies"),
                (model.upstreams.len(), "upstream", "upstreams"),
                (model.consumers.len(), "consumer", "consumers"),
                (model.plugin_configs.len(), "plugin config", "plugin configs"),
            ];
            let counts =
                counts.map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }));
            print::line(format_args!("{}: good ({})", source.spec, counts.join(", ")));
        }
        (OutputFormat::Text, Err(problems)) => {
            print::line(problems);
            let count = problems.count();
            print::line(format_args!("{count} {}", if count == 1 { "problem" } else { "problems" }));
        }
    }
    code
}

/// The same with what is wrong with the tokens of the environment, with which no gateway starts.
fn with_tokens(result: Result<Model, Problems>) -> Result<Model, Problems> {
    match (result, access_given()) {
        (result, Ok(_)) => result,
        (Ok(_), Err(problems)) => Err(problems),
        (Err(mut all), Err(problems)) => {
            // What is not UTF-8 is told already.
            all.extend(problems.0.into_iter().filter(|problem| problem.message != NOT_UTF_8));
            Err(all)
        }
    }
}

fn document(problem: &Problem) -> serde_json::Value {
    json!({
        "file": problem.file,
        "line": (problem.line > 0).then_some(problem.line),
        "path": problem.path,
        "message": problem.message,
        "remedy": problem.shown_remedy(),
    })
}
