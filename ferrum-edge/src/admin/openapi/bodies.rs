//! The bodies of requests.

use gateway_core::config::catalog::ObjectKind;
use serde_json::{Value, json};

use super::super::endpoint::Body;
use super::{reference, schemas, type_of};

/// The schema of a body; objects have one for each kind.
pub(super) fn request_schema(body: Body, kind: Option<ObjectKind>) -> Value {
    let list = |name: &str| json!({ "type": "array", "items": reference(name) });
    match body {
        Body::Object => kind.map_or(json!({ "type": "object" }), |kind| reference(type_of(kind))),
        Body::Patch | Body::Action => json!({ "type": "object" }),
        Body::Target => reference("Target"),
        Body::Batch => json!({ "type": "object", "additionalProperties": false, "properties": {
            "upstreams": list("Upstream"), "plugin_configs": list("PluginConfig"),
            "proxies": list("Proxy"), "consumers": list("Consumer"),
            "delete": { "type": "object", "description": "Lists of ids by kind.", "additionalProperties": {
                "type": "array", "items": { "type": "string" },
            } },
        } }),
        Body::Question => reference("Question"),
        Body::Workspace => schemas::covers(&[]),
        Body::WorkspaceName => {
            json!({ "type": "object", "additionalProperties": false, "required": ["name"], "properties": {
            "name": { "type": "string", "maxLength": 64, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$" },
        } })
        }
        #[cfg(feature = "fleet")]
        Body::Group => {
            json!({ "type": "object", "additionalProperties": false, "minProperties": 1, "properties": {
            "proxies": { "type": ["array", "null"], "maxItems": 1000, "items": { "type": "string" } },
            "workspaces": { "type": ["array", "null"], "maxItems": 1000, "items": { "type": "string" } },
        } })
        }
        #[cfg(feature = "fleet")]
        Body::Edge => text_properties(&["name", "group"]),
        #[cfg(feature = "fleet")]
        Body::Invitation => text_properties(&["name", "group", "edge", "address"]),
        Body::File => reference("File"),
        #[cfg(feature = "console")]
        of_users => user_request_schema(of_users),
    }
}

/// The body of a request about users of the console.
#[cfg(feature = "console")]
fn user_request_schema(body: Body) -> Value {
    match body {
        Body::User => {
            json!({ "type": "object", "additionalProperties": false, "required": ["name", "role"], "properties": {
            "name": { "type": "string", "maxLength": 64, "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]*$" },
            "role": { "enum": ["read", "write", "admin"] },
            "password": { "type": ["string", "null"], "minLength": 12, "description": "Default one is made up and answered." },
            "grants": grants("Narrow the role to these objects. Default none: the role is for everything."),
        } })
        }
        Body::ChangedUser => {
            json!({ "type": "object", "additionalProperties": false, "minProperties": 1, "properties": {
            "role": { "enum": ["read", "write", "admin"] },
            "password": { "type": "string", "minLength": 12 },
            "grants": grants("Narrow the role to these objects; null takes them away."),
            "totp_required": { "type": "boolean", "description": "The user has to enrol a second factor before anything else." },
            "reset_password": { "type": "boolean", "description": "Makes a password up and answers it." },
        } })
        }
        Body::Password => {
            json!({ "type": "object", "additionalProperties": false, "required": ["old", "new"], "properties": {
            "old": { "type": "string" }, "new": { "type": "string", "minLength": 12 },
        } })
        }
        Body::NewTotp => {
            json!({ "type": "object", "additionalProperties": false, "required": ["password"], "properties": {
            "password": { "type": "string" },
            "code": { "type": "string", "description": "A code of the current app, or a recovery code; needed by enrolled users." },
        } })
        }
        Body::NewPasskey => {
            json!({ "type": "object", "additionalProperties": false, "required": ["password"], "properties": {
            "password": { "type": "string" },
        } })
        }
        Body::MadePasskey => {
            let encoded = || json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]+$" });
            let fields = ["label", "client_data", "authenticator_data"];
            json!({ "type": "object", "additionalProperties": false, "required": fields, "properties": {
            "label": { "type": "string", "minLength": 1, "maxLength": 64 },
            "client_data": encoded(), "authenticator_data": encoded(),
        } })
        }
        Body::TotpCode => text_properties(&["code"]),
        _ => json!({ "type": "object" }),
    }
}

/// Grants of a user.
#[cfg(feature = "console")]
fn grants(meaning: &str) -> Value {
    let role = json!({ "type": "string", "enum": ["read", "write"] });
    let workspace = json!({ "type": "string", "description": "The name of a workspace, instead of the other fields but `role`." });
    let items = schemas::covers(&[("role", role), ("workspace", workspace)]);
    json!({ "type": ["array", "null"], "minItems": 1, "maxItems": 50, "description": meaning, "items": items })
}

/// An object whose fields are texts that may be left out.
#[cfg(any(feature = "fleet", feature = "console"))]
fn text_properties(keys: &[&str]) -> Value {
    let fields = keys.iter().map(|key| ((*key).to_owned(), json!({ "type": ["string", "null"] })));
    let fields: serde_json::Map<String, Value> = fields.collect();
    json!({ "type": "object", "additionalProperties": false, "properties": fields })
}
