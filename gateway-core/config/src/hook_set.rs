//! Which hooks a plugin takes a seat in, as a set.

/// A set of hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookSet(u16);

/// What a set can contain. An enumeration, so that no two have the same bit.
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
    /// It identifies callers.
    pub const AUTHENTICATE: Self = Self::of(&[Bit::Authenticate]);
    /// It sees requests.
    pub const ON_REQUEST: Self = Self::of(&[Bit::OnRequest]);
    /// It sees each attempt to reach a target.
    pub const ON_ATTEMPT: Self = Self::of(&[Bit::OnAttempt]);
    /// It sees responses.
    pub const ON_RESPONSE: Self = Self::of(&[Bit::OnResponse]);
    /// It sees the record of an exchange.
    pub const ON_END: Self = Self::of(&[Bit::OnEnd]);
    /// It sees sessions begin.
    pub const ON_CONNECT: Self = Self::of(&[Bit::OnConnect]);
    /// It sees messages of WebSockets or datagrams.
    pub const ON_MESSAGE: Self = Self::of(&[Bit::OnMessage]);
    /// It sees the record of a session.
    pub const ON_CLOSE: Self = Self::of(&[Bit::OnClose]);
    /// It sees requests that no proxy takes; no proxy's traffic runs this one.
    pub const ON_UNROUTED: Self = Self::of(&[Bit::OnUnrouted]);
    /// It sees the bytes of streams.
    pub const ON_BYTES: Self = Self::of(&[Bit::OnBytes]);
    /// It gives sessions rates and quotas.
    pub const ON_TRANSFER: Self = Self::of(&[Bit::OnTransfer]);

    /// The hooks that HTTP exchanges run.
    pub(crate) const EXCHANGE: Self =
        Self::of(&[Bit::Authenticate, Bit::OnRequest, Bit::OnAttempt, Bit::OnResponse, Bit::OnEnd]);
    /// The hooks that a WebSocket runs besides those of its exchange.
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

    /// Whether it identifies callers.
    pub fn authenticates(self) -> bool {
        self.meets(Self::AUTHENTICATE)
    }

    /// Both sets together.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The first set without the second.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether they have something in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
