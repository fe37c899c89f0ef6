//! Documents as the store holds them, and objects as the catalog takes them.

use std::borrow::Cow;

use gateway_core::config::catalog::{Edit, Kind, Put};
use gateway_core::config::file::{self, Origin, parse_item, parse_part};
use gateway_core::config::problem::Problems;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::store::Object;
use crate::store::seal::{Keys, SealError, redact, retain, seal, unseal};

/// Reads documents, with the keys for the secrets in them.
#[derive(Clone)]
pub(crate) struct Documents {
    keys: Keys,
}

/// Keys that tell where an object stands when the rest of it can't be read.
const PLACE_OF_PROXY: &[&str] = &[
    "id",
    "hosts",
    "listen_path",
    "backend_scheme",
    "backend_protocol",
    "listen_port",
    "listen_port_range",
    "passthrough",
    "frontend_tls",
];
/// A consumer without credentials.
const NOBODY: &str = r#"{"id":""}"#;
const PLACE_OF_PLUGIN: &[&str] = &["id", "plugin_name", "scope", "proxy_id"];

impl Documents {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys }
    }

    /// Reads a document that stands at `at`, as somebody sent it.
    pub(crate) fn sent<T>(at: &str, (id, document): (&str, &str)) -> Put<T>
    where
        T: DeserializeOwned + JsonSchema + Identified,
    {
        let origin = Origin { format: Some(file::Format::Json), ..Origin::default() };
        let (object, problems) = parse_part::<T>(document, &origin, at);
        let object = object.unwrap_or_else(T::bare).with_id(id);
        Put { at: at.to_owned(), object, damage: Some(problems).filter(|problems| !problems.is_empty()) }
    }

    /// Hides what must not lie in a database in the clear.
    ///
    /// # Errors
    /// When there is no key to encrypt with.
    pub(crate) fn seal(&self, kind: Kind, document: &str) -> Result<String, SealError> {
        match kind {
            Kind::Consumers => seal(document, &self.keys),
            Kind::Upstreams | Kind::PluginConfigs | Kind::Proxies => Ok(document.to_owned()),
        }
    }

    /// A document with its secrets in the clear, to be checked.
    ///
    /// # Errors
    /// When there is no key to decrypt with.
    pub(crate) fn opened<'d>(&self, kind: Kind, document: &'d str) -> Result<Cow<'d, str>, SealError> {
        match kind {
            Kind::Consumers => unseal(document, &self.keys),
            Kind::Upstreams | Kind::PluginConfigs | Kind::Proxies => Ok(Cow::Borrowed(document)),
        }
    }

    /// A consumer's document with the credentials it means: the stored ones where it has fingerprints instead.
    ///
    /// # Errors
    /// When a fingerprint is none of those.
    pub(crate) fn retained(document: &str, stored: Option<&str>) -> Result<String, SealError> {
        // What is stored may be damaged, and is to be mended then: it has no credentials to be kept.
        let stored = stored.filter(|stored| redact(stored).is_ok());
        retain(document, stored.unwrap_or(NOBODY))
    }

    /// Whether two sealed documents say the same: sealing the same twice gives the same.
    pub(crate) fn same(one: &str, other: &str) -> bool {
        let read = |document| serde_json::from_str::<Value>(document).ok();
        one == other || read(one).is_some_and(|value| read(other) == Some(value))
    }

    /// A document without its secrets, for answers.
    pub(crate) fn shown(kind: Kind, document: &str) -> Value {
        let shown = match kind {
            Kind::Consumers => redact(document).ok(),
            Kind::Upstreams | Kind::PluginConfigs | Kind::Proxies => Some(document.to_owned()),
        };
        let value = shown.and_then(|text| serde_json::from_str(&text).ok());
        // What can't be read may hold secrets wherever it likes.
        value.filter(Value::is_object).unwrap_or_else(|| json!({ "unreadable": true }))
    }

    /// What the store has, even when it is damaged.
    pub(crate) fn stored<T>(&self, at: String, object: &Object) -> Put<T>
    where
        T: DeserializeOwned + JsonSchema + Identified,
    {
        let origin = Origin { format: Some(file::Format::Json), ..Origin::default() };
        let read = match self.opened(object.kind, &object.document) {
            Ok(text) => parse_item::<T>(&text, &origin, &at),
            Err(error) => Err(Problems::one("credentials", error.to_string())),
        };
        match read {
            Ok(item) if item.id() == Some(&object.id) => Put { at, object: item, damage: None },
            Ok(item) => {
                let problems = Problems::one("id", format!("the document's id is not `{}`", object.id));
                Put { at, object: item.with_id(&object.id), damage: Some(problems) }
            }
            Err(damage) => {
                let rest = place_of::<T>(object).unwrap_or_else(T::bare);
                Put { at, object: rest.with_id(&object.id), damage: Some(damage) }
            }
        }
    }

    /// Adds what the store has to an edit.
    pub(crate) fn put(&self, edit: &mut Edit, object: &Object) {
        let at = format!("{}.{}", object.kind, object.id);
        match object.kind {
            Kind::Upstreams => edit.upstreams.push(self.stored(at, object)),
            Kind::PluginConfigs => edit.plugin_configs.push(self.stored(at, object)),
            Kind::Proxies => edit.proxies.push(self.stored(at, object)),
            Kind::Consumers => edit.consumers.push(self.stored(at, object)),
        }
    }
}

/// Adds to an edit what somebody sent.
pub(super) fn put_sent(edit: &mut Edit, kind: Kind, at: &str, sent: (&str, &str)) {
    match kind {
        Kind::Upstreams => edit.upstreams.push(Documents::sent(at, sent)),
        Kind::PluginConfigs => edit.plugin_configs.push(Documents::sent(at, sent)),
        Kind::Proxies => edit.proxies.push(Documents::sent(at, sent)),
        Kind::Consumers => edit.consumers.push(Documents::sent(at, sent)),
    }
}

/// Where a damaged object stands.
fn place_of<T: DeserializeOwned>(object: &Object) -> Option<T> {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(&object.document) else { return None };
    let kept = match object.kind {
        Kind::Proxies => PLACE_OF_PROXY,
        Kind::PluginConfigs => PLACE_OF_PLUGIN,
        Kind::Upstreams | Kind::Consumers => &["id"],
    };
    let fields: Map<String, Value> =
        fields.into_iter().filter(|(key, _)| kept.contains(&key.as_str())).collect();
    serde_json::from_value(Value::Object(fields)).ok()
}

/// Objects as written, all of which have an id.
pub(crate) trait Identified {
    /// Its id.
    fn id(&self) -> Option<&String>;
    /// The same with another id.
    fn with_id(self, id: &str) -> Self;
    /// One that says nothing.
    fn bare() -> Self;
}

macro_rules! identified {
    ($($type:ty),*) => {$(
        impl Identified for $type {
            fn id(&self) -> Option<&String> {
                self.id.as_ref()
            }

            fn with_id(self, id: &str) -> Self {
                Self { id: Some(id.to_owned()), ..self }
            }

            fn bare() -> Self {
                Self::default()
            }
        }
    )*};
}

identified!(file::Proxy, file::Consumer, file::Upstream, file::PluginConfig);
