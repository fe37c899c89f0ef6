//! A plugin that reads messages: it shouts, swallows and forbids.

use std::sync::Arc;

use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::plugin::{
    Gate, Hooks, OnConnect, OnMessage, Passage, Plugin, Registry, Seat, World, entry,
};
use ferrum_edge::core::stream::session::{Direction, Message, MessageKind, Session};
use schemars::JsonSchema;
use serde::Deserialize;

/// Makes what goes up upper case, drops `drop`, ends the session at `end`, panics at `panic` and spoils the text `spoil`.
struct Censor(Config);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Config {
    /// Refuses every session.
    refuse: bool,
    /// Reads no messages.
    deaf: bool,
    /// Never decides about a session.
    hesitate: bool,
}

impl Plugin for Censor {
    const NAME: &'static str = "censor";
    const SUMMARY: &'static str = "Reads along.";
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        Ok(Self(config))
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        if !self.0.deaf {
            hooks.on_message(self.clone());
        }
        hooks.on_connect(self);
    }
}

impl OnConnect for Censor {
    fn on_connect<'a>(&'a self, _session: &'a mut Session, _seat: Seat<'a>) -> Gate<'a> {
        match &self.0 {
            Config { hesitate: true, .. } => Gate::Wait(Box::pin(std::future::pending())),
            Config { refuse: true, .. } => Gate::refuse("unwanted"),
            _ => Gate::Open,
        }
    }
}

impl OnMessage for Censor {
    fn on_message<'a>(&'a self, _session: &'a Session, message: Message<'_>, _seat: Seat<'a>) -> Passage<'a> {
        match (&message.payload[..], message.kind) {
            (b"drop", _) => return Passage::Drop,
            (b"end", _) => return Passage::Close(1008),
            (b"panic", _) => panic!("a plugin's defect, on purpose"),
            (b"spoil", MessageKind::Text) => *message.payload = vec![0xFF].into(),
            _ => {}
        }
        if message.direction == Direction::Up {
            *message.payload = message.payload.to_ascii_uppercase().into();
        }
        Passage::Forward
    }
}

/// The gateway's plugins and this one.
pub(crate) fn plugins() -> Registry {
    let mut registry = ferrum_edge::plugins();
    registry.add(entry::<Censor>());
    registry
}

/// Has this one run everywhere.
pub(crate) fn everywhere(config: &str) -> String {
    format!("plugin_configs:\n  - {{id: censor, plugin_name: censor, scope: global, config: {{{config}}}}}\n")
}
