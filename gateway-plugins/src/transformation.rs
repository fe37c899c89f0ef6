//! What is changed on the way: headers, bodies, paths, codings, and the protocols of gRPC.

pub(crate) mod compression;
pub(crate) mod ext_proc;
pub(crate) mod grpc_deadline;
pub(crate) mod grpc_json_transcoding;
pub(crate) mod grpc_web;
pub(crate) mod request_decompression;
pub(crate) mod request_transformer;
pub(crate) mod response_transformer;
pub(crate) mod rewrite;
pub(crate) mod sse;
pub(crate) mod text_replacement;
pub(crate) mod transform;
