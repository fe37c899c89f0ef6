//! Plugins that keep requests out, and that tell browsers what is allowed.

use super::settings::{Amount, Flag, Number, One, Text, Texts, draft, settings};

/// What whoever asks for something that was closed is told.
pub(crate) const CLOSED: &str = "closed: what guards this was not imported";

settings! {
    IpRestriction: "ip_restriction" { allow: Texts, deny: Texts, status_code: Number }
    BotDetection: "bot_detection" { deny: Texts, allow: Texts }
    AccessControl: "access_control" { allowed_groups: Texts, disallowed_groups: Texts }
    Cors: "cors" {
        allowed_origins: Texts, allowed_methods: Texts, allowed_headers: Texts, exposed_headers: Texts, allow_credentials: Flag,
        max_age: Amount, allow_private_network: Flag, preflight_continue: Flag,
    }
    RequestTermination: "request_termination" {
        status_code: Number, content_type: Text, body: Text, template: Flag, message: Text, trigger: One<Trigger>,
    }
    /// Which requests it answers.
    Trigger: "request_termination/trigger" { file: Text }
}

impl RequestTermination {
    /// What answers for all that was closed.
    pub(crate) fn of_closed_route() -> Self {
        draft!(RequestTermination { status_code: 503, content_type: "text/plain", body: CLOSED })
    }
}
