//! Imports files of 10 MB in each format, of several shapes, and says how long each takes; fails where one takes more than 2 s:
//! `cargo run --release -p ferrum-gateway-import --example large -- [PART OF A NAME]`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gateway_import::{Format, NoFiles, Options, import};

const BYTES: usize = 10_000_000;
const MOST: Duration = Duration::from_secs(2);

/// A shape of a file: what it begins with, what is repeated with its number in the place of `#`, and what it ends with.
struct Shape {
    name: &'static str,
    format: Format,
    start: &'static str,
    each: &'static str,
    end: &'static str,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "nginx: servers",
        format: Format::Nginx,
        start: "events {}\nhttp {\n",
        each: "server { listen 80; server_name a#.test www.a#.test; location / { proxy_pass http://10.0.0.1:8080; proxy_set_header Host $host; }\n location /api/ { proxy_pass http://10.0.0.2:8080/v1/; } }\n",
        end: "}\n",
    },
    Shape {
        name: "nginx: locations",
        format: Format::Nginx,
        start: "events {}\nhttp { server { listen 80; server_name a.test;\n",
        each: "location /path-#/ { proxy_pass http://10.0.0.1:8080; proxy_set_header Host $host; }\n",
        end: "} }\n",
    },
    Shape {
        name: "nginx: upstreams",
        format: Format::Nginx,
        start: "events {}\nhttp { server { listen 80; location / { proxy_pass http://u1; } }\n",
        each: "upstream u# { server 10.0.0.1:8080 weight=2; server 10.0.0.2:8080; keepalive 8; }\n",
        end: "}\n",
    },
    Shape {
        name: "nginx: a map of redirects",
        format: Format::Nginx,
        start: "events {}\nhttp { map $uri $new {\n",
        each: "/old/path/# /new/path/to/#;\n",
        end: "}\n server { listen 80; if ($new) { return 301 $new; } location / { proxy_pass http://10.0.0.1:80; } } }\n",
    },
    Shape {
        name: "nginx: rewrites",
        format: Format::Nginx,
        start: "events {}\nhttp { server { listen 80; location / { proxy_pass http://10.0.0.1:80; }\n",
        each: "rewrite ^/old/#/(.*)$ /new/#/$1 permanent;\n",
        end: "} }\n",
    },
    Shape {
        name: "nginx: comments",
        format: Format::Nginx,
        start: "events {}\nhttp { server { listen 80; location / { proxy_pass http://10.0.0.1:80; } } }\n",
        each: "# a comment of a person, number #\n",
        end: "",
    },
    Shape {
        name: "haproxy: backends",
        format: Format::Haproxy,
        start: "defaults\n mode http\nfrontend f\n bind :80\n default_backend b1\n",
        each: "backend b#\n balance roundrobin\n option httpchk GET /ok\n server a 10.0.0.1:80 check\n server b 10.0.0.2:80 check backup\n",
        end: "",
    },
    Shape {
        name: "haproxy: rules",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\nfrontend f\n bind :80\n default_backend b\n",
        each: " use_backend b if { hdr(host) -i a#.test } { path_beg /api/# }\n",
        end: "",
    },
    Shape {
        name: "haproxy: frontends",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\n",
        each: "frontend f#\n bind 127.0.0.1:80\n acl api path_beg /api\n http-request deny if api { src 10.0.0.0/8 }\n default_backend b\n",
        end: "",
    },
    Shape {
        name: "caddy: sites",
        format: Format::Caddyfile,
        start: "{\n admin off\n}\n",
        each: "a#.test {\n encode gzip\n handle /api/* {\n  reverse_proxy 10.0.0.1:80\n }\n reverse_proxy 10.0.0.2:80\n}\n",
        end: "",
    },
    Shape {
        name: "caddy: routes of a site",
        format: Format::Caddyfile,
        start: "a.test {\n",
        each: " handle /path-#/* {\n  reverse_proxy 10.0.0.1:80\n }\n",
        end: "}\n",
    },
    Shape {
        name: "caddy: JSON",
        format: Format::CaddyJson,
        start: r#"{"apps": {"http": {"servers": {"s": {"listen": [":80"], "routes": ["#,
        each: r##"{"match": [{"host": ["a#.test"]}], "terminal": true, "handle": [{"handler": "reverse_proxy", "upstreams": [{"dial": "10.0.0.1:80"}]}]},"##,
        end: r#"{"handle": [{"handler": "static_response", "status_code": 404}]}]}}}}}"#,
    },
    Shape {
        name: "kong: services",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices:\n",
        each: "- {name: s#, url: 'http://10.0.0.1:80', routes: [{name: r#, paths: [/path/#], hosts: [a#.test], plugins: [{name: rate-limiting, config: {minute: 5}}]}]}\n",
        end: "",
    },
    Shape {
        name: "kong: consumers",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [{name: r, paths: [/]}]}]\nplugins: [{name: key-auth}]\nconsumers:\n",
        each: "- {username: c#, keyauth_credentials: [{key: 'key-number-#'}], acls: [{group: g#}]}\n",
        end: "",
    },
    Shape {
        name: "kong: objects that stand apart",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [{name: r, paths: [/]}]}]\nplugins: [{name: key-auth}]\nconsumers: [{username: c1}]\nkeyauth_credentials:\n",
        each: "- {consumer: c1, key: 'key-number-# of many'}\n",
        end: "",
    },
    Shape {
        name: "kong: plugins of consumers",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [{name: r, paths: [/]}]}]\nplugins: [{name: key-auth}]\nconsumers:\n",
        each: "- {username: c#, keyauth_credentials: [{key: 'key-number-#'}], plugins: [{name: rate-limiting, config: {minute: 5}}]}\n",
        end: "",
    },
    Shape {
        name: "traefik: routers",
        format: Format::Traefik,
        start: "http:\n  services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}]}}}\n  routers:\n",
        each: "    r#: {rule: 'Host(`a#.test`) && PathPrefix(`/api`)', service: s}\n",
        end: "",
    },
    Shape {
        name: "envoy: routes",
        format: Format::Envoy,
        start: "static_resources:\n  clusters: [{name: c, load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}}]}]}}]\n  listeners:\n  - address: {socket_address: {address: 0.0.0.0, port_value: 80}}\n    filter_chains:\n    - filters:\n      - typed_config:\n          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          route_config:\n            virtual_hosts:\n",
        each: "            - {name: v#, domains: [a#.test], routes: [{match: {prefix: /}, route: {cluster: c}}]}\n",
        end: "",
    },
    Shape {
        name: "ingress: manifests",
        format: Format::Ingress,
        start: "",
        each: "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i#, namespace: n}\nspec: {rules: [{host: a#.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}\n",
        end: "",
    },
    Shape {
        name: "openapi: paths",
        format: Format::OpenApi,
        start: "openapi: 3.0.3\nservers: [{url: 'https://api.test'}]\npaths:\n",
        each: "  /items#/{id}: {get: {parameters: [{name: id, in: path, required: true}]}, post: {}}\n",
        end: "",
    },
];

fn text(shape: &Shape) -> String {
    let mut text = shape.start.to_owned();
    let mut n = 0;
    while text.len() + shape.each.len() + shape.end.len() + 16 < BYTES {
        n += 1;
        text.push_str(&shape.each.replace('#', &n.to_string()));
    }
    text.push_str(shape.end);
    text
}

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut is_slow = false;
    let mut out = String::new();
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&wanted)) {
        let source = [("file".to_owned(), text(shape))];
        let begun = Instant::now();
        let made = import(shape.format, &source, &NoFiles, Options::default());
        let taken = begun.elapsed();
        is_slow |= taken > MOST;
        let what = match &made {
            Ok(made) => format!("{} proxies, {} upstreams", made.proxies.len(), made.upstreams.len()),
            Err(error) => error.to_string(),
        };
        out.clear();
        writeln!(out, "{:<32} {:>6.2} s  {what}", shape.name, taken.as_secs_f64()).ok();
        drop(std::io::stdout().write_all(out.as_bytes()));
    }
    if is_slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
