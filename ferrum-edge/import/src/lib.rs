//! Configurations of other gateways as ferrum-edge's.
//!
//! [`import`] reads one and makes an [`Import`]: a document for the gateway, and a [`Report`] that says of each construct
//! of the original what became of it, with file and line.
//!
//! An importer never guesses. What would behave otherwise here is left out and named, or named beside what stands for it.
//! What keeps requests out and can't be converted closes what it guarded with 503, unless [`Options::open`] is set.
//!
//! Nothing here opens a file by itself: included files are read through [`Files`], which the caller hands in.
//!
//! # Where things are
//!
//! - `draft.rs`: the document in the making, of the types of settings in `draft/`. `report.rs`: what became of each construct. `tree.rs`, `toml.rs`: YAML, JSON and TOML with lines;
//!   each value knows whether it was read, and `unread.rs` reports those that were not.
//! - `summary.rs`: how much answers 503. `placeholders.rs`: values of the environment. `access_log.rs`: where records go.
//! - `cond.rs` combines conditions. `steps.rs` makes proxies of rules that run in order (Caddy, HAProxy). `changed.rs` turns a condition on a
//!   request that earlier rules changed into one on what the client sent.
//! - `nginx/`, `kong/`, `caddy/`, `haproxy/`, `traefik/`, `envoy/`, `ingress/`, `openapi.rs`: one format each.
//!
//! `Import::guard_not_converted` is the one way to report an access rule that cannot be converted; it returns whether to close the routes that
//! the rule protected. The other outcomes are `converted`, `not_needed`, `partial` and `not_converted`.

mod access_log;
mod caddy;
mod changed;
mod cond;
mod draft;
mod envoy;
mod error;
mod files;
mod from_ca;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod haproxy;
mod ingress;
mod kong;
mod nginx;
mod openapi;
mod own_fields;
mod placeholders;
mod ports;
mod report;
mod steps;
mod summary;
mod text;
mod toml;
mod traefik;
mod tree;
mod unread;

use std::path::Path;

pub use draft::{DECLARED, Declared, Import};
pub use error::Failure;
pub use files::{Disk, Files, NoFiles};
pub use placeholders::{FilledFiles, Values};
pub use report::{Conversion, Finding, FindingGroup, Report, Severity};

/// Bytes one file may have.
pub const MAX_FILE_BYTES: usize = 16 << 20;
/// Bytes all files of one configuration may have together.
pub const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Files one configuration may be made of.
pub const MAX_FILES: usize = 1000;
/// Files that include one another in a row.
pub const MAX_INCLUDES: usize = 16;
/// Proxies that one import may make.
pub const MAX_PROXIES: usize = 100_000;

/// Whose configuration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `nginx.conf`, a file of `sites-enabled`, or what `nginx -T` prints.
    Nginx,
    /// Kong's declarative format, as dumped by decK.
    Kong,
    /// A Caddyfile.
    Caddyfile,
    /// Caddy's JSON, as printed by `caddy adapt`.
    CaddyJson,
    /// Traefik's static and dynamic files in YAML or TOML, or a Compose file with its labels.
    Traefik,
    /// `haproxy.cfg`.
    Haproxy,
    /// An Envoy bootstrap with static resources.
    Envoy,
    /// A description of an API by OpenAPI 3.
    OpenApi,
    /// Kubernetes manifests with Ingresses and Services.
    Ingress,
}

/// How to import.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Keeps routes open whose access rules cannot be converted, instead of answering 503.
    pub open: bool,
}

/// Imports a configuration: the names and texts of its files. Others that they include are read through `files`.
///
/// # Errors
/// When a text is not of this format, breaks its grammar, or goes beyond a limit.
pub fn import(
    format: Format,
    sources: &[(String, String)],
    files: &dyn Files,
    options: Options,
) -> Result<Import, Failure> {
    let Some((name, text)) = sources.first().map(|(name, text)| (name.as_str(), text.as_str())) else {
        return Err(Failure::new("", 0, "no file is given"));
    };
    for (name, text) in sources {
        if text.len() > MAX_FILE_BYTES {
            return Err(Failure::new(name, 0, format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
    }
    let takes_several = matches!(format, Format::Traefik | Format::Ingress);
    if sources.len() > MAX_FILES || sources.len() > 1 && !takes_several {
        return Err(Failure::new(&sources[1].0, 0, "this format is imported from one file at a time"));
    }
    let mut out = Import::new(options);
    match format {
        Format::Nginx => nginx::import(&mut out, name, text, files)?,
        Format::Kong => kong::import(&mut out, name, text)?,
        Format::Caddyfile => caddy::import(&mut out, name, text, files)?,
        Format::CaddyJson => caddy::import_json(&mut out, name, text)?,
        Format::Traefik => traefik::import(&mut out, sources)?,
        Format::Haproxy => haproxy::import(&mut out, name, text, files)?,
        Format::Envoy => envoy::import(&mut out, name, text)?,
        Format::OpenApi => openapi::import(&mut out, name, text)?,
        Format::Ingress => ingress::import(&mut out, sources)?,
    }
    if out.proxies.len() > MAX_PROXIES {
        return Err(Failure::new(name, 0, format!("it makes more than {MAX_PROXIES} proxies")));
    }
    if out.has_too_many_plugins {
        let why = format!("its proxies have more than {} plugins in all", steps::MAX_PLUGINS);
        return Err(Failure::new(name, 0, why));
    }
    out.report.notes = NOTES.to_vec();
    out.report.notes.extend(match format {
        Format::Nginx => NGINX_NOTES,
        Format::Haproxy => HAPROXY_NOTES,
        Format::Kong => KONG_NOTES,
        Format::Caddyfile | Format::CaddyJson => CADDY_NOTES,
        _ => &[],
    });
    out.finish();
    Ok(out)
}

/// What is so for every import.
const NOTES: &[&str] = &[
    "targets get X-Forwarded-For, -Proto, -Host and Via, and HTTP/1.1 or 2 over kept connections",
    "paths with `%2F`, backslashes or double encoding are answered 400, unless `path_rules` says otherwise; dot segments are resolved, slashes in a row are one, letters that need no encoding are decoded, and octets that a path may not contain are encoded, in what targets get as well",
    "`Location` and `Set-Cookie` of targets pass as they are, unless the configuration rewrites them",
    "bodies of the gateway's own answers have other texts",
    "where callers are asked who they are, targets get X-Consumer-Username and the like; what clients send under these names is removed",
    "answers of the gateway's own (redirects, fixed answers, refusals by rule) go before the question who it is",
    "a redirect to the very URL that was asked for is answered 508",
    "values of the request behind the `?` of a redirect are percent-encoded, so that each is one parameter",
];

/// What is so for every import from nginx.
const NGINX_NOTES: &[&str] = &[
    "`$uri` and groups of regexes have the path as it was sent; nginx decodes it",
    "redirects, those to `/a/` as well, and answers of `return` take bodies of any size",
    "a redirect to a host alone has no slash behind it; nginx adds one, and keeps the `?` of an empty query",
    "files and folders are answered 405 where it is not read; nginx looks for a file first, and answers 404 or 403",
    "`$request_uri` has no dot segments, and one slash for several in a row",
    "`proxy_set_header Host $host` sends the client's Host as it came, with its port, and in its case",
    FILES_NOTE,
];

/// What is so for every import from HAProxy.
const HAPROXY_NOTES: &[&str] = &[
    "hosts whose port is cut off (`host_only`, `field(1,:)`) are compared without a trailing dot, whatever their case",
    "fields of one name are one with commas between them, so that `req.fhdr` finds what is between commas of one field, too",
    "redirects to hosts of the request write them in lower case, and `redirect scheme` leaves the port out",
    "`http-response` rules hold for redirects and other answers of the gateway's own, too",
    RULES_NOTE,
];

/// What is so for every import from Kong.
const KONG_NOTES: &[&str] = &[
    "`/apix` is of a path `/api` only where another route would take it otherwise; alone it is answered 404",
];

/// What is so for every import from Caddy.
const CADDY_NOTES: &[&str] = &[
    "`header` replaces a field that the target sends; Caddy sends both",
    "`{host}` is in lower case, `{path}` as it was sent, not decoded",
    "a path whose prefix is stripped within a segment (`/apix` without `/api`) is answered 400; Caddy sends it without a slash",
    "of a path that is its prefix, `/` is left, also for `uri replace`, of which Caddy makes `.`",
    "hosts and paths that no site takes are answered 404; Caddy answers 200 with nothing, and without the fields of `header ?NAME`",
    "`*.NAME` stands for names of several labels as well",
    "`{cookie.NAME}` is empty where there is no such cookie; Caddy leaves the placeholder as it is written",
    "files whose ending is not known are sent as `application/octet-stream`, and methods but GET and HEAD are answered 405",
    FILES_NOTE,
    RULES_NOTE,
];

const FILES_NOTE: &str = "files answer OPTIONS with the methods that they allow, and 204";
const RULES_NOTE: &str =
    "rules see a path whose dot segments are resolved, and with one slash for several in a row";

/// The format of a file, by its name and what is in it; `None` when neither tells.
pub fn detect(path: &Path, text: &str) -> Option<Format> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // Keys of the outermost level, in YAML and JSON.
    let starts = |wanted: &[&str]| {
        text.lines().any(|line| {
            let line =
                line.trim_start_matches("- ").trim_start_matches(['{', ' ', '\t']).trim_start_matches('"');
            wanted.iter().any(|key| {
                line.strip_prefix(key).is_some_and(|rest| rest.trim_start_matches('"').starts_with(':'))
            })
        })
    };
    if ending == "conf" || text.starts_with("# configuration file ") {
        return Some(Format::Nginx);
    }
    if name.starts_with("Caddyfile") || ending == "caddyfile" {
        return Some(Format::Caddyfile);
    }
    if ending == "toml" {
        return Some(Format::Traefik);
    }
    let sections = ["frontend ", "backend ", "listen ", "defaults", "global"];
    if ending == "cfg"
        || name.contains("haproxy") && text.lines().any(|line| sections.iter().any(|it| line.starts_with(it)))
    {
        return Some(Format::Haproxy);
    }
    let order: [(&[&str], Format); 7] = [
        (&["_format_version"], Format::Kong),
        (&["openapi"], Format::OpenApi),
        (&["static_resources"], Format::Envoy),
        (&["apiVersion"], Format::Ingress),
        (&["entryPoints", "routers", "services", "providers"], Format::Traefik),
        (&["apps"], Format::CaddyJson),
        (&["tcp", "udp"], Format::Traefik),
    ];
    order.into_iter().find(|(keys, _)| starts(keys)).map(|(_, format)| format)
}

#[cfg(test)]
mod tests;
