//! Where a request goes: shares of traffic to other targets, and copies of it.

pub(crate) mod request_mirror;
pub(crate) mod traffic_split;
