//! Recognises callers by user name and password (`Authorization: Basic`, RFC 7617).
//!
//! Users are consumers with `basic_auth` credentials (a `password`, or a `password_hash` by argon2id, bcrypt or apr1), and
//! the names in files as `htpasswd` writes them. A consumer with a credential of its own is not looked up in files; a
//! user of a file is the consumer of that name where there is one.
//!
//! Hashes are checked on threads of their own, so many at a time; with more waiting than may wait, the answer is 503. Good
//! passwords are remembered for a short while. The password of an unknown user is checked against another user's hash, so
//! that time does not tell who exists.

mod apr1;
mod checks;
mod credential;
mod password;
mod users;

use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::credential::CredentialType;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Authenticate, Claim, Family, Finding, Hooks, Need, Needs, Plugin, Seat, Starter, World,
};
use gateway_plugin_common::watched::Watched;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::credential::basic::{self, Answers, Given};
use crate::credential::{absent, now};
use checks::{Checks, Decoy, Memory};
use password::Stored;
use users::{FileStanding, InUse, MAX_FILE, Users};

/// Settings of `basic_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Realm that browsers show when they ask for the password. Default `ferrum-edge`.
    #[schemars(length(min = 1, max = 255))]
    realm: String,
    /// Files with more users, as `htpasswd -B` writes them: one `name:hash` per line, `#` begins a comment. Hashes are
    /// argon2id, bcrypt or apr1; the gateway rejects others. If a user is removed or gets another password, open
    /// WebSockets and other long exchanges of the user end. Default none.
    #[schemars(length(max = 100))]
    #[schemars(extend("format" = "path"))]
    htpasswd_files: Vec<PathBuf>,
    /// How often the gateway checks the files for changes. At least 1 s. Default 60 s.
    #[schemars(range(min = 1))]
    refresh: Seconds,
    /// Removes the `Authorization` header from the request, so that targets do not receive the password. Default true.
    hide_credentials: bool,
    /// Username of the consumer for requests without a password. A wrong password is still rejected. Default none: a
    /// password is required.
    anonymous: Option<String>,
    /// How long a verified password is cached, so that its hash is not computed again. A changed password takes effect
    /// at once. 0 disables the cache. Default 60 s.
    #[schemars(range(max = 86400))]
    cache_ttl: Seconds,
    /// Verified passwords that each worker caches. Default 1000.
    #[schemars(range(max = 1_000_000))]
    cached_passwords: u32,
    /// Hashes that are computed at the same time. Default half of the processor's cores, at least 1.
    #[schemars(range(min = 1, max = 1024))]
    max_concurrent_checks: Option<usize>,
    /// Verifications that wait; further requests get 503 with `Retry-After`. Default 100.
    #[schemars(range(max = 10_000))]
    max_waiting_checks: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            realm: "ferrum-edge".into(),
            htpasswd_files: Vec::new(),
            refresh: Seconds(60),
            hide_credentials: true,
            anonymous: None,
            cache_ttl: Seconds(60),
            cached_passwords: 1000,
            max_concurrent_checks: None,
            max_waiting_checks: 100,
        }
    }
}

/// The plugin.
pub(crate) struct BasicAuth {
    answers: Answers,
    users: Arc<Watched<Users>>,
    /// Those of the settings in use.
    in_use: Arc<InUse>,
    refresh: Seconds,
    anonymous: Option<String>,
    cache_ttl: u64,
    checks: Checks,
    memory: Arc<Memory>,
    decoy: Decoy,
    counts: Counts,
}

/// What became of passwords.
struct Counts {
    verified: Counter,
    cached: Counter,
    refused: Counter,
    busy: Counter,
}

const PASSWORDS: Metric = Metric::counter(
    "ferrum_basic_auth_passwords_total",
    "Passwords by result: verified, cached, refused, or busy (too many checks were waiting).",
);

impl Plugin for BasicAuth {
    const NAME: &'static str = "basic_auth";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str =
        "Authenticates callers by username and password (HTTP Basic authentication).";
    const CREDENTIAL: Option<&'static CredentialType> = Some(&credential::PASSWORD);
    const EXAMPLE: &'static str = include_str!("../examples/basic_auth.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("refresh", Need::Given(&["htpasswd_files"])),
        Needs::new("cached_passwords", Need::On("cache_ttl")),
        Needs::new("cache_ttl", Need::On("cached_passwords")),
    ];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let answers = Answers::new(&config.realm, config.hide_credentials, &mut problems);
        let Some(answers) = answers else { return Err(problems) };
        let users =
            Watched::new(world, "config.htpasswd_files", config.htpasswd_files, MAX_FILE, Users::add_lines)?;
        let decoy = Decoy::default();
        users.get().any().into_iter().for_each(|stored| decoy.learn(stored));
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let at_a_time = config.max_concurrent_checks.unwrap_or_else(|| (cores() / 2).max(1));
        let size = if config.cache_ttl.0 == 0 { 0 } else { config.cached_passwords };
        let count = |result| world.meters().counter(PASSWORDS, &["result"], &[result]);
        Ok(Self {
            answers,
            users: Arc::new(users),
            in_use: world.kept("users in use", InUse::default),
            refresh: config.refresh,
            anonymous: config.anonymous,
            cache_ttl: config.cache_ttl.0,
            checks: Checks::new(world, at_a_time, config.max_waiting_checks),
            memory: world.kept(&format!("checked {size}"), || Memory::new(size)),
            decoy,
            counts: Counts {
                verified: count("verified"),
                cached: count("cached"),
                refused: count("refused"),
                busy: count("busy"),
            },
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.authenticate(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        self.in_use.store(Some(self.users.clone()));
        if !self.users.is_empty() {
            let (users, every) = (self.users.clone(), self.refresh.duration());
            starter.task("refresh", move |control| users.clone().keep_fresh(every, control));
        }
    }
}

/// A user and the passwords of which one must be given.
type StoredUser = (Arc<Identity>, Arc<[Stored]>);

impl Authenticate for BasicAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let (user, password) = match basic::given(&exchange.request.headers) {
            Given::Nothing => return absent(self.anonymous.as_deref(), seat, self.answers.missing()),
            Given::Malformed => {
                self.counts.refused.add(1);
                return Claim::Refused(self.answers.malformed());
            }
            Given::Password(user, password) => (user, password),
        };
        let known = self.known(&user, seat);
        if let Some((identity, stored)) = &known {
            if stored.iter().any(|stored| !stored.is_slow() && stored.verify(&password)) {
                self.counts.verified.add(1);
                return Claim::Caller(self.answers.recognised(exchange, identity.clone()));
            }
            let print = checks::print(&self.memory, &user, stored, &password);
            if self.memory.checked.get(&print, now()).is_some() {
                self.counts.cached.add(1);
                return Claim::Caller(self.answers.recognised(exchange, identity.clone()));
            }
        }
        let decoy = self.decoy.get(seat.consumers());
        let slow = known.as_ref().is_some_and(|(_, stored)| stored.iter().any(Stored::is_slow));
        if !slow && decoy.is_none() {
            self.counts.refused.add(1);
            return Claim::Refused(self.answers.wrong());
        }
        Claim::wait(self.check(exchange, user, password, known, decoy))
    }

    fn hide(&self, exchange: &mut Exchange) {
        self.answers.take_out(exchange);
    }
}

impl BasicAuth {
    /// Checks a password against hashes.
    async fn check(
        &self,
        exchange: &mut Exchange,
        user: String,
        password: Vec<u8>,
        known: Option<StoredUser>,
        decoy: Option<Arc<Stored>>,
    ) -> Finding {
        let stored = known.as_ref().map(|(_, stored)| stored.clone()).unwrap_or_default();
        stored.iter().for_each(|stored| self.decoy.learn(stored));
        let (hashes, tried) = (stored.clone(), password.clone());
        let checked = self.checks.run(move || {
            let mut slow = hashes.iter().filter(|stored| stored.is_slow()).peekable();
            if slow.peek().is_none() {
                // For the time it takes: nobody is let in by it.
                std::hint::black_box(decoy.is_some_and(|decoy| decoy.verify(&tried)));
                return false;
            }
            slow.any(|stored| stored.verify(&tried))
        });
        match (checked.await, known) {
            (Ok(true), Some((identity, _))) => {
                self.counts.verified.add(1);
                let print = checks::print(&self.memory, &user, &stored, &password);
                self.memory.checked.put(print, (), now().saturating_add(self.cache_ttl));
                Finding::Caller(self.answers.recognised(exchange, identity))
            }
            (Ok(_), _) => {
                self.counts.refused.add(1);
                Finding::Refused(self.answers.wrong())
            }
            (Err(_), _) => {
                self.counts.busy.add(1);
                let detail = "too many passwords are being checked";
                Finding::Refused(Answers::unavailable("password_checks_busy", detail))
            }
        }
    }

    fn known(&self, user: &str, seat: Seat<'_>) -> Option<StoredUser> {
        let consumer = seat.consumers().by_name(user);
        let own: Vec<Stored> = consumer
            .and_then(|identity| identity.consumer.as_ref())
            .into_iter()
            .flat_map(|consumer| consumer.secrets(&credential::PASSWORD))
            .filter_map(|secret| stored(secret.expose()))
            .collect();
        if let Some(identity) = consumer.filter(|_| !own.is_empty()) {
            return Some((identity.clone(), own.into()));
        }
        let stored = self.users.get().get(user)?.clone();
        let identity = consumer.map_or_else(|| Identity::external(user), |it| Identity::clone(it));
        let (in_use, standing) = (self.in_use.clone(), stored.clone());
        let standing = FileStanding { user: user.into(), stored: standing, in_use };
        Some((Arc::new(Identity { standing: Some(Arc::new(standing)), ..identity }), stored))
    }
}

/// A consumer's credential; `None` for a hash that can't be checked, which is nobody's password.
fn stored(credential: &Value) -> Option<Stored> {
    let field = |name| credential.get(name).and_then(Value::as_str);
    match (field("password"), field("password_hash")) {
        (Some(password), None) => Some(Stored::plain(password)),
        (None, Some(hash)) => Stored::hash(hash).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
