//! nginx, tuned as its manual says: upstream keepalive, no access log, no limit on requests a connection.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::tests::{FIXED_BODY, KEY, ROUTES, Test};
use super::{Setup, Site, upstream};
use crate::plan::Protocol;

/// Where Debian puts the stream module; in other builds it is compiled in.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
/// Where Debian and others put ModSecurity's.
const MODSECURITY_MODULES: [&str; 3] = [
    "/usr/lib/nginx/modules/ngx_http_modsecurity_module.so",
    "/usr/lib64/nginx/modules/ngx_http_modsecurity_module.so",
    "/etc/nginx/modules/ngx_http_modsecurity_module.so",
];

/// The file of ModSecurity's directives.
const RULES: &str = "modsecurity.conf";

/// ModSecurity's module, if it is here.
pub(super) fn modsecurity_module() -> Option<PathBuf> {
    MODSECURITY_MODULES.map(PathBuf::from).into_iter().find(|path| path.exists())
}

pub(super) fn setup(test: Test, program: &Path, site: &Site<'_>) -> Option<Setup> {
    let body = match test {
        // 1.22 has neither HTTP/3, nor DTLS, nor HTTP/2 to a backend.
        Test::H3 | Test::Dtls | Test::H2c => return None,
        Test::Tcp | Test::TcpTls | Test::TcpBulk | Test::Udp => stream(test, site)?,
        _ => http(test, site)?,
    };
    let mut files = Vec::new();
    let (mut load, mut level) = (String::new(), "warn");
    if body.starts_with("stream") && Path::new(STREAM_MODULE).exists() {
        load = format!("load_module {STREAM_MODULE};\n");
    }
    if test.needs_rules() {
        load = format!("load_module {};\n", modsecurity_module()?.to_string_lossy());
        // Each refusal would be a line; nobody else writes one.
        level = "crit";
        files.push((site.directory.join(RULES), site.rules?.directives()));
    }
    let directory = site.directory.to_string_lossy();
    let text = format!(
        "{load}daemon off;\nworker_processes {};\npid {directory}/nginx.pid;\nerror_log stderr {level};\n\
         worker_rlimit_nofile 65536;\nevents {{ worker_connections 32768; }}\n{body}",
        site.workers
    );
    let file = site.directory.join("nginx.conf");
    let command =
        [program.to_string_lossy().into_owned(), "-c".to_owned(), file.to_string_lossy().into_owned()];
    files.push((file, text));
    Some(Setup { command: command.to_vec(), files })
}

fn http(test: Test, site: &Site<'_>) -> Option<String> {
    let (front, tls) = test.front();
    let backend = upstream(site.backend, test.back(), false)?;
    let listen = site.listen;
    let options = match (front, tls) {
        (Protocol::Http2 | Protocol::Grpc, true) => " ssl http2",
        (Protocol::Http2 | Protocol::Grpc, false) => " http2",
        (_, true) => " ssl",
        (_, false) => "",
    };
    let locations = match test {
        Test::Grpc => "location / { grpc_pass grpc://backend; }\n".to_owned(),
        Test::Ws => "location / { proxy_pass http://backend; proxy_http_version 1.1; \
                     proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; \
                     proxy_read_timeout 1h; proxy_buffering off; }\n"
            .to_owned(),
        Test::Fixed | Test::FixedH2 => {
            format!("location / {{ default_type text/plain; return 200 \"{FIXED_BODY}\"; }}\n")
        }
        Test::KeyAuth => format!("location / {{ if ($known_key = 0) {{ return 401; }} {} }}\n", pass("")),
        Test::Routes => {
            (0..ROUTES).map(|number| format!("location /svc/{number}/ {{ {} }}\n", pass("/"))).collect()
        }
        _ => format!("location / {{ {} }}\n", pass("")),
    };
    let firewall = if test.needs_rules() {
        let file = site.directory.join(RULES);
        format!("modsecurity on;\nmodsecurity_rules_file {};\n", file.to_string_lossy())
    } else {
        String::new()
    };
    let map = if test == Test::KeyAuth {
        format!("map $http_x_api_key $known_key {{ default 0; \"{KEY}\" 1; }}\n")
    } else {
        String::new()
    };
    Some(format!(
        "http {{\naccess_log off;\nsendfile on;\ntcp_nodelay on;\nkeepalive_requests 1000000000;\nkeepalive_timeout 1h;\n\
         client_body_buffer_size 64k;\nclient_max_body_size 0;\nproxy_buffers 16 16k;\nproxy_buffer_size 16k;\n\
         http2_max_concurrent_streams 1000;\n{}{map}\
         upstream backend {{ server {backend}; keepalive 1024; keepalive_requests 1000000000; keepalive_timeout 1h; }}\n\
         server {{\nlisten {listen}{options} reuseport backlog=8192;\n{}{firewall}{locations}}}\n}}\n",
        temporary_paths(site),
        certificates(tls, site)
    ))
}

fn pass(uri: &str) -> String {
    format!("proxy_pass http://backend{uri}; proxy_http_version 1.1; proxy_set_header Connection \"\";")
}

fn stream(test: Test, site: &Site<'_>) -> Option<String> {
    let (front, tls) = test.front();
    let backend: SocketAddr = upstream(site.backend, test.back(), false)?;
    let listen = site.listen;
    let options = match (front, tls) {
        (Protocol::Udp, _) => " udp",
        (_, true) => " ssl",
        _ => "",
    };
    let backlog = if front == Protocol::Udp { "" } else { " backlog=8192" };
    Some(format!(
        "stream {{\naccess_log off;\ntcp_nodelay on;\nproxy_timeout 1h;\n\
         server {{\nlisten {listen}{options} reuseport{backlog};\n{}proxy_pass {backend};\n}}\n}}\n",
        certificates(tls, site)
    ))
}

fn certificates(tls: bool, site: &Site<'_>) -> String {
    if !tls {
        return String::new();
    }
    let directory = site.directory.to_string_lossy();
    // Resumption is switched off on both sides: each connection does a full handshake.
    format!(
        "ssl_certificate {directory}/cert.pem;\nssl_certificate_key {directory}/key.pem;\nssl_protocols TLSv1.2 TLSv1.3;\n\
         ssl_session_cache off;\nssl_session_tickets off;\n"
    )
}

fn temporary_paths(site: &Site<'_>) -> String {
    let directory = site.directory.to_string_lossy();
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {directory}/nginx-{name};\n"))
        .concat()
}
