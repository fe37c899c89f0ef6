//! Fills `{{name}}` in configurations, headers and paths.

use std::collections::BTreeMap;

/// The names that can stand in a template, and what they stand for.
pub const NAMES: [(&str, &str); 20] = [
    ("setup", "the setup's own part of a configuration"),
    ("listen", "the address that the subject listens on"),
    ("port", "its port"),
    ("admin", "the address of the gateway's admin API"),
    ("backend", "the backend's address"),
    ("backend_host", "its host"),
    ("backend_port", "its port"),
    ("mirror", "the address of a second backend"),
    ("directory", "a folder of the subject's own"),
    ("site", "the folder of static files"),
    ("scripts", "the folder of scripts and keys"),
    ("certificate", "the certificate's file"),
    ("key", "its key's file"),
    ("both", "the file with both"),
    ("workers", "cores of the subject"),
    ("connections", "connections that the open-files limit allows"),
    ("jwks", "the URL of the key set"),
    ("hs256", "a token signed with the shared secret"),
    ("rs256", "a token signed with RSA"),
    ("es256", "a token signed on P-256"),
];

/// What the names stand for in one place.
#[derive(Debug, Clone, Default)]
pub struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// Names as themselves, for showing a configuration that nobody runs.
    #[must_use]
    pub fn as_shown() -> Self {
        Self(NAMES.iter().map(|(name, _)| (*name, format!("<{name}>"))).collect())
    }

    /// Sets a name.
    pub fn set(&mut self, name: &'static str, value: impl ToString) {
        self.0.insert(name, value.to_string());
    }

    /// The text with all names filled in; those without a value stay.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            out.push_str(before);
            let Some((name, behind)) = after.split_once("}}") else {
                out.push_str("{{");
                rest = after;
                continue;
            };
            match self.0.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("{{{{{name}}}}}")),
            }
            rest = behind;
        }
        out.push_str(rest);
        out
    }
}

/// Names in a text that stand for nothing.
pub fn unknown(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{")
        .skip(1)
        .map(|after| after.split_once("}}").map_or(after, |(name, _)| name))
        .filter(|name| !NAMES.iter().any(|(known, _)| known == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in() {
        let mut values = Values::default();
        values.set("port", 80);
        assert_eq!(values.fill("a {{port}} b{{port}}"), "a 80 b80");
        assert_eq!(values.fill("{ {{key}} }} {{"), "{ {{key}} }} {{");
        assert_eq!(unknown("{{port}} {{prot}} {{x").collect::<Vec<_>>(), ["prot", "x"]);
        assert_eq!(Values::as_shown().fill("{{listen}}"), "<listen>");
    }
}
