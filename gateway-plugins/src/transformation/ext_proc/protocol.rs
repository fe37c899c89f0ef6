//! The messages of Envoy's external processing protocol (`envoy.service.ext_proc.v3`), as far as they are used here. Numbers
//! and types are those of the published definition; fields that are left out are skipped when they are read.

use bytes::Bytes;

#[cfg(test)]
pub(super) use gateway_plugin_common::envoy::{BoolValue, HeaderValue, HeaderValueOption};
pub(super) use gateway_plugin_common::envoy::{HeaderMap, HeaderMutation, HttpStatus};

/// The path of the protocol's only method.
pub(super) const PATH: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// What a processor is told.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessingRequest {
    #[prost(oneof = "ProcessorInput", tags = "2, 3, 4, 5, 6, 7")]
    pub(super) told: Option<ProcessorInput>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ProcessorInput {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

/// What a processor says.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessingResponse {
    #[prost(oneof = "ProcessorReply", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) said: Option<ProcessorReply>,
    #[prost(message, optional, tag = "9")]
    pub(super) mode_override: Option<ProcessingMode>,
    #[prost(message, optional, tag = "10")]
    pub(super) override_message_timeout: Option<Duration>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ProcessorReply {
    #[prost(message, tag = "1")]
    RequestHeaders(Changes),
    #[prost(message, tag = "2")]
    ResponseHeaders(Changes),
    #[prost(message, tag = "3")]
    RequestBody(Changes),
    #[prost(message, tag = "4")]
    ResponseBody(Changes),
    #[prost(message, tag = "5")]
    RequestTrailers(TrailersResponse),
    #[prost(message, tag = "6")]
    ResponseTrailers(TrailersResponse),
    #[prost(message, tag = "7")]
    ImmediateResponse(ImmediateResponse),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub(super) headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpBody {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) body: Bytes,
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpTrailers {
    #[prost(message, optional, tag = "1")]
    pub(super) trailers: Option<HeaderMap>,
}

/// `HeadersResponse` and `BodyResponse`, which are alike.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Changes {
    #[prost(message, optional, tag = "1")]
    pub(super) response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrailersResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header_mutation: Option<HeaderMutation>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CommonResponse {
    /// 0 continue, 1 continue and replace.
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub(super) body_mutation: Option<BodyMutation>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BodyMutation {
    #[prost(oneof = "NewBody", tags = "1, 2, 3")]
    pub(super) mutation: Option<NewBody>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum NewBody {
    #[prost(bytes = "bytes", tag = "1")]
    Body(Bytes),
    #[prost(bool, tag = "2")]
    Clear(bool),
    /// Of the mode that is not offered.
    #[prost(message, tag = "3")]
    Streamed(HttpBody),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub(super) headers: Option<HeaderMutation>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) body: Bytes,
    #[prost(message, optional, tag = "4")]
    pub(super) grpc_status: Option<GrpcStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GrpcStatus {
    #[prost(uint32, tag = "1")]
    pub(super) status: u32,
}

/// For heads and trailers: 0 as configured, 1 send, 2 skip. For bodies: 0 none, 1 streamed, 2 buffered, 3 buffered in part.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessingMode {
    #[prost(int32, tag = "2")]
    pub(super) response_header_mode: i32,
    #[prost(int32, tag = "3")]
    pub(super) request_body_mode: i32,
    #[prost(int32, tag = "4")]
    pub(super) response_body_mode: i32,
    #[prost(int32, tag = "5")]
    pub(super) request_trailer_mode: i32,
    #[prost(int32, tag = "6")]
    pub(super) response_trailer_mode: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Duration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl Duration {
    /// The time it means; `None` for less than a millisecond.
    pub(super) fn read(&self) -> Option<std::time::Duration> {
        let seconds = u64::try_from(self.seconds).ok()?;
        let time = std::time::Duration::new(seconds, u32::try_from(self.nanos).ok()?.min(999_999_999));
        (time.as_millis() >= 1).then_some(time)
    }
}
