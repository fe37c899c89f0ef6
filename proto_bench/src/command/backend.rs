//! `backend`: echo servers in a process of their own.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::{CommandError, output};
use crate::backend::{Backend, Options, Service};
use crate::command::ExitStatus;
use crate::tls::Identity;

/// Arguments of `backend`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to serve; `http` speaks WebSocket too, `h2c` speaks gRPC too. All without it.
    #[arg(short = 'p', long = "protocol", value_enum, value_delimiter = ',')]
    services: Vec<Service>,
    /// Port of the first service; the next ones follow in the order given. 0 lets the system choose.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// Threads, each with its own sockets; one a core unless told.
    #[arg(short = 't', long)]
    threads: Option<usize>,
    /// Writes the self-made certificate as cert.pem, key.pem and both.pem into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    write_certificate: Option<PathBuf>,
    /// Ends when standard input is closed, so that the servers don't outlive who started them.
    #[arg(long)]
    exit_with_stdin: bool,
}

/// Serves until the process is ended.
///
/// # Errors
/// A port that is taken.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let defaults = Options::default();
    let options = Options {
        services: if args.services.is_empty() { defaults.services } else { args.services.clone() },
        address: args.address,
        first_port: args.port,
        threads: args.threads.unwrap_or(defaults.threads),
    };
    let identity = Identity::generate()?;
    if let Some(directory) = &args.write_certificate {
        identity.write_to(directory)?;
    }
    let backend = Backend::start(&options, identity)?;
    let ports = serde_json::to_string(&backend.ports).unwrap_or_default();
    output::print(&format!("{ports}\n"))?;
    if args.exit_with_stdin {
        // Ends at the end of the input or at any error, both of which mean that the parent is gone.
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        drop(backend);
    } else {
        backend.wait();
    }
    Ok(ExitStatus::Valid)
}
