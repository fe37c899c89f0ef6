//! What targets are told of the way of a request.

use crate::template::Template;

/// Values of `X-Forwarded-*`; `None` is the gateway's own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ForwardedRules {
    /// `X-Forwarded-Proto`.
    pub proto: Option<Template>,
    /// `X-Forwarded-Host`.
    pub host: Option<Template>,
    /// `X-Forwarded-For`.
    pub addresses: Option<Template>,
    /// `X-Forwarded-Port`.
    pub port: Option<Template>,
}
