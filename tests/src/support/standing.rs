//! An origin that just stands there: answers every request with what it was asked.
//!
//! A request may say what the answer has besides: `reply-NAME: VALUE` becomes the field `NAME`, `reply-status` the status and
//! `reply-body` the body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::h1::Talker;
use super::wire::{Port, Wire};

/// A running origin; gone, with its connections, when dropped.
pub(crate) struct Standing {
    pub(crate) address: SocketAddr,
    manner: Arc<Manner>,
    _task: JoinSet<()>,
}

/// How it answers.
struct Manner {
    name: String,
    status: AtomicU16,
    served: AtomicUsize,
    connections: AtomicUsize,
    /// Closes each connection after one answer, without saying so.
    abrupt: bool,
}

impl Standing {
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), name, false).await
    }

    /// An origin that closes its connections after each answer without a word.
    pub(crate) async fn abrupt(name: &str) -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), name, true).await
    }

    /// An origin at this address.
    pub(crate) async fn start_at(address: SocketAddr, name: &str) -> Self {
        Self::start_on(address, name, false).await
    }

    async fn start_on(address: SocketAddr, name: &str, abrupt: bool) -> Self {
        let port = Port::listen_on(address, None).await;
        let address = port.address;
        let manner = Arc::new(Manner {
            name: name.to_owned(),
            status: AtomicU16::new(200),
            served: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            abrupt,
        });
        let mut task = JoinSet::new();
        let shared = manner.clone();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let io = port.accept_ever().await;
                shared.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(serve(Talker::new(Wire::new_patient(io)), shared.clone()));
            }
        });
        Self { address, manner, _task: task }
    }

    /// Answers with this status from now on.
    pub(crate) fn answer(&self, status: u16) {
        self.manner.status.store(status, Ordering::Relaxed);
    }

    /// Requests answered.
    pub(crate) fn served(&self) -> usize {
        self.manner.served.load(Ordering::Relaxed)
    }

    /// Connections accepted.
    pub(crate) fn connections(&self) -> usize {
        self.manner.connections.load(Ordering::Relaxed)
    }

    /// A target of an upstream.
    pub(crate) fn target(&self) -> String {
        format!("{{host: 127.0.0.1, port: {}}}", self.address.port())
    }

    /// The fields of a proxy that leads here.
    pub(crate) fn backend(&self) -> String {
        format!("backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}", self.address.port())
    }
}

async fn serve(mut talker: Talker, manner: Arc<Manner>) {
    while let Ok(head) = talker.request().await {
        if talker.body().await.is_err() {
            return;
        }
        manner.served.fetch_add(1, Ordering::Relaxed);
        let mut body = format!("{}\n{}\n", manner.name, head.line);
        for (name, value) in &head.headers {
            body.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
        }
        let mut status = manner.status.load(Ordering::Relaxed);
        let mut wanted = Vec::new();
        for (name, value) in &head.headers {
            let (Some(name), Ok(value)) = (name.as_str().strip_prefix("reply-"), value.to_str()) else {
                continue;
            };
            match name {
                "status" => status = value.parse().unwrap_or(status),
                "body" => body = value.to_owned(),
                name => wanted.push((name.to_owned(), value.to_owned())),
            }
        }
        let line = format!("HTTP/1.1 {status} Standing");
        let length = body.len().to_string();
        let has_body = !head.line.starts_with("HEAD ") && !matches!(status, 204 | 304);
        let mut fields = vec![("x-origin", manner.name.as_str())];
        if !matches!(status, 204 | 304) {
            fields.push(("content-length", &length));
        }
        fields.extend(wanted.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let body = if has_body { body } else { String::new() };
        let sent = talker.send_head(&line, &fields, Some(0)).await;
        if sent.is_err() || talker.wire.try_send(&body).await.is_err() || manner.abrupt {
            return;
        }
    }
}
