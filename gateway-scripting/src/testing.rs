//! A world for tests: servers that are closures, files that can be changed.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::reply::Cause;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls, Client, Endpoint, Server};
use gateway_core::plugin::world::files::Files;
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::{Reach, blocking};
use gateway_core::stream::relay::Tunnel;
use http::{Request, Response};

type Answering = dyn Fn(&str, &Request<Bytes>) -> Result<Response<Body>, Cause> + Send + Sync;

/// Servers that answer by host.
pub(crate) struct Net(Arc<Answering>);

/// Files by path, each with the time of its last change.
#[derive(Default)]
pub(crate) struct Disk(Mutex<HashMap<String, (Bytes, u128)>>);

/// A world with these servers and files.
pub(crate) fn world(
    answer: impl Fn(&str, &Request<Bytes>) -> Result<Response<Body>, Cause> + Send + Sync + 'static,
    disk: Arc<Disk>,
) -> World {
    World::new(Reach {
        gateway: Arc::from("ferrum-edge"),
        calls: Arc::new(Net(Arc::new(answer))),
        files: disk,
        blocking: Arc::new(blocking::Inline),
        meters: Meters::default(),
        variables: Default::default(),
    })
}

impl Disk {
    pub(crate) fn write(&self, path: &str, text: impl Into<Bytes>) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = files.get(path).map_or(1, |(_, modified)| modified + 1);
        files.insert(path.to_owned(), (text.into(), next));
    }
}

impl Files for Disk {
    fn read(&self, path: &Path, limit: u64) -> io::Result<Bytes> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, _) = files.get(&path.display().to_string()).ok_or(io::ErrorKind::NotFound)?;
        if bytes.len() as u64 > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.clone()) }
    }

    fn modified(&self, path: &Path) -> io::Result<u128> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(files.get(&path.display().to_string()).ok_or(io::ErrorKind::NotFound)?.1)
    }

    fn list(&self, _folder: &Path, _limit: usize) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

impl Calls for Net {
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        Ok(Client::new(Arc::new(Wire { endpoint, answer: self.0.clone() })))
    }
}

struct Wire {
    endpoint: Endpoint,
    answer: Arc<Answering>,
}

impl Caller for Wire {
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(async move {
            let (head, mut body) = request.into_parts();
            let (bytes, _) = body.collect(1 << 20).await.map_err(|_| CallError::new(Cause::Internal))?;
            let host = match &self.endpoint.server {
                Server::Address { host, .. } => host.to_string(),
                Server::Upstream(id) => id.to_string(),
            };
            // As over a wire: the answer is not there at once.
            tokio::task::yield_now().await;
            (self.answer)(&host, &Request::from_parts(head, bytes)).map_err(CallError::new)
        })
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(std::future::ready(Err(CallError::new(Cause::ConnectFailed))))
    }

    fn timeout(&self) -> Duration {
        self.endpoint.timeout
    }

    fn max_response_bytes(&self) -> u64 {
        self.endpoint.max_response_bytes
    }
}
