//! The command line: what the program does when it is told to.
//!
//! Exit codes: 0 is good, 1 a failure while running, 2 a wrong use, 3 a bad configuration; `diff` ends with 4 when it finds differences.

mod admin;
mod check;
mod database;
mod explain;
mod gitops;
mod import;
mod logs;
mod notify;
mod print;
mod process;
mod quickstart;
mod reference;
mod reload;
mod run;
mod spec;
mod store;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gateway_core::plugin::Registry;

pub use spec::SpecArgs;

/// A failure while running.
const FAILED: u8 = 1;
/// A wrong use; clap's own, too.
const MISUSED: u8 = 2;
/// A bad configuration.
const BAD_CONFIG: u8 = 3;

/// A multi-protocol API gateway.
#[derive(Debug, Parser)]
#[command(name = "ferrum-edge", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the gateway until it is told to stop: SIGTERM and SIGINT drain, SIGHUP reloads, SIGUSR1 reopens the access log
    Run(run::RunArgs),
    /// Runs a ready-made configuration with a demo upstream of its own, to try things with curl
    Quickstart(quickstart::QuickstartArgs),
    /// Checks a configuration and tells every problem at once
    #[command(visible_alias = "validate")]
    Check(check::CheckArgs),
    /// Makes a running gateway read its configuration again, and tells whether it took it
    Reload(reload::ReloadArgs),
    /// Brings a database to the schema this program needs
    Migrate(store::MigrateArgs),
    /// Tells how a running gateway stands
    Status(store::StatusArgs),
    /// Writes the configuration of a gateway or a database as a file
    Dump(gitops::DumpArgs),
    /// Tells what is different between a file and the configuration in use; exit code 4 when something is
    Diff(gitops::DiffArgs),
    /// Puts what a file has, as one change; what else there is stays
    Apply(gitops::ApplyArgs),
    /// As apply, and with --prune deletes what the file doesn't have
    Sync(gitops::SyncArgs),
    /// Translates a Kong (decK) or nginx configuration, and names what could not be translated
    Import(import::ImportArgs),
    /// Tells which way a request would take, and why
    Explain(explain::ExplainArgs),
    /// Prints the JSON Schema of configurations
    Schema,
    /// Lists the plugins and their settings
    Plugins(reference::PluginsArgs),
    /// Lists the environment variables and what they set
    Settings,
    /// Prints the version
    Version(reference::VersionArgs),
    /// Prints a script that completes this program's arguments in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For machines
    Json,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, Args)]
struct Verbosity {
    /// Logs more: -v what listens where and every change, -vv details, -vvv everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Does what the command line says, with the plugins of `registry`. For programs that add plugins of their own and
/// want to be used like `ferrum-edge` otherwise.
pub fn main(registry: Registry) -> ExitCode {
    let code = match Cli::parse().command {
        Command::Run(args) => run::run(args, registry),
        Command::Quickstart(args) => quickstart::quickstart(args, registry),
        Command::Check(args) => check::check(&args, &registry),
        Command::Reload(args) => reload::reload(&args, &registry),
        Command::Migrate(args) => store::migrate(&args),
        Command::Status(args) => store::status(&args, registry),
        Command::Dump(args) => gitops::dump(&args, registry),
        Command::Diff(args) => gitops::diff(&args, registry),
        Command::Apply(args) => gitops::apply(&args, registry),
        Command::Sync(args) => gitops::sync(&args, registry),
        Command::Import(args) => import::import(&args),
        Command::Explain(args) => explain::explain(&args, registry),
        Command::Schema => reference::schema(),
        Command::Plugins(args) => reference::plugins(&args, &registry),
        Command::Settings => reference::settings(),
        Command::Version(args) => reference::version(&args),
        Command::Completions { shell } => reference::completions::<Cli>(shell),
    };
    logs::flush();
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
