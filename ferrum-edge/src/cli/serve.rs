//! `serve`: the files of a folder over HTTP, without a configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use gateway_core::plugin::Registry;
use serde_json::{Value, json};

use super::run::{self, ConfigSource, Flags};
use super::{MISUSED, Verbosity, logs, print};
use crate::engine::listeners::Addresses;
use crate::source::file::{Source, Spec};

/// Arguments of `serve`.
#[derive(Debug, Clone, Args)]
pub(super) struct ServeArgs {
    /// The folder [default: the one you are in]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// List folders that have no index.html
    #[arg(long)]
    listing: bool,
    /// Serve this file if a page is not found, for applications that route in the browser
    #[arg(long, value_name = "FILE")]
    spa: Option<String>,
    /// Send .br, .zst and .gz files to clients that accept them
    #[arg(long)]
    precompressed: bool,
    /// Print the configuration instead of running it
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    verbosity: Verbosity,
}

/// Serves until told to stop.
pub(super) fn serve(args: ServeArgs, registry: Registry) -> u8 {
    let folder = args.folder.clone().unwrap_or_else(|| PathBuf::from("."));
    let root = match folder.canonicalize() {
        Ok(root) => root,
        Err(error) => {
            print::error(format_args!("{} can't be served: {error}", folder.display()));
            return MISUSED;
        }
    };
    if !root.is_dir() {
        print::error(format_args!("{} is not a folder; name the folder it is in", folder.display()));
        return MISUSED;
    }
    if let Err(error) = std::fs::read_dir(&root) {
        print::error(format_args!("{} can't be served: {error}", folder.display()));
        return MISUSED;
    }
    if let Some(page) = args.spa.as_deref().filter(|page| !root.join(page.trim_start_matches('/')).is_file())
    {
        print::error(format_args!("--spa {page}: there is no such file in {}", root.display()));
        return MISUSED;
    }
    let Some(root) = root.to_str() else {
        print::error(format_args!("{} can't be served: its name is not text", folder.display()));
        return MISUSED;
    };
    let spec = spec(&args, root);
    if args.print {
        print::line(serde_json::to_string_pretty(&spec).unwrap_or_default());
        return 0;
    }
    logs::init(args.verbosity);
    let source =
        Source { spec: Spec::Text { name: "serve.json", text: spec.to_string() }, flags: Vec::new() };
    run::serve(&source, ConfigSource::File, &Flags::default(), registry, |addresses| welcome(addresses, root))
}

fn welcome(addresses: &Addresses, root: &str) {
    let Some(http) = addresses.http else { return };
    print::notice(format_args!("Serving {root} at http://{http}. Stop it with Ctrl-C."));
}

/// The configuration: one proxy, whose target is never asked.
fn spec(args: &ServeArgs, root: &str) -> Value {
    let mut files = json!({ "root": root, "listing": args.listing });
    if let Some(page) = &args.spa {
        files["spa_fallback"] = json!(page);
    }
    if args.precompressed {
        files["precompressed"] = json!(["br", "zstd", "gzip"]);
    }
    json!({
        "gateway": { "http": args.listen.to_string(), "https": "off", "admin": "off" },
        "proxies": [{
            "id": "files", "listen_path": "/",
        }],
        "plugin_configs": [
            { "id": "static", "plugin_name": "static_files", "proxy_id": "files", "config": files },
            { "id": "compress", "plugin_name": "compression", "proxy_id": "files" },
        ],
    })
}
