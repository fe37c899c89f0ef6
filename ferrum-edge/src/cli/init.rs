//! `init`: creates a first configuration file.

use std::fs::OpenOptions;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use gateway_core::plugin::Registry;
use http::Uri;

use super::{FAILED, MISUSED, print};
use crate::source::file;

/// The default target.
const TARGET: &str = "http://127.0.0.1:3000";

/// Arguments of `init`.
#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// File to write; an existing file is not changed
    #[arg(value_name = "FILE", default_value = "ferrum.yaml")]
    file: PathBuf,
    /// Target of requests, such as http://127.0.0.1:3000; prompts for it on a terminal
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// Host to serve, such as shop.example.com; without it, every host
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Port for plain HTTP
    #[arg(long, value_name = "PORT", default_value_t = 8000, value_parser = clap::value_parser!(u16).range(1..))]
    http_port: u16,
}

/// Writes the file and prints the next steps.
pub(super) fn init(args: &InitArgs, registry: &Registry) -> u8 {
    let target = match &args.target {
        Some(target) => target.clone(),
        None => match asked() {
            Ok(target) => target,
            Err(error) => {
                print::error(error);
                return FAILED;
            }
        },
    };
    let Some(text) = text(args, &target) else {
        print::error(format_args!("`{target}` is not a URL such as {TARGET}"));
        return MISUSED;
    };
    // Never write a file that `check` rejects.
    if let Err(problems) = file::parse(&text, &args.file.display().to_string(), registry) {
        print::error(problems);
        return MISUSED;
    }
    let written = OpenOptions::new().write(true).create_new(true).open(&args.file);
    let shown = args.file.display();
    match written.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            print::error(format_args!("{shown} is there already, and stays as it is; name another file"));
            return FAILED;
        }
        Err(error) => {
            print::error(format_args!("{shown}: {error}"));
            return FAILED;
        }
    }
    print::line(format_args!(
        "{shown} is written. Next:

  ferrum-edge run {shown}
  curl http://127.0.0.1:{}/
  ferrum-edge status        # what it does, and what is wrong
  ferrum-edge reload        # after a change of the file",
        args.http_port
    ));
    0
}

/// The target. On a terminal, the command asks the user for it.
fn asked() -> io::Result<String> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Ok(TARGET.to_owned());
    }
    print::raw(format_args!("Where do requests go? [{TARGET}] "));
    io::stdout().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(Some(line.trim()).filter(|line| !line.is_empty()).unwrap_or(TARGET).to_owned())
}

/// The configuration; `None` if the target is not a URL.
fn text(args: &InitArgs, target: &str) -> Option<String> {
    let url: Uri = target.parse().ok()?;
    let scheme = url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    // What the file could not say is refused: a login, a query, a port that is none.
    let authority = url.authority()?.as_str();
    let port = match url.port_u16() {
        Some(port) => port,
        None if authority.ends_with(url.host()?) => {
            if scheme == "https" {
                443
            } else {
                80
            }
        }
        None => return None,
    };
    if authority.contains('@') || url.query().is_some() {
        return None;
    }
    let hosts = args.host.as_ref().map(|host| format!("\n    hosts: [{}]", quoted(host))).unwrap_or_default();
    let path = url.path().trim_end_matches('/');
    let path = if path.is_empty() { String::new() } else { format!("\n    backend_path: {}", quoted(path)) };
    Some(format!(
        "# yaml-language-server: $schema=ferrum.schema.json   (ferrum-edge schema > ferrum.schema.json)
gateway:
  http: 0.0.0.0:{}
  access_log: {{path: access.log}}
  limits: {{max_request_body: 10MiB}}
proxies:
  - id: app{hosts}
    listen_path: /
    backend_scheme: {scheme}
    backend_host: {}
    backend_port: {port}{path}
plugin_configs:
  - {{id: request-id, plugin_name: correlation_id, scope: global, config: {{}}}}
  # Callers with a key: add a consumer, and this plugin config.
  # - {{id: keys, plugin_name: key_auth, scope: proxy, proxy_id: app, config: {{}}}}
  # - {{id: limit, plugin_name: rate_limiting, scope: proxy, proxy_id: app, config: {{limits: [{{rate: 100, per: 1s}}]}}}}
",
        args.http_port,
        quoted(host),
    ))
}

/// A YAML string in double quotes, with the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
