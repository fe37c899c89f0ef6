//! Logins to the console by an OpenID provider.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use serde_json::json;

use super::{Notes, words};
use crate::file;
use crate::model::{AdminOidc, ProviderGrant};

/// The path of the console's pages at which browsers come back from the provider.
const CALLBACK: &str = "/console/oidc/callback";
/// Why a grant has no role `admin`.
const ADMIN_GRANT: &str = "the role admin is for everything; write `write` or `read`, or use `roles`";

/// Resolves the provider; `None` with problems noted where it can't be used.
pub(super) fn provider(
    notes: &mut Notes<'_>,
    written: Option<&file::AdminOidc>,
    folder: &Path,
) -> Option<Arc<AdminOidc>> {
    let written = written?;
    let dot = if notes.at.is_empty() { "" } else { "." };
    let at = format!("{}{dot}admin_oidc", notes.at);
    let mut own = Notes::new(&at);
    let resolved = resolve(&mut own, written, folder);
    let is_good = own.problems.is_empty();
    notes.problems.extend(own.problems.0);
    resolved.filter(|_| is_good).map(Arc::new)
}

fn resolve(notes: &mut Notes<'_>, written: &file::AdminOidc, folder: &Path) -> Option<AdminOidc> {
    let issuer = whole_url(notes, "issuer", written.issuer.as_deref());
    whole_url(notes, "discovery_url", written.discovery_url.as_deref());
    let redirect = whole_url(notes, "redirect_uri", written.redirect_uri.as_deref());
    if redirect.is_some_and(|url| url.path() != CALLBACK) {
        notes.add("redirect_uri", format!("its path is not `{CALLBACK}`, where logins end"));
    }
    if written.issuer.is_none() {
        notes.add("issuer", "`issuer` is missing");
    }
    if written.client_id.is_none() {
        notes.add("client_id", "`client_id` is missing");
    }
    let roles = written.roles.clone().unwrap_or_default();
    let [admin, write, read] =
        [("admin", roles.admin), ("write", roles.write), ("read", roles.read)].map(|(role, groups)| {
            let groups = groups.unwrap_or_default();
            if groups.iter().any(|group| group.trim().is_empty()) {
                notes.add(&format!("roles.{role}"), "a group has no name");
            }
            boxed(groups)
        });
    let grants = written.grants.as_deref().unwrap_or_default();
    let grants: Box<[ProviderGrant]> =
        grants.iter().enumerate().map(|(n, written)| grant(notes, n, written)).collect();
    if admin.is_empty() && write.is_empty() && read.is_empty() && grants.is_empty() {
        notes.add("roles", "no group has a role: nobody could log in").remedy =
            Some("such as `roles: {admin: [platform], read: [\"*\"]}`".to_owned());
    }
    let host = issuer.as_ref().and_then(Uri::host).unwrap_or_default();
    let scopes =
        written.scopes.clone().unwrap_or_else(|| ["openid", "profile", "email"].map(String::from).into());
    Some(AdminOidc {
        issuer: written.issuer.as_deref()?.into(),
        discovery_url: written.discovery_url.as_deref().map(Box::from),
        ca_path: written.ca_path.as_deref().map(|path| words::file_path(folder, path)),
        client_id: written.client_id.as_deref()?.into(),
        client_secret: written.client_secret.as_deref().map(Box::from),
        scopes: boxed(scopes),
        redirect_uri: written.redirect_uri.as_deref().map(Box::from),
        label: written.label.clone().unwrap_or_else(|| format!("Log in with {host}")).into(),
        name_claim: written.name_claim.as_deref().unwrap_or("preferred_username").into(),
        groups_claim: written.groups_claim.as_deref().unwrap_or("groups").into(),
        admin,
        write,
        read,
        grants,
        timeout: words::millis(written.timeout, Duration::from_secs(5)),
    })
}

/// A grant of groups, with its problems noted. What is refused here is what the grants of users refuse.
fn grant(notes: &mut Notes<'_>, n: usize, written: &file::AdminOidcGrant) -> ProviderGrant {
    let mut note = |key: &str, problem: String| {
        notes.add(&format!("grants[{n}].{key}"), problem);
    };
    let list = |texts: &Option<Vec<String>>| texts.clone().unwrap_or_default();
    let (groups, objects) = (list(&written.groups), list(&written.objects));
    let (hosts, paths, ports) = (list(&written.hosts), list(&written.paths), list(&written.ports));
    if groups.is_empty() || groups.iter().any(|group| group.trim().is_empty()) {
        note("groups", "names no group, or one without a name".to_owned());
    }
    let role = if written.role == Some(file::AdminRole::Read) { "read" } else { "write" };
    if let Some(workspace) = &written.workspace {
        let is_alone = [&objects, &hosts, &paths, &ports].iter().all(|list| list.is_empty())
            && written.protocols.as_deref().unwrap_or_default().is_empty();
        if !is_alone {
            note("workspace", "a grant with `workspace` has only `groups` and `role` beside it".to_owned());
        }
        if written.role == Some(file::AdminRole::Admin) {
            note("role", ADMIN_GRANT.to_owned());
        }
        return ProviderGrant {
            groups: boxed(groups),
            grant: json!({ "workspace": workspace, "role": role }),
        };
    }
    if objects.is_empty() {
        note("objects", "names no object; write patterns of ids, such as `team-a-*`".to_owned());
    }
    if written.role == Some(file::AdminRole::Admin) {
        note("role", ADMIN_GRANT.to_owned());
    }
    let is_host = |host: &&String| {
        let name = host.strip_prefix("*.").unwrap_or(host);
        *host == "*"
            || !name.is_empty() && !name.contains(['*', '/', ':', ' ']) && name == name.to_lowercase()
    };
    for host in hosts.iter().filter(|host| !is_host(host)) {
        note(
            "hosts",
            format!("`{host}` is not a host in lower case, such as `a.example`, `*.a.example` or `*`"),
        );
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    for path in paths.iter().filter(|path| !path.starts_with('/') || !path.chars().all(is_plain)) {
        note("paths", format!("`{path}` is not a path of letters, digits, `-`, `_`, `.` and `/`"));
    }
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let is_range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        port(first).zip(port(last)).is_some_and(|(first, last)| first <= last)
    };
    for text in ports.iter().filter(|text| !is_range(text)) {
        note("ports", format!("`{text}` is not a port, and not a range such as 10000-10099"));
    }
    let protocols = written.protocols.clone().unwrap_or_default();
    let grant = json!({
        "objects": objects, "role": role, "hosts": hosts, "paths": paths, "ports": ports, "protocols": protocols,
    });
    ProviderGrant { groups: boxed(groups), grant }
}

fn boxed(texts: Vec<String>) -> Box<[Box<str>]> {
    texts.into_iter().map(Box::from).collect()
}

/// A URL that has to be a whole one; `None` where there is none or it is not.
fn whole_url(notes: &mut Notes<'_>, key: &str, written: Option<&str>) -> Option<Uri> {
    let text = written?;
    let parsed = text.parse::<Uri>().ok();
    let whole =
        parsed.filter(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
    if whole.is_none() {
        notes.add(key, "is not a URL with `https://` or `http://`");
    }
    whole
}
