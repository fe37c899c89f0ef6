//! Requests through the rules, on the worker or beside it.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Seat, Step, Verdict};
use gateway_waf::{RequestHead, Transaction};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderValue, StatusCode, Version};

use super::media;
use super::settings::{Mode, OnTrouble};
use super::{Firewall, give, take};

/// Heads and bodies that are larger than this are inspected on another thread: they can have many values.
const LARGE: usize = 2 << 10;

/// A transaction that waits for the response.
pub(super) struct Pending {
    pub(super) transaction: Transaction,
    /// The client's `Accept-Encoding`, which the target does not get.
    pub(super) accepted: Vec<HeaderValue>,
}

/// The name of a version, as the request line has it.
pub(super) fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// The head of a request in one piece, for another thread.
struct OwnedHead {
    method: Vec<u8>,
    target: Vec<u8>,
    version: &'static str,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    client: std::net::IpAddr,
    id: Vec<u8>,
}

/// Calls `with` with the head, as the client sent it.
pub(super) fn with_head<T>(exchange: &Exchange, with: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    let target = exchange.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let fields = &exchange.request.headers;
    let mut headers: Vec<(&[u8], &[u8])> = Vec::with_capacity(fields.len() + 2);
    if let (false, Some(authority)) = (fields.contains_key(HOST), exchange.authority()) {
        headers.push((b"host", authority.as_bytes()));
    }
    headers.extend(fields.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())));
    // What frames the body is gone by now, and rules ask for it.
    let length = exchange.body.exact_length().map(|length| length.to_string());
    if !exchange.body.is_empty() && !fields.contains_key(CONTENT_LENGTH) {
        match &length {
            Some(length) => headers.push((b"content-length", length.as_bytes())),
            None if exchange.version() < Version::HTTP_2 => headers.push((b"transfer-encoding", b"chunked")),
            None => {}
        }
    }
    with(&RequestHead {
        method: exchange.method().as_str().as_bytes(),
        target: target.as_bytes(),
        version: version(exchange.version()),
        headers: &headers,
        client: exchange.client_address,
        unique_id: exchange.request_id().map_or(b"", |id| id.as_bytes()),
    })
}

impl OwnedHead {
    fn of(head: &RequestHead<'_>) -> Self {
        Self {
            method: head.method.to_vec(),
            target: head.target.to_vec(),
            version: version_of(head.version),
            headers: head.headers.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            client: head.client,
            id: head.unique_id.to_vec(),
        }
    }

    fn run(&self, transaction: &mut Transaction) {
        let headers: Vec<(&[u8], &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        transaction.request_head(&RequestHead {
            method: &self.method,
            target: &self.target,
            version: self.version,
            headers: &headers,
            client: self.client,
            unique_id: &self.id,
        });
    }
}

fn version_of(text: &str) -> &'static str {
    ["HTTP/1.0", "HTTP/2.0", "HTTP/3.0"].into_iter().find(|it| *it == text).unwrap_or("HTTP/1.1")
}

/// Whether the head can have many values.
fn is_large(head: &RequestHead<'_>) -> bool {
    let headers: usize = head.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    head.target.len() > LARGE || headers > 4 * LARGE
}

/// Whether the body has a content coding.
pub(super) fn is_encoded(exchange: &Exchange) -> bool {
    let mut coded = exchange.request.headers.get_all(CONTENT_ENCODING).iter();
    coded.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether the body may have files in it, by its one content type.
pub(super) fn is_multipart(exchange: &Exchange) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let mut kinds = exchange.request.headers.get_all(CONTENT_TYPE).iter();
    let (Some(kind), None) = (kinds.next(), kinds.next()) else { return false };
    kind.as_bytes().get(..FORM.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(FORM))
}

/// What of the body is inspected.
enum Inspected {
    Nothing,
    Whole(Bytes),
}

impl Firewall {
    /// Inspects a request.
    pub(super) fn inspect<'a>(self: &'a Arc<Self>, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let is_grpc = exchange.dialect == Dialect::Grpc;
        // gRPC has no content codings: whoever decodes the body reads something else than its messages.
        let is_coded = is_encoded(exchange);
        if is_grpc && !is_coded && self.policy.grpc && !exchange.body.is_empty() {
            exchange.body = self.watch_messages(exchange);
        }
        let is_read = exchange.dialect == Dialect::Plain || (is_grpc && is_coded);
        let has_body = self.policy.body.inspect && is_read && !exchange.body.is_empty();
        let large = with_head(exchange, is_large);
        if has_body || large || self.shadow.is_some() {
            return Step::wait(self.inspect_all(exchange, seat, has_body));
        }
        let mut transaction = self.transaction();
        self.policy.exclude(&mut transaction, exchange);
        with_head(exchange, |head| transaction.request_head(head));
        transaction.request_body(b"");
        self.conclude(exchange, seat, transaction).map_or(Step::Next, Step::reply)
    }

    async fn inspect_all(&self, exchange: &mut Exchange, seat: Seat<'_>, has_body: bool) -> Verdict {
        let body = match self.take_body(exchange, has_body).await {
            Ok(body) => body,
            Err(reply) => return Verdict::Reply(reply),
        };
        let bytes = match &body {
            Inspected::Whole(bytes) => bytes.clone(),
            Inspected::Nothing => Bytes::new(),
        };
        let head = with_head(exchange, OwnedHead::of);
        let is_large = bytes.len() > LARGE || with_head(exchange, is_large);
        let mut transaction = self.transaction();
        self.policy.exclude(&mut transaction, exchange);
        let shadow = self.shadow.as_ref().map(|rules| {
            let mut shadow =
                Transaction::new(rules.clone(), self.policy.limits.clone(), take(&self.shadow_buffers));
            shadow.only_detect();
            shadow
        });
        let work = move || {
            let run = |mut transaction: Transaction| {
                head.run(&mut transaction);
                transaction.request_body(&bytes);
                transaction
            };
            (run(transaction), shadow.map(run))
        };
        let ran = if is_large { self.world.run_blocking(work).await } else { Ok(work()) };
        let Ok((transaction, shadow)) = ran else {
            // With every thread busy it can't be looked at, and does not go on.
            return match self.policy.mode {
                Mode::Block => Verdict::reply(Reply::new(Cause::Overloaded)),
                Mode::Detect | Mode::Off => Verdict::Next,
            };
        };
        if let Some(shadow) = shadow {
            self.audit.note_shadow(exchange, &shadow);
            give(&self.shadow_buffers, shadow.finish());
        }
        self.conclude(exchange, seat, transaction).map_or(Verdict::Next, Verdict::reply)
    }

    /// Reads the body, and puts it back; or says what becomes of a request whose body can't be inspected.
    async fn take_body(&self, exchange: &mut Exchange, has_body: bool) -> Result<Inspected, Box<Reply>> {
        if !has_body {
            return Ok(Inspected::Nothing);
        }
        let policy = &self.policy.body;
        let refuse = |reply: Reply, on: OnTrouble| match (on, self.policy.mode) {
            (OnTrouble::Reject, Mode::Block) => {
                self.outcomes.refused.add(1);
                Err(Box::new(reply))
            }
            _ => {
                self.outcomes.partial.add(1);
                Ok(Inspected::Nothing)
            }
        };
        if is_encoded(exchange) {
            exchange.note("waf.not_inspected", "compressed body");
            return refuse(body_encoded(), policy.encoded);
        }
        let limit = if is_multipart(exchange) { policy.max_upload } else { policy.max_size };
        let (bytes, trailers) = match exchange.body.collect(limit).await {
            Ok(read) => read,
            Err(BodyError::TooLarge { .. }) => {
                if media::is_media_type(&exchange.request.headers) {
                    let first = exchange.body.peek(limit).await.map_err(BodyError::into_reply)?;
                    if media::begins_as_media(&first) {
                        self.outcomes.partial.add(1);
                        exchange.note("waf.not_inspected", "large media");
                        return Ok(Inspected::Whole(first));
                    }
                }
                exchange.note("waf.not_inspected", "large body");
                return refuse(body_too_large(), policy.over_limit);
            }
            Err(error) => return Err(error.into_reply()),
        };
        exchange.body = match trailers {
            Some(trailers) => Body::full_with_trailers(bytes.clone(), trailers),
            None => Body::full(bytes.clone()),
        };
        Ok(Inspected::Whole(bytes))
    }

    /// What follows from an inspection: the refusal, where there is one.
    fn conclude(&self, exchange: &mut Exchange, seat: Seat<'_>, transaction: Transaction) -> Option<Reply> {
        let why = self.objection(&transaction);
        if transaction.is_partial() {
            self.outcomes.partial.add(1);
        }
        if transaction.matched_rules() > 0 || why.is_some() {
            self.audit.note(exchange, &transaction, why, self.policy.mode);
        }
        let reply = match (why, self.policy.mode) {
            (None, _) => {
                self.outcomes.passed.add(1);
                None
            }
            (Some(_), Mode::Block) => {
                self.outcomes.refused.add(1);
                Some(self.refusal())
            }
            (Some(_), Mode::Detect | Mode::Off) => {
                self.outcomes.would_refuse.add(1);
                None
            }
        };
        if reply.is_none() && self.policy.response.is_some() {
            self.ask_for_whole(exchange);
            exchange.state.put(seat, Some(Pending { transaction, accepted: Vec::new() }));
        } else {
            self.done(transaction);
        }
        reply
    }

    /// Why a request does not go on, in a word.
    pub(super) fn objection(&self, transaction: &Transaction) -> Option<&'static str> {
        if transaction.denied().is_some() {
            return Some("rules");
        }
        if transaction.body_error().is_some() && self.policy.body.malformed == OnTrouble::Reject {
            return Some("malformed_body");
        }
        if transaction.is_partial() && self.policy.exceeded == OnTrouble::Reject {
            return Some("limits");
        }
        None
    }

    /// What a client is told: nothing of the rules.
    pub(super) fn refusal(&self) -> Reply {
        let cause = if self.policy.deny_status == StatusCode::BAD_REQUEST {
            Cause::BadRequest
        } else {
            Cause::Forbidden
        };
        Reply::new(cause).status(self.policy.deny_status).hidden_reason("waf_rejected")
    }
}

/// The answer to a body that cannot be inspected because it is compressed.
pub(super) fn body_encoded() -> Reply {
    Reply::new(Cause::BadRequest).status(StatusCode::UNSUPPORTED_MEDIA_TYPE).hidden_reason("waf_body_encoded")
}

/// The answer to a body that is larger than what is inspected.
pub(super) fn body_too_large() -> Reply {
    Reply::new(Cause::BodyTooLarge).hidden_reason("waf_body_too_large")
}
