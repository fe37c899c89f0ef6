//! The forwarding headers that targets receive.

use crate::template::Template;

/// Templates of the `X-Forwarded-*` headers; if one is `None`, the gateway sends its own value.
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
