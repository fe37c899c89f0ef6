//! The plugins, one file each, in folders by family. A new one is a file of its own, a `mod` line in its family's file and a row
//! in [`PLUGINS`]. Those that run operators' own code come from `gateway-scripting`, behind a cargo feature each.

mod admission;
mod auth;
mod cache;
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
    entry::<auth::mtls_auth::MtlsAuth>(),
    entry::<auth::key_auth::KeyAuth>(),
    entry::<auth::basic_auth::BasicAuth>(),
    #[cfg(feature = "ldap")]
    entry::<auth::ldap_auth::LdapAuth>(),
    entry::<auth::hmac_auth::HmacAuth>(),
    entry::<auth::jwt_auth::JwtAuth>(),
    entry::<auth::jwks_auth::JwksAuth>(),
    entry::<auth::oauth2_introspection::Oauth2Introspection>(),
    // after those: it sends browsers elsewhere to log in
    entry::<auth::oidc::Oidc>(),
    entry::<auth::forward_auth::ForwardAuth>(),
    // may they
    entry::<auth::csrf::Csrf>(),
    entry::<auth::access_control::AccessControl>(),
    // how often may they
    entry::<admission::rate_limiting::RateLimiting>(),
    entry::<admission::quota::Quota>(),
    entry::<admission::ws_message_size_limiting::WsMessageSizeLimiting>(),
    entry::<admission::ws_rate_limiting::WsRateLimiting>(),
    // how much at a time may they
    entry::<admission::concurrency_limiting::ConcurrencyLimiting>(),
    // is it what it should be
    entry::<security::request_validation::RequestValidation>(),
    entry::<security::graphql_limits::GraphqlLimits>(),
    // compress it: before what transforms, for responses come back the other way
    entry::<transformation::compression::Compression>(),
    // was it carried out before: behind all that may refuse, and with answers as they are after what transforms them
    entry::<cache::request_deduplication::RequestDeduplication>(),
    // transform it
    entry::<transformation::request_decompression::RequestDecompression>(),
    entry::<transformation::rewrite::Rewrite>(),
    entry::<transformation::request_transformer::RequestTransformer>(),
    entry::<transformation::response_transformer::ResponseTransformer>(),
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
    entry::<cache::response_cache::ResponseCache>(),
    // how much may come back; the first to see a target's response
    entry::<admission::response_size_limiting::ResponseSizeLimiting>(),
];

#[cfg(test)]
mod tests;
