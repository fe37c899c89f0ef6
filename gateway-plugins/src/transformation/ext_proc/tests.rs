//! The plugin through the real pipeline, with processors that are closures.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls, Client, Endpoint};
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::{Reach, blocking, files};
use gateway_core::testing::Trial;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame};
use prost::Message as _;
use serde_json::{Value, json};

use super::ExtProc;
use super::protocol::*;

mod lies;
mod messages;

/// What a processor does about one message.
pub(super) enum Act {
    Say(ProcessingResponse),
    /// Ends the stream with this gRPC status.
    End(&'static str),
    Silence,
}

type Acting = dyn Fn(&ProcessorInput) -> Act + Send + Sync;

/// A processor, and what it was told.
#[derive(Clone)]
pub(super) struct Processor {
    acting: Arc<Acting>,
    pub(super) told: Arc<Mutex<Vec<ProcessorInput>>>,
}

impl Processor {
    pub(super) fn new(acting: impl Fn(&ProcessorInput) -> Act + Send + Sync + 'static) -> Self {
        Self { acting: Arc::new(acting), told: Arc::default() }
    }

    /// A trial with this processor; the only proxy has the plugin with these settings.
    pub(super) fn trial(&self, mut config: Value) -> Trial {
        config["url"] = json!("http://processor.test:50051");
        let spec = json!({
            "proxies": [{
                "id": "a", "listen_path": "/", "strip_listen_path": false,
                "backend_host": "target.test", "backend_port": 80, "backend_scheme": "http",
            }],
            "plugin_configs": [{ "id": "p0", "plugin_name": "ext_proc", "config": config, "proxy_id": "a" }],
        });
        let world = World::new(Reach {
            gateway: "test".into(),
            calls: Arc::new(self.clone()),
            files: Arc::new(files::NoFiles),
            blocking: Arc::new(blocking::Inline),
            meters: Meters::default(),
            variables: Default::default(),
        });
        Trial::of_spec(&[gateway_core::plugin::entry::<ExtProc>()], &spec.to_string(), &world)
    }

    pub(super) fn told(&self) -> Vec<ProcessorInput> {
        self.told.lock().unwrap().clone()
    }
}

impl Calls for Processor {
    fn client(&self, _endpoint: Endpoint) -> Result<Client, Problems> {
        Ok(Client::new(Arc::new(self.clone())))
    }
}

impl Caller for Processor {
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(async move {
            if request.uri().path() != PATH || request.headers()["content-type"] != "application/grpc" {
                return Err(CallError::new(Cause::Internal));
            }
            let stream = Stream {
                processor: self.clone(),
                told: request.into_body(),
                read: BytesMut::new(),
                over: false,
            };
            Ok(Response::new(Body::stream(stream)))
        })
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(std::future::ready(Err(CallError::new(Cause::ConnectFailed))))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn max_response(&self) -> u64 {
        u64::MAX
    }
}

/// The processor's side of one stream.
struct Stream {
    processor: Processor,
    told: Body,
    read: BytesMut,
    over: bool,
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        use std::task::Poll::{Pending, Ready};
        let this = &mut *self;
        loop {
            if this.over {
                return Ready(None);
            }
            let length = this.read.get(1..5).map(|length| u32::from_be_bytes(length.try_into().unwrap()));
            if let Some(length) =
                length.map(|length| length as usize).filter(|length| this.read.len() >= 5 + length)
            {
                this.read.advance(5);
                let message = ProcessingRequest::decode(this.read.split_to(length)).unwrap();
                let told = message.told.unwrap();
                this.processor.told.lock().unwrap().push(told.clone());
                match (this.processor.acting)(&told) {
                    Act::Say(said) => {
                        let mut out = BytesMut::new();
                        out.put_u8(0);
                        out.put_u32(u32::try_from(said.encoded_len()).unwrap());
                        said.encode(&mut out).unwrap();
                        return Ready(Some(Ok(Frame::data(out.freeze()))));
                    }
                    Act::End(status) => {
                        this.over = true;
                        let mut trailers = HeaderMap::new();
                        trailers.insert("grpc-status", status.parse().unwrap());
                        return Ready(Some(Ok(Frame::trailers(trailers))));
                    }
                    Act::Silence => {}
                }
                continue;
            }
            match this.told.poll_next(cx) {
                Pending => return Pending,
                Ready(Some(Ok(frame))) => this.read.extend_from_slice(&frame.into_data().unwrap()),
                Ready(_) => this.over = true,
            }
        }
    }
}

/// The answer that changes nothing.
pub(super) fn nothing(told: &ProcessorInput) -> Act {
    changed(told, CommonResponse::default())
}

/// The answer with these changes.
pub(super) fn changed(told: &ProcessorInput, response: CommonResponse) -> Act {
    let changes = Changes { response: Some(response) };
    say(match told {
        ProcessorInput::RequestHeaders(_) => ProcessorReply::RequestHeaders(changes),
        ProcessorInput::ResponseHeaders(_) => ProcessorReply::ResponseHeaders(changes),
        ProcessorInput::RequestBody(_) => ProcessorReply::RequestBody(changes),
        ProcessorInput::ResponseBody(_) => ProcessorReply::ResponseBody(changes),
        ProcessorInput::RequestTrailers(_) => ProcessorReply::RequestTrailers(TrailersResponse::default()),
        ProcessorInput::ResponseTrailers(_) => ProcessorReply::ResponseTrailers(TrailersResponse::default()),
    })
}

pub(super) fn say(said: ProcessorReply) -> Act {
    Act::Say(ProcessingResponse { said: Some(said), ..ProcessingResponse::default() })
}

pub(super) fn set(key: &str, value: &str) -> HeaderValueOption {
    let header =
        HeaderValue { key: key.into(), raw_value: value.to_owned().into(), ..HeaderValue::default() };
    HeaderValueOption { header: Some(header), ..HeaderValueOption::default() }
}

pub(super) fn mutation(set_headers: Vec<HeaderValueOption>, remove: &[&str]) -> CommonResponse {
    let remove_headers = remove.iter().map(|name| (*name).to_owned()).collect();
    CommonResponse {
        header_mutation: Some(HeaderMutation { set_headers, remove_headers }),
        ..CommonResponse::default()
    }
}

pub(super) fn body(bytes: &'static str) -> Option<BodyMutation> {
    Some(BodyMutation { mutation: Some(NewBody::Body(Bytes::from_static(bytes.as_bytes()))) })
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    for (config, path) in [
        (json!({}), "config.url"),
        (json!({ "url": "grpc://a" }), "config.url"),
        (json!({ "url": "http://a/path" }), "config.url"),
        (json!({ "url": "http://a", "request_headers": "skip", "response_headers": "skip" }), "config"),
        (json!({ "url": "http://a", "request_body": "full_duplex_streamed" }), "config.request_body"),
        (json!({ "url": "http://a", "status_on_error": 200 }), "config.status_on_error"),
    ] {
        let problems = Trial::refused(&[gateway_core::plugin::entry::<ExtProc>()], "ext_proc", &config);
        assert!(problems.0.iter().any(|problem| problem.path == path), "{config}: {problems}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_fails_closes_the_exchange_unless_it_is_allowed_to() {
    type Acting = fn(&ProcessorInput) -> Act;
    let cases: [(Acting, u16); 5] = [
        (|_| Act::End("13"), 500),
        (|_| Act::Silence, 504),
        (|_| say(ProcessorReply::ResponseBody(Changes::default())), 500),
        (|told| changed(told, mutation(vec![set("x-a", "1\r\nx-b: 2")], &[])), 500),
        (|_| Act::Say(ProcessingResponse::default()), 500),
    ];
    for (n, (acting, expected)) in cases.into_iter().enumerate() {
        let closed = Processor::new(acting).trial(json!({}));
        let got = closed.get("/", &[]).await;
        assert_eq!((got.status, closed.asked().len()), (expected, 0), "{n}");
        assert_eq!(closed.records()[0].reason, Some("ext_proc_failed"), "{n}");
        let open = Processor::new(acting).trial(json!({ "failure_mode_allow": true }));
        assert_eq!(open.get("/", &[]).await.status, 200, "{n}");
    }
    let trial = Processor::new(|_| Act::End("13")).trial(json!({ "status_on_error": 503 }));
    assert_eq!(trial.get("/", &[]).await.status, 503);
}

#[tokio::test]
async fn a_processor_that_ends_in_good_order_is_not_asked_again() {
    let processor = Processor::new(|_| Act::End("0"));
    let trial = processor.trial(json!({ "request_body": "buffered" }));
    assert_eq!(trial.request("POST", "/", &[], "abc").await.status, 200);
    assert_eq!((processor.told().len(), &trial.asked()[0].body[..]), (1, &b"abc"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_processor_may_ask_for_more_time_once_where_it_is_allowed_to() {
    let more = |seconds| ProcessingResponse {
        override_message_timeout: Some(super::protocol::Duration { seconds, nanos: 0 }),
        ..ProcessingResponse::default()
    };
    for (seconds, config, expected) in [
        (1, json!({}), 500),
        (1, json!({ "max_message_timeout": "2000ms" }), 504),
        (3, json!({ "max_message_timeout": "2000ms" }), 500),
    ] {
        let begun = tokio::time::Instant::now();
        let trial = Processor::new(move |_| Act::Say(more(seconds))).trial(config.clone());
        assert_eq!(trial.get("/", &[]).await.status, expected, "{config}");
        let waited = begun.elapsed().as_secs();
        assert_eq!(waited, u64::from(expected == 504), "{config}");
    }
}

#[tokio::test]
async fn streams_at_a_time_are_limited() {
    let trial = Processor::new(nothing).trial(json!({ "max_concurrent_streams": 1 }));
    for _ in 0..3 {
        assert_eq!(trial.get("/", &[]).await.status, 200, "a stream ends with its exchange");
    }
}
