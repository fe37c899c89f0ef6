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
    /// The servers, `ldaps://HOST:PORT` or `ldap://HOST:PORT`; the next one is asked when one can't be reached. 1 to 8,
    /// required.
    #[schemars(length(min = 1, max = 8))]
    urls: Vec<String>,
    /// Encrypts connections of `ldap://` by StartTLS. Default false.
    start_tls: bool,
    /// Sends passwords over connections that are not encrypted, which `ldap://` without `start_tls` needs. Default false.
    plaintext: bool,
    /// The PEM file with the only roots that are trusted. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    ca_path: Option<PathBuf>,
    /// The name under which a user binds, with `{username}` in it, such as `uid={username},ou=people,dc=example,dc=org`. This or
    /// `search` is required.
    bind_dn: Option<String>,
    /// Looks the user up first, and binds under the name that is found.
    search: Option<SearchConfig>,
    /// Looks for the groups of the user; they become groups of the caller.
    group_search: Option<GroupConfig>,
    /// The attribute of the user's entry with its groups, such as `memberOf`; needs `search`. Of names in the directory, the
    /// first part counts: `cn=staff,ou=groups` is `staff`. Default none.
    group_attribute: Option<String>,
    /// The attribute of the user's entry that names the caller, such as `uid`; needs `search`. Default: the name that was given,
    /// in lower case.
    name_attribute: Option<String>,
    /// What a browser shows when it asks for the password. Default `ferrum-edge`.
    #[schemars(length(min = 1, max = 255))]
    pub(super) realm: String,
    /// Takes the `Authorization` header out of the request, so that targets never see the password. Default true.
    pub(super) hide_credentials: bool,
    /// The consumer that a request without a password counts as, by username. A wrong password is refused all the same.
    /// Default none: a password is required.
    pub(super) anonymous: Option<String>,
    /// How long connecting, looking up and binding may take together; then the answer is 503. Default 5 s.
    #[schemars(range(min = 0.01, max = 60))]
    timeout: Millis,
    /// Connections at a time; each login takes one. Default 32.
    #[schemars(range(min = 1, max = 1024))]
    max_connections: usize,
    /// Logins that wait for a connection; more are answered with 503 and `Retry-After`. Default 100.
    #[schemars(range(min = 1, max = 10_000))]
    max_waiting: usize,
    /// How long a good password is remembered by a keyed hash, so that the directory is not asked again: as long may a changed
    /// password or group take to count. 0 is not at all. Default 60 s.
    #[schemars(range(max = 86_400))]
    pub(super) cache_ttl: Seconds,
    /// Good passwords that each worker remembers. Default 1000.
    #[schemars(range(max = 1_000_000))]
    pub(super) cached_passwords: u32,
}

/// How users are looked up.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchConfig {
    /// Where in the directory users are.
    base_dn: String,
    /// What finds a user, with `{username}` in it. Exactly one entry must fit. Default `(uid={username})`.
    #[serde(default = "by_uid")]
    filter: String,
    /// Who looks up: the name of an entry that may. Default none: anybody may.
    bind_dn: Option<String>,
    /// Its password.
    #[schemars(extend("format" = "secret"))]
    bind_password: Option<String>,
}

/// How groups are looked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GroupConfig {
    /// Where in the directory groups are.
    base_dn: String,
    /// What finds the groups of a user, with `{dn}` or `{username}` in it. At most 1000 may fit. Default `(member={dn})`.
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
