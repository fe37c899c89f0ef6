//! A gateway inside another program, with a plugin of its own.
//!
//! Serves an upstream, starts a gateway in front of it, sends itself a request and prints the answer:
//! `cargo run -p ferrum-edge --example embed`

#![allow(clippy::print_stdout, unreachable_pub, reason = "an example prints, and its test calls it")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::plugin::{Hooks, OnResponse, Plugin, Seat, Step, World, entry};
use ferrum_edge::{Gateway, source};
use http::{HeaderValue, Response};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of the `greeting` plugin, as users write them under `config`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// What clients are greeted with.
    text: String,
}

/// Adds a header to every response.
struct Greeting {
    value: HeaderValue,
}

impl Plugin for Greeting {
    const NAME: &'static str = "greeting";
    const SUMMARY: &'static str = "Greets clients in a response header.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        // Whatever can be wrong is found here, when the configuration is loaded, not while it serves.
        let value = HeaderValue::from_str(&config.text)
            .map_err(|_| Problems::one("config.text", "has characters that a header may not have"))?;
        Ok(Self { value })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_response(self);
    }
}

impl OnResponse for Greeting {
    fn on_response<'a>(
        &'a self,
        _exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        response.headers_mut().insert("x-greeting", self.value.clone());
        Step::Next
    }
}

/// Everything once; hands back the answer that came through the gateway.
pub(crate) fn run() -> Result<String, Box<dyn std::error::Error>> {
    let upstream = upstream()?;
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<Greeting>());
    let model = source::file::parse(&configuration(upstream), "embed.yaml", &registry)?;

    let gateway = Gateway::start(model, registry)?;
    // Health, status and metrics, on a port of the system's choice.
    let admin = gateway.serve_admin(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    println!("admin: http://{admin}/v1/status");

    let address = gateway.addresses().http.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    let answer = request(address, "/api/users")?;
    gateway.drain();
    Ok(answer)
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run()?);
    Ok(())
}

fn configuration(upstream: SocketAddr) -> String {
    format!(
        "
gateway:
  http: 127.0.0.1:0
  https: off
  workers: 1
proxies:
  - id: api
    listen_path: /api
    backend_scheme: http
    backend_host: {host}
    backend_port: {port}
    plugins: [{{ plugin_config_id: greet }}]
plugin_configs:
  - id: greet
    plugin_name: greeting
    scope: proxy_group
    config: {{ text: good morning }}
",
        host = upstream.ip(),
        port = upstream.port()
    )
}

/// A server that answers one request with its own first line.
fn upstream() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        let (mut client, _) = listener.accept()?;
        let mut lines = BufReader::new(client.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        lines.map_while(Result::ok).find(String::is_empty);
        let length = first.len();
        write!(client, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{first}")
    });
    Ok(address)
}

/// One request to the gateway.
fn request(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut gateway = TcpStream::connect(address)?;
    write!(gateway, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    gateway.read_to_string(&mut answer)?;
    Ok(answer)
}
