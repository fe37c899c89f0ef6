//! Makes the plugin from its settings, and says everything that is wrong with them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::{Problem, Problems};
use gateway_core::plugin::World;
use gateway_plugin_common::headers;
use gateway_plugin_common::parse;
use http::Uri;

use super::cookies::Cookies;
use super::provider::Provider;
use super::seal::Seal;
use super::session::{Ended, Refreshes, SessionCache};
use super::settings::Config;
use super::{Counts, Oidc, Paths, SESSIONS};
use crate::assertion::KeySettings;
use crate::credential::grants::Grants;
use crate::credential::headers::ClaimHeaders;
use crate::jose::{Algorithm, Rules};
use crate::jwks_auth::source::{Pace, Source};
use crate::oauth::OauthClient;
use crate::turns::Turns;

/// Bytes a session secret must have.
const MIN_SECRET: usize = 32;
/// Calls to the token endpoint at a time, and that wait.
const CALLS: (usize, usize) = (100, 1000);
/// How often the provider's keys are fetched, where one fetch may take so long.
fn pace(timeout: Duration) -> Pace {
    Pace {
        refresh: Duration::from_secs(900),
        at_least: Duration::from_secs(10),
        at_first: Duration::from_secs(1),
        max_age: Duration::from_secs(86400),
        timeout,
        timeout_setting: "timeout",
    }
}

/// What is wrong on its own with a setting.
fn check(config: &Config) -> Problems {
    let mut problems = Problems::default();
    if config.issuer.is_empty() {
        problems.add("config.issuer", "`issuer` is missing");
    }
    for (option, secret) in [
        ("session_secret", Some(&config.session_secret)),
        ("previous_session_secret", config.previous_session_secret.as_ref()),
    ] {
        if secret.is_some_and(|secret| secret.len() < MIN_SECRET) {
            problems.add(format!("config.{option}"), "has fewer than 32 bytes").remedy =
                Some("use a long random text, such as of `openssl rand -base64 32`".into());
        }
    }
    let paths = [
        ("redirect_path", Some(&config.redirect_path)),
        ("logout_path", Some(&config.logout_path)),
        ("login_path", config.login_path.as_ref()),
        ("backchannel_logout_path", config.backchannel_logout_path.as_ref()),
        ("frontchannel_logout_path", config.frontchannel_logout_path.as_ref()),
    ];
    for (n, (option, path)) in paths.iter().enumerate() {
        let Some(path) = path else { continue };
        if !path.starts_with('/') || path.contains(['?', '#']) || path.parse::<Uri>().is_err() {
            problems.add(format!("config.{option}"), "is not a path that begins with `/`");
        }
        if paths.iter().take(n).any(|(_, earlier)| *earlier == Some(path)) {
            problems.add(format!("config.{option}"), "is another option's path");
        }
    }
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if config.cookie_name.is_empty() || !config.cookie_name.chars().all(is_token) {
        problems.add("config.cookie_name", "is not the name of a cookie");
    }
    let attributes =
        [("cookie_path", Some(&config.cookie_path)), ("cookie_domain", config.cookie_domain.as_ref())];
    for (option, text) in attributes {
        if text
            .is_some_and(|text| text.is_empty() || !text.bytes().all(|c| c.is_ascii_graphic() && c != b';'))
        {
            problems.add(format!("config.{option}"), "can't be in a cookie");
        }
    }
    problems.extend(outside_cookies(config));
    let of_host = config.cookie_name.starts_with("__Host-");
    if of_host && (config.cookie_domain.is_some() || config.cookie_path != "/") {
        problems
            .add("config.cookie_name", "browsers refuse a cookie of this name with these attributes")
            .remedy = Some("`__Host-` needs the path `/` and no domain".into());
    }
    let lands = config.redirect_uri.as_ref().and_then(|url| url.parse::<Uri>().ok());
    if lands.is_some_and(|url| url.path() != config.redirect_path) {
        problems.add("config.redirect_uri", "does not have the path of `redirect_path`, at which logins end");
    }
    if config.algorithms.is_empty() || config.algorithms.iter().any(|name| name.is_symmetric()) {
        problems.add("config.algorithms", "only algorithms with public keys can be used, and one must be");
    }
    problems
}

/// Paths at which cookies are needed and browsers send none.
fn outside_cookies(config: &Config) -> Vec<Problem> {
    if !config.cookie_path.starts_with('/') {
        return vec![Problem::new("config.cookie_path", "does not begin with `/`")];
    }
    let gets = |path: &str| {
        let rest = path.strip_prefix(&config.cookie_path);
        rest.is_some_and(|rest| config.cookie_path.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
    };
    let needed = [
        ("redirect_path", Some(&config.redirect_path)),
        ("logout_path", Some(&config.logout_path)),
        ("frontchannel_logout_path", config.frontchannel_logout_path.as_ref()),
    ];
    let lost = needed.into_iter().filter(|(_, path)| path.is_some_and(|path| !gets(path)));
    let message = "is not under `cookie_path`: browsers send no cookies there";
    lost.map(|(option, _)| Problem::new(format!("config.{option}"), message)).collect()
}

/// A URL that has to be a whole one.
fn check_url(option: &str, url: Option<&String>, problems: &mut Problems) {
    let is_whole = |url: &String| url.starts_with("https://") || url.starts_with("http://");
    if url.is_some_and(|url| !is_whole(url) || url.parse::<Uri>().is_err()) {
        problems.add(format!("config.{option}"), "is not a URL with `https://` or `http://`");
    }
}

/// Who the gateway is at the provider.
fn oauth(config: &Config) -> Result<OauthClient, Problems> {
    let key = KeySettings {
        private_key: config.client_private_key.clone(),
        key_id: config.client_key_id.clone(),
        audience: config.client_assertion_audience.clone(),
    };
    let (id, secret) = (config.client_id.clone(), config.client_secret.clone());
    OauthClient::read(id, secret, config.client_auth, key)
}

/// Where a provider is, and how long it may take.
pub(super) struct ProviderPlace<'a> {
    pub(super) issuer: &'a str,
    pub(super) discovery_url: Option<&'a str>,
    pub(super) ca_path: Option<PathBuf>,
    pub(super) timeout: Duration,
    /// Seconds by which clocks may differ.
    pub(super) leeway: u64,
}

/// The provider, of which nothing is asked yet. Problems are told at `at`.
pub(super) fn provider(
    place: ProviderPlace<'_>,
    algorithms: Vec<Algorithm>,
    oauth: OauthClient,
    world: &World,
    at: &str,
) -> Result<Provider, Problems> {
    let ProviderPlace { issuer, discovery_url, ca_path, timeout, leeway } = place;
    let base = issuer.trim_end_matches('/');
    let (url, option) = match discovery_url {
        Some(url) => (url.to_owned(), "discovery_url"),
        None => (format!("{base}/.well-known/openid-configuration"), "issuer"),
    };
    let source =
        Source::new(world, issuer, ca_path.clone(), &url, true, pace(timeout)).map_err(|mut all| {
            all.0.iter_mut().for_each(|problem| problem.path = format!("{at}.{option}"));
            all
        })?;
    Ok(Provider {
        source: Arc::new(source),
        world: world.clone(),
        ca_path,
        timeout,
        rules: Rules {
            issuers: vec![issuer.to_owned()],
            audiences: vec![oauth.id.clone()],
            claims: Vec::new(),
            leeway,
            requires_expiry: true,
        },
        oauth,
        algorithms,
        turns: Turns::new(CALLS.0, CALLS.1),
    })
}

fn place(config: &Config) -> ProviderPlace<'_> {
    ProviderPlace {
        issuer: &config.issuer,
        discovery_url: config.discovery_url.as_deref(),
        ca_path: config.ca_path.clone(),
        timeout: config.timeout.duration(),
        leeway: config.leeway.0,
    }
}

/// The scopes that are asked for, as one text.
pub(super) fn scopes(mut scopes: Vec<String>) -> String {
    if !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".into());
    }
    scopes.join(" ")
}

/// What plugin configs share that have the same sessions: one ends for all of them, and is refreshed once.
fn shared_state(config: &Config, client: &str, world: &World) -> (Arc<Ended>, Arc<Refreshes>) {
    let whose = format!("{} {} {client}", config.issuer.len(), config.issuer);
    let ended = world.shared(&format!("oidc ended {whose}"), Ended::default);
    ended.lasting(config.session_ttl.0);
    (ended, world.shared(&format!("oidc refreshes {whose}"), Refreshes::default))
}

/// Makes the plugin.
pub(super) fn build(config: Config, world: &World) -> Result<Oidc, Problems> {
    let mut problems = check(&config);
    check_url("redirect_uri", config.redirect_uri.as_ref(), &mut problems);
    check_url("post_logout_redirect_uri", config.post_logout_redirect_uri.as_ref(), &mut problems);
    let token_header = config.access_token_header.as_ref().and_then(|name| {
        let name = parse::header_name("config.access_token_header", name, &mut problems)?;
        if headers::is_framing(&name) {
            problems.add("config.access_token_header", "frames messages and can't be set");
        }
        Some(name)
    });
    let oauth = oauth(&config);
    let oauth = match oauth {
        Ok(oauth) if problems.is_empty() => oauth,
        other => {
            problems.extend(other.err().into_iter().flat_map(|more| more.0));
            return Err(problems);
        }
    };
    let secrets: Vec<String> =
        std::iter::once(&config.session_secret).chain(&config.previous_session_secret).cloned().collect();
    let no_key = || Problems::one("config.session_secret", "can't be made into a key");
    let seal = Seal::new(&secrets, &config.issuer, &oauth.id).ok_or_else(no_key)?;
    let (ended, refreshes) = shared_state(&config, &oauth.id, world);
    let provider = provider(place(&config), config.algorithms.clone(), oauth, world, "config")?;
    let scopes = scopes(config.scopes);
    let count = |event| world.meters().counter(SESSIONS, &["event"], &[event]);
    Ok(Oidc {
        provider: Arc::new(provider),
        issuer: config.issuer,
        scopes,
        redirect_uri: config.redirect_uri,
        paths: Paths {
            redirect: config.redirect_path,
            logout: config.logout_path,
            login: config.login_path,
            back_channel: config.backchannel_logout_path,
            front_channel: config.frontchannel_logout_path,
        },
        after_logout: config.post_logout_redirect_uri,
        session_ttl: config.session_ttl.0,
        refresh: config.refresh,
        seal,
        cookies: Cookies {
            name: config.cookie_name,
            path: config.cookie_path,
            domain: config.cookie_domain,
            same_site: config.cookie_same_site,
        },
        grants: Grants {
            scopes: (String::new(), Vec::new()),
            roles: (config.role_claim, config.required_roles),
            caller_claims: vec![config.consumer_claim],
            requires_consumer: config.require_consumer,
        },
        headers: ClaimHeaders::read(config.claims_to_headers, "config.claims_to_headers")?,
        token_header,
        anonymous: config.anonymous,
        known: SessionCache::default(),
        ended,
        refreshes,
        counts: Counts {
            logins: count("login"),
            logouts: count("logout"),
            refreshes: count("refresh"),
            refused: count("refused"),
            failed: count("failed"),
        },
    })
}
