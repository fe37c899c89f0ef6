//! Who the caller is, by the authenticating plugins of a chain.

use std::sync::Arc;

use tokio::time::Instant;

use super::verdict::within;
use super::{Chain, Reached};
use crate::config::consumer::{Consumers, Identity, Standing};
use crate::config::model::AuthMode;
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};
use crate::plugin::hooks::Seated;
use crate::plugin::seat::Around;
use crate::plugin::step::{Claim, Finding};

impl Chain {
    /// Asks the authenticating plugins who the caller is.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn identify(
        &self,
        exchange: &mut Exchange,
        around: Around<'_>,
        reached: &mut Reached,
    ) -> Result<(), Box<Reply>> {
        self.serve_own_page(exchange, around, reached).await?;
        let identity = self.caller(exchange, around, reached).await?;
        for seat in self.own_pages() {
            if !seat.runs(exchange) {
                seat.plugin.pass_by(exchange);
            }
        }
        let Some(identity) = identity else { return Ok(()) };
        exchange.identity = Some(identity);
        // The plugin that recognised the caller has taken its own credential out. Those of the others are still there.
        if self.authenticate.len() > 1 {
            for seat in &self.authenticate {
                if seat.runs(exchange) {
                    seat.plugin.hide(exchange);
                }
            }
        }
        Ok(())
    }

    /// Has a plugin answer whose own page the request is for; of several the first whose condition holds, else the first.
    ///
    /// # Errors
    /// The answer.
    async fn serve_own_page(
        &self,
        exchange: &mut Exchange,
        around: Around<'_>,
        reached: &mut Reached,
    ) -> Result<(), Box<Reply>> {
        for must_run in [true, false] {
            for seat @ Seated { place, plugin, .. } in self.own_pages() {
                if seat.runs(exchange) != must_run {
                    continue;
                }
                let Some(page) = plugin.page(exchange, around.seat(*place)) else { continue };
                let began = Instant::now();
                let page = within(page).await;
                *reached = (*reached).max(Reached(*place));
                exchange.note_wait(*place, "authenticate", Some(began));
                return Err(page.unwrap_or_else(|timeout| timeout));
            }
        }
        Ok(())
    }

    /// The caller; `None` where no condition made any plugin ask.
    async fn caller(
        &self,
        exchange: &mut Exchange,
        around: Around<'_>,
        reached: &mut Reached,
    ) -> Result<Option<Arc<Identity>>, Box<Reply>> {
        let mode = around.state.proxy.auth_mode;
        let is_all = matches!(mode, AuthMode::All { .. });
        let mut refusal: Option<Box<Reply>> = None;
        let mut caller = None;
        let mut anonymous = None;
        let (mut asked, mut was_refused) = (false, false);
        for seat @ Seated { place, plugin, .. } in &self.authenticate {
            if !seat.runs(exchange) {
                continue;
            }
            *reached = Reached(*place);
            asked = true;
            let (waited, finding) = match plugin.authenticate(exchange, around.seat(*place)) {
                Claim::Absent(reply) => (None, Finding::Absent(reply)),
                Claim::Caller(identity) => (None, Finding::Caller(identity)),
                Claim::Anonymous(identity) => (None, Finding::Anonymous(identity)),
                Claim::Refused(reply) => (None, Finding::Refused(reply)),
                Claim::Wait(future) => {
                    (Some(Instant::now()), within(future).await.unwrap_or_else(Finding::Refused))
                }
            };
            exchange.note_wait(*place, "authenticate", waited);
            match finding {
                Finding::Answered(reply) => return Err(reply),
                Finding::Caller(identity) | Finding::Anonymous(identity) if is_all => {
                    caller = Some(together(caller, identity, mode)?);
                }
                Finding::Caller(identity) => return Ok(Some(identity)),
                Finding::Anonymous(identity) => _ = anonymous.get_or_insert(identity),
                Finding::Refused(reply) if mode != AuthMode::Multi => return Err(reply),
                Finding::Absent(reply) if is_all => {
                    return Err(reply.unwrap_or_else(|| Box::new(Reply::new(Cause::Unauthenticated))));
                }
                Finding::Refused(reply) => {
                    was_refused = true;
                    refusal = Some(joined(refusal, reply));
                }
                Finding::Absent(Some(reply)) => refusal = Some(joined(refusal, reply)),
                Finding::Absent(None) => {}
            }
        }
        if !asked {
            // No condition made any of them run: nobody is to be recognised.
            return Ok(None);
        }
        // Nobody is anonymous by a credential that is not good.
        if let Some(caller) = caller.or_else(|| anonymous.filter(|_| !was_refused)) {
            return Ok(Some(caller));
        }
        Err(refusal.unwrap_or_else(|| Box::new(Reply::new(Cause::Unauthenticated))))
    }
}

/// The last of several who have to be recognised, for as long as all of them may stay.
///
/// `same_caller` defaults to true: operators who want two factors of one caller and don't know the setting are safe, while those who want two
/// callers see the refusal, whose reason names what differs. The other default would admit ann's key with eve's password without a sign.
///
/// # Errors
/// A refusal where they have to be one caller and are not.
fn together(
    before: Option<Arc<Identity>>,
    last: Arc<Identity>,
    mode: AuthMode,
) -> Result<Arc<Identity>, Box<Reply>> {
    let Some(before) = before else { return Ok(last) };
    if mode == (AuthMode::All { same_caller: true }) && !before.is_same_caller(&last) {
        let reply = Reply::new(Cause::Forbidden).reason("callers_differ");
        return Err(Box::new(reply.detail("the credentials name different callers")));
    }
    let standing = Together { before, last: last.standing.clone() };
    Ok(Arc::new(Identity { standing: Some(Arc::new(standing)), ..Identity::clone(&last) }))
}

#[derive(Debug)]
struct Together {
    before: Arc<Identity>,
    last: Option<Arc<dyn Standing>>,
}

impl Standing for Together {
    fn holds(&self, consumers: &Consumers) -> bool {
        self.before.may_stay(consumers) && self.last.as_ref().is_none_or(|last| last.holds(consumers))
    }
}

/// A refusal with the challenges of the one before it: a client may meet any of them (RFC 9110 §11.6.1).
fn joined(before: Option<Box<Reply>>, mut reply: Box<Reply>) -> Box<Reply> {
    let challenge = http::header::WWW_AUTHENTICATE;
    for earlier in before.iter().flat_map(|before| before.headers.get_all(&challenge)) {
        if !reply.headers.get_all(&challenge).iter().any(|known| known == earlier) {
            reply.headers.append(&challenge, earlier.clone());
        }
    }
    reply
}
