//! Protocols whose plain text precedes TLS.

/// A protocol in which a client asks for TLS in plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Starttls {
    /// PostgreSQL's `SSLRequest`.
    Postgres,
    /// SMTP and submission (RFC 3207).
    Smtp,
    /// IMAP (RFC 9051).
    Imap,
    /// POP3 (RFC 2595).
    Pop3,
}

impl Starttls {
    /// Whether servers speak first.
    pub const fn has_greeting(self) -> bool {
        !matches!(self, Self::Postgres)
    }
}

/// The plain text around a stream's TLS, on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StarttlsRules {
    /// The gateway answers the client's request for TLS.
    pub frontend: Option<Starttls>,
    /// The gateway asks the target for TLS.
    pub backend: Option<Starttls>,
}

impl StarttlsRules {
    /// The protocol of a greeting that the target sends, and that the client has had from the gateway already.
    pub fn duplicate_greeting(&self) -> Option<Starttls> {
        self.frontend.filter(|protocol| protocol.has_greeting() && self.backend.is_none())
    }
}
