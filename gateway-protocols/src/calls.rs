//! Requests and streams that plugins make, over the same engines, pools, names and TLS policy as traffic.
//!
//! A call made in a hook runs on its worker, with the worker's own pools. A plugin's task runs on a thread of its own
//! that has pools of its own ([`lend_beside`]).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gateway_core::balance::{Ask, AttemptOutcome, Target, Targets};
use gateway_core::config::model::{Backend, Timeouts};
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::downstream::{Delivery, Downstream};
use gateway_core::http::forwarding::Forwarding;
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::http::upstream::{self, Upstream};
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls, Client, Endpoint, Server};
use gateway_core::pool::KeyCache;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::time::Instant;

use crate::dns::DnsError;
use crate::tls::client;
use crate::upstream::Outbound;
use crate::worker::SharedByWorkers;

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// A thread's way out, and the configuration that says where named upstreams are.
#[derive(Clone)]
struct Here {
    outbound: Outbound,
    shared: Weak<SharedByWorkers>,
}

/// Has plugins' calls on this thread go this way out.
pub(crate) fn lend(outbound: Outbound, shared: &Arc<SharedByWorkers>) {
    let lent = Here { outbound, shared: Arc::downgrade(shared) };
    HERE.with(|here| *here.borrow_mut() = Some(lent));
}

/// Has plugins' calls on this thread, which is no worker's, go out with pools of its own. To be called on the thread's runtime, which
/// closes connections that wait too long.
pub fn lend_beside(shared: &Arc<SharedByWorkers>) {
    let (dns, tls) = (shared.dns.clone(), shared.client_tls.clone());
    let outbound = Outbound::new(dns, tls, shared.recall.clone());
    drop(tokio::spawn(outbound.swept()));
    lend(outbound, shared);
}

fn here() -> Result<Here, CallError> {
    let here = HERE.with(|here| here.borrow().clone());
    here.ok_or_else(|| CallError {
        cause: Cause::Internal,
        detail: Some("a call was made outside of the gateway's threads".to_owned()),
    })
}

/// Makes the clients of plugins.
#[derive(Debug, Clone, Copy, Default)]
pub struct PluginCalls;

impl Calls for PluginCalls {
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        let (backend, timeouts) = endpoint.resolve();
        if let Some(tls) = &backend.tls {
            client::build(tls, None).map_err(|error| Problems::one("config", error.to_string()))?;
        }
        let own = match &endpoint.server {
            Server::Address { .. } => Some(Targets::build(&backend.upstream, None, Instant::now())),
            Server::Upstream(_) => None,
        };
        let keys = KeyCache::default();
        Ok(Client::new(Arc::new(EndpointCaller { endpoint, backend, timeouts, own, keys })))
    }

    fn resolve<'a>(&'a self, host: &'a Arc<str>, port: u16) -> Call<'a, Vec<SocketAddr>> {
        Box::pin(async move {
            let dns = here()?.outbound.dns().clone();
            let failed =
                |error: DnsError| CallError { cause: Cause::DnsFailed, detail: Some(error.to_string()) };
            dns.resolve(host, port, None).await.map_err(failed)
        })
    }
}

struct EndpointCaller {
    endpoint: Endpoint,
    backend: Backend,
    timeouts: Timeouts,
    own: Option<Targets>,
    keys: KeyCache,
}

impl EndpointCaller {
    /// The targets as they are now.
    fn targets(&self, here: &Here) -> Result<CallTargets<'_>, CallError> {
        if let Some(own) = &self.own {
            return Ok(CallTargets::Own(own));
        }
        let shared = here.shared.upgrade();
        let Server::Upstream(id) = &self.endpoint.server else { return Err(CallError::new(Cause::NoTarget)) };
        let snapshot = shared.map(|shared| shared.snapshot.load_full());
        let named = snapshot.and_then(|snapshot| snapshot.upstreams.get(&**id).cloned());
        named.map(CallTargets::Named).ok_or_else(|| CallError {
            cause: Cause::NoTarget,
            detail: Some(format!("there is no upstream `{id}`")),
        })
    }

    fn pool_key(&self, target: &Target) -> u64 {
        self.keys.number(&target.rules.host, target.rules.port, target.counted_as())
    }

    async fn request(&self, request: Request<Body>) -> Result<Response<Body>, CallError> {
        let here = here()?;
        let found = self.targets(&here)?;
        let (head, mut body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let dialect = Dialect::of(&head.method, &head.headers, false);
        let forwarding = Forwarding::default();
        let mut tried: Vec<usize> = Vec::new();
        loop {
            let begun = Instant::now();
            let ask = Ask { tried: &tried, ..Ask::any(begun) };
            let Some(pick) = found.targets().pick(&ask) else {
                return Err(CallError::new(Cause::NoTarget));
            };
            let replay = body.replay();
            let call = upstream::Call {
                backend: &self.backend,
                timeouts: &self.timeouts,
                target: pick.target,
                chosen: None,
                pool_key: self.pool_key(pick.target),
                method: &head.method,
                path,
                host: match head.headers.get(http::header::HOST) {
                    Some(host) => host,
                    None => pick.target.host_header(if self.endpoint.encrypted { 443 } else { 80 }),
                },
                headers: &head.headers,
                forwarding: &forwarding,
                begun,
                dialect,
                upgrade: None,
                client_version: head.version,
                cgi: None,
                trailers: dialect == Dialect::Grpc,
            };
            let mut failure = match here.outbound.send(&call, &mut body, &mut Nobody).await {
                Ok(answer) => {
                    let status = answer.response.status();
                    let outcome = AttemptOutcome::Response { status, first_byte: answer.first_byte };
                    drop(pick.report(outcome, Instant::now()));
                    return Ok(answer.response);
                }
                Err(failure) => failure,
            };
            let index = pick.index;
            let again = failure.body.take().or_else(|| {
                replay.filter(|_| !failure.reached_wire || failure.stale && head.method.is_idempotent())
            });
            if !failure.stale {
                let is_connect = failure.is_connect();
                let outcome = if is_connect { AttemptOutcome::ConnectFailed } else { AttemptOutcome::Broken };
                drop(pick.report(outcome, Instant::now()));
            }
            tried.push(index);
            // Each target once, and dead kept connections a few times more.
            match again.filter(|_| {
                tried.len() < found.targets().list().len() + MAX_STALE * usize::from(failure.stale)
            }) {
                Some(again) => body = again,
                None => {
                    let detail = failure.source.map(|source| source.to_string());
                    return Err(CallError { cause: failure.cause, detail });
                }
            }
        }
    }

    async fn stream(&self) -> Result<Tunnel, CallError> {
        let here = here()?;
        let found = self.targets(&here)?;
        let ask = Ask::any(Instant::now());
        let Some(pick) = found.targets().pick(&ask) else { return Err(CallError::new(Cause::NoTarget)) };
        match here.outbound.open_stream(&self.backend, &self.timeouts, pick.target).await {
            Ok(link) => Ok(Box::new(link)),
            Err(error) => Err(CallError { cause: error.cause(), detail: Some(error.to_string()) }),
        }
    }
}

/// Dead kept connections replaced within one call.
const MAX_STALE: usize = 3;

/// Targets, held for as long as a call needs them.
enum CallTargets<'c> {
    Own(&'c Targets),
    Named(Arc<Targets>),
}

impl CallTargets<'_> {
    fn targets(&self) -> &Targets {
        match self {
            Self::Own(targets) => targets,
            Self::Named(targets) => targets,
        }
    }
}

impl Caller for EndpointCaller {
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(self.request(request))
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(self.stream())
    }

    fn timeout(&self) -> Duration {
        self.endpoint.timeout
    }

    fn timeout_setting(&self) -> &'static str {
        self.endpoint.timeout_setting
    }

    fn max_response(&self) -> u64 {
        self.endpoint.max_response
    }
}

/// A call has no client: what is on the way to one goes nowhere.
struct Nobody;

impl Downstream for Nobody {
    async fn interim(&mut self, _status: StatusCode, _headers: &HeaderMap) {}

    async fn upgrade(&mut self, _response: Response<()>) -> Option<Tunnel> {
        None
    }

    async fn respond(&mut self, _response: Response<Body>) -> Delivery {
        Delivery { bytes: 0, cut: None, ..Delivery::default() }
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::snapshot::Snapshot;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connections_that_wait_too_long_are_closed_beside_workers_too() {
        let (shared, _inboxes) = SharedByWorkers::new(Snapshot::empty(Arc::default()), 1);
        lend_beside(&Arc::new(shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server::Address { host: "127.0.0.1".into(), port };
        let client = PluginCalls.client(Endpoint::new(server, false)).unwrap();
        let serving = async {
            let (mut peer, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            assert!(peer.read(&mut head).await.unwrap() > 0);
            peer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            peer
        };
        let (answer, mut peer) = tokio::join!(client.send(Request::new(Body::empty())), serving);
        assert_eq!(answer.unwrap().status(), StatusCode::NO_CONTENT);
        // From here on, time passes when nothing else happens.
        tokio::time::pause();
        let hour = Duration::from_secs(3600);
        let end = tokio::time::timeout(hour, peer.read(&mut [0])).await;
        assert_eq!(end.expect("it is closed").unwrap(), 0);
    }
}
