//! Modules of Conduit's small interface: `on_request() -> i32` and `memory` are required, `on_response(i32) -> i32` is optional.
//! What they import is in `conduit/functions.rs`, under whatever namespace they name.
//!
//! Each call has an instance of its own, so that nothing is kept from one exchange to the next, nor between the two phases of one.
//! A result of `on_request` other than 0 ends the exchange with the response that the module has made, 500 where it made none. That
//! of `on_response` is ignored.

mod functions;

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::World;
use gateway_core::plugin::world::meters::Counter;
use http::{HeaderMap, Response, StatusCode};
use wasmtime::{InstancePre, Linker, Memory, Store, StoreLimits, StoreLimitsBuilder};

use super::engine::{Compiled, Instances, MAX_TABLE, MAX_TABLES, clockwork, ticks};
use super::guest_error::GuestError;
use super::settings::Rules;
use super::{FAILURES, fit_length};
use crate::on_error::OnError;

/// What a module of this interface runs with.
pub(super) struct Conduit {
    instance: InstancePre<Guest>,
    rules: Arc<Rules>,
    owner: Arc<str>,
    failed: Counter,
    sees_responses: bool,
    _module: Arc<Compiled>,
}

/// Which function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Request,
    Response,
}

/// What one call of a module sees and makes.
struct Guest {
    phase: Phase,
    limits: StoreLimits,
    memory: Option<Memory>,
    rules: Arc<Rules>,
    owner: Arc<str>,
    method: String,
    path: String,
    query: String,
    client: String,
    request_id: Vec<u8>,
    /// Fields of the request, or of the response; the function may change them.
    fields: HeaderMap,
    is_changed: bool,
    /// Status of the response that there is, or is made.
    status: StatusCode,
    /// The response that the module makes.
    own: HeaderMap,
    body: Option<Bytes>,
}

impl Conduit {
    /// Looks at what a module imports and exports, and starts an instance to see that it can.
    ///
    /// # Errors
    /// What it needs that the gateway does not have.
    pub(super) fn new(compiled: Arc<Compiled>, rules: Rules, world: &World) -> Result<Self, Problems> {
        let at = |message: String| Problems::one("config.path", message);
        let clockwork = clockwork(Instances::OnePerCall).map_err(|error| at(error.to_string()))?;
        let mut linker = Linker::new(&clockwork.engine);
        functions::link(&mut linker, &compiled.module).map_err(|error| at(format!("{error:#}")))?;
        let instance = linker.instantiate_pre(&compiled.module).map_err(|error| at(format!("{error:#}")))?;
        let owner: Arc<str> = world.owner().map_or("", |owner| owner.config.as_str()).into();
        let failed = world.meters().counter(FAILURES, &["plugin_config"], &[&owner]);
        let sees_responses = compiled.module.get_export("on_response").is_some();
        let conduit =
            Self { instance, rules: Arc::new(rules), owner, failed, sees_responses, _module: compiled };
        conduit.check().map_err(|error| at(format!("the module does not start: {error}")))?;
        Ok(conduit)
    }

    /// Whether it looks at responses.
    pub(super) fn sees_responses(&self) -> bool {
        self.sees_responses
    }

    fn guest(&self, phase: Phase, fields: HeaderMap) -> Guest {
        let limits = StoreLimitsBuilder::new()
            .memory_size(self.rules.max_memory)
            .table_elements(MAX_TABLE)
            .instances(1)
            .tables(MAX_TABLES as usize)
            .memories(1)
            .build();
        Guest {
            phase,
            limits,
            memory: None,
            rules: self.rules.clone(),
            owner: self.owner.clone(),
            method: String::new(),
            path: String::new(),
            query: String::new(),
            client: String::new(),
            request_id: Vec::new(),
            fields,
            is_changed: false,
            status: StatusCode::INTERNAL_SERVER_ERROR,
            own: HeaderMap::new(),
            body: None,
        }
    }

    fn check(&self) -> Result<(), GuestError> {
        let guest = self.guest(Phase::Request, HeaderMap::new());
        let (mut store, instance) = self.start(guest)?;
        instance.get_typed_func::<(), i32>(&mut store, "on_request")?;
        if self.sees_responses {
            instance.get_typed_func::<i32, i32>(&mut store, "on_response")?;
        }
        Ok(())
    }

    fn start(&self, guest: Guest) -> Result<(Store<Guest>, wasmtime::Instance), GuestError> {
        let clockwork = clockwork(Instances::OnePerCall)?;
        let mut store = Store::new(&clockwork.engine, guest);
        store.limiter(|guest| &mut guest.limits);
        store.set_epoch_deadline(ticks(self.rules.timeout));
        let _running = clockwork.begin()?;
        let instance = self.instance.instantiate(&mut store)?;
        store.data_mut().memory = instance.get_memory(&mut store, "memory");
        Ok((store, instance))
    }

    /// Calls the function of a phase; its result, and what it has made.
    fn run(&self, guest: Guest) -> Result<(i32, Guest), GuestError> {
        let phase = guest.phase;
        let (mut store, instance) = self.start(guest)?;
        let _running = clockwork(Instances::OnePerCall)?.begin()?;
        let result = match phase {
            Phase::Request => {
                let function = instance.get_typed_func::<(), i32>(&mut store, "on_request");
                function.and_then(|function| function.call(&mut store, ()))
            }
            Phase::Response => {
                let status = i32::from(store.data().status.as_u16());
                let function = instance.get_typed_func::<i32, i32>(&mut store, "on_response");
                function.and_then(|function| function.call(&mut store, status))
            }
        };
        Ok((result?, store.into_data()))
    }

    /// What becomes of an exchange whose module failed.
    fn failed(&self, error: &GuestError) -> Option<Reply> {
        self.failed.add(1);
        tracing::warn!(plugin_config = &*self.owner, "the module failed: {error}");
        match self.rules.on_error {
            OnError::Open => None,
            OnError::Closed => Some(Reply::new(Cause::Internal).reason("wasm_failed")),
        }
    }

    /// Runs `on_request`; the reply, where the exchange ends here.
    pub(super) fn on_request(&self, exchange: &mut Exchange) -> Option<Reply> {
        let mut guest = self.guest(Phase::Request, exchange.request.headers.clone());
        // Normalised: it is this path that is routed and forwarded.
        let uri = &exchange.request.uri;
        guest.path = uri.path().to_owned();
        guest.query = uri.query().unwrap_or_default().to_owned();
        guest.method = exchange.method().as_str().to_owned();
        guest.client = exchange.client_address.to_string();
        guest.request_id = exchange.id().as_bytes().to_vec();
        match self.run(guest) {
            Ok((0, guest)) => {
                if guest.is_changed {
                    exchange.replace_headers(guest.fields);
                }
                None
            }
            Ok((_, guest)) => {
                let reply = Reply::fixed(guest.status, guest.body.unwrap_or_default()).reason("wasm");
                Some(Reply { headers: guest.own, ..reply })
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Runs `on_response`; the reply, where the module failed and nothing may pass without it.
    pub(super) fn on_response(&self, response: &mut Response<Body>) -> Option<Reply> {
        let mut guest = self.guest(Phase::Response, response.headers().clone());
        guest.status = response.status();
        match self.run(guest) {
            Ok((_, guest)) => {
                if guest.is_changed {
                    *response.headers_mut() = guest.fields;
                }
                if let Some(body) = guest.body {
                    // They are about the bytes that there were.
                    let of_bytes =
                        ["content-length", "content-encoding", "content-md5", "content-range", "digest"];
                    for name in
                        of_bytes.into_iter().chain(["content-digest", "repr-digest", "etag", "last-modified"])
                    {
                        response.headers_mut().remove(name);
                    }
                    let body = Body::full(body);
                    fit_length(response.headers_mut(), &body);
                    *response.body_mut() = body;
                }
                None
            }
            Err(error) => self.failed(&error),
        }
    }
}
