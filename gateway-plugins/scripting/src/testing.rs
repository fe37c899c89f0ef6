//! A world for tests: servers that are closures, files that can be changed.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls, Client, Endpoint, Server};
use gateway_core::plugin::world::files::Files;
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::{Reach, blocking};
use http::{Request, Response};
use http_body::Frame;
use tokio::sync::{mpsc, oneshot};

/// A world with one server, whose exchanges the test has in its hands, and these files.
pub(crate) fn served(disk: Arc<Disk>) -> (World, mpsc::UnboundedReceiver<Served>) {
    let (sender, served) = mpsc::unbounded_channel();
    (of_calls(Arc::new(Scripted(sender)), disk), served)
}

/// A call that waits for its answer.
pub(crate) struct Served {
    pub(crate) request: Request<Body>,
    answer: oneshot::Sender<Result<Response<Body>, CallError>>,
}

impl Served {
    /// Answers with a body that comes from the sender.
    pub(crate) fn answer(self, head: Response<()>) -> (Body, mpsc::UnboundedSender<Frame<Bytes>>) {
        let (sender, frames) = mpsc::unbounded_channel();
        drop(self.answer.send(Ok(head.map(|()| Body::stream(Frames(frames))))));
        (self.request.into_body(), sender)
    }

    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    /// Ends the call so.
    pub(crate) fn end(self, with: Result<Response<Body>, CallError>) {
        drop(self.answer.send(with));
    }
}

struct Frames(mpsc::UnboundedReceiver<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.get_mut().0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

struct Scripted(mpsc::UnboundedSender<Served>);

impl Calls for Scripted {
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        Ok(Client::new(Arc::new(ScriptedCaller { endpoint, calls: self.0.clone() })))
    }
}

struct ScriptedCaller {
    endpoint: Endpoint,
    calls: mpsc::UnboundedSender<Served>,
}

impl Caller for ScriptedCaller {
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            drop(self.calls.send(Served { request, answer }));
            answered.await.unwrap_or_else(|_| Err(CallError::new(Cause::UpstreamClosed)))
        })
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(std::future::ready(Err(CallError::new(Cause::ConnectFailed))))
    }

    fn timeout(&self) -> Duration {
        self.endpoint.timeout
    }

    fn max_response(&self) -> u64 {
        self.endpoint.max_response
    }
}

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
    of_calls(Arc::new(Net(Arc::new(answer))), disk)
}

fn of_calls(calls: Arc<dyn Calls>, disk: Arc<Disk>) -> World {
    World::new(Reach {
        gateway: Arc::from("ferrum-edge"),
        calls,
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

    fn max_response(&self) -> u64 {
        self.endpoint.max_response
    }
}
