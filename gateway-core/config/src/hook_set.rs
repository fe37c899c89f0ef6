//! The set of hooks that a plugin has.

/// A set of hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookSet(u16);

/// The members of a set. The enumeration gives each one its own bit.
#[derive(Clone, Copy)]
enum Bit {
    Authenticate,
    OnRequest,
    OnAttempt,
    OnResponse,
    OnEnd,
    OnConnect,
    OnMessage,
    OnClose,
    OnUnrouted,
    OnBytes,
    OnTransfer,
}

impl HookSet {
    /// The plugin identifies callers.
    pub const AUTHENTICATE: Self = Self::of(&[Bit::Authenticate]);
    /// The plugin sees requests.
    pub const ON_REQUEST: Self = Self::of(&[Bit::OnRequest]);
    /// The plugin sees each attempt to reach a target.
    pub const ON_ATTEMPT: Self = Self::of(&[Bit::OnAttempt]);
    /// The plugin sees responses.
    pub const ON_RESPONSE: Self = Self::of(&[Bit::OnResponse]);
    /// The plugin sees the record of an exchange.
    pub const ON_END: Self = Self::of(&[Bit::OnEnd]);
    /// The plugin sees sessions begin.
    pub const ON_CONNECT: Self = Self::of(&[Bit::OnConnect]);
    /// The plugin sees messages of WebSockets, or datagrams.
    pub const ON_MESSAGE: Self = Self::of(&[Bit::OnMessage]);
    /// The plugin sees the record of a session.
    pub const ON_CLOSE: Self = Self::of(&[Bit::OnClose]);
    /// The plugin sees requests that match no proxy. Traffic of proxies does not run this hook.
    pub const ON_UNROUTED: Self = Self::of(&[Bit::OnUnrouted]);
    /// The plugin sees the bytes of streams.
    pub const ON_BYTES: Self = Self::of(&[Bit::OnBytes]);
    /// The plugin sets rates and quotas of sessions.
    pub const ON_TRANSFER: Self = Self::of(&[Bit::OnTransfer]);

    /// The hooks that HTTP exchanges run.
    pub(crate) const EXCHANGE: Self =
        Self::of(&[Bit::Authenticate, Bit::OnRequest, Bit::OnAttempt, Bit::OnResponse, Bit::OnEnd]);
    /// The hooks that a WebSocket runs in addition to those of its exchange.
    pub(crate) const WEBSOCKET: Self =
        Self::of(&[Bit::OnConnect, Bit::OnMessage, Bit::OnTransfer, Bit::OnClose]);
    /// The hooks that TCP and TLS streams run: they have no messages.
    pub(crate) const STREAM: Self = Self::of(&[Bit::OnConnect, Bit::OnBytes, Bit::OnTransfer, Bit::OnClose]);
    /// The hooks that UDP and DTLS sessions run.
    pub(crate) const DATAGRAM: Self = Self::WEBSOCKET;

    const fn of(bits: &[Bit]) -> Self {
        let (mut set, mut n) = (0, 0);
        while n < bits.len() {
            set |= 1 << bits[n] as u16;
            n += 1;
        }
        Self(set)
    }

    /// Whether the plugin identifies callers.
    pub fn authenticates(self) -> bool {
        self.meets(Self::AUTHENTICATE)
    }

    /// The union of both sets.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members of this set that the other one does not contain.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the sets have a member in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
