//! Which way a request would take through a configuration, and why; without sending anything.

mod losers;
mod scripts;
mod verdicts;

use gateway_core::balance::Target;
use gateway_core::condition::Holds;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gateway_core::condition::Condition;
use gateway_core::config::model::{HttpRules, Match, Settings, Traffic};
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::{Client, ClientTls, Exchange};
use gateway_core::http::path::{self, Oddities};
use gateway_core::http::reply::Reply;
use gateway_core::route::forward_path;
use gateway_core::snapshot::{Route, Snapshot};
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Uri};
use serde_json::{Value, json};
use verdicts::GivenCaller;

/// Bytes of a body that a running gateway is asked about.
pub(crate) const MAX_EXPLAINED_BODY: usize = 1 << 20;

/// A request that somebody wonders about.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) method: Method,
    /// A URL, or only a path.
    pub(crate) url: Uri,
    pub(crate) headers: HeaderMap,
    /// The client's address.
    pub(crate) client: IpAddr,
    /// The name the client asks for by TLS; a URL with https names its host.
    pub(crate) tls: Option<String>,
    /// Bytes of the request's body; `None` without one.
    pub(crate) body_bytes: Option<u64>,
    /// The body itself, where all of it is known.
    pub(crate) body: Option<Vec<u8>>,
    /// The consumer that sends the request, by username, where plugins cannot tell it from the request.
    pub(crate) consumer: Option<String>,
    /// Whom the access record of the request names; perhaps no consumer, but the subject of a token.
    pub(crate) recorded_caller: Option<String>,
}

/// The answer: which proxy takes the request and why, its plugins, what each target would be asked for, and why the
/// nearest of the other proxies don't take it. `refusal` is what the gateway itself would answer.
pub(crate) fn explain(snapshot: &Snapshot, question: &Question) -> Value {
    Explained::new(snapshot, question).document()
}

/// As [`explain`], with what the plugins would decide by their counters, lists and rules as they are now. Nothing is counted.
/// Inspecting a body takes a while: to be called on a thread that may block.
///
/// # Errors
/// The consumer of the question does not exist.
pub(crate) fn explain_live(snapshot: &Snapshot, question: &Question) -> Result<Value, UnknownConsumer> {
    let caller = match (&question.consumer, &question.recorded_caller) {
        (None, None) => GivenCaller::Asked,
        (Some(name), _) => {
            let found = snapshot.consumers.by_name(name);
            GivenCaller::Consumer(found.cloned().ok_or_else(|| UnknownConsumer(name.clone()))?)
        }
        (None, Some(name)) => match snapshot.consumers.by_name(name) {
            Some(found) => GivenCaller::Consumer(found.clone()),
            None => GivenCaller::Unknown,
        },
    };
    let mut explained = Explained::new(snapshot, question);
    explained.ask_plugins(snapshot, question, caller);
    Ok(explained.document())
}

/// There is no consumer with this username.
#[derive(Debug, thiserror::Error)]
#[error("there is no consumer `{0}`")]
pub(crate) struct UnknownConsumer(String);

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
    /// The `Host` that each target would get.
    hosts: Vec<String>,
    plugins: Vec<Value>,
    /// The scripts of a FastCGI target.
    scripts: Option<scripts::Scripts>,
    /// The plugin that answers by itself, whatever else the request has.
    answered_by: Option<Value>,
    /// The request as plugins see it.
    exchange: Option<Exchange>,
}

impl<'s> Explained<'s> {
    fn new(snapshot: &'s Snapshot, question: &'s Question) -> Self {
        let said = question.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = said.or_else(|| question.url.authority().map(Authority::as_str));
        let target = question.url.path_and_query().map_or("/", |target| target.as_str());
        let (way, malformed) = match path::normalise(target, snapshot.settings.merge_slashes) {
            Ok(clean) => respelled(RoutedRequest::of(snapshot, question, &clean.text, host), clean.oddities),
            Err(reply) => (RoutedRequest::lost(snapshot, question, target, host), Some(reply)),
        };
        let RoutedRequest { target, exchange, found, .. } = way;
        let path = path_of(&target).to_owned();
        let chosen = found.and_then(|(route, matched)| {
            let Traffic::Http(rules) = &route.proxy.traffic else { return None };
            let rule = losers::taken_by(rules, &exchange)?;
            Some(Chosen {
                urls: urls(route, rules, &target, matched),
                hosts: hosts(route, &exchange),
                plugins: plugins(route, &exchange),
                scripts: scripts::Scripts::of(route, rules, &exchange, &target, matched),
                answered_by: answered_by(route, &exchange),
                why: losers::reason(rules, rule, &path),
                exchange: None,
                route,
                rules,
                rule,
            })
        });
        let refusal = malformed
            .map(|reply| refusal(&reply))
            .or_else(|| refused(chosen.as_ref(), &question.method))
            .or_else(|| too_large(chosen.as_ref()?, question.body_bytes?, &snapshot.settings))
            .or_else(|| no_script(chosen.as_ref()?));
        let winner = chosen.as_ref().map(|chosen| (&**chosen.route, chosen.rules, chosen.rule));
        let losers = losers::Losers::of(snapshot, winner, &exchange);
        let mut chosen = chosen;
        if let Some(chosen) = &mut chosen {
            chosen.exchange = Some(exchange);
        }
        Self { method: &question.method, host: host.map(str::to_owned), path, chosen, refusal, losers }
    }

    /// Asks the plugins of the proxy, unless the gateway answers before they see the request.
    fn ask_plugins(&mut self, snapshot: &Snapshot, question: &Question, caller: GivenCaller) {
        let Some(chosen) = self.chosen.as_mut().filter(|_| self.refusal.is_none()) else { return };
        let Some(mut exchange) = chosen.exchange.take() else { return };
        let request = verdicts::Request {
            body: question.body.as_deref(),
            body_bytes: question.body_bytes.unwrap_or(0),
            caller,
        };
        let verdicts = verdicts::Verdicts::of(snapshot, chosen.route, &mut exchange, &request);
        for (plugin, verdict) in chosen.plugins.iter_mut().zip(&verdicts.list) {
            plugin["verdict"] = json!(verdict.as_ref().map(verdicts::Verdict::document));
        }
        self.refusal = verdicts.refusal;
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

/// Where a request with a certain spelling goes.
struct RoutedRequest<'s> {
    snapshot: &'s Snapshot,
    question: &'s Question,
    host: Option<&'s str>,
    target: String,
    exchange: Exchange,
    /// The proxy, and how much of the path it takes.
    found: Option<(&'s Arc<Route>, usize)>,
}

impl<'s> RoutedRequest<'s> {
    fn of(snapshot: &'s Snapshot, question: &'s Question, target: &str, host: Option<&'s str>) -> Self {
        let mut way = Self::lost(snapshot, question, target, host);
        let holds = |condition: &Condition| condition.holds(&way.exchange);
        let found = snapshot.routes.find(host, path_of(target), holds);
        way.found = found.map(|found| (found.route, found.matched));
        way
    }

    /// A request that no proxy is looked for.
    fn lost(snapshot: &'s Snapshot, question: &'s Question, target: &str, host: Option<&'s str>) -> Self {
        let exchange = exchange(question, target, host, &snapshot.settings);
        Self { snapshot, question, host, target: target.to_owned(), exchange, found: None }
    }
}

/// The way after the proxy's rules for odd paths, as the pipeline goes it, and why it ends there where it does.
fn respelled(way: RoutedRequest<'_>, oddities: Oddities) -> (RoutedRequest<'_>, Option<Box<Reply>>) {
    let Some((route, _)) = way.found.filter(|(route, _)| oddities.any() && route.quarantine.is_none()) else {
        return (way, None);
    };
    let Traffic::Http(rules) = &route.proxy.traffic else { return (way, None) };
    let merge_slashes = way.snapshot.settings.merge_slashes;
    let spelled = match path::respell(path_of(&way.target), oddities, rules.path_rules, merge_slashes) {
        Ok(Some(spelled)) => spelled,
        Ok(None) => return (way, None),
        Err(reply) => return (way, Some(reply)),
    };
    let query = way.target.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    let other = RoutedRequest::of(way.snapshot, way.question, &format!("{spelled}{query}"), way.host);
    match other.found {
        None => (other, None),
        Some((found, _)) if Arc::ptr_eq(found, route) => (other, None),
        Some(_) => (way, Some(path::leads_elsewhere())),
    }
}

/// A target without its query.
fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

impl Chosen<'_> {
    fn document(&self) -> Value {
        let proxy = &self.route.proxy;
        let forwards = if self.answered_by.is_some() { &[] } else { self.urls.as_slice() };
        let has_target = self.answered_by.is_none() && !self.urls.is_empty();
        let now = tokio::time::Instant::now();
        let listed = self.route.targets.list().iter().zip(&self.hosts).filter(|_| has_target);
        let targets = listed.map(|(target, host)| {
            let because = target.unhealthy_because(now);
            let failing = target.recent_failures(now).filter(|recent| !recent.has_succeeded_since);
            json!({
                "address": &**target.authority(),
                "host": host,
                "healthy": target.is_healthy(now),
                "unhealthy_because": because,
                "last_attempt_failed_because": failing.map(|recent| recent.reason),
            })
        });
        json!({
            "id": proxy.id.as_str(),
            "reason": self.why,
            "plugins": self.plugins,
            // A proxy that is answered without a target has none.
            "upstream": has_target.then(|| json!({
                "id": proxy.backend.upstream.id.as_str(),
                "algorithm": snake(&format!("{:?}", proxy.backend.upstream.algorithm)),
            })),
            "targets": targets.collect::<Vec<_>>(),
            "script": self.scripts.as_ref().filter(|_| has_target).map(scripts::Scripts::document),
            "answered_by": self.answered_by,
            "forwards": forwards,
        })
    }
}

/// The request as the conditions of proxies see it.
fn exchange(question: &Question, target: &str, host: Option<&str>, settings: &Settings) -> Exchange {
    let mut request = http::Request::new(Body::empty());
    *request.method_mut() = question.method.clone();
    request.headers_mut().clone_from(&question.headers);
    if let Ok(target) = target.parse() {
        *request.uri_mut() = target;
    }
    if let Some(bytes) = question.body_bytes {
        request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    }
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    let is_encrypted = question.tls.is_some() || question.url.scheme() == Some(&Scheme::HTTPS);
    let server_name = question.tls.as_deref().or_else(|| question.url.host());
    let tls =
        is_encrypted.then(|| ClientTls { server_name: server_name.map(Arc::from), ..ClientTls::default() });
    // A URL without a port comes to the main listener.
    let main = if is_encrypted { settings.https } else { settings.http };
    let port = question.url.port_u16().or_else(|| main.map(|address| address.port())).unwrap_or_default();
    let (peer, local) =
        (SocketAddr::new(question.client, 0), SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port));
    let client = Client::new(peer, local, false, tls);
    let mut exchange = Exchange::new(request, Arc::new(client));
    exchange.dialect = Dialect::of(&exchange.request.method, &exchange.request.headers, false);
    exchange
}

/// The plugins in the order in which the request meets them, and whether each runs for it.
fn plugins(route: &Route, exchange: &Exchange) -> Vec<Value> {
    let members = route.chain.members().map(|(config, _)| {
        let runs = match &config.when {
            None => json!(true),
            // Who asks is not known before somebody does.
            Some(when) if when.asks_for_caller() => json!("depends_on_caller"),
            Some(when) => json!(when.holds(exchange)),
        };
        json!({ "id": config.id.as_str(), "plugin_name": &*config.plugin_name, "runs": runs })
    });
    members.collect()
}

/// The first plugin that runs for the request and answers it in any case, so that no target is asked.
fn answered_by(route: &Route, exchange: &Exchange) -> Option<Value> {
    let mut running = route.chain.members().filter(|(config, _)| {
        let holds = |when: &Condition| !when.asks_for_caller() && when.holds(exchange);
        config.when.as_deref().is_none_or(holds)
    });
    running.find_map(|(config, _)| {
        let settings = config.config.value();
        let status = |default: u64| settings["status_code"].as_u64().unwrap_or(default);
        let status = match &*config.plugin_name {
            "request_termination" if settings["trigger"].is_null() => Some(status(503)),
            "redirect" if settings["location"].is_string() => Some(status(302)),
            "static_files" => None,
            _ => return None,
        };
        Some(json!({ "id": config.id.as_str(), "plugin_name": &*config.plugin_name, "status": status }))
    })
}

/// What each target would be asked for.
fn urls(route: &Route, rules: &HttpRules, target: &str, matched: usize) -> Vec<String> {
    let scheme = route.proxy.backend.scheme.as_str();
    let list = route.targets.list().iter().map(|one| {
        let prefix = one.rules.path.as_deref().or(rules.backend_path.as_deref());
        let path = forward_path(target, matched, rules.strip_listen_path, prefix);
        let weight = one.rules.weight;
        let share = if weight == 1 { String::new() } else { format!(" (weight {weight})") };
        format!("{scheme}://{}{path}{share}", one.authority())
    });
    list.collect()
}

/// The `Host` that each target would get, as far as that does not depend on plugins.
fn hosts(route: &Route, exchange: &Exchange) -> Vec<String> {
    let host = |target: &Arc<Target>| {
        String::from_utf8_lossy(exchange.host_for(target, &route.proxy).as_bytes()).into_owned()
    };
    route.targets.list().iter().map(host).collect()
}

/// Why the gateway would answer itself, as far as that hangs on the route.
fn refused(chosen: Option<&Chosen<'_>>, method: &Method) -> Option<String> {
    let Some(chosen) = chosen else { return Some("404 no_route".to_owned()) };
    if let Some(Problems(problems)) = chosen.route.quarantine.as_deref() {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        return Some(format!("503 quarantined: {}", problems.join("; ")));
    }
    let methods = chosen.rules.allowed_methods.as_ref()?;
    let allow = chosen.route.allow.as_ref().and_then(|allow| allow.to_str().ok()).unwrap_or_default();
    (!methods.contains(method)).then(|| format!("405 method_not_allowed (Allow: {allow})"))
}

/// Whether the gateway takes no body of this size.
fn too_large(chosen: &Chosen<'_>, bytes: u64, settings: &Settings) -> Option<String> {
    let limit = chosen.rules.max_request_body.unwrap_or(settings.limits.max_request_body);
    (bytes > limit).then(|| format!("413 body_too_large ({bytes} bytes, the limit is {limit})"))
}

/// Whether the FastCGI target has no script for the path.
fn no_script(chosen: &Chosen<'_>) -> Option<String> {
    let scripts = chosen.scripts.as_ref().filter(|_| chosen.answered_by.is_none())?;
    scripts.refusal.clone()
}

fn refusal(reply: &Reply) -> String {
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
