//! Workspaces, which grants and groups of edges name: `/v1/workspaces`.
//!
//! A grant that names a workspace covers what the workspace covers at the time of a request. A group of edges that names it gets its
//! proxies. An unknown workspace covers nothing.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Admin;
use super::problem::{Refused, problem, store};
use super::query::{nothing_else, pairs};
use super::request::{AuthorizedRequest, object};
use super::resources::answer;
use super::timestamp::time;
use super::workspace_references::{References, groups};
use crate::access::grants::Workspace;
use crate::audit::{Draft, Touched};
#[cfg(feature = "fleet")]
use crate::fleet::FleetRole;
use crate::store::{MAX_WORKSPACES, StoredWorkspace, WorkspaceChange};

/// Where they are.
pub(super) const PATH: &str = "/v1/workspaces";
pub(super) const ONE: &str = "/v1/workspaces/{name}";

/// Bytes of a name.
const MAX_NAME: usize = 64;
const NAME_RULE: &str =
    "A name has 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or digit";

fn workspace_document(one: &StoredWorkspace) -> Value {
    let mut document = one.covers.as_ref().map_or_else(|| json!({ "unreadable": true }), Workspace::document);
    document["name"] = json!(one.name);
    document["changed_at"] = time(one.changed_at);
    document
}

/// `GET /v1/workspaces`.
pub(super) async fn list(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    RawQuery(query): RawQuery,
) -> Response {
    let listed = async {
        nothing_else(&pairs(query.as_deref()))?;
        let found = asked.reconciler.store().workspaces().await.map_err(|error| Box::new(store(&error)))?;
        let references = References::of(&admin, &asked).await?;
        let items = found.iter().map(|one| {
            let mut document = workspace_document(one);
            document["used_by"] = references.of_workspace(&one.name);
            document
        });
        let items: Vec<Value> = items.collect();
        Ok(Json(json!({ "items": items, "next": null })).into_response())
    };
    answer(listed.await)
}

/// `PUT /v1/workspaces/{name}`: makes one, or has it cover other objects.
pub(super) async fn put(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    let done = async {
        asked.operator_only()?;
        let covers = Workspace::of(Value::Object(object(&body)?)).map_err(|bad| invalid(&bad.to_string()))?;
        if !is_name(&name) {
            return Err(invalid(NAME_RULE));
        }
        let document = covers.document();
        change(&admin, &asked, move |known, draft| {
            let before = known.iter().find(|one| one.name == name);
            if before.is_none() && known.len() >= MAX_WORKSPACES {
                return Err(invalid(&format!(
                    "There are {MAX_WORKSPACES} workspaces, the most there can be"
                )));
            }
            touch(draft, &name, before, Some(&covers));
            Ok(WorkspaceChange::Put(name, covers))
        })
        .await?;
        Ok(Json(document).into_response())
    };
    answer(done.await)
}

/// `PATCH /v1/workspaces/{name}`: another name. Grants of users and groups of edges follow; the claims of tokens and
/// `gateway.admin_oidc` are written elsewhere and do not.
pub(super) async fn rename(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    let done = async {
        asked.operator_only()?;
        let fields = object(&body)?;
        let to = fields.get("name").and_then(Value::as_str).filter(|_| fields.len() == 1);
        let to = to.ok_or_else(|| invalid("Send `name`, the name from now on, and nothing else"))?.to_owned();
        if !is_name(&to) {
            return Err(invalid(&format!("`name`: {NAME_RULE}")));
        }
        let mut document = json!({});
        change(&admin, &asked, |known, draft| {
            let before = existing(known, &name)?;
            let covers = before
                .covers
                .clone()
                .ok_or_else(|| invalid("What the workspace covers can't be read; write it first"))?;
            if known.iter().any(|one| one.name == to) {
                let detail = format!("There is a workspace `{to}` already");
                return Err(Box::new(problem(StatusCode::CONFLICT, "exists", &detail)) as Refused);
            }
            touch(draft, &name, Some(before), None);
            touch(draft, &to, None, Some(&covers));
            document = covers.document();
            document["name"] = json!(to);
            Ok(WorkspaceChange::Rename { from: name, to, covers })
        })
        .await?;
        Ok(Json(document).into_response())
    };
    answer(done.await)
}

/// `DELETE /v1/workspaces/{name}`: grants that name it cover nothing from then on. One that groups of edges name stays, since these
/// edges would serve its proxies no more.
pub(super) async fn delete(
    State(admin): State<Admin>,
    asked: AuthorizedRequest,
    Path(name): Path<String>,
) -> Response {
    let done = async {
        asked.operator_only()?;
        let groups = groups(&admin, &name);
        if !groups.is_empty() {
            let detail = format!(
                "Edges of {} get the proxies of this workspace and would serve them no more; assign others to them first",
                groups.join(", ")
            );
            return Err(Box::new(problem(StatusCode::CONFLICT, "in_use", &detail)) as Refused);
        }
        change(&admin, &asked, move |known, draft| {
            let before = existing(known, &name)?;
            touch(draft, &name, Some(before), None);
            Ok(WorkspaceChange::Delete(name))
        })
        .await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    answer(done.await)
}

async fn change(
    admin: &Admin,
    asked: &AuthorizedRequest,
    decide: impl FnOnce(&[StoredWorkspace], &mut Draft) -> Result<WorkspaceChange, Refused> + Send,
) -> Result<(), Refused> {
    let changed = asked.reconciler.store().change_workspace(decide, asked.draft()).await;
    let (draft, line) = changed.map_err(|error| Box::new(store(&error)))??;
    admin.engine.audit.kept(&draft, &line);
    #[cfg(feature = "fleet")]
    if let Some(FleetRole::Control(plane)) = &admin.fleet {
        // Groups of edges follow at once, not at the next look.
        plane.refresh().await;
    }
    Ok(())
}

fn existing<'k>(known: &'k [StoredWorkspace], name: &str) -> Result<&'k StoredWorkspace, Refused> {
    known.iter().find(|one| one.name == name).ok_or_else(|| {
        let detail = format!("There is no workspace `{name}`");
        Box::new(problem(StatusCode::NOT_FOUND, "not_found", &detail)) as Refused
    })
}

/// Has the audit name the workspace with what it covered and covers.
fn touch(draft: &mut Draft, name: &str, before: Option<&StoredWorkspace>, after: Option<&Workspace>) {
    let action = match (before, after) {
        (None, _) => "create",
        (Some(_), Some(_)) => "update",
        (Some(_), None) => "delete",
    };
    draft.changes.push(Touched {
        kind: "workspaces".to_owned(),
        id: name.to_owned(),
        action: action.to_owned(),
        before: before.and_then(|one| one.covers.as_ref()).map(Workspace::document),
        after: after.map(Workspace::document),
        documents_left_out: false,
    });
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    name.len() <= MAX_NAME
        && letters.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-'))
}

fn invalid(detail: &str) -> Refused {
    Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail))
}
