//! Which hooks a plugin takes a seat in, as a set.

/// A set of hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookSet(u16);

impl HookSet {
    pub(crate) const AUTHENTICATE: Self = Self(0x01);
    pub(crate) const ON_REQUEST: Self = Self(0x02);
    pub(crate) const ON_ATTEMPT: Self = Self(0x04);
    pub(crate) const ON_RESPONSE: Self = Self(0x08);
    pub(crate) const ON_END: Self = Self(0x10);
    pub(crate) const ON_CONNECT: Self = Self(0x20);
    pub(crate) const ON_MESSAGE: Self = Self(0x40);
    pub(crate) const ON_CLOSE: Self = Self(0x80);
    /// No proxy's traffic runs this one.
    pub(crate) const ON_UNROUTED: Self = Self(0x100);

    pub(crate) const ON_BYTES: Self = Self(0x200);
    /// No hook: what is done when a session begins and ends serves its messages.
    pub(crate) const FOR_MESSAGES: Self = Self(0x400);
    /// No hook: the messages it reads are those of WebSockets.
    pub(crate) const NO_DATAGRAMS: Self = Self(0x800);

    /// No hook: its request hook answers in the place of a target.
    pub(crate) const NEEDS_NO_TARGET: Self = Self(0x4000);
    pub(crate) const ON_TRANSFER: Self = Self(0x1000);
    /// No hook: it does something for datagrams only.
    pub(crate) const ONLY_DATAGRAMS: Self = Self(0x2000);

    /// The hooks that HTTP exchanges run.
    pub(crate) const EXCHANGE: Self = Self(0x1f);
    /// The hooks that a WebSocket runs besides those of its exchange.
    pub(crate) const WEBSOCKET: Self = Self(0x10e0);
    /// The hooks that TCP and TLS streams run: they have no messages.
    pub(crate) const STREAM: Self = Self(0x12a0);
    /// The hooks that UDP and DTLS sessions run.
    pub(crate) const DATAGRAM: Self = Self(0x10e0);

    /// Whether a proxy with it needs no target.
    pub fn needs_no_target(self) -> bool {
        self.meets(Self::NEEDS_NO_TARGET)
    }

    /// Whether it identifies callers.
    pub fn authenticates(self) -> bool {
        self.meets(Self::AUTHENTICATE)
    }

    /// The traffic that runs any of these hooks, for people.
    pub fn protocols(self) -> Vec<&'static str> {
        let all = [
            (Self::EXCHANGE, "HTTP/1.1, HTTP/2, HTTP/3, gRPC and handshakes of WebSockets"),
            (Self::ON_MESSAGE, "messages of WebSockets"),
            (Self::ON_TRANSFER, "bytes of WebSockets"),
            (Self::STREAM, "TCP and TLS streams"),
            (Self::DATAGRAM, "UDP and DTLS sessions"),
        ];
        let meets = |hooks| match hooks {
            Self::DATAGRAM => self.for_datagrams().meets(hooks),
            Self::STREAM => self.for_sessions_without_messages().meets(hooks),
            hooks => self.meets(hooks),
        };
        let datagrams_only = self.meets(Self::ONLY_DATAGRAMS);
        all.into_iter()
            .filter(|(hooks, _)| meets(*hooks) && !(datagrams_only && *hooks != Self::DATAGRAM))
            .map(|(_, words)| words)
            .collect()
    }

    /// The same without what does nothing for datagrams: a plugin that sees bytes learns by other hooks when a stream begins and
    /// ends, and one that reads WebSockets takes messages for no other sessions.
    pub(crate) const fn for_datagrams(self) -> Self {
        let mut rest = self.0;
        if self.meets(Self::ON_BYTES) {
            rest &= !(Self::ON_CONNECT.0 | Self::ON_CLOSE.0 | Self::ON_BYTES.0);
        }
        if self.meets(Self::NO_DATAGRAMS) {
            rest &= !Self::ON_MESSAGE.0;
        }
        Self(rest)
    }

    /// The same without what serves messages only: a plugin that learns by the others when a session begins and ends does nothing
    /// for byte streams, which have no messages.
    pub(crate) const fn for_sessions_without_messages(self) -> Self {
        match self.meets(Self::FOR_MESSAGES) {
            true => Self(self.0 & !(Self::ON_CONNECT.0 | Self::ON_CLOSE.0)),
            false => self,
        }
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
