//! One request with a key, from its arrival until its answer is stored.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use gateway_core::config::model::Consumer;
use gateway_core::consumer::Identity;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::credentials::is_credential_field;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Seat, Step, Verdict};
use gateway_plugin_common::redis_link::{OnError, Sha256};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response};
use tokio::sync::watch;
use tokio::time::Instant;

use super::recording::{self, Read, RecordingReader};
use super::saved::Saved;
use super::{
    Counts, DeduplicationRefusal, Key, KeyStatus, Print, RequestDeduplication, RequestOutcome, local, shared,
};

/// The longest a request may take where its proxy sets no limit.
const LONGEST: Duration = Duration::from_secs(600);
/// The pauses between two looks into a shared store while another request is under way.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// The first request with a key, under way. Dropped, it counts as not carried out where nothing was sent, else as unknown.
pub(super) struct Ticket {
    claim: Option<Claim>,
    /// Attempts that may have reached the target.
    pub(super) sent: u32,
    counts: Arc<Counts>,
}

enum Claim {
    Local(local::Claim),
    Shared(shared::Claim),
    /// The store did not answer in time, and may have the key all the same.
    Both(local::Claim, shared::Claim),
}

impl Ticket {
    fn settle(&mut self, outcome: RequestOutcome) {
        let Some(claim) = self.claim.take() else { return };
        match &outcome {
            RequestOutcome::Answered(_) => &self.counts.stored,
            RequestOutcome::Unknown => &self.counts.unknown,
            RequestOutcome::Spent => &self.counts.spent,
            RequestOutcome::Free => &self.counts.free,
        }
        .add(1);
        match claim {
            Claim::Local(claim) => claim.settle(outcome, Instant::now()),
            Claim::Shared(claim) => claim.settle(&outcome),
            Claim::Both(local, shared) => {
                shared.settle(&outcome);
                local.settle(outcome, Instant::now());
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let outcome = if self.sent == 0 { RequestOutcome::Free } else { RequestOutcome::Unknown };
        self.settle(outcome);
    }
}

/// Nothing is sent for a claim of which nothing was heard.
fn give_back(claim: Option<shared::Claim>) {
    if let Some(claim) = claim {
        claim.settle(&RequestOutcome::Free);
    }
}

/// What was found for a request.
enum ClaimOutcome {
    First(Claim),
    /// The first is under way; with the channel that closes when it has ended, where it is this gateway's.
    Pending(Option<watch::Receiver<()>>),
    Held(KeyStatus),
    Full,
    /// The store can't be asked, and the request passes.
    Passes,
    Away,
}

impl RequestDeduplication {
    pub(super) async fn arrive(&self, exchange: &mut Exchange, seat: Seat<'_>, key: Key) -> Verdict {
        let (bytes, trailers) = match exchange.body.collect(self.rules.max_body).await {
            Ok(read) => read,
            Err(BodyError::TooLarge { .. }) => {
                return Verdict::reply(self.refuse(exchange, DeduplicationRefusal::TooLarge));
            }
            Err(error) => return Verdict::Reply(error.into_reply()),
        };
        let print = print(exchange, seat, &self.rules.header, &bytes);
        exchange.body = match trailers {
            Some(trailers) => Body::full_with_trailers(bytes, trailers),
            None => Body::full(bytes),
        };
        let within = longest(seat);
        let deadline = Instant::now() + self.rules.wait.unwrap_or_default();
        let mut pause = PAUSES.0;
        loop {
            match self.claim(key, print, within).await {
                ClaimOutcome::First(claim) => {
                    self.counts.first.add(1);
                    let ticket = Ticket { claim: Some(claim), sent: 0, counts: self.counts.clone() };
                    exchange.state.put(seat, Some(ticket));
                    exchange.note("request_deduplication.outcome", "first");
                    return Verdict::Next;
                }
                ClaimOutcome::Pending(ended) => {
                    if self.rules.wait.is_none() || Instant::now() >= deadline {
                        return Verdict::reply(self.refuse(exchange, DeduplicationRefusal::UnderWay));
                    }
                    wait(ended, pause, deadline).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                ClaimOutcome::Held(KeyStatus::Answered(saved)) => {
                    return Verdict::reply(self.replay(exchange, &saved));
                }
                ClaimOutcome::Held(KeyStatus::Unknown) => {
                    return Verdict::reply(self.refuse(exchange, DeduplicationRefusal::Unknown));
                }
                ClaimOutcome::Held(KeyStatus::Spent) => {
                    return Verdict::reply(self.refuse(exchange, DeduplicationRefusal::Spent));
                }
                ClaimOutcome::Held(KeyStatus::Other) => {
                    return Verdict::reply(self.refuse(exchange, DeduplicationRefusal::Other));
                }
                ClaimOutcome::Full => {
                    return Verdict::reply(self.refuse(exchange, DeduplicationRefusal::Full));
                }
                ClaimOutcome::Away => {
                    return Verdict::reply(self.refuse(exchange, DeduplicationRefusal::Away));
                }
                ClaimOutcome::Passes => return Verdict::Next,
            }
        }
    }

    async fn claim(&self, key: Key, print: Print, within: Duration) -> ClaimOutcome {
        let retries = self.rules.retries_unknown;
        let mut loose = None;
        if let Some(shared) = &self.shared {
            let asked = match shared.link.is_up() {
                true => shared.claim(key, print, within, self.rules.ttl, retries).await,
                false => Err(None),
            };
            match (asked, shared.link.on_error()) {
                (Ok(shared::SharedClaim::First(claim)), _) => {
                    return ClaimOutcome::First(Claim::Shared(claim));
                }
                (Ok(shared::SharedClaim::Pending), _) => return ClaimOutcome::Pending(None),
                (Ok(shared::SharedClaim::Held(held)), _) => return ClaimOutcome::Held(held),
                (Err(claim), OnError::Allow) => {
                    give_back(claim);
                    self.counts.allowed.add(1);
                    return ClaimOutcome::Passes;
                }
                (Err(claim), OnError::Deny) => {
                    give_back(claim);
                    self.counts.denied.add(1);
                    return ClaimOutcome::Away;
                }
                (Err(claim), OnError::Local) => {
                    self.counts.local.add(1);
                    loose = claim;
                }
            }
        }
        let found = self.table.claim(key, print, self.limits(), retries, Instant::now());
        let found = match (found, &mut loose) {
            (local::LocalClaim::First(claim), loose) => match loose.take() {
                Some(shared) => ClaimOutcome::First(Claim::Both(claim, shared)),
                None => ClaimOutcome::First(Claim::Local(claim)),
            },
            (local::LocalClaim::Pending(ended), _) => ClaimOutcome::Pending(Some(ended)),
            (local::LocalClaim::Held(held), _) => ClaimOutcome::Held(held),
            (local::LocalClaim::Full, _) => ClaimOutcome::Full,
        };
        give_back(loose);
        found
    }

    fn replay(&self, exchange: &mut Exchange, saved: &Saved) -> Reply {
        self.counts.replayed.add(1);
        exchange.note("request_deduplication.outcome", "replayed");
        let mut reply = Reply::response(saved.response()).reason("idempotent_replay");
        reply.is_error = Some(saved.status.is_server_error());
        reply
    }

    /// Stores a target's answer on its way to the client.
    pub(super) fn keep<'a>(
        &self,
        mut ticket: Ticket,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let status = response.status();
        if self.rules.unstored.has(meaning(response.headers()).unwrap_or(status.as_u16())) {
            ticket.settle(RequestOutcome::Free);
            return Step::Next;
        }
        let limit = self.rules.max_response;
        let is_long = response.body().exact_length().is_some_and(|length| length > limit);
        if is_long || gateway_plugin_common::headers::is_event_stream(response.headers()) {
            ticket.settle(RequestOutcome::Spent);
            return Step::Next;
        }
        let unstored = UNAVAILABLE.map(|(grpc, status)| (grpc, self.rules.unstored.has(status)));
        let within = longest(seat);
        let (reading, client) = recording::split(std::mem::take(response.body_mut()));
        let mut storing =
            Box::pin(store(ticket, status, response.headers().clone(), reading, limit, within, unstored));
        // Most answers are there already.
        match storing.as_mut().now_or_never() {
            Some(true) => *response.body_mut() = client,
            Some(false) => return Step::reply(Reply::new(Cause::UpstreamClosed)),
            // A client that leaves ends nothing: a task of its own reads on.
            None => match tokio::runtime::Handle::try_current() {
                Ok(runtime) => {
                    drop(runtime.spawn(storing));
                    *response.body_mut() = client;
                }
                Err(_) => return Step::reply(Reply::new(Cause::Internal)),
            },
        }
        Step::Next
    }
}

/// Reads an answer and stores it; says whether it came to its end.
async fn store(
    mut ticket: Ticket,
    status: http::StatusCode,
    headers: HeaderMap,
    reading: RecordingReader,
    limit: u64,
    within: Duration,
    unstored: [(u8, bool); 4],
) -> bool {
    match tokio::time::timeout(within, reading.read(limit)).await {
        Ok(Read::Whole(bytes, trailers)) => {
            let code = trailers.as_ref().and_then(grpc_status);
            if code.is_some_and(|code| unstored.contains(&(code, true))) {
                ticket.settle(RequestOutcome::Free);
            } else {
                let saved = Saved::new(status, headers, bytes, trailers);
                ticket.settle(RequestOutcome::Answered(Arc::new(saved)));
            }
            true
        }
        Ok(Read::TooLong) => {
            ticket.settle(RequestOutcome::Spent);
            true
        }
        Ok(Read::CutOff) | Err(_) => {
            ticket.settle(RequestOutcome::Unknown);
            false
        }
    }
}

/// Waits until the first request has ended, or for a while.
async fn wait(ended: Option<watch::Receiver<()>>, pause: Duration, deadline: Instant) {
    let waiting = async {
        match ended {
            // It never changes; it closes.
            Some(mut ended) => drop(ended.changed().await),
            None => tokio::time::sleep(pause).await,
        }
    };
    let _in_time = tokio::time::timeout_at(deadline, waiting).await;
}

fn longest(seat: Seat<'_>) -> Duration {
    let total = seat.proxy().timeouts.total;
    if total.is_zero() { LONGEST } else { total.min(LONGEST) }
}

/// What a request looks like: everything by which a target could tell it from another one, but header fields that change
/// with every attempt. Where nobody has recognised the caller, the credentials say who it is: the target may go by them, and
/// its answer is for that caller only.
fn print(exchange: &Exchange, seat: Seat<'_>, key: &HeaderName, body: &Bytes) -> Print {
    let mut hash = Sha256::default();
    let host = exchange.authority().unwrap_or_default().to_ascii_lowercase();
    let uri = exchange.uri();
    let target = uri.path_and_query().map_or_else(|| uri.path(), |target| target.as_str());
    let headers = &exchange.request.headers;
    let kinds = headers.get_all(CONTENT_TYPE).iter().map(|kind| kind.as_bytes());
    let is_known = exchange.identity.as_deref().is_some_and(is_recognised);
    let certificate = exchange.client.tls.as_ref().and_then(|tls| tls.certificate.as_deref());
    let certificate = certificate.filter(|_| !is_known);
    let names_caller = |name: &HeaderName| {
        is_credential_field(name)
            || seat.state().plugins.read_credential_in(name)
            // Another server let the request in, and only that server knows by which field.
            || (exchange.is_checked() && !changes_with_attempts(name) && name != key)
    };
    let is_id = |value: &HeaderValue| exchange.request_id() == Some(value);
    let mut callers: Vec<(&HeaderName, &HeaderValue)> =
        headers.iter().filter(|(name, value)| !is_known && names_caller(name) && !is_id(value)).collect();
    // Clients need not keep to one order of fields; that of the values of one field counts.
    callers.sort_by_key(|(name, _)| name.as_str());
    let callers = callers.into_iter().flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]);
    let parts = [exchange.method().as_str().as_bytes(), host.as_bytes(), target.as_bytes()];
    for part in parts.into_iter().chain(kinds).chain([body.as_ref()]).chain(callers).chain(certificate) {
        hash.write_usize(part.len());
        hash.write(part);
    }
    hash.digest()
}

/// Whether a field says nothing about the caller, and may be another one when a client sends a request again.
fn changes_with_attempts(name: &HeaderName) -> bool {
    const CHANGING: &[&str] = &[
        "accept-encoding",
        "b3",
        "baggage",
        "cache-control",
        "connection",
        "content-length",
        "date",
        "expect",
        "forwarded",
        "if-modified-since",
        "if-none-match",
        "pragma",
        "priority",
        "te",
        "traceparent",
        "tracestate",
        "user-agent",
        "via",
        "x-amzn-trace-id",
        "x-cloud-trace-context",
        "x-correlation-id",
        "x-real-ip",
        "x-request-id",
    ];
    let name = name.as_str();
    CHANGING.binary_search(&name).is_ok()
        || ["x-forwarded-", "x-b3-", "sec-"].iter().any(|start| name.starts_with(start))
}

/// Whether a plugin knows the caller by a credential. Others are all one anonymous consumer, which has none.
fn is_recognised(identity: &Identity) -> bool {
    let has_credentials = |consumer: &Arc<Consumer>| !consumer.credentials.is_empty();
    identity.claims.is_some() || identity.consumer.as_ref().is_none_or(has_credentials)
}

/// gRPC statuses that say that nothing was carried out, as HTTP says the same.
const UNAVAILABLE: [(u8, u16); 4] = [(16, 401), (7, 403), (8, 429), (14, 503)];

fn grpc_status(headers: &HeaderMap) -> Option<u8> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// What a gRPC status in the head means in HTTP.
fn meaning(headers: &HeaderMap) -> Option<u16> {
    let code = grpc_status(headers)?;
    UNAVAILABLE.iter().find(|(grpc, _)| *grpc == code).map(|(_, status)| *status)
}
