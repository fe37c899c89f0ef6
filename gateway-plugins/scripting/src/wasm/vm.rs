//! One instance of a module with its contexts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use wasmtime::{Engine, Instance, InstancePre, Linker, Module, Store, StoreLimitsBuilder, TypedFunc};
use wasmtime::{WasmParams, WasmResults};

use super::engine::{Instances, MAX_TABLE, MAX_TABLES, clockwork, ticks};
use super::grpc::{GrpcEnd, GrpcEvent};
use super::guest_error::GuestError;
use super::host::{Answered, Call, Context, Direction, Directions, Host, Made, Parts, ROOT};
use super::{abi, wasi};

/// A module that is ready to be started any number of times.
pub(super) struct Template {
    engine: Engine,
    instance: InstancePre<Host>,
}

macro_rules! exports {
    ($($field:ident: $name:literal ($($parameter:ty),*) -> $result:ty;)+) => {
        /// What a module may have.
        pub(super) struct Exports {
            $(pub(super) $field: Option<TypedFunc<($($parameter,)*), $result>>,)+
        }

        impl Exports {
            fn of(instance: &Instance, store: &mut Store<Host>) -> Result<Self, GuestError> {
                Ok(Self {
                    $($field: match instance.get_func(&mut *store, $name) {
                        None => None,
                        Some(function) => match function.typed(&*store) {
                            Ok(typed) => Some(typed),
                            Err(_) => {
                                return Err(GuestError::Signature($name));
                            }
                        },
                    },)+
                })
            }
        }
    };
}

exports! {
    on_context_create: "proxy_on_context_create" (u32, u32) -> ();
    on_vm_start: "proxy_on_vm_start" (u32, u32) -> u32;
    on_configure: "proxy_on_configure" (u32, u32) -> u32;
    on_request_headers: "proxy_on_request_headers" (u32, u32, u32) -> u32;
    on_request_body: "proxy_on_request_body" (u32, u32, u32) -> u32;
    on_request_trailers: "proxy_on_request_trailers" (u32, u32) -> u32;
    on_response_headers: "proxy_on_response_headers" (u32, u32, u32) -> u32;
    on_response_body: "proxy_on_response_body" (u32, u32, u32) -> u32;
    on_response_trailers: "proxy_on_response_trailers" (u32, u32) -> u32;
    on_new_connection: "proxy_on_new_connection" (u32) -> u32;
    on_downstream_data: "proxy_on_downstream_data" (u32, u32, u32) -> u32;
    on_upstream_data: "proxy_on_upstream_data" (u32, u32, u32) -> u32;
    on_downstream_close: "proxy_on_downstream_connection_close" (u32, u32) -> ();
    on_upstream_close: "proxy_on_upstream_connection_close" (u32, u32) -> ();
    on_done: "proxy_on_done" (u32) -> u32;
    on_log: "proxy_on_log" (u32) -> ();
    on_delete: "proxy_on_delete" (u32) -> ();
    on_tick: "proxy_on_tick" (u32) -> ();
    on_queue_ready: "proxy_on_queue_ready" (u32, u32) -> ();
    on_http_call_response: "proxy_on_http_call_response" (u32, u32, u32, u32, u32) -> ();
    on_grpc_head: "proxy_on_grpc_receive_initial_metadata" (u32, u32, u32) -> ();
    on_grpc_receive: "proxy_on_grpc_receive" (u32, u32, u32) -> ();
    on_grpc_trailers: "proxy_on_grpc_receive_trailing_metadata" (u32, u32, u32) -> ();
    on_grpc_close: "proxy_on_grpc_close" (u32, u32, u32) -> ();
}

impl Template {
    /// Looks at what a module imports and exports.
    ///
    /// # Errors
    /// What it needs that the gateway does not have, or lacks that the gateway needs.
    pub(super) fn new(module: &Module, parts: &Arc<Parts>) -> Result<Self, GuestError> {
        let engine = &clockwork(Instances::Kept)?.engine;
        let has = |name: &str| module.get_export(name).is_some();
        if !["proxy_abi_version_0_2_1", "proxy_abi_version_0_2_0"].into_iter().any(has) {
            return Err(GuestError::AbiVersion);
        }
        if !has("memory") {
            return Err(GuestError::NoMemory);
        }
        let mut linker = Linker::new(engine);
        let mut scratch = Store::new(engine, Host::new(parts.clone(), StoreLimitsBuilder::new().build()));
        let linked = abi::linker(&mut linker)
            .and_then(|()| wasi::link(&mut linker))
            .and_then(|()| wasi::link_rest(&mut linker, &mut scratch, module));
        linked?;
        let instance = linker.instantiate_pre(module)?;
        Ok(Self { engine: engine.clone(), instance })
    }
}

impl Host {
    fn new(parts: Arc<Parts>, limits: wasmtime::StoreLimits) -> Self {
        Self {
            parts,
            limits,
            memory: None,
            allocate: None,
            contexts: std::collections::HashMap::default(),
            effective: ROOT,
            calls: Vec::new(),
            next_call: 0,
            streams: std::collections::HashMap::default(),
            opening: Vec::new(),
            answer: None,
            tick: None,
            listens: Vec::new(),
            is_root_changed: false,
            unfinished: Default::default(),
        }
    }
}

/// An instance.
pub(super) struct Vm {
    /// No other instance of the process has the same.
    pub(super) generation: u64,
    store: Store<Host>,
    pub(super) exports: Exports,
    next_context: u32,
    /// Has whoever tends the root look at it.
    pub(super) root: Arc<Notify>,
    pub(super) is_root_tended: bool,
}

impl Drop for Vm {
    fn drop(&mut self) {
        wasi::flush(self.host());
        self.root.notify_one();
    }
}

impl Vm {
    /// Starts an instance and configures it.
    ///
    /// # Errors
    /// What keeps it from starting.
    pub(super) fn start(template: &Template, parts: &Arc<Parts>) -> Result<Self, GuestError> {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        let rules = &parts.rules;
        let limits = StoreLimitsBuilder::new()
            .memory_size(rules.max_memory)
            .table_elements(MAX_TABLE)
            .instances(1)
            .tables(MAX_TABLES as usize)
            .memories(1)
            .build();
        let mut store = Store::new(&template.engine, Host::new(parts.clone(), limits));
        store.limiter(|host| &mut host.limits);
        store.set_epoch_deadline(ticks(rules.start_timeout));
        let _running = clockwork(Instances::Kept)?.begin()?;
        let instance = template.instance.instantiate(&mut store)?;
        store.data_mut().memory = instance.get_memory(&mut store, "memory");
        let allocate = ["proxy_on_memory_allocate", "malloc"]
            .into_iter()
            .find_map(|name| instance.get_typed_func::<u32, u32>(&mut store, name).ok());
        store.data_mut().allocate = allocate;
        store.data_mut().contexts.insert(ROOT, Context::default());
        let begin = |store: &mut Store<Host>, name: &str| match instance
            .get_typed_func::<(), ()>(&mut *store, name)
        {
            Ok(function) => function.call(&mut *store, ()).map(|()| true),
            Err(_) => Ok(false),
        };
        if begin(&mut store, "_initialize")? {
            if let Ok(main) = instance.get_typed_func::<(u32, u32), u32>(&mut store, "main") {
                main.call(&mut store, (0, 0))?;
            }
        } else {
            begin(&mut store, "_start")?;
        }
        let exports = Exports::of(&instance, &mut store)?;
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let root = Arc::default();
        let mut vm = Self { generation, store, exports, next_context: ROOT, root, is_root_tended: false };
        vm.configure(rules.vm_settings.len(), rules.settings.len())?;
        Ok(vm)
    }

    fn configure(&mut self, vm_settings: usize, settings: usize) -> Result<(), GuestError> {
        self.run(|all| all.on_context_create.clone(), ROOT, (ROOT, 0))?;
        if self.run(|all| all.on_vm_start.clone(), ROOT, (ROOT, size(vm_settings)))? == Some(0) {
            return Err(GuestError::Refused("vm_settings"));
        }
        if self.run(|all| all.on_configure.clone(), ROOT, (ROOT, size(settings)))? == Some(0) {
            return Err(GuestError::Refused("settings"));
        }
        Ok(())
    }

    /// Calls a function of the guest, for this context; `None` where the module has no such function.
    ///
    /// # Errors
    /// How it failed.
    pub(super) fn run<P: WasmParams, R: WasmResults>(
        &mut self,
        function: impl FnOnce(&Exports) -> Option<TypedFunc<P, R>>,
        context: u32,
        parameters: P,
    ) -> Result<Option<R>, GuestError> {
        let Some(function) = function(&self.exports) else { return Ok(None) };
        let timeout = self.store.data().parts.rules.timeout;
        self.store.data_mut().effective = context;
        self.store.set_epoch_deadline(ticks(timeout));
        let _running = clockwork(Instances::Kept)?.begin()?;
        Ok(Some(function.call(&mut self.store, parameters)?))
    }

    pub(super) fn host(&mut self) -> &mut Host {
        self.store.data_mut()
    }

    /// Begins an exchange's context.
    ///
    /// # Errors
    /// How the guest failed.
    pub(super) fn begin(&mut self, context: Context) -> Result<u32, GuestError> {
        self.next_context = self.next_context.wrapping_add(1).max(ROOT + 1);
        let id = self.next_context;
        self.host().contexts.insert(id, context);
        if let Err(error) = self.run(|all| all.on_context_create.clone(), id, (id, ROOT)) {
            self.host().contexts.remove(&id);
            return Err(error);
        }
        Ok(id)
    }

    /// Ends a context; the guest may still look at it.
    ///
    /// # Errors
    /// How the guest failed; the context is gone all the same.
    pub(super) fn end(&mut self, id: u32) -> Result<(), GuestError> {
        let Some(context) = self.host().contexts.get_mut(&id) else { return Ok(()) };
        if let Some(error) = context.failure.take() {
            self.forget(id);
            return Err(error);
        }
        let ended = self
            .run(|all| all.on_done.clone(), id, id_of(id))
            .and_then(|_| self.run(|all| all.on_log.clone(), id, id_of(id)))
            .and_then(|_| self.run(|all| all.on_delete.clone(), id, id_of(id)));
        self.forget(id);
        ended.map(drop)
    }

    /// Forgets a context without a word to the guest.
    pub(super) fn forget(&mut self, id: u32) {
        let host = self.host();
        host.calls.retain(|call| call.owner != id);
        let Some(context) = host.contexts.remove(&id) else { return };
        context.calls.iter().for_each(|call| call.cancel.abort());
        context.streams.into_iter().for_each(|stream| host.end_stream(stream));
    }

    /// Tells the guest of a message's head.
    pub(super) fn headers(
        &mut self,
        way: Direction,
        id: u32,
        is_end: bool,
    ) -> Result<Option<u32>, GuestError> {
        let Some(context) = self.host().contexts.get_mut(&id) else { return Ok(None) };
        let count = context.side(way).headers.len() + 1;
        let parameters = (id, u32::try_from(count).unwrap_or(u32::MAX), u32::from(is_end));
        match way {
            Direction::Request => self.run(|all| all.on_request_headers.clone(), id, parameters),
            Direction::Response => self.run(|all| all.on_response_headers.clone(), id, parameters),
        }
    }

    /// Tells the guest of what there is of a body.
    pub(super) fn body(&mut self, way: Direction, id: u32, is_end: bool) -> Result<Option<u32>, GuestError> {
        let Some(context) = self.host().contexts.get_mut(&id) else { return Ok(None) };
        let size = context.side(way).body.as_ref().map_or(0, bytes::BytesMut::len);
        let parameters = (id, u32::try_from(size).unwrap_or(u32::MAX), u32::from(is_end));
        match way {
            Direction::Request => self.run(|all| all.on_request_body.clone(), id, parameters),
            Direction::Response => self.run(|all| all.on_response_body.clone(), id, parameters),
        }
    }

    /// Tells the guest of trailers.
    pub(super) fn trailers(&mut self, way: Direction, id: u32) -> Result<Option<u32>, GuestError> {
        let Some(context) = self.host().contexts.get_mut(&id) else { return Ok(None) };
        let count = context.side(way).trailers.as_ref().map_or(0, http::HeaderMap::len);
        let parameters = (id, u32::try_from(count).unwrap_or(u32::MAX));
        match way {
            Direction::Request => self.run(|all| all.on_request_trailers.clone(), id, parameters),
            Direction::Response => self.run(|all| all.on_response_trailers.clone(), id, parameters),
        }
    }

    /// Tells the guest of what there is of a stream's direction: `Direction::Request` is what the client sends.
    pub(super) fn stream_data(
        &mut self,
        way: Direction,
        id: u32,
        is_end: bool,
    ) -> Result<Option<u32>, GuestError> {
        let Some(context) = self.host().contexts.get_mut(&id) else { return Ok(None) };
        let size = context.side(way).body.as_ref().map_or(0, bytes::BytesMut::len);
        let parameters = (id, u32::try_from(size).unwrap_or(u32::MAX), u32::from(is_end));
        match way {
            Direction::Request => self.run(|all| all.on_downstream_data.clone(), id, parameters),
            Direction::Response => self.run(|all| all.on_upstream_data.clone(), id, parameters),
        }
    }

    /// Tells the guest that both connections of a stream are closed, first of the one whose peer has closed it.
    ///
    /// # Errors
    /// How the guest failed.
    pub(super) fn stream_closed(&mut self, id: u32, client: bool, target: bool) -> Result<(), GuestError> {
        if !self.host().contexts.contains_key(&id) {
            return Ok(());
        }
        // The numbers of Proxy-Wasm for who closed a connection.
        let peer = |is_remote: bool| if is_remote { 2_u32 } else { 1 };
        let down = |vm: &mut Self| vm.run(|all| all.on_downstream_close.clone(), id, (id, peer(client)));
        let up = |vm: &mut Self| vm.run(|all| all.on_upstream_close.clone(), id, (id, peer(target)));
        match target && !client {
            true => up(self).and_then(|_| down(self)).map(drop),
            false => down(self).and_then(|_| up(self)).map(drop),
        }
    }

    /// Which bytes of a stream the guest looks at.
    pub(super) fn sees_bytes(&self) -> Directions {
        Directions {
            up: self.exports.on_downstream_data.is_some(),
            down: self.exports.on_upstream_data.is_some(),
        }
    }

    /// Whether the guest has functions for streams.
    pub(super) fn sees_streams(&self) -> bool {
        let all = &self.exports;
        let ends = [all.on_downstream_close.is_some(), all.on_upstream_close.is_some()];
        let Directions { up, down } = self.sees_bytes();
        all.on_new_connection.is_some() || up || down || ends.contains(&true)
    }

    /// Whether the guest has functions for HTTP.
    pub(super) fn sees_exchanges(&self) -> bool {
        let all = &self.exports;
        let heads = all.on_request_headers.is_some() || all.on_response_headers.is_some();
        heads || self.sees_bodies(Direction::Request) || self.sees_bodies(Direction::Response)
    }

    /// Whether the guest looks at bodies that go this way.
    pub(super) fn sees_bodies(&self, way: Direction) -> bool {
        match way {
            Direction::Request => {
                self.exports.on_request_body.is_some() || self.exports.on_request_trailers.is_some()
            }
            Direction::Response => {
                self.exports.on_response_body.is_some() || self.exports.on_response_trailers.is_some()
            }
        }
    }

    /// Tells the guest what a call came to, unless it has cancelled it.
    ///
    /// # Errors
    /// How the guest failed.
    pub(super) fn answered(&mut self, made: Made) -> Result<(), GuestError> {
        let Made { id, owner, is_grpc, mut answer } = made;
        let Some(context) = self.host().contexts.get_mut(&owner) else { return Ok(()) };
        let Some(place) = context.calls.iter().position(|call| call.id == id) else { return Ok(()) };
        context.calls.swap_remove(place);
        let body = size(answer.body.len());
        let told = if is_grpc {
            let (status, has_message) = (answer.grpc_status, answer.status.take().is_some());
            self.host().answer = Some(answer);
            // Either the message or what became of it.
            match has_message && status == 0 {
                true => self.run(|all| all.on_grpc_receive.clone(), owner, (ROOT, id, body)),
                false => self.run(|all| all.on_grpc_close.clone(), owner, (ROOT, id, status)),
            }
        } else {
            let headers = size(answer.headers.len() + usize::from(answer.status.is_some()));
            let trailers = size(answer.trailers.len());
            self.host().answer = Some(answer);
            let parameters = (ROOT, id, headers, body, trailers);
            self.run(|all| all.on_http_call_response.clone(), owner, parameters)
        };
        self.host().answer = None;
        told.map(drop)
    }

    /// As [`Self::answered`], for a call beside the messages of an exchange, which hears of what the guest decides; what the guest
    /// calls then.
    ///
    /// # Errors
    /// How the guest failed. The exchange hears of it as well.
    pub(super) fn answered_beside(&mut self, made: Made) -> Result<Vec<Call>, GuestError> {
        let owner = made.owner;
        let told = self.answered(made);
        let host = self.host();
        let Some(context) = host.contexts.get_mut(&owner) else { return told.map(|()| Vec::new()) };
        if let Err(error) = &told {
            context.failure.get_or_insert_with(|| error.clone());
        }
        context.wake();
        told.map(|()| host.take_calls(owner))
    }

    /// Tells the guest of something that came on a gRPC stream; whether the guest listens any further.
    ///
    /// # Errors
    /// How the guest failed. The exchange or session that the stream belongs to hears of it as well.
    pub(super) fn grpc_event(&mut self, id: u32, event: GrpcEvent) -> Result<bool, GuestError> {
        let Some(owner) = self.host().streams.get(&id).map(|stream| stream.owner) else { return Ok(false) };
        let is_end = matches!(event, GrpcEvent::Closed(_));
        let answer = self.host().answer.insert(Answered::default());
        let told = match event {
            GrpcEvent::Head(status, headers) => {
                let count = size(headers.len() + usize::from(status.is_some()));
                (answer.status, answer.headers) = (status, headers);
                self.run(|all| all.on_grpc_head.clone(), owner, (ROOT, id, count))
            }
            GrpcEvent::Message(message) => {
                let length = size(message.len());
                answer.body = message;
                self.run(|all| all.on_grpc_receive.clone(), owner, (ROOT, id, length))
            }
            GrpcEvent::Trailers(trailers) => {
                let count = size(trailers.len());
                answer.trailers = trailers;
                self.run(|all| all.on_grpc_trailers.clone(), owner, (ROOT, id, count))
            }
            GrpcEvent::Closed(GrpcEnd { status, message }) => {
                (answer.grpc_status, answer.grpc_message) = (status, message);
                self.run(|all| all.on_grpc_close.clone(), owner, (ROOT, id, status))
            }
        };
        let host = self.host();
        host.answer = None;
        if is_end || told.is_err() {
            host.end_stream(id);
        }
        let listens = host.streams.contains_key(&id);
        if let Some(context) = host.contexts.get_mut(&owner).filter(|_| owner != ROOT) {
            if let Err(error) = &told {
                context.failure.get_or_insert_with(|| error.clone());
            }
            context.wake();
        }
        told.map(|_| listens)
    }

    /// Numbers of gRPC streams that are to be begun.
    pub(super) fn opening(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.host().opening)
    }

    /// Exchanges that it serves.
    pub(super) fn exchanges(&mut self) -> usize {
        self.host().contexts.len().saturating_sub(1)
    }

    /// Whether it has taken so much memory that the next exchange gets a new one.
    pub(super) fn is_full(&self) -> bool {
        let memory = self.store.data().memory;
        let used = memory.map_or(0, |memory| memory.data_size(&self.store));
        used > self.store.data().parts.rules.max_memory / 4 * 3
    }
}

/// A size or number, for the guest.
fn size(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn id_of(id: u32) -> (u32,) {
    (id,)
}
