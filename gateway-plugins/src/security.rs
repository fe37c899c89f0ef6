//! What protects browsers and targets: CORS, security headers, the firewall, and checks of what requests hold.

pub(crate) mod cors;
pub(crate) mod graphql_limits;
mod multipart;
pub(crate) mod request_validation;
pub(crate) mod security_headers;
pub(crate) mod waf;
