//! nginx.conf: `http` with servers, locations and upstreams, and `stream`.
//!
//! Each location becomes proxies for the server's names, in the order in which nginx would look at them: their priorities
//! say it. What the rewrite directives and the access rules decide for some of a location's requests becomes proxies in
//! front of it.

mod access_log;
mod asked;
mod blocks;
mod branch;
mod cache;
mod condition_groups;
mod dump;
mod error_page;
mod expires;
mod fallback;
mod fastcgi;
mod fields;
mod file_conditions;
mod file_fields;
mod files;
mod guard_names;
mod guards;
mod internal_locations;
mod item;
mod location;
mod login;
mod lookahead;
mod media_types;
mod missing_slash;
mod parts;
mod path_groups;
mod plugins;
mod redirect_maps;
mod referers;
mod replaced_path;
mod response_rewrites;
mod rewrite;
mod serve;
mod server;
mod settings;
mod several_variables;
mod site;
mod standard_includes;
mod stream;
mod subrequest;
mod tested;
mod upstream;
mod values;
mod variable_names;
mod zones;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::access_log::LogPlaces;
use crate::cond::Cond;
use crate::draft::{GatewayTls, Import, Plug};
use crate::error::Failure;
use crate::files::{Files, IncludeReader};
use blocks::{Directive, name_bit};

/// Directives that need no counterpart: the gateway does so anyway, or they are about the process.
const SILENT: &[&str] = &[
    "worker_processes",
    "worker_connections",
    "worker_rlimit_nofile",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_shutdown_timeout",
    "worker_aio_requests",
    "events",
    "user",
    "pid",
    "daemon",
    "master_process",
    "load_module",
    "sendfile",
    "sendfile_max_chunk",
    "tcp_nopush",
    "tcp_nodelay",
    "types",
    "types_hash_max_size",
    "types_hash_bucket_size",
    "use",
    "multi_accept",
    "accept_mutex",
    "pcre_jit",
    "thread_pool",
    "aio",
    "directio",
    "proxy_http_version",
    "proxy_buffers",
    "proxy_buffer_size",
    "proxy_busy_buffers_size",
    "proxy_buffering",
    "proxy_request_buffering",
    "proxy_headers_hash_max_size",
    "proxy_headers_hash_bucket_size",
    "proxy_max_temp_file_size",
    "proxy_temp_path",
    "proxy_temp_file_write_size",
    "proxy_socket_keepalive",
    "proxy_ignore_client_abort",
    "client_body_buffer_size",
    "client_body_temp_path",
    "client_header_buffer_size",
    "client_body_in_file_only",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "variables_hash_max_size",
    "variables_hash_bucket_size",
    "map_hash_bucket_size",
    "map_hash_max_size",
    "ssl_session_cache",
    "ssl_session_timeout",
    "ssl_session_tickets",
    "ssl_prefer_server_ciphers",
    "ssl_buffer_size",
    "http2",
    "http3",
    "http2_max_concurrent_streams",
    "quic_retry",
    "quic_gso",
    "keepalive_requests",
    "reset_timedout_connection",
    "lingering_close",
    "server_tokens",
    "resolver",
    "resolver_timeout",
    "gzip_vary",
    "gzip_proxied",
    "gzip_disable",
    "gzip_http_version",
    "gzip_buffers",
    "open_file_cache",
    "open_file_cache_valid",
    "open_file_cache_min_uses",
    "open_file_cache_errors",
    "log_not_found",
    "log_subrequest",
    "etag",
    "if_modified_since",
    "limit_req_log_level",
    "limit_conn_log_level",
    "recursive_error_pages",
    "output_buffers",
    "postpone_output",
    "port_in_redirect",
    "absolute_redirect",
    "server_name_in_redirect",
    "proxy_ssl_session_reuse",
    "proxy_ssl_server_name",
    "real_ip_recursive",
    "charset",
    "default_type",
    "ssl_ecdh_curve",
    "send_timeout",
    "rewrite_log",
    "uninitialized_variable_warn",
    "ssl",
    "large_client_header_buffers",
    "disable_symlinks",
];

/// Directives of servers and locations that are converted where they hold.
const HANDLED: &[&str] = &[
    "server_name",
    "location",
    "listen",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "ssl_crl",
    "ssl_protocols",
    "return",
    "rewrite",
    "if",
    "set",
    "break",
    "root",
    "alias",
    "index",
    "autoindex",
    "try_files",
    "upstream",
    "server",
    "map",
    "geo",
    "limit_req_zone",
    "limit_conn_zone",
    "set_real_ip_from",
    "real_ip_header",
    "underscores_in_headers",
    "merge_slashes",
    "access_log",
    "log_format",
    "keepalive_timeout",
    "client_header_timeout",
    "client_body_timeout",
];

/// Imports a configuration.
///
/// # Errors
/// When the text is not made of nginx's blocks and directives.
pub(crate) fn import(out: &mut Import, name: &str, text: &str, files: &dyn Files) -> Result<(), Failure> {
    let mut reader = IncludeReader::new(files);
    let mut directives = dump::read(out, name, text, &mut reader)?;
    file_conditions::replace(out, &mut directives);
    let folder = match out.report.files.iter().find(|file| file.ends_with("nginx.conf")) {
        Some(main) => Path::new(&**main).parent().unwrap_or_else(|| Path::new("")).to_owned(),
        None => Path::new(name).parent().unwrap_or_else(|| Path::new("")).to_owned(),
    };
    let mut nginx = Nginx::new(std::mem::take(out), reader, folder);
    // A file of `sites-enabled` is a piece of the `http` block.
    let is_piece = |directive: &Directive| {
        matches!(
            directive.name.as_str(),
            "server" | "upstream" | "map" | "geo" | "limit_req_zone" | "limit_conn_zone"
        )
    };
    let (fragment, main): (Vec<_>, Vec<_>) = directives.into_iter().partition(is_piece);
    for directive in &main {
        match directive.name.as_str() {
            "http" => nginx.http(directive),
            "stream" => nginx.stream(directive),
            "location" => {
                return Err(Failure::new(name, directive.at.line, "a location needs its server around it"));
            }
            _ => nginx.report_directive("main", directive),
        }
    }
    if !fragment.is_empty() {
        nginx.http(&Directive { name: "http".to_owned(), block: fragment, ..Directive::default() });
    }
    nginx.tls();
    std::mem::take(&mut nginx.logs).finish(&mut nginx.out);
    *out = nginx.out;
    zones::share(out);
    if out.proxies.is_empty() && !out.report.has_loss() {
        return Err(Failure::new(name, 1, "there is no server in it"));
    }
    Ok(())
}

/// An import under way.
struct Nginx<'f> {
    out: Import,
    reader: IncludeReader<'f>,
    /// Where relative names of files start.
    folder: PathBuf,
    upstreams: HashMap<String, upstream::Upstream>,
    /// `resolver` of `http` or `stream`.
    resolver: Option<Directive>,
    certificates: Vec<Value>,
    /// The paths of those and of their keys.
    known_certificates: HashSet<(String, String)>,
    /// What `gateway.tls` says besides.
    tls: GatewayTls,
    /// The authorities that clients' certificates are checked against.
    client_ca: Option<String>,
    zones: plugins::Zones,
    /// Variables that `map` and `geo` make.
    vars: values::Variables,
    /// Those, and what `set` has said up to here.
    vars_here: values::Variables,
    /// Where records go.
    logs: LogPlaces,
    /// `log_format`s by name.
    log_formats: HashMap<String, Directive>,
    /// Answers while a file exists, for what follows.
    switches: Vec<Plug>,
    /// Fields and their values where targets do not send them, by the names of the variables of such maps.
    missing_fields: HashMap<String, (String, String)>,
    /// Maps of paths by the names of their variables.
    path_maps: HashMap<String, redirect_maps::PathMap>,
    /// What becomes of paths that lack the slash of a server's location.
    slashes: Vec<item::Item>,
    exact_paths: missing_slash::ExactPaths,
    /// What `$invalid_referer` means here.
    invalid_referer: Option<Cond>,
    /// Clients' addresses are those of another proxy in front.
    has_unknown_clients: bool,
    /// Targets of streams by the names that clients ask for.
    by_name: HashMap<String, Vec<(String, String)>>,
}

impl<'f> Nginx<'f> {
    fn new(out: Import, reader: IncludeReader<'f>, folder: PathBuf) -> Self {
        Self {
            out,
            reader,
            folder,
            upstreams: HashMap::new(),
            resolver: None,
            certificates: Vec::new(),
            known_certificates: HashSet::new(),
            tls: GatewayTls::default(),
            client_ca: None,
            zones: HashMap::new(),
            vars: values::Variables::default(),
            vars_here: values::Variables::default(),
            logs: LogPlaces::default(),
            log_formats: HashMap::new(),
            switches: Vec::new(),
            missing_fields: HashMap::new(),
            path_maps: HashMap::new(),
            slashes: Vec::new(),
            exact_paths: missing_slash::ExactPaths::default(),
            invalid_referer: None,
            has_unknown_clients: false,
            by_name: HashMap::new(),
        }
    }

    /// Reports a directive that is not converted.
    fn directive_not_converted(&mut self, place: &str, directive: &Directive) {
        let what = if place.is_empty() { directive.to_string() } else { format!("{place}: {directive}") };
        let (why, todo) = match directive.name.as_str() {
            "error_log" => ("the program log has its own form", "see `ferrum-edge settings`"),
            "ssl_ciphers" | "ssl_dhparam" | "ssl_conf_command" => {
                ("TLS 1.2 and 1.3 with rustls's ciphers are spoken", "")
            }
            name if name.starts_with("proxy_cache") => {
                ("nothing is cached", "use the plugin `response_cache`")
            }
            "proxy_pass_request_headers" | "proxy_pass_request_body" => {
                ("targets get the fields and the body of the request", "")
            }
            "mirror" => ("nothing is mirrored", "use the plugin `request_mirror`"),
            _ => ("the gateway does not support this", ""),
        };
        self.out.not_converted(directive.at, what, why, todo);
    }

    /// Reports a directive, unless the part of the importer that converts it does.
    fn report_directive(&mut self, place: &str, directive: &Directive) {
        let name = directive.name.as_str();
        let is_converted_elsewhere = HANDLED.contains(&name)
            || guard_names::is_guard(name)
            || plugins::NAMES.contains(&name)
            || settings::NAMES.contains(&name)
            || response_rewrites::NAMES.contains(&name)
            || cache::NAMES.contains(&name)
            || matches!(name, "error_page" | "proxy_intercept_errors" | "fastcgi_intercept_errors")
            || blocks::HANDLERS.contains(&name)
            || name == guard_names::UNREAD;
        let says = |what: &str| directive.arguments.first().is_some_and(|it| it == what);
        let is_off = matches!(name, "proxy_cache" | "fastcgi_cache") && says("off")
            || name.starts_with("proxy_pass_request_") && says("on");
        // What an application or a cache of nginx's own gets is told with it, once.
        let is_of_handler = name.ends_with("_temp_path")
            || ["fastcgi_", "uwsgi_", "scgi_", "memcached_"].iter().any(|of| name.starts_with(of))
                && !name.ends_with("_pass")
                && !cache::NAMES.contains(&name);
        if login::is_of_refusals(directive) {
            // Told beside `auth_request`.
            return;
        }
        if SILENT.contains(&name) || cache::NOT_NEEDED.contains(&name) || is_off || is_of_handler {
            self.out.not_needed(directive.at, format_args!("{place}: {directive}"), "");
        } else if !is_converted_elsewhere {
            self.directive_not_converted(place, directive);
        }
    }

    fn http(&mut self, http: &Directive) {
        settings::gateway(self, http);
        let formats = http.block.iter().filter(|it| it.name == "log_format");
        self.log_formats =
            formats.filter_map(|it| Some((it.arguments.first()?.clone(), it.clone()))).collect();
        self.resolver = http.block.iter().find(|directive| directive.name == "resolver").cloned();
        for directive in &http.block {
            let is_good = match directive.name.as_str() {
                "upstream" => {
                    self.upstream(directive);
                    continue;
                }
                "map" => {
                    let paths = redirect_maps::PathMap::of(directive);
                    let is_known = self.vars.map(directive) || paths.is_some();
                    let name = directive.arguments.last().map(|name| name.trim_start_matches('$').to_owned());
                    let missing = missing_field(directive);
                    let is_known = is_known || missing.is_some();
                    self.missing_fields.extend(name.clone().zip(missing));
                    self.path_maps.extend(name.zip(paths));
                    is_known
                }
                "geo" => self.vars.geo(directive),
                _ => continue,
            };
            let what = format!("http: {directive}");
            if is_good {
                self.out.converted(directive.at, what);
            } else {
                self.out.not_converted(
                    directive.at,
                    what,
                    "its cases can't be said here; what guards by it is closed",
                    "",
                );
            }
        }
        for directive in &http.block {
            match directive.name.as_str() {
                "limit_req_zone" | "limit_conn_zone" => match self.zone(directive) {
                    true => self.out.converted(directive.at, format_args!("http: {directive}")),
                    false => self.directive_not_converted("http", directive),
                },
                _ => self.report_directive("http", directive),
            }
        }
        self.servers(http);
        let protocols: Vec<&Directive> = http
            .block
            .iter()
            .chain(http.block.iter().filter(|it| it.name == "server").flat_map(|it| it.block.iter()))
            .filter(|it| it.name == "ssl_protocols")
            .collect();
        if !protocols.is_empty() && protocols.iter().all(|it| it.arguments.iter().all(|it| it == "TLSv1.3")) {
            self.tls.min_version("1.3");
        }
    }

    fn tls(&mut self) {
        if !self.certificates.is_empty() {
            self.tls.certificates(std::mem::take(&mut self.certificates));
            self.out.gateway.tls(std::mem::take(&mut self.tls));
        }
    }
}

/// `map $upstream_http_NAME $name { "" VALUE; }`: the field, and its value where the target does not send it.
fn missing_field(map: &Directive) -> Option<(String, String)> {
    let field = map.arguments.first()?.strip_prefix("$upstream_http_")?.replace('_', "-");
    let [entry] = map.block.as_slice() else { return None };
    let value = entry.arguments.first().filter(|value| entry.name.is_empty() && !value.contains('$'))?;
    Some((field, value.clone()))
}

/// The directives of this name that hold in a location, whose levels go from the outermost.
fn said<'d>(levels: &[&'d Directive], name: &str) -> Vec<&'d Directive> {
    let of = |level: &&'d Directive| -> Vec<&'d Directive> { level.all(name).collect() };
    levels.iter().rev().map(of).find(|said| !said.is_empty()).unwrap_or_default()
}

/// The directive of this name that holds: the innermost level's.
#[inline]
fn innermost<'d>(levels: &[&'d Directive], name: &str) -> Option<&'d Directive> {
    innermost_by_bit(levels, name, name_bit(name))
}

fn innermost_by_bit<'d>(levels: &[&'d Directive], name: &str, bit: u64) -> Option<&'d Directive> {
    levels.iter().rev().find_map(|level| level.all_by_bit(name, bit).next())
}

/// The first word of the directive of this name that holds.
#[inline]
fn first<'d>(levels: &[&'d Directive], name: &str) -> Option<&'d str> {
    innermost(levels, name)?.arguments.first().map(String::as_str)
}

#[cfg(test)]
mod tests;
