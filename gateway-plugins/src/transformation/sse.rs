//! Looks after event streams (`text/event-stream`): comments when nothing comes, so that nobody on the way gives up, and an
//! end after some time, so that clients spread over targets anew.
//!
//! Comments are written between lines only, and the stream ends between events, so that every event arrives whole.
//! Streams that the target has compressed are left alone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Millis, Seconds};
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::{Counter, Gauge};
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, OnResponse, Plugin, Seat, Step, World,
};
use gateway_plugin_common::headers;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, Sleep};

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// A comment, which clients ignore; without an empty line, which would end the event under way.
const HEARTBEAT: Bytes = Bytes::from_static(b":\n");
/// How long the end waits for an event that is under way.
const GRACE: Duration = Duration::from_secs(10);

/// Settings of `sse`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// After how long without a byte the gateway sends a comment; 0 disables it. Default 15 s.
    #[schemars(range(max = 86_400))]
    heartbeat: Seconds,
    /// How long clients wait before they reconnect (`retry`). Default: as the target specifies.
    #[schemars(range(min = 0.001, max = 3600))]
    retry: Option<Millis>,
    /// Longest duration of a stream. It ends between two events, and clients reconnect. Default 0: unlimited.
    max_duration: Seconds,
    /// Prevents buffering on the way to the client: adds `X-Accel-Buffering: no`, and `Cache-Control: no-cache` if the
    /// target sends none. Default true.
    no_buffering: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { heartbeat: Seconds(15), retry: None, max_duration: Seconds(0), no_buffering: true }
    }
}

/// The plugin.
pub(crate) struct Sse {
    heartbeat: Option<Duration>,
    retry: Option<Bytes>,
    lasts: Option<Duration>,
    says_no_buffering: bool,
    open: Gauge,
    heartbeats: Counter,
}

const OPEN: Metric = Metric::gauge("ferrum_sse_open_streams", "Event streams that are open.");
const HEARTBEATS: Metric =
    Metric::counter("ferrum_sse_heartbeats_total", "Comments sent because nothing else came.");

impl Plugin for Sse {
    const NAME: &'static str = "sse";
    const FAMILY: Family = Family::Transformation;
    const SUMMARY: &'static str = "Keeps event streams alive with comments, and limits their duration.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let given = |seconds: Seconds| Some(seconds.duration()).filter(|time| !time.is_zero());
        let (heartbeat, lasts) = (given(config.heartbeat), given(config.max_duration));
        if heartbeat.is_none() && lasts.is_none() && config.retry.is_none() && !config.no_buffering {
            return Err(Problems::one("config", "all of it is off, so nothing would be done"));
        }
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        Ok(Self {
            heartbeat,
            retry: config.retry.map(|retry| Bytes::from(format!("retry: {}\n\n", retry.0))),
            lasts,
            says_no_buffering: config.no_buffering,
            open: world.meters().gauge(OPEN, &["plugin_config"], &[owner]),
            heartbeats: world.meters().counter(HEARTBEATS, &["plugin_config"], &[owner]),
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::OnlyPrepares])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_response(self);
    }
}

impl OnRequest for Sse {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        // Nothing can be put between the events of a compressed stream; `compression` compresses what goes out.
        let mut accepted = exchange.request.headers.get_all(ACCEPT).iter();
        let is_asked = |value: &HeaderValue| {
            value.as_bytes().to_ascii_lowercase().windows(EVENT_STREAM.len()).any(|part| part == EVENT_STREAM)
        };
        if accepted.any(is_asked) {
            exchange.ask_for_plain();
        }
        Step::Next
    }
}

const EVENT_STREAM: &[u8] = b"text/event-stream";

impl OnResponse for Sse {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        exchange.accept_codings();
        if !exchange.is_from_target() || *exchange.method() == Method::HEAD || !is_stream(response) {
            return Step::Next;
        }
        let headers = response.headers_mut();
        headers::forget_bytes(headers);
        if self.says_no_buffering {
            headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
            headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
        }
        let body = std::mem::take(response.body_mut());
        *response.body_mut() = Body::stream(self.wrapped(body));
        Step::Next
    }
}

fn is_stream(response: &Response<Body>) -> bool {
    let media_type = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let essence = media_type.split(|c| *c == b';').next().unwrap_or_default().trim_ascii();
    response.status() == StatusCode::OK
        && essence.eq_ignore_ascii_case(EVENT_STREAM)
        && !response.headers().contains_key(CONTENT_ENCODING)
}

impl Sse {
    fn wrapped(&self, body: Body) -> Events {
        let now = Instant::now();
        let ends = self.lasts.map(|lasts| now + lasts);
        self.open.add(1);
        let mut events = Events {
            body,
            first: self.retry.clone(),
            heartbeat: self.heartbeat,
            last: now,
            ends,
            tail: [b'\n', b'\n', b'\n'],
            mark: Some(0),
            timer: Box::pin(tokio::time::sleep_until(now)),
            is_over: false,
            open: self.open.clone(),
            heartbeats: self.heartbeats.clone(),
        };
        events.set_timer();
        events
    }
}

/// U+FEFF in UTF-8.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// A stream of events, looked after.
struct Events {
    body: Body,
    /// Sent before everything else.
    first: Option<Bytes>,
    heartbeat: Option<Duration>,
    /// When something was sent last.
    last: Instant,
    ends: Option<Instant>,
    /// The last bytes, which say whether a line or an event is under way.
    tail: [u8; 3],
    /// How much of a byte order mark has come; `None` once it is clear whether there is one.
    mark: Option<usize>,
    timer: Pin<Box<Sleep>>,
    is_over: bool,
    open: Gauge,
    heartbeats: Counter,
}

impl Events {
    fn is_between_lines(&self) -> bool {
        self.tail[2] == b'\n'
    }

    /// After an empty line, whether lines end with LF or CRLF.
    fn is_between_events(&self) -> bool {
        matches!(self.tail, [_, b'\n', b'\n'] | [b'\n', b'\r', b'\n'])
    }

    /// Takes a byte order mark off the beginning: a client knows it before everything else only, and would take it for a part
    /// of the first field's name behind what is sent first.
    fn without_mark(&mut self, data: Bytes) -> Bytes {
        let Some(seen) = self.mark else { return data };
        let rest = &MARK[seen..];
        let same = data.iter().zip(rest).take_while(|(came, known)| came == known).count();
        if same < rest.len() && same == data.len() {
            self.mark = Some(seen + same);
            return Bytes::new();
        }
        self.mark = None;
        match (same == rest.len(), seen) {
            (true, _) => data.slice(same..),
            (false, 0) => data,
            (false, _) => [&MARK[..seen], &data].concat().into(),
        }
    }

    fn sent(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().skip(bytes.len().saturating_sub(3)) {
            self.tail = [self.tail[1], self.tail[2], *byte];
        }
        self.last = Instant::now();
        self.set_timer();
    }

    /// Wakes at the next comment or at the end, whichever comes first.
    fn set_timer(&mut self) {
        let beat = self.heartbeat.map(|heartbeat| self.last + heartbeat);
        let next = match (beat, self.ends) {
            (Some(beat), Some(ends)) => Some(beat.min(ends)),
            (beat, ends) => beat.or(ends),
        };
        if let Some(next) = next {
            self.timer.as_mut().reset(next);
        }
    }

    /// What the passing of time asks for: a comment, or the end (`None`). Pending is nothing.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.heartbeat.is_none() && self.ends.is_none() {
            return Poll::Pending;
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if let Some(ends) = self.ends.filter(|ends| *ends <= now) {
                if self.is_between_events() || ends + GRACE <= now {
                    return Poll::Ready(None);
                }
                // The event under way may end; nothing else is sent meanwhile.
                self.timer.as_mut().reset(ends + GRACE);
                continue;
            }
            if self.is_between_lines() {
                self.heartbeats.add(1);
                return Poll::Ready(Some(HEARTBEAT));
            }
            // A line is under way: whoever sends it is not silent for long.
            self.last = now;
            self.set_timer();
        }
        Poll::Pending
    }
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(first) = this.first.take() {
            this.sent(&first);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let is_late = this.ends.is_some_and(|ends| ends <= Instant::now());
        if is_late && this.is_between_events() {
            this.is_over = true;
            this.body = Body::empty();
            return Poll::Ready(None);
        }
        while let Poll::Ready(polled) = this.body.poll_next(cx) {
            let frame = match polled {
                Some(Ok(frame)) => frame,
                ended => {
                    this.is_over = true;
                    return Poll::Ready(ended);
                }
            };
            let frame = match frame.into_data() {
                Ok(data) => Frame::data(this.without_mark(data)),
                Err(other) => return Poll::Ready(Some(Ok(other))),
            };
            if let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) {
                this.sent(data);
                return Poll::Ready(Some(Ok(frame)));
            }
        }
        match this.poll_time(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(comment)) => {
                // A comment ends nothing: an event whose lines are under way goes on behind it.
                let tail = this.tail;
                this.sent(&comment);
                this.tail = tail;
                Poll::Ready(Some(Ok(Frame::data(comment))))
            }
            Poll::Ready(None) => {
                this.is_over = true;
                this.body = Body::empty();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.open.add(-1);
    }
}

#[cfg(test)]
mod tests;
