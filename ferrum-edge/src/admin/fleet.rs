//! The fleet: `/v1/fleet`. Only a control plane answers; an edge tells how it stands in `/v1/status`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gateway_fleet::DocumentKey;
use serde_json::{Map, Value, json};

use super::Admin;
use super::problem::{Refused, problem, store};
use super::request::{kind, object};
use super::resources::answer;
use super::timestamp::time;
use crate::fleet::{ControlPlane, FleetRole, GroupRow, NewInvitation, RosterError};

/// The whole fleet.
pub(super) const PATH: &str = "/v1/fleet";
/// One edge.
pub(super) const EDGE: &str = "/v1/fleet/edges/{id}";
/// Which edges serve an object.
pub(super) const OBJECT: &str = "/v1/fleet/objects/{kind}/{id}";
/// Accepts an edge no more.
pub(super) const REVOKE: &str = "/v1/fleet/edges/{id}/revoke";
/// What is meant for a group.
pub(super) const GROUP: &str = "/v1/fleet/groups/{name}";
/// Invites an edge.
pub(super) const INVITATIONS: &str = "/v1/fleet/invitations";
/// A pending invitation.
pub(super) const INVITATION: &str = "/v1/fleet/invitations/{id}";

/// Patterns, or workspaces, of a group.
const MAX_PATTERNS: usize = 1000;

fn plane(admin: &Admin) -> Result<&Arc<ControlPlane>, Refused> {
    match &admin.fleet {
        Some(FleetRole::Control(plane)) => Ok(plane),
        _ => {
            let detail = "This gateway is not a control plane; ask one that runs with --mode control-plane";
            Err(Box::new(problem(StatusCode::NOT_FOUND, "no_control_plane", detail)))
        }
    }
}

fn refused(error: RosterError) -> Refused {
    let detail = error.to_string();
    Box::new(match error {
        RosterError::Unknown(_) | RosterError::NoInvitation(_) => {
            problem(StatusCode::NOT_FOUND, "not_found", &detail)
        }
        RosterError::Name(..) | RosterError::Workspace(_) => {
            problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &detail)
        }
        RosterError::Revoked(_) | RosterError::Changed => problem(StatusCode::CONFLICT, "conflict", &detail),
        RosterError::Crowded => problem(StatusCode::TOO_MANY_REQUESTS, "too_many", &detail),
        RosterError::Code(_) => problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &detail),
        RosterError::Store(error) => store(&error),
    })
}

/// The texts of a body by their keys; other keys are refused.
fn optional_texts<const N: usize>(body: &Bytes, keys: [&str; N]) -> Result<[Option<String>; N], Refused> {
    let fields = if body.trim_ascii().is_empty() { Map::new() } else { object(body)? };
    let invalid = |detail: &str| Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail));
    if let Some(key) = fields.keys().find(|key| !keys.contains(&key.as_str())) {
        return Err(invalid(&format!("unknown key `{key}`; there are {}", keys.join(", "))));
    }
    let mut found = [const { None }; N];
    for (slot, key) in found.iter_mut().zip(keys) {
        *slot = match fields.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err(invalid(&format!("`{key}` has to be a string"))),
        };
    }
    Ok(found)
}

/// `GET /v1/fleet`: groups and edges, and what each serves.
pub(super) async fn status(State(admin): State<Admin>) -> Response {
    let shown = async {
        let plane = plane(&admin)?;
        plane.refresh().await;
        Ok(Json(plane.status()).into_response())
    };
    answer(shown.await)
}

/// `GET /v1/fleet/edges/{id}`: one edge.
pub(super) async fn get(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let shown = async {
        let plane = plane(&admin)?;
        plane.refresh().await;
        let edge = plane.edge_status(&id).ok_or_else(|| refused(RosterError::Unknown(id.clone())))?;
        Ok(Json(edge).into_response())
    };
    answer(shown.await)
}

/// `GET /v1/fleet/objects/{kind}/{id}`: which edges serve an object as it is, and why the others do not.
pub(super) async fn object_status(
    State(admin): State<Admin>,
    Path((of, id)): Path<(String, String)>,
) -> Response {
    let shown = async {
        let plane = plane(&admin)?;
        let of = kind(&of)?;
        plane.refresh().await;
        let unknown = || {
            let detail = format!("There is no {} `{id}`", of.singular());
            Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)) as Refused
        };
        let reconciler = admin.reconciler.as_ref().ok_or_else(unknown)?;
        let object =
            reconciler.store().get(of, &id).await.map_err(|error| Box::new(store(&error)) as Refused)?;
        let revision = object.ok_or_else(unknown)?.revision;
        Ok(Json(plane.object_status(&DocumentKey::new(of.as_str(), id.as_str()), revision)).into_response())
    };
    answer(shown.await)
}

/// `POST /v1/fleet/invitations`: a one-time code for a new edge, or for one that enrols again.
pub(super) async fn invite(State(admin): State<Admin>, body: Bytes) -> Response {
    let invited = async {
        let plane = plane(&admin)?;
        let [name, group, edge, address] = optional_texts(&body, ["name", "group", "edge", "address"])?;
        if let Some(address) = address.as_deref().filter(|address| !gateway_fleet::is_address(address)) {
            let detail = format!("`address`: `{address}` is not HOST:PORT");
            return Err(Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &detail)));
        }
        let address = address.as_deref().unwrap_or_else(|| plane.address());
        plane.refresh().await;
        let invited =
            plane.roster().invite(name.as_deref(), group.as_deref(), edge.as_deref(), address).await;
        let NewInvitation { id, invitation, expires } = invited.map_err(refused)?;
        let document =
            json!({ "id": id, "invitation": invitation.to_string(), "expires_at": time(expires * 1000) });
        Ok((StatusCode::CREATED, Json(document)).into_response())
    };
    answer(invited.await)
}

/// `GET /v1/fleet/invitations`: lists the pending invitations, without their codes.
pub(super) async fn invitations(State(admin): State<Admin>) -> Response {
    let shown = async {
        let pending = plane(&admin)?.roster().invitations().await.map_err(refused)?;
        let rows = pending.into_iter().map(|one| {
            json!({
                "id": one.id,
                "name": Some(one.name).filter(|name| !name.is_empty()),
                "group": one.group,
                "edge": one.edge,
                "expires_at": time(one.expires * 1000),
            })
        });
        Ok(Json(json!({ "items": rows.collect::<Vec<_>>() })).into_response())
    };
    answer(shown.await)
}

/// `DELETE /v1/fleet/invitations/{id}`: withdraws a pending invitation.
pub(super) async fn withdraw(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let withdrawn = async {
        plane(&admin)?.roster().withdraw(&id).await.map_err(refused)?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(withdrawn.await)
}

/// `PATCH /v1/fleet/edges/{id}`: another name or group.
pub(super) async fn update(State(admin): State<Admin>, Path(id): Path<String>, body: Bytes) -> Response {
    let updated = async {
        let plane = plane(&admin)?;
        let [name, group] = optional_texts(&body, ["name", "group"])?;
        plane.roster().rename(&id, name.as_deref(), group.as_deref()).await.map_err(refused)?;
        plane.edge_status(&id).ok_or_else(|| refused(RosterError::Unknown(id.clone())))
    };
    answer(updated.await.map(|edge| Json(edge).into_response()))
}

/// `PUT /v1/fleet/groups/{name}`: assigns proxies and workspaces to a group.
pub(super) async fn assign(State(admin): State<Admin>, Path(name): Path<String>, body: Bytes) -> Response {
    let assigned = async {
        let plane = plane(&admin)?;
        let fields = object(&body)?;
        let invalid = |detail: &str| Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail));
        let wrong = "Send `proxies`, a list of proxies' ids in which `*` stands for any text, `workspaces`, a list of names, or \
                     both; `{\"proxies\": null}` sends the group everything";
        if fields.is_empty() || fields.keys().any(|key| key != "proxies" && key != "workspaces") {
            return Err(invalid(wrong));
        }
        let list = |key: &str| match fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) if items.len() <= MAX_PATTERNS => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                texts.collect::<Option<Vec<_>>>().map(Some).ok_or_else(|| invalid(wrong))
            }
            Some(_) => Err(invalid(wrong)),
        };
        let (proxies, workspaces) = (list("proxies")?, list("workspaces")?);
        let row = (proxies.is_some() || workspaces.is_some()).then(|| GroupRow {
            proxies: proxies.unwrap_or_default(),
            workspaces: workspaces.unwrap_or_default(),
        });
        plane.roster().assign(&name, row).await.map_err(refused)?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(assigned.await)
}

/// `POST /v1/fleet/edges/{id}/revoke`: its certificates are accepted no more, and its connection ends.
pub(super) async fn revoke(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let revoked = async {
        let plane = plane(&admin)?;
        plane.roster().revoke(&id).await.map_err(refused)?;
        plane.edge_status(&id).ok_or_else(|| refused(RosterError::Unknown(id.clone())))
    };
    answer(revoked.await.map(|edge| Json(edge).into_response()))
}

/// `DELETE /v1/fleet/edges/{id}`: forgets it.
pub(super) async fn remove(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let removed = async {
        plane(&admin)?.roster().remove(&id).await.map_err(refused)?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(removed.await)
}
