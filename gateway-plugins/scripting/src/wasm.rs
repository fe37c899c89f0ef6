//! Runs WebAssembly modules written for Proxy-Wasm (ABI 0.2), such as filters for Envoy, Istio and Kong.
//!
//! The module is compiled when the configuration is loaded. Each worker has an instance of its own, which serves all exchanges of
//! that worker. It starts when the configuration is published, so that timers, queues and calls of its own need no request. A call of the module that fails or takes too long costs the exchange that it was made for; the next one gets a
//! new instance, and the old one only ends what it has begun.
//!
//! Modules of Conduit's small interface (`on_request`, `on_response`) are run as well: see `interface`.
//!
//! Modules see request and response heads, bodies and trailers, answer themselves, pause an exchange until a call is answered or a
//! gRPC stream brings something, share data, queues and metrics with the other instances of their plugin config, and are called by a
//! timer. With functions for connections they see the bytes of TCP and TLS streams as well. Foreign functions are not offered: the
//! module is told so. The headers that frame messages are the gateway's own; a module that is going to change a body removes
//! `content-length`, as Envoy asks for, too.

mod abi;
mod conduit;
mod engine;
mod filter;
mod grpc;
mod guest_error;
mod host;
mod pool;
mod queues;
mod settings;
mod stream;
mod visit;
mod vm;
mod wasi;

use std::sync::Arc;

use bytes::Bytes;

use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::per_worker::PerWorker;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Gate, Hooks, OnBytes, OnClose, OnConnect, OnEnd, OnRequest, OnResponse,
    Plugin, Refusal, Seat, Starter, Step, Verdict, World,
};
use gateway_core::record::{ExchangeRecord, SessionRecord};
use gateway_core::stream::cut::{Cut, Stream};
use gateway_core::stream::session::Session;
use gateway_plugin_common::hex::hex;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Response};

use crate::shared_table::SharedTable;
use conduit::Conduit;
use engine::Instances;
use filter::Filter;
use host::{Context, Direction, Directions, HostMessage, Parts, PseudoHeaders};
use queues::Queues;
use settings::{Config, Rules};
use stream::{Opening, StreamStart, Tap};
use visit::{Core, GuestContext, Stop};
use vm::{Template, Vm};

/// The plugin.
pub(crate) struct Wasm(Runs);

/// By which interface the module is called.
enum Runs {
    ProxyWasm { core: Arc<Core>, sees: Sees },
    Conduit(Box<Conduit>),
}

/// What the module looks at besides heads.
#[derive(Debug, Clone, Copy)]
struct Sees {
    request_bodies: bool,
    response_bodies: bool,
    exchanges: bool,
    streams: bool,
    /// What the client of a stream sends, and what its target sends.
    bytes: Directions,
}

const FAILURES: Metric = Metric::counter(
    "ferrum_wasm_failures_total",
    "Calls of WebAssembly modules that failed or took too long.",
);

/// Bytes of a module.
const MAX_MODULE: u64 = 64 << 20;

impl Plugin for Wasm {
    const NAME: &'static str = "wasm";
    const FAMILY: Family = Family::Scripting;
    const SUMMARY: &'static str =
        "Runs a WebAssembly module written for Proxy-Wasm (filters for Envoy, Istio, Kong).";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let rules = settings::read(config, world, &mut problems);
        std::mem::take(&mut problems).into_result(())?;
        let bytes = read(&rules, world)?;
        let compiled = compile(&rules, &bytes, Instances::Kept)?;
        if rules.interface.is_conduit(&compiled.module)? {
            settings::only_for_proxy_wasm(&rules, &mut problems);
            problems.into_result(())?;
            let compiled = compile(&rules, &bytes, Instances::OnePerCall)?;
            return Ok(Self(Runs::Conduit(Box::new(Conduit::new(compiled, rules, world)?))));
        }
        let at = |message: String| Problems::one("config.path", message);
        let (values, length) = (rules.max_shared_values, rules.max_queue_length);
        let owner = world.owner().map_or("", |owner| owner.config.as_str()).to_owned();
        let failed = world.meters().counter(FAILURES, &["plugin_config"], &[&owner]);
        let parts = Arc::new(Parts {
            owner,
            data: world.kept(&format!("shared data, {values}"), || SharedTable::new(values)),
            queues: world.kept(&format!("shared queues, {length}"), || Queues::new(length)),
            meters: world.meters().clone(),
            metrics: std::sync::Mutex::default(),
            rules,
        });
        let template = Template::new(&compiled.module, &parts).map_err(|error| at(error.to_string()))?;
        // One instance is started to see that the module takes its settings; workers start their own.
        let vm = Vm::start(&template, &parts)
            .map_err(|error| at(format!("the module does not start: {error}")))?;
        let sees = Sees {
            request_bodies: vm.sees_bodies(Direction::Request),
            response_bodies: vm.sees_bodies(Direction::Response),
            // A module without functions for either is called by its timer, beside requests.
            exchanges: vm.sees_exchanges() || !vm.sees_streams(),
            streams: vm.sees_streams(),
            bytes: vm.sees_bytes(),
        };
        let core = Arc::new(Core { template, parts, pools: PerWorker::new(), failed, _module: compiled });
        Ok(Self(Runs::ProxyWasm { core, sees }))
    }

    fn capabilities(&self) -> Capabilities {
        let decides = match &self.0 {
            Runs::ProxyWasm { sees, .. } => sees.exchanges,
            Runs::Conduit(_) => true,
        };
        Capabilities::NONE.with_if(decides, Capability::Decides)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        match &self.0 {
            Runs::ProxyWasm { sees, .. } => {
                if sees.exchanges {
                    hooks.on_request(self.clone());
                    hooks.on_response(self.clone());
                    hooks.on_end(self.clone());
                }
                if sees.streams {
                    hooks.on_connect(self.clone());
                    hooks.on_bytes(self.clone());
                    hooks.on_close(self);
                }
            }
            Runs::Conduit(conduit) => {
                hooks.on_request(self.clone());
                if conduit.sees_responses() {
                    hooks.on_response(self.clone());
                }
            }
        }
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let Runs::ProxyWasm { core, .. } = &self.0 else { return };
        let core = Arc::downgrade(core);
        starter.on_each_worker(move || {
            if let Some(core) = core.upgrade() {
                core.start_instance();
            }
        });
    }
}

/// Reads the module.
fn read(rules: &Rules, world: &World) -> Result<Bytes, Problems> {
    let bytes = world.settings_file(&rules.path, MAX_MODULE);
    bytes.map_err(|error| {
        Problems::one("config.path", format!("{} can't be read: {error}", rules.path.display()))
    })
}

/// Compiles it, where it is the one that is wanted.
fn compile(rules: &Rules, bytes: &[u8], instances: Instances) -> Result<Arc<engine::Compiled>, Problems> {
    let shown = rules.path.display();
    let compiled = engine::compile(bytes, instances)
        .map_err(|error| Problems::one("config.path", format!("{shown}: {error}")))?;
    let digest = hex(&compiled.digest);
    if rules.sha256.as_ref().is_some_and(|expected| *expected != digest) {
        return Err(Problems::one("config.sha256", format!("{shown} has the SHA-256 {digest}")));
    }
    Ok(compiled)
}

impl OnRequest for Wasm {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let (core, sees) = match &self.0 {
            Runs::ProxyWasm { core, sees } => (core, sees),
            Runs::Conduit(conduit) => return conduit.on_request(exchange).map_or(Step::Next, Step::reply),
        };
        let visit = match core.visit(Context::of(exchange, seat)) {
            Ok(visit) => visit,
            Err(stop) => return step(stop),
        };
        exchange.state.put(seat, Visiting(visit.clone()));
        let body = std::mem::take(&mut exchange.body);
        let mut filter = Filter::new(visit.clone(), Direction::Request, body, sees.request_bodies);
        if let Err(stop) = filter.head() {
            exchange.body = filter.into_inner();
            return step(stop);
        }
        if !filter.has_to_wait() {
            exchange.body = filter.into_body();
            return apply_request(exchange, &visit).map_or_else(step, |()| Step::Next);
        }
        Step::wait(async move {
            let done = pass(&mut filter).await;
            if let Err(Stop::Reply(reply)) = done {
                return Verdict::Reply(reply);
            }
            exchange.body = filter.into_body();
            apply_request(exchange, &visit).map_or_else(verdict, |()| Verdict::Next)
        })
    }
}

impl OnResponse for Wasm {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let sees = match &self.0 {
            Runs::ProxyWasm { sees, .. } => sees,
            Runs::Conduit(conduit) => return conduit.on_response(response).map_or(Step::Next, Step::reply),
        };
        let Some(Visiting(visit)) = exchange.state.of::<Visiting>(seat) else { return Step::Next };
        let visit = visit.clone();
        if visit.is_over() {
            return Step::Next;
        }
        let line = PseudoHeaders { status: response.status(), ..PseudoHeaders::default() };
        let mut headers = response.headers().clone();
        // Also where it is written later, as of a reply.
        fit_length(&mut headers, response.body());
        let target = seat.target().map(|target| target.authority().to_string());
        let told = visit.context(|context| {
            context.response = HostMessage { is_there: true, line, headers, ..HostMessage::default() };
            if let Some(facts) = &mut context.facts {
                facts.target = target;
            }
        });
        if let Err(stop) = told {
            return step(stop);
        }
        let body = std::mem::take(response.body_mut());
        let mut filter = Filter::new(visit.clone(), Direction::Response, body, sees.response_bodies);
        if let Err(stop) = filter.head() {
            *response.body_mut() = filter.into_inner();
            return step(stop);
        }
        if !filter.has_to_wait() {
            *response.body_mut() = filter.into_body();
            return apply_response(response, &visit).map_or_else(step, |()| Step::Next);
        }
        Step::wait(async move {
            let done = pass(&mut filter).await;
            if let Err(Stop::Reply(reply)) = done {
                return Verdict::Reply(reply);
            }
            *response.body_mut() = filter.into_body();
            apply_response(response, &visit).map_or_else(verdict, |()| Verdict::Next)
        })
    }
}

impl OnEnd for Wasm {
    fn on_end(&self, record: &ExchangeRecord<'_>, seat: Seat<'_>) {
        if let Some(Visiting(visit)) = record.exchange.state.of::<Visiting>(seat) {
            visit.end();
        }
    }
}

impl OnConnect for Wasm {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        // A WebSocket is visited as the exchange that it began as.
        let (Runs::ProxyWasm { core, .. }, None) = (&self.0, &session.head) else { return Gate::Open };
        let visit = match core.visit(Context::of_session(session, seat)) {
            Ok(visit) => visit,
            Err(stop) => return gate(&stop),
        };
        session.state.put(seat, Visiting(visit.clone()));
        match Opening::begin(visit) {
            Ok(StreamStart::GoesOn) => Gate::Open,
            Ok(StreamStart::Refused(reason)) => Gate::refuse(reason),
            Ok(StreamStart::Waits(opening)) => Gate::Wait(Box::pin(async move {
                match opening.decided().await {
                    Ok(decided) => decided.map_err(Refusal::new),
                    Err(Stop::Pass) => Ok(()),
                    Err(_) => Err(Refusal::new(stream::FAILED)),
                }
            })),
            Err(stop) => gate(&stop),
        }
    }
}

fn gate(stop: &Stop) -> Gate<'static> {
    match stop {
        Stop::Pass => Gate::Open,
        Stop::Reply(_) | Stop::Body(_) => Gate::refuse(stream::FAILED),
    }
}

impl OnBytes for Wasm {
    fn on_bytes<'a>(
        &'a self,
        client: Stream<'a>,
        session: &'a Session,
        cut: &'a Cut,
        seat: Seat<'a>,
    ) -> Stream<'a> {
        let (Runs::ProxyWasm { sees, .. }, Some(Visiting(visit))) =
            (&self.0, session.state.of::<Visiting>(seat))
        else {
            return client;
        };
        let target = seat.target().map(|target| target.authority().to_string());
        let told = visit.context(|context| {
            if let Some(facts) = &mut context.facts {
                facts.target = target;
            }
        });
        // One that has failed before, in a session that goes on without it.
        if told.is_err() {
            return client;
        }
        Box::new(Tap::new(client, visit.clone(), sees.bytes, cut))
    }
}

impl OnClose for Wasm {
    fn on_close(&self, record: &SessionRecord<'_>, seat: Seat<'_>) {
        if let Some(Visiting(visit)) = record.session.state.of::<Visiting>(seat) {
            visit.end_stream(record.reason);
        }
    }
}

/// What an exchange or session keeps.
struct Visiting(Arc<GuestContext>);

/// Waits until the head may pass, and for all of a body that is at hand.
async fn pass(filter: &mut Filter) -> Result<(), Stop> {
    filter.released().await?;
    if filter.is_needed() && filter.is_at_hand() { filter.passed().await } else { Ok(()) }
}

fn step(stop: Stop) -> Step<'static> {
    match stop {
        Stop::Reply(reply) => Step::Reply(reply),
        Stop::Pass | Stop::Body(_) => Step::Next,
    }
}

fn verdict(stop: Stop) -> Verdict {
    match stop {
        Stop::Reply(reply) => Verdict::Reply(reply),
        Stop::Pass | Stop::Body(_) => Verdict::Next,
    }
}

/// Has the request be what the guest has made of it.
fn apply_request(exchange: &mut Exchange, visit: &GuestContext) -> Result<(), Stop> {
    if visit.is_over() {
        return Ok(());
    }
    let sent = host::target_of(exchange);
    let authority = exchange.authority().unwrap_or_default().to_owned();
    let changed = visit.context(|context| changed(&mut context.request))?;
    let Some((line, headers)) = changed else { return Ok(()) };
    exchange.replace_headers(headers);
    fit_length(&mut exchange.request.headers, &exchange.body);
    exchange.request.method = line.method;
    if line.path != sent {
        exchange.forward_path = Some(line.path);
    }
    if line.authority != authority
        && let Ok(host) = HeaderValue::from_str(&line.authority)
    {
        exchange.set_forward_host(host);
    }
    Ok(())
}

/// Has the response be what the guest has made of it.
fn apply_response(response: &mut Response<Body>, visit: &GuestContext) -> Result<(), Stop> {
    if visit.is_over() {
        return Ok(());
    }
    let changed = visit.context(|context| changed(&mut context.response))?;
    let Some((line, headers)) = changed else { return Ok(()) };
    *response.headers_mut() = headers;
    *response.status_mut() = line.status;
    let body = std::mem::take(response.body_mut());
    fit_length(response.headers_mut(), &body);
    *response.body_mut() = body;
    Ok(())
}

/// A head that the guest has changed, or whose length it has.
fn changed(side: &mut HostMessage) -> Option<(PseudoHeaders, HeaderMap)> {
    let is_changed = std::mem::take(&mut side.is_changed) || side.drops_length || side.is_body_changed;
    is_changed.then(|| {
        let mut headers = side.headers.clone();
        if side.drops_length || side.is_body_changed {
            for name in ["content-length", "content-md5", "digest", "content-digest", "repr-digest"] {
                headers.remove(name);
            }
        }
        (side.line.clone(), headers)
    })
}

/// Writes the length of a body whose length is known and was taken away.
fn fit_length(headers: &mut HeaderMap, body: &Body) {
    if !headers.contains_key(CONTENT_LENGTH)
        && !body.is_empty()
        && let Some(length) = body.exact_length()
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

#[cfg(test)]
mod tests;
