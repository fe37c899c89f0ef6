//! Many objects at once: `/v1/batch`, `/v1/import` and `/v1/export`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::model::Id;
use gateway_core::config::problem::{Problem, Problems};
use serde_json::{Map, Value, json};

use super::field_changes::field_changes;
use super::problem::{Refused, invalid, problem, store};
use super::query::{nothing_else, pairs, switch, switch_on, value};
use super::request::{AuthorizedRequest, expected, object, tagged};
use super::resources::{REVISION, answer};
use crate::access::Role;
use crate::source::database::{CommittedWrite, Documents, ObjectOutcome, Precondition, Request, WriteStep};

/// Changed objects of which the fields are compared.
const MAX_COMPARED: usize = 1_000;
/// Sections of a document, in the order in which they are exported: the one people think in.
const SECTIONS: [ObjectKind; 4] =
    [ObjectKind::Upstreams, ObjectKind::PluginConfigs, ObjectKind::Proxies, ObjectKind::Consumers];

/// `POST /v1/batch`: objects of all kinds, put and deleted; all of it or nothing.
pub(super) async fn batch(
    asked: AuthorizedRequest,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let batched = async {
        let mut document = object(&body)?;
        drop(body);
        let mut steps = Vec::new();
        if let Some(gone) = document.shift_remove("delete") {
            deletions(gone, &mut steps)?;
        }
        puts(document, &mut steps)?;
        write(
            &asked,
            pairs(query.as_deref()),
            &headers,
            BulkWrite { steps, prune: Vec::new(), needed: Role::Write },
        )
        .await
    };
    answer(batched.await)
}

/// `POST /v1/import`: a whole configuration. What it doesn't have is deleted, unless `?prune=false`.
pub(super) async fn import(
    asked: AuthorizedRequest,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let imported = async {
        let mut pairs = pairs(query.as_deref());
        let prunes = switch_on(&mut pairs, "prune")?;
        let mut document = object(&body)?;
        drop(body);
        document.shift_remove("version");
        if document.get("gateway").is_some_and(|gateway| !gateway.is_null()) {
            let detail =
                "The settings under `gateway` are each gateway's own: they stay in its file or environment";
            return Err(bad(detail));
        }
        document.shift_remove("gateway");
        if prunes && !document.contains_key("proxies") {
            let detail = "There is no `proxies` section, and everything would be deleted; \
                          send `\"proxies\": []` for a gateway without proxies";
            return Err(bad(detail));
        }
        let mut steps = Vec::new();
        puts(document, &mut steps)?;
        let prune = if prunes { ObjectKind::ALL.to_vec() } else { Vec::new() };
        write(&asked, pairs, &headers, BulkWrite { steps, prune, needed: Role::Admin }).await
    };
    answer(imported.await)
}

/// `GET /v1/export`: the whole configuration from one moment, as `import` and files take it. For the role admin
/// consumers come with their credentials as they are stored, hashed or encrypted; for others without.
pub(super) async fn export(asked: AuthorizedRequest, RawQuery(query): RawQuery) -> Response {
    let exported = async {
        nothing_else(&pairs(query.as_deref()))?;
        let whole = asked.is(Role::Admin);
        let mut sections: [Vec<Value>; 4] = Default::default();
        let loaded = asked.reconciler.store().load(|object| {
            let value = match serde_json::from_str(&object.document) {
                Ok(value) if whole => value,
                _ => Documents::shown(object.kind, &object.document),
            };
            sections[object.kind as usize].push(value);
        });
        let revision = loaded.await.map_err(|error| Box::new(store(&error)))?.revision;
        let mut document = Map::from_iter([("version".to_owned(), json!("1"))]);
        for kind in SECTIONS {
            document.insert(kind.to_string(), Value::Array(std::mem::take(&mut sections[kind as usize])));
        }
        let response = ([(REVISION, revision.to_string())], Json(Value::Object(document))).into_response();
        Ok(tagged(response, revision))
    };
    answer(exported.await)
}

/// Proxies with closed ports that an answer names.
const MAX_CLOSED: usize = 100;

/// What a request writes.
struct BulkWrite {
    /// Each with the place in the request that its problems name.
    steps: Vec<(String, WriteStep)>,
    /// Kinds of which everything else goes.
    prune: Vec<ObjectKind>,
    /// The role that it needs.
    needed: Role,
}

async fn write(
    asked: &AuthorizedRequest,
    mut pairs: Vec<(String, String)>,
    headers: &HeaderMap,
    bulk: BulkWrite,
) -> Result<Response, Refused> {
    let BulkWrite { steps, prune, needed } = bulk;
    let validate_only = switch(&mut pairs, "validate_only")?;
    let details = switch(&mut pairs, "details")?;
    let note = value(&mut pairs, "note")?.unwrap_or_default();
    nothing_else(&pairs)?;
    let expected = expected(headers)?;
    let grants = asked.caller.grants.clone();
    let consent = asked.consent(needed);
    let request = Request { steps, prune, rollback: None, expected, validate_only, note, grants, consent };
    let written = super::writing::write(asked, request).await?;
    let headers = [(REVISION, written.revision.to_string())];
    let mut summary = summary(&written, validate_only);
    if details {
        summary["changes"] = changes(&written);
    }
    if validate_only && details {
        fields(asked, &written, &mut summary).await?;
    } else if !validate_only {
        closed_ports(asked, &written, &mut summary);
    }
    #[cfg(feature = "fleet")]
    if let Some(lacking) = super::edges_lacking::document(asked, &written) {
        summary["edges_lacking"] = lacking;
    }
    Ok(tagged((headers, Json(summary)).into_response(), written.revision))
}

/// Adds the proxies of a write whose ports could not be opened, each with the cause; nothing where all are open.
fn closed_ports(asked: &AuthorizedRequest, written: &CommittedWrite, summary: &mut Value) {
    let closed = asked.reconciler.engine().streams.failed();
    if closed.is_empty() {
        return;
    }
    let proxies = written.ops.iter().map(|(_, op)| op.key()).filter(|(kind, _)| *kind == ObjectKind::Proxies);
    let closed = proxies.filter_map(|(_, id)| closed.get_key_value(id));
    let closed: Vec<_> = closed
        .take(MAX_CLOSED)
        .map(|(id, problem)| json!({ "id": id.as_str(), "problem": problem }))
        .collect();
    if !closed.is_empty() {
        summary["ports_closed"] = Value::Array(closed);
    }
}

/// Adds to each change of a summary which fields would differ. Nothing was written, so that the store has the values before.
pub(super) async fn fields(
    asked: &AuthorizedRequest,
    written: &CommittedWrite,
    summary: &mut Value,
) -> Result<(), Refused> {
    let changed = written.ops.iter().filter(|(done, _)| *done != ObjectOutcome::Unchanged);
    let changes = summary["changes"].as_array_mut().into_iter().flatten();
    for ((done, op), change) in changed.zip(changes).take(MAX_COMPARED) {
        let (kind, id) = op.key();
        let (ObjectOutcome::Updated, Some(after)) = (*done, op.document()) else { continue };
        let before = asked.reconciler.store().get(kind, id).await.map_err(|error| Box::new(store(&error)))?;
        let Some(before) = before else { continue };
        let shown = |document: &str| Documents::shown(kind, document);
        change["fields"] = field_changes(&shown(&before.document), &shown(after)).into();
    }
    Ok(())
}

/// What was written, or would be, in numbers.
pub(super) fn summary(written: &CommittedWrite, validate_only: bool) -> Value {
    let unchanged = written.ops.iter().filter(|(done, _)| *done == ObjectOutcome::Unchanged).count();
    let mut summary = json!({
        "revision": written.revision,
        "created": written.counts.created,
        "updated": written.counts.updated,
        "deleted": written.counts.deleted,
        "unchanged": unchanged,
    });
    if validate_only {
        summary["valid"] = json!(true);
        summary["needs_approval"] = json!(written.needs_approval);
    }
    summary
}

/// The changes of a write, object by object.
pub(super) fn changes(written: &CommittedWrite) -> Value {
    let changed = written.ops.iter().filter(|(done, _)| *done != ObjectOutcome::Unchanged);
    let changes = changed.map(|(done, op)| {
        let (kind, id) = op.key();
        json!({ "kind": kind.as_str(), "id": id, "action": word(*done) })
    });
    changes.collect()
}

fn word(done: ObjectOutcome) -> &'static str {
    match done {
        ObjectOutcome::Created => "create",
        ObjectOutcome::Updated => "update",
        ObjectOutcome::Unchanged => "keep",
        ObjectOutcome::Deleted => "delete",
    }
}

/// The sections of a document as steps. Each item without a usable id is named, at its place.
fn puts(document: Map<String, Value>, steps: &mut Vec<(String, WriteStep)>) -> Result<(), Refused> {
    // What is put and deleted at once would be left to the order in which that is done.
    let mut seen: NamedObjects = steps.iter().map(|(_, step)| (step.key().0, step.key().1.clone())).collect();
    let mut problems = Problems::default();
    for (section, list) in document {
        let Some(kind) = ObjectKind::named(&section) else {
            return Err(bad(&format!(
                "`{section}` is not known here; there are upstreams, plugin_configs, proxies and consumers"
            )));
        };
        let Value::Array(list) = list else {
            return Err(bad(&format!("`{section}` has to be a list")));
        };
        for (n, item) in list.into_iter().enumerate() {
            let at = format!("{section}[{n}]");
            let Value::Object(document) = item else {
                problems.add(at, "expected an object with an `id`");
                continue;
            };
            match id_of(&document, &at) {
                Err(wrong) => wrong.0.into_iter().for_each(|problem| _ = problems.push(problem)),
                Ok(id) if !seen.insert((kind, id.clone())) => {
                    problems
                        .add(format!("{at}.id"), format!("the {} `{id}` is listed twice", kind.singular()));
                }
                Ok(id) => steps.push((at, WriteStep::Put { kind, id, document, only: Precondition::Any })),
            }
        }
    }
    if problems.0.is_empty() { Ok(()) } else { Err(Box::new(invalid(&problems))) }
}

/// The id of an item of a section; else what is wrong with it, at its place.
fn id_of(document: &Map<String, Value>, at: &str) -> Result<Id, Problems> {
    let mut problems = match document.get("id") {
        Some(Value::String(id)) => match id.parse::<Id>() {
            Ok(id) => return Ok(id),
            Err(problems) => problems,
        },
        None | Some(Value::Null) => Problems(vec![Problem::new("id", "`id` is missing")]),
        Some(_) => Problems(vec![Problem::new("id", "expected a string")]),
    };
    problems.0.iter_mut().for_each(|problem| problem.path = format!("{at}.id"));
    Err(problems)
}

/// `{"proxies": ["a", "b"]}` as steps.
fn deletions(gone: Value, steps: &mut Vec<(String, WriteStep)>) -> Result<(), Refused> {
    let Value::Object(sections) = gone else { return Err(bad("`delete` has to hold lists of ids by kind")) };
    let mut seen = NamedObjects::new();
    for (section, list) in sections {
        let (Some(kind), Value::Array(list)) = (ObjectKind::named(&section), list) else {
            return Err(bad(&format!("`delete.{section}` has to be the list of ids of a kind")));
        };
        for (n, id) in list.into_iter().enumerate() {
            let at = format!("delete.{section}[{n}]");
            let id = id.as_str().and_then(|id| id.parse::<Id>().ok());
            let Some(id) = id else { return Err(bad(&format!("{at} is not a valid id"))) };
            if !seen.insert((kind, id.clone())) {
                return Err(bad(&format!("{at}: the {} `{id}` is listed twice", kind.singular())));
            }
            steps.push((at, WriteStep::Delete { kind, id, only: Precondition::Present }));
        }
    }
    Ok(())
}

/// Objects that a request names.
type NamedObjects = std::collections::HashSet<(ObjectKind, Id)>;

fn bad(detail: &str) -> Refused {
    Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail))
}
