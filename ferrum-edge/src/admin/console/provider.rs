//! Logins by an OpenID provider: `/console/oidc/login` sends the browser there, and it comes back to `/console/oidc/callback`.
//!
//! A login under way is kept here, and the browser that began it has a cookie: nobody else can end it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, LOCATION, REFRESH, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gateway_auth::provider_login::{
    BegunLogin, LoginAnswer, LoginFailure, ProviderLogin, ProviderSettings, claim_texts,
};
use gateway_core::config::model::{AdminOidc, EVERYBODY};
use gateway_core::plugin::World;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::problem::problem;
use super::cookie;
use super::sessions::Key;
use crate::access::grants::Grants;
use crate::access::{Caller, Role};

/// Where a login begins.
pub(super) const LOGIN: &str = "/console/oidc/login";
/// Where the browser comes back from the provider.
pub(super) const CALLBACK: &str = "/console/oidc/callback";

/// How long a login may take.
const LASTS: Duration = Duration::from_secs(600);
/// Logins under way; the oldest is forgotten for a new one.
const MAX_LOGINS: usize = 4096;
/// Those from one address.
const MAX_OF_ADDRESS: usize = 32;
/// Characters of a user's name.
const MAX_NAME: usize = 200;

/// Logins under way, and the provider's client.
#[derive(Default)]
pub(super) struct ProviderLogins {
    client: Mutex<Option<(Arc<AdminOidc>, Arc<ProviderLogin>)>>,
    begun: Mutex<HashMap<String, Begun>>,
}

/// A login under way.
struct Begun {
    login: BegunLogin,
    rules: Arc<AdminOidc>,
    /// The cookie of the browser.
    browser: Key,
    address: String,
    since: Instant,
}

/// Why a login ended without a session: an error code for the page and the audit, and what to tell.
pub(super) struct Failed(StatusCode, &'static str, String);

impl std::fmt::Debug for ProviderLogins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ProviderLogins({})", lock(&self.begun).len())
    }
}

impl ProviderLogins {
    /// The provider of these settings. Its keys are kept as long as the settings stay as they are.
    fn client(&self, rules: &Arc<AdminOidc>, world: &World) -> Result<Arc<ProviderLogin>, Failed> {
        let mut client = lock(&self.client);
        if let Some((known, login)) = &*client
            && known == rules
        {
            return Ok(login.clone());
        }
        let settings = ProviderSettings {
            issuer: rules.issuer.to_string(),
            discovery_url: rules.discovery_url.as_deref().map(str::to_owned),
            ca_path: rules.ca_path.clone(),
            client_id: rules.client_id.to_string(),
            client_secret: rules.client_secret.as_deref().map(str::to_owned),
            scopes: rules.scopes.iter().map(ToString::to_string).collect(),
            timeout: rules.timeout,
        };
        let login = ProviderLogin::new(&settings, world, "gateway.admin_oidc");
        let login = Arc::new(login.map_err(|problems| away(rules, &problems.to_string()))?);
        *client = Some((rules.clone(), login.clone()));
        Ok(login)
    }

    fn keep(&self, begun: Begun) {
        let now = Instant::now();
        let mut all = lock(&self.begun);
        all.retain(|_, one| now.duration_since(one.since) < LASTS);
        let of_address = all.values().filter(|one| one.address == begun.address).count();
        let is_full = all.len() >= MAX_LOGINS;
        if of_address >= MAX_OF_ADDRESS || is_full {
            let crowd = all.iter().filter(|(_, one)| is_full || one.address == begun.address);
            let oldest = crowd.min_by_key(|(_, one)| one.since).map(|(state, _)| state.clone());
            oldest.and_then(|state| all.remove(&state));
        }
        all.insert(begun.login.state.clone(), begun);
    }

    /// Takes out the login that this browser began; a login is ended once.
    fn take(&self, state: &str, browser: Option<&Key>) -> Option<Begun> {
        let mut all = lock(&self.begun);
        let is_own = all.get(state).is_some_and(|begun| browser == Some(&begun.browser));
        let begun = if is_own { all.remove(state) } else { None };
        begun.filter(|begun| begun.since.elapsed() < LASTS)
    }
}

impl ProviderLogins {
    /// Sends the browser to the provider.
    pub(super) async fn begin(
        &self,
        rules: &Arc<AdminOidc>,
        world: &World,
        headers: &HeaderMap,
        is_encrypted: bool,
        address: String,
    ) -> Result<Response, Failed> {
        let client = self.client(rules, world)?;
        let redirect_uri = redirect_uri(rules, headers, is_encrypted)?;
        let login = client.begin(redirect_uri).await.map_err(|failure| failed(rules, failure))?;
        // A browser with several tabs has one key for all of them.
        let known = cookie::read_login(headers, is_encrypted);
        let browser = known.or_else(Key::random).ok_or_else(Failed::no_randomness)?;
        let location = HeaderValue::from_str(&login.url);
        let location = location.map_err(|_| away(rules, "its authorization endpoint is no URL"))?;
        let cookie =
            cookie::set_login(headers, is_encrypted, &browser, LASTS).ok_or_else(Failed::no_randomness)?;
        self.keep(Begun { login, rules: rules.clone(), browser, address, since: Instant::now() });
        let no_store = HeaderValue::from_static("no-store");
        let head = [(LOCATION, location), (SET_COOKIE, cookie), (CACHE_CONTROL, no_store)];
        Ok((StatusCode::SEE_OTHER, head).into_response())
    }

    /// Who came back with this query, and the settings of the provider that says so.
    pub(super) async fn finish(
        &self,
        now: Option<&Arc<AdminOidc>>,
        world: &World,
        query: &HashMap<String, String>,
        browser: Option<Key>,
    ) -> Result<(Caller, Arc<AdminOidc>), Failed> {
        let unknown = |detail: &str| Failed(StatusCode::UNAUTHORIZED, "login_unknown", detail.to_owned());
        let text = |name: &str| query.get(name).map(String::as_str);
        let begun = self.take(text("state").unwrap_or_default(), browser.as_ref());
        let Begun { login, rules, .. } = begun.ok_or_else(|| {
            unknown("This login was not begun in this browser, took too long, or has ended")
        })?;
        if now != Some(&rules) {
            return Err(unknown("The provider's settings have changed meanwhile; log in again"));
        }
        let answer = LoginAnswer { code: text("code"), issuer: text("iss") };
        let claims = self.client(&rules, world)?.finish(&login, answer).await;
        let claims = claims.map_err(|failure| failed(&rules, failure))?;
        let name = name_of(&rules, &claims);
        match rights_of(&rules, &claims) {
            Some((role, grants)) => {
                let name = name.into();
                Ok((Caller { name, role, source: "console", is_person: true, grants }, rules))
            }
            None => {
                tracing::info!(%name, provider = %rules.issuer, "a user without a role tried to log in to the console");
                let detail =
                    format!("{name} is in no group that has a role here; see gateway.admin_oidc.roles");
                Err(Failed(StatusCode::FORBIDDEN, "no_role", detail))
            }
        }
    }
}

/// What a browser gets that has come back, with this cookie of its session.
pub(super) fn landed(cookie: HeaderValue) -> Response {
    // A redirect would be the end of a way that began at the provider's, on which browsers send no strict cookies.
    let head = [
        (REFRESH, HeaderValue::from_static("0;url=/console/")),
        (SET_COOKIE, cookie),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
    ];
    (StatusCode::OK, head, "").into_response()
}

/// Where the provider sends the browser back.
fn redirect_uri(rules: &AdminOidc, headers: &HeaderMap, is_encrypted: bool) -> Result<String, Failed> {
    if let Some(uri) = &rules.redirect_uri {
        return Ok(uri.to_string());
    }
    let scheme = if is_encrypted { "https" } else { "http" };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.ok_or_else(|| {
        Failed(StatusCode::BAD_REQUEST, "bad_request", "The request names no host".to_owned())
    })?;
    Ok(format!("{scheme}://{host}{CALLBACK}"))
}

/// Returns the user's name followed by the provider's host. No user of the database has such a name.
fn name_of(rules: &AdminOidc, claims: &Map<String, Value>) -> String {
    let first = |claim: &str| claim_texts(claims, claim).first().map(|text| (*text).to_owned());
    let named = first(&rules.name_claim).filter(|name| !name.trim().is_empty()).or_else(|| first("sub"));
    let name: String = named.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    let issuer = rules.issuer.split_once("://").map_or(&*rules.issuer, |(_, rest)| rest);
    let host = issuer.split('/').next().unwrap_or(issuer);
    format!("{name} ({host})")
}

/// The highest role of the user's groups.
fn role_of(rules: &AdminOidc, claims: &Map<String, Value>) -> Option<Role> {
    let groups = claim_texts(claims, &rules.groups_claim);
    let roles = [(Role::Admin, &rules.admin), (Role::Write, &rules.write), (Role::Read, &rules.read)];
    let has =
        |list: &[Box<str>]| list.iter().any(|group| **group == *EVERYBODY || groups.contains(&&**group));
    roles.into_iter().find(|(_, list)| has(list)).map(|(role, _)| role)
}

/// The user's role, and the grants that it is limited to. Rights add up: a role for everything is not limited by grants.
fn rights_of(rules: &AdminOidc, claims: &Map<String, Value>) -> Option<(Role, Option<Arc<Grants>>)> {
    let role = role_of(rules, claims);
    let groups = claim_texts(claims, &rules.groups_claim);
    let is_member =
        |list: &[Box<str>]| list.iter().any(|group| **group == *EVERYBODY || groups.contains(&&**group));
    let of_user = rules.grants.iter().filter(|grant| is_member(&grant.groups));
    let mut granted: Vec<Value> = of_user.map(|grant| grant.grant.clone()).collect();
    if granted.is_empty() || role.is_some_and(|role| role > Role::Read) {
        return role.map(|role| (role, None));
    }
    let writes = granted.iter().any(|grant| grant["role"] == Role::Write.as_str());
    if role.is_some() {
        granted.push(json!({ "objects": ["*"], "role": "read" }));
    }
    let role = if writes { Role::Write } else { Role::Read };
    // The settings were checked; should they be refused here all the same, they cover nothing.
    let grants = Grants::of(Value::Array(granted), role).unwrap_or_else(|bad| {
        tracing::error!(%bad, "the grants of gateway.admin_oidc can't be used");
        Grants::nothing()
    });
    Some((role, Some(Arc::new(grants))))
}

fn failed(rules: &AdminOidc, failure: LoginFailure) -> Failed {
    match failure {
        LoginFailure::Refused(why) => {
            Failed(StatusCode::UNAUTHORIZED, "login_refused", format!("Log in again: {why}"))
        }
        LoginFailure::Unavailable(why) => away(rules, &why),
    }
}

fn away(rules: &AdminOidc, why: &str) -> Failed {
    tracing::warn!(provider = %rules.issuer, %why, "the OpenID provider of gateway.admin_oidc gives no answer");
    let detail = "The OpenID provider gives no answer; the gateway's log says why";
    Failed(StatusCode::BAD_GATEWAY, "provider_away", detail.to_owned())
}

impl Failed {
    pub(super) fn no_randomness() -> Self {
        let detail = "The session could not begin: the system has no random numbers";
        Self(StatusCode::SERVICE_UNAVAILABLE, "no_randomness", detail.to_owned())
    }

    /// What the audit says.
    pub(super) fn problem(&self) -> Response {
        problem(self.0, self.1, &self.2)
    }

    /// Leads the browser to the login page, which tells what the code means.
    pub(super) fn to_login_page(&self) -> Response {
        let location = HeaderValue::from_str(&format!("/console/#/now?login={}", self.1));
        let location = location.unwrap_or_else(|_| HeaderValue::from_static("/console/"));
        let head = [(LOCATION, location), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
        (StatusCode::SEE_OTHER, head).into_response()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use gateway_core::config::model::ProviderGrant;

    use super::*;

    fn rules() -> AdminOidc {
        let list = |groups: &[&str]| groups.iter().map(|group| Box::from(*group)).collect();
        AdminOidc {
            issuer: "https://idp.test:8443/realms/a".into(),
            discovery_url: None,
            ca_path: None,
            client_id: "console".into(),
            client_secret: None,
            scopes: Box::default(),
            redirect_uri: None,
            label: "Log in".into(),
            name_claim: "preferred_username".into(),
            groups_claim: "realm.groups".into(),
            admin: list(&["platform"]),
            write: list(&["developers", "operators"]),
            read: list(&["*"]),
            grants: Box::default(),
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_user_has_the_highest_role_of_his_groups() {
        let everybody = rules();
        let members = AdminOidc { read: Box::default(), ..rules() };
        for (groups, with_everybody, without) in [
            (json!(["x", "platform", "developers"]), Some(Role::Admin), Some(Role::Admin)),
            (json!(["operators"]), Some(Role::Write), Some(Role::Write)),
            (json!("developers"), Some(Role::Write), Some(Role::Write)),
            (json!("developers platform"), Some(Role::Read), None),
            (json!(["Platform"]), Some(Role::Read), None),
            // The group of everybody is a rule, and nobody's group.
            (json!(["*"]), Some(Role::Read), None),
            (json!([1, { "a": "platform" }]), Some(Role::Read), None),
            (json!(null), Some(Role::Read), None),
        ] {
            let claims = json!({ "realm": { "groups": groups } });
            let claims = claims.as_object().unwrap();
            assert_eq!(role_of(&everybody, claims), with_everybody, "{claims:?}");
            assert_eq!(role_of(&members, claims), without, "{claims:?}");
        }
    }

    #[test]
    fn grants_of_groups_add_up_and_limit_no_role_for_everything() {
        let grant = |group: &str, objects: &str, role: &str| ProviderGrant {
            groups: [group.into()].into(),
            grant: json!({ "objects": [objects], "role": role, "hosts": ["*"] }),
        };
        let rules = AdminOidc {
            grants: [
                grant("team-a", "a-*", "write"),
                grant("team-b", "b-*", "write"),
                grant("audit", "*", "read"),
            ]
            .into(),
            read: Box::default(),
            ..rules()
        };
        let readers = AdminOidc { read: ["staff".into()].into(), ..rules.clone() };
        let of = |rules: &AdminOidc, groups: Value| {
            let claims = json!({ "realm": { "groups": groups } });
            rights_of(rules, claims.as_object().unwrap())
        };
        assert_eq!(of(&rules, json!(["x"])), None);
        for (groups, role) in
            [(json!(["platform", "team-a"]), Role::Admin), (json!(["operators", "team-a"]), Role::Write)]
        {
            assert_eq!(of(&rules, groups), Some((role, None)));
        }
        // (groups, role, may see a-x, may change a-x, may see b-x, may change b-x)
        for (rules, groups, role, seen) in [
            (&rules, json!(["team-a"]), Role::Write, [true, true, false, false]),
            (&rules, json!(["team-a", "team-b"]), Role::Write, [true, true, true, true]),
            (&rules, json!(["team-b", "audit"]), Role::Write, [true, false, true, true]),
            (&rules, json!(["audit"]), Role::Read, [true, false, true, false]),
            (&readers, json!(["staff", "team-a"]), Role::Write, [true, true, true, false]),
        ] {
            let (found, grants) = of(rules, groups.clone()).unwrap();
            let grants = grants.unwrap();
            let may = |id| [grants.may_see(id), found == Role::Write && grants.may_change(id)];
            assert_eq!((found, [may("a-x"), may("b-x")].concat()), (role, seen.to_vec()), "{groups}");
        }
        assert_eq!(of(&readers, json!(["staff"])), Some((Role::Read, None)));
    }

    /// What the settings accept are grants, and what they refuse are none.
    #[test]
    fn settings_refuse_what_the_grants_of_users_refuse() {
        for (written, is_good) in [
            (json!({ "objects": ["a-*"] }), true),
            (json!({ "objects": ["a-*"], "role": "read", "protocols": ["tcp", "udp"] }), true),
            (
                json!({ "objects": ["a"], "hosts": ["a.example", "*.a.example", "*"], "paths": ["/a/b"] }),
                true,
            ),
            (json!({ "objects": ["a"], "ports": ["5432", "10000-10099"] }), true),
            (json!({ "workspace": "team-a" }), true),
            (json!({ "workspace": "team-a", "role": "read" }), true),
            (json!({ "workspace": "team-a", "objects": ["a"] }), false),
            (json!({ "workspace": "team-a", "protocols": ["tcp"] }), false),
            (json!({ "workspace": "team-a", "role": "admin" }), false),
            (json!({ "workspace": "" }), false),
            (json!({ "objects": [] }), false),
            (json!({ "objects": ["a"], "role": "admin" }), false),
            (json!({ "objects": ["a"], "hosts": ["A.example"] }), false),
            (json!({ "objects": ["a"], "hosts": ["a.*"] }), false),
            (json!({ "objects": ["a"], "paths": ["a"] }), false),
            (json!({ "objects": ["a"], "paths": ["/%61"] }), false),
            (json!({ "objects": ["a"], "ports": ["0"] }), false),
            (json!({ "objects": ["a"], "ports": ["9-1"] }), false),
            (json!({ "objects": ["a"], "ports": ["x"] }), false),
        ] {
            assert_eq!(Grants::of(json!([written]), Role::Write).is_ok(), is_good, "{written}");
            let mut grant = written.clone();
            grant["groups"] = json!(["team-a"]);
            let provider = json!({ "issuer": "https://idp.test", "client_id": "c", "grants": [grant] });
            let text = json!({ "gateway": { "admin_oidc": provider }, "proxies": [] }).to_string();
            let read = crate::source::file::parse(&text, "t.json", &crate::plugins());
            assert_eq!(read.is_ok(), is_good, "{written}: {:?}", read.err());
        }
    }

    #[test]
    fn names_tell_the_provider_and_are_one_line() {
        for (claims, name) in [
            (json!({ "preferred_username": "ann", "sub": "1" }), "ann (idp.test:8443)"),
            (json!({ "preferred_username": " ", "sub": "1" }), "1 (idp.test:8443)"),
            (json!({ "sub": "a\nb\u{7f}" }), "ab (idp.test:8443)"),
        ] {
            assert_eq!(name_of(&rules(), claims.as_object().unwrap()), name);
        }
        let long = json!({ "sub": "ä".repeat(1000) });
        assert!(name_of(&rules(), long.as_object().unwrap()).chars().count() < MAX_NAME + 30);
    }
}
