//! `quickstart`: a ready-made configuration with a demo upstream in the same process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use axum::Json;
use axum::extract::Request;
use clap::Args;
use gateway_core::plugin::Registry;
use serde_json::{Value, json};

use super::run::{ConfigSource, Flags, serve};
use super::{FAILED, Verbosity, logs, print};
use crate::engine::listeners::Addresses;
use crate::source::file::{Source, Spec};

/// The configuration, as it also lies in the repository.
const SPEC: &str = include_str!("../../../specs/quickstart.yaml");
/// The demo upstream's port in it.
const DEMO_PORT: u16 = 3001;
/// Header fields a demo answer tells of.
const MAX_HEADERS: usize = 100;

/// Arguments of `quickstart`.
#[derive(Debug, Clone, Args)]
pub(super) struct QuickstartArgs {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    verbosity: Verbosity,
    /// Prints the configuration instead of running it
    #[arg(long)]
    print: bool,
}

/// Runs until told to stop.
pub(super) fn quickstart(args: QuickstartArgs, registry: Registry) -> u8 {
    if args.print {
        print::raw(format_args!("{SPEC}"));
        return 0;
    }
    logs::init(args.verbosity);
    let demo = match Demo::start() {
        Ok(demo) => demo,
        Err(error) => {
            print::error(format_args!("the demo upstream could not start: {error}"));
            return FAILED;
        }
    };
    let text = spec(demo.address);
    let source = Source { spec: Spec::Text { name: "quickstart.yaml", text }, flags: args.flags.settings() };
    serve(&source, ConfigSource::File, &args.flags, registry, |addresses| welcome(addresses, demo.address))
}

/// The configuration with the port the demo upstream got.
fn spec(demo: SocketAddr) -> String {
    SPEC.replace(&format!("backend_port: {DEMO_PORT}"), &format!("backend_port: {}", demo.port()))
}

fn welcome(addresses: &Addresses, demo: SocketAddr) {
    let Some(http) = addresses.http else { return };
    print::notice(format_args!(
        "The gateway runs at http://{http}; a demo upstream behind it at http://{demo}. Try:

  curl http://{http}/hello      # answered by the gateway itself
  curl http://{http}/demo/any   # answered by the upstream

Its configuration: ferrum-edge quickstart --print > ferrum.yaml. Stop it with Ctrl-C."
    ));
}

/// The demo upstream: tells of every request what it looked like when it arrived.
struct Demo {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Demo {
    fn start() -> std::io::Result<Self> {
        // Its own port where nobody has it, so that what is printed is what is in the file.
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = bind(DEMO_PORT).or_else(|_| bind(0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("demo-upstream")
            .enable_all()
            .build()?;
        let inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        drop(inside);
        let router = axum::Router::new().fallback(tell);
        runtime.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the demo upstream ended");
            }
        });
        Ok(Self { address, _runtime: runtime })
    }
}

async fn tell(request: Request) -> Json<Value> {
    let headers: serde_json::Map<_, _> = request
        .headers()
        .iter()
        .take(MAX_HEADERS)
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
        .collect();
    Json(json!({
        "message": "Hello from the demo upstream.",
        "method": request.method().as_str(),
        "path": request.uri().to_string(),
        "headers": headers,
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::{Gateway, source};

    fn get(address: SocketAddr, path: &str) -> String {
        let mut connection = std::net::TcpStream::connect(address).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_configuration_answers_as_it_says() {
        let demo = Demo::start().unwrap();
        let text = spec(demo.address).replace("127.0.0.1:8000", "127.0.0.1:0");
        let registry = crate::plugins();
        let model = source::file::parse(&text, "quickstart.yaml", &registry).unwrap();
        let gateway = Gateway::start(model, registry).unwrap();
        let http = gateway.addresses().http.unwrap();
        let hello = get(http, "/hello");
        assert!(hello.starts_with("HTTP/1.1 200") && hello.contains("It works"), "{hello}");
        assert!(hello.contains("x-request-id: "), "{hello}");
        let demo = get(http, "/demo/any?n=1");
        assert!(demo.starts_with("HTTP/1.1 200") && demo.contains(r#""path":"/any?n=1""#), "{demo}");
    }
}
