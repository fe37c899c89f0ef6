//! A gateway without sockets, for tests of plugins: requests go through the real pipeline, and a closure is the target.
//!
//! ```text
//! let trial = Trial::new(&[entry::<MyPlugin>()], "my_plugin", json!({ "option": 1 }));
//! let got = trial.send(Request::get("/").body(Body::empty())?).await;
//! assert_eq!(got.status, 200);
//! ```

#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a test ends where it is set up wrongly")]

mod streams;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::balance::Target;
use crate::config::file::{NoReferences, Origin};
use crate::config::model::Model;
use crate::config::problem::Problems;
use crate::config::resolve;
use crate::health::HealthChange;
use crate::http::body::{Body, BodyError};
use crate::http::dialect::grpc_status;
use crate::http::downstream::{Delivery, Downstream};
use crate::http::exchange::Fork;
use crate::http::exchange::{Client, ClientTls, Exchange, Field};
use crate::http::reply::Cause;
use crate::http::tunnel::Tunnel;
use crate::http::upstream::{Call, Failure, TargetResponse, Upstream};
use crate::limit::overload::Overload;
use crate::pipeline::http::Pipeline;
use crate::plugin::world::tasks::Tasks;
use crate::plugin::{Entry, Registry, World};
use crate::reason::DecidingSetting;
use crate::record::{ExchangeRecord, Recorder, SessionRecord};
use crate::snapshot::Snapshot;
use crate::snapshot::compile::Compiler;
pub use streams::{Ended, Streaming};

/// A gateway in front of a target that is a closure.
pub struct Trial {
    pipeline: Pipeline<Answers>,
    pub(crate) snapshot: Snapshot,
    records: Arc<Records>,
    client: Arc<Client>,
    detached: Arc<Mutex<Vec<Fork>>>,
    may_panic: bool,
}

/// What a target was asked.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// The target's `host:port`.
    pub authority: String,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The header fields, `host` among them.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl ReceivedRequest {
    /// The one value of a header field; empty where there is none.
    pub fn field(&self, name: &str) -> &str {
        text(&self.headers, name)
    }
}

/// What a client got.
#[derive(Debug, Clone)]
pub struct Got {
    /// The status, as a number.
    pub status: u16,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body, up to where it was cut off.
    pub body: Bytes,
    /// The trailers.
    pub trailers: Option<HeaderMap>,
    /// What cut it off.
    pub cut: Option<Cause>,
}

impl Got {
    /// The first value of a header field; empty where there is none.
    pub fn field(&self, name: &str) -> &str {
        text(&self.headers, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// What was recorded of an exchange.
#[derive(Debug, Clone)]
pub struct Record {
    /// The status.
    pub status: u16,
    /// The proxy that matched.
    pub proxy: Option<String>,
    /// The `host:port` of the target that was asked last.
    pub target: Option<String>,
    /// The id of the plugin config whose hook answered.
    pub plugin_config: Option<String>,
    /// The setting that decided.
    pub decided: Option<DecidingSetting>,
    /// Why the gateway answered itself.
    pub cause: Option<Cause>,
    /// The same as a word, a plugin's own where it gave one.
    pub reason: Option<&'static str>,
    /// Whether it counts as an error.
    pub is_error: bool,
    /// Who the caller was recognised as.
    pub caller: Option<Arc<str>>,
    /// Fields that plugins added.
    pub fields: Vec<(&'static str, Field)>,
    /// Attempts made.
    pub attempts: u32,
    /// How a gRPC call ended.
    pub grpc_status: Option<u16>,
    /// What failed, in words.
    pub failure: Option<String>,
}

type Answering = dyn Fn(&ReceivedRequest) -> Response<Body> + Send + Sync;

struct Answers {
    answer: Box<Answering>,
    asked: Mutex<Vec<ReceivedRequest>>,
}

#[derive(Default)]
struct Records {
    exchanges: Mutex<Vec<Record>>,
    has_panicked: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trial {
    /// One proxy for every path, with this plugin; the target answers 200 and says `ok`.
    pub fn new(entries: &[Entry], plugin_name: &str, config: Value) -> Self {
        Self::of_plugins(entries, &[(plugin_name, config)])
    }

    /// One proxy for every path, with these plugins.
    pub fn of_plugins(entries: &[Entry], plugins: &[(&str, Value)]) -> Self {
        let plugins: Vec<Value> = plugins
            .iter()
            .enumerate()
            .map(|(n, (name, config))| {
                json!({ "id": format!("p{n}"), "plugin_name": name, "config": config, "proxy_id": "a" })
            })
            .collect();
        let spec = json!({
            "proxies": [{
                "id": "a", "listen_path": "/", "strip_listen_path": false,
                "backend_host": "target.test", "backend_port": 80, "backend_scheme": "http",
            }],
            "plugin_configs": plugins,
        });
        Self::of_spec(entries, &spec.to_string(), &World::default())
    }

    /// What a whole configuration, in YAML or JSON, makes of requests.
    pub fn of_spec(entries: &[Entry], spec: &str, world: &World) -> Self {
        Self::try_of_spec(entries, spec, world).unwrap_or_else(|problems| panic!("{problems}\n{spec}"))
    }

    /// As [`Self::of_spec`].
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn try_of_spec(entries: &[Entry], spec: &str, world: &World) -> Result<Self, Problems> {
        let registry = Registry::new(entries).with_world(world.clone());
        let origin = Origin { name: "test".into(), folder: PathBuf::from(Path::new(".")), format: None };
        let model = resolve::load(spec, &origin, &NoReferences, &registry, |_| Problems::default())?;
        Ok(Self::of_model(&model, registry))
    }

    /// What a resolved configuration makes of requests.
    pub fn of_model(model: &Model, registry: Registry) -> Self {
        let settings = model.settings.clone();
        let overload = Overload::new(&settings.limits);
        overload.collected().count_on_this_thread();
        let empty = Snapshot::empty(settings);
        let snapshot = Compiler::new(registry).compile(model, &empty, Instant::now()).snapshot;
        let records = Arc::<Records>::default();
        let answers = Answers { answer: Box::new(|_| Response::new("ok".into())), asked: Mutex::default() };
        let address = ([192, 0, 2, 1], 4000).into();
        let client = Arc::new(Client::new(address, ([127, 0, 0, 1], 8000).into(), false, None));
        let detached = Arc::<Mutex<Vec<Fork>>>::default();
        let aside = detached.clone();
        let pipeline = Pipeline::new(answers, records.clone(), overload)
            .with_aside(Box::new(move |fork| locked(&aside).push(*fork)));
        Self { pipeline, snapshot, records, client, detached, may_panic: false }
    }

    /// The compiled configuration.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The problems of settings that a plugin must refuse.
    pub fn refused(entries: &[Entry], plugin_name: &str, config: &Value) -> Problems {
        let registry = Registry::new(entries);
        match registry.build(plugin_name, None, config) {
            Ok(_) => panic!("`{plugin_name}` takes {config}"),
            Err(problems) => problems,
        }
    }

    /// Has the target answer so.
    #[must_use]
    pub fn answering(
        mut self,
        answer: impl Fn(&ReceivedRequest) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        self.pipeline.upstream_mut().answer = Box::new(answer);
        self
    }

    /// Has requests come from this address, over TLS where facts of it are given.
    #[must_use]
    pub fn from_client(mut self, address: std::net::IpAddr, tls: Option<ClientTls>) -> Self {
        self.client =
            Arc::new(Client::new((address, 4000).into(), ([127, 0, 0, 1], 8000).into(), false, tls));
        self
    }

    /// Has requests come from this client.
    #[must_use]
    pub fn of_client(mut self, client: Client) -> Self {
        self.client = Arc::new(client);
        self
    }

    /// Has a request whose plugin panics be answered as a gateway answers it, instead of ending the test.
    #[must_use]
    pub fn with_panics(mut self) -> Self {
        self.may_panic = true;
        self
    }

    /// Has requests come from a proxy whose forwarding headers are believed.
    #[must_use]
    pub fn from_trusted_proxy(mut self) -> Self {
        let Client { peer, local, .. } = *self.client;
        self.client = Arc::new(Client::new(peer, local, true, None));
        self
    }

    /// Sends a request; its target may be a path only. What it has detached is carried out before this ends.
    pub async fn send(&self, request: Request<Body>) -> Got {
        let got = self.send_alone(request).await;
        self.carry_on().await;
        got
    }

    /// Carries out what was detached so far.
    pub async fn carry_on(&self) {
        let detached = std::mem::take(&mut *locked(&self.detached));
        for fork in detached {
            self.pipeline.carry_on(&self.snapshot, Box::new(fork)).await;
        }
    }

    /// Sends a request; what it has detached waits for [`Self::carry_on`].
    pub async fn send_alone(&self, request: Request<Body>) -> Got {
        self.try_send(request).await.unwrap_or_else(|| panic!("no answer was sent"))
    }

    /// As [`Self::send_alone`]; `None` where the exchange ended without an answer, as one that switches protocols.
    ///
    /// # Panics
    /// Where a plugin panics, except [`Self::with_panics`]: a gateway answers 500 then, which a test that looks at something else would
    /// not notice.
    pub async fn try_send(&self, mut request: Request<Body>) -> Option<Got> {
        if request.uri().authority().is_none() && !request.headers().contains_key("host") {
            request.headers_mut().insert("host", HeaderValue::from_static("client.test"));
        }
        let mut screen = Screen(None);
        let exchange = Box::new(Exchange::new(request, self.client.clone()));
        let delivery = self.pipeline.serve(&self.snapshot, exchange, &mut screen).await;
        assert!(self.may_panic || !self.records.has_panicked.load(Ordering::Relaxed), "a plugin panicked");
        let mut got = screen.0?;
        got.cut = delivery.cut;
        Some(got)
    }

    /// Sends a GET with these header fields.
    pub async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Got {
        self.request("GET", path, fields, Bytes::new()).await
    }

    /// Sends a request with these header fields and this body.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Got {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::full(body)).unwrap_or_else(|error| panic!("{error}"));
        self.send(request).await
    }

    /// Has the plugin of this name do something, as the admin API does.
    ///
    /// # Errors
    /// What the plugin says.
    pub fn act(&self, plugin_name: &str, action: &str, input: &Value) -> Result<Value, Problems> {
        match self.snapshot.running(plugin_name).as_slice() {
            [(_, plugin)] => plugin.act(action, input),
            several => panic!("there are {} plugin configs of `{plugin_name}`", several.len()),
        }
    }

    /// Starts the tasks of plugins, as a publication does; they end when the trial is dropped.
    pub fn start(&self, tasks: &dyn Tasks) {
        for (_, route) in self.snapshot.by_id.iter() {
            route.chain.members().for_each(|(_, plugin)| plugin.start(tasks));
        }
    }

    /// The ids of proxies that are closed because something about them can't be used.
    pub fn closed(&self) -> Vec<String> {
        self.snapshot.quarantined.iter().map(|(id, _)| id.to_string()).collect()
    }

    /// Why they are closed, one problem each.
    pub fn why_closed(&self) -> Vec<String> {
        let routes = self.snapshot.quarantined.iter();
        let problems = routes.flat_map(|(_, route)| route.quarantine.iter().flat_map(|problems| &problems.0));
        problems.map(ToString::to_string).collect()
    }

    /// What the target was asked so far.
    pub fn asked(&self) -> Vec<ReceivedRequest> {
        locked(&self.pipeline.upstream().asked).clone()
    }

    /// Forgets what the target was asked and what was recorded so far.
    pub fn forget(&self) {
        locked(&self.pipeline.upstream().asked).clear();
        locked(&self.records.exchanges).clear();
    }

    /// What was recorded so far.
    pub fn records(&self) -> Vec<Record> {
        locked(&self.records.exchanges).clone()
    }
}

impl Upstream for Answers {
    async fn send<D: Downstream>(
        &self,
        call: &Call<'_>,
        body: &mut Body,
        _: &mut D,
    ) -> Result<TargetResponse, Failure> {
        let bytes = match body.collect(u64::MAX).await {
            Ok((bytes, _)) => bytes,
            Err(BodyError::Refused(reply)) => return Err(Failure::refused(reply)),
            Err(BodyError::TooLarge { .. }) => return Err(Failure::sent(Cause::BodyTooLarge)),
            Err(BodyError::Framing(_)) => return Err(Failure::sent(Cause::BadRequest)),
            Err(_) => return Err(Failure::sent(Cause::ClientGone)),
        };
        let mut headers = call.headers.clone();
        headers.insert("host", call.host.clone());
        headers.extend(call.forwarding.fields().map(|(name, value)| (name.clone(), value.clone())));
        let asked = ReceivedRequest {
            authority: call.target.authority().to_string(),
            method: call.method.clone(),
            path: call.path.to_owned(),
            headers,
            body: bytes,
        };
        let response = (self.answer)(&asked);
        locked(&self.asked).push(asked);
        Ok(TargetResponse { response, first_byte: Duration::from_millis(1), reused: false, tunnel: None })
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
        let (head, mut body) = response.into_parts();
        let (mut bytes, mut trailers, mut cut) = (Vec::new(), None, None);
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => bytes.extend_from_slice(&data),
                Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
                Err(error) => {
                    cut = Some(match error {
                        BodyError::Refused(reply) => reply.cause,
                        _ => Cause::UpstreamClosed,
                    });
                    break;
                }
            }
        }
        let grpc_status = trailers.as_ref().and_then(grpc_status);
        let delivery = Delivery { bytes: bytes.len() as u64, cut, grpc_status, ..Delivery::default() };
        let status = head.status.as_u16();
        self.0 = Some(Got { status, headers: head.headers, body: bytes.into(), trailers, cut });
        delivery
    }
}

impl Recorder for Records {
    fn began(&self) {}

    fn panicked(&self) {
        self.has_panicked.store(true, Ordering::Relaxed);
    }

    fn exchange(&self, record: &ExchangeRecord<'_>) {
        locked(&self.exchanges).push(Record {
            status: record.status,
            proxy: record.route.map(|route| route.proxy.id.to_string()),
            target: record.target.map(|target| target.authority().to_string()),
            plugin_config: record.plugin_config.map(str::to_owned),
            decided: record.decided,
            cause: record.cause,
            reason: record.reason,
            is_error: record.is_error,
            caller: record.exchange.identity.as_ref().map(|identity| identity.name.clone()),
            fields: record.exchange.fields().to_vec(),
            attempts: record.attempts,
            grpc_status: record.grpc_status,
            failure: record.failure.map(ToString::to_string),
        });
    }

    fn health(&self, _target: &Target, _change: HealthChange) {}

    fn session(&self, _record: &SessionRecord<'_>) {}
}
