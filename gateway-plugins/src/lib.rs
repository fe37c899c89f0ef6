//! The plugins, one file each, in folders by family; the families `auth` and `cache` and the engines `scripting`, `telemetry` and `waf`
//! are crates in folders beside this one, and `common` is what families share. A new plugin is a file of its own, a `mod` line in its
//! family's file (a constant where that is a crate) and a row in [`PLUGINS`].
//!
//! # Where things are
//!
//! - `admission/`: who may send requests, how many and how large. `rate_table.rs` is the table of rates, `shared_limits.rs` the limits that
//!   gateways share in Redis, `limit_headers.rs` what clients are shown of a limit.
//! - `security/`: CORS, security headers, the plugin `waf`, and validation of requests.
//! - `transformation/`: headers, bodies, paths, codings, gRPC and external processors. `transform.rs` has the rules that both transformers use.
//! - `content/`: what the gateway answers itself: files, redirects, error pages, mocks, faults, uploads.
//! - `traffic/`: other targets for a share of the requests, and copies of requests.
//! - `observability/`: traces, correlation ids, timings.
//! - `tests/`: what has to hold for every plugin, and for plugins of several families together.

mod admission;
mod content;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod observability;
mod security;
mod traffic;
mod transformation;

use gateway_core::plugin::{Entry, entry};

/// Every plugin; the order of this table is the order of execution.
pub const PLUGINS: &[Entry] = &[
    // see it; tracing first, so that everything else is in its trace
    entry::<observability::otel_tracing::OtelTracing>(),
    entry::<observability::correlation_id::CorrelationId>(),
    entry::<security::security_headers::SecurityHeaders>(),
    entry::<observability::server_timing::ServerTiming>(),
    entry::<content::error_pages::ErrorPages>(),
    // answer it here, before anybody is asked who they are
    entry::<content::redirect::Redirect>(),
    entry::<content::request_termination::RequestTermination>(),
    // protect before anybody is asked who they are
    entry::<security::cors::Cors>(),
    entry::<admission::ip_restriction::IpRestriction>(),
    entry::<admission::geo_restriction::GeoRestriction>(),
    entry::<admission::bot_detection::BotDetection>(),
    entry::<admission::request_size_limiting::RequestSizeLimiting>(),
    entry::<security::waf::Waf>(),
    // speak its language
    entry::<transformation::grpc_web::GrpcWeb>(),
    // who is it
    gateway_auth::MTLS_AUTH,
    gateway_auth::KEY_AUTH,
    gateway_auth::BASIC_AUTH,
    #[cfg(feature = "ldap")]
    gateway_auth::LDAP_AUTH,
    gateway_auth::HMAC_AUTH,
    gateway_auth::JWT_AUTH,
    gateway_auth::JWKS_AUTH,
    gateway_auth::OAUTH2_INTROSPECTION,
    // after those: it sends browsers elsewhere to log in
    gateway_auth::OIDC,
    gateway_auth::FORWARD_AUTH,
    // may they
    gateway_auth::CSRF,
    gateway_auth::ACCESS_CONTROL,
    // how often may they
    entry::<admission::rate_limiting::RateLimiting>(),
    entry::<admission::quota::Quota>(),
    entry::<admission::ws_message_size_limiting::WsMessageSizeLimiting>(),
    entry::<admission::ws_rate_limiting::WsRateLimiting>(),
    // how much at a time may they
    entry::<admission::concurrency_limiting::ConcurrencyLimiting>(),
    entry::<admission::connection_limit::ConnectionLimit>(),
    entry::<admission::udp_rate_limiting::UdpRateLimiting>(),
    entry::<admission::traffic_quota::TrafficQuota>(),
    entry::<admission::bandwidth_limit::BandwidthLimit>(),
    // is it what it should be
    entry::<security::request_validation::RequestValidation>(),
    entry::<security::graphql_limits::GraphqlLimits>(),
    // compress it: before what transforms, for responses come back the other way
    entry::<transformation::compression::Compression>(),
    // what the target only names: the response that those above see is the one that the client gets
    entry::<content::internal_redirect::InternalRedirect>(),
    // was it carried out before: behind all that may refuse, and with answers as they are after what transforms them
    gateway_cache::REQUEST_DEDUPLICATION,
    // transform it
    entry::<transformation::request_decompression::RequestDecompression>(),
    entry::<transformation::rewrite::Rewrite>(),
    entry::<transformation::request_transformer::RequestTransformer>(),
    entry::<transformation::response_transformer::ResponseTransformer>(),
    entry::<transformation::text_replacement::TextReplacement>(),
    // behind what sees JSON: from here on to the target it is gRPC
    entry::<transformation::grpc_json_transcoding::GrpcJsonTranscoding>(),
    entry::<transformation::ext_proc::ExtProc>(),
    #[cfg(feature = "script")]
    gateway_scripting::SCRIPT,
    #[cfg(feature = "wasm")]
    gateway_scripting::WASM,
    entry::<transformation::sse::Sse>(),
    entry::<transformation::grpc_deadline::GrpcDeadline>(),
    // where does it go
    entry::<traffic::traffic_split::TrafficSplit>(),
    entry::<traffic::request_mirror::RequestMirror>(),
    // instead of the target
    entry::<content::fault_injection::FaultInjection>(),
    entry::<content::response_mock::ResponseMock>(),
    entry::<content::upload::Upload>(),
    entry::<content::static_files::StaticFiles>(),
    // what was said before: behind all that may refuse, next to the target
    gateway_cache::RESPONSE_CACHE,
    // how much may come back; the first to see a target's response
    entry::<admission::response_size_limiting::ResponseSizeLimiting>(),
];

#[cfg(test)]
mod tests;
