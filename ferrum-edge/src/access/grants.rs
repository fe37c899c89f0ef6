//! Grants limit a caller to some objects: the caller sees and changes these only.
//!
//! Without grants, the role applies to every object. With grants, it applies to the objects that a grant covers. A grant covers a proxy
//! if it covers the proxy's id *and* the proxy's traffic, so that no caller takes the traffic of others.

use std::collections::BTreeMap;
use std::fmt;

use gateway_core::config::model::{HostPattern, PathPattern, Proxy, Traffic};
use serde::{Deserialize, Serialize};

use super::Role;

/// Grants of one caller.
const MAX_GRANTS: usize = 50;
/// Entries of a list of a grant.
const MAX_ENTRIES: usize = 100;
/// Bytes of an entry.
const MAX_BYTES: usize = 256;

/// Everything that a caller is granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Grants(Vec<Grant>);

/// What one grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant {
    /// The workspace whose objects, hosts, paths, ports and protocols these are; then the grant has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    /// Patterns of ids, such as `team-a-*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    objects: Vec<String>,
    /// `read` or `write`; the caller's own role bounds it.
    #[serde(default = "write", skip_serializing_if = "is_write")]
    role: Role,
    /// Hosts that HTTP proxies may answer for: `a.example`, `*.a.example`, or `*` for any; none without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
    /// Below which paths HTTP proxies may answer; all without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    /// Ports that stream proxies may have: `5432` or `10000-10099`; none without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ports: Vec<PortRange>,
    /// `http`, `tcp` and `udp`; all without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    protocols: Vec<Protocol>,
}

/// The first and the last port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenPorts", into = "String")]
struct PortRange(u16, u16);

/// Ports as written.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenPorts {
    One(u64),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Http,
    Tcp,
    Udp,
}

fn write() -> Role {
    Role::Write
}

fn is_write(role: &Role) -> bool {
    *role == Role::Write
}

/// A text that is no port and no range of ports.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no port and no range such as 10000-10099")]
struct NoPorts(String);

/// Why a workspace can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceError {
    #[error("a workspace has no `role` and no `workspace`; grants that name it have")]
    Keys,
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Grant(#[from] GrantError),
}

/// What is wrong with one grant.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantError {
    #[error("a grant with `workspace` has only `role` beside it")]
    Workspace,
    #[error("`role` is read or write")]
    Role,
    #[error("`{0}` has 1 to {MAX_ENTRIES} entries of 1 to {MAX_BYTES} bytes")]
    Entries(&'static str),
    #[error("a list has more than {MAX_ENTRIES} entries")]
    TooMany,
    #[error("`objects` names no object; write patterns of ids, such as `team-a-*`")]
    NoObjects,
    #[error("`{0}` is no host in lower case, such as `a.example`, `*.a.example` or `*`")]
    Host(String),
    #[error("`{0}` is no path of letters, digits, `-`, `_`, `.` and `/`")]
    Path(String),
}

impl TryFrom<WrittenPorts> for PortRange {
    type Error = NoPorts;

    fn try_from(written: WrittenPorts) -> Result<Self, NoPorts> {
        let text = match written {
            WrittenPorts::One(port) => port.to_string(),
            WrittenPorts::Text(text) => text,
        };
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first, last)),
            _ => Err(NoPorts(text)),
        }
    }
}

impl From<PortRange> for String {
    fn from(PortRange(first, last): PortRange) -> Self {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    }
}

/// What grants that name a workspace cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workspace(Grant);

impl Workspace {
    /// A workspace as written in JSON: a grant without a role.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(written: serde_json::Value) -> Result<Self, WorkspaceError> {
        if ["role", "workspace"].iter().any(|key| written.get(*key).is_some()) {
            return Err(WorkspaceError::Keys);
        }
        let covers: Grant = serde_json::from_value(written)?;
        covers.check()?;
        Ok(Self(covers))
    }

    /// The patterns of ids of its objects.
    #[cfg(feature = "fleet")]
    pub(crate) fn objects(&self) -> &[String] {
        &self.0.objects
    }

    /// As it is written.
    pub(crate) fn document(&self) -> serde_json::Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.document().fmt(f)
    }
}

/// Why a list of grants can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantsError {
    #[error("`grants`: {0}")]
    Json(#[from] serde_json::Error),
    #[error("`grants`: the role admin is for everything; use write or read")]
    Admin,
    #[error("`grants`: there have to be 1 to {MAX_GRANTS} of them")]
    Count,
    #[error("`grants`: {0}")]
    Grant(#[from] GrantError),
}

impl Grants {
    /// The grants of a caller with this role, as written in JSON.
    ///
    /// # Errors
    /// What is wrong with them, for whoever writes them.
    pub(crate) fn of(written: serde_json::Value, role: Role) -> Result<Self, GrantsError> {
        let grants: Self = serde_json::from_value(written)?;
        if role == Role::Admin {
            return Err(GrantsError::Admin);
        }
        if grants.0.is_empty() || grants.0.len() > MAX_GRANTS {
            return Err(GrantsError::Count);
        }
        grants.0.iter().try_for_each(Grant::check)?;
        Ok(grants)
    }

    /// Nothing at all, for grants that can't be read.
    #[cfg(feature = "console")]
    pub(crate) fn nothing() -> Self {
        Self(Vec::new())
    }

    /// Whether a grant names a workspace. Such a grant covers nothing until it is [`Self::resolved`].
    pub(crate) fn names_workspaces(&self) -> bool {
        self.0.iter().any(|grant| grant.workspace.is_some())
    }

    /// The role that the grants give for this workspace; `None` if none of them names it.
    #[cfg(feature = "console")]
    pub(crate) fn role_for_workspace(&self, name: &str) -> Option<Role> {
        let of_it = self.0.iter().filter(|grant| grant.workspace.as_deref() == Some(name));
        of_it.map(|grant| grant.role).max()
    }

    /// The same with what each workspace covers now; an unknown one covers nothing.
    pub(crate) fn resolved(&self, known: &BTreeMap<String, Workspace>) -> Self {
        let resolve = |grant: &Grant| match &grant.workspace {
            None => Some(grant.clone()),
            Some(name) => known.get(name).map(|covers| Grant { role: grant.role, ..covers.0.clone() }),
        };
        Self(self.0.iter().filter_map(resolve).collect())
    }

    /// Whether a caller may see the object of this id.
    pub(crate) fn may_see(&self, id: &str) -> bool {
        self.0.iter().any(|grant| grant.names(id))
    }

    /// Whether a grant with the role `write` covers this id. For a proxy, [`Self::may_have`] decides as well.
    pub(crate) fn may_change(&self, id: &str) -> bool {
        self.0.iter().any(|grant| grant.role >= Role::Write && grant.names(id))
    }

    /// Whether a grant with the role `write` covers this proxy: its id, and its hosts and paths or its ports.
    pub(crate) fn may_have(&self, proxy: &Proxy) -> bool {
        self.0.iter().any(|grant| grant.role >= Role::Write && grant.covers(proxy))
    }
}

impl fmt::Display for Grants {
    /// As JSON, as [`Grants::of`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Grant {
    fn check(&self) -> Result<(), GrantError> {
        if let Some(name) = &self.workspace {
            let lists = [&self.objects, &self.hosts, &self.paths];
            let is_alone = lists.iter().all(|list| list.is_empty())
                && self.ports.is_empty()
                && self.protocols.is_empty();
            if !is_alone || name.is_empty() || name.len() > MAX_BYTES {
                return Err(GrantError::Workspace);
            }
            return if self.role == Role::Admin { Err(GrantError::Role) } else { Ok(()) };
        }
        let lists = [("objects", &self.objects), ("hosts", &self.hosts), ("paths", &self.paths)];
        for (name, list) in lists {
            if list.len() > MAX_ENTRIES
                || list.iter().any(|entry| entry.is_empty() || entry.len() > MAX_BYTES)
            {
                return Err(GrantError::Entries(name));
            }
        }
        if self.objects.is_empty() {
            return Err(GrantError::NoObjects);
        }
        if self.ports.len() > MAX_ENTRIES || self.protocols.len() > MAX_ENTRIES {
            return Err(GrantError::TooMany);
        }
        if self.role == Role::Admin {
            return Err(GrantError::Role);
        }
        let is_host = |host: &str| {
            let name = host.strip_prefix("*.").unwrap_or(host);
            host == "*"
                || !name.is_empty() && !name.contains(['*', '/', ':', ' ']) && name == name.to_lowercase()
        };
        if let Some(host) = self.hosts.iter().find(|host| !is_host(host)) {
            return Err(GrantError::Host(host.clone()));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
        if let Some(path) =
            self.paths.iter().find(|path| !path.starts_with('/') || !path.chars().all(is_plain))
        {
            return Err(GrantError::Path(path.clone()));
        }
        Ok(())
    }

    fn names(&self, id: &str) -> bool {
        self.objects.iter().any(|pattern| is_like(pattern, id))
    }

    fn covers(&self, proxy: &Proxy) -> bool {
        let is_among = |protocol| self.protocols.is_empty() || self.protocols.contains(&protocol);
        let takes = match &proxy.traffic {
            Traffic::Http(rules) => {
                is_among(Protocol::Http)
                    && rules.matches.iter().all(|one| self.has_hosts(&one.hosts) && self.has_path(&one.path))
            }
            Traffic::Stream(rules) => {
                let (first, last) = rules.listen_ports;
                is_among(if rules.is_datagram { Protocol::Udp } else { Protocol::Tcp })
                    && self.ports.iter().any(|range| range.0 <= first && last <= range.1)
                    && (self.hosts.is_empty()
                        || rules.server_names.is_empty()
                        || self.has_hosts(&rules.server_names))
            }
        };
        takes && self.names(proxy.id.as_str())
    }

    /// Whether each of the hosts is granted; no host is any host.
    fn has_hosts(&self, hosts: &[HostPattern]) -> bool {
        let is_any = self.hosts.iter().any(|granted| granted == "*");
        is_any
            || !hosts.is_empty() && hosts.iter().all(|host| self.hosts.iter().any(|it| is_within(host, it)))
    }

    fn has_path(&self, path: &PathPattern) -> bool {
        if self.paths.is_empty() {
            return true;
        }
        let text = match path {
            PathPattern::Exact(path) | PathPattern::Prefix(path) => &**path,
            PathPattern::Template(template) => template.as_str(),
            // What these cover can't be told from their beginning.
            PathPattern::HostOnly | PathPattern::Regex(_) => return false,
        };
        self.paths.iter().any(|granted| {
            let granted = granted.trim_end_matches('/');
            text.strip_prefix(granted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Whether a host is granted by `a.example` or `*.a.example`.
fn is_within(host: &HostPattern, granted: &str) -> bool {
    match (host, granted.strip_prefix('*')) {
        (HostPattern::Exact(name), None) => **name == *granted,
        (HostPattern::Exact(name), Some(suffix)) => name.len() > suffix.len() && name.ends_with(suffix),
        (HostPattern::Suffix(_), None) => false,
        (HostPattern::Suffix(own), Some(suffix)) => own.ends_with(suffix),
    }
}

/// Whether a pattern in which `*` is any text covers an id.
pub(crate) fn is_like(pattern: &str, id: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == id };
    let Some(mut left) = id.strip_prefix(begin) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, behind)) = left.split_once(part) else { return false };
        left = behind;
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn grants(written: Value) -> Grants {
        Grants::of(written, Role::Write).unwrap()
    }

    #[test]
    fn patterns_cover_ids() {
        for (pattern, id, is_covered) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("team-a-*", "team-a-shop", true),
            ("team-a-*", "team-a-", true),
            ("team-a-*", "team-ab", false),
            ("*-shop", "x-shop", true),
            ("*-shop", "x-shop-y", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a**", "ab", true),
        ] {
            assert_eq!(is_like(pattern, id), is_covered, "{pattern} {id}");
        }
    }

    /// A proxy as it is resolved.
    fn proxy(written: &Value) -> std::sync::Arc<Proxy> {
        let mut all = written.clone();
        all["id"] = json!("team-a-x");
        all["backend_host"] = json!("127.0.0.1");
        all["backend_port"] = json!(1);
        let text = json!({ "proxies": [all] }).to_string();
        let model = crate::source::file::parse(&text, "t.json", &crate::plugins()).unwrap();
        model.proxies[0].clone()
    }

    #[test]
    fn a_proxy_is_covered_by_its_id_and_by_what_it_takes() {
        let team =
            json!({ "objects": ["team-a-*"], "hosts": ["a.example", "*.a.example"], "paths": ["/team/"] });
        let hosts = json!({ "objects": ["team-a-*"], "hosts": ["*.a.example"] });
        let any = json!({ "objects": ["team-a-*"], "hosts": ["*"] });
        let ports =
            json!({ "objects": ["team-a-*"], "ports": ["5432", "10000-10099"], "protocols": ["tcp"] });
        let other = json!({ "objects": ["team-b-*"], "hosts": ["*"], "ports": ["1-65535"] });
        let readable = json!({ "objects": ["*"], "role": "read", "hosts": ["*"], "ports": ["1-65535"] });
        let http = |hosts: Value, path: Value| json!({ "hosts": hosts, "listen_path": path, "backend_scheme": "http" });
        let stream = |port: Value, scheme: &str| {
            let key = if port.is_string() { "listen_port_range" } else { "listen_port" };
            json!({ key: port, "backend_scheme": scheme })
        };
        for (grant, written, is_covered) in [
            (&team, http(json!(["a.example"]), json!("/team/x")), true),
            (&team, http(json!(["a.example", "b.a.example"]), json!("/team")), true),
            (&team, http(json!(["*.b.a.example"]), json!("/team/{id}")), true),
            (&team, http(json!(["a.example"]), json!("/teams")), false),
            (&team, http(json!(["a.example"]), json!("/")), false),
            (&team, http(json!(["a.example"]), json!("~/team/.*")), false),
            (&team, http(json!(["a.example", "b.example"]), json!("/team")), false),
            (&team, http(json!(["xa.example"]), json!("/team")), false),
            (&team, http(json!(["*.example"]), json!("/team")), false),
            (&team, http(json!([]), json!("/team")), false),
            (&hosts, http(json!(["b.a.example"]), json!("/")), true),
            (&hosts, http(json!(["b.a.example"]), json!("~/.*")), true),
            (&hosts, http(json!(["a.example"]), json!("/")), false),
            (&hosts, stream(json!(10000), "tcp"), false),
            (&any, http(json!([]), json!("/")), true),
            (&any, http(json!(["x.test"]), json!("/")), true),
            (&ports, stream(json!(5432), "tcp"), true),
            (&ports, stream(json!("10000-10099"), "tcp"), true),
            (&ports, stream(json!("10000-10100"), "tcp"), false),
            (&ports, stream(json!(9999), "tcp"), false),
            (&ports, stream(json!(10000), "udp"), false),
            (&ports, http(json!(["a.example"]), json!("/")), false),
            (&other, http(json!(["a.example"]), json!("/")), false),
            (&other, stream(json!(10000), "tcp"), false),
            (&readable, http(json!(["a.example"]), json!("/")), false),
        ] {
            let grants = grants(json!([grant]));
            assert_eq!(grants.may_have(&proxy(&written)), is_covered, "{grant} {written}");
        }
        let both = grants(json!([readable, team]));
        assert!(both.may_see("anything") && !both.may_change("anything") && both.may_change("team-a-u"));
    }

    #[test]
    fn grants_that_can_not_be_meant_are_refused() {
        for (written, role, why) in [
            (json!([]), Role::Write, "1 to 50"),
            (json!([{ "objects": [] }]), Role::Write, "names no object"),
            (json!([{ "objects": [""] }]), Role::Write, "`objects` has"),
            (json!([{ "objects": ["*"] }]), Role::Admin, "role admin"),
            (json!([{ "objects": ["*"], "role": "admin" }]), Role::Write, "read or write"),
            (json!([{ "objects": ["*"], "hosts": ["https://a"] }]), Role::Write, "no host"),
            (json!([{ "objects": ["*"], "hosts": ["a.*"] }]), Role::Write, "no host"),
            (json!([{ "objects": ["*"], "hosts": ["A.example"] }]), Role::Write, "no host"),
            (json!([{ "objects": ["*"], "paths": ["a"] }]), Role::Write, "no path"),
            (json!([{ "objects": ["*"], "paths": ["/%61"] }]), Role::Write, "no path"),
            (json!([{ "objects": ["*"], "ports": ["0"] }]), Role::Write, "no port"),
            (json!([{ "objects": ["*"], "ports": ["9-1"] }]), Role::Write, "no port"),
            (json!([{ "objects": ["*"], "ports": [70000] }]), Role::Write, "no port"),
            (json!([{ "objects": ["*"], "protocols": ["ftp"] }]), Role::Write, "unknown variant"),
            (json!([{ "objects": ["*"], "colour": 1 }]), Role::Write, "unknown field"),
            (json!("x"), Role::Write, "invalid type"),
        ] {
            let refused = Grants::of(written.clone(), role).unwrap_err().to_string();
            assert!(refused.contains(why), "{written}: {refused}");
        }
    }

    #[test]
    fn grants_of_a_workspace_cover_what_it_covers_now() {
        let named = grants(json!([{ "workspace": "team-a" }, { "workspace": "team-b", "role": "read" }]));
        assert!(named.names_workspaces() && !named.may_see("a-x"), "not before they are resolved");
        let covers = |objects: &str| Workspace::of(json!({ "objects": [objects], "hosts": ["*"] })).unwrap();
        let known = |a: &str| {
            BTreeMap::from([("team-a".to_owned(), covers(a)), ("team-b".to_owned(), covers("b-*"))])
        };
        for (a, id, seen, changed) in [
            ("a-*", "a-x", true, true),
            ("a-*", "b-x", true, false),
            ("c-*", "a-x", false, false),
            ("c-*", "c-x", true, true),
        ] {
            let resolved = named.resolved(&known(a));
            assert_eq!((resolved.may_see(id), resolved.may_change(id)), (seen, changed), "{a} {id}");
        }
        assert!(!named.resolved(&BTreeMap::new()).may_see("a-x"), "an unknown one covers nothing");
        for (written, why) in [
            (json!([{ "workspace": "a", "objects": ["*"] }]), "only `role`"),
            (json!([{ "workspace": "a", "ports": ["1"] }]), "only `role`"),
            (json!([{ "workspace": "" }]), "only `role`"),
            (json!([{ "workspace": "a", "role": "admin" }]), "read or write"),
            (json!([{ "role": "read" }]), "names no object"),
        ] {
            let refused = Grants::of(written.clone(), Role::Write).unwrap_err().to_string();
            assert!(refused.contains(why), "{written}: {refused}");
        }
        for written in [
            json!({ "objects": ["a"], "role": "read" }),
            json!({ "workspace": "a" }),
            json!({}),
            json!({ "objects": ["a"], "colour": 1 }),
        ] {
            assert!(Workspace::of(written.clone()).is_err(), "{written}");
        }
    }

    #[test]
    fn grants_are_written_as_they_are_read() {
        let written = json!([{ "objects": ["a-*"], "hosts": ["*.a.example"], "ports": ["1", "5-7"], "protocols": ["udp"] }]);
        assert_eq!(serde_json::to_value(grants(written.clone())).unwrap(), written);
        let number = json!([{ "objects": ["a"], "ports": [5432] }]);
        assert_eq!(grants(number).to_string(), r#"[{"objects":["a"],"ports":["5432"]}]"#);
    }
}
