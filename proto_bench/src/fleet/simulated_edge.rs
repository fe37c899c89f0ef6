//! A simulated edge: enrolment, mutual TLS, transfers, hashes and verdicts are real. It compiles nothing and carries no traffic.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::{Notify, Semaphore};

use super::control_plane_link::{Incoming, Link, Outgoing};
use super::error::FleetError;
use super::held_configuration::{State, States};
use super::messages::{self, FromControl, Header, Position};
use super::served_revisions::Ledger;
use crate::tls;

/// What all edges share.
pub(super) struct Shared {
    pub(super) ledger: Ledger,
    pub(super) states: States,
    /// Enrolments at a time.
    pub(super) enrolments: Semaphore,
    /// Handshakes at a time: thousands at once would only time out.
    pub(super) handshakes: Semaphore,
    /// How long a cut edge stays away.
    pub(super) away: Duration,
}

/// One edge.
pub(super) struct Edge {
    pub(super) number: usize,
    pub(super) shared: Arc<Shared>,
    /// Cuts its connection.
    pub(super) cut: Arc<Notify>,
    /// How long it takes to serve what it received.
    pub(super) slow: Option<Duration>,
    held: Option<(Position, Arc<State>)>,
}

/// Why a connection ended.
enum End {
    /// By the bench.
    Cut,
    /// By the control plane.
    Closed,
    Revoked,
}

/// Before connecting again to a control plane that closed a connection, at most.
const PAUSE: Duration = Duration::from_millis(500);
/// Before trying again to enrol at a control plane that is busy.
const ENROLMENT_PAUSE: Duration = Duration::from_millis(20);

impl Edge {
    pub(super) fn new(number: usize, shared: Arc<Shared>, cut: Arc<Notify>, slow: Option<Duration>) -> Self {
        Self { number, shared, cut, slow, held: None }
    }

    /// Enrols by an invitation, then follows the control plane until the bench ends.
    pub(super) async fn run(mut self, invitation: String) {
        let (address, identity) = match self.enrol(&invitation).await {
            Ok(enrolled) => enrolled,
            Err(error) => {
                return self.shared.ledger.fault(format!("edge {} can't enrol: {error}", self.number));
            }
        };
        self.shared.ledger.enrolled();
        loop {
            match self.follow(&address, &identity).await {
                Ok(End::Cut) => tokio::time::sleep(self.shared.away).await,
                Ok(End::Revoked) => {
                    return self.shared.ledger.fault(format!("edge {} was revoked", self.number));
                }
                Ok(End::Closed) | Err(_) => tokio::time::sleep(PAUSE.mul_f64(fastrand::f64())).await,
            }
        }
    }

    async fn enrol(&self, invitation: &str) -> Result<(String, Arc<ClientConfig>), FleetError> {
        let _turn = self.shared.enrolments.acquire().await;
        let rest = invitation.strip_prefix("ferrum-fleet://").and_then(|rest| rest.split_once('/'));
        let parts = rest.and_then(|(address, rest)| Some((address, rest.split_once("?pin=")?.0)));
        let (address, code) =
            parts.ok_or_else(|| FleetError::Protocol(format!("invitation `{invitation}`")))?;
        let failed = |error: &dyn std::fmt::Display| FleetError::Link(error.to_string());
        let key = rcgen::KeyPair::generate().map_err(|error| failed(&error))?;
        let request = rcgen::CertificateParams::default().serialize_request(&key);
        let request = request.and_then(|request| request.pem()).map_err(|error| failed(&error))?;
        let anonymous = tls::client_config(&[b"h2"], None).map_err(|error| failed(&error))?;
        let link = Link::open(address, Arc::new(anonymous)).await?;
        let message = messages::enrol(code, &request);
        let identity = loop {
            match link.ask("Enrol", &message).await {
                // A turn is over here before the control plane has counted it as over.
                Err(FleetError::Busy) => tokio::time::sleep(ENROLMENT_PAUSE).await,
                answer => break answer?,
            }
        };
        let chain = messages::certificate(&identity)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let chain = chain.map_err(|error| failed(&error))?;
        let config = tls::client_config_of(chain, key, &[b"h2"]).map_err(|error| failed(&error))?;
        Ok((address.to_owned(), Arc::new(config)))
    }

    /// One connection.
    async fn follow(&mut self, address: &str, identity: &Arc<ClientConfig>) -> Result<End, FleetError> {
        let turn = self.shared.handshakes.acquire().await;
        let link = Link::open(address, identity.clone()).await?;
        let hello = messages::hello(self.held.as_ref().map(|(at, _)| at), clock());
        let (mut outgoing, mut incoming) = link.sync(&hello).await?;
        drop(turn);
        self.shared.ledger.connected(self.number);
        let cut = self.cut.clone();
        let end = tokio::select! {
            () = cut.notified() => Ok(End::Cut),
            end = self.take(&mut outgoing, &mut incoming) => end,
        };
        self.shared.ledger.disconnected(self.number, matches!(end, Ok(End::Cut)));
        end
    }

    async fn take(&mut self, outgoing: &mut Outgoing, incoming: &mut Incoming) -> Result<End, FleetError> {
        let mut transfer: Option<(Header, Vec<u8>)> = None;
        while let Some(message) = incoming.next().await? {
            match FromControl::decode(&message)? {
                FromControl::Welcome => {}
                FromControl::Revoked => return Ok(End::Revoked),
                FromControl::Drain => return Ok(End::Closed),
                FromControl::Unchanged(at) => self.rename(at),
                FromControl::Chunk(chunk) => {
                    if let Some(header) = chunk.header {
                        transfer = Some((header, Vec::new()));
                    }
                    let Some((_, data)) = &mut transfer else {
                        return Err(FleetError::Protocol("a chunk without a header".to_owned()));
                    };
                    data.extend_from_slice(&chunk.data);
                    if let Some((header, data)) = transfer.take_if(|_| chunk.is_last) {
                        self.apply(header, &data, outgoing).await?;
                    }
                }
            }
        }
        Ok(End::Closed)
    }

    /// The same configuration, at another position.
    fn rename(&mut self, at: Position) {
        match &mut self.held {
            Some((held, state)) if state.hash == at.hash => {
                *held = at;
                self.shared.ledger.served(self.number, held);
            }
            _ => self.shared.ledger.fault(format!("edge {} was told that it lacks nothing", self.number)),
        }
    }

    /// Applies a transfer whole, compares its hash, and reports.
    async fn apply(
        &mut self,
        header: Header,
        data: &[u8],
        outgoing: &mut Outgoing,
    ) -> Result<(), FleetError> {
        let held = self.held.as_ref().map(|(_, state)| state);
        if header.from.is_some_and(|from| held.is_none_or(|held| held.hash != from)) {
            return outgoing.send(&messages::resync("another configuration is held"));
        }
        let state = self.shared.states.reach(held, &header, data)?;
        let at = header.to;
        if state.hash != at.hash {
            let fault = format!("edge {}: the hash of revision {} is wrong", self.number, at.revision);
            self.shared.ledger.fault(fault);
            return outgoing.send(&messages::resync("the hash is wrong"));
        }
        outgoing.send(&messages::received(&at))?;
        if let Some(slow) = self.slow {
            tokio::time::sleep(slow).await;
        }
        outgoing.send(&messages::served(&at))?;
        self.shared.ledger.served(self.number, &at);
        self.shared.ledger.keep(self.number, &state);
        self.held = Some((at, state));
        Ok(())
    }
}

/// Milliseconds since 1970.
fn clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
