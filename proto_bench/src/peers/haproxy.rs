//! HAProxy, with connection reuse to the backend and its limits out of the way.

use std::path::Path;

use super::tests::{FIXED_BODY, KEY, ROUTES, Test};
use super::{Setup, Site, upstream};
use crate::plan::Protocol;

pub(super) fn setup(test: Test, program: &Path, site: &Site<'_>) -> Option<Setup> {
    let (front, tls) = test.front();
    // Debian's HAProxy 2.6 is built without QUIC and forwards no datagrams.
    if matches!(front, Protocol::Http3 | Protocol::Udp | Protocol::Dtls) {
        return None;
    }
    let backend = upstream(site.backend, test.back(), false)?;
    let directory = site.directory.to_string_lossy();
    let mode = if front == Protocol::Tcp { "tcp" } else { "http" };
    let mut bind = format!("bind {} backlog 8192", site.listen);
    if tls {
        bind.push_str(&format!(" ssl crt {directory}/both.pem no-tls-tickets"));
    }
    match (front, tls) {
        (Protocol::Http2 | Protocol::Grpc, true) => bind.push_str(" alpn h2"),
        (Protocol::Http2 | Protocol::Grpc, false) => bind.push_str(" proto h2"),
        (Protocol::Http1, true) => bind.push_str(" alpn http/1.1"),
        _ => {}
    }
    let proto = if matches!(test.back(), Protocol::Http2 | Protocol::Grpc) { " proto h2" } else { "" };
    let (rules, mut files) = rules(test, site);
    let text = format!(
        "global\n  maxconn {}\n  nbthread {}\n  tune.ssl.cachesize 0\n  tune.h2.max-concurrent-streams 1000\n  \
         tune.ssl.default-dh-param 2048\n\
         defaults\n  mode {mode}\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  timeout tunnel 1h\n\
         frontend front\n  {bind}\n{rules}  default_backend back\n\
         backend back\n  {}server one {backend} maxconn 32768{proto} pool-max-conn 4096\n",
        most_connections(),
        site.workers,
        if mode == "http" { "http-reuse always\n  " } else { "" },
    );
    let file = site.directory.join("haproxy.cfg");
    let command = [
        program.to_string_lossy().into_owned(),
        "-db".to_owned(),
        "-f".to_owned(),
        file.to_string_lossy().into_owned(),
    ];
    files.push((file, text));
    Some(Setup { command: command.to_vec(), files })
}

/// It refuses to start with more than its limit of open files allows, two for each connection.
fn most_connections() -> u64 {
    (crate::measure::machine::raise_open_files().saturating_sub(500) / 2).min(32_768)
}

/// Rules of the frontend, and the files they need.
fn rules(test: Test, site: &Site<'_>) -> (String, Vec<(std::path::PathBuf, String)>) {
    match test {
        Test::Fixed | Test::FixedH2 => (
            format!("  http-request return status 200 content-type text/plain string \"{FIXED_BODY}\"\n"),
            Vec::new(),
        ),
        Test::KeyAuth => (
            format!("  http-request deny deny_status 401 unless {{ req.hdr(x-api-key) -m str {KEY} }}\n"),
            Vec::new(),
        ),
        Test::Routes => {
            // Its answer to many routes: a map file, looked up by the path's beginning.
            let map = site.directory.join("routes.map");
            let text = (0..ROUTES).map(|number| format!("/svc/{number}/ back\n")).collect();
            let rules = format!(
                "  http-request set-var(txn.route) path,map_beg({})\n  \
                 http-request replace-path /svc/[0-9]+/(.*) /\\1\n  \
                 use_backend %[var(txn.route)] if {{ var(txn.route) -m found }}\n",
                map.to_string_lossy()
            );
            (rules, vec![(map, text)])
        }
        _ => (String::new(), Vec::new()),
    }
}
