//! A byte stream on its way through the gateway, for tests of plugins.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::io::{DuplexStream, duplex};

use super::{Trial, locked};
use crate::balance::Target;
use crate::http::reply::Cause;
use crate::pipeline::between::Monitor;
use crate::pipeline::flow::Flow;
use crate::pipeline::stream::{self, Carrier, OpenFailure, Opener};
use crate::record::{ExchangeRecord, Recorder, SessionRecord};
use crate::snapshot::Route;
use crate::stream::relay::{Carried, RelayOutcome, RelayTimeouts, relay};
use crate::stream::session::Session;

/// Bytes that a side of a pipe holds.
const PIPE: usize = 64 << 10;

/// A session, and what carries it.
pub struct Streaming {
    /// The client's end.
    pub client: DuplexStream,
    /// The target's end; unused where no target is asked.
    pub target: DuplexStream,
    /// Serves the session to its end; to be run beside the test.
    pub serving: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Its record, once it is over.
    pub record: Arc<Mutex<Option<Ended>>>,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The word of its record.
    pub reason: String,
    /// Bytes to the target and to the client.
    pub bytes: (u64, u64),
    /// Datagrams that a limit dropped.
    pub dropped: u64,
}

impl Trial {
    /// A stream to the proxy of this id.
    pub fn stream(&self, proxy: &str) -> Streaming {
        let route = self.route(proxy);
        let (client, mut inbound) = duplex(PIPE);
        let (target, outbound) = duplex(PIPE);
        let ended = Arc::<Mutex<Option<Ended>>>::default();
        let consumers = self.snapshot.consumers.clone();
        let (session, record) = (Session::new(self.client.clone()), KeptRecord(ended.clone()));
        let carrier = Pipes(Mutex::new(Some(outbound)));
        let serving = Box::pin(async move {
            let serving =
                stream::Serving { route: &route, consumers: &consumers, protocol: "tcp", current: None };
            stream::serve(&carrier, &record, serving, session, &mut inbound).await;
        });
        Streaming { client, target, serving, record: ended }
    }

    /// A session of datagrams of the proxy of this id, with its target open; and its record, once it is over.
    ///
    /// # Errors
    /// The word of the record, where the session is refused.
    pub async fn flow(&self, proxy: &str) -> Result<(Flow, Arc<Mutex<Option<Ended>>>), &'static str> {
        let ended = Arc::<Mutex<Option<Ended>>>::default();
        let (session, recorder) = (Session::new(self.client.clone()), Arc::new(KeptRecord(ended.clone())));
        let begun = Flow::begin(recorder, self.route(proxy), session, "udp", &self.snapshot.consumers);
        let mut flow = begun.ok_or("max_sessions")?;
        drop(flow.open(&Pipes(Mutex::new(Some(duplex(1).0)))).await?);
        Ok((flow, ended))
    }

    fn route(&self, proxy: &str) -> Arc<Route> {
        let mut routes = self.snapshot.by_id.iter();
        let (_, route) =
            routes.find(|(id, _)| id.as_str() == proxy).unwrap_or_else(|| panic!("no proxy {proxy}"));
        route.clone()
    }
}

/// Opens the one pipe there is.
struct Pipes(Mutex<Option<DuplexStream>>);

impl Opener for Pipes {
    type Target = DuplexStream;

    async fn open(
        &self,
        _route: &Route,
        _target: &Target,
        _session: &Session,
    ) -> Result<DuplexStream, OpenFailure> {
        locked(&self.0).take().ok_or_else(|| Cause::ConnectFailed.into())
    }
}

impl Carrier for Pipes {
    type Client = DuplexStream;

    async fn carry(
        &self,
        _route: &Route,
        client: &mut DuplexStream,
        target: &mut DuplexStream,
        monitor: &Monitor<'_>,
        carried: &mut Carried,
    ) -> RelayOutcome {
        let timeouts = RelayTimeouts { idle: std::time::Duration::ZERO, lifetime: std::time::Duration::ZERO };
        match monitor.sees_bytes() {
            false => {
                let (mut client, mut target) = monitor.metered(client, target);
                relay(&mut client, &mut target, timeouts, carried).await
            }
            true => {
                let (client, mut target) = monitor.metered(client, target);
                relay(&mut monitor.put(Box::new(client)), &mut target, timeouts, carried).await
            }
        }
    }
}

/// Keeps the record of the only session.
struct KeptRecord(Arc<Mutex<Option<Ended>>>);

impl Recorder for KeptRecord {
    fn began(&self) {}

    fn panicked(&self) {}

    fn exchange(&self, _record: &ExchangeRecord<'_>) {}

    fn health(&self, _target: &Target, _change: crate::health::HealthChange) {}

    fn session(&self, record: &SessionRecord<'_>) {
        *locked(&self.0) = Some(Ended {
            reason: record.reason.to_owned(),
            bytes: (record.bytes_up, record.bytes_down),
            dropped: record.dropped,
        });
    }
}
