//! One request on its way through the gateway, as the plugins see it.

mod chosen;
mod client;
mod codings;
mod field;
mod fork;
mod hop;
mod id;
mod marks;
mod plugin_state;
mod told;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::body::Body;
use super::dialect::Dialect;
use super::forwarding::Forwarding;
use super::reply::{Origin, Reply};
use crate::balance::Subset;
use crate::config::consumer::Identity;
use crate::http::upstream::{Phases, TargetResponse};
use crate::limit::hedging::Hedged;
use crate::route::Captures;
use crate::trace::{MAX_WAITS, TraceContext, Waited};
pub use client::{Client, ClientTls, canonical};
pub use field::{Field, MAX_FIELD_BYTES, MAX_FIELDS};
pub use fork::Fork;
pub use id::uuid;
pub use marks::{LateReason, LateStatus};
pub use plugin_state::{PluginState, SeatNumber};

/// One request with its response.
#[derive(Debug)]
pub struct Exchange {
    /// The request's head. Plugins may change headers; hop-by-hop ones are already gone.
    pub request: Parts,
    /// The request's body.
    pub body: Body,
    /// Who is at the other end.
    pub client: Arc<Client>,
    /// The address that counts as the client's, behind trusted proxies not the peer's.
    pub client_address: IpAddr,
    /// How refusals are said.
    pub dialect: Dialect,
    /// The protocol asked for by an upgrade (`websocket`), when the dialect is [`Dialect::Upgrade`].
    pub upgrade: Option<HeaderValue>,
    /// Path and query to forward instead of what the proxy's rules would make of the target; set by plugins.
    pub forward_path: Option<String>,
    /// What the target is told about the way here; empty until the plugins have seen the request.
    pub forwarding: Forwarding,
    /// Who the caller was recognised as.
    pub identity: Option<Arc<Identity>>,
    /// When the client gives up, where it said so. A plugin may set an earlier moment before a target is asked.
    pub deadline: Option<Instant>,
    /// When the head had been read.
    pub started: Instant,
    /// Whether the client takes trailers (`TE: trailers`).
    pub trailers: bool,
    /// Whether it is carried out before the client's handshake is over (RFC 8470).
    pub early: bool,
    /// What the names in the route's path stood for; `None` where it has none.
    pub captures: Option<Box<Captures>>,
    /// The trace it belongs to, where a plugin traces it.
    pub trace: Option<TraceContext>,
    /// What plugins remember between their hooks.
    pub state: PluginState,
    pub(crate) origin: Origin,
    /// What the request's own id is made of.
    id_seed: u64,
    is_id_in_use: AtomicBool,
    /// Whether the client used TLS, also in front of a trusted proxy.
    pub(crate) is_https: bool,
    /// How much of the path the route took.
    pub(crate) path_bytes: usize,
    /// `Host` as the client sent it.
    pub(crate) host: Option<HeaderValue>,
    rare: Option<Box<Rare>>,
}

/// What only some exchanges have, so that the others don't carry its room along.
#[derive(Debug, Default)]
struct Rare {
    sent: Option<Uri>,
    request_id: Option<HeaderValue>,
    /// Which plugins run for it, by place, as far as that was asked.
    decided: Vec<(u16, bool)>,
    upstream: Option<Arc<str>>,
    subset: Option<Arc<Subset>>,
    forward_host: Option<HeaderValue>,
    fields: Vec<(&'static str, Field)>,
    reason: Option<&'static str>,
    /// The place of the plugin whose hook answered.
    decider: Option<u16>,
    not_an_error: bool,
    waits: Vec<Waited>,
    answered: Option<Box<(StatusCode, HeaderMap)>>,
    detached: Option<Box<Fork>>,
    queued: Option<Duration>,
    phases: Option<Phases>,
    sent_once: bool,
    checked: bool,
    again: bool,
    late_reason: Option<LateReason>,
    late_status: Option<LateStatus>,
    failure: Option<Box<dyn std::error::Error + Send + Sync>>,
    hedged: Hedged,
    /// What targets are told of the way in place of the gateway's own values.
    told: Vec<(HeaderName, Option<HeaderValue>)>,
    /// What the client said to this hop.
    hop: Option<Box<HeaderMap>>,
    /// What the client says in `Accept-Encoding`, while the target is asked for a plain body.
    accepted: Vec<HeaderValue>,
}

impl Exchange {
    /// An exchange as an adapter hands it over.
    pub fn new(request: http::Request<Body>, client: Arc<Client>) -> Self {
        let (request, body) = request.into_parts();
        let client_address = canonical(client.peer.ip());
        let is_https = client.tls.is_some();
        Self {
            request,
            body,
            client,
            client_address,
            dialect: Dialect::Plain,
            upgrade: None,
            forward_path: None,
            forwarding: Forwarding::default(),
            identity: None,
            deadline: None,
            started: Instant::now(),
            trailers: false,
            early: false,
            captures: None,
            trace: None,
            state: PluginState::default(),
            origin: Origin::Gateway,
            id_seed: fastrand::u64(..),
            is_id_in_use: AtomicBool::new(false),
            is_https,
            path_bytes: 0,
            host: None,
            rare: None,
        }
    }

    /// The request's method.
    pub fn method(&self) -> &Method {
        &self.request.method
    }

    /// The request's target as the client sent it. Routing and targets see [`Self::path`], its normalised form.
    pub fn uri(&self) -> &Uri {
        self.rare.as_ref().and_then(|rare| rare.sent.as_ref()).unwrap_or(&self.request.uri)
    }

    /// Removes a field that the client sent. It does not come with the trailers either, which there are targets that take for
    /// fields of the head.
    pub fn remove_header(&mut self, name: &HeaderName) -> Option<HeaderValue> {
        self.body.withhold_trailer(name);
        self.request.headers.remove(name)
    }

    /// Takes these fields for those of the head. What was removed or set does not come with the trailers either, as by
    /// [`Self::remove_header`].
    pub fn replace_headers(&mut self, headers: HeaderMap) {
        let before = std::mem::replace(&mut self.request.headers, headers);
        let after = &self.request.headers;
        let differs = |name: &&HeaderName| !before.get_all(*name).iter().eq(after.get_all(*name).iter());
        let new = after.keys().filter(|name| !before.contains_key(*name));
        before.keys().filter(differs).chain(new).for_each(|name| self.body.withhold_trailer(name));
    }

    /// The normalised path, as routing sees it.
    pub fn path(&self) -> &str {
        self.request.uri.path()
    }

    /// Puts a normalised target in the place of the one that was sent.
    pub(crate) fn normalised(&mut self, uri: Uri) {
        let before = std::mem::replace(&mut self.request.uri, uri);
        // What the client sent, however often the path changes.
        self.rare().sent.get_or_insert(before);
    }

    /// Whether the plugin at this place runs for this exchange, where that has been decided.
    pub(crate) fn decision(&self, place: u16) -> Option<bool> {
        let decided = &self.rare.as_ref()?.decided;
        decided.iter().find(|(of, _)| *of == place).map(|(_, runs)| *runs)
    }

    /// Notes whether the plugin at this place runs for this exchange.
    pub(crate) fn note_decision(&mut self, place: u16, runs: bool) {
        self.rare().decided.push((place, runs));
    }

    /// What was decided so far, for the session that this exchange becomes.
    pub(crate) fn decisions(&self) -> Vec<(u16, bool)> {
        self.rare.as_ref().map_or_else(Vec::new, |rare| rare.decided.clone())
    }

    /// Gives the request an id for logs, templates and errors.
    pub fn set_request_id(&mut self, id: HeaderValue) {
        self.rare().request_id = Some(id);
    }

    /// The id that a plugin gave the request; [`Self::id`] is there without one as well.
    pub fn request_id(&self) -> Option<&HeaderValue> {
        self.rare.as_ref()?.request_id.as_ref()
    }

    /// Sends this host to the target instead of what the proxy's rules would send. Who is connected to, and whose
    /// certificate is expected, stays as it is.
    pub fn set_forward_host(&mut self, host: HeaderValue) {
        self.rare().forward_host = Some(host);
    }

    /// The host that a plugin has sent to the target.
    pub fn forward_host(&self) -> Option<&HeaderValue> {
        self.rare.as_ref()?.forward_host.as_ref()
    }

    /// Replaces the query of the request's target, without its `?`; [`Self::uri`] stays what the client sent.
    ///
    /// # Errors
    /// A query with characters that none may have.
    pub fn set_query(&mut self, query: Option<&str>) -> Result<(), http::Error> {
        let mut parts = self.request.uri.clone().into_parts();
        let path = self.request.uri.path();
        let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        parts.path_and_query = Some(target.parse()?);
        let changed = Uri::from_parts(parts)?;
        let before = std::mem::replace(&mut self.request.uri, changed);
        self.rare().sent.get_or_insert(before);
        Ok(())
    }

    /// A copy of this request for plugins, without the client; `None` when its body can't be sent twice.
    pub(crate) fn copied(&self) -> Option<Box<Self>> {
        let rare = self.rare.as_ref().map(|rare| {
            Box::new(Rare {
                sent: rare.sent.clone(),
                request_id: rare.request_id.clone(),
                decided: rare.decided.clone(),
                upstream: rare.upstream.clone(),
                subset: rare.subset.clone(),
                forward_host: rare.forward_host.clone(),
                checked: rare.checked,
                hop: rare.hop.clone(),
                told: rare.told.clone(),
                ..Rare::default()
            })
        });
        Some(Box::new(Self {
            request: self.request.clone(),
            body: self.body.replay()?,
            client: self.client.clone(),
            client_address: self.client_address,
            dialect: self.dialect,
            upgrade: None,
            forward_path: self.forward_path.clone(),
            forwarding: Forwarding::default(),
            identity: self.identity.clone(),
            deadline: None,
            started: Instant::now(),
            trailers: false,
            early: self.early,
            captures: self.captures.clone(),
            trace: self.trace,
            state: PluginState::default(),
            origin: Origin::Gateway,
            id_seed: self.id_seed,
            is_id_in_use: AtomicBool::new(self.is_id_in_use.load(Ordering::Relaxed)),
            is_https: self.is_https,
            path_bytes: self.path_bytes,
            host: self.host.clone(),
            rare,
        }))
    }

    /// Sends a copy on by itself; one for each exchange, the last. Dropped where the gateway is at its limits.
    pub fn detach(&mut self, fork: Box<Fork>) {
        self.rare().detached = Some(fork);
    }

    /// What was detached.
    pub(crate) fn take_detached(&mut self) -> Option<Box<Fork>> {
        self.rare.as_mut()?.detached.take()
    }

    /// Adds a field to the access record, or replaces the one of this name. Names are like `waf.score`: the plugin, a
    /// dot, snake case.
    pub fn note(&mut self, name: &'static str, value: impl Into<Field>) {
        let fields = &mut self.rare().fields;
        let value = value.into();
        if let Some(field) = fields.iter_mut().find(|(known, _)| *known == name) {
            field.1 = value;
        } else if fields.len() < MAX_FIELDS {
            fields.push((name, value));
        }
    }

    /// The fields that plugins added.
    pub fn fields(&self) -> &[(&'static str, Field)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.fields)
    }

    /// What became of its hedges.
    pub fn hedged(&self) -> Hedged {
        self.rare.as_ref().map_or_else(Hedged::default, |rare| rare.hedged)
    }

    pub(crate) fn note_hedges(&mut self, note: impl FnOnce(&mut Hedged)) {
        note(&mut self.rare().hedged);
    }

    /// How long it waited for a target with room; `None` where it did not.
    pub fn queued(&self) -> Option<Duration> {
        self.rare.as_ref()?.queued
    }

    /// How long the steps to its connection took; `None` where the target was asked over a kept one.
    pub fn phases(&self) -> Option<Phases> {
        self.rare.as_ref()?.phases
    }

    /// Notes that it waited for a target with room.
    #[cold]
    pub(crate) fn note_queued(&mut self, since: Instant) {
        let waited = since.elapsed();
        let queued = &mut self.rare().queued;
        *queued = Some(queued.unwrap_or_default() + waited);
    }

    /// When an answer to an attempt that began then was there. Notes how long the steps to its connection took, where it
    /// came over a new one.
    #[inline]
    pub(crate) fn answered_at(&mut self, begun: Instant, answer: &mut TargetResponse) -> Instant {
        if answer.reused { begun + answer.first_byte } else { self.note_phases(answer) }
    }

    #[cold]
    fn note_phases(&mut self, answer: &mut TargetResponse) -> Instant {
        if let Some(phases) = answer.response.extensions_mut().remove::<Phases>() {
            self.rare().phases = Some(phases);
        }
        Instant::now()
    }

    /// Notes that a plugin's hook waited, where the exchange is traced.
    pub(crate) fn note_wait(&mut self, place: u16, hook: &'static str, began: Option<Instant>) {
        let Some(began) = began.filter(|_| self.trace.is_some()) else { return };
        let waits = &mut self.rare().waits;
        if waits.len() < MAX_WAITS {
            waits.push(Waited { place, hook, began, ended: Instant::now() });
        }
    }

    /// The plugins' hooks that waited, in the order in which they ended; of traced exchanges only.
    pub fn waits(&self) -> &[Waited] {
        self.rare.as_ref().map_or(&[], |rare| &rare.waits)
    }

    /// Keeps these headers of the response for its record.
    pub(crate) fn keep_answer<B>(&mut self, response: &Response<B>, wanted: &[HeaderName]) {
        let mut kept = HeaderMap::new();
        for name in wanted {
            response.headers().get_all(name).iter().for_each(|value| _ = kept.append(name, value.clone()));
        }
        self.rare().answered = Some(Box::new((response.status(), kept)));
    }

    /// The response's status and those of its headers that were kept.
    pub fn answered(&self) -> Option<(StatusCode, &HeaderMap)> {
        self.rare.as_ref()?.answered.as_deref().map(|(status, headers)| (*status, headers))
    }

    /// Whether the response is a target's, rather than the gateway's own; told to response hooks.
    pub fn is_from_target(&self) -> bool {
        self.origin == Origin::Target
    }

    /// Whether the response gives out again what a target said to another request; told to response hooks.
    pub fn is_replay(&self) -> bool {
        self.origin == Origin::Replay
    }

    /// The response that a reply is to this request, in its dialect; a problem document names the trace it belongs to.
    pub fn response_of(&self, mut reply: Reply) -> Response<Body> {
        reply.trace = self.trace.map(|context| context.trace);
        match self.web_call() {
            Some((kind, content_type)) => reply.into_grpc_web(kind, content_type.clone()),
            None => reply.into_response(self.dialect),
        }
    }

    /// Notes what a reply says about itself.
    pub(crate) fn note_reply(&mut self, reply: &Reply) {
        self.origin = if reply.is_replay { Origin::Replay } else { Origin::Gateway };
        let is_plain_error = reply.is_error() && reply.reason.is_none();
        if self.rare.is_some() || !is_plain_error {
            let rare = self.rare();
            (rare.reason, rare.not_an_error) = (reply.reason, !reply.is_error());
        }
    }

    /// Whether the gateway's own answer is no error.
    pub(crate) fn is_no_error(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.not_an_error)
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// The client's HTTP version.
    pub fn version(&self) -> Version {
        self.request.version
    }

    /// Whether the client takes success for the switch that it asked for: so over HTTP/2 and HTTP/3 (RFC 8441 §5), where no 101
    /// is sent.
    pub(crate) fn is_switched_by_success(&self) -> bool {
        self.upgrade.is_some() && self.version() >= Version::HTTP_2
    }

    /// The host that the client asked for, with its port where it named one; what plugins do to `Host` changes nothing.
    pub(crate) fn asked_host(&self) -> Option<&str> {
        match self.request.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => std::str::from_utf8(self.host.as_ref()?.as_bytes()).ok(),
        }
    }

    /// The host the client asked for, with its port if it gave one: `:authority`, else `Host`.
    pub fn authority(&self) -> Option<&str> {
        match self.request.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => self.request.headers.get(http::header::HOST).and_then(|host| host.to_str().ok()),
        }
    }
}
