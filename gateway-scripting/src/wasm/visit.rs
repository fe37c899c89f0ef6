//! One exchange's visit to an instance, and what keeps the root of each instance going.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::world::calls::CallError;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::per_worker::PerWorker;
use tokio::time::Instant;

use super::host::{Answered, Call, Context, Parts, ROOT};
use super::settings::OnError;
use super::vm::{Pool, Template, Vm};

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

    fn begin(self: &Arc<Self>, context: Context) -> Result<Arc<GuestContext>, String> {
        let mut pool = self.pools.get_or(Pool::default).ok_or("the instance is in use")?;
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
            })),
            Err(error) => {
                pool.retire(generation);
                Err(error)
            }
        }
    }

    /// Counts and logs a failure; what becomes of its exchange.
    pub(super) fn failed(&self, error: &str) -> Stop {
        self.failed.add(1);
        tracing::warn!(plugin_config = self.parts.owner, "the module failed: {error}");
        match self.parts.rules.on_error {
            OnError::Open => Stop::Pass,
            OnError::Closed => Stop::Reply(Box::new(Reply::new(Cause::Internal).reason("wasm_failed"))),
        }
    }

    /// Does something with an instance of this worker; `None` when it is gone. An instance that fails takes no more
    /// exchanges.
    fn with<T>(
        self: &Arc<Self>,
        generation: u64,
        with: impl FnOnce(&mut Vm) -> Result<T, String>,
    ) -> Option<Result<T, String>> {
        let mut pool = self.pools.get_or(Pool::default)?;
        let vm = pool.find(generation)?;
        let done = with(vm);
        self.tend(vm);
        if done.is_err() {
            pool.retire(generation);
        }
        Some(done)
    }

    /// Sees to it that the root of an instance is called when it wants to be.
    fn tend(self: &Arc<Self>, vm: &mut Vm) {
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
        let (_, client, longest) = &self.parts.rules.servers[call.server];
        let (client, timeout) = (client.clone(), call.timeout.min(*longest));
        Box::pin(async move {
            let Call { id, owner, is_grpc, request, .. } = call;
            let asking = async {
                let (head, mut body) = client.send(request.map(Body::full)).await?.into_parts();
                let read = body.collect(u64::MAX).await;
                let (bytes, trailers) = read.map_err(|error| CallError {
                    cause: Cause::UpstreamClosed,
                    detail: Some(error.to_string()),
                })?;
                Ok::<_, CallError>((head, bytes, trailers.unwrap_or_default()))
            };
            let answer = match tokio::time::timeout(timeout, asking).await {
                Ok(Ok((head, body, trailers))) => Answered {
                    status: Some(head.status),
                    headers: head.headers,
                    body,
                    trailers,
                    ..Answered::default()
                },
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a module's call failed");
                    Answered { grpc_status: 14, ..Answered::default() }
                }
                Err(_) => Answered { grpc_status: 4, ..Answered::default() },
            };
            let answer = if is_grpc { of_grpc(answer) } else { answer };
            Made { id, owner, is_grpc, answer }
        })
    }
}

/// A call that was made.
pub(super) struct Made {
    pub(super) id: u32,
    pub(super) owner: u32,
    pub(super) is_grpc: bool,
    pub(super) answer: Answered,
}

/// The message and status of a gRPC answer.
fn of_grpc(mut answer: Answered) -> Answered {
    if answer.status.is_none() {
        return answer;
    }
    let told = |name: &str| answer.trailers.get(name).or_else(|| answer.headers.get(name));
    let status = told("grpc-status").and_then(|status| status.to_str().ok()?.parse().ok());
    let message = told("grpc-message").map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned());
    answer.grpc_status = status.unwrap_or(2);
    answer.grpc_message = message.unwrap_or_default();
    let mut body = answer.body.clone();
    let is_plain = body.len() >= 5 && body.first() == Some(&0);
    answer.body = if is_plain {
        body.advance(1);
        let length = usize::try_from(body.get_u32()).unwrap_or(usize::MAX);
        body.slice(..length.min(body.len()))
    } else {
        Bytes::new()
    };
    if !is_plain && answer.grpc_status == 0 {
        // No message, or a compressed one, which was not asked for.
        answer.grpc_status = 13;
    }
    answer
}

impl GuestContext {
    /// Does something with the instance.
    ///
    /// # Errors
    /// What becomes of the exchange that the guest failed for, or whose instance is gone.
    pub(super) fn with<T>(&self, with: impl FnOnce(&mut Vm) -> Result<T, String>) -> Result<T, Stop> {
        if self.is_over() {
            return Err(Stop::Pass);
        }
        let done = self.core.with(self.generation, with);
        done.unwrap_or_else(|| Err("its instance has been replaced".to_owned())).map_err(|error| {
            self.give_up();
            self.core.failed(&error)
        })
    }

    /// Does something with the context.
    pub(super) fn context<T>(&self, with: impl FnOnce(&mut Context) -> T) -> Result<T, Stop> {
        let id = self.id;
        self.with(|vm| match vm.host().contexts.get_mut(&id) {
            Some(context) => Ok(with(context)),
            None => Err("its context is gone".to_owned()),
        })
    }

    /// Calls of this context that nobody has begun yet, and those under way are counted.
    pub(super) fn take_calls(&self) -> Result<Vec<Call>, Stop> {
        let id = self.id;
        self.with(|vm| {
            let host = vm.host();
            if host.calls.is_empty() {
                return Ok(Vec::new());
            }
            let (own, others) =
                std::mem::take(&mut host.calls).into_iter().partition(|call| call.owner == id);
            host.calls = others;
            let own: Vec<Call> = own;
            if let Some(context) = host.contexts.get_mut(&id) {
                context.calls += own.len();
            }
            Ok(own)
        })
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
            let (own, others) =
                std::mem::take(&mut host.calls).into_iter().partition(|call| call.owner == ROOT);
            host.calls = others;
            let own: Vec<Call> = own;
            if let Some(context) = host.contexts.get_mut(&ROOT) {
                context.calls += own.len();
            }
            Ok((own, host.tick, host.listens.clone()))
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
            Event::Made(made) => vm.answered(made.owner, made.id, made.answer, made.is_grpc),
            Event::Queue(queue) => vm.run(|all| all.on_queue_ready.clone(), ROOT, (ROOT, queue)).map(drop),
            Event::Tick => vm.run(|all| all.on_tick.clone(), ROOT, (ROOT,)).map(drop),
        });
        if let Some(Err(error)) = told {
            // A new instance begins with the next exchange, and with it its timer.
            strong.failed(&error);
            return;
        }
    }
}

/// What a root is called for.
enum Event {
    Changed,
    Made(Box<Made>),
    Queue(u32),
    Tick,
}
