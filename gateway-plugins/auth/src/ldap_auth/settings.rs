//! What users write, and what it is checked to mean.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Millis, Seconds};
use gateway_core::plugin::World;
use ldap3::{dn_escape, ldap_escape, parse_filter};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `ldap_auth`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Servers, `ldaps://HOST:PORT` or `ldap://HOST:PORT`. If one is unreachable, the gateway uses the next. 1 to 8,
    /// required.
    #[schemars(length(min = 1, max = 8))]
    urls: Vec<String>,
    /// Encrypts connections to `ldap://` servers with StartTLS. Default false.
    start_tls: bool,
    /// Sends passwords over unencrypted connections; `ldap://` without `start_tls` requires it. Default false.
    plaintext: bool,
    /// PEM file with the only trusted roots. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    ca_path: Option<PathBuf>,
    /// DN with which a user binds, with `{username}` in it, such as `uid={username},ou=people,dc=example,dc=org`. This
    /// or `search` is required.
    bind_dn: Option<String>,
    /// Searches for the user first, and binds with the DN that it finds.
    search: Option<SearchConfig>,
    /// Searches for the user's groups, which become groups of the caller.
    group_search: Option<GroupConfig>,
    /// Attribute of the user's entry with its groups, such as `memberOf`; requires `search`. Of a DN, the first part
    /// counts: `cn=staff,ou=groups` is `staff`. Default none.
    group_attribute: Option<String>,
    /// Attribute of the user's entry that names the caller, such as `uid`; requires `search`. Default: the username in
    /// lower case.
    name_attribute: Option<String>,
    /// Realm that browsers show when they ask for the password. Default `ferrum-edge`.
    #[schemars(length(min = 1, max = 255))]
    pub(super) realm: String,
    /// Removes the `Authorization` header from the request, so that targets do not receive the password. Default true.
    pub(super) hide_credentials: bool,
    /// Username of the consumer for requests without a password. A wrong password is still rejected. Default none: a
    /// password is required.
    pub(super) anonymous: Option<String>,
    /// Time limit for connecting, searching and binding together; the response is 503 after that. Default 5 s.
    #[schemars(range(min = 0.01, max = 60))]
    timeout: Millis,
    /// Concurrent connections; each login uses one. Default 32.
    #[schemars(range(min = 1, max = 1024))]
    max_connections: usize,
    /// Logins that wait for a connection; further ones get 503 with `Retry-After`. Default 100.
    #[schemars(range(min = 1, max = 10_000))]
    max_waiting: usize,
    /// How long a verified password is cached, as a keyed hash. A changed password or group takes effect after this
    /// time at the latest. 0 disables the cache. Default 60 s.
    #[schemars(range(max = 86_400))]
    pub(super) cache_ttl: Seconds,
    /// Verified passwords that each worker caches. Default 1000.
    #[schemars(range(max = 1_000_000))]
    pub(super) cached_passwords: u32,
}

/// Search for users.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchConfig {
    /// Base DN of users.
    base_dn: String,
    /// Filter that finds a user, with `{username}` in it. Exactly one entry must match. Default `(uid={username})`.
    #[serde(default = "by_uid")]
    filter: String,
    /// DN that searches. Default none: the search is anonymous.
    bind_dn: Option<String>,
    /// Password of `bind_dn`.
    #[schemars(extend("format" = "secret"))]
    bind_password: Option<String>,
}

/// Search for groups.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GroupConfig {
    /// Base DN of groups.
    base_dn: String,
    /// Filter that finds the groups of a user, with `{dn}` or `{username}` in it. At most 1000 may match. Default
    /// `(member={dn})`.
    #[serde(default = "by_member")]
    filter: String,
    /// The attribute with the name of a group. Default `cn`.
    #[serde(default = "by_cn")]
    attribute: String,
}

fn by_uid() -> String {
    "(uid={username})".into()
}

fn by_member() -> String {
    "(member={dn})".into()
}

fn by_cn() -> String {
    "cn".into()
}

impl Default for Config {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            start_tls: false,
            plaintext: false,
            ca_path: None,
            bind_dn: None,
            search: None,
            group_search: None,
            group_attribute: None,
            name_attribute: None,
            realm: "ferrum-edge".into(),
            hide_credentials: true,
            anonymous: None,
            timeout: Millis(5000),
            max_connections: 32,
            max_waiting: 100,
            cache_ttl: Seconds(60),
            cached_passwords: 1000,
        }
    }
}

/// Where users are, checked.
pub(super) struct Directory {
    pub(super) urls: Box<[String]>,
    pub(super) start_tls: bool,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) users: Users,
    pub(super) groups: Option<Groups>,
    pub(super) timeout: Duration,
    pub(super) max_connections: usize,
    pub(super) max_waiting: usize,
}

/// How a user's entry is found.
pub(super) enum Users {
    /// Under this name.
    Named(String),
    Searched(Search),
}

pub(super) struct Search {
    pub(super) base: String,
    filter: String,
    /// Name and password of who looks up.
    pub(super) as_: Option<(String, String)>,
    pub(super) group_attribute: Option<String>,
    pub(super) name_attribute: Option<String>,
}

pub(super) struct Groups {
    pub(super) base: String,
    filter: String,
    pub(super) attribute: String,
}

impl Search {
    pub(super) fn filter(&self, user: &str) -> String {
        self.filter.replace(USER, &ldap_escape(user))
    }
}

impl Groups {
    pub(super) fn filter(&self, user: &str, dn: &str) -> String {
        // One pass: what is put in is not looked through again.
        let mut filter = String::with_capacity(self.filter.len() + dn.len());
        let mut rest = self.filter.as_str();
        while let Some(at) = rest.find('{') {
            let (before, after) = rest.split_at(at);
            filter.push_str(before);
            if let Some(after) = after.strip_prefix(USER) {
                filter.push_str(&ldap_escape(user));
                rest = after;
            } else if let Some(after) = after.strip_prefix(DN) {
                filter.push_str(&ldap_escape(dn));
                rest = after;
            } else {
                filter.push('{');
                rest = after.strip_prefix('{').unwrap_or_default();
            }
        }
        filter + rest
    }
}

/// The name under which a user binds.
pub(super) fn bind_name(template: &str, user: &str) -> String {
    template.replace(USER, &dn_escape(user))
}

/// What stands for the user's name.
const USER: &str = "{username}";
/// What stands for the name of its entry.
const DN: &str = "{dn}";
/// Bytes of a file with roots.
const MAX_ROOTS: u64 = 4 << 20;

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: &mut Config, world: &World, problems: &mut Problems) -> Option<Directory> {
    urls(config, problems);
    let wrong = |problems: &mut Problems, option: &str, why: &str| {
        _ = problems.add(format!("config.{option}"), why);
    };
    let is_searched = config.search.is_some();
    for (option, is_set) in [
        ("group_attribute", config.group_attribute.is_some()),
        ("name_attribute", config.name_attribute.is_some()),
    ] {
        if is_set && !is_searched {
            wrong(problems, option, "needs `search`");
        }
    }
    if config.group_search.is_some() && config.group_attribute.is_some() {
        wrong(problems, "group_attribute", "groups come from here or from `group_search`");
    }
    let users = match (config.bind_dn.take(), config.search.take()) {
        (Some(name), None) => {
            if !name.contains(USER) {
                wrong(problems, "bind_dn", "`{username}` must be in it");
            }
            Some(Users::Named(name))
        }
        (None, Some(search)) => {
            filter("search.filter", &search.filter, &[USER], problems);
            let as_ = match (search.bind_dn, search.bind_password) {
                (Some(name), Some(password)) if !name.is_empty() && !password.is_empty() => {
                    Some((name, password))
                }
                (None, None) => None,
                _ => {
                    wrong(problems, "search.bind_dn", "name and password go together, and are not empty");
                    None
                }
            };
            let (group_attribute, name_attribute) =
                (config.group_attribute.take(), config.name_attribute.take());
            let base = search.base_dn;
            Some(Users::Searched(Search {
                base,
                filter: search.filter,
                as_,
                group_attribute,
                name_attribute,
            }))
        }
        _ => {
            wrong(problems, "bind_dn", "one of `bind_dn` and `search` is needed, and only one");
            None
        }
    };
    let groups = config.group_search.take().map(|groups| {
        filter("group_search.filter", &groups.filter, &[USER, DN], problems);
        Groups { base: groups.base_dn, filter: groups.filter, attribute: groups.attribute }
    });
    let tls = tls(config, world, problems);
    if !problems.is_empty() {
        return None;
    }
    Some(Directory {
        urls: std::mem::take(&mut config.urls).into(),
        start_tls: config.start_tls,
        tls: tls?,
        users: users?,
        groups,
        timeout: config.timeout.duration(),
        max_connections: config.max_connections,
        max_waiting: config.max_waiting,
    })
}

fn urls(config: &Config, problems: &mut Problems) {
    if config.urls.is_empty() {
        problems.add("config.urls", "no server is given").remedy =
            Some("such as `[ldaps://ldap.example.org]`".into());
    }
    for (n, url) in config.urls.iter().enumerate() {
        let mut wrong = |why: &str| _ = problems.add(format!("config.urls[{n}]"), why);
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        if !matches!(scheme, "ldap" | "ldaps") {
            wrong("this is not a URL of LDAP");
        } else if rest.is_empty() || rest.contains(['/', '?', '#', '@']) {
            wrong("host and port are written here, and nothing else");
        } else if scheme == "ldap" && !config.start_tls && !config.plaintext {
            wrong(
                "passwords would not be encrypted: take `ldaps://`, `start_tls: true` or `plaintext: true`",
            );
        } else if scheme == "ldaps" && config.start_tls {
            wrong("this is encrypted from the start: StartTLS is for `ldap://`");
        }
    }
}

/// Looks whether a filter can be read once something is in it.
fn filter(option: &str, text: &str, one_of: &[&str], problems: &mut Problems) {
    let sample = text.replace(USER, "a").replace(DN, "a");
    if parse_filter(&sample).is_err() {
        problems.add(format!("config.{option}"), format!("`{text}` is not a filter of LDAP")).remedy =
            Some("such as `(&(objectClass=person)(uid={username}))`".into());
    } else if !one_of.iter().any(|word| text.contains(word)) {
        problems.add(format!("config.{option}"), format!("it has none of {}", one_of.join(", ")));
    }
}

fn tls(config: &Config, world: &World, problems: &mut Problems) -> Option<Arc<ClientConfig>> {
    let is_encrypted = config.start_tls || config.urls.iter().any(|url| url.starts_with("ldaps://"));
    if config.ca_path.is_some() && !is_encrypted {
        problems.add("config.ca_path", "has no effect: no connection is encrypted").remedy =
            Some("remove it, or take `ldaps://` or `start_tls: true`".into());
    }
    let mut roots = RootCertStore::empty();
    match &config.ca_path {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let read =
                world.settings_file(path, MAX_ROOTS).map_err(|error| error.to_string()).and_then(|bytes| {
                    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
                    let (added, _) = roots.add_parsable_certificates(all.map_err(|error| error.to_string())?);
                    if added == 0 { Err("there is no certificate in it".into()) } else { Ok(()) }
                });
            if let Err(why) = read {
                problems.add("config.ca_path", format!("{} can't be used: {why}", path.display()));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    match builder {
        Ok(builder) => Some(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())),
        Err(error) => {
            problems.add("config.urls", error.to_string());
            None
        }
    }
}
