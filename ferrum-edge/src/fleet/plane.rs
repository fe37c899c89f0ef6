//! A running control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use gateway_core::plugin::Registry;
use gateway_fleet::{
    Authority, EDGE_VALIDITY, FleetTlsError, Hub, SERVER_VALIDITY, ServerCertificate, check_issues,
    server_config,
};
use gateway_telemetry::json::Rfc3339;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::connection_threads::ConnectionThreads;
use super::error::{FleetAuthorityError, FleetStartError};
use super::meters::FleetMeters;
use super::options::FleetOptions;
use super::roster::Roster;
use super::rows::{AUTHORITY, AuthorityRow, EPOCH, EpochRow, SETTING};
use super::version_skew::{LeftOut, Skew};
use super::views::{StoreStep, Views};
use crate::engine::Engine;
use crate::source::database::Reconciler;
use crate::store::seal::{Keys, open_text, seal_text};
use crate::store::{FleetOp, Store, StoreError};

/// Between two looks for changes of the roster by other control planes: a revoked edge is cut within a second.
const ROSTER_INTERVAL: Duration = Duration::from_millis(500);
/// How long an answer waits for what other control planes have changed.
const REFRESH_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at edges that take too long, and at numbers.
const TICK: Duration = Duration::from_secs(5);
/// Before trying again after the database did not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Edges are told to go to another control plane within this time when this one stops.
const DRAIN_DELAY: Duration = Duration::from_secs(5);
/// Where the authority's key is encrypted for.
const KEY_PLACE: &str = "ferrum-edge fleet authority";

/// A control plane.
pub(crate) struct ControlPlane {
    pub(super) hub: Arc<Hub>,
    pub(super) roster: Arc<Roster>,
    pub(super) epoch: watch::Sender<Arc<str>>,
    pub(super) meters: FleetMeters,
    /// The plugins that the objects of each group name.
    pub(super) plugins: watch::Sender<BTreeMap<String, BTreeSet<String>>>,
    /// What views of older edges lack of their groups' configurations, by view.
    pub(super) left_out: watch::Sender<BTreeMap<Arc<str>, LeftOut>>,
    store: Store,
    views: Mutex<Views>,
    certificate: ServerCertificate,
    /// `HOST:PORT` for invitations.
    address: String,
    listening: SocketAddr,
    stopped: watch::Sender<bool>,
    /// Carry the connections of edges.
    threads: ConnectionThreads,
}

impl ControlPlane {
    /// Begins to serve edges, on the control runtime, within which it has to be called.
    ///
    /// # Errors
    /// In words for the operator.
    pub(crate) async fn start(
        engine: &Arc<Engine>,
        reconciler: &Arc<Reconciler>,
        registry: Registry,
        options: FleetOptions,
    ) -> Result<Arc<Self>, FleetStartError> {
        let store = reconciler.store().clone();
        let documents = reconciler.documents().clone();
        let keys = documents.keys().clone();
        if keys.is_empty() {
            return Err(FleetStartError::NoKey);
        }
        let authority = authority(&store, &keys, &options).await?;
        let epoch = epoch(&store, None).await?;
        let hub = Arc::new(Hub::default());
        let certificate = ServerCertificate::issue(&authority)?;
        let skew = Skew::of(&registry);
        let roster = Roster::load(store.clone(), keys, authority, hub.clone(), skew).await?;
        let views = Views::load(store.clone(), documents, registry, hub.clone()).await?;
        let tls = server_config(roster.authority(), certificate.clone(), roster.clone())?;
        let failed = |error| FleetStartError::Listen { address: options.listen, error };
        let threads = ConnectionThreads::new().map_err(FleetStartError::Threads)?;
        let listener = threads.run(TcpListener::bind(options.listen)).await.map_err(failed)?;
        let listening = listener.local_addr().map_err(failed)?;
        let plane = Arc::new(Self {
            meters: FleetMeters::new(&engine.meters),
            plugins: watch::Sender::default(),
            left_out: watch::Sender::default(),
            address: options.address.unwrap_or_else(|| listening.to_string()),
            epoch: watch::Sender::new(epoch),
            views: Mutex::new(views),
            stopped: watch::Sender::new(false),
            hub,
            roster,
            store,
            certificate,
            listening,
            threads,
        });
        plane.publish().await;
        tracing::info!(address = %listening, pin = plane.roster.authority().pin(), "serving the fleet");
        let mut stopped = plane.stopped.subscribe();
        let until = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        let serving = gateway_fleet::serve(listener, tls, plane.hub.clone(), plane.roster.clone(), until);
        plane.threads.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the fleet is served no more; restart this control plane");
            }
        });
        let tasks = &engine.shared.tasks;
        let with = plane.clone();
        tokio::spawn(tasks.clone().supervise("fleet_follower", move || with.clone().follow()));
        let with = plane.clone();
        tokio::spawn(tasks.clone().supervise("fleet_roster", move || with.clone().watch_roster()));
        let with = plane.clone();
        tokio::spawn(tasks.clone().supervise("fleet_upkeep", move || with.clone().keep_up()));
        Ok(plane)
    }

    /// Where edges are listened for.
    pub(crate) const fn listening(&self) -> SocketAddr {
        self.listening
    }

    /// `HOST:PORT` for invitations.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Who belongs to the fleet.
    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Looks for what other control planes have changed. While the database is away, what is known is shown.
    pub(crate) async fn refresh(&self) {
        match timeout(REFRESH_WAIT, self.roster.follow()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the fleet's roster could not be read"),
            Err(_) => tracing::debug!("the fleet's roster was not read in time"),
        }
    }

    /// Sends edges to another control plane, and waits until they are gone, for a bounded time.
    pub(crate) async fn drain(&self) {
        self.hub.act(|core, _| core.drain(DRAIN_DELAY));
        let until = Instant::now() + DRAIN_DELAY;
        while self.hub.read(gateway_fleet::ControlCore::connected) > 0 && Instant::now() < until {
            sleep(Duration::from_millis(20)).await;
        }
        self.stopped.send_replace(true);
    }

    async fn publish(&self) {
        let mut views = self.views.lock().await;
        let epoch = self.epoch.borrow().clone();
        views.publish(&self.roster, &epoch);
        self.plugins.send_replace(views.plugins());
        self.left_out.send_replace(views.left_out());
    }

    fn free_unneeded_views(&self) {
        // While the database is read, the next look does it.
        if let Ok(mut views) = self.views.try_lock() {
            views.free_unneeded(&self.roster);
            self.left_out.send_replace(views.left_out());
        }
    }

    /// Gives edges what the store has, until the end.
    async fn follow(self: Arc<Self>) -> Result<(), Infallible> {
        let (mut signals, mut rechecks) = (self.store.watch(), self.hub.rechecks());
        // Looked into once: what is ahead of one epoch says nothing of the next.
        let mut ahead = 0;
        loop {
            match self.catch_up(ahead).await {
                Ok(()) => self.publish().await,
                Err(error) => {
                    tracing::warn!(%error, "the fleet gets nothing new: the database can't be read");
                    // Whatever comes meanwhile is found by the next look.
                    drop(timeout(RETRY, signals.changed()).await);
                    continue;
                }
            }
            ahead = 0;
            // The first of several changes goes out at once, the rest together.
            sleep(self.hub.pace()).await;
            tokio::select! {
                changed = signals.changed() => if changed.is_err() { return Ok(()) },
                _ = rechecks.changed() => ahead = *rechecks.borrow_and_update(),
                () = self.roster.groups_changed.notified() => {}
            }
        }
    }

    /// Reads what the store has. `ahead` is a revision that an edge has of the epoch of now: if the store has none, it is another
    /// store.
    async fn catch_up(&self, ahead: u64) -> Result<(), StoreError> {
        let mut views = self.views.lock().await;
        let step = views.follow().await?;
        let current = self.epoch.borrow().clone();
        let stored = epoch(&self.store, None).await?;
        let is_forked = step == StoreStep::Forked || ahead > views.revision();
        let next =
            if is_forked && stored == current { epoch(&self.store, Some(&stored)).await? } else { stored };
        if next != current {
            tracing::warn!(revision = views.revision(), epoch = %next, "the database has another history: edges follow it");
            self.epoch.send_replace(next);
        }
        Ok(())
    }

    async fn watch_roster(self: Arc<Self>) -> Result<(), Infallible> {
        let mut looks = interval(ROSTER_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if let Err(error) = self.roster.follow().await {
                tracing::debug!(%error, "the fleet's roster could not be read");
            }
        }
    }

    async fn keep_up(self: Arc<Self>) -> Result<(), FleetTlsError> {
        let mut issued = Instant::now();
        let mut ticks = interval(TICK);
        loop {
            ticks.tick().await;
            self.hub.act(|core, now| core.tick(now));
            self.free_unneeded_views();
            self.report();
            if issued.elapsed() >= SERVER_VALIDITY / 3 {
                self.certificate.renew(self.roster.authority())?;
                issued = Instant::now();
            }
        }
    }
}

/// The epoch of the store's revisions; the first one, or one after `replaced`, is made where it is missing.
async fn epoch(store: &Store, replaced: Option<&Arc<str>>) -> Result<Arc<str>, StoreError> {
    loop {
        let row = store.fleet_row(SETTING, EPOCH).await?.content;
        let found = row.as_ref().and_then(|(document, _)| serde_json::from_str::<EpochRow>(document).ok());
        if let Some(found) = found.filter(|found| replaced.is_none_or(|replaced| **replaced != *found.epoch))
        {
            return Ok(found.epoch.into());
        }
        let next = EpochRow { epoch: format!("{:032x}", fastrand::u128(..)) };
        let document = serde_json::to_string(&next).ok();
        let expected = row.map(|(_, version)| version);
        // Of several control planes one makes it, and the others find it.
        store.change_fleet(&[FleetOp { kind: SETTING, id: EPOCH.to_owned(), expected, document }]).await?;
    }
}

/// The operator's authority, else the one in the database, which is made where it is missing.
async fn authority(
    store: &Store,
    keys: &Keys,
    options: &FleetOptions,
) -> Result<Authority, FleetAuthorityError> {
    if let Some((certificate, key)) = &options.authority {
        return own_authority(certificate, key, &options.domain).map_err(FleetAuthorityError::Own);
    }
    loop {
        if let Some((document, _)) = store.fleet_row(SETTING, AUTHORITY).await?.content {
            let row: AuthorityRow = serde_json::from_str(&document)?;
            let key = open_text(&row.key, KEY_PLACE, keys).map_err(FleetAuthorityError::Sealed)?;
            return Ok(Authority::from_pem(&row.certificate, &key, &options.domain)?);
        }
        let (certificate, key) = Authority::generate(&options.domain)?;
        let key = seal_text(&key, KEY_PLACE, keys).ok_or(FleetAuthorityError::NoKey)?;
        let document = serde_json::to_string(&AuthorityRow { certificate, key }).ok();
        let op = FleetOp { kind: SETTING, id: AUTHORITY.to_owned(), expected: None, document };
        store.change_fleet(&[op]).await?;
    }
}

/// The operator's authority, once it is known that what it issues is accepted.
fn own_authority(certificates: &str, key: &str, domain: &str) -> Result<Authority, FleetTlsError> {
    let authority = Authority::from_pem(certificates, key, domain)?;
    check_issues(&authority)?;
    if authority.not_after() < super::roster::now() + EDGE_VALIDITY.as_secs() {
        let ends = Rfc3339(UNIX_EPOCH + Duration::from_secs(authority.not_after()));
        tracing::warn!(%ends, "the fleet's authority ends soon, and so do the certificates that it issues; replace it");
    }
    Ok(authority)
}
