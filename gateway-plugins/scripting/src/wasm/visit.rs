//! One exchange's visit to an instance, and what keeps the root of each instance going.

mod listener;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Buf as _;
use futures_util::future::{Abortable, BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use gateway_core::http::body::{Body, BodyError, GrpcPrefix};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::world::calls::CallError;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::per_worker::PerWorker;
use tokio::time::Instant;

use super::grpc::GrpcEnd;
use super::guest_error::GuestError;
use super::host::{Answered, Call, Context, Made, Parts, ROOT};
use super::pool::Pool;
use super::vm::{Template, Vm};
use crate::on_error::OnError;

/// Before an instance is started again that failed beside exchanges; doubles for as long as it does not start.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a plugin config runs with.
pub(super) struct Core {
    pub(super) template: Template,
    pub(super) parts: Arc<Parts>,
    pub(super) pools: PerWorker<Pool>,
    pub(super) failed: Counter,
    /// Kept, so that other plugin configs with the same module find it compiled.
    pub(super) _module: Arc<super::engine::Compiled>,
}

/// An exchange or byte stream with its context in an instance of this worker.
pub(super) struct GuestContext {
    pub(super) core: Arc<Core>,
    generation: u64,
    pub(super) id: u32,
    is_over: AtomicBool,
    /// It has had gRPC streams or calls beside its messages, of which it may hear at any time.
    listens: AtomicBool,
}

/// Why the guest is not asked any further.
pub(super) enum Stop {
    /// The exchange ends with this.
    Reply(Box<Reply>),
    /// The guest failed, and the exchange continues without it.
    Pass,
    /// The body has broken off.
    Body(BodyError),
}

impl Stop {
    /// The same, where what a plugin behind this one refused is a reply.
    pub(super) fn into_reply(self) -> Self {
        match self {
            Self::Body(BodyError::Refused(reply)) => Self::Reply(reply),
            other => other,
        }
    }
}

impl Core {
    /// Begins a visit.
    ///
    /// # Errors
    /// What becomes of the exchange that the guest failed for.
    pub(super) fn visit(self: &Arc<Self>, context: Context) -> Result<Arc<GuestContext>, Stop> {
        let begun = self.begin(context);
        begun.map_err(|error| self.failed(&error))
    }

    fn begin(self: &Arc<Self>, context: Context) -> Result<Arc<GuestContext>, GuestError> {
        let mut pool = self.pools.get_or(Pool::default).ok_or(GuestError::InUse)?;
        let (vm, is_new) = pool.current(&self.template, &self.parts)?;
        if is_new {
            self.tend(vm);
        }
        let generation = vm.generation;
        let begun = vm.begin(context);
        self.tend(vm);
        match begun {
            Ok(id) => Ok(Arc::new(GuestContext {
                core: self.clone(),
                generation,
                id,
                is_over: AtomicBool::new(false),
                listens: AtomicBool::new(false),
            })),
            Err(error) => {
                pool.retire(generation);
                Err(error)
            }
        }
    }

    /// Starts this worker's instance where it has none that takes exchanges; false when it does not start.
    pub(super) fn start_instance(self: &Arc<Self>) -> bool {
        let Some(mut pool) = self.pools.get_or(Pool::default) else { return false };
        match pool.current(&self.template, &self.parts) {
            Ok((vm, true)) => self.tend(vm),
            Ok((_, false)) => {}
            Err(error) => {
                self.failed(&error);
                return false;
            }
        }
        true
    }

    /// Counts and logs a failure; what becomes of its exchange.
    pub(super) fn failed(&self, error: &GuestError) -> Stop {
        self.failed.add(1);
        tracing::warn!(plugin_config = self.parts.owner, "the module failed: {error}");
        match self.parts.rules.on_error {
            OnError::Open => Stop::Pass,
            OnError::Closed => Stop::Reply(Box::new(Reply::new(Cause::Internal).reason("wasm_failed"))),
        }
    }

    /// Does something with an instance of this worker; `None` when it is gone. An instance that fails takes no more
    /// exchanges.
    pub(super) fn with<T>(
        self: &Arc<Self>,
        generation: u64,
        with: impl FnOnce(&mut Vm) -> Result<T, GuestError>,
    ) -> Option<Result<T, GuestError>> {
        let mut pool = self.pools.get_or(Pool::default)?;
        let vm = pool.find(generation)?;
        let done = with(vm);
        self.tend(vm);
        if done.is_err() {
            pool.retire(generation);
        }
        Some(done)
    }

    /// Begins the gRPC streams that the guest has opened, and sees to it that its root is called when it wants to be.
    fn tend(self: &Arc<Self>, vm: &mut Vm) {
        listener::begin(self, vm);
        if !std::mem::take(&mut vm.host().is_root_changed) {
            return;
        }
        if vm.is_root_tended {
            vm.root.notify_one();
        } else if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            vm.is_root_tended = true;
            // On this worker, whose instance it is.
            runtime.spawn(tend(Arc::downgrade(self), vm.generation, vm.root.clone()));
        }
    }

    /// The call, under way.
    pub(super) fn make(&self, call: Call) -> BoxFuture<'static, Made> {
        let callee = &self.parts.rules.servers[call.server];
        let (client, timeout) = (callee.calls.clone(), call.timeout.min(callee.timeout));
        Box::pin(async move {
            let Call { id, owner, is_grpc, request, cancelled, .. } = call;
            let asking = async {
                let (head, mut body) = client.send(request.map(Body::full)).await?.into_parts();
                let read = body.collect(u64::MAX).await;
                let (bytes, trailers) = read.map_err(|error| CallError {
                    cause: Cause::UpstreamClosed,
                    detail: Some(error.to_string()),
                })?;
                Ok::<_, CallError>((head, bytes, trailers.unwrap_or_default()))
            };
            let asking = Abortable::new(tokio::time::timeout(timeout, asking), cancelled);
            let answer = match asking.await {
                // The guest does not wait for it any more.
                Err(_) => Answered::default(),
                Ok(Ok(Ok((head, body, trailers)))) => Answered {
                    status: Some(head.status),
                    headers: head.headers,
                    body,
                    trailers,
                    ..Answered::default()
                },
                Ok(Ok(Err(error))) => {
                    tracing::debug!(%error, "a module's call failed");
                    Answered::default().ending(GrpcEnd::failed(&error))
                }
                Ok(Err(_)) => Answered::default().ending(GrpcEnd::late()),
            };
            let answer = if is_grpc { of_grpc(answer) } else { answer };
            Made { id, owner, is_grpc, answer }
        })
    }
}

impl Answered {
    fn ending(mut self, end: GrpcEnd) -> Self {
        (self.grpc_status, self.grpc_message) = (end.status, end.message);
        self
    }
}

/// The message and status of a gRPC answer.
fn of_grpc(mut answer: Answered) -> Answered {
    let Some(status) = answer.status else { return answer };
    let end = GrpcEnd::of(&answer.trailers).or_else(|| GrpcEnd::of(&answer.headers));
    let mut body = std::mem::take(&mut answer.body);
    let mut answer = answer.ending(end.unwrap_or_else(|| GrpcEnd::of_http(status)));
    if answer.grpc_status != 0 {
        return answer;
    }
    // One message, which nobody was asked to compress.
    match GrpcPrefix::read(&body, u64::MAX) {
        Ok(Some(prefix)) if !prefix.compressed && body.len() - GrpcPrefix::BYTES == prefix.length => {
            body.advance(GrpcPrefix::BYTES);
            answer.body = body;
        }
        _ => answer.grpc_status = 13,
    }
    answer
}

impl GuestContext {
    /// Does something with the instance.
    ///
    /// # Errors
    /// What becomes of the exchange that the guest failed for, or whose instance is gone.
    pub(super) fn with<T>(&self, with: impl FnOnce(&mut Vm) -> Result<T, GuestError>) -> Result<T, Stop> {
        if self.is_over() {
            return Err(Stop::Pass);
        }
        let done = self.core.with(self.generation, |vm| {
            let context = vm.host().contexts.get_mut(&self.id);
            match context.and_then(|context| context.failure.take()) {
                Some(error) => Err(error),
                None => with(vm),
            }
        });
        done.unwrap_or(Err(GuestError::Replaced)).map_err(|error| {
            self.give_up();
            self.core.failed(&error)
        })
    }

    /// Does something with the context.
    pub(super) fn context<T>(&self, with: impl FnOnce(&mut Context) -> T) -> Result<T, Stop> {
        let id = self.id;
        self.with(|vm| match vm.host().contexts.get_mut(&id) {
            Some(context) => Ok(with(context)),
            None => Err(GuestError::NoContext),
        })
    }

    /// Calls of this context that nobody has begun yet.
    pub(super) fn take_calls(&self) -> Result<Vec<Call>, Stop> {
        let id = self.id;
        self.with(|vm| {
            let host = vm.host();
            if host.contexts.get(&id).is_some_and(|context| !context.streams.is_empty()) {
                self.listens.store(true, Ordering::Relaxed);
            }
            Ok(host.take_calls(id))
        })
    }

    /// Makes calls beside the messages, which don't wait for them. They end with the exchange.
    pub(super) fn go_on(&self, mut calls: FuturesUnordered<BoxFuture<'static, Made>>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        self.listens.store(true, Ordering::Relaxed);
        let (core, generation) = (Arc::downgrade(&self.core), self.generation);
        // They begin before the message goes on: an exchange may end without a turn of the runtime.
        let first = calls.next().now_or_never().flatten();
        // On this worker, whose instance it is.
        runtime.spawn(async move {
            let mut made = first;
            loop {
                if made.is_none() {
                    made = calls.next().await;
                }
                let Some(made) = made.take() else { return };
                let Some(core) = core.upgrade() else { return };
                // What becomes of the exchange after a failure is decided where it goes on.
                let Some(Ok(further)) = core.with(generation, |vm| vm.answered_beside(made)) else { return };
                calls.extend(further.into_iter().map(|call| core.make(call)));
            }
        });
    }

    /// Whether gRPC streams or calls may have the guest decide something at any time.
    pub(super) fn listens(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    /// The exchange is over: the guest may look at it once more.
    pub(super) fn end(&self) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(Err(error)) = self.core.with(self.generation, |vm| vm.end(self.id)) {
            // Nothing is left to refuse.
            self.core.failed(&error);
        }
        self.sweep();
    }

    /// A byte stream is over, for this reason.
    pub(super) fn end_stream(&self, reason: &str) {
        let ended = self.context(|context| (context.request.is_over, context.response.is_over));
        if let Ok((client, target)) = ended {
            let client = client || reason == "client_reset";
            let target = target || reason == "target_reset";
            // Where it fails, that was counted, and nothing is left to refuse.
            drop(self.with(|vm| vm.stream_closed(self.id, client, target)));
        }
        self.end();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// After the guest has failed it: the context is not touched any more.
    fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(mut pool) = self.core.pools.get_or(Pool::default) {
            if let Some(vm) = pool.find(self.generation) {
                vm.forget(self.id);
            }
            pool.sweep();
        }
    }

    fn sweep(&self) {
        if let Some(mut pool) = self.core.pools.get_or(Pool::default) {
            pool.sweep();
        }
    }
}

impl Drop for GuestContext {
    fn drop(&mut self) {
        self.end();
    }
}

/// Calls the root of an instance when its timer, a queue or an answer says so, for as long as there is the instance.
async fn tend(core: Weak<Core>, generation: u64, changed: Arc<tokio::sync::Notify>) {
    let mut calls: FuturesUnordered<BoxFuture<'static, Made>> = FuturesUnordered::new();
    let mut next: Option<(Duration, Instant)> = None;
    loop {
        let Some(strong) = core.upgrade() else { return };
        let looked = strong.with(generation, |vm| {
            let host = vm.host();
            Ok((host.take_calls(ROOT), host.tick, host.listens.clone()))
        });
        let Some(Ok((own, tick, listens))) = looked else { return };
        calls.extend(own.into_iter().map(|call| strong.make(call)));
        if tick != next.map(|(period, _)| period) {
            next = tick.map(|period| (period, Instant::now() + period));
        }
        let queues: Vec<_> =
            listens.iter().filter_map(|id| Some((*id, strong.parts.queues.ready(*id)?))).collect();
        drop(strong);
        let mut ready: FuturesUnordered<_> =
            queues.iter().map(|(id, ready)| async move { (ready.notified().await, *id).1 }).collect();
        let due = next.map_or_else(Instant::now, |(_, due)| due);
        let event = tokio::select! {
            () = changed.notified() => Event::Changed,
            Some(made) = calls.next(), if !calls.is_empty() => Event::Made(Box::new(made)),
            Some(queue) = ready.next(), if !queues.is_empty() => Event::Queue(queue),
            () = tokio::time::sleep_until(due), if next.is_some() => Event::Tick,
        };
        let Some(strong) = core.upgrade() else { return };
        if let (Event::Tick, Some((period, due))) = (&event, &mut next) {
            *due = Instant::now() + *period;
        }
        let told = strong.with(generation, |vm| match event {
            Event::Changed => Ok(()),
            Event::Made(made) => vm.answered(*made),
            Event::Queue(queue) => vm.run(|all| all.on_queue_ready.clone(), ROOT, (ROOT, queue)).map(drop),
            Event::Tick => vm.run(|all| all.on_tick.clone(), ROOT, (ROOT,)).map(drop),
        });
        if let Some(Err(error)) = told {
            strong.failed(&error);
            drop(strong);
            return start_again(core).await;
        }
    }
}

/// Starts another instance on this worker for one that has failed beside exchanges: there may be none that would.
async fn start_again(core: Weak<Core>) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(core) = core.upgrade() else { return };
        if core.start_instance() {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What a root is called for.
enum Event {
    Changed,
    Made(Box<Made>),
    Queue(u32),
    Tick,
}
