//! The types of the admin API's bodies.

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::file::File;
use serde_json::{Map, Value, json};

use super::super::sessions::PROTOCOLS;
use super::{reference, type_of};

/// The types of configuration files, what the API answers, and the error.
pub(super) fn all() -> Value {
    let mut file = File::schema().as_value().clone();
    relink(&mut file);
    let mut schemas = match file.as_object_mut().and_then(|file| file.shift_remove("$defs")) {
        Some(Value::Object(types)) => types,
        _ => Map::new(),
    };
    schemas.insert("File".to_owned(), file);
    for kind in ObjectKind::ALL {
        let name = type_of(kind);
        let stored = schemas.get(name).map_or_else(|| json!({}), |schema| stored(schema.clone()));
        schemas.insert(format!("Stored{name}"), stored);
        schemas.insert(format!("{name}Page"), page(&reference(&format!("Stored{name}"))));
    }
    let Value::Object(answers) = answers() else { return Value::Object(schemas) };
    schemas.extend(answers);
    Value::Object(schemas)
}

/// An object as it is answered: with its times and revision. What is required of one that is sent need not be there:
/// secrets are never shown.
fn stored(mut schema: Value) -> Value {
    let time = json!({ "type": "string", "format": "date-time" });
    if let Some(fields) = schema["properties"].as_object_mut() {
        fields.insert("created_at".to_owned(), time.clone());
        fields.insert("updated_at".to_owned(), time);
        fields.insert("revision".to_owned(), json!({ "type": "integer" }));
        // Shown as they are stored, without secrets.
        for hidden in ["credentials", "config"] {
            if let Some(field) = fields.get_mut(hidden) {
                *field = json!({ "description": "Without secrets." });
            }
        }
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("required".to_owned(), json!(["id", "created_at", "updated_at", "revision"]));
    }
    schema
}

fn page(item: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": { "type": "array", "items": item },
            "next": { "type": ["string", "null"], "description": "`after` or `before` of the next page; null on the last." },
        },
    })
}

/// What `/v1/explain` is asked.
fn question() -> Value {
    let text = json!({ "type": "string" });
    json!({ "type": "object", "required": ["url"], "additionalProperties": false, "properties": {
            "method": { "type": "string", "pattern": "^[A-Z]{1,20}$", "description": "Default GET." },
            "url": { "type": "string", "description": "A URL, or only a path." },
            "headers": { "type": "array", "items": { "type": "array", "items": text, "minItems": 2, "maxItems": 2 } },
            "client": { "type": ["string", "null"], "description": "The client's address. Default 127.0.0.1." },
            "tls": { "type": ["string", "null"], "description": "The name the client asks for by TLS." },
            "body_bytes": { "type": ["integer", "null"], "minimum": 0, "description": "Bytes of the request's body." },
            "body": { "type": ["string", "null"], "maxLength": 1_048_576, "description": "The request's body, for plugins that inspect it. Default: only its length is known." },
            "consumer": { "type": ["string", "null"], "description": "The consumer that sends the request, by username, for plugins that cannot tell it from the request." },
            "recorded_caller": { "type": ["string", "null"], "description": "The caller that the access record of the request names: a consumer, or somebody else, of whom only the name is known. `consumer` precedes it." },
        } })
}

fn answers() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    let revision = json!({
        "revision": count, "at": { "type": "string", "format": "date-time" }, "author": text, "source": text,
        "note": text, "created": count, "updated": count, "deleted": count,
    });
    let differences = json!({ "type": "array", "items": { "type": "object", "properties": {
        "kind": text, "id": text, "before": { "type": ["object", "null"] }, "after": { "type": ["object", "null"] },
    } } });
    let mut with_changes = revision.clone();
    with_changes["changes"] = differences.clone();
    with_changes["truncated"] = json!({ "type": "boolean" });
    let error = json!({ "type": "object", "properties": {
        "pointer": { "type": "string", "description": "The field (RFC 6901)." },
        "detail": text, "remedy": { "type": ["string", "null"] },
    } });
    let list = |name: &str| json!({ "type": "array", "items": reference(name) });
    let session = json!({ "type": "object", "required": ["id", "protocol", "proxy", "client", "since"], "properties": {
        "id": text, "protocol": { "enum": PROTOCOLS }, "proxy": text,
        "owner": { "type": ["string", "null"] }, "consumer": { "type": ["string", "null"] }, "client": text, "port": count,
        "bytes_up": { "type": ["integer", "null"], "minimum": 0, "description": "Bytes from the client so far." },
        "bytes_down": { "type": ["integer", "null"], "minimum": 0, "description": "Bytes to the client so far." },
        "since": { "type": "string", "format": "date-time" },
    } });
    let mut sessions = page(&session);
    sessions["properties"]["open"] = count.clone();
    json!({
        "Checked": { "type": "object", "required": ["valid", "revision"], "properties": {
            "valid": { "type": "boolean", "description": "Always true." }, "revision": count,
            "needs_approval": { "type": "boolean", "description": "Another user would have to approve it." },
        } },
        "Summary": { "type": "object", "required": ["revision", "created", "updated", "deleted", "unchanged"], "properties": {
            "revision": count, "created": count, "updated": count, "deleted": count, "unchanged": count,
            "edges_lacking": edges_lacking(),
            "ports_closed": { "type": "array", "description": "Written proxies whose ports could not be opened, with the cause. The gateway tries again.", "items": {
                "type": "object", "required": ["id", "problem"], "properties": { "id": text, "problem": text } } },
            "valid": { "type": "boolean", "description": "Always true." },
            "needs_approval": { "type": "boolean", "description": "Another user would have to approve it." },
            "credentials_restored": { "type": "array", "items": text, "description": "Consumers whose earlier credentials a rollback made valid again." },
            "changes": { "type": "array", "items": { "type": "object", "properties": {
                "kind": text, "id": text, "action": { "enum": ["create", "update", "keep", "delete"] },
                "fields": { "type": "array", "description": "With `validate_only` and `details`, the fields that an update would change.", "items": {
                    "type": "object", "properties": { "path": text, "before": {}, "after": {} } } },
            } } },
        } },
        "Targets": page(&json!({ "type": "object" })),
        "RevisionPage": page(&json!({ "type": "object", "properties": revision })),
        "RevisionWithChanges": { "type": "object", "properties": with_changes },
        "Diff": { "type": "object", "required": ["from", "to", "changes"], "properties": {
            "from": count, "to": count, "changes": differences, "truncated": { "type": "boolean" },
        } },
        "SessionPage": sessions,
        "Traffic": traffic(),
        "AuditPage": page(&audit_entry()),
        "AuditCheck": audit_check(),
        "Export": { "type": "object", "required": ["version", "proxies"], "properties": {
            "version": text, "upstreams": list("StoredObject"), "plugin_configs": list("StoredObject"),
            "proxies": list("StoredObject"), "consumers": list("StoredObject"),
        } },
        "Question": question(),
        "StoredObject": { "type": "object", "required": ["id"], "properties": { "id": text } },
        "Problem": { "type": "object", "required": ["title", "status", "code", "detail"], "properties": {
            "type": text, "title": text, "status": { "type": "integer" },
            "code": { "type": "string", "description": "Stable, for machines." },
            "detail": text, "errors": { "type": "array", "items": error },
        } },
    })
}

/// What a write says of a fleet's older edges.
fn edges_lacking() -> Value {
    let names = json!({ "type": "array", "items": { "type": "string" } });
    json!({ "type": "object", "description": "Control plane: edges whose version lacks a plugin or a setting that was written. What it protects is closed there, if the edge's group gets it; what `left_out` names is left out there.", "properties": {
        "count": { "type": "integer" },
        "edges": { "type": "array", "items": { "type": "object", "properties": {
            "edge": { "type": "string" }, "plugins": names, "settings": names, "left_out": names,
        } } },
    } })
}

/// Traffic by proxy and target.
fn traffic() -> Value {
    let (count, text) = (json!({ "type": "integer", "minimum": 0 }), json!({ "type": ["string", "null"] }));
    let row = json!({ "type": "object", "required": ["proxy", "upstream", "target", "is_rest", "classes", "buckets"], "properties": {
        "proxy": text, "upstream": text, "target": text,
        "is_rest": { "type": "boolean", "description": "All that has no row of its own, because there are too many." },
        "classes": { "type": "array", "items": count, "description": "Exchanges with a status of 1xx to 5xx." },
        "errors": { "type": "integer", "description": "Exchanges that the gateway ended with an error, or with a status of 5xx." },
        "retries": count, "sessions": count, "bytes_in": count, "bytes_out": count,
        "buckets": { "type": "array", "items": count, "description": "Exchanges by duration: up to each of `bounds`, and longer." },
        "duration_seconds": { "type": "number", "description": "The durations of all exchanges together." },
    } });
    let mut caller = row.clone();
    caller["required"] = json!(["caller", "is_rest", "classes", "buckets"]);
    caller["properties"]["caller"] = text;
    json!({ "type": "object", "required": ["seconds", "bounds", "rows", "targets", "active_requests"], "properties": {
        "seconds": { "type": "number", "description": "Since when it is counted; smaller than before when counting began anew." },
        "bounds": { "type": "array", "items": { "type": "number" }, "description": "Seconds." },
        "rows": { "type": "array", "items": row },
        "callers": { "type": "array", "items": caller, "description": "By consumer or external identity; up to 1000 apart." },
        "targets": { "type": "array", "items": { "type": "object" } },
        "active_requests": count, "connections": count, "revision": count, "version": { "type": "string" },
    } })
}

/// Whether the audit is whole.
fn audit_check() -> Value {
    let (count, text) = (json!({ "type": "integer", "minimum": 0 }), json!({ "type": "string" }));
    json!({ "type": "object", "required": ["valid", "entries", "first", "last", "hash"], "properties": {
            "valid": { "type": "boolean" }, "entries": count, "hash": text,
            "first": { "type": "integer", "description": "The oldest entry that is kept." },
            "last": { "type": "integer", "description": "The newest entry, whose hash `hash` is." },
            "broken": { "type": "object", "description": "The first entry that is not as it was written.", "properties": {
                "seq": count, "why": text,
            } },
        } })
}

/// An entry of the audit.
fn audit_entry() -> Value {
    let (count, text) = (json!({ "type": "integer", "minimum": 0 }), json!({ "type": "string" }));
    let change = json!({ "type": "object", "required": ["kind", "id", "action"], "properties": {
        "kind": text, "id": text, "action": { "enum": ["create", "update", "delete"] },
        "before": { "type": "object", "description": "The document before, without secrets." },
        "after": { "type": "object", "description": "The document after, without secrets." },
        "documents_left_out": { "type": "boolean", "description": "All documents together are too long; see the revision." },
    } });
    let required = ["seq", "at", "host", "actor", "source", "action", "outcome", "prev", "hash"];
    json!({ "type": "object", "required": required, "properties": {
        "seq": { "type": "integer", "minimum": 0, "description": "Counts from 1, without gaps; 0 where it is `unchained`." },
        "at": { "type": "string", "format": "date-time" },
        "host": { "type": "string", "description": "The machine that wrote it." },
        "actor": { "type": "string", "description": "The token's name, the subject of a JWT, or the user of the command line." },
        "role": { "enum": ["read", "write", "admin"] },
        "certificate": { "type": "string", "description": "The subject of the client's certificate." },
        "source": { "enum": ["admin-api", "command-line", "file"] },
        "peer": { "type": "string", "description": "The client's address, or the process behind a Unix socket." },
        "action": { "type": "string", "description": "Method and path, or `reload` or `migrate`." },
        "outcome": { "enum": ["allowed", "refused", "failed"] },
        "status": { "type": "integer" },
        "reason": { "type": "string", "description": "Why it was refused or failed." },
        "note": text, "revision": count,
        "unchained": { "type": "boolean", "description": "It is in the log of one gateway only, with `seq` 0, because the database was away." },
        "changes": { "type": "array", "items": change },
        "changes_left_out": count,
        "suppressed": { "type": "integer", "description": "Refused attempts before it that have no entry, because there were too many." },
        "prev": { "type": "string", "description": "The hash of the entry before." },
        "hash": { "type": "string", "description": "SHA-256 of the entry's JSON without this field." },
    } })
}

/// References within a schema, as an OpenAPI document writes them.
fn relink(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(target) if key == "$ref" => {
                        *target = target.replace("#/$defs/", "#/components/schemas/");
                    }
                    value => relink(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(relink),
        _ => {}
    }
}

/// What a grant or a workspace covers, and further fields.
pub(super) fn covers(more: &[(&str, Value)]) -> Value {
    let texts = || json!({ "type": "array", "maxItems": 100, "items": { "type": "string", "minLength": 1, "maxLength": 256 } });
    let mut properties = json!({
        "objects": texts(), "hosts": texts(), "paths": texts(), "ports": texts(),
        "protocols": { "type": "array", "items": { "type": "string", "enum": ["http", "tcp", "udp"] } },
    });
    for (name, schema) in more {
        properties[*name] = schema.clone();
    }
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}
