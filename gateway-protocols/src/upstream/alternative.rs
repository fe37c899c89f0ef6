//! Targets that say they speak HTTP/3 as well (RFC 7838): tried beside the traffic, used once a connection stands, left
//! as soon as it does not.
//!
//! No exchange ever waits for QUIC here, since a network that swallows UDP says so by nothing but silence: exchanges go
//! over TCP until a connection stands, and again from when it is gone. A target is reached at its own address under
//! another port at most, with a certificate that is checked for the same name: `Alt-Svc` can't send traffic elsewhere.

mod service;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::balance::ConnectionPlace;
use gateway_core::http::body::Body;
use gateway_core::http::downstream::Downstream;
use gateway_core::http::reply::Cause;
use gateway_core::http::upstream::{Call, Failure, TargetResponse};
use http::header::{AGE, ALT_SVC};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::dial::Destination;
use super::dial_error::DialError;
use super::{Inner, MAX_LEARNED, Pools, Quic, Version, h3, kept_until, key};
use service::service;

/// After the first failure over QUIC; doubled with each one after that.
const REST: Duration = Duration::from_secs(60);
/// Doublings, up to some 17 hours.
const MAX_DOUBLINGS: u32 = 10;
/// Connections made at a time for targets that said so; the others' turn comes with their next answers.
const MAX_DIALLING: usize = 32;

/// What a worker's targets have said, by pool key.
#[derive(Default)]
pub(super) struct Alternatives {
    known: HashMap<u64, Alternative>,
    dialling: usize,
}

/// What one target has said.
struct Alternative {
    /// Word for word: targets say it with every answer.
    said: HeaderValue,
    port: u16,
    /// How long it holds from when it was said.
    fresh: Duration,
    until: Instant,
    /// Failures since something went well.
    failures: u32,
    state: AlternativeState,
}

enum AlternativeState {
    Untried,
    Dialling,
    /// In use; and the version in which the target is spoken to otherwise, where that is known.
    Open(Quic, Option<Version>),
    /// Left alone for a while.
    Resting(Instant),
}

impl Alternatives {
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// What RFC 9111 §4.2.3 has a cache on the way say: how long ago the target said it.
fn age(headers: &HeaderMap) -> Duration {
    let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.parse().ok());
    age.map_or(Duration::ZERO, Duration::from_secs)
}

impl Pools {
    /// Lets go of what is not used any more or does not hold any more.
    pub(super) fn sweep_alternatives(&mut self, now: Instant) {
        if self.alternatives.is_empty() {
            return;
        }
        let learned = &mut self.learned;
        self.alternatives.known.retain(|key, alternative| {
            let holds = alternative.until > now;
            if let AlternativeState::Open(quic, _) = &alternative.state
                && !(holds && quic.is_kept(now))
            {
                alternative.leave(*key, learned, AlternativeState::Untried);
            }
            holds || matches!(alternative.state, AlternativeState::Dialling)
        });
    }

    /// What a target turned out to speak over TCP.
    pub(super) fn learn(&mut self, key: u64, version: Version) {
        match self.alternatives.known.get_mut(&key) {
            Some(Alternative { state: AlternativeState::Open(_, below), .. }) => *below = Some(version),
            _ => drop(self.learned.insert(key, version)),
        }
    }

    /// What is known of what a target speaks over TCP.
    pub(super) fn over_tcp(&self, key: u64) -> Option<Version> {
        match self.alternatives.known.get(&key) {
            Some(Alternative { state: AlternativeState::Open(_, below), .. }) => *below,
            _ => self.learned.get(&key).copied(),
        }
    }

    /// The connection over which the target is spoken to; when there is none any more, it is spoken to as before.
    fn open_alternative(&mut self, call: &Call<'_>) -> Option<h3::H3Connection> {
        let (key, now) = (key(call), Instant::now());
        if let Some(alternative) = self.alternatives.known.get_mut(&key)
            && let AlternativeState::Open(quic, _) = &mut alternative.state
        {
            if alternative.until > now && quic.connection.is_open() {
                quic.until = kept_until(call);
                return Some(quic.connection.clone());
            }
            alternative.leave(key, &mut self.learned, AlternativeState::Untried);
        }
        if self.learned.get(&key) == Some(&Version::Http3) {
            self.learned.remove(&key);
        }
        None
    }

    /// Something went wrong that would not have over TCP, or well.
    fn judge_alternative(&mut self, key: u64, is_well: bool) {
        let Some(alternative) = self.alternatives.known.get_mut(&key) else { return };
        if is_well {
            alternative.failures = 0;
            return;
        }
        let rest = REST * (1 << alternative.failures.min(MAX_DOUBLINGS));
        alternative.failures += 1;
        alternative.leave(key, &mut self.learned, AlternativeState::Resting(Instant::now() + rest));
    }

    /// Takes in what a target says; where to connect, if that is to be tried now.
    fn note_alt_svc(
        &mut self,
        call: &Call<'_>,
        said: &HeaderValue,
        headers: &HeaderMap,
    ) -> Option<Destination> {
        let (key, now) = (key(call), Instant::now());
        let several = headers.get_all(ALT_SVC).iter().nth(1).is_some();
        let known = self.alternatives.known.get_mut(&key);
        let (port, fresh) = match known {
            Some(known) if known.said == said && !several => (known.port, known.fresh),
            _ => {
                let names = [Some(&*call.target.rules.host), server_name(call)];
                let found = service(headers.get_all(ALT_SVC).iter(), &names);
                let Some(found) = found.filter(|(_, fresh)| *fresh > age(headers)) else {
                    self.forget_alternative(key);
                    return None;
                };
                found
            }
        };
        let until = now + fresh.saturating_sub(age(headers));
        if self.alternatives.known.get(&key).is_some_and(|known| known.port != port) {
            self.forget_alternative(key);
        }
        if self.alternatives.known.len() >= MAX_LEARNED && !self.alternatives.known.contains_key(&key) {
            return None;
        }
        let fresh_one = || Alternative {
            said: said.clone(),
            port,
            fresh,
            until,
            failures: 0,
            state: AlternativeState::Untried,
        };
        let alternative = self.alternatives.known.entry(key).or_insert_with(fresh_one);
        (alternative.until, alternative.fresh) = (until, fresh);
        if alternative.said != said {
            alternative.said.clone_from(said);
        }
        let is_due = match &mut alternative.state {
            AlternativeState::Untried => true,
            AlternativeState::Resting(until) => *until <= now,
            AlternativeState::Dialling => false,
            AlternativeState::Open(_, below) => {
                // All versions may have been forgotten in the meantime, as there were too many.
                let before = self.learned.insert(key, Version::Http3);
                if before != Some(Version::Http3) {
                    *below = before;
                }
                false
            }
        };
        if !is_due || self.alternatives.dialling >= MAX_DIALLING {
            return None;
        }
        alternative.state = AlternativeState::Dialling;
        self.alternatives.dialling += 1;
        Some(Destination::of(call).at(port).at_leisure())
    }

    /// What came of trying.
    fn tried(
        &mut self,
        to: &Destination,
        kept: Option<Instant>,
        dialled: Result<h3::H3Connection, DialError>,
    ) {
        self.alternatives.dialling = self.alternatives.dialling.saturating_sub(1);
        let Some(alternative) = self.alternatives.known.get_mut(&to.key) else { return };
        if !matches!(alternative.state, AlternativeState::Dialling) || alternative.port != to.port {
            return;
        }
        match dialled {
            Ok(connection) => {
                tracing::info!(target = %to.host, port = to.port, "the target is spoken to over HTTP/3 from now on");
                let below = self.learned.insert(to.key, Version::Http3);
                alternative.state = AlternativeState::Open(Quic { connection, until: kept }, below);
            }
            // The target's connections are all in use; there may be one for it later.
            Err(DialError::NoPlace { .. }) => alternative.state = AlternativeState::Untried,
            Err(error) => {
                tracing::info!(%error, target = %to.host, "no HTTP/3, though the target offers it; TCP goes on");
                self.judge_alternative(to.key, false);
            }
        }
    }

    /// Whether a connection is kept because the target has offered it.
    pub(super) fn has_alternative(&self, key: u64) -> bool {
        let known = self.alternatives.known.get(&key);
        known.is_some_and(|alternative| matches!(alternative.state, AlternativeState::Open(..)))
    }

    pub(super) fn forget_alternative(&mut self, key: u64) {
        if let Some(mut alternative) = self.alternatives.known.remove(&key) {
            if matches!(alternative.state, AlternativeState::Dialling) {
                self.alternatives.dialling = self.alternatives.dialling.saturating_sub(1);
            }
            alternative.leave(key, &mut self.learned, AlternativeState::Untried);
        }
    }
}

/// The name looked for in the target's certificate, where it is not its host.
fn server_name<'c>(call: &Call<'c>) -> Option<&'c str> {
    call.backend.tls.as_ref()?.server_name.as_deref()
}

impl Alternative {
    /// The target is spoken to as before it was spoken to over QUIC.
    fn leave(&mut self, key: u64, learned: &mut HashMap<u64, Version>, next: AlternativeState) {
        if let AlternativeState::Open(_, below) = std::mem::replace(&mut self.state, next)
            && learned.get(&key) == Some(&Version::Http3)
        {
            match below {
                Some(below) => learned.insert(key, below),
                None => learned.remove(&key),
            };
        }
    }
}

impl Inner {
    /// Looks whether an answer says where else its target is.
    pub(super) fn note_alt_svc(self: &Arc<Self>, call: &Call<'_>, answer: &TargetResponse) {
        let headers = answer.response.headers();
        let Some(said) = headers.get(ALT_SVC) else { return };
        let to = match self.pools.try_borrow_mut() {
            Ok(mut pools) => pools.note_alt_svc(call, said, headers),
            Err(_) => None,
        };
        let Some(to) = to else { return };
        let (inner, kept) = (self.clone(), kept_until(call));
        tokio::spawn(async move {
            let dialled = inner.dialler.dial_quic(&to).await;
            if let Ok(connection) = &dialled {
                inner.note_counted(to.key, connection.place().map(ConnectionPlace::kept));
            }
            if let Ok(mut pools) = inner.pools.try_borrow_mut() {
                pools.tried(&to, kept, dialled);
            }
        });
    }

    /// Sends to a target that is spoken to over HTTP/3 because it said so.
    pub(super) async fn send_alternative<D: Downstream>(
        self: &Arc<Self>,
        call: &Call<'_>,
        mut body: Body,
        downstream: &mut D,
    ) -> Result<TargetResponse, Failure> {
        let key = key(call);
        let open = self.pools.try_borrow_mut().ok().and_then(|mut pools| pools.open_alternative(call));
        let over_tcp = || self.pools.try_borrow().ok().and_then(|pools| pools.over_tcp(key));
        let Some(connection) = open else {
            return self.send_over_tcp(over_tcp(), call, &mut body, downstream).await;
        };
        let copy = body.replay();
        let mut sent = h3::send(connection.clone(), call, body, downstream).await;
        let is_well = match &mut sent {
            // RFC 7838 §6: this is not where the target's answers are.
            Ok(answer) => answer.response.status() != StatusCode::MISDIRECTED_REQUEST,
            Err(failure) => {
                // A connection that is gone says nothing about the target, which is still there over TCP.
                failure.stale |= !connection.is_open();
                !connection.is_broken()
                    && !matches!(failure.cause, Cause::UpstreamTimeout | Cause::UpstreamGarbage)
            }
        };
        if let Ok(mut pools) = self.pools.try_borrow_mut() {
            pools.judge_alternative(key, is_well);
        }
        let again = match &mut sent {
            Ok(_) => copy.filter(|_| !is_well),
            // There was no room for one more, or no connection any more: nothing has been sent.
            Err(failure) => failure.body.take(),
        };
        let Some(mut body) = again else { return sent };
        drop(sent);
        self.send_over_tcp(over_tcp(), call, &mut body, downstream).await
    }
}
