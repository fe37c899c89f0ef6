//! What a reload of the configuration file changes.

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::file::{self, Origin};
use serde_json::{Map, Value, json};

use super::database::Documents;
use super::file::{Spec, read_text};
use crate::audit::{AuditOutcome, Draft, Who};
use crate::audit_recorder::{FileObjects, Recorder};
use crate::store::Gathered;
use crate::store::seal::plugin::redact_settings;

/// What settings that are secrets, or hold them, are shown as.
const HIDDEN: &str = "***";

/// Reads a file's objects. What can't be read has none; who loads the file says why.
pub(crate) fn known(spec: &Spec) -> FileObjects {
    let (text, origin) = match spec {
        Spec::Text { name, text } => {
            (Some(text.clone()), Origin { name: (*name).to_owned(), ..Origin::default() })
        }
        Spec::File(path) => (read_text(path).ok(), Origin::file(path)),
    };
    let document = text.and_then(|text| file::foreign(&text, &origin).ok());
    let Some(Value::Object(mut document)) = document else { return FileObjects::new() };
    let mut known = FileObjects::new();
    for kind in ObjectKind::ALL {
        let Some(Value::Array(objects)) = document.shift_remove(kind.as_str()) else { continue };
        for (n, object) in objects.into_iter().enumerate() {
            let id = object.get("id").and_then(Value::as_str).map_or_else(|| format!("#{n}"), str::to_owned);
            known.insert((kind.as_str().to_owned(), id.clone()), shown(kind, object, &id));
        }
    }
    if let Some(gateway) = document.shift_remove("gateway") {
        let mut gateway = redact_settings(gateway);
        hide_headers(&mut gateway);
        known.insert(("gateway".to_owned(), "gateway".to_owned()), gateway);
    }
    known
}

fn shown(kind: ObjectKind, object: Value, id: &str) -> Value {
    let object = match object {
        Value::Object(mut fields) => {
            fields.entry("id").or_insert_with(|| json!(id));
            Value::Object(fields)
        }
        other => other,
    };
    // Plugins may also be written within a proxy.
    match kind {
        ObjectKind::Proxies | ObjectKind::Upstreams => redact_settings(object),
        ObjectKind::Consumers | ObjectKind::PluginConfigs => Documents::shown(kind, &object.to_string()),
    }
}

/// Headers that are sent to collectors hold credentials.
fn hide_headers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Object(headers) if name == "headers" => hide(headers),
                    value => hide_headers(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_headers),
        _ => {}
    }
}

fn hide(headers: &mut Map<String, Value>) {
    headers.values_mut().for_each(|value| *value = json!(HIDDEN));
}

/// Adds to a draft what is different between two files.
pub(crate) fn compare(draft: &mut Draft, before: &FileObjects, after: &FileObjects) {
    let mut all = Gathered::default();
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (was, is) = (before.get(key), after.get(key));
        if was != is {
            let text = |value: Option<&Value>| value.map(Value::to_string);
            all.add(&key.0, &key.1, text(was).as_deref(), text(is).as_deref());
        }
    }
    draft.gathered(all, |_, document| serde_json::from_str(document).unwrap_or_default());
}

/// Keeps what the file has at the start, where somebody will want to know what changes.
pub(crate) fn started(recorder: &Recorder, spec: &Spec) {
    if recorder.is_kept() {
        drop(recorder.knows(known(spec)));
    }
}

/// Records a reload: the revision that came of it, or why it was refused.
pub(crate) fn reloaded(recorder: &Recorder, spec: &Spec, result: Result<u64, String>) {
    let who = Who { actor: "SIGHUP".to_owned(), role: None, source: "file", ..Who::default() };
    let mut draft = Draft::new(who, format!("reload {spec}"), AuditOutcome::Allowed);
    match result {
        Ok(revision) => {
            draft.revision = Some(revision);
            if recorder.is_kept() {
                let now = known(spec);
                // Without a state before, such as when the log was switched on by this very file, there is nothing to
                // compare with.
                if let Some(before) = recorder.knows(now.clone()) {
                    compare(&mut draft, &before, &now);
                }
            }
        }
        Err(why) => (draft.outcome, draft.reason) = (AuditOutcome::Refused, Some(why)),
    }
    recorder.record(draft);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> FileObjects {
        known(&Spec::Text { name: "test", text: text.to_owned() })
    }

    #[test]
    fn differences_are_told_without_secrets() {
        let before = of("
gateway: { access_log: { sinks: [{ name: a, otlp: { endpoint: 'http://c', headers: { authorization: Basic-s3cret } } }] } }
proxies: [{ id: shop, listen_path: /, backend_host: a }, { id: gone, listen_path: /gone }]
consumers: [{ id: ann, username: ann, credentials: { key_auth: { key: s3cret-one } } }]
plugin_configs: [{ id: p, plugin_name: x, config: { client_secret: s3cret-two, a: '${env:HOME}' } }]
");
        let after = of("
gateway: { access_log: { sinks: [{ name: b, otlp: { endpoint: 'http://c', headers: { authorization: Basic-s3cret } } }] } }
proxies: [{ id: shop, listen_path: /, backend_host: b }, { id: new, listen_path: /new }]
consumers: [{ id: ann, username: ann, credentials: { key_auth: { key: s3cret-three } } }]
plugin_configs: [{ id: p, plugin_name: x, config: { client_secret: s3cret-four, a: '${env:HOME}' } }]
");
        let mut draft = Draft::new(Who::default(), "reload", AuditOutcome::Allowed);
        compare(&mut draft, &before, &after);
        let did: Vec<_> =
            draft.changes.iter().map(|it| format!("{} {}/{}", it.action, it.kind, it.id)).collect();
        assert_eq!(
            did,
            [
                "update consumers/ann",
                "update gateway/gateway",
                "update plugin_configs/p",
                "delete proxies/gone",
                "create proxies/new",
                "update proxies/shop"
            ]
        );
        let text = format!("{:?}", draft.changes);
        assert!(!text.contains("s3cret"), "{text}");
        assert!(text.contains("${env:HOME}") && text.contains("fingerprint"), "{text}");
        assert_eq!(draft.changes[5].after.as_ref().unwrap()["backend_host"], "b");
        let mut none = Draft::new(Who::default(), "reload", AuditOutcome::Allowed);
        compare(&mut none, &after, &after);
        assert!(none.changes.is_empty());
    }
}
