//! Documents as the store holds them, and objects as the catalog takes them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use gateway_core::config::catalog::{Edit, ObjectKind, Put};
use gateway_core::config::credential::CredentialTypes;
use gateway_core::config::file::{self, Origin, parse_item, parse_part};
use gateway_core::config::problem::Problems;
use gateway_core::plugin::Registry;
use schemars::JsonSchema;
use serde::Deserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use super::Permitted;
use super::paths::{self, Paths};
use crate::store::Object;
use crate::store::seal::{Keys, SealError, plugin, redact, retain, seal, unseal};

/// Reads documents, with the keys for the secrets in them.
#[derive(Clone)]
pub(crate) struct Documents {
    types: CredentialTypes,
    keys: Keys,
    references: Arc<Permitted>,
    paths: Arc<Paths>,
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

impl Documents {
    pub(crate) fn new(registry: &Registry, keys: Keys, references: Permitted) -> Self {
        let (types, paths) = (registry.credential_types(), Paths::of(registry));
        Self { types, keys, references: Arc::new(references), paths: Arc::new(paths) }
    }

    /// The one spelling of a type of credentials; `None` if no plugin declares it.
    #[cfg(feature = "fleet")]
    pub(crate) fn credential_name(&self, name: &str) -> Option<&'static str> {
        self.types.find(name).map(|kind| kind.name)
    }

    /// The keys for secrets.
    #[cfg(feature = "fleet")]
    pub(crate) const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What is wrong with the files that an object names.
    fn files<T: Identified>(&self, at: &str, object: &T) -> Problems {
        if let Some((plugin, config)) = object.plugin() {
            return self.paths.check(plugin, config, at, &self.references);
        }
        let mut problems = Problems::default();
        for (key, path) in object.files() {
            problems.0.extend(paths::problem(path, &format!("{at}.{key}"), &self.references));
        }
        problems
    }

    /// Reads a document that stands at `at`, as somebody sent it.
    pub(crate) fn sent<T>(&self, at: &str, id: &str, document: &str) -> Put<T>
    where
        T: DeserializeOwned + JsonSchema + Identified,
    {
        let origin = Origin { format: Some(file::Format::Json), ..Origin::default() };
        let (object, mut problems) = parse_part::<T>(document, &origin, at, &*self.references);
        problems.0.extend(object.iter().flat_map(|object| self.files(at, object).0));
        let object = object.unwrap_or_else(T::bare).with_id(id);
        Put { at: at.to_owned(), object, damage: Some(problems).filter(|problems| !problems.is_empty()) }
    }

    /// Hides what must not lie in a database in the clear. `stored` is the object's document as it is.
    ///
    /// # Errors
    /// When there is no key to encrypt with.
    pub(crate) fn seal(
        &self,
        kind: ObjectKind,
        document: &str,
        stored: Option<&str>,
    ) -> Result<String, SealError> {
        match kind {
            ObjectKind::Consumers => seal(document, &self.types, &self.keys),
            ObjectKind::PluginConfigs => plugin::seal(document, stored, &self.keys),
            ObjectKind::Upstreams | ObjectKind::Proxies => Ok(document.to_owned()),
        }
    }

    /// A document of the history as it is to be stored again: earlier gateways left some secrets in the clear.
    ///
    /// # Errors
    /// When what is sealed can't be opened.
    pub(super) fn seal_again(&self, kind: ObjectKind, document: &mut String) -> Result<(), SealError> {
        if kind == ObjectKind::PluginConfigs && !self.keys.is_empty() {
            *document = plugin::seal(document, None, &self.keys)?;
        }
        Ok(())
    }

    /// A document with its secrets in the clear, to be checked.
    ///
    /// # Errors
    /// When there is no key to decrypt with.
    pub(crate) fn opened<'d>(&self, kind: ObjectKind, document: &'d str) -> Result<Cow<'d, str>, SealError> {
        match kind {
            ObjectKind::Consumers => unseal(document, &self.types, &self.keys),
            // Most have nothing sealed, and a million of them are read at a start.
            ObjectKind::PluginConfigs if document.contains("\"sealed\"") => {
                plugin::unseal(document, &self.keys).map(Cow::Owned)
            }
            ObjectKind::Upstreams | ObjectKind::PluginConfigs | ObjectKind::Proxies => {
                Ok(Cow::Borrowed(document))
            }
        }
    }

    /// A document with the secrets it means: the stored ones where it has fingerprints instead.
    ///
    /// # Errors
    /// When a fingerprint is none of those.
    pub(crate) fn retained(
        &self,
        kind: ObjectKind,
        document: &str,
        stored: Option<&str>,
    ) -> Result<String, SealError> {
        // What is stored may be damaged, and is being repaired then: it has no secrets to keep.
        match kind {
            ObjectKind::Consumers => {
                let stored = stored.filter(|stored| redact(stored).is_ok());
                retain(document, stored.unwrap_or(NOBODY), &self.types)
            }
            ObjectKind::PluginConfigs => {
                let stored = stored.filter(|stored| plugin::redact(stored).is_ok());
                plugin::retain(document, stored.unwrap_or(NOBODY), &self.keys)
            }
            ObjectKind::Upstreams | ObjectKind::Proxies => Ok(document.to_owned()),
        }
    }

    /// Holds a document, in which stored secrets were kept, against the stored one; `request` is what was sent.
    ///
    /// # Errors
    /// When a kept secret would go to another server.
    pub(super) fn check_binding(
        &self,
        kind: ObjectKind,
        request: &Map<String, Value>,
        document: &str,
        stored: Option<&str>,
    ) -> Result<(), SealError> {
        match stored.filter(|stored| kind == ObjectKind::PluginConfigs && plugin::redact(stored).is_ok()) {
            Some(stored) => {
                plugin::check_binding(&Value::Object(request.clone()), document, stored, &self.keys)
            }
            None => Ok(()),
        }
    }

    /// Whether two names are one type of credential.
    pub(super) fn is_same_credential(&self, one: &str, other: &str) -> bool {
        let of = |name| self.types.find(name).map(|found| found.name);
        one == other || of(one).is_some_and(|name| of(other) == Some(name))
    }

    /// Whether two sealed documents say the same: sealing the same twice gives the same, and `1m` is as good as 60000.
    pub(crate) fn same(kind: ObjectKind, one: &str, other: &str) -> bool {
        if one == other {
            return true;
        }
        let origin = Origin { format: Some(file::Format::Json), ..Origin::default() };
        let plain = |document| {
            let whole = format!("{{\"{kind}\":[{document}]}}");
            file::document(&whole, &origin, &file::KeepReferences).ok()
        };
        plain(one).is_some_and(|one| plain(other) == Some(one))
    }

    /// A document without its secrets, for answers.
    pub(crate) fn shown(kind: ObjectKind, document: &str) -> Value {
        let shown = match kind {
            ObjectKind::Consumers => redact(document).ok(),
            ObjectKind::PluginConfigs => plugin::redact(document).ok(),
            ObjectKind::Upstreams | ObjectKind::Proxies => Some(document.to_owned()),
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
            Ok(text) => parse_item::<T>(&text, &origin, &at, &*self.references),
            Err(error) => Err(Problems::one("credentials", error.to_string())),
        };
        match read {
            Ok(item) if item.id() == Some(&object.id) => {
                let damage = Some(self.files(&at, &item)).filter(|problems| !problems.is_empty());
                Put { at, object: item, damage }
            }
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

    /// What the store has, as an edit that puts all of it.
    pub(super) fn edit(&self, objects: &[Object]) -> Edit {
        let mut edit = Edit::default();
        let count = |kind| objects.iter().filter(|object| object.kind == kind).count();
        // A proxy as it is written has many fields: growing a list of them moves kilobytes for each.
        edit.upstreams.reserve_exact(count(ObjectKind::Upstreams));
        edit.plugin_configs.reserve_exact(count(ObjectKind::PluginConfigs));
        edit.proxies.reserve_exact(count(ObjectKind::Proxies));
        edit.consumers.reserve_exact(count(ObjectKind::Consumers));
        objects.iter().for_each(|object| self.put(&mut edit, object));
        edit
    }

    /// Adds what the store has to an edit.
    pub(crate) fn put(&self, edit: &mut Edit, object: &Object) {
        let at = format!("{}.{}", object.kind, object.id);
        match object.kind {
            ObjectKind::Upstreams => edit.upstreams.push(self.stored(at, object)),
            ObjectKind::PluginConfigs => edit.plugin_configs.push(self.stored(at, object)),
            ObjectKind::Proxies => edit.proxies.push(self.stored(at, object)),
            ObjectKind::Consumers => edit.consumers.push(self.stored(at, object)),
        }
    }

    /// Adds to an edit what somebody sent.
    pub(super) fn put_sent(&self, edit: &mut Edit, kind: ObjectKind, at: &str, id: &str, document: &str) {
        match kind {
            ObjectKind::Upstreams => edit.upstreams.push(self.sent(at, id, document)),
            ObjectKind::PluginConfigs => edit.plugin_configs.push(self.sent(at, id, document)),
            ObjectKind::Proxies => edit.proxies.push(self.sent(at, id, document)),
            ObjectKind::Consumers => edit.consumers.push(self.sent(at, id, document)),
        }
    }
}

/// Where a damaged object stands.
fn place_of<T: DeserializeOwned>(object: &Object) -> Option<T> {
    let whole = serde_json::from_str::<Map<String, Value>>(&object.document).ok();
    let fields = whole.unwrap_or_else(|| beginning(&object.document));
    match object.kind {
        ObjectKind::Proxies => place_of_proxy(fields),
        ObjectKind::PluginConfigs => place_of_plugin(fields),
        ObjectKind::Upstreams | ObjectKind::Consumers => None,
    }
}

/// What traffic a damaged proxy takes, for as far as its fields tell; each is read by itself. Fewer fields are more
/// traffic, and all of it is refused: what was meant for this proxy must not reach another one.
fn place_of_proxy<T: DeserializeOwned>(mut fields: Map<String, Value>) -> Option<T> {
    fields.retain(|key, value| {
        let alone = Map::from_iter([(key.clone(), value.take())]);
        let is_good = PLACE_OF_PROXY.contains(&key.as_str())
            && serde_json::from_value::<file::Proxy>(Value::Object(alone.clone())).is_ok();
        *value = alone.into_iter().next().map(|(_, value)| value).unwrap_or_default();
        is_good
    });
    serde_json::from_value(Value::Object(fields)).ok()
}

/// Where a damaged plugin config runs, for as far as its fields tell: whatever they don't tell of has to be taken for
/// everything, so each is read by itself. One that has a proxy can run for no other, whatever else stands there.
fn place_of_plugin<T: DeserializeOwned>(mut fields: Map<String, Value>) -> Option<T> {
    fields.retain(|key, value| match key.as_str() {
        "id" | "proxy_id" => value.is_string(),
        "scope" => serde_json::from_value::<file::Scope>(value.clone()).is_ok(),
        _ => false,
    });
    fields.insert("plugin_name".to_owned(), json!(""));
    serde_json::from_value(Value::Object(fields)).ok()
}

/// The fields of an object up to where its text is no JSON any more. A name that stands there twice tells nothing.
fn beginning(text: &str) -> Map<String, Value> {
    let (mut fields, mut twice) = (Map::new(), Vec::new());
    let mut reader = serde_json::Deserializer::from_str(text);
    // Where it ends is where it is broken: what was read before is all there is.
    drop(reader.deserialize_map(Beginning { fields: &mut fields, twice: &mut twice }));
    for name in twice {
        fields.shift_remove(&name);
    }
    fields
}

struct Beginning<'f> {
    fields: &'f mut Map<String, Value>,
    twice: &'f mut Vec<String>,
}

impl<'de> Visitor<'de> for Beginning<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some((name, value)) = entries.next_entry::<String, Value>()? {
            if self.fields.insert(name.clone(), value).is_some() {
                self.twice.push(name);
            }
        }
        Ok(())
    }
}

/// Objects as written, all of which have an id.
pub(crate) trait Identified {
    /// Its id.
    fn id(&self) -> Option<&String>;
    /// The plugin that is configured, and its settings.
    fn plugin(&self) -> Option<(&str, &Value)> {
        None
    }
    /// The files and Unix sockets that its own fields name, each with its key.
    fn files(&self) -> Vec<(String, &Path)> {
        Vec::new()
    }
    /// The same with another id.
    fn with_id(self, id: &str) -> Self;
    /// One that says nothing.
    fn bare() -> Self;
}

/// The files for TLS towards targets that a proxy or an upstream names, each with its key.
macro_rules! tls_files {
    ($object:ident) => {
        [
            ("backend_tls_client_cert_path", &$object.backend_tls_client_cert_path),
            ("backend_tls_client_key_path", &$object.backend_tls_client_key_path),
            ("backend_tls_ca_path", &$object.backend_tls_ca_path),
        ]
        .into_iter()
        .filter_map(|(key, path)| Some((key.to_owned(), Path::new(path.as_ref()?))))
    };
}

macro_rules! identified {
    ($($type:ty $({ $($more:item)* })?),*) => {$(
        impl Identified for $type {
            $($($more)*)?

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

identified!(
    file::Proxy {
        fn files(&self) -> Vec<(String, &Path)> {
            let tls = tls_files!(self);
            let socket = self.backend_host.as_deref().and_then(socket);
            // A script that runs can do more than a file that is read.
            let folders = self.fastcgi.iter().flat_map(|rules| {
                let named = [("fastcgi.root", &rules.root), ("fastcgi.local_root", &rules.local_root)];
                named.into_iter().filter_map(|(key, path)| Some((key.to_owned(), Path::new(path.as_ref()?))))
            });
            let socket = socket.map(|path| ("backend_host".to_owned(), path));
            tls.chain(socket).chain(folders).collect()
        }
    },
    file::Consumer,
    file::Upstream {
        fn files(&self) -> Vec<(String, &Path)> {
            let tls = tls_files!(self);
            let targets = self.targets.iter().enumerate();
            let sockets =
                targets.filter_map(|(n, target)| Some((format!("targets[{n}].host"), socket(&target.host)?)));
            tls.chain(sockets).collect()
        }
    },
    file::PluginConfig {
        fn plugin(&self) -> Option<(&str, &Value)> {
            Some((&self.plugin_name, &self.config))
        }
    }
);

/// The Unix socket that a host is.
fn socket(host: &str) -> Option<&Path> {
    host.strip_prefix("unix:").map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(document: &str) -> (Option<String>, Option<file::Scope>) {
        let (id, document) = ("k".to_owned(), document.to_owned());
        let kind = ObjectKind::PluginConfigs;
        let object = Object { kind, id, document, created_at: 0, updated_at: 0, revision: 1 };
        let put = Documents::new(&crate::plugins(), Keys::default(), Permitted::default())
            .stored::<file::PluginConfig>(String::new(), &object);
        assert!(put.damage.is_some(), "{object:?}");
        (put.object.proxy_id, put.object.scope)
    }

    #[test]
    fn where_a_damaged_plugin_config_runs_is_read_from_what_is_left_of_it() {
        let of = |proxy: &str| (Some(proxy.to_owned()), None);
        for (document, expected) in [
            (r#"{"id":"k","plugin_name":"key_auth","proxy_id":"a","config":{"x""#, of("a")),
            (r#"{"id":"k","proxy_id":"a","plugin_name":5}"#, of("a")),
            (r#"{"id":"k","proxy_id":"a","scope":7}"#, of("a")),
            (r#"{"id":"k","scope":"global","#, (None, Some(file::Scope::Global))),
            (r#"{"id":"k","scope":"proxy_group"} trailing"#, (None, Some(file::Scope::ProxyGroup))),
            // Nothing can be told of these.
            (r#"{"id":"k","proxy_id":"a"#, (None, None)),
            (r#"{"id":"k","proxy_id":"a","proxy_id":"b","config":{"#, (None, None)),
            (r#"{"id":"k","proxy_id":["a"]}"#, (None, None)),
            (r#"["proxy_id","a"]"#, (None, None)),
            ("", (None, None)),
        ] {
            assert_eq!(place(document), expected, "{document}");
        }
    }
}
