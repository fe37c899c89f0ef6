//! Runs operators' scripts, written in Rhai, over requests and responses.
//!
//! A script is compiled when it is loaded. Each of its functions runs on the worker within limits on operations, time, depth
//! and sizes; a call to another server is made after the function has returned, and a callback gets the answer, so that no
//! script ever holds up other requests while it waits. What fails is answered with 500 unless `on_error` says otherwise.

mod bounded;
mod captured;
mod convert;
mod deadline;
mod engine;
mod failure;
mod fetch;
mod functions;
mod settings;
mod tools;
mod view;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Starter, Step, Verdict,
    World,
};
use gateway_plugin_common::watched::refresh_regularly;
use http::header::CONTENT_ENCODING;
use http::{Response, StatusCode};
use rhai::{Dynamic, Engine, FnPtr, Scope};
use tokio::sync::Semaphore;

use crate::on_error::OnError;
use crate::shared_table::SharedTable;
use captured::Captured;
use engine::{Parts, Program, ScriptFault};
use settings::{Config, Rules, Server, Source};
use view::{Bodies, ReadBody, Request, ScriptResponse, View};

/// The plugin.
pub(crate) struct Script {
    rules: Rules,
    parts: Parts,
    program: ArcSwap<Loaded>,
    turns: Semaphore,
    counts: Counts,
    world: World,
}

/// A script as it was read.
struct Loaded {
    program: Program,
    /// When its file was changed; 0 for a script in the configuration.
    modified: u128,
}

struct Counts {
    passed: Counter,
    replied: Counter,
    failed: Counter,
}

const RUNS: Metric = Metric::counter(
    "ferrum_script_runs_total",
    "Exchanges' visits to a script by outcome: passed, replied (the script answered), failed (it failed or went beyond a \
           limit).",
);

const EVENTS: Metric =
    Metric::counter("ferrum_script_events_total", "What scripts count themselves, by event.");

/// Bytes of a script.
const MAX_SOURCE: u64 = 1 << 20;

impl Plugin for Script {
    const NAME: &'static str = "script";
    const FAMILY: Family = Family::Scripting;
    const SUMMARY: &'static str = "Runs a Rhai script for requests and responses.";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut rules = settings::read(config, world, &mut problems);
        problems.into_result(())?;
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let meters = world.meters();
        let count = |outcome| meters.counter(RUNS, &["plugin_config", "outcome"], &[owner, outcome]);
        let event = |name: &String| {
            (name.clone(), meters.counter(EVENTS, &["plugin_config", "event"], &[owner, name.as_str()]))
        };
        let servers: Arc<[Server]> = std::mem::take(&mut rules.servers).into();
        let max = rules.max_shared_values;
        let parts = Parts {
            shared: world.kept(&format!("shared values, {max}"), || SharedTable::new(max)),
            counters: rules.counters.iter().map(event).collect(),
            servers,
            fields: std::mem::take(&mut rules.record_fields).into(),
            upstreams: std::mem::take(&mut rules.upstreams).into(),
        };
        let loaded = match &rules.source {
            Source::Inline(source) => {
                load(&parts, &rules, source, 0).map_err(|error| Problems::one("config.source", error))
            }
            Source::File(path, _) => {
                read(&parts, &rules, world, path).map_err(|error| Problems::one("config.path", error))
            }
        };
        Ok(Self {
            program: ArcSwap::from_pointee(loaded?),
            parts,
            turns: Semaphore::new(rules.max_concurrent_calls),
            counts: Counts { passed: count("passed"), replied: count("replied"), failed: count("failed") },
            world: world.clone(),
            rules,
        })
    }

    fn capabilities(&self) -> Capabilities {
        let (decides, _) = self.attended();
        Capabilities::NONE
            .with_if(decides, Capability::Decides)
            .with_if(!decides && self.rules.read_response_body, Capability::OnlyPrepares)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        let (decides, answers) = self.attended();
        self.parts.upstreams.iter().for_each(|id| hooks.may_choose(id.clone()));
        // Also only to ask for a body that can be read.
        if decides || self.rules.read_response_body {
            hooks.on_request(self.clone());
        }
        if answers {
            hooks.on_response(self);
        }
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        if let Source::File(_, every) = &self.rules.source {
            let (plugin, every) = (self.clone(), *every);
            starter.task("refresh", move |control| plugin.clone().keep_fresh(every, control));
        }
    }
}

/// Why a script can't be loaded.
#[derive(Debug, thiserror::Error)]
enum ScriptLoadError {
    #[error(transparent)]
    Script(#[from] ScriptFault),
    /// One that names `curry`: the engine only says that it expects something else in its place.
    #[error("{0} (`curry` can't be called: closures capture what they need)")]
    Curry(#[source] ScriptFault),
}

/// Why the file of a script can't be used.
#[derive(Debug, thiserror::Error)]
enum ScriptFileError {
    #[error("{} can't be read: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("{}: {error}", .path.display())]
    Script { path: PathBuf, error: ScriptLoadError },
}

fn load(parts: &Parts, rules: &Rules, source: &str, modified: u128) -> Result<Loaded, ScriptLoadError> {
    let program = Program::compile(source, &rules.settings, &rules.limits, parts.clone());
    program.map(|program| Loaded { program, modified }).map_err(|fault| match source.contains("curry") {
        true => ScriptLoadError::Curry(fault),
        false => ScriptLoadError::Script(fault),
    })
}

fn read(parts: &Parts, rules: &Rules, world: &World, path: &Path) -> Result<Loaded, ScriptFileError> {
    // Asked before it is read: a change while it is read is seen the next time.
    let modified = world.files().modified(path).unwrap_or(0);
    let unread = |error| ScriptFileError::File { path: path.to_owned(), error };
    let bytes = world.settings_file(path, MAX_SOURCE).map_err(unread)?;
    let source = std::str::from_utf8(&bytes).map_err(|_| ScriptFileError::NotUtf8(path.to_owned()))?;
    load(parts, rules, source, modified)
        .map_err(|error| ScriptFileError::Script { path: path.to_owned(), error })
}

impl OnRequest for Script {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let loaded = self.program.load();
        if self.rules.read_response_body && loaded.program.on_response {
            exchange.ask_for_plain();
        }
        if !loaded.program.on_request {
            return Step::Next;
        }
        if !self.rules.read_request_body {
            let visit = ScriptCall::new(
                self,
                arc_swap::Guard::into_inner(loaded),
                exchange,
                None,
                Bodies::default(),
                seat,
            );
            return visit.begin("on_request", exchange, None, seat);
        }
        let loaded = arc_swap::Guard::into_inner(loaded);
        Step::wait(async move {
            let body = match self.collect(&mut exchange.body, false).await {
                Ok(body) => Bodies { request: Some(body), response: None },
                Err(refused) => return self.unread(refused),
            };
            let visit = ScriptCall::new(self, loaded, exchange, None, body, seat);
            visit.run("on_request", exchange, None, seat).await
        })
    }
}

impl OnResponse for Script {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        exchange.accept_codings();
        let loaded = self.program.load();
        if !loaded.program.on_response {
            return Step::Next;
        }
        let loaded = arc_swap::Guard::into_inner(loaded);
        if !self.rules.read_response_body {
            let visit = ScriptCall::new(self, loaded, exchange, Some(response), Bodies::default(), seat);
            return visit.begin("on_response", exchange, Some(response), seat);
        }
        // Which the client would have to decode, and the script can't.
        let coding = response.headers().get(CONTENT_ENCODING).filter(|_| !response.body().is_empty());
        if coding.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            let reply = Reply::new(Cause::UpstreamGarbage).reason("script_body_compressed");
            let detail = "the target compressed the response though it was asked not to";
            return Step::Reply(Box::new(reply.detail(detail)));
        }
        Step::wait(async move {
            let body = match self.collect(response.body_mut(), true).await {
                Ok(body) => Bodies { request: None, response: Some(body) },
                Err(refused) => return self.unread(refused),
            };
            let visit = ScriptCall::new(self, loaded, exchange, Some(response), body, seat);
            visit.run("on_response", exchange, Some(response), seat).await
        })
    }
}

impl Script {
    /// Whether requests and whether responses are the script's to see. A file may have other functions tomorrow.
    fn attended(&self) -> (bool, bool) {
        let program = &self.program.load().program;
        let any = matches!(self.rules.source, Source::File(..));
        (any || program.on_request, any || program.on_response)
    }

    /// Reads a body that a script wants to see; or the refusal.
    async fn collect(&self, body: &mut Body, is_response: bool) -> Result<ReadBody, Box<Reply>> {
        let (bad, large) = match is_response {
            true => (Cause::UpstreamClosed, Cause::UpstreamGarbage),
            false => (Cause::BadRequest, Cause::BodyTooLarge),
        };
        match body.collect(self.rules.max_body).await {
            Ok(read) => Ok(read),
            Err(BodyError::Refused(reply)) => Err(reply),
            Err(BodyError::TooLarge { .. }) => {
                let reply = Reply::new(large).reason("script_body_too_large");
                Err(Box::new(reply.detail("the body is larger than a script may read")))
            }
            Err(BodyError::NoRoom) => Err(Box::new(Reply::new(Cause::Overloaded))),
            Err(_) => Err(Box::new(Reply::new(bad).reason("body_incomplete"))),
        }
    }

    /// What becomes of an exchange whose body can't be read; not a failure of the script, so that `on_error` has no say.
    fn unread(&self, refusal: Box<Reply>) -> Verdict {
        self.counts.failed.add(1);
        Verdict::Reply(refusal)
    }

    async fn keep_fresh(self: Arc<Self>, every: Duration, control: TaskControl) -> Result<(), TaskError> {
        let world = self.world.clone();
        refresh_regularly(&world, every, control, move || self.refresh()).await
    }

    /// Compiles the file again when it has changed.
    fn refresh(&self) -> Result<(), ScriptFileError> {
        let Source::File(path, _) = &self.rules.source else { return Ok(()) };
        if self.world.files().modified(path).unwrap_or(0) == self.program.load().modified {
            return Ok(());
        }
        let loaded = read(&self.parts, &self.rules, &self.world, path)?;
        self.program.store(Arc::new(loaded));
        tracing::info!(path = %path.display(), "loaded a changed script");
        Ok(())
    }
}

/// One exchange's visit to one function of a script, with the calls that come of it.
struct ScriptCall<'a> {
    script: &'a Script,
    loaded: Arc<Loaded>,
    view: View,
    /// What closures have captured; a callback of `fetch` still needs it.
    captured: Captured,
    calls: u32,
}

/// What came of one run.
enum Ran {
    /// The function is done, and all it asked for is done as well.
    Done,
    /// It wants a call made.
    Fetch(Box<view::Fetch>),
    /// It returned `false`.
    Refused,
    /// It failed.
    Failed(ScriptFault),
}

impl<'a> ScriptCall<'a> {
    fn new(
        script: &'a Script,
        loaded: Arc<Loaded>,
        exchange: &mut Exchange,
        response: Option<&Response<Body>>,
        bodies: Bodies,
        seat: Seat<'_>,
    ) -> Self {
        let view = View::new(exchange, response, bodies, seat);
        Self { script, loaded, view, captured: Captured::default(), calls: 0 }
    }

    /// Runs a function; waits only if it makes a call.
    fn begin(
        mut self,
        function: &str,
        exchange: &'a mut Exchange,
        mut response: Option<&'a mut Response<Body>>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let ran = self.call(function, exchange, response.as_deref_mut());
        match ran {
            Ran::Fetch(fetch) => Step::wait(self.follow(Ran::Fetch(fetch), exchange, response, seat)),
            ran => match self.end(ran, exchange, response, seat) {
                None => Step::Next,
                Some(reply) => Step::Reply(reply),
            },
        }
    }

    /// The same, where waiting is no matter.
    async fn run(
        mut self,
        function: &str,
        exchange: &mut Exchange,
        mut response: Option<&mut Response<Body>>,
        seat: Seat<'_>,
    ) -> Verdict {
        let ran = self.call(function, exchange, response.as_deref_mut());
        self.follow(ran, exchange, response, seat).await
    }

    /// Makes calls for as long as callbacks want more.
    async fn follow(
        mut self,
        mut ran: Ran,
        exchange: &mut Exchange,
        mut response: Option<&mut Response<Body>>,
        seat: Seat<'_>,
    ) -> Verdict {
        while let Ran::Fetch(fetch) = ran {
            self.calls += 1;
            if self.calls > self.script.rules.max_calls {
                ran = Ran::Failed(ScriptFault::of("it makes more calls than `max_calls`"));
                break;
            }
            let client = &self.script.parts.servers[fetch.server].client;
            let answer = fetch::make(client, &self.script.turns, fetch.request).await;
            ran = self.call_back(&fetch.then, answer, exchange, response.as_deref_mut());
        }
        match self.end(ran, exchange, response, seat) {
            None => Verdict::Next,
            Some(reply) => Verdict::Reply(reply),
        }
    }

    fn call(
        &mut self,
        function: &str,
        exchange: &mut Exchange,
        response: Option<&mut Response<Body>>,
    ) -> Ran {
        let request = Dynamic::from(Request(self.view.clone()));
        let mut arguments = smallvec::SmallVec::<[Dynamic; 2]>::from_iter([request]);
        if response.is_some() {
            arguments.push(Dynamic::from(ScriptResponse(self.view.clone())));
        }
        self.within(exchange, response, |engine, program| {
            let options = rhai::CallFnOptions::default().eval_ast(false).rewind_scope(false);
            let arguments: Vec<Dynamic> = arguments.into_vec();
            engine.call_fn_with_options::<Dynamic>(
                options,
                &mut Scope::new(),
                program.ast(),
                function,
                arguments,
            )
        })
    }

    fn call_back(
        &mut self,
        then: &FnPtr,
        answer: Dynamic,
        exchange: &mut Exchange,
        response: Option<&mut Response<Body>>,
    ) -> Ran {
        self.within(exchange, response, |engine, program| then.call(engine, program.ast(), (answer,)))
    }

    /// Runs something of the script, with the heads moved into its view.
    fn within(
        &mut self,
        exchange: &mut Exchange,
        mut response: Option<&mut Response<Body>>,
        run: impl FnOnce(&Engine, &Program) -> Result<Dynamic, Box<rhai::EvalAltResult>>,
    ) -> Ran {
        let (time, program) = (self.script.rules.limits.time, &self.loaded.program);
        self.view.swap(exchange, response.as_deref_mut());
        let view = Some(self.view.clone());
        let result = engine::within(time, view, &mut self.captured, || run(&program.engine, program));
        self.view.swap(exchange, response);
        // Taken out in any case: a closure in it may hold this view.
        let fetch = self.view.see().did.fetch.take();
        match (result, fetch) {
            (Err(error), _) => Ran::Failed(error.into()),
            (Ok(value), _) if value.as_bool() == Ok(false) => Ran::Refused,
            (Ok(_), Some(fetch)) => Ran::Fetch(fetch),
            (Ok(_), None) => Ran::Done,
        }
    }

    /// Carries out what the script decided; the reply, where there is one.
    fn end(
        &self,
        ran: Ran,
        exchange: &mut Exchange,
        response: Option<&mut Response<Body>>,
        seat: Seat<'_>,
    ) -> Option<Box<Reply>> {
        let reply = self.view.finish(exchange, response, seat);
        let Script { rules, counts, world, .. } = self.script;
        let reply = match ran {
            Ran::Failed(fault) => {
                counts.failed.add(1);
                let config = world.owner().map_or("", |owner| owner.config.as_str());
                tracing::warn!(plugin_config = config, "the script failed: {fault}");
                exchange.note("script.error", &*fault.to_string());
                return match rules.on_error {
                    OnError::Closed => {
                        let reply = Reply::new(Cause::Internal).reason("script_failed");
                        Some(Box::new(reply.status(StatusCode::INTERNAL_SERVER_ERROR)))
                    }
                    OnError::Open => None,
                };
            }
            Ran::Refused => {
                let refusal =
                    || Reply::new(Cause::Forbidden).reason("script").detail("the request is not allowed");
                Some(reply.unwrap_or_else(|| Box::new(refusal())))
            }
            Ran::Done | Ran::Fetch(_) => reply,
        };
        if reply.is_some() { &counts.replied } else { &counts.passed }.add(1);
        reply
    }
}

#[cfg(test)]
mod tests;
