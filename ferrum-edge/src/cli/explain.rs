//! `explain`: which way a request would take, and why; without sending anything.

mod losers;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use gateway_core::config::compile::Compiler;
use gateway_core::config::model::{HttpRules, Match, Traffic};
use gateway_core::config::problem::Problems;
use gateway_core::config::snapshot::{Route, Snapshot};
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::{Client, ClientTls, Exchange};
use gateway_core::http::path::{self, Oddities};
use gateway_core::plugin::Registry;
use gateway_core::route::forward_path;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::{Value, json};

use super::{BAD_CONFIG, FAILED, MISUSED, Output, SpecArgs, Verbosity, logs, print};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The request's method
    method: Method,
    /// Its URL, or only its path
    url: Uri,
    /// A header field of the request, may be given several times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    client: IpAddr,
    /// The name the client asks for by TLS (SNI); a URL that begins with https:// names its host
    #[arg(long, value_name = "NAME")]
    tls: Option<String>,
    #[command(flatten)]
    spec: SpecArgs,
    /// How to print the result
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

/// Why a header field was not understood.
#[derive(Debug, thiserror::Error)]
enum HeaderError {
    #[error("write it as `name: value`")]
    NoColon,
    #[error("{0}")]
    Name(#[from] http::header::InvalidHeaderName),
    #[error("{0}")]
    Value(#[from] http::header::InvalidHeaderValue),
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), HeaderError> {
    let (name, value) = text.split_once(':').ok_or(HeaderError::NoColon)?;
    Ok((name.trim().parse()?, value.trim().parse()?))
}

/// Explains; the code is 1 when the gateway itself would refuse.
pub(super) fn explain(args: &ExplainArgs, registry: Registry) -> u8 {
    logs::init(Verbosity { verbose: 0 });
    let Some(source) = args.spec.source(Vec::new()) else { return MISUSED };
    let model = match source.load(&registry) {
        Ok(model) => model,
        Err(problems) => {
            print::error(&problems);
            return BAD_CONFIG;
        }
    };
    let now = tokio::time::Instant::now();
    let empty = Snapshot::empty(model.settings.clone());
    let snapshot = Compiler::new(registry).compile(&model, &empty, now).snapshot;
    let explained = Explained::new(&snapshot, args);
    match args.output {
        Output::Json => print::line(explained.document()),
        Output::Text => explained.tell(),
    }
    if explained.refusal.is_some() { FAILED } else { 0 }
}

/// The way of one request.
struct Explained<'s> {
    method: &'s Method,
    host: Option<String>,
    path: String,
    chosen: Option<Chosen<'s>>,
    /// Why the gateway would answer itself.
    refusal: Option<String>,
    losers: losers::Losers,
}

struct Chosen<'s> {
    route: &'s Arc<Route>,
    rules: &'s HttpRules,
    rule: &'s Match,
    why: String,
    /// What each target would be asked for.
    urls: Vec<String>,
}

impl<'s> Explained<'s> {
    fn new(snapshot: &'s Snapshot, args: &'s ExplainArgs) -> Self {
        let headers: HeaderMap = args.headers.iter().cloned().collect();
        let said = headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = said.or_else(|| args.url.authority().map(http::uri::Authority::as_str)).map(str::to_owned);
        let target = args.url.path_and_query().map_or("/", |target| target.as_str());
        let (target, oddities, mut malformed) = match path::normalise(target, snapshot.settings.merge_slashes)
        {
            Ok(clean) => (clean.text.into_owned(), clean.oddities, None),
            Err(reply) => (target.to_owned(), Oddities::default(), Some(refusal(&reply))),
        };
        let path = target.split('?').next().unwrap_or_default().to_owned();
        let exchange = exchange(args, &target, host.as_deref(), headers);
        let find = || snapshot.routes.find(host.as_deref(), &path, |condition| condition.holds(&exchange));
        let found = malformed.is_none().then(find).flatten();
        let chosen = found.as_ref().and_then(|found| {
            let Traffic::Http(rules) = &found.route.proxy.traffic else { return None };
            let rule = losers::taken_by(rules, &exchange)?;
            Some(Chosen {
                urls: urls(found.route, rules, (&target, found.matched)),
                why: losers::reason(rules, rule, &path),
                route: found.route,
                rules,
                rule,
            })
        });
        if let Some(chosen) = &chosen
            && let Err(reply) = path::settle(&path, oddities, chosen.rules.path_rules)
        {
            malformed = Some(refusal(&reply));
        }
        let refusal = malformed.or_else(|| refused(chosen.as_ref(), &args.method));
        let winner = chosen.as_ref().map(|chosen| (&**chosen.route, chosen.rules, chosen.rule));
        let losers = losers::Losers::of(snapshot, winner, &exchange);
        Self { method: &args.method, host, path, chosen, refusal, losers }
    }

    fn tell(&self) {
        let host = self.host.as_deref().unwrap_or("(no host)");
        print::line(format_args!("{} {} for host {host}", self.method, self.path));
        match &self.chosen {
            None => print::line("proxy:     none"),
            Some(chosen) => chosen.tell(),
        }
        if let Some(refusal) = &self.refusal {
            print::line(format_args!("answer:    {refusal}"));
        }
        for (id, why) in &self.losers.near {
            print::line(format_args!("not {id}: {why}"));
        }
        if self.losers.others > 0 {
            print::line(format_args!("others further off: {}", self.losers.others));
        }
    }

    fn document(&self) -> Value {
        let losers: Vec<_> =
            self.losers.near.iter().map(|(id, why)| json!({ "proxy": id, "reason": why })).collect();
        json!({
            "method": self.method.as_str(),
            "host": self.host,
            "path": self.path,
            "proxy": self.chosen.as_ref().map(Chosen::document),
            "refusal": self.refusal,
            "not_chosen": losers,
            "others": self.losers.others,
        })
    }
}

impl Chosen<'_> {
    fn tell(&self) {
        let proxy = &self.route.proxy;
        print::line(format_args!("proxy:     {} ({})", proxy.id, self.why));
        let names: Vec<&str> = self.route.chain.names().map(|name| &**name).collect();
        let plugins = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        print::line(format_args!("plugins:   {plugins}"));
        let upstream = &proxy.backend.upstream;
        let algorithm = snake(&format!("{:?}", upstream.algorithm));
        print::line(format_args!("upstream:  {} ({algorithm})", upstream.id));
        for url in &self.urls {
            print::line(format_args!("forwards:  {url}"));
        }
    }

    fn document(&self) -> Value {
        let proxy = &self.route.proxy;
        json!({
            "id": proxy.id.as_str(),
            "reason": self.why,
            "plugins": self.route.chain.names().collect::<Vec<_>>(),
            "upstream": {
                "id": proxy.backend.upstream.id.as_str(),
                "algorithm": snake(&format!("{:?}", proxy.backend.upstream.algorithm)),
            },
            "forwards": self.urls,
        })
    }
}

/// The request as the conditions of proxies see it.
fn exchange(args: &ExplainArgs, target: &str, host: Option<&str>, headers: HeaderMap) -> Exchange {
    let mut request = http::Request::new(Body::empty());
    *request.method_mut() = args.method.clone();
    *request.headers_mut() = headers;
    if let Ok(target) = target.parse() {
        *request.uri_mut() = target;
    }
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    let is_encrypted = args.tls.is_some() || args.url.scheme() == Some(&http::uri::Scheme::HTTPS);
    let server_name = args.tls.as_deref().or_else(|| args.url.host());
    let tls =
        is_encrypted.then(|| ClientTls { server_name: server_name.map(Arc::from), ..ClientTls::default() });
    let end = |address| SocketAddr::new(address, 0);
    let client = Client::new(end(args.client), end(IpAddr::from([127, 0, 0, 1])), false, tls);
    let mut exchange = Exchange::new(request, Arc::new(client));
    exchange.dialect = Dialect::of(&exchange.request.method, &exchange.request.headers, false);
    exchange
}

/// What each target would be asked for.
fn urls(route: &Route, rules: &HttpRules, (target, matched): (&str, usize)) -> Vec<String> {
    let scheme = route.proxy.backend.scheme.as_str();
    let list = route.targets.list().iter().map(|one| {
        let prefix = one.rules.path.as_deref().or(rules.backend_path.as_deref());
        let path = forward_path(target, matched, rules.strip_listen_path, prefix);
        let weight = one.rules.weight;
        let share = if weight == 1 { String::new() } else { format!(" (weight {weight})") };
        format!("{scheme}://{}{path}{share}", one.authority)
    });
    list.collect()
}

/// Why the gateway would answer itself, as far as that hangs on the route.
fn refused(chosen: Option<&Chosen<'_>>, method: &Method) -> Option<String> {
    let Some(chosen) = chosen else { return Some("404 no_route".to_owned()) };
    if let Some(Problems(problems)) = &chosen.route.quarantine {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        return Some(format!("503 quarantined: {}", problems.join("; ")));
    }
    let methods = chosen.rules.allowed_methods.as_ref()?;
    let allow = chosen.route.allow.as_ref().and_then(|allow| allow.to_str().ok()).unwrap_or_default();
    (!methods.contains(method)).then(|| format!("405 method_not_allowed (Allow: {allow})"))
}

fn refusal(reply: &gateway_core::http::reply::Reply) -> String {
    let detail = reply.detail.as_deref().unwrap_or_default();
    format!("{} {} {detail}", reply.http_status().as_u16(), reply.cause.reason()).trim_end().to_owned()
}

/// A variant's name as configurations write it.
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
