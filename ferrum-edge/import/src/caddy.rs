//! Caddy: a Caddyfile, or the JSON that `caddy adapt` makes of one.
//!
//! Both become steps (`steps.rs`), in the order in which Caddy takes them, and those become proxies.

mod access_log;
mod asked;
mod certificates;
mod changes;
mod error_routes;
mod fastcgi;
mod forward_auth;
mod handlers;
mod headers;
mod hidden_files;
mod json;
mod matchers;
mod order;
mod path_regex_groups;
mod proxy;
mod responses;
mod sets;
mod sites;
mod strips;
mod tokens;

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::access_log::LogPlaces;
use crate::draft::{Import, Match, PluginConfig, RequestTermination, draft};
use crate::error::Failure;
use crate::files::{Files, IncludeReader};
use crate::from_ca::FromCa;
use crate::report::At;
use tokens::{CaddyLine, Imports};

/// Stands for an import that could not be read.
const UNREAD: &str = "import (not read)";

/// An import under way.
struct Caddy<'o> {
    out: &'o mut Import,
    http_port: u16,
    https_port: u16,
    no_https: bool,
    no_redirects: bool,
    certificates: Vec<Value>,
    from_ca: FromCa,
    /// Nothing is got by itself.
    no_certificates: bool,
    /// Caddy's own CA issues where nothing else is said.
    has_own_ca: bool,
    /// Certificates are in files, for names that are not known.
    has_files: bool,
    /// Names that are got in a way that is not offered.
    not_from_ca: Vec<String>,
    /// A site asks for clients' certificates, which is not converted: everything over TLS is closed.
    asks_certificates: bool,
    /// Lists of accounts so far.
    accounts: usize,
    /// Where records go.
    logs: LogPlaces,
    /// Groups of handles so far.
    groups: usize,
    /// Directives in the order in which they run.
    order: Vec<String>,
    /// The patterns of the blocks around, all of which the client's path fits.
    ways: Vec<String>,
}

impl<'o> Caddy<'o> {
    fn new(out: &'o mut Import) -> Self {
        Self {
            out,
            http_port: 80,
            https_port: 443,
            no_https: false,
            no_redirects: false,
            certificates: Vec::new(),
            from_ca: FromCa::default(),
            no_certificates: false,
            has_own_ca: false,
            has_files: false,
            not_from_ca: Vec::new(),
            asks_certificates: false,
            accounts: 0,
            logs: LogPlaces::default(),
            groups: 0,
            order: sites::ORDER.iter().map(|name| (*name).to_owned()).collect(),
            ways: Vec::new(),
        }
    }

    fn finish(mut self) {
        std::mem::take(&mut self.logs).finish(self.out);
        self.put_certificates();
        if self.asks_certificates && !self.out.is_open() {
            let closed = draft!(PluginConfig {
                id: "closed-for-want-of-certificates",
                plugin_name: "request_termination",
                scope: "global",
                config: RequestTermination::of_closed_route(),
                when: draft!(Match { scheme: "https" }),
            });
            self.out.plugin_configs.push(closed.into());
        }
    }
}

/// Imports a Caddyfile.
///
/// # Errors
/// When its grammar is broken, or it has no site.
pub(crate) fn import(out: &mut Import, name: &str, text: &str, files: &dyn Files) -> Result<(), Failure> {
    let file = out.report.file(name);
    let lines = tokens::parse(name, file, text)?;
    let folder = Path::new(name).parent().unwrap_or_else(|| Path::new("")).to_owned();
    let mut reader = IncludeReader::new(files);
    let mut imports = Imports { snippets: HashMap::new(), reader: &mut reader, count: 0 };
    let mut lines = imports.expand(out, lines, &folder, 0)?;
    environment(out, &mut lines);
    let mut caddy = Caddy::new(out);
    // Without braces, the first line behind the global options is the only site's address, and all that follows is its own.
    let is_ours = |line: &CaddyLine| line.words.first().is_some_and(|first| first != UNREAD);
    if let Some(at) = lines.iter().position(is_ours).filter(|at| lines[*at].block.is_none()) {
        let rest = lines.split_off(at + 1);
        if let Some(site) = lines.last_mut() {
            site.block = Some(rest);
        }
    }
    let mut sites = Vec::new();
    for line in lines {
        match line.words.as_slice() {
            [] => caddy.global(&line),
            [first, ..] if first == UNREAD => {}
            words => {
                let split = words.iter().flat_map(|word| word.split(',')).filter(|word| !word.is_empty());
                let addresses: Vec<_> = split.map(|word| caddy.address(word)).collect();
                if addresses.iter().any(Option::is_none) {
                    caddy.out.not_converted(line.at, line.text(), "an address in it is not understood", "");
                }
                sites.push(sites::Site { addresses: addresses.into_iter().flatten().collect(), line });
            }
        }
    }
    if sites.is_empty() {
        return Err(Failure::new(name, 1, "there is no site in it"));
    }
    caddy.sites(sites);
    caddy.finish();
    Ok(())
}

/// Imports Caddy's JSON.
///
/// # Errors
/// When it is something else.
pub(crate) fn import_json(out: &mut Import, name: &str, text: &str) -> Result<(), Failure> {
    let file = out.report.file(name);
    let document = crate::tree::one(name, file, text)?;
    let mut caddy = Caddy::new(out);
    caddy.document(name, &document)?;
    caddy.finish();
    Ok(())
}

impl Caddy<'_> {
    /// The block of global options.
    fn global(&mut self, block: &CaddyLine) {
        for line in block.inner() {
            let first = line.arguments().first().map(String::as_str);
            let port = first.and_then(|port| port.parse::<u16>().ok());
            if self.is_about_certificates(line) {
                continue;
            }
            match (line.name(), port) {
                ("http_port", Some(port)) => self.http_port = port,
                ("https_port", Some(port)) => self.https_port = port,
                ("auto_https", _) => match first {
                    Some("off") => {
                        (self.no_https, self.no_redirects, self.no_certificates) = (true, true, true);
                    }
                    Some("disable_certs") => self.no_certificates = true,
                    Some("disable_redirects") => self.no_redirects = true,
                    _ => {}
                },
                ("servers", _) => self.servers(line),
                (
                    "admin" | "email" | "acme_ca" | "storage" | "grace_period" | "debug" | "persist_config"
                    | "default_sni" | "skip_install_trust",
                    _,
                ) => {
                    self.out.not_needed(
                        line.at,
                        line.text(),
                        "it is about Caddy's own process or its certificates",
                    );
                }
                ("order", _) => self.ordered(line),
                _ => self.out.not_converted(line.at, line.text(), "the gateway does not support this", ""),
            }
        }
    }
}

impl Caddy<'_> {
    /// `order NAME first|last` and `order NAME before|after OTHER`.
    fn ordered(&mut self, line: &CaddyLine) {
        let (name, way, other) = (line.word(1), line.word(2), line.word(3));
        self.order.retain(|known| known != name);
        let beside = self.order.iter().position(|known| known == other);
        let at = match (way, beside) {
            ("first", _) => Some(0),
            ("last", _) => Some(self.order.len()),
            ("before", Some(at)) => Some(at),
            ("after", Some(at)) => Some(at + 1),
            _ => None,
        };
        self.order.insert(at.unwrap_or(self.order.len()), name.to_owned());
        match at {
            Some(_) => self.out.converted(line.at, line.text()),
            None => {
                let why = "the directive beside it is not known: it runs last";
                self.out.not_converted(line.at, line.text(), why, "write them in a `route` block");
            }
        }
    }

    /// The global option `servers`.
    fn servers(&mut self, line: &CaddyLine) {
        for inner in line.inner() {
            let trusted = match inner.arguments() {
                [kind, ranges @ ..] if kind == "static" && inner.name() == "trusted_proxies" => {
                    matchers::networks(ranges)
                }
                _ => None,
            };
            match trusted {
                Some(networks) => {
                    self.out.gateway.trusted_proxies(networks);
                    self.out.converted(inner.at, inner.text());
                }
                _ if matches!(inner.name(), "trusted_proxies_strict" | "protocols") => {
                    let why = match inner.name() {
                        "protocols" => "all versions are spoken",
                        _ => "the last address that is not trusted is the client's",
                    };
                    self.out.not_needed(inner.at, inner.text(), why);
                }
                _ => {
                    let todo = match inner.name() {
                        "timeouts" => "see gateway.client_timeouts",
                        "client_ip_headers" => "see gateway.real_ip_header",
                        "max_header_size" => "see gateway.limits",
                        _ => "",
                    };
                    self.out.not_converted(inner.at, inner.text(), "the gateway does not support this", todo);
                }
            }
        }
    }
}

/// Puts the defaults of `{$NAME:default}` in their places.
fn environment(out: &mut Import, lines: &mut [CaddyLine]) {
    for line in lines {
        let at: At = line.at;
        for word in &mut line.words {
            let mut count = 0;
            while let Some((before, after)) = word.clone().split_once("{$")
                && let Some((name, rest)) = after.split_once('}')
                && count < 32
            {
                count += 1;
                let (name, default) = name.split_once(':').unwrap_or((name, ""));
                let why = format!("the environment is not read: `{name}` is `{default}`");
                out.partial(at, word.clone(), why, "set it in the import's result");
                *word = format!("{before}{default}{rest}");
            }
        }
        if let Some(block) = &mut line.block {
            environment(out, block);
        }
    }
}

#[cfg(test)]
mod tests;
