//! Traefik's middlewares as plugins. What guards and can't be converted closes its routers.

mod guards;
mod headers;
mod limits;
pub(super) mod paths;

use super::Traefik;
use crate::draft::{CircuitBreaker, Compression, ErrorPages, GrpcWeb, Page, Plug, Retry, To, draft};
use crate::tree::Node;

const TODO: &str = "guard it with a plugin, then remove `request_termination`";
/// Chains in one another.
const MAX_DEPTH: usize = 8;

/// What a middleware becomes.
#[derive(Debug, Clone, Default)]
pub(super) struct Made {
    pub(super) plugins: Vec<Plug>,
    pub(super) is_closed: bool,
    pub(super) retry: Option<Retry>,
    pub(super) breaker: Option<CircuitBreaker>,
}

impl Made {
    pub(super) fn take(&mut self, other: Self) {
        self.plugins.extend(other.plugins);
        self.is_closed |= other.is_closed;
        self.retry = self.retry.take().or(other.retry);
        self.breaker = self.breaker.take().or(other.breaker);
    }
}

/// Converts the settings of one kind of middleware.
type Read<'o> = fn(&mut Traefik<'o>, &str, &Node, &mut Made);

/// What reads a kind, whose name is in lower case: labels ignore it.
fn reader<'o>(kind: &str) -> Option<Read<'o>> {
    Some(match kind {
        "addprefix" => Traefik::add_prefix,
        "basicauth" => Traefik::basic_auth,
        "buffering" => Traefik::buffering,
        "circuitbreaker" => Traefik::circuit_breaker,
        "compress" => Traefik::compress,
        "contenttype" => Traefik::content_type,
        "errors" => Traefik::errors,
        "forwardauth" => Traefik::forward_auth,
        "grpcweb" => Traefik::grpc_web,
        "headers" => Traefik::headers,
        "inflightreq" => Traefik::in_flight,
        "ipallowlist" | "ipwhitelist" => Traefik::ip_allow_list,
        "passtlsclientcert" => Traefik::pass_certificate,
        "ratelimit" => Traefik::rate_limit,
        "redirectregex" => Traefik::redirect_regex,
        "redirectscheme" => Traefik::redirect_scheme,
        "replacepath" => Traefik::replace_path,
        "replacepathregex" => Traefik::replace_path_regex,
        "retry" => Traefik::retry,
        "stripprefix" => Traefik::strip_prefix,
        "stripprefixregex" => Traefik::strip_prefix_regex,
        _ => return None,
    })
}

impl Traefik<'_> {
    /// The middleware of this name; `None` when there is none.
    pub(super) fn middleware(&mut self, name: &str, depth: usize) -> Option<Made> {
        let called = name.split('@').next().unwrap_or(name);
        let node = self.middlewares.get(called).cloned()?;
        let mut made = Made::default();
        for (kind, settings) in node.entries() {
            let what = format!("middleware {called}: {kind}");
            let lower = kind.to_ascii_lowercase();
            if lower == "chain" {
                self.chain(&what, settings, depth, &mut made);
                continue;
            }
            match reader(&lower) {
                Some(read) => read(self, &what, settings, &mut made),
                None => {
                    made.is_closed |=
                        self.out.guard_not_converted(settings.at, what, "it guards, or is not known", TODO);
                }
            }
        }
        Some(made)
    }

    fn chain(&mut self, what: &str, settings: &Node, depth: usize, made: &mut Made) {
        for inner in settings.texts("middlewares") {
            let inner = if depth < MAX_DEPTH { self.middleware(&inner, depth + 1) } else { None };
            match inner {
                Some(inner) => made.take(inner),
                None => {
                    let why = "a middleware in it is not there, or is itself";
                    made.is_closed |= self.out.guard_not_converted(settings.at, what, why, TODO);
                }
            }
        }
    }

    fn compress(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let least = number(settings, "minResponseBodyBytes").unwrap_or(1024);
        let mut config = draft!(Compression { algorithms: ["br", "gzip"], min_content_length: least });
        let wanted: Vec<String> = settings.texts("encodings").into_iter().filter(|it| it != "*").collect();
        if !wanted.is_empty() {
            config.algorithms(wanted);
        }
        made.plugins.push(Plug::of(config));
        self.out.converted(settings.at, what);
    }

    fn content_type(&mut self, what: &str, settings: &Node, _made: &mut Made) {
        self.out.not_needed(settings.at, what, "media types of targets pass as they are");
        settings.see_all();
    }

    fn grpc_web(&mut self, what: &str, settings: &Node, made: &mut Made) {
        made.plugins.push(Plug::of(GrpcWeb::default()));
        self.out.converted(settings.at, what);
    }

    /// `errors`: pages of another service.
    fn errors(&mut self, what: &str, settings: &Node, made: &mut Made) {
        let todo = "use the plugin `error_pages`";
        let query = settings.text_of("query").unwrap_or("/").replace('$', "$$");
        let path = query.replace("{status}", "${response.status}");
        let statuses = list(settings, "status");
        let is_good = |status: &String| {
            let (low, high) = status.split_once('-').unwrap_or((status, status));
            let read = |text: &str| text.parse::<u16>().ok().filter(|it| (400..=599).contains(it));
            read(low).zip(read(high)).is_some_and(|(low, high)| low <= high)
        };
        if path.replace("${", "").contains('{') || !path.starts_with('/') || !statuses.iter().all(is_good) {
            let why = "a status or placeholder in it has no counterpart";
            return self.out.not_converted(settings.at, what, why, todo);
        }
        let service = settings.text_of("service").unwrap_or_default().to_owned();
        match self.backend(what, settings, &service).map(|backend| backend.to) {
            Some(To::Upstream { id, is_tls: false }) if !statuses.is_empty() => {
                let page = draft!(Page { status: statuses.join(", "), upstream_id: id, path });
                made.plugins.push(Plug::of(draft!(ErrorPages { pages: [page] })));
                self.out.converted(settings.at, what);
            }
            _ => self.out.not_converted(settings.at, what, "its service can't be asked for pages", todo),
        }
    }

    fn pass_certificate(&mut self, what: &str, settings: &Node, _made: &mut Made) {
        let why = "targets don't get the client's certificate in a header";
        let todo = "use `request_transformer` with the templates of the plugin `mtls_auth`";
        self.out.not_converted(settings.at, what, why, todo);
    }
}

/// A number, which labels have as text.
fn number(settings: &Node, key: &str) -> Option<u64> {
    settings.get(key).and_then(Node::plain).and_then(|it| it.parse().ok())
}

/// Whether a key says true, which labels have as text.
fn is_true(settings: &Node, key: &str) -> bool {
    settings.get(key).and_then(Node::plain).as_deref() == Some("true")
}

/// The texts of a list, which labels have with commas between.
fn list(settings: &Node, key: &str) -> Vec<String> {
    let all = settings.texts(key);
    let parts = all.iter().flat_map(|it| it.split(',')).map(|it| it.trim().to_owned());
    parts.filter(|it| !it.is_empty()).collect()
}
