//! Targets whose traffic failed recently, also those that no health check watches, and folders of scripts that can't be read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gateway_core::balance::{RecentFailures, Target};
use gateway_core::snapshot::{Route, Snapshot};
use gateway_telemetry::json::Rfc3339;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Maximum number of proxies that one answer looks at.
const MAX_EXAMINED: usize = 100_000;
/// Maximum number of proxies in each list.
const MAX_NAMED: usize = 100;
/// Maximum number of different folders that one answer looks at.
const MAX_FOLDERS: usize = 100;
/// The time that the file system has to answer for all folders.
const FOLDER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long failures are shown if no attempt succeeded after them. Without traffic there may be no other sign.
const FAILED_SHOWN: Duration = Duration::from_mins(15);
/// How long they are shown if one did.
const RECOVERED_SHOWN: Duration = Duration::from_mins(1);
/// How long exchanges are shown that a target had no room for.
const FULL_SHOWN: Duration = Duration::from_mins(5);

/// The exchanges that a target had no room for; `null` if there was room lately.
pub(super) fn full(target: &Target, now: Instant) -> Value {
    let recent = target.recently_full(now).filter(|recent| recent.last_ago < FULL_SHOWN);
    recent.map_or(Value::Null, |recent| {
        json!({
            "count": recent.count,
            "since": ago(recent.first_ago),
            "last_at": ago(recent.last_ago),
            "max_requests": target.rules.max_requests,
            "max_connections": target.rules.max_connections,
        })
    })
}

/// The moment so long ago.
fn ago(ago: Duration) -> String {
    Rfc3339(SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)).to_string()
}

/// The failures of a target; `null` if it works as far as is known.
pub(super) fn failures(target: &Target, now: Instant) -> Value {
    let is_shown = |recent: &RecentFailures| {
        // Nobody reports that datagrams arrive.
        let may_be_well = recent.has_succeeded_since || recent.reason == "target_refused";
        recent.last_ago < if may_be_well { RECOVERED_SHOWN } else { FAILED_SHOWN }
    };
    target.recent_failures(now).filter(is_shown).map_or(Value::Null, |recent| {
        json!({
            "count": recent.count,
            "since": ago(recent.first_ago),
            "last_at": ago(recent.last_ago),
            "succeeded_since": recent.has_succeeded_since,
            "reason": recent.reason,
            "detail": recent.detail,
        })
    })
}

/// The proxies with a target of their own that fails: id, address and failures.
pub(super) fn proxies(snapshot: &Snapshot) -> Value {
    let now = Instant::now();
    let own = |(_, route): &(_, &std::sync::Arc<Route>)| !route.proxy.backend.is_named;
    let targets = snapshot.by_id.iter().take(MAX_EXAMINED).filter(own).flat_map(|(id, route)| {
        let is_fastcgi = route.proxy.backend.fastcgi().is_some();
        route.targets.list().iter().map(move |target| (id, target, is_fastcgi))
    });
    let failing = targets.filter_map(|(id, target, is_fastcgi)| {
        let failures = failures(target, now);
        let shown = || json!({ "id": id.as_str(), "address": &**target.authority(), "fastcgi": is_fastcgi, "failures": failures });
        (!failures.is_null()).then(shown)
    });
    failing.take(MAX_NAMED).collect()
}

/// The proxies whose folder of scripts can't be read: id, folder and error.
pub(super) async fn script_folders(snapshot: &Snapshot) -> Value {
    let mut folders = BTreeMap::<PathBuf, Vec<String>>::new();
    for (id, route) in snapshot.by_id.iter().take(MAX_EXAMINED) {
        let scripts = route.proxy.backend.fastcgi().and_then(|fastcgi| fastcgi.scripts.as_ref());
        let Some(root) = scripts.and_then(|scripts| scripts.local_root.as_ref()) else { continue };
        if folders.len() < MAX_FOLDERS || folders.contains_key(root) {
            let ids = folders.entry(root.clone()).or_default();
            if ids.len() < MAX_NAMED {
                ids.push(id.to_string());
            }
        }
    }
    if folders.is_empty() {
        return json!([]);
    }
    // The file system of a folder may hang.
    let looked = tokio::task::spawn_blocking(move || {
        let unreadable = folders.into_iter().filter_map(|(root, ids)| {
            let error = match std::fs::metadata(&root) {
                Ok(found) if found.is_dir() => return None,
                Ok(_) => "not a folder".to_owned(),
                Err(error) => error.to_string(),
            };
            Some((root, ids, error))
        });
        let shown = unreadable.flat_map(|(root, ids, error)| {
            let root = root.display().to_string();
            ids.into_iter().map(move |id| json!({ "id": id, "folder": root, "problem": error }))
        });
        shown.take(MAX_NAMED).collect::<Vec<_>>()
    });
    match tokio::time::timeout(FOLDER_TIMEOUT, looked).await {
        Ok(Ok(list)) => json!(list),
        _ => json!([{ "id": "", "folder": "", "problem": "the file system did not answer in time" }]),
    }
}
