//! The variables of templates: the one table of their names.

use http::HeaderName;

/// When the gateway renders a template. The template may use only variables that are known by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// A request is there.
    Request,
    /// A target was picked for it.
    Attempt,
    /// A response is there.
    Response,
    /// The exchange has ended.
    End,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Variable {
    /// `${request.id}` and the like.
    Known(NamedVariable),
    /// `${request.header.NAME}`
    RequestHeader(HeaderName),
    /// `${request.query.NAME}`
    RequestQuery(Box<str>),
    /// `${request.cookie.NAME}`
    RequestCookie(Box<str>),
    /// The way to a claim, level by level.
    Claim(Box<[Box<str>]>),
    /// `${capture.NAME}`
    Capture(Box<str>),
    /// `${response.header.NAME}`
    ResponseHeader(HeaderName),
}

/// A name that stands for what follows its last dot.
pub(super) const FAMILIES: &[(&str, Moment)] = &[
    ("request.header.", Moment::Request),
    ("request.query.", Moment::Request),
    ("request.cookie.", Moment::Request),
    ("identity.claim.", Moment::Request),
    ("capture.", Moment::Request),
    ("response.header.", Moment::Response),
];

macro_rules! known {
    ($($name:literal $moment:ident $variant:ident,)+) => {
        /// A value with a fixed name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum NamedVariable {
            $(#[doc = concat!("`${", $name, "}`")] $variant,)+
        }

        /// Every fixed name, and from when on its value is known.
        pub(super) const KNOWN: &[(&str, Moment, NamedVariable)] =
            &[$(($name, Moment::$moment, NamedVariable::$variant),)+];
    };
}

known! {
    "request.id" Request RequestId,
    "trace.id" Request TraceId,
    "trace.span_id" Request SpanId,
    "request.method" Request Method,
    "request.scheme" Request Scheme,
    "request.host" Request Host,
    "request.authority" Request Authority,
    "request.path" Request Path,
    "request.query" Request Query,
    "request.target" Request PathAndQuery,
    "request.version" Request Version,
    "client.address" Request ClientAddress,
    "client.port" Request ClientPort,
    "server.address" Request ServerAddress,
    "server.port" Request ServerPort,
    "consumer.id" Request ConsumerId,
    "consumer.username" Request ConsumerUsername,
    "consumer.custom_id" Request ConsumerCustomId,
    "consumer.group" Request ConsumerGroup,
    "identity.name" Request IdentityName,
    "tls.server_name" Request TlsServerName,
    "tls.version" Request TlsVersion,
    "tls.cipher" Request TlsCipher,
    "tls.client.subject" Request TlsSubject,
    "tls.client.common_name" Request TlsCommonName,
    "tls.client.san" Request TlsSan,
    "proxy.id" Request ProxyId,
    "target.host" Attempt TargetHost,
    "target.port" Attempt TargetPort,
    "target.authority" Attempt TargetAuthority,
    "response.status" Response Status,
    "request.bytes" End RequestBytes,
    "response.bytes" End ResponseBytes,
    "time" End Time,
    "duration_ms" End Duration,
    "first_byte_ms" End FirstByte,
    "last_byte_ms" End LastByte,
    "attempts" End Attempts,
    "cause" End Cause,
}

impl Variable {
    /// Whether authentication makes it known.
    pub(super) fn is_of_caller(&self) -> bool {
        match self {
            Self::Claim(_) => true,
            Self::Known(known) => matches!(
                known,
                NamedVariable::ConsumerId
                    | NamedVariable::ConsumerUsername
                    | NamedVariable::ConsumerCustomId
                    | NamedVariable::ConsumerGroup
                    | NamedVariable::IdentityName
            ),
            _ => false,
        }
    }
}
