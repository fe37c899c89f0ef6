//! What a plugin's hooks do, beyond the seats that they take.

use crate::hook_set::HookSet;

/// One thing that a plugin declares of its hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// The request hook answers with what was made for others, so that whatever comes behind it is not asked. A chain in which a
    /// plugin that guards was moved behind it is refused, or one that [decides](Self::Decides) stands there.
    AnswersForTarget,
    /// The request hook gives content of its own to whoever asks. A plugin config that was moved in front of one that guards is warned of.
    AnswersAnybody,
    /// The request hook answers every request in the place of a target, so that its proxy needs none.
    NeedsNoTarget,
    /// The request hook runs code of the operator's, which may refuse requests. A chain in which it stands behind a plugin that
    /// [answers for the target](Self::AnswersForTarget) is refused, also where nothing was moved.
    Decides,
    /// The request hook refuses nobody, so that the plugin may be moved behind one that answers for the target.
    OnlyPrepares,
    /// The hooks of sessions only make ready and clear up for the hook of messages. A TCP or TLS proxy with this plugin is refused: its
    /// sessions have no messages.
    ConnectsForMessages,
    /// The hook of messages reads those of WebSockets only. A UDP or DTLS proxy with this plugin is refused.
    ReadsNoDatagrams,
    /// The plugin does something for UDP and DTLS sessions only. Any other proxy with it is refused.
    OnlyForDatagrams,
    /// The hooks of sessions do something for byte streams and WebSockets only. A UDP or DTLS proxy with this plugin is refused.
    OnlyForStreams,
    /// The response hook inspects what targets say. Wherever the plugin stands in the chain, the hook is called before those of plugins
    /// that [take what was inspected](Self::TakesInspectedResponses).
    InspectsResponses,
    /// The response hook compresses or keeps responses: it must not get what an inspection would have refused, nor hide it from one.
    TakesInspectedResponses,
    /// The response hook does its work on every reply of the gateway, also for requests that were refused before they reached this plugin.
    AttendsEveryReply,
    /// The request hook answers every preflight of CORS that it sees: preflights are routed as the requests they ask about, and get here
    /// also where `allowed_methods` lacks OPTIONS.
    AnswersPreflights,
}

impl Capability {
    const ALL: [Self; 13] = [
        Self::AnswersForTarget,
        Self::AnswersAnybody,
        Self::NeedsNoTarget,
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

    /// The seats of which it says something: a plugin that declares it takes one of them.
    const fn seats(self) -> HookSet {
        match self {
            Self::AnswersForTarget
            | Self::AnswersAnybody
            | Self::NeedsNoTarget
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

/// What a plugin declares of its hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// These.
    pub const fn of(declared: &[Capability]) -> Self {
        let (mut set, mut n) = (Self::NONE, 0);
        while n < declared.len() {
            set = set.with(declared[n]);
            n += 1;
        }
        set
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | 1 << capability as u16)
    }

    /// These, and one more where the settings say so.
    #[must_use]
    pub const fn with_if(self, is_declared: bool, capability: Capability) -> Self {
        if is_declared { self.with(capability) } else { self }
    }

    /// Whether it is declared.
    #[inline]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u16 != 0
    }

    /// The traffic for which hooks do something, for people.
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

    /// The hooks without those that do nothing for datagrams: a plugin that sees bytes learns by other hooks when a stream begins and
    /// ends, and one that reads WebSockets takes messages for no other sessions.
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

    /// The hooks without those that serve messages only: a plugin that learns by the others when a session begins and ends does nothing
    /// for byte streams, which have no messages.
    pub(crate) const fn for_streams(self, hooks: HookSet) -> HookSet {
        match self.has(Capability::ConnectsForMessages) {
            true => hooks.without(HookSet::ON_CONNECT.with(HookSet::ON_CLOSE)),
            false => hooks,
        }
    }

    /// What is declared of seats that the plugin does not take: a mistake in the plugin.
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
    fn what_is_declared_of_a_seat_needs_the_seat() {
        let declared =
            Capabilities::NONE.with_if(false, Capability::Decides).with(Capability::InspectsResponses);
        assert_eq!(declared.without_seat(HookSet::ON_REQUEST), Some(Capability::InspectsResponses));
        assert_eq!(declared.without_seat(HookSet::ON_RESPONSE), None);
    }
}
