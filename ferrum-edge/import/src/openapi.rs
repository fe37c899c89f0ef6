//! OpenAPI 3: each path with its methods becomes a proxy to the description's server.
//!
//! What `security` asks for is closed unless a plugin stands for it: `apiKey` and HTTP `basic` need consumers, which a
//! description does not have, and OpenID needs an issuer.

use crate::draft::{Import, JwksAuth, Match, Matcher, Plug, Provider, Proxy, Route, To, draft};
use crate::error::Failure;
use crate::text;
use crate::tree::{self, Node};

/// Paths of one description.
const MAX_PATHS: usize = 20_000;
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const TODO: &str = "add consumers with credentials, or an issuer, then remove `request_termination`";

/// Imports a description.
///
/// # Errors
/// When it is none of version 3.
pub(crate) fn import(out: &mut Import, name: &str, source: &str) -> Result<(), Failure> {
    let file = out.report.file(name);
    let document = tree::one(name, file, source)?;
    let version = document.get("openapi").and_then(Node::plain).unwrap_or_default();
    if !version.starts_with("3.") {
        return Err(Failure::new(name, 1, "this is not OpenAPI 3"));
    }
    let paths = document.get("paths").cloned().unwrap_or_default();
    if paths.entries().len() > MAX_PATHS {
        return Err(Failure::new(name, 0, format!("more than {MAX_PATHS} paths")));
    }
    for key in ["webhooks", "x-kong-plugin-key-auth", "x-google-backend", "x-amazon-apigateway-integration"] {
        if let Some(node) = document.get(key) {
            out.not_converted(node.at, key, "it is not converted", "");
        }
    }
    // Paths that are concrete go first; of others, which may take the same, the one that says more.
    let ranks = paths.entries().iter().any(|(path, _)| matches!(Shape::of(path), Some(Shape::Regex(_))));
    let mut this = OpenApi { out, document: &document, ranks };
    let servers = document.get("servers");
    for (path, item) in paths.entries() {
        if path.starts_with('/') {
            this.path(path, item, servers);
        }
    }
    if this.out.proxies.is_empty() {
        return Err(Failure::new(name, 1, "there are no paths in it"));
    }
    Ok(())
}

struct OpenApi<'o, 'd> {
    out: &'o mut Import,
    document: &'d Node,
    /// There are paths that are not told apart by their segments alone.
    ranks: bool,
}

/// What operations of one path have in common, so that they are one proxy.
#[derive(Debug, Clone, PartialEq)]
struct Operation {
    to: To,
    settings: Proxy,
    plugins: Vec<Plug>,
    /// The path of its server, which is before its own; none where the server is not known.
    base: Option<String>,
}

impl OpenApi<'_, '_> {
    fn path(&mut self, path: &str, item: &Node, servers: Option<&Node>) {
        let what = format!("path {path}");
        if item.get("$ref").is_some() {
            self.out.not_converted(
                item.at,
                what,
                "references of paths are not followed; it is not served",
                "bundle the description",
            );
            return;
        }
        let Some(shape) = Shape::of(path) else {
            self.out.not_converted(item.at, what, "this path can't be said here; it is not served", "");
            return;
        };
        let mut groups: Vec<(Operation, Vec<String>)> = Vec::new();
        for (method, operation) in item.entries().iter().filter(|(key, _)| METHODS.contains(&key.as_str())) {
            let what = format!("{} {path}", method.to_ascii_uppercase());
            let servers = operation.get("servers").or_else(|| item.get("servers")).or(servers);
            let made = self.operation(&what, operation, servers);
            let method = method.to_ascii_uppercase();
            match groups.iter_mut().find(|(known, _)| *known == made) {
                Some((_, methods)) => methods.push(method),
                None => groups.push((made, vec![method])),
            }
        }
        for (operation, methods) in groups {
            let mut route = Route::new(format!("{}{path}", methods.join("-")), operation.to);
            route.settings = operation.settings;
            let full = shape.below(operation.base.as_deref().unwrap_or_default(), path);
            let mut one = draft!(Match { path: full, methods: &methods });
            if item.has("head")
                && methods.iter().any(|it| it == "GET")
                && !methods.iter().any(|it| it == "HEAD")
            {
                one.not(draft!(Match { methods: ["HEAD"] }));
            }
            route.matches.push(one);
            route.priority = self.ranks.then(|| rank(path));
            route.plugins = operation.plugins;
            self.out.route(route);
        }
    }

    fn operation(&mut self, what: &str, operation: &Node, servers: Option<&Node>) -> Operation {
        let mut made =
            Operation { to: To::Closed, settings: Proxy::default(), plugins: Vec::new(), base: None };
        let asked = operation.get("security").or_else(|| {
            // An empty list of its own says that nothing is asked for.
            let own = operation.has("security");
            if own { None } else { self.document.get("security") }
        });
        let mut is_closed = false;
        if let Some(asked) = asked.filter(|it| !it.items().is_empty()) {
            is_closed = self.security(what, asked, &mut made.plugins);
        }
        let url = servers.and_then(|it| it.items().first()).map(|server| {
            let mut url = server.text_of("url").unwrap_or_default().to_owned();
            for (name, variable) in server.get("variables").map_or(&[][..], Node::entries) {
                let default = variable.get("default").and_then(Node::plain).unwrap_or_default();
                url = url.replace(&format!("{{{name}}}"), &default);
            }
            url
        });
        if let Some(servers) = servers.filter(|it| it.items().len() > 1) {
            self.out.partial(
                servers.at,
                "servers",
                "the first is the target; the others are not",
                "add them as targets of an upstream",
            );
        }
        let url = url.as_deref().and_then(text::url);
        if let Some(url) = &url {
            // Clients ask here as they would ask there.
            let base = url.path.split('?').next().unwrap_or_default().trim_end_matches('/');
            made.base = Some(base.to_owned());
        }
        match url.filter(|url| matches!(url.scheme.as_str(), "http" | "https")) {
            _ if is_closed => {}
            Some(url) => {
                let is_tls = url.scheme == "https";
                let port = url.port.unwrap_or(if is_tls { 443 } else { 80 });
                made.to = To::Host { host: url.host, port, is_tls };
                made.settings.strip_listen_path(false);
                self.out.converted(operation.at, what);
            }
            None => {
                self.out.not_converted(
                    operation.at,
                    what,
                    "its server has no whole URL; it answers 503",
                    "write `servers` with scheme and host",
                );
            }
        }
        made
    }

    /// What an operation asks for. The alternatives have to be one scheme each; says whether it is closed.
    fn security(&mut self, what: &str, asked: &Node, plugins: &mut Vec<Plug>) -> bool {
        let optional = asked.items().iter().any(Node::is_empty);
        if optional {
            return self.out.guard_not_converted(
                asked.at,
                format_args!("{what}: security"),
                "it may be left out, which can't be converted",
                TODO,
            );
        }
        for alternative in asked.items() {
            for (name, _) in alternative.entries() {
                let scheme =
                    self.document.path(&["components", "securitySchemes", name]).cloned().unwrap_or_default();
                let kind = scheme.text_of("type").unwrap_or_default();
                let bearer = kind == "http"
                    && scheme.text_of("scheme").is_some_and(|it| it.eq_ignore_ascii_case("bearer"));
                let issuer = scheme
                    .text_of("openIdConnectUrl")
                    .and_then(|url| url.strip_suffix("/.well-known/openid-configuration"));
                let plug = match (kind, issuer) {
                    ("openIdConnect", Some(issuer))
                        if asked.items().len() == 1 && alternative.entries().len() == 1 =>
                    {
                        Some(Plug::of(draft!(JwksAuth { providers: [draft!(Provider { issuer })] })))
                    }
                    _ => None,
                };
                match plug {
                    Some(plug) => {
                        self.out.partial(
                            asked.at,
                            format_args!("{what}: security {name}"),
                            "scopes are not looked at",
                            "use `required_scopes` of the provider",
                        );
                        plugins.push(plug);
                    }
                    None => {
                        let why = match kind {
                            "apiKey" => {
                                "keys are consumers' credentials, which the description does not have (`key_auth`)"
                            }
                            "http" if bearer => "whose tokens are good is not said (`jwks_auth`)",
                            "http" => {
                                "passwords are consumers' credentials, which the description does not have (`basic_auth`)"
                            }
                            "mutualTLS" => {
                                "clients' certificates are asked for by the whole gateway (`mtls_auth`)"
                            }
                            _ => "it can't be converted (`oauth2_introspection`, `jwks_auth`)",
                        };
                        if self.out.guard_not_converted(
                            asked.at,
                            format_args!("{what}: security {name}"),
                            why,
                            TODO,
                        ) {
                            return true;
                        }
                    }
                }
            }
        }
        false
    }
}

/// How much of a path is not a name; all of it goes before any.
fn rank(path: &str) -> i64 {
    let mut names = path.split('{');
    let first = names.next().map_or(0, str::len);
    let rest: usize = names.map(|it| it.split_once('}').map_or(0, |(_, after)| after.len())).sum();
    let whole = if path.contains('{') { 0 } else { 1_000_000 };
    i64::try_from(first + rest).unwrap_or(0) + whole
}

/// How a path is compared.
enum Shape {
    /// As it is: `/a`.
    Exact,
    /// By its segments: `/users/{id}`.
    Template,
    /// By this regex: `/a/{b}.json`.
    Regex(String),
}

impl Shape {
    /// `None` for what is no path.
    fn of(path: &str) -> Option<Self> {
        if path.contains(['?', '#']) {
            return None;
        }
        if !path.contains('{') {
            return Some(Self::Exact);
        }
        let mut regex = String::new();
        let mut rest = path;
        while let Some((before, after)) = rest.split_once('{') {
            regex.push_str(&text::literal(before));
            regex.push_str("[^/]+");
            rest = after.split_once('}')?.1;
        }
        regex.push_str(&text::literal(rest));
        let mut names: Vec<&str> = Vec::new();
        let whole = path.split('/').all(|segment| {
            match segment.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
                Some(name) => {
                    let good = !name.is_empty()
                        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                        && !name.starts_with(|c: char| c.is_ascii_digit())
                        && !names.contains(&name);
                    names.push(name);
                    good
                }
                None => !segment.contains(['{', '}']),
            }
        });
        Some(if whole { Self::Template } else { Self::Regex(regex) })
    }

    /// The path below another one, which is taken as it is.
    fn below(&self, base: &str, path: &str) -> Matcher {
        match self {
            Self::Exact => Matcher::exact(format!("{base}{path}")),
            Self::Template => Matcher::template(format!("{base}{path}")),
            Self::Regex(regex) => Matcher::regex(format!("{}{regex}", text::literal(base))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Options;
    use crate::draft::answers_itself;

    fn made(text: &str) -> Result<Import, Failure> {
        let mut out = Import::new(Options::default());
        import(&mut out, "api.yaml", text).map(|()| out)
    }

    #[test]
    fn paths_and_methods_become_proxies() {
        let out = made(
            "openapi: 3.0.3\nservers: [{url: 'https://api.test/v1'}]\nsecurity: [{key: []}]\npaths:\n  /a: {get: {security: []}, post: {}}\n  /b/{id}: {get: {security: []}}\n  /c/{x}.json: {get: {security: []}}\ncomponents: {securitySchemes: {key: {type: apiKey, in: header, name: x}}}\n",
        )
        .unwrap();
        let path = |n: usize| out.proxies[n]["matches"][0].clone();
        assert_eq!(path(0), json!({ "path": { "exact": "/v1/a" }, "methods": ["GET"] }));
        assert_eq!(out.proxies[0]["backend_host"], "api.test");
        assert!(answers_itself(&out.proxies[1]), "a POST that asks for a key is closed");
        assert_eq!(path(2)["path"], json!({ "template": "/v1/b/{id}" }));
        assert_eq!(path(3)["path"], json!({ "regex": "/v1/c/[^/]+\\.json" }));
        assert_eq!(out.report.count(crate::Conversion::Closed), 1);
    }

    /// What asks for a key is not taken by a path or a method that does not.
    #[test]
    fn paths_and_methods_that_take_the_same() {
        let out = made(
            "openapi: 3.0.3\nservers: [{url: 'https://api.test'}]\nsecurity: [{key: []}]\npaths:\n  /a: {get: {security: []}, head: {}}\n  \
             /f/{n}: {get: {security: []}}\n  /f/{n}.json: {get: {}}\n  /f/x.json: {get: {security: []}}\ncomponents: {securitySchemes: {key: {type: apiKey}}}\n",
        )
        .unwrap();
        let of = |id: &str| {
            out.proxies.iter().find(|it| it["id"] == id).unwrap_or_else(|| panic!("{:#}", out.document()))
        };
        assert_eq!(of("GET-a")["matches"][0]["not"], json!({ "methods": ["HEAD"] }));
        let priority = |id: &str| of(id)["priority"].as_i64();
        assert!(
            priority("GET-f-x.json") > priority("GET-f-n-.json")
                && priority("GET-f-n-.json") > priority("GET-f-n")
        );
        assert!(answers_itself(of("HEAD-a")) && answers_itself(of("GET-f-n-.json")));
    }

    #[test]
    fn what_is_no_description_is_refused() {
        for bad in [
            "openapi: 2.0.0\npaths: {}",
            "swagger: '2.0'",
            "openapi: 3.0.0\npaths: {}",
            "[",
            "openapi: 3.1.0\npaths: {/a: {$ref: x}}",
        ] {
            assert!(made(bad).is_err(), "{bad}");
        }
        let deep = format!("openapi: 3.0.0\npaths: {{/a: {}1{}}}", "{a: ".repeat(500), "}".repeat(500));
        assert!(made(&deep).is_err());
        let odd =
            made("openapi: 3.0.0\npaths: {'/a/{b': {get: {}}, '/c?d': {get: {}}, /e: {get: {}}}").unwrap();
        assert_eq!(odd.proxies.len(), 1);
        assert!(answers_itself(&odd.proxies[0]), "without a server nothing is passed on");
    }
}
