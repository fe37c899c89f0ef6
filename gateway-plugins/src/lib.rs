//! The plugins, one file each. A new one is a file of its own, a `mod` line and a row in [`PLUGINS`]. Those that run
//! operators' own code come from `gateway-scripting`, behind a cargo feature each.

mod access_control;
mod basic_auth;
mod bot_detection;
mod caller_key;
mod compression;
mod concurrency_limiting;
mod correlation_id;
mod cors;
mod credential;
mod csrf;
mod envoy;
mod error_pages;
mod ext_proc;
mod fault_injection;
mod forward_auth;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod geo_restriction;
mod graphql_limits;
mod grpc_deadline;
mod grpc_json_transcoding;
mod grpc_web;
mod hmac_auth;
mod ip_restriction;
mod jose;
mod jwks_auth;
mod jwt_auth;
mod key_auth;
#[cfg(feature = "ldap")]
mod ldap_auth;
mod mtls_auth;
mod oauth2_introspection;
mod oidc;
mod origin;
mod otel_tracing;
mod quota;
mod rate_limiting;
mod rate_table;
mod redirect;
mod redis_link;
mod request_decompression;
mod request_deduplication;
mod request_mirror;
mod request_size_limiting;
mod request_termination;
mod request_transformer;
mod request_validation;
mod response_cache;
mod response_mock;
mod response_size_limiting;
mod response_transformer;
mod rewrite;
mod security_headers;
mod server_timing;
mod shared;
mod shared_limits;
mod sse;
mod static_files;
mod traffic_split;
mod transform;
mod upload;
mod waf;
mod ws_message_size_limiting;
mod ws_rate_limiting;

use gateway_core::plugin::{Entry, entry};

/// Every plugin; the order of this table is the order of execution.
pub const PLUGINS: &[Entry] = &[
    // see it; tracing first, so that everything else is in its trace
    entry::<otel_tracing::OtelTracing>(),
    entry::<correlation_id::CorrelationId>(),
    entry::<security_headers::SecurityHeaders>(),
    entry::<server_timing::ServerTiming>(),
    entry::<error_pages::ErrorPages>(),
    // answer it here, before anybody is asked who they are
    entry::<redirect::Redirect>(),
    entry::<request_termination::RequestTermination>(),
    // protect before anybody is asked who they are
    entry::<cors::Cors>(),
    entry::<ip_restriction::IpRestriction>(),
    entry::<geo_restriction::GeoRestriction>(),
    entry::<bot_detection::BotDetection>(),
    entry::<request_size_limiting::RequestSizeLimiting>(),
    entry::<waf::Waf>(),
    // speak its language
    entry::<grpc_web::GrpcWeb>(),
    // who is it
    entry::<mtls_auth::MtlsAuth>(),
    entry::<key_auth::KeyAuth>(),
    entry::<basic_auth::BasicAuth>(),
    #[cfg(feature = "ldap")]
    entry::<ldap_auth::LdapAuth>(),
    entry::<hmac_auth::HmacAuth>(),
    entry::<jwt_auth::JwtAuth>(),
    entry::<jwks_auth::JwksAuth>(),
    entry::<oauth2_introspection::Oauth2Introspection>(),
    // after those: it sends browsers elsewhere to log in
    entry::<oidc::Oidc>(),
    entry::<forward_auth::ForwardAuth>(),
    // may they
    entry::<csrf::Csrf>(),
    entry::<access_control::AccessControl>(),
    // how often may they
    entry::<rate_limiting::RateLimiting>(),
    entry::<quota::Quota>(),
    entry::<ws_message_size_limiting::WsMessageSizeLimiting>(),
    entry::<ws_rate_limiting::WsRateLimiting>(),
    // how much at a time may they
    entry::<concurrency_limiting::ConcurrencyLimiting>(),
    // is it what it should be
    entry::<request_validation::RequestValidation>(),
    entry::<graphql_limits::GraphqlLimits>(),
    // compress it: before what transforms, for responses come back the other way
    entry::<compression::Compression>(),
    // was it carried out before: behind all that may refuse, and with answers as they are after what transforms them
    entry::<request_deduplication::RequestDeduplication>(),
    // transform it
    entry::<request_decompression::RequestDecompression>(),
    entry::<rewrite::Rewrite>(),
    entry::<request_transformer::RequestTransformer>(),
    entry::<response_transformer::ResponseTransformer>(),
    // behind what sees JSON: from here on to the target it is gRPC
    entry::<grpc_json_transcoding::GrpcJsonTranscoding>(),
    entry::<ext_proc::ExtProc>(),
    #[cfg(feature = "script")]
    gateway_scripting::SCRIPT,
    #[cfg(feature = "wasm")]
    gateway_scripting::WASM,
    entry::<sse::Sse>(),
    entry::<grpc_deadline::GrpcDeadline>(),
    // where does it go
    entry::<traffic_split::TrafficSplit>(),
    entry::<request_mirror::RequestMirror>(),
    // instead of the target
    entry::<fault_injection::FaultInjection>(),
    entry::<response_mock::ResponseMock>(),
    entry::<upload::Upload>(),
    entry::<static_files::StaticFiles>(),
    // what was said before: behind all that may refuse, next to the target
    entry::<response_cache::ResponseCache>(),
    // how much may come back; the first to see a target's response
    entry::<response_size_limiting::ResponseSizeLimiting>(),
];

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
