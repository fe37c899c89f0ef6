//! Both sides of the pipeline, scripted.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body::{Body as HttpBody, Frame};

use super::*;
use crate::balance::Target;
use crate::config::file::{Origin, References};
use crate::config::problem::Problems;
use crate::config::resolve;
use crate::health::HealthChange;
use crate::http::exchange::Client;
use crate::http::upstream::TargetResponse;
use crate::limit::hedging::Hedged;
use crate::plugin::{Hooks, OnRequest, OnResponse, Plugin, Registry, Seat, Step, World, entry};
use crate::record::{ExchangeRecord, SessionRecord};
use crate::snapshot::compile::Compiler;

/// Runs on a paused clock.
pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

/// What a target says to one attempt.
pub(super) enum Say {
    /// Answers with a body that says who was asked for what.
    Status(u16),
    /// Answers with the request's body.
    Echo,
    /// Answers with this status after so many milliseconds.
    Later(u64, u16),
    /// Fails after so many milliseconds, when something was sent.
    Breaks(u64),
    /// Says nothing.
    Never,
    /// Fails before anything was sent.
    Unsent(Cause),
    /// Fails after something was sent.
    Sent(Cause),
    /// Was a kept connection that had died.
    Stale,
    /// Answers, and breaks off in the body.
    Cut,
    /// Answers with a piece after each of these pauses in milliseconds; with the length or without.
    Pieces(&'static [u64], bool),
    /// Answers with this content type and these bytes, and nothing more.
    Stalls(&'static str, &'static [u8]),
}

/// A pipeline with what it is between.
pub(super) struct Fake {
    pipeline: Pipeline<Targets>,
    snapshot: Snapshot,
    records: Arc<Records>,
}

pub(super) struct Targets {
    script: Mutex<VecDeque<Say>>,
    asked: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Records(Mutex<Vec<Record>>);

#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) status: u16,
    pub(super) cause: Option<Cause>,
    pub(super) attempts: u32,
    pub(super) response_bytes: u64,
    pub(super) last_byte: Option<Duration>,
    pub(super) hedged: Hedged,
}

/// What a client got.
pub(super) struct Got {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    pub(super) cut: Option<Cause>,
}

struct Nothing;

impl References for Nothing {
    fn env(&self, _name: &str) -> Option<String> {
        None
    }

    fn file(&self, _path: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Fake {
    pub(super) fn new(spec: &str, script: impl IntoIterator<Item = Say>) -> Self {
        let any = |_: &str, _: &serde_json::Value| Ok::<(), Problems>(());
        let origin = Origin { name: "test".into(), folder: std::path::PathBuf::new(), format: None };
        let model = resolve::load(spec, &origin, &Nothing, &any, |_| Problems::default())
            .unwrap_or_else(|problems| panic!("{problems}\n{spec}"));
        let registry = Registry::new(&[
            entry::<Early>(),
            entry::<Refuses>(),
            entry::<Once>(),
            entry::<Late>(),
            entry::<Broken>(),
        ]);
        let settings = model.settings.clone();
        let overload = Overload::new(&settings.limits);
        let compiled = Compiler::new(registry).compile(&model, &Snapshot::empty(settings), Instant::now());
        let snapshot = compiled.snapshot;
        let records = Arc::<Records>::default();
        let targets = Targets { script: Mutex::new(script.into_iter().collect()), asked: Mutex::default() };
        Self { pipeline: Pipeline::new(targets, records.clone(), overload), snapshot, records }
    }

    pub(super) async fn serve(&self, request: Request<Body>) -> Got {
        let address = ([127, 0, 0, 1], 1).into();
        let client = Arc::new(Client::new(address, address, false, None));
        let mut downstream = Screen(None);
        let delivery = self
            .pipeline
            .serve(&self.snapshot, Box::new(Exchange::new(request, client)), &mut downstream)
            .await;
        let mut got = downstream.0.expect("an answer");
        got.cut = delivery.cut;
        got
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.records.0.lock().unwrap().clone()
    }

    /// Whether every target of the upstream `u` and every breaker in front of it is well.
    pub(super) fn is_all_well(&self) -> bool {
        let now = Instant::now();
        let targets = self.snapshot.upstreams.get("u").expect("the upstream").list();
        let breakers = |index| {
            let routes = self.snapshot.by_id.iter().filter_map(|(_, route)| route.breakers.as_deref());
            routes.into_iter().all(|breakers| breakers.admits(index, now))
        };
        targets.iter().enumerate().all(|(index, target)| target.is_healthy(now) && breakers(index))
    }

    /// The authorities of the targets asked.
    pub(super) fn asked(&self) -> Vec<String> {
        self.pipeline.upstream().asked.lock().unwrap().clone()
    }
}

pub(super) fn request(method: &str, path: &str) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    request.headers_mut().insert("host", HeaderValue::from_static("a.test"));
    request
}

pub(super) fn post(path: &str, body: &'static str) -> Request<Body> {
    request("POST", path).map(|_| Body::stream(Pieces { left: pieces(body), length: None }))
}

/// The same with a `Content-Length`.
pub(super) fn put_with_length(path: &str, body: &'static str) -> Request<Body> {
    let length = Some(body.len() as u64);
    request("PUT", path).map(|_| Body::stream(Pieces { left: pieces(body), length }))
}

fn pieces(body: &'static str) -> VecDeque<Result<Bytes, BodyError>> {
    body.bytes().map(|byte| Ok(Bytes::from(vec![byte]))).collect()
}

/// A body that can't be had twice.
struct Pieces {
    left: VecDeque<Result<Bytes, BodyError>>,
    length: Option<u64>,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        std::task::Poll::Ready(self.left.pop_front().map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map_or_else(Default::default, http_body::SizeHint::with_exact)
    }
}

/// A body whose pieces come after pauses.
struct Slow {
    pauses: VecDeque<u64>,
    has_length: bool,
    pause: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
}

impl HttpBody for Slow {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(millis) = self.pauses.front().copied() else { return std::task::Poll::Ready(None) };
        let pause =
            self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(millis))));
        std::task::ready!(pause.as_mut().poll(cx));
        (self.pause, _) = (None, self.pauses.pop_front());
        std::task::Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_length && self.pauses.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self.has_length {
            true => http_body::SizeHint::with_exact(self.pauses.len() as u64),
            false => http_body::SizeHint::default(),
        }
    }
}

/// A body that does not end.
struct Stalled(Option<Bytes>);

impl HttpBody for Stalled {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.0.take() {
            Some(bytes) => std::task::Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => std::task::Poll::Pending,
        }
    }
}

impl Upstream for Targets {
    async fn send<D: Downstream>(
        &self,
        call: &crate::http::upstream::Call<'_>,
        body: &mut Body,
        _: &mut D,
    ) -> Result<TargetResponse, Failure> {
        self.asked.lock().unwrap().push(call.target.authority().to_string());
        let say = self.script.lock().unwrap().pop_front().expect("an attempt too many");
        let mut answer = TargetResponse {
            response: Response::new(Body::full(format!("body of {} {}", call.target.authority(), call.path))),
            first_byte: Duration::from_millis(1),
            reused: false,
            tunnel: None,
        };
        match say {
            Say::Status(status) => *answer.response.status_mut() = StatusCode::from_u16(status).unwrap(),
            Say::Echo => *answer.response.body_mut() = std::mem::take(body),
            Say::Later(millis, status) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                *answer.response.status_mut() = StatusCode::from_u16(status).unwrap();
            }
            Say::Breaks(millis) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                return Err(Failure::sent(Cause::UpstreamClosed));
            }
            Say::Never => return std::future::pending().await,
            Say::Unsent(cause) => return Err(Failure::unsent(cause, std::mem::take(body))),
            Say::Sent(cause) => return Err(Failure::sent(cause)),
            Say::Stale => return Err(Failure { stale: true, ..Failure::sent(Cause::UpstreamClosed) }),
            Say::Stalls(kind, bytes) => {
                answer.response.headers_mut().insert("content-type", HeaderValue::from_static(kind));
                *answer.response.body_mut() = Body::stream(Stalled(Some(Bytes::from_static(bytes))));
            }
            Say::Pieces(pauses, has_length) => {
                let slow = Slow { pauses: pauses.iter().copied().collect(), has_length, pause: None };
                *answer.response.body_mut() = Body::stream(slow);
            }
            Say::Cut => {
                let pieces = [Ok(Bytes::from_static(b"half")), Err(BodyError::Incomplete)];
                *answer.response.body_mut() = Body::stream(Pieces { left: pieces.into(), length: None });
            }
        }
        Ok(answer)
    }
}

/// A client that takes everything.
struct Screen(Option<Got>);

impl Downstream for Screen {
    async fn interim(&mut self, _status: StatusCode, _headers: &HeaderMap) {}

    async fn upgrade(&mut self, _response: Response<()>) -> Option<Tunnel> {
        None
    }

    async fn respond(&mut self, response: Response<Body>) -> Delivery {
        let (parts, mut body) = response.into_parts();
        // Sending may end in the middle.
        let got = self.0.insert(Got {
            status: parts.status,
            headers: parts.headers,
            body: String::new(),
            cut: None,
        });
        let mut delivery = Delivery { bytes: 0, cut: None, ..Delivery::default() };
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    let data = frame.into_data().unwrap_or_default();
                    delivery.bytes += data.len() as u64;
                    got.body.push_str(&String::from_utf8_lossy(&data));
                }
                Err(_) => {
                    delivery.cut = Some(Cause::UpstreamClosed);
                    break;
                }
            }
        }
        delivery
    }
}

impl Recorder for Records {
    fn began(&self) {}

    fn panicked(&self) {}

    fn exchange(&self, record: &ExchangeRecord<'_>) {
        let ExchangeRecord { status, cause, attempts, response_bytes, last_byte, .. } = *record;
        let hedged = record.exchange.hedged();
        self.0.lock().unwrap().push(Record { status, cause, attempts, response_bytes, last_byte, hedged });
    }

    fn health(&self, _target: &Target, _change: HealthChange) {}

    fn session(&self, _record: &SessionRecord<'_>) {}
}

/// A plugin that leaves a mark on responses.
macro_rules! marks {
    ($plugin:ident, $name:literal, $header:literal) => {
        struct $plugin;

        impl Plugin for $plugin {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "Leaves a mark on responses.";
            type Config = serde_json::Value;

            fn build(_config: Self::Config, _world: &World) -> Result<Self, Problems> {
                Ok(Self)
            }

            fn attend(self: Arc<Self>, hooks: &mut Hooks) {
                hooks.on_request(self.clone());
                hooks.on_response(self);
            }
        }

        impl OnRequest for $plugin {
            fn on_request<'a>(&'a self, _exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
                Step::Next
            }
        }

        impl OnResponse for $plugin {
            fn on_response<'a>(
                &'a self,
                _: &'a mut Exchange,
                response: &'a mut Response<Body>,
                _: Seat<'a>,
            ) -> Step<'a> {
                response.headers_mut().insert($header, HeaderValue::from_static("1"));
                Step::Next
            }
        }
    };
}

marks!(Early, "early", "x-early");
marks!(Late, "late", "x-late");

/// A plugin that refuses everything.
struct Refuses;

impl Plugin for Refuses {
    const NAME: &'static str = "refuses";
    const SUMMARY: &'static str = "Refuses everything.";
    type Config = serde_json::Value;

    fn build(_config: Self::Config, _world: &World) -> Result<Self, Problems> {
        Ok(Self)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for Refuses {
    fn on_request<'a>(&'a self, _exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        Step::reply(Reply::fixed(StatusCode::IM_A_TEAPOT, "no"))
    }
}

/// A plugin that wants requests sent once.
struct Once;

impl Plugin for Once {
    const NAME: &'static str = "once";
    const SUMMARY: &'static str = "Has requests sent once.";
    type Config = serde_json::Value;

    fn build(_config: Self::Config, _world: &World) -> Result<Self, Problems> {
        Ok(Self)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for Once {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        exchange.send_once();
        Step::Next
    }
}

/// A plugin that can't be built.
struct Broken;

impl Plugin for Broken {
    const NAME: &'static str = "broken";
    const SUMMARY: &'static str = "Can't be built.";
    type Config = serde_json::Value;

    fn build(_config: Self::Config, _world: &World) -> Result<Self, Problems> {
        Err(Problems::one("config", "is broken"))
    }

    fn attend(self: Arc<Self>, _hooks: &mut Hooks) {}
}
