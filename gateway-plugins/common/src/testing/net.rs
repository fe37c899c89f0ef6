//! Other servers for tests: a closure that answers every call, and what was asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls, Client, Endpoint, Server};
use http::{HeaderMap, Method, Request, Response};
use tokio::sync::Notify;

use super::locked;

/// What another server was asked.
#[derive(Debug, Clone)]
pub struct Sent {
    /// `host:port/path`, without the query; of a named upstream its id stands for host and port.
    pub url: String,
    pub method: Method,
    pub query: Option<String>,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Sent {
    /// The one value of a header field; empty where there is none.
    pub fn field(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The fields of a form in the body.
    pub fn form(&self) -> BTreeMap<String, String> {
        let text = String::from_utf8_lossy(&self.body).replace('+', " ");
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        text.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (decode(k), decode(v))).collect()
    }
}

/// What another server does.
pub enum Served {
    Response(Response<Body>),
    /// As that, after everybody else has had several turns.
    Late(Response<Body>),
    /// As that, once it is told to.
    Held(Arc<Notify>, Response<Body>),
    /// It can't be reached.
    Away,
    /// It never answers.
    Silent,
}

type Serving = dyn Fn(&Sent) -> Served + Send + Sync;

/// Other servers, in one closure; there are none at first.
#[derive(Clone, Default)]
pub struct Net(Arc<Mutex<Servers>>);

#[derive(Default)]
struct Servers {
    serving: Option<Arc<Serving>>,
    sent: Vec<Sent>,
    endpoints: Vec<Endpoint>,
}

impl Net {
    /// Has requests answered so from now on.
    pub fn serve(&self, serving: impl Fn(&Sent) -> Served + Send + Sync + 'static) {
        locked(&self.0).serving = Some(Arc::new(serving));
    }

    /// What plugins prepared to ask so far.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        locked(&self.0).endpoints.clone()
    }

    /// What was asked so far.
    pub fn sent(&self) -> Vec<Sent> {
        locked(&self.0).sent.clone()
    }
}

/// A JSON document as an answer.
pub fn page(status: u16, document: &serde_json::Value) -> Served {
    let response = Response::builder().status(status).header("content-type", "application/json");
    Served::Response(response.body(Body::full(document.to_string())).expect("a response"))
}

impl Calls for Net {
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        let base = match &endpoint.server {
            Server::Address { host, port } => format!("{host}:{port}"),
            Server::Upstream(id) => id.to_string(),
        };
        locked(&self.0).endpoints.push(endpoint.clone());
        Ok(Client::new(Arc::new(Site { net: self.clone(), base, endpoint })))
    }
}

struct Site {
    net: Net,
    base: String,
    endpoint: Endpoint,
}

impl Caller for Site {
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(async move {
            let (head, mut body) = request.into_parts();
            let (body, _) = body.collect(u64::MAX).await.map_err(|_| CallError::new(Cause::ConnectFailed))?;
            let sent = Sent {
                url: format!("{}{}", self.base, head.uri.path()),
                method: head.method,
                query: head.uri.query().map(str::to_owned),
                headers: head.headers,
                body,
            };
            let serving = {
                let mut net = locked(&self.net.0);
                net.sent.push(sent.clone());
                net.serving.clone()
            };
            match serving.map_or(Served::Away, |serving| serving(&sent)) {
                Served::Response(response) => Ok(response),
                Served::Late(response) => {
                    for _ in 0..50 {
                        tokio::task::yield_now().await;
                    }
                    Ok(response)
                }
                Served::Held(told, response) => {
                    told.notified().await;
                    Ok(response)
                }
                Served::Away => Err(CallError::new(Cause::ConnectFailed)),
                Served::Silent => std::future::pending().await,
            }
        })
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(std::future::ready(Err(CallError::new(Cause::ConnectFailed))))
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
