//! Resolves the forwarding headers of a proxy.

use super::Notes;
use crate::file;
use crate::model::ForwardedRules;
use crate::template::{BadTemplate, Moment, Template};

/// The templates; `None` if the gateway sends its own values.
pub(super) fn forwarded(notes: &mut Notes<'_>, written: &file::Forwarded) -> Option<Box<ForwardedRules>> {
    let is_number = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    if let Some(port) = written.port.as_deref().filter(|text| !text.contains("${") && !is_number(text)) {
        notes.add("forwarded.port", format!("`{port}` is not a port")).remedy =
            Some("1 to 65535, or a template".to_owned());
    }
    let mut template = |key: &str, text: Option<&str>| match Template::parse(text?, Moment::Request) {
        Ok(template) => Some(template),
        Err(BadTemplate { message, remedy }) => {
            notes.add(&format!("forwarded.{key}"), message).remedy = Some(remedy);
            None
        }
    };
    let rules = ForwardedRules {
        proto: template("proto", written.proto.as_deref()),
        host: template("host", written.host.as_deref()),
        addresses: template("for", written.r#for.as_deref()),
        port: template("port", written.port.as_deref()),
    };
    (rules != ForwardedRules::default()).then(|| Box::new(rules))
}
