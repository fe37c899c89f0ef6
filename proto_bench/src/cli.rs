//! The command line: commands, exit codes, and the flags that all load commands share.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command::{self, CommandError, ExitStatus};
use crate::measure::machine;

/// Loads servers over ten protocols, verifies every answer, and says when a figure is not to be believed.
///
/// Exit codes: 0 all rows valid, 1 failure, 2 usage, 4 at least one row void.
#[derive(Debug, Parser)]
#[command(name = "proto_bench", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One test against a URL or address.
    Run(command::run::Args),
    /// Echo servers for all protocols; prints their ports as JSON.
    Backend(command::backend::Args),
    /// All ten protocols, directly and through the gateway, with the same work on both.
    Matrix(command::matrix::Args),
    /// Load while the gateway's configuration grows through its admin API.
    Scale(command::scale::Args),
    /// Simulated edges behind a control plane: how soon they serve changes, one by one and in a storm.
    Fleet(command::fleet::Args),
    /// The same load from more and more connections.
    Clients(command::clients::Args),
    /// Open loop at rising rates, to find where latency leaves the ground.
    Sweep(command::sweep::Args),
    /// The highest rate at which the 99th percentile of the latency stays below a limit.
    Search(command::search::Args),
    /// Bulk in one direction at an offered load, over TCP or UDP, with every byte checked.
    Bulk(command::bulk::Args),
    /// nginx, HAProxy, Caddy, Envoy and the gateway side by side.
    Compare(command::compare::Args),
    /// The published tests of other projects against the gateway and the proxies that are installed.
    Replay(command::replay::Args),
    /// Bytes from one TCP connection to another and back: the floor of `compare`.
    Relay(command::relay::Args),
    /// HTML and Markdown from result files.
    Report(command::report::Args),
}

/// The exit code of a result with a void row.
pub const EXIT_VOID: u8 = 4;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    machine::raise_open_files();
    match dispatch(cli.command) {
        Ok(ExitStatus::Valid) => ExitCode::SUCCESS,
        Ok(ExitStatus::Void) => ExitCode::from(EXIT_VOID),
        Err(error) => {
            // Nobody is left to tell if standard error is closed.
            writeln!(std::io::stderr(), "proto_bench: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitStatus, CommandError> {
    match command {
        Command::Run(args) => command::run::run(args),
        Command::Backend(args) => command::backend::run(&args),
        Command::Matrix(args) => command::matrix::run(&args),
        Command::Scale(args) => command::scale::run(&args),
        Command::Fleet(args) => command::fleet::run(&args),
        Command::Clients(args) => command::clients::run(&args),
        Command::Sweep(args) => command::sweep::run(&args),
        Command::Search(args) => command::search::run(&args),
        Command::Bulk(args) => command::bulk::run(&args),
        Command::Compare(args) => command::compare::run(&args),
        Command::Replay(args) => command::replay::run(&args),
        Command::Relay(args) => command::relay::run(&args),
        Command::Report(args) => command::report::run(&args),
    }
}
