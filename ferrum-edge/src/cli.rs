//! The command line: what the program does when it is told to.
//!
//! Exit codes: 0 is good, 1 a failure while running, 2 a wrong use, 3 a bad configuration; `diff` ends with 4 when it finds differences, `status` with 5 when something is wrong with the gateway; `apply`, `sync` and `rollback` with 6 when the change waits for an approval.

mod acme;
mod address;
mod admin;
mod audit;
mod cache;
mod changes;
mod check;
mod consumers;
mod database;
mod descriptors;
mod doctor;
mod explain;
#[cfg(feature = "fleet")]
mod fleet;
mod gitops;
mod grants_file;
mod handover;
mod import;
mod init;
mod logs;
mod notify;
mod offline;
mod pid_file;
mod print;
mod process;
mod quickstart;
mod reference;
mod reload;
mod revisions;
mod run;
mod running;
mod secrets;
mod serve;
mod spec;
mod status;
mod store;
mod tail;
mod test;
#[cfg(feature = "top")]
mod top;
mod traffic;
mod usage;
mod used_ports;
#[cfg(feature = "console")]
mod users;
mod waf;
mod workspaces;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use gateway_core::plugin::Registry;

pub use spec::SpecArgs;

/// A failure while running.
const FAILED: u8 = 1;
/// A wrong use; clap's own, too.
const MISUSED: u8 = 2;
/// A bad configuration.
const BAD_CONFIG: u8 = 3;
/// `diff` found differences.
const DIFFERENT: u8 = 4;
/// `status` found an error.
const TROUBLED: u8 = 5;
/// The change of `apply`, `sync` or `rollback` waits for an approval.
const PENDING: u8 = 6;

/// A multi-protocol API gateway.
#[derive(Debug, Parser)]
#[command(name = "ferrum-edge", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway; SIGTERM and SIGINT drain and stop, SIGHUP reloads, SIGUSR1 reopens the access log, SIGUSR2 starts a successor
    Run(run::RunArgs),
    /// Run a demo configuration with a built-in upstream
    Quickstart(quickstart::QuickstartArgs),
    /// Write a first configuration file
    Init(init::InitArgs),
    /// Serve the files of a folder over HTTP
    Serve(serve::ServeArgs),
    /// Check a configuration and report all errors
    #[command(visible_alias = "validate")]
    Check(check::CheckArgs),
    /// Check this machine and a configuration for problems, and suggest fixes
    Doctor(doctor::DoctorArgs),
    /// Reload the configuration of a running gateway and report the result
    Reload(reload::ReloadArgs),
    /// Print or follow the access records of a running gateway
    Logs(tail::LogsArgs),
    /// List configuration changes, or verify the integrity of the audit log
    Audit(audit::AuditArgs),
    /// Purge or warm the response cache of a running gateway
    Cache(cache::CacheArgs),
    /// Show or reset the usage of traffic quotas
    Usage(usage::UsageArgs),
    /// List consumers with their credentials' kinds and groups
    Consumers(consumers::ConsumersArgs),
    /// List the certificates that a gateway gets from a CA, or renew one now
    Acme(acme::AcmeArgs),
    /// List, add, change or remove the users of the console
    #[cfg(feature = "console")]
    Users(users::UsersArgs),
    /// List, make, change or remove workspaces: named sets of objects, for grants
    Workspaces(workspaces::WorkspacesArgs),
    /// List what was changed in a database, when and by whom; or show one change
    Revisions(revisions::RevisionsArgs),
    /// List, approve, reject or withdraw changes that another user has to approve
    Changes(changes::ChangesArgs),
    /// Make the configuration of a database what it was at a revision
    Rollback(revisions::RollbackArgs),
    /// Hash a password from standard input, for `password_hash` of a consumer
    HashPassword(secrets::HashPasswordArgs),
    /// Print a random key, for keys and secrets of a configuration
    GenerateKey(secrets::GenerateKeyArgs),
    /// Migrate a database to the schema of this version
    Migrate(store::MigrateArgs),
    /// Show the status of a running gateway, or of a database, and what is wrong with it; exit code 5 if there are errors
    Status(status::StatusArgs),
    /// Manage the edges of a control plane
    #[cfg(feature = "fleet")]
    Fleet(fleet::FleetArgs),
    /// Show the traffic of a running gateway: rates, percentiles, errors
    #[cfg(feature = "top")]
    Top(top::TopArgs),
    /// Write the configuration of a gateway or a database to a file
    Dump(gitops::DumpArgs),
    /// Show the differences between a file and the configuration of a database, or recorded requests; exit code 4 if there are any
    Diff(gitops::DiffArgs),
    /// Create and update the objects of a file in one change; keep all others. Exit code 6 if the change waits for an approval
    Apply(gitops::ApplyArgs),
    /// Like apply; with --prune, delete objects that are not in the file. Exit code 6 if the change waits for an approval
    Sync(gitops::SyncArgs),
    /// Convert another gateway's configuration, and report how each part was handled
    Import(import::ImportArgs),
    /// Test a configuration offline: send the requests of a file through it, and compare the results
    Test(test::TestArgs),
    /// Show which proxy a request would match, and why
    Explain(explain::ExplainArgs),
    /// Check rules of the web application firewall, or run a request through them
    Waf(waf::WafArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// List the plugins, or show the settings of one
    Plugins(reference::PluginsArgs),
    /// List the environment variables
    Settings(reference::SettingsArgs),
    /// Print the version
    Version(reference::VersionArgs),
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// For people
    Text,
    /// For machines
    Json,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, Args)]
struct Verbosity {
    /// Log more than listeners, configuration changes and failures: -vv details, -vvv everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Who runs the program, for the audit.
fn user() -> String {
    let name = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let uid = rustix::process::getuid().as_raw();
    name.filter(|name| !name.is_empty())
        .map_or_else(|| format!("uid {uid}"), |name| format!("{name} (uid {uid})"))
}

/// What the command line says. The variable `FERRUM_SPEC` may stand beside a file that is given by itself, the flag may not.
fn parsed() -> Cli {
    let matches = Cli::command().get_matches();
    let is_flag =
        |matches: &ArgMatches, name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    if let Some((command @ ("run" | "check" | "doctor"), given)) = matches.subcommand()
        && is_flag(given, "file")
        && is_flag(given, "spec")
    {
        let why = format!("`{command}` takes FILE or --spec FILE, not both");
        Cli::command().error(ErrorKind::ArgumentConflict, why).exit();
    }
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Does what the command line says, with the plugins of `registry`. For programs that add plugins of their own and
/// want to be used like `ferrum-edge` otherwise.
pub fn main(registry: Registry) -> ExitCode {
    let code = match parsed().command {
        Command::Run(args) => run::run(args, registry),
        Command::Quickstart(args) => quickstart::quickstart(args, registry),
        Command::Init(args) => init::init(&args, &registry),
        Command::Serve(args) => serve::serve(args, registry),
        Command::Consumers(args) => consumers::consumers(&args, registry),
        Command::Acme(args) => acme::acme(&args),
        Command::Check(args) => check::check(&args, &registry),
        Command::Doctor(args) => doctor::doctor(&args, registry),
        Command::Reload(args) => reload::reload(&args),
        Command::Logs(args) => tail::logs(&args),
        Command::Audit(args) => audit::audit(&args, registry),
        Command::Cache(args) => cache::cache(&args),
        Command::Usage(args) => usage::usage(&args),
        #[cfg(feature = "console")]
        Command::Users(args) => users::users(&args, registry),
        Command::Workspaces(args) => workspaces::workspaces(&args, registry),
        Command::Revisions(args) => revisions::revisions(&args, registry),
        Command::Changes(args) => changes::changes(&args, registry),
        Command::Rollback(args) => revisions::rollback(&args, registry),
        Command::HashPassword(args) => secrets::hash_password(&args),
        Command::GenerateKey(args) => secrets::generate_key(&args),
        Command::Migrate(args) => store::migrate(&args),
        Command::Status(args) => status::status(&args, registry),
        #[cfg(feature = "fleet")]
        Command::Fleet(args) => fleet::fleet(&args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::top(&args),
        Command::Dump(args) => gitops::dump(&args, registry),
        Command::Diff(args) => gitops::diff(&args, registry),
        Command::Apply(args) => gitops::apply(&args, registry),
        Command::Sync(args) => gitops::sync(&args, registry),
        Command::Import(args) => import::import(&args, &registry),
        Command::Test(args) => test::test(&args, &registry),
        Command::Explain(args) => explain::explain(&args, registry),
        Command::Waf(args) => waf::waf(&args),
        Command::Schema => reference::schema(),
        Command::Plugins(args) => reference::plugins(&args, &registry),
        Command::Settings(args) => reference::settings(&args),
        Command::Version(args) => reference::version(&args),
        Command::Completions { shell } => reference::completions::<Cli>(shell),
    };
    crate::export::program_log::flush();
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
