//! Whether a request is let in, by who sends it, how many there are and how large they are; and what those plugins share.

pub(crate) mod bandwidth_limit;
pub(crate) mod bot_detection;
pub(crate) mod byte_caps;
pub(crate) mod concurrency_limiting;
pub(crate) mod connection_limit;
pub(crate) mod geo_restriction;
pub(crate) mod ip_restriction;
pub(crate) mod limit_headers;
pub(crate) mod quota;
pub(crate) mod rate_limiting;
pub(crate) mod rate_table;
pub(crate) mod request_size_limiting;
pub(crate) mod response_size_limiting;
pub(crate) mod session_limits;
pub(crate) mod shared_limits;
pub(crate) mod traffic_quota;
pub(crate) mod udp_rate_limiting;
pub(crate) mod usage_file;
pub(crate) mod ws_message_size_limiting;
pub(crate) mod ws_rate_limiting;
