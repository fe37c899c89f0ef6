//! Traces exchanges and sessions for OpenTelemetry: a server span for each, a client span for each attempt at a target, one
//! for each plugin that waited.
//!
//! The context of a trace comes in by W3C Trace Context, B3 or Jaeger's header and goes on to the target with the span of
//! the attempt; what is malformed, sent twice or too long is dropped or corrected. Access records, problem documents and
//! templates (`${trace.id}`) have the ids as well.
//!
//! Spans are encoded as OTLP by the worker that ends an exchange, wait in a bounded queue, and are sent by a task of
//! the plugin's own. A collector that is slow or away costs spans, which are counted, and never traffic.

mod sampler;
mod settings;
mod spans;

use std::sync::Arc;

use gateway_core::config::model::TargetRules;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::Reply;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Attempt, AttemptEnd, Family, Gate, Hooks, OnAttempt, OnClose, OnConnect, OnEnd, OnRequest, OnResponse,
    OnUnrouted, Plugin, Seat, SeatNumber, Starter, Step, World,
};
use gateway_core::record::{ExchangeRecord, SessionRecord};
use gateway_core::stream::session::Session;
use gateway_core::trace::{SpanId, TraceContext, TraceId};
use gateway_plugin_common::parse;
use gateway_telemetry::batch::{Batches, Items};
use gateway_telemetry::context::{self, FirstLook, Incoming, Parent, Propagator};
use gateway_telemetry::deliver::{self, Counts, Pace};
use gateway_telemetry::otlp::{Encoding, Exporter, Signal, build_exporter};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;
use tokio::time::Instant;

use sampler::Sampler;
use settings::Config;
use spans::Clock;

/// Spans of attempts that one exchange remembers; further attempts are made and have none.
const MAX_ATTEMPTS: usize = 16;

/// The plugin.
pub(crate) struct OtelTracing {
    propagators: Box<[Propagator]>,
    look: FirstLook,
    accept_context: bool,
    sampler: Sampler,
    headers: Box<[(HeaderName, String)]>,
    /// In lower case.
    redact_query: Box<[Box<str>]>,
    baggage: Box<[(String, String)]>,
    response_header: Option<HeaderName>,
    encoding: Encoding,
    /// `None` where `OTEL_SDK_DISABLED` is true: contexts pass through, and nothing is recorded.
    recorder: Option<Recorder>,
}

struct Recorder {
    batches: Arc<Batches>,
    exporter: Arc<Exporter>,
    pace: Pace,
    counts: Counts,
    queue_full: Counter,
    name: String,
}

/// What one exchange or session remembers.
struct Trace {
    context: TraceContext,
    parent: Option<Parent>,
    attempts: SmallVec<[Try; 1]>,
    /// The span of the session that the exchange became.
    session: Option<SpanId>,
}

/// What an exchange remembers that is not recorded, whatever becomes of it: that this has been decided. Its attempts have no
/// spans of their own, and targets are told the exchange's.
struct Unrecorded;

/// One attempt.
struct Try {
    /// What its target is told; `None` where that is the exchange's span, as nobody records the trace.
    span: Option<SpanId>,
    number: u32,
    /// Where it went; `None` where it was the last attempt, of which the record knows that.
    target: Option<Addressee>,
    began: Instant,
    ended: Option<Instant>,
    status: Option<u16>,
    reused: Option<bool>,
    error: Option<&'static str>,
    message: Option<String>,
}

/// The target of an attempt.
struct Addressee {
    authority: Arc<str>,
    rules: Arc<TargetRules>,
}

impl Addressee {
    fn of(attempt: Attempt<'_>) -> Self {
        Self { authority: attempt.target.authority().clone(), rules: attempt.target.rules.clone() }
    }
}

const SPANS: Metric = Metric::counter(
    "ferrum_otel_spans_total",
    "Spans of otel_tracing by result: sent, queue_full, failed to be sent, or refused by the collector.",
);

impl Plugin for OtelTracing {
    const NAME: &'static str = "otel_tracing";
    const FAMILY: Family = Family::Observability;
    const SUMMARY: &'static str =
        "Traces exchanges and sessions for OpenTelemetry, and passes trace context on to targets.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let propagators = config.propagators(world, &mut problems);
        let sampler = config.sampler(world, &mut problems);
        let headers = config.headers(&mut problems);
        let baggage = config.baggage(&propagators, &mut problems);
        let resource = config.resource(world, &mut problems);
        let (limits, pace) = config.queue(world, &mut problems);
        let response_header = config
            .response_header
            .as_ref()
            .and_then(|name| parse::header_name("config.response_header", name, &mut problems));
        let exporter = build_exporter(&config.exporter, Signal::Traces, "config.exporter", world);
        let exporter = match (exporter, problems.is_empty()) {
            (Ok(exporter), true) => exporter.of_resource(resource),
            (Ok(_), false) => return Err(problems),
            (Err(more), _) => {
                problems.extend(more.0);
                return Err(problems);
            }
        };
        let is_disabled =
            world.variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let encoding = exporter.encoding();
        let recorder = (!is_disabled).then(|| Recorder::new(exporter, world, limits, pace));
        Ok(Self {
            look: FirstLook::of(&propagators),
            propagators: propagators.into(),
            accept_context: config.accept_context,
            sampler,
            headers,
            redact_query: config.redact_query.iter().map(|name| name.to_ascii_lowercase().into()).collect(),
            baggage,
            response_header,
            encoding,
            recorder,
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_attempt(self.clone());
        // The pipeline knows a gRPC call's status: nothing else is to be learnt of responses.
        if self.response_header.is_some() {
            hooks.on_response(self.clone());
        }
        hooks.on_end(self.clone());
        hooks.on_connect(self.clone());
        hooks.on_close(self.clone());
        hooks.on_unrouted(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let Some(recorder) = &self.recorder else { return };
        // It captures no plugin: the plugin's end is what ends it.
        let (name, batches, exporter) =
            (recorder.name.clone(), recorder.batches.clone(), recorder.exporter.clone());
        let (pace, counts) = (recorder.pace, recorder.counts.clone());
        starter.task("export", move |control| {
            deliver::run(name.clone(), batches.clone(), exporter.clone(), pace, counts.clone(), control)
        });
    }
}

impl Recorder {
    fn new(exporter: Exporter, world: &World, limits: gateway_telemetry::batch::Limits, pace: Pace) -> Self {
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count = |outcome| world.meters().counter(SPANS, &["plugin_config", "outcome"], &[owner, outcome]);
        let queue_full = count("queue_full");
        let counts = Counts { sent: count("sent"), failed: count("failed"), refused: count("refused") };
        // Spans of the settings before go on with these, where they are encoded alike.
        let separator = exporter.separator();
        let kept = format!("{limits:?}{separator:?}");
        Self {
            batches: world
                .kept(&kept, || Batches::new(limits, separator).counting_unsent(counts.failed.clone())),
            exporter: Arc::new(exporter),
            pace,
            counts,
            queue_full,
            name: format!("{}/{owner}", OtelTracing::NAME),
        }
    }

    /// Spans that belong together, which `write` appends one by one.
    fn push(&self, spans: usize, write: impl FnOnce(&mut Items<'_>)) {
        if !self.batches.push_all(spans, write) {
            self.queue_full.add(spans as u64);
        }
    }
}

impl Trace {
    fn new(context: TraceContext, parent: Option<Parent>) -> Self {
        Self { context, parent, attempts: SmallVec::new(), session: None }
    }
}

impl OtelTracing {
    /// Where a request or session that begins now is in a trace.
    fn context(&self, incoming: &Incoming) -> TraceContext {
        let parent = incoming.parent.as_ref();
        let trace = parent.map_or_else(TraceId::random, |parent| parent.trace);
        let decided = parent.map_or(incoming.sampled, |parent| parent.sampled);
        TraceContext { trace, span: SpanId::random(), sampled: self.sampler.decide(trace, decided) }
    }

    /// The trace of a request or session that begins now.
    fn begin(&self, incoming: Incoming) -> Trace {
        Trace::new(self.context(&incoming), incoming.parent)
    }

    /// What a request's headers say, which then say it no more.
    fn take_context(&self, headers: &mut HeaderMap) -> Incoming {
        if self.accept_context {
            let incoming = context::extract(&self.propagators, headers);
            context::clear(&self.propagators, headers);
            return incoming;
        }
        self.propagators.iter().flat_map(|it| it.fields()).for_each(|name| _ = headers.remove(name));
        Incoming::default()
    }

    /// The header field that tells clients the trace, where they are to know it.
    fn shown_to_client(&self, context: TraceContext) -> Option<(HeaderName, HeaderValue)> {
        let name = self.response_header.clone()?;
        Some((name, HeaderValue::from_bytes(&context.trace.hex()).ok()?))
    }
}

impl OnRequest for OtelTracing {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let headers = &mut exchange.request.headers;
        let incoming = match self.look.finds(&self.propagators, headers) {
            true => self.take_context(headers),
            false => Incoming::default(),
        };
        if self.recorder.is_none() {
            // Passed on as it came, in its proper form.
            if let Some(Parent { trace, span: Some(span), sampled, .. }) = &incoming.parent {
                let context = TraceContext { trace: *trace, span: *span, sampled: sampled.unwrap_or(false) };
                context::inject(&self.propagators, headers, context, incoming.parent.as_ref());
            }
            return Step::Next;
        }
        let context = self.context(&incoming);
        // Also for plugins that call others, and where no target is asked.
        context::inject(&self.propagators, headers, context, incoming.parent.as_ref());
        exchange.trace = Some(context);
        match context.sampled || self.sampler.looks_back() {
            true => exchange.state.put(seat, Trace::new(context, incoming.parent)),
            false => exchange.state.put(seat, Unrecorded),
        }
        Step::Next
    }
}

/// What the span of an attempt says that was given up because another one was answered.
const CANCELLED: &str = "cancelled";

impl OnAttempt for OtelTracing {
    fn on_attempt<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        attempt: Attempt<'a>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let Some(trace) = exchange.state.of_mut::<Trace>(seat) else { return Step::Next };
        // Where nobody records the trace, the exchange's own span is as good for those who log it.
        let span = trace.context.sampled.then(SpanId::random);
        if let Some(span) = span {
            let context = TraceContext { span, ..trace.context };
            let headers = &mut exchange.request.headers;
            context::inject(&self.propagators, headers, context, trace.parent.as_ref());
        }
        if trace.attempts.len() < MAX_ATTEMPTS {
            let has_others = attempt.number > 1 || seat.state().hedger.is_some();
            trace.attempts.push(Try {
                span,
                number: attempt.number,
                target: has_others.then(|| Addressee::of(attempt)),
                began: attempt.begun,
                ended: None,
                status: None,
                reused: None,
                error: None,
                message: None,
            });
        }
        Step::Next
    }

    fn after_attempt(
        &self,
        exchange: &mut Exchange,
        attempt: Attempt<'_>,
        end: AttemptEnd<'_>,
        seat: Seat<'_>,
    ) {
        let is_grpc = exchange.dialect == Dialect::Grpc;
        let Some(trace) = exchange.state.of_mut::<Trace>(seat) else { return };
        // Others may have begun beside it.
        let mut latest = trace.attempts.iter_mut().rev();
        let Some(tried) = latest.find(|tried| tried.number == attempt.number) else { return };
        let is_last = match end {
            AttemptEnd::Answered { status, reused, first_byte } => {
                tried.ended = Some(tried.began + first_byte);
                (tried.status, tried.reused) = (Some(status.as_u16()), Some(reused));
                !is_grpc && !may_be_repeated(status, seat)
            }
            AttemptEnd::Failed { cause, source } => {
                (tried.error, tried.message) = (Some(cause.reason()), source.map(ToString::to_string));
                false
            }
            AttemptEnd::Cancelled => {
                tried.error = Some(CANCELLED);
                false
            }
        };
        tried.ended.get_or_insert_with(Instant::now);
        if !is_last {
            tried.target.get_or_insert_with(|| Addressee::of(attempt));
        }
    }
}

/// Whether the request may be sent to another target after an answer with this status.
fn may_be_repeated(status: StatusCode, seat: Seat<'_>) -> bool {
    status.as_u16() >= 400 || seat.proxy().retry.status_codes.contains(&status.as_u16())
}

impl OnResponse for OtelTracing {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        if let Some((name, value)) = exchange.trace.and_then(|context| self.shown_to_client(context)) {
            response.headers_mut().insert(name, value);
        }
        Step::Next
    }
}

impl OnEnd for OtelTracing {
    fn on_end(&self, record: &ExchangeRecord<'_>, seat: Seat<'_>) {
        let (Some(recorder), Some(trace)) = (&self.recorder, record.exchange.state.of::<Trace>(seat)) else {
            return;
        };
        if !trace.context.sampled && !self.sampler.wants(record) {
            return;
        }
        let waits = record.exchange.waits();
        // A queue smaller than one request's spans still has its own span.
        let room = recorder.batches.capacity().saturating_sub(1);
        let attempts = &trace.attempts[..trace.attempts.len().min(room)];
        let all_waits = waits.len();
        let waits = &waits[..all_waits.min(room - attempts.len())];
        let left_out = trace.attempts.len() - attempts.len() + all_waits - waits.len();
        if left_out > 0 {
            recorder.queue_full.add(left_out as u64);
        }
        recorder.push(attempts.len() + waits.len() + 1, |spans| {
            let clock = Clock::at_end(record);
            for tried in attempts {
                spans.add(|out| spans::attempt(out, self, clock, trace, tried, record, seat));
            }
            for waited in waits {
                spans.add(|out| spans::wait(out, self, clock, trace, waited, seat));
            }
            spans.add(|out| spans::exchange(out, self, clock, trace, record));
        });
    }
}

impl OnUnrouted for OtelTracing {
    fn on_unrouted(&self, exchange: &mut Exchange, reply: &mut Reply, place: SeatNumber) {
        if self.recorder.is_none() {
            return;
        }
        let incoming = match self.accept_context {
            true => context::extract(&self.propagators, &exchange.request.headers),
            false => Incoming::default(),
        };
        let trace = self.begin(incoming);
        exchange.trace = Some(trace.context);
        if let Some((name, value)) = self.shown_to_client(trace.context) {
            reply.headers.insert(name, value);
        }
        exchange.state.put(place, trace);
    }

    fn on_unrouted_end(&self, record: &ExchangeRecord<'_>, place: SeatNumber) {
        let (Some(recorder), Some(trace)) = (&self.recorder, record.exchange.state.of::<Trace>(place)) else {
            return;
        };
        if trace.context.sampled || self.sampler.wants(record) {
            let clock = Clock::at_end(record);
            recorder.push(1, |spans| spans.add(|out| spans::exchange(out, self, clock, trace, record)));
        }
    }
}

impl OnConnect for OtelTracing {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        if self.recorder.is_none() {
            return Gate::Open;
        }
        if let Some(trace) = session.state.of_mut::<Trace>(seat) {
            trace.session = Some(SpanId::random());
            return Gate::Open;
        }
        if session.state.of::<Unrecorded>(seat).is_some() {
            return Gate::Open;
        }
        let trace = self.begin(Incoming::default());
        session.trace = Some(trace.context);
        session.state.put(seat, trace);
        Gate::Open
    }
}

impl OnClose for OtelTracing {
    fn on_close(&self, record: &SessionRecord<'_>, seat: Seat<'_>) {
        let (Some(recorder), Some(trace)) = (&self.recorder, record.session.state.of::<Trace>(seat)) else {
            return;
        };
        if trace.context.sampled || self.sampler.wants_session(record) {
            let clock = Clock::now();
            recorder.push(1, |spans| spans.add(|out| spans::session(out, self, clock, trace, record, seat)));
        }
    }
}

#[cfg(test)]
mod tests;
