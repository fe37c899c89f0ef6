//! The objects of a configuration file, for reading: what `/v1/{kind}`, `/v1/{kind}/{id}`, `/v1/export` and
//! `/v1/proxies/{id}/effective` answer where no database is. They are as the file had them when it was loaded, without
//! secrets, and with references such as `${env:X}` unanswered. An object that the file gives no id is named by its place.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::ObjectKind;
use serde_json::{Map, Value, json};

use super::Admin;
use super::attempt::Attempt;
use super::effective;
use super::endpoint::Narrowed;
use super::problem::{Refused, problem};
use super::query::{nothing_else, page_size, pairs, value};
use super::request::{RoleGate, caller, may, unauthorized, within};
use super::resources::answer;
use crate::audit_recorder::Recorder;
#[cfg(feature = "fleet")]
use crate::fleet::FleetRole;
use crate::store::{DEFAULT_PAGE, MAX_PAGE};

/// What a path asks for.
enum Wanted<'u> {
    Export,
    Served(&'u str),
    Page(ObjectKind),
    One(ObjectKind, &'u str),
}

fn wanted(uri: &Uri) -> Option<Wanted<'_>> {
    let mut parts = uri.path().strip_prefix("/v1/")?.split('/');
    match (parts.next()?, parts.next(), parts.next(), parts.next()) {
        ("export", None, ..) => Some(Wanted::Export),
        ("proxies", Some(id), Some("effective"), None) => Some(Wanted::Served(id)),
        (kind, None, ..) => ObjectKind::named(kind).map(Wanted::Page),
        (kind, Some(id), None, _) => ObjectKind::named(kind).map(|kind| Wanted::One(kind, id)),
        _ => None,
    }
}

/// Answers reads of objects where no database is, to callers who may read; lets everything else through.
pub(super) async fn gate(State(gate): State<RoleGate>, request: Request, next: Next) -> Response {
    let is_read = gate.admin.reconciler.is_none() && request.method().is_safe();
    let caller = caller(&gate.admin, &request);
    let is_open = gate.admin.access().is_ok() || caller.is_ok();
    if !is_read || !is_open || wanted(request.uri()).is_none() {
        return next.run(request).await;
    }
    let (caller, response) = match caller {
        Err(why) => (None, unauthorized(why)),
        // Objects of a file may have no ids, by which grants cover them.
        Ok(caller) => {
            match may(&caller, gate.role).and_then(|()| within(&caller, Narrowed::Refused, request.uri())) {
                Ok(()) => match read(&gate.admin, request.uri()) {
                    Some(response) => return response,
                    None => return next.run(request).await,
                },
                Err(refused) => (Some(caller), *refused),
            }
        }
    };
    Attempt::of(&request).ended(&gate.admin.engine.audit, caller.as_ref(), &response, false);
    response
}

/// The answer to a read of objects; `None` for any other path.
fn read(admin: &Admin, uri: &Uri) -> Option<Response> {
    let audit = &admin.engine.audit;
    let wanted = wanted(uri)?;
    #[cfg(feature = "fleet")]
    if matches!(admin.fleet, Some(FleetRole::Edge(_))) && !matches!(wanted, Wanted::Served(_)) {
        let detail = "The configuration comes from a control plane; ask that for objects";
        return Some(problem(StatusCode::NOT_FOUND, "edge_mode", detail));
    }
    Some(match wanted {
        Wanted::Export => answer(export(audit, uri.query())),
        Wanted::Served(id) => served(admin, id),
        Wanted::Page(kind) => answer(list(audit, kind, uri.query())),
        Wanted::One(kind, id) => object_response(audit, kind, id),
    })
}

fn list(audit: &Recorder, kind: ObjectKind, query: Option<&str>) -> Result<Response, Refused> {
    let mut pairs = pairs(query);
    let after = value(&mut pairs, "after")?;
    let limit = page_size(&mut pairs, DEFAULT_PAGE, MAX_PAGE)?;
    nothing_else(&pairs)?;
    let items = audit.file_objects(kind.as_str(), after.as_deref(), limit);
    let next = items.last().filter(|_| items.len() == limit).map(|(id, _)| id.clone());
    let items: Vec<Value> = items.into_iter().map(|(_, object)| object).collect();
    Ok(Json(json!({ "items": items, "next": next })).into_response())
}

fn object_response(audit: &Recorder, kind: ObjectKind, id: &str) -> Response {
    let id = &*percent_encoding::percent_decode_str(id).decode_utf8_lossy();
    match audit.file_object(kind.as_str(), id) {
        Some(object) => Json(object).into_response(),
        None => {
            let detail = format!("There is no {} `{id}`", kind.singular());
            problem(StatusCode::NOT_FOUND, "not_found", &detail)
        }
    }
}

fn export(audit: &Recorder, query: Option<&str>) -> Result<Response, Refused> {
    nothing_else(&pairs(query))?;
    let mut document = Map::from_iter([("version".to_owned(), json!("1"))]);
    for kind in ObjectKind::ALL {
        let all = audit.file_objects(kind.as_str(), None, usize::MAX);
        let all = all.into_iter().map(|(_, object)| object).collect();
        document.insert(kind.to_string(), Value::Array(all));
    }
    Ok(Json(Value::Object(document)).into_response())
}

fn served(admin: &Admin, id: &str) -> Response {
    let written = |ids: &[String]| {
        let config = |id: &String| {
            let object = admin.engine.audit.file_object(ObjectKind::PluginConfigs.as_str(), id)?;
            Some((id.clone(), object))
        };
        ids.iter().filter_map(config).collect::<HashMap<_, _>>()
    };
    effective::served(&admin.engine.snapshot(), id, written)
}
