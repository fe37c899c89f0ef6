//! Streams by the name in a client's hello, and by nothing at all: nginx's `stream` and HAProxy's `mode tcp` beside what is imported.

use std::net::SocketAddr;
use std::sync::Arc;

use ferrum_edge::import::{Conversion, Format};
use rustls::ClientConnection;
use tokio::task::JoinSet;

use super::compare::{imported, spec};
use super::server::{Original, folder, free_port};
use crate::support::edge::Edge;
use crate::support::tls;
use crate::support::wire::{Port, Wire};

/// Where the gateway has the ports of an original, which are on 127.0.0.1.
const BESIDE: [u8; 4] = [127, 0, 0, 2];

/// Targets that answer whatever comes with their name, and what was first in it.
struct Targets {
    addresses: Vec<SocketAddr>,
    _tasks: JoinSet<()>,
}

impl Targets {
    async fn start() -> Self {
        let (mut addresses, mut tasks) = (Vec::new(), JoinSet::new());
        for name in ["A", "B", "C", "D"] {
            let port = Port::listen(None).await;
            addresses.push(port.address);
            tasks.spawn(async move {
                loop {
                    let mut wire = Wire::new_patient(port.accept_ever().await);
                    // A probe that only connects sends nothing.
                    let Ok(first) = wire.some(1).await else { continue };
                    drop(wire.try_send(format!("{name} {:02x}", first[0])).await);
                    wire.shutdown().await;
                }
            });
        }
        Self { addresses, _tasks: tasks }
    }

    fn filled(&self, config: &str, port: u16) -> String {
        let names = ["@A@", "@B@", "@C@", "@D@"];
        let text = config.replace("@PORT@", &port.to_string());
        names
            .iter()
            .zip(&self.addresses)
            .fold(text, |text, (name, address)| text.replace(name, &address.to_string()))
    }
}

/// What a client sends first: a hello with this name, one with none (an address), or something else.
fn first_bytes(name: &'static str) -> Vec<u8> {
    if name.is_empty() {
        return b"SSH-2.0-client\r\n".to_vec();
    }
    let config = tls::authority().client(&[]);
    let mut client = ClientConnection::new(Arc::clone(&config), name.try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Who answers a client, and with what; nothing where the connection is closed.
async fn answer(to: SocketAddr, first: &[u8]) -> String {
    let mut wire = Wire::open(to).await;
    if wire.try_send(first).await.is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&wire.rest().await).into_owned()
}

async fn compare_streams(format: Format, config: &str, names: &[&'static str], known: &[&str]) {
    let (targets, folder, port) = (Targets::start().await, folder("streams"), free_port());
    let text = targets.filled(config, port);
    let imported = imported(format, &text, &folder);
    let (settings, spec) = spec(&imported);
    let edge = Edge::start_with(&format!("{settings}  stream_address: 127.0.0.2\n"), &spec);
    let original = Original::start(format, &text, &folder, port);
    let findings: Vec<String> = imported.report.losses().map(ToString::to_string).collect();
    for name in names {
        let first = first_bytes(name);
        let theirs = answer(original.address, &first).await;
        let ours = answer((BESIDE, port).into(), &first).await;
        if !known.contains(name) {
            assert_eq!(ours, theirs, "`{name}`\n{}\n{spec}", findings.join("\n"));
        }
    }
    assert_eq!(imported.report.count(Conversion::NotConverted), known.len(), "{findings:?}");
    drop(edge);
}

/// nginx's configuration with its module for streams.
fn nginx(stream: &str) -> String {
    let module = test_servers::file(
        "nginx's stream module",
        &["/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/lib64/nginx/modules/ngx_stream_module.so"],
    );
    format!("load_module {};\nevents {{}}\nstream {{ {stream} }}\n", module.display())
}

const NAMES: &[&str] = &[
    "a.test",
    "A.TEST",
    "x.a.test",
    "b.test",
    "x.b.test",
    "y.x.b.test",
    "c.test",
    "x.c.test",
    "d.test",
    "mail.d.test",
    "other.test",
    "127.0.0.1",
    "",
];

#[tokio::test]
async fn names_of_a_map_with_wildcards() {
    let config = nginx(
        "map $ssl_preread_server_name $to { hostnames; a.test @A@; *.b.test @B@; x.b.test @A@; .c.test group; default @D@; }
         upstream group { server @C@; }
         server { listen 127.0.0.1:@PORT@; ssl_preread on; proxy_pass $to; proxy_connect_timeout 2s; }",
    );
    compare_streams(Format::Nginx, &config, NAMES, &[]).await;
}

/// Without `hostnames` a `*` is a letter as any other; without a default, other names are closed.
#[tokio::test]
async fn names_of_a_map_as_they_are() {
    let config = nginx(
        "map $ssl_preread_server_name $to { a.test @A@; *.b.test @B@; .c.test @C@; }
         server { listen 127.0.0.1:@PORT@; ssl_preread on; proxy_pass $to; }",
    );
    compare_streams(Format::Nginx, &config, NAMES, &[]).await;
}

/// Where the name is not looked at, all that comes goes to one target; a regex is named, and goes on to the default.
#[tokio::test]
async fn streams_without_names() {
    let config = nginx("server { listen 127.0.0.1:@PORT@; proxy_pass @B@; }");
    compare_streams(Format::Nginx, &config, &["a.test", "127.0.0.1", ""], &[]).await;
    let config = nginx(
        "map $ssl_preread_server_name $to { ~^mail\\. @B@; default @A@; }
         server { listen 127.0.0.1:@PORT@; ssl_preread on; proxy_pass $to; }",
    );
    compare_streams(Format::Nginx, &config, &["a.test", "mail.d.test", ""], &["mail.d.test"]).await;
}

#[tokio::test]
async fn haproxy_streams_by_name() {
    let config = "defaults
  timeout connect 2s
  timeout client 10s
  timeout server 10s
frontend tls
  mode tcp
  bind 127.0.0.1:@PORT@
  tcp-request inspect-delay 5s
  tcp-request content accept if { req.ssl_hello_type 1 }
  use_backend a if { req.ssl_sni -i a.test }
  use_backend b if { req.ssl_sni -m end .b.test }
  default_backend rest
backend a
  mode tcp
  server a @A@
backend b
  mode tcp
  server b @B@
backend rest
  mode tcp
  server d @D@
";
    compare_streams(Format::Haproxy, config, &NAMES[..NAMES.len() - 1], &[]).await;
}
