//! Grants that name workspaces, for the time of a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::problem::{Refused, store};
use crate::access::Caller;
use crate::access::grants::Workspace;
use crate::source::database::Reconciler;

/// Grants that name workspaces, as what these cover now.
///
/// # Errors
/// When the database does not answer.
pub(super) async fn resolved(mut caller: Caller, reconciler: &Reconciler) -> Result<Caller, Refused> {
    let Some(grants) = caller.grants.as_ref().filter(|grants| grants.names_workspaces()) else {
        return Ok(caller);
    };
    let known = reconciler.store().workspaces().await.map_err(|error| Box::new(store(&error)) as Refused)?;
    let known: BTreeMap<String, Workspace> =
        known.into_iter().filter_map(|one| Some((one.name, one.covers?))).collect();
    caller.grants = Some(Arc::new(grants.resolved(&known)));
    Ok(caller)
}
