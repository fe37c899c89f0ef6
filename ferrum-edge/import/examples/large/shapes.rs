//! Files of each format that repeat one construct, of any size: an importer's time is proportional to theirs.

mod nginx;

use gateway_import::Format;

/// A shape of a file: what it begins with, what is repeated, and what it ends with. Of what is repeated, `#` is its number,
/// `ADDRESS` an address of its own, and `HASH` a `#`.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) format: Format,
    start: &'static str,
    each: &'static str,
    end: &'static str,
}

impl Shape {
    /// A file that has the construct so often, or fewer times where it would have more bytes than this.
    pub(crate) fn text(&self, count: usize, most_bytes: usize) -> String {
        let mut text = self.start.to_owned();
        for n in 1..=count {
            if text.len() + self.each.len() + self.end.len() + 32 > most_bytes {
                break;
            }
            let address = format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
            text.push_str(
                &self.each.replace('#', &n.to_string()).replace("ADDRESS", &address).replace("HASH", "#"),
            );
        }
        text.push_str(self.end);
        text
    }
}

const OTHERS: &[Shape] = &[
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
    Shape {
        name: "haproxy: frontends on addresses of their own",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\n",
        each: "frontend f#\n bind ADDRESS:80\n http-request set-header X-A b\n http-response set-header X-A b\n default_backend b\n",
        end: "",
    },
    Shape {
        name: "haproxy: rules of named conditions",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\nfrontend f\n bind :80\n default_backend b\n",
        each: " acl a# hdr(host) -i a#.test\n use_backend b if a#\n",
        end: "",
    },
    Shape {
        name: "haproxy: values of a condition",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\nfrontend f\n bind :80\n use_backend b if bad\n default_backend b\n",
        each: " acl bad path /a#\n acl bad src ADDRESS\n",
        end: "",
    },
    Shape {
        name: "haproxy: changes of headers",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\nfrontend f\n bind :80\n default_backend b\n",
        each: " http-request set-header X-A# b\n http-response set-header X-B# c\n",
        end: "",
    },
    Shape {
        name: "haproxy: refusals",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\nfrontend f\n bind :80\n default_backend b\n",
        each: " http-request deny if { path /a# }\n",
        end: "",
    },
    Shape {
        name: "haproxy: redirects",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\nfrontend f\n bind :80\n default_backend b\n",
        each: " http-request redirect location /new# if { path /a# }\n",
        end: "",
    },
    Shape {
        name: "haproxy: servers of a backend",
        format: Format::Haproxy,
        start: "defaults\n mode http\nfrontend f\n bind :80\n default_backend b\nbackend b\n",
        each: " server s# ADDRESS:80 check\n",
        end: "",
    },
    Shape {
        name: "haproxy: streams",
        format: Format::Haproxy,
        start: "defaults\n mode tcp\n",
        each: "listen f#\n bind ADDRESS:53\n server a 10.0.0.1:80 check\n",
        end: "",
    },
    Shape {
        name: "haproxy: users",
        format: Format::Haproxy,
        start: "defaults\n mode http\nbackend b\n server a 10.0.0.1:80\nfrontend f\n bind :80\n http-request auth unless { http_auth(u) }\n default_backend b\nuserlist u\n",
        each: " user a# insecure-password b#\n",
        end: "",
    },
    Shape {
        name: "caddy: sites on addresses of their own",
        format: Format::Caddyfile,
        start: "{\n admin off\n}\n",
        each: "http://a#.test:80 {\n bind ADDRESS\n log {\n  output file /var/log/a#.log\n }\n @m# path /a#/*\n header @m# X-A b\n basic_auth @m# {\n  a# $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n }\n reverse_proxy 10.0.0.2:80\n}\n",
        end: "",
    },
    Shape {
        name: "caddy: hosts of a site",
        format: Format::Caddyfile,
        start: "a.test",
        each: ", a#.test",
        end: " {\n reverse_proxy 10.0.0.1:80\n}\n",
    },
    Shape {
        name: "caddy: matchers",
        format: Format::Caddyfile,
        start: "a.test {\n reverse_proxy 10.0.0.1:80\n",
        each: " @m# {\n  path /a#/*\n  header X-A b#\n }\n respond @m# 403\n",
        end: "}\n",
    },
    Shape {
        name: "caddy: snippets",
        format: Format::Caddyfile,
        start: "",
        each: "(s#) {\n encode gzip\n}\na#.test {\n import s#\n reverse_proxy 10.0.0.1:80\n}\n",
        end: "",
    },
    Shape {
        name: "caddy: redirects of a site",
        format: Format::Caddyfile,
        start: "a.test {\n reverse_proxy 10.0.0.1:80\n",
        each: " redir /old# /new# 301\n",
        end: "}\n",
    },
    Shape {
        name: "caddy: headers of a site",
        format: Format::Caddyfile,
        start: "a.test {\n reverse_proxy 10.0.0.1:80\n",
        each: " header X-A# b\n request_header X-B# c\n",
        end: "}\n",
    },
    Shape {
        name: "kong: upstreams with targets",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, host: u1, routes: [{name: r, paths: [/]}]}]\nupstreams:\n",
        each: "- {name: u#, targets: [{target: 'ADDRESS:80', weight: 5}, {target: '10.0.0.1:80'}]}\n",
        end: "",
    },
    Shape {
        name: "kong: targets that stand apart",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, host: u1, routes: [{name: r, paths: [/]}]}]\nupstreams: [{name: u1}]\ntargets:\n",
        each: "- {target: 'ADDRESS:80', upstream: u1}\n",
        end: "",
    },
    Shape {
        name: "kong: routes on one path",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', plugins: [{name: cors}], routes: [\n",
        each: "{name: r#, paths: [/], hosts: [a#.test], headers: {x-a: [b#]}, methods: [GET]},\n",
        end: "{name: last, paths: [/]}]}]\n",
    },
    Shape {
        name: "kong: routes in one another",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [\n",
        each: "{name: r#, paths: [/a#, '~/b#/[0-9]+']},\n",
        end: "{name: last, paths: [/]}]}]\n",
    },
    Shape {
        name: "kong: routes by expressions",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [\n",
        each: "{name: r#, expression: 'http.host == \"a#.test\" && http.path ^= \"/a#\"', priority: #},\n",
        end: "{name: last, paths: [/]}]}]\n",
    },
    Shape {
        name: "kong: groups of consumers",
        format: Format::Kong,
        start: "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [{name: r, paths: [/], plugins: [{name: acl, config: {allow: [g1]}}]}]}]\nplugins: [{name: basic-auth}]\nconsumer_groups: [{name: g1, plugins: [{name: rate-limiting, config: {minute: 5}}]}]\nconsumers:\n",
        each: "- {username: c#, groups: [{name: g1}], basicauth_credentials: [{username: u#, password: p#}], acls: [{group: g1}]}\n",
        end: "",
    },
    Shape {
        name: "kong: callers of a route",
        format: Format::Kong,
        start: "_format_version: '3.0'\nplugins: [{name: key-auth}]\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [{name: r, paths: [/], plugins: [\n",
        each: "{name: request-termination, consumer: c#, config: {status_code: 403}},\n",
        end: "]}]}]\n",
    },
    Shape {
        name: "traefik: services",
        format: Format::Traefik,
        start: "http:\n  routers: {r: {rule: 'Host(`a.test`)', service: s1}}\n  services:\n",
        each: "    s#: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}], healthCheck: {path: /ok}}}\n",
        end: "",
    },
    Shape {
        name: "traefik: middlewares",
        format: Format::Traefik,
        start: "http:\n  services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}]}}}\n  routers: {r: {rule: 'Host(`a.test`)', service: s, middlewares: [m1]}}\n  middlewares:\n",
        each: "    m#: {headers: {customRequestHeaders: {X-A: b}}}\n",
        end: "",
    },
    Shape {
        name: "traefik: middlewares of a router",
        format: Format::Traefik,
        start: "http:\n  services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}]}}}\n  middlewares: {m: {headers: {customRequestHeaders: {X-A: b}}}}\n  routers: {r: {rule: 'Host(`a.test`)', service: s, middlewares: [\n",
        each: "    m,\n",
        end: "    m]}}\n",
    },
    Shape {
        name: "traefik: servers of a service",
        format: Format::Traefik,
        start: "http:\n  routers: {r: {rule: 'Host(`a.test`)', service: s}}\n  services: {s: {loadBalancer: {servers: [\n",
        each: "    {url: 'http://ADDRESS:80'},\n",
        end: "    {url: 'http://10.0.0.1:80'}]}}}\n",
    },
    Shape {
        name: "traefik: hosts of a rule",
        format: Format::Traefik,
        start: "http:\n  services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}]}}}\n  routers: {r: {service: s, rule: 'Host(`a.test`)",
        each: " || Host(`a#.test`)",
        end: "'}}\n",
    },
    Shape {
        name: "traefik: entry points",
        format: Format::Traefik,
        start: "http: {services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:80'}]}}}, routers: {r: {rule: 'Host(`a.test`)', service: s}}}\nentryPoints:\n",
        each: "  e#: {address: 'ADDRESS:80'}\n",
        end: "",
    },
    Shape {
        name: "traefik: streams",
        format: Format::Traefik,
        start: "entryPoints: {t: {address: ':443'}}\ntcp:\n  services: {s: {loadBalancer: {servers: [{address: '10.0.0.1:80'}]}}}\n  routers:\n",
        each: "    r#: {rule: 'HostSNI(`a#.test`)', service: s, entryPoints: [t], tls: {passthrough: true}}\n",
        end: "",
    },
    Shape {
        name: "traefik: labels",
        format: Format::Traefik,
        start: "services:\n",
        each: "  s#:\n    image: a\n    labels:\n      - traefik.http.routers.r#.rule=Host(`a#.test`)\n      - traefik.http.services.r#.loadbalancer.server.port=80\n",
        end: "",
    },
    Shape {
        name: "envoy: clusters",
        format: Format::Envoy,
        start: "static_resources:\n  listeners:\n  - address: {socket_address: {address: 0.0.0.0, port_value: 80}}\n    filter_chains:\n    - filters:\n      - typed_config:\n          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          route_config: {virtual_hosts: [{name: v, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: c1}}]}]}\n  clusters:\n",
        each: "  - {name: c#, load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: ADDRESS, port_value: 80}}}}]}]}}\n",
        end: "",
    },
    Shape {
        name: "envoy: routes of a host",
        format: Format::Envoy,
        start: "static_resources:\n  clusters: [{name: c, load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}}]}]}}]\n  listeners:\n  - address: {socket_address: {address: 0.0.0.0, port_value: 80}}\n    filter_chains:\n    - filters:\n      - typed_config:\n          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          route_config:\n            virtual_hosts:\n            - name: v\n              domains: ['*']\n              routes:\n",
        each: "              - {match: {prefix: /a#, headers: [{name: x-a, string_match: {exact: b}}]}, route: {cluster: c}}\n",
        end: "",
    },
    Shape {
        name: "envoy: listeners",
        format: Format::Envoy,
        start: "static_resources:\n  clusters: [{name: c, load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}}]}]}}]\n  listeners:\n",
        each: "  - {address: {socket_address: {address: ADDRESS, port_value: 80}}, filter_chains: [{filters: [{typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, route_config: {virtual_hosts: [{name: v, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: c}}]}]}}}]}]}\n",
        end: "",
    },
    Shape {
        name: "envoy: domains of a host",
        format: Format::Envoy,
        start: "static_resources:\n  clusters: [{name: c, load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}}]}]}}]\n  listeners:\n  - address: {socket_address: {address: 0.0.0.0, port_value: 80}}\n    filter_chains:\n    - filters:\n      - typed_config:\n          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          route_config:\n            virtual_hosts:\n            - name: v\n              routes: [{match: {prefix: /}, route: {cluster: c}}]\n              domains:\n",
        each: "              - a#.test\n",
        end: "",
    },
    Shape {
        name: "ingress: services beside manifests",
        format: Format::Ingress,
        start: "",
        each: "---\napiVersion: v1\nkind: Service\nmetadata: {name: web#, namespace: n}\nspec: {ports: [{name: http, port: 80, targetPort: 8080}]}\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i#, namespace: n, annotations: {nginx.ingress.kubernetes.io/ssl-redirect: 'true', nginx.ingress.kubernetes.io/limit-rps: '5'}}\nspec: {tls: [{hosts: [a#.test], secretName: s#}], rules: [{host: a#.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web#, port: {name: http}}}}]}}]}\n",
        end: "",
    },
    Shape {
        name: "ingress: canaries",
        format: Format::Ingress,
        start: "",
        each: "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i#, namespace: n}\nspec: {rules: [{host: a#.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: c#, namespace: n, annotations: {nginx.ingress.kubernetes.io/canary: 'true', nginx.ingress.kubernetes.io/canary-weight: '5'}}\nspec: {rules: [{host: a#.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: new, port: {number: 80}}}}]}}]}\n",
        end: "",
    },
    Shape {
        name: "ingress: paths of a host",
        format: Format::Ingress,
        start: "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i, namespace: n}\nspec:\n  rules:\n  - host: a.test\n    http:\n      paths:\n",
        each: "      - {path: /a#, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}\n",
        end: "",
    },
    Shape {
        name: "openapi: operations with all that they have",
        format: Format::OpenApi,
        start: "openapi: 3.0.3\nservers: [{url: 'https://api.test'}]\ncomponents: {securitySchemes: {k: {type: apiKey, in: header, name: X-Key}}}\npaths:\n",
        each: "  /items#: {get: {operationId: o#, tags: [t#], security: [{k: []}], parameters: [{name: q, in: query, required: true, schema: {type: integer}}]}, post: {requestBody: {content: {application/json: {schema: {type: object, required: [a], properties: {a: {type: string}}}}}}}}\n",
        end: "",
    },
];

/// All shapes.
pub(crate) fn all() -> impl Iterator<Item = &'static Shape> {
    nginx::SHAPES.iter().chain(OTHERS)
}
