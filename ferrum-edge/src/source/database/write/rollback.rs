//! Going back to an earlier revision, and what that means for credentials.

use std::collections::{HashMap, HashSet};

use gateway_core::config::catalog::ObjectKind;
use serde_json::{Map, Value};

use crate::source::database::documents::Documents;
use crate::store::{Op, StoreError, Transaction};

/// Going back to an earlier revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rollback {
    /// What the configuration is to be again.
    pub(crate) revision: u64,
    /// Consumers keep the credentials they have now; those that come back have none.
    pub(crate) keep_credentials: bool,
}

/// The objects that these steps put and that exist now.
pub(super) async fn existing(
    change: &mut Transaction,
    ops: &[Op],
) -> Result<HashSet<(ObjectKind, String)>, StoreError> {
    let mut existing = HashSet::new();
    for kind in ObjectKind::ALL {
        let put = ops.iter().filter(|op| op.key().0 == kind && op.document().is_some());
        let ids: Vec<String> = put.map(|op| op.key().1.to_owned()).collect();
        if !ids.is_empty() {
            let objects = change.get_many(kind, &ids).await?;
            existing.extend(objects.into_iter().map(|object| (kind, object.id)));
        }
    }
    Ok(existing)
}

/// The consumers among these steps back whose credentials differ from those of now. With `keep` they keep those of now,
/// and none comes back; then the answer is empty, and steps that change nothing else are left out.
pub(super) async fn credentials_of_now(
    change: &mut Transaction,
    ops: &mut Vec<Op>,
    keep: bool,
) -> Result<Vec<String>, StoreError> {
    let of_consumers = |op: &Op| op.key().0 == ObjectKind::Consumers && op.document().is_some();
    let ids: Vec<String> = ops.iter().filter(|op| of_consumers(op)).map(|op| op.key().1.to_owned()).collect();
    if ids.is_empty() {
        return Ok(ids);
    }
    let now = change.get_many(ObjectKind::Consumers, &ids).await?;
    let now: HashMap<String, String> = now.into_iter().map(|object| (object.id, object.document)).collect();
    let mut revived = Vec::new();
    for op in &mut *ops {
        let Op::Put { kind: ObjectKind::Consumers, id, document } = op else { continue };
        let present = now.get(id).and_then(|document| credentials(document));
        if credentials(document) == present {
            continue;
        }
        if !keep {
            revived.push(id.clone());
        } else if let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(document) {
            fields.shift_remove("credentials");
            fields.extend(present.map(|credentials| ("credentials".to_owned(), credentials)));
            *document = Value::Object(fields).to_string();
        }
    }
    ops.retain(|op| match op {
        Op::Put { kind: ObjectKind::Consumers, id, document } => {
            now.get(id).is_none_or(|now| !Documents::same(ObjectKind::Consumers, now, document))
        }
        _ => true,
    });
    Ok(revived)
}

/// A consumer's credentials as they are stored; `None` where there are none.
fn credentials(document: &str) -> Option<Value> {
    let mut fields = serde_json::from_str::<Map<String, Value>>(document).ok()?;
    let credentials = fields.shift_remove("credentials")?;
    let is_empty = credentials.as_object().is_some_and(|types| types.values().all(is_empty_list));
    (!is_empty && !credentials.is_null()).then_some(credentials)
}

fn is_empty_list(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}
