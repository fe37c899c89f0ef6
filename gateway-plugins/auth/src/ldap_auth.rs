//! Recognises callers by user name and password (`Authorization: Basic`, RFC 7617), which an LDAP directory checks.
//!
//! A user binds under a name made of `bind_dn`, or is looked up first with `search`. The caller is the consumer of that name
//! where there is one, and has the groups that the directory says. Names and filters are escaped, and empty passwords are
//! refused without asking. Good passwords are remembered for `cache_ttl` by a keyed hash, never themselves. While the directory
//! is away, what is not remembered is answered with 503. What goes on for long, such as a WebSocket, does not end when the directory
//! removes its user: it is not asked again while it lasts.

mod directory;
mod settings;

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Authenticate, Claim, Family, Finding, Hooks, Need, Needs, Plugin, Seat, Starter, World,
};

use crate::credential::basic::{self, Answers, Given};
use crate::credential::checked::{Print, Secrets};
use crate::credential::{absent, is_current, now};
use directory::{Logins, NoAnswer, User};
use settings::Config;

/// The plugin.
pub(crate) struct LdapAuth {
    answers: Answers,
    logins: Arc<Logins>,
    anonymous: Option<String>,
    cache_ttl: u64,
    memory: Secrets<Arc<Identity>>,
    counts: Counts,
}

/// What became of passwords.
struct Counts {
    verified: Counter,
    cached: Counter,
    refused: Counter,
    busy: Counter,
    failed: Counter,
}

const PASSWORDS: Metric = Metric::counter(
    "ferrum_ldap_auth_passwords_total",
    "Passwords by result: verified, cached, refused, busy (too many logins waited), or failed (the directory gave no answer).",
);

impl Plugin for LdapAuth {
    const NAME: &'static str = "ldap_auth";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str = "Authenticates callers by username and password in an LDAP directory.";
    const EXAMPLE: &'static str = include_str!("../examples/ldap_auth.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("plaintext", Need::Begins(&["urls"], "ldap://")),
        Needs::new("cached_passwords", Need::On("cache_ttl")),
        Needs::new("cache_ttl", Need::On("cached_passwords")),
        Needs::new("plaintext", Need::Without("start_tls")),
    ];
    type Config = Config;

    fn build(mut config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let answers = Answers::new(&config.realm, config.hide_credentials, &mut problems);
        let directory = settings::read(&mut config, world, &mut problems);
        let (Some(directory), Some(answers)) = (directory, answers) else { return Err(problems) };
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |result| world.meters().counter(PASSWORDS, &["plugin_config", "result"], &[owner, result]);
        let size = if config.cache_ttl.0 == 0 { 0 } else { config.cached_passwords };
        Ok(Self {
            answers,
            logins: Arc::new(Logins::new(directory)),
            anonymous: config.anonymous,
            cache_ttl: config.cache_ttl.0,
            memory: Secrets::new(size),
            counts: Counts {
                verified: count("verified"),
                cached: count("cached"),
                refused: count("refused"),
                busy: count("busy"),
                failed: count("failed"),
            },
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.authenticate(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let logins = self.logins.clone();
        starter.task("logins", move |control| logins.clone().run(control));
    }
}

impl Authenticate for LdapAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let (user, password) = match basic::given(&exchange.request.headers) {
            Given::Nothing => return absent(self.anonymous.as_deref(), seat, self.answers.missing()),
            Given::Malformed => {
                self.counts.refused.add(1);
                return Claim::Refused(self.answers.malformed());
            }
            Given::Password(user, password) => (user, password),
        };
        let print = self.memory.print(&[user.as_bytes(), &password]);
        if let Some(identity) = self.memory.checked.get(&print, now()).filter(|it| is_current(it, seat)) {
            self.counts.cached.add(1);
            return Claim::Caller(self.answers.recognised(exchange, identity));
        }
        // Spaces at the ends do not count in a directory: one user would be several callers.
        let is_plain = user.trim() == user && !user.contains("  ");
        match String::from_utf8(password) {
            Ok(password) if is_plain && !password.is_empty() => {
                Claim::wait(self.check(exchange, seat, user, password, print))
            }
            _ => {
                self.counts.refused.add(1);
                Claim::Refused(self.answers.wrong())
            }
        }
    }

    fn hide(&self, exchange: &mut Exchange) {
        self.answers.take_out(exchange);
    }
}

impl LdapAuth {
    async fn check(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
        user: String,
        password: String,
        print: Print,
    ) -> Finding {
        let unavailable = |reason, detail| Finding::Refused(Answers::unavailable(reason, detail));
        match self.logins.ask(user, password).await {
            Ok(Some(user)) => {
                self.counts.verified.add(1);
                let identity = identity(user, seat);
                let until = now().saturating_add(self.cache_ttl);
                self.memory.checked.put(print, identity.clone(), until);
                Finding::Caller(self.answers.recognised(exchange, identity))
            }
            Ok(None) => {
                self.counts.refused.add(1);
                Finding::Refused(self.answers.wrong())
            }
            Err(NoAnswer::Busy) => {
                self.counts.busy.add(1);
                unavailable("ldap_busy", "too many passwords are being checked")
            }
            Err(why) => {
                self.counts.failed.add(1);
                tracing::warn!(%why, "the directory gives no answer");
                unavailable("ldap_failed", "passwords can't be checked now")
            }
        }
    }
}

/// The consumer of that name, or somebody the directory vouches for, with its groups.
fn identity(user: User, seat: Seat<'_>) -> Arc<Identity> {
    let known = seat.consumers().by_name(&user.name);
    let identity = known.map_or_else(|| Identity::external(user.name.as_str()), |it| Identity::clone(it));
    let groups = user.groups.into_iter().map(Arc::from).collect();
    Arc::new(Identity { groups, ..identity })
}

#[cfg(test)]
mod tests;
