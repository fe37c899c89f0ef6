//! What a plugin's hooks do, in addition to the set of hooks that the plugin has.

use crate::hook_set::HookSet;

/// One declaration of a plugin about its hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// The request hook answers with a response that another request may have produced, so later plugins do not run. The compiler
    /// rejects a chain if its order moved a guarding plugin behind this one, or if a plugin that [decides](Self::Decides) is
    /// behind it.
    AnswersForTarget,
    /// The request hook answers any client with content of its own. The gateway warns if the order moved this plugin config
    /// before a guarding one.
    AnswersAnybody,
    /// The request hook answers every request itself, so the proxy needs no target.
    NeedsNoTarget,
    /// The request hook answers every request whose client used plain HTTP, so a proxy that matches only `scheme: http` needs no
    /// target.
    AnswersPlainRequests,
    /// The request hook runs the operator's code, which may reject requests. The compiler rejects every chain in which it is
    /// behind a plugin that [answers for the target](Self::AnswersForTarget), even if no order moved it.
    Decides,
    /// The request hook rejects no request, so an order may move the plugin behind one that answers for the target.
    OnlyPrepares,
    /// The session hooks only prepare and clean up for the message hook. The compiler rejects a TCP or TLS proxy with this
    /// plugin, because its sessions have no messages.
    ConnectsForMessages,
    /// The message hook reads messages of WebSockets only. The compiler rejects a UDP or DTLS proxy with this plugin.
    ReadsNoDatagrams,
    /// The plugin affects UDP and DTLS sessions only. The compiler rejects any other proxy with it.
    OnlyForDatagrams,
    /// The session hooks affect byte streams and WebSockets only. The compiler rejects a UDP or DTLS proxy with this plugin.
    OnlyForStreams,
    /// The response hook inspects responses of targets. The chain runs it before the hooks of plugins that [take inspected
    /// responses](Self::TakesInspectedResponses), in any order of the plugins.
    InspectsResponses,
    /// The response hook compresses or stores responses. It must not receive a response that an inspection would reject, and must
    /// not hide one from an inspection.
    TakesInspectedResponses,
    /// The response hook runs for every reply of the gateway, including rejections before the request reached this plugin.
    AttendsEveryReply,
    /// The request hook answers every CORS preflight that it sees. The gateway routes preflights like the requests that they
    /// announce, even if `allowed_methods` does not contain OPTIONS.
    AnswersPreflights,
}

impl Capability {
    const ALL: [Self; 14] = [
        Self::AnswersForTarget,
        Self::AnswersAnybody,
        Self::NeedsNoTarget,
        Self::AnswersPlainRequests,
        Self::Decides,
        Self::OnlyPrepares,
        Self::ConnectsForMessages,
        Self::ReadsNoDatagrams,
        Self::OnlyForDatagrams,
        Self::OnlyForStreams,
        Self::InspectsResponses,
        Self::TakesInspectedResponses,
        Self::AttendsEveryReply,
        Self::AnswersPreflights,
    ];

    /// The hooks that this describes: a plugin that declares it must have one of them.
    const fn seats(self) -> HookSet {
        match self {
            Self::AnswersForTarget
            | Self::AnswersAnybody
            | Self::NeedsNoTarget
            | Self::AnswersPlainRequests
            | Self::Decides
            | Self::OnlyPrepares
            | Self::AnswersPreflights => HookSet::ON_REQUEST,
            Self::InspectsResponses | Self::TakesInspectedResponses | Self::AttendsEveryReply => {
                HookSet::ON_RESPONSE
            }
            Self::ConnectsForMessages | Self::ReadsNoDatagrams => HookSet::ON_MESSAGE,
            Self::OnlyForDatagrams => HookSet::DATAGRAM,
            Self::OnlyForStreams => HookSet::STREAM,
        }
    }
}

/// The declarations of a plugin about its hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The set of these capabilities.
    pub const fn of(declared: &[Capability]) -> Self {
        let (mut set, mut n) = (Self::NONE, 0);
        while n < declared.len() {
            set = set.with(declared[n]);
            n += 1;
        }
        set
    }

    /// This set and one more capability.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | 1 << capability as u16)
    }

    /// This set, and one more capability if `is_declared`.
    #[must_use]
    pub const fn with_if(self, is_declared: bool, capability: Capability) -> Self {
        if is_declared { self.with(capability) } else { self }
    }

    /// Whether the set contains this capability.
    #[inline]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u16 != 0
    }

    /// The traffic that the hooks affect, in words for users.
    pub fn protocols(self, hooks: HookSet) -> Vec<&'static str> {
        let all = [
            (HookSet::EXCHANGE, "HTTP/1.1, HTTP/2, HTTP/3, gRPC and handshakes of WebSockets"),
            (HookSet::ON_MESSAGE, "messages of WebSockets"),
            (HookSet::ON_TRANSFER, "bytes of WebSockets"),
            (HookSet::STREAM, "TCP and TLS streams"),
            (HookSet::DATAGRAM, "UDP and DTLS sessions"),
        ];
        let meets = |of| match of {
            HookSet::DATAGRAM => self.for_datagrams(hooks).meets(of),
            HookSet::STREAM => self.for_streams(hooks).meets(of),
            of => hooks.meets(of),
        };
        let datagrams_only = self.has(Capability::OnlyForDatagrams);
        all.into_iter()
            .filter(|(of, _)| meets(*of) && !(datagrams_only && *of != HookSet::DATAGRAM))
            .map(|(_, words)| words)
            .collect()
    }

    /// The hooks that affect datagrams. A plugin with a bytes hook uses its session hooks only to learn when a stream begins and
    /// ends. A plugin that reads WebSockets receives messages of no other session.
    pub(crate) const fn for_datagrams(self, hooks: HookSet) -> HookSet {
        let mut rest = hooks;
        if hooks.meets(HookSet::ON_BYTES) {
            rest = rest.without(HookSet::ON_CONNECT.with(HookSet::ON_CLOSE).with(HookSet::ON_BYTES));
        }
        if self.has(Capability::OnlyForStreams) {
            rest = rest.without(HookSet::DATAGRAM);
        }
        if self.has(Capability::ReadsNoDatagrams) {
            rest = rest.without(HookSet::ON_MESSAGE);
        }
        rest
    }

    /// The hooks that affect byte streams. If the session hooks only serve the message hook, they do nothing here, because byte
    /// streams have no messages.
    pub(crate) const fn for_streams(self, hooks: HookSet) -> HookSet {
        match self.has(Capability::ConnectsForMessages) {
            true => hooks.without(HookSet::ON_CONNECT.with(HookSet::ON_CLOSE)),
            false => hooks,
        }
    }

    /// The first capability that describes a hook which the plugin does not have: a mistake in the plugin.
    pub fn without_seat(self, taken: HookSet) -> Option<Capability> {
        Capability::ALL.into_iter().find(|declared| self.has(*declared) && !taken.meets(declared.seats()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_a_bit_of_its_own() {
        for (n, capability) in Capability::ALL.into_iter().enumerate() {
            assert_eq!(Capabilities::of(&[capability]), Capabilities(1 << n), "{capability:?}");
        }
    }

    #[test]
    fn a_capability_needs_one_of_its_seats() {
        let declared =
            Capabilities::NONE.with_if(false, Capability::Decides).with(Capability::InspectsResponses);
        assert_eq!(declared.without_seat(HookSet::ON_REQUEST), Some(Capability::InspectsResponses));
        assert_eq!(declared.without_seat(HookSet::ON_RESPONSE), None);
    }
}
