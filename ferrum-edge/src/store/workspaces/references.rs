//! What names a workspace in the database: grants of users, and groups of edges.

use serde_json::Value;

use crate::store::link::StoreConnection;
use crate::store::link::failure::Failure;

/// Gives a workspace another name in everything that names it. Sessions of users whose grants do end.
pub(super) async fn rename(
    link: &mut StoreConnection,
    from: &str,
    to: &str,
    now: u64,
) -> Result<(), Failure> {
    let mut granted = Vec::new();
    link.rows("SELECT name, grants FROM ferrum_user_grants", Vec::new(), |row| {
        granted.push((row.text(0)?, row.text(1)?));
        Ok(())
    })
    .await?;
    for (user, written) in granted {
        let Some(grants) = renamed_in_grants(&written, from, to) else { continue };
        let sql = "UPDATE ferrum_user_grants SET grants = ? WHERE name = ?";
        link.run(sql, vec![grants.into(), user.as_str().into()]).await?;
        // A session keeps the grants that it began with.
        let sql = "UPDATE ferrum_users SET version = version + 1, changed_at = ? WHERE name = ?";
        link.run(sql, vec![now.into(), user.into()]).await?;
    }
    let mut groups = Vec::new();
    link.rows("SELECT id, document FROM ferrum_fleet WHERE kind = 'group'", Vec::new(), |row| {
        groups.push((row.text(0)?, row.text(1)?));
        Ok(())
    })
    .await?;
    for (group, written) in groups {
        let Some(document) = renamed_in_group(&written, from, to) else { continue };
        let sql =
            "UPDATE ferrum_fleet SET document = ?, version = version + 1 WHERE kind = 'group' AND id = ?";
        link.run(sql, vec![document.into(), group.into()]).await?;
    }
    Ok(())
}

/// The grants with the other name; `None` if none of them names the workspace.
fn renamed_in_grants(written: &str, from: &str, to: &str) -> Option<String> {
    let mut grants: Value = serde_json::from_str(written).ok()?;
    let names = grants.as_array_mut()?.iter_mut().filter_map(|grant| grant.get_mut("workspace"));
    replace(names, from, to).then(|| grants.to_string())
}

/// The same for a group of edges.
fn renamed_in_group(written: &str, from: &str, to: &str) -> Option<String> {
    let mut group: Value = serde_json::from_str(written).ok()?;
    let names = group.get_mut("workspaces")?.as_array_mut()?.iter_mut();
    replace(names, from, to).then(|| group.to_string())
}

fn replace<'v>(names: impl Iterator<Item = &'v mut Value>, from: &str, to: &str) -> bool {
    let mut is_found = false;
    for name in names.filter(|name| **name == *from) {
        *name = to.into();
        is_found = true;
    }
    is_found
}
