//! The top-level modules of each crate have an order, and import downwards.

use std::collections::{BTreeMap, BTreeSet};

use crate::circles::{Graph, graph_of};
use crate::tidy::sources;

/// The top-level modules of a crate, from the top down: each may import those that come after it.
struct Order {
    name: &'static str,
    modules: &'static [&'static str],
    /// Imports that climb all the same: from which module, into which, and in how many files. The numbers may only go down.
    climbs: &'static [(&'static str, &'static str, usize)],
}

const ORDERS: &[Order] = &[
    Order {
        name: "gateway-core/config",
        modules: &[
            "catalog",
            "settings",
            "resolve",
            "changes",
            "warning",
            "endpoint",
            "claims",
            "port_claims",
            "consumer",
            "model",
            "index",
            "file",
            "exporter",
            "credential",
            "capabilities",
            "hook_set",
            "template",
            "condition",
            "pattern",
            "problem",
            "credential_names",
            "nearest",
            "network",
            "units",
            "spelling",
        ],
        climbs: &[],
    },
    Order {
        name: "gateway-core",
        modules: &[
            "testing",
            "pipeline",
            "snapshot",
            "plugin",
            "condition",
            "cgi",
            "template",
            "record",
            "proxy_state",
            "stream",
            "http",
            "trace",
            "route",
            "balance",
            "health",
            "request_values",
            "pool",
            "limit",
            "metrics",
            "reason",
            "certificate",
        ],
        climbs: &[],
    },
    Order {
        name: "gateway-protocols",
        modules: &[
            "serving",
            "probe",
            "calls",
            "downstream",
            "udp_port",
            "worker",
            "entrance",
            "registry",
            "fuzzing",
            "upstream",
            "h3",
            "qpack",
            "timer",
            "quic",
            "h2",
            "h1",
            "link",
            "buffer",
            "hpack",
            "udp",
            "dns",
            "outgoing",
            "supervise",
            "date",
            "handover",
            "tls",
            "recorder",
            "starttls",
            "load",
        ],
        climbs: &[],
    },
    Order {
        name: "gateway-plugins",
        modules: &[
            "fuzzing",
            "admission",
            "content",
            "observability",
            "traffic",
            "security",
            "transformation",
        ],
        climbs: &[],
    },
    Order {
        name: "gateway-plugins/auth",
        modules: &[
            "access_control",
            "csrf",
            "forward_auth",
            "oidc",
            "oauth2_introspection",
            "jwks_auth",
            "jwt_auth",
            "hmac_auth",
            "ldap_auth",
            "basic_auth",
            "key_auth",
            "mtls_auth",
            "oauth",
            "assertion",
            "credential",
            "jose",
            "privacy",
            "turns",
        ],
        climbs: &[],
    },
    Order {
        name: "gateway-plugins/cache",
        modules: &["request_deduplication", "response_cache"],
        climbs: &[],
    },
    Order {
        name: "gateway-plugins/common",
        modules: &[
            "testing",
            "caller_key",
            "redis_link",
            "coding",
            "gzip",
            "zstandard",
            "reused_encoders",
            "conditional",
            "range",
            "accept",
            "envoy",
            "response_origin",
            "list_fields",
            "query",
            "origin",
            "server_url",
            "watched",
            "parse",
            "headers",
            "facts",
            "statuses",
            "wildcard",
            "one_or_many",
            "set_associative",
            "generations",
            "flat_json",
            "strict_json",
            "html",
            "hex",
        ],
        climbs: &[],
    },
    Order {
        name: "gateway-plugins/scripting",
        modules: &["wasm", "script", "message", "on_error", "shared_table", "testing"],
        climbs: &[],
    },
    Order {
        name: "gateway-plugins/telemetry",
        modules: &["record", "otlp", "redact", "deliver", "batch", "json", "context"],
        climbs: &[],
    },
    Order {
        name: "gateway-plugins/waf",
        modules: &[
            "fuzzing",
            "pack",
            "engine",
            "compile",
            "values",
            "texts",
            "rules",
            "seclang",
            "operator",
            "body",
            "transform",
            "filter",
            "cache",
            "limits",
            "variable",
            "pattern",
            "bytes",
            "problem",
            "request",
            "bits",
        ],
        climbs: &[],
    },
    Order {
        name: "ferrum-edge",
        modules: &[
            "cli",
            "app",
            "admin",
            "explain",
            "fleet",
            "source",
            "control",
            "engine",
            "export",
            "audit_recorder",
            "store",
            "access",
            "audit",
            "line_file",
            "variables",
            "world",
            "forward_proxy",
        ],
        climbs: &[],
    },
    Order {
        name: "ferrum-edge/fleet",
        modules: &[
            "client",
            "server",
            "grpc_codec",
            "sealed",
            "hub",
            "tls",
            "invitation",
            "authority",
            "control",
            "edge",
            "view",
            "wire",
            "message",
            "documents",
            "canonical",
        ],
        climbs: &[],
    },
    Order {
        name: "ferrum-edge/import",
        modules: &[
            "fuzzing",
            "traefik",
            "toml",
            "openapi",
            "ingress",
            "haproxy",
            "envoy",
            "caddy",
            "steps",
            "nginx",
            "changed",
            "own_fields",
            "kong",
            "cond",
            "ports",
            "unread",
            "tree",
            "placeholders",
            "summary",
            "files",
            "error",
            "from_ca",
            "access_log",
            "draft",
            "text",
            "report",
        ],
        climbs: &[],
    },
    Order {
        name: "proto_bench",
        modules: &[
            "cli",
            "command",
            "fleet",
            "scale",
            "peers",
            "report",
            "replay",
            "load_args",
            "process",
            "backend",
            "engine",
            "bulk",
            "measure",
            "driver",
            "plan",
            "tls",
            "pace",
            "text_files",
        ],
        climbs: &[],
    },
];

/// What climbs in a crate that has this order: by the two modules, the files that import upwards.
fn climbs<'g>(graph: &'g Graph<'_>, modules: &[&str]) -> BTreeMap<(&'g str, &'g str), BTreeSet<&'g str>> {
    let place = |name: &str| modules.iter().position(|module| *module == name);
    let mut climbs: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for (path, to) in graph.crossings() {
        let from = path.split('/').next().unwrap_or_default();
        if place(to) < place(from) {
            climbs.entry((from, to)).or_default().insert(path);
        }
    }
    climbs
}

#[test]
fn modules_import_downwards() {
    let sources = sources();
    let mut wrong = Vec::new();
    for Order { name, modules, climbs: known } in ORDERS {
        let graph = graph_of(name, &sources);
        let named: BTreeSet<&str> = modules.iter().copied().collect();
        let differing: Vec<&str> = named.symmetric_difference(&graph.modules()).copied().collect();
        if !differing.is_empty() {
            wrong.push(format!("{name}: the order and the crate differ in {differing:?}"));
        }
        let climbing = climbs(&graph, modules);
        for ((from, to), files) in &climbing {
            let allowed = known.iter().find(|(f, t, _)| f == from && t == to).map_or(0, |(.., count)| *count);
            if files.len() > allowed {
                wrong.push(format!(
                    "{name}: `{from}` lies below `{to}` and imports it in {}: {files:?}",
                    files.len()
                ));
            }
        }
        for (from, to, allowed) in *known {
            let count = climbing.get(&(*from, *to)).map_or(0, BTreeSet::len);
            if count < *allowed {
                wrong.push(format!(
                    "{name}: only {count} files of `{from}` import `{to}` now, say so in ORDERS"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "move what both need into a module below:\n{}", wrong.join("\n"));
}

#[test]
fn climbs_are_counted() {
    let texts = [
        ("lib", "mod a;\nmod b;\npub use a::A;"),
        ("a", "use crate::b::B;"),
        ("b", "mod x;\npub use crate::a::A;"),
        ("b/x", "fn f(a: &crate::a::A) {}\nuse super::super::a::Z;"),
    ];
    let graph = Graph::new(texts.map(|(path, text)| (path.to_owned(), text)));
    let climbing = climbs(&graph, &["a", "b"]);
    let expected = BTreeMap::from([(("b", "a"), BTreeSet::from(["b", "b/x"]))]);
    assert_eq!(climbing, expected);
    assert!(climbs(&graph, &["b", "a"]).keys().eq([&("a", "b")]));
}
