//! A proxy's plugins, compiled: one slice a hook, so that an absent hook is no call at all.

use std::sync::Arc;

use http::Response;

use super::entry::{Attend, Registry};
use super::hooks::{Authenticate, Hooks, OnClose, OnConnect, OnEnd, OnMessage, OnRequest, OnResponse, Seat};
use super::step::{Finding, Verdict};
use crate::config::model::{AuthMode, Id, Order, PluginConfig};
use crate::consumer::Consumers;
use crate::http::body::Body;
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};
use crate::record::{ExchangeRecord, SessionRecord};
use crate::stream::session::{Gate, Message, Passage, Session};

/// The compiled chain of one proxy.
#[derive(Default)]
pub struct Chain {
    authenticate: Box<[Seat<dyn Authenticate>]>,
    on_request: Box<[Seat<dyn OnRequest>]>,
    on_response: Box<[Seat<dyn OnResponse>]>,
    on_end: Box<[Seat<dyn OnEnd>]>,
    on_connect: Box<[Seat<dyn OnConnect>]>,
    on_message: Box<[Seat<dyn OnMessage>]>,
    on_close: Box<[Seat<dyn OnClose>]>,
    members: Box<[Member]>,
}

/// A built plugin and the config it was built from.
pub type Member = (Arc<PluginConfig>, Arc<dyn Attend>);

/// How far a request came; a refusal unwinds through the response seats up to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached(u16);

impl Reached {
    /// No plugin has seen the request.
    pub const NONE: Self = Self(0);
    /// Every plugin has.
    pub const ALL: Self = Self(u16::MAX);
}

impl Chain {
    /// Freezes built plugins into a chain, ordered by the registry's table and each config's own wish.
    pub fn build(registry: &Registry, plugins: &[Member]) -> Self {
        if plugins.is_empty() {
            return Self::default();
        }
        let mut hooks = Hooks::default();
        let members = ordered(registry, plugins);
        for (place, (_, plugin)) in members.iter().enumerate() {
            // Places start at 1: 0 is before every plugin.
            hooks.place = u16::try_from(place + 1).unwrap_or(u16::MAX - 1);
            plugin.attend(&mut hooks);
        }
        // Responses go back the way requests came.
        hooks.on_response.reverse();
        Self {
            authenticate: hooks.authenticate.into(),
            on_request: hooks.on_request.into(),
            on_response: hooks.on_response.into(),
            on_end: hooks.on_end.into(),
            on_connect: hooks.on_connect.into(),
            on_message: hooks.on_message.into(),
            on_close: hooks.on_close.into(),
            members: members.into(),
        }
    }

    /// The plugins' names in execution order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.members.iter().map(|(config, _)| &config.plugin_name)
    }

    /// The plugins with their configs, in execution order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.iter()
    }

    /// The plugin built from the config with this id.
    pub fn member(&self, id: &Id) -> Option<&Member> {
        self.members.iter().find(|(config, _)| config.id == *id)
    }

    /// Finds out who calls and runs the request hooks; stops at the first refusal.
    ///
    /// # Errors
    /// The refusal; `reached` says how far the request came in either case.
    pub async fn request(
        &self,
        exchange: &mut Exchange,
        (consumers, mode): (&Consumers, AuthMode),
        reached: &mut Reached,
    ) -> Result<(), Box<Reply>> {
        // Seats before the first authenticating plugin see the request first, so that an id or CORS is there
        // when a credential is refused.
        let first_auth = self.authenticate.first().map_or(u16::MAX, |seat| seat.place);
        let split = self.on_request.partition_point(|seat| seat.place < first_auth);
        let (before, after) = self.on_request.split_at(split);
        walk(before, exchange, reached).await?;
        if !self.authenticate.is_empty() {
            self.identify(exchange, (consumers, mode), reached).await?;
        }
        walk(after, exchange, reached).await?;
        *reached = Reached::ALL;
        Ok(())
    }

    async fn identify(
        &self,
        exchange: &mut Exchange,
        (consumers, mode): (&Consumers, AuthMode),
        reached: &mut Reached,
    ) -> Result<(), Box<Reply>> {
        let mut refusal = None;
        for seat in &self.authenticate {
            *reached = Reached(seat.place);
            match seat.plugin.authenticate(exchange, consumers).finding().await {
                Finding::Caller(identity) => {
                    exchange.identity = Some(identity);
                    return Ok(());
                }
                Finding::Refused(reply) if mode == AuthMode::Single => return Err(reply),
                Finding::Refused(reply) => refusal = Some(reply),
                Finding::Absent => {}
            }
        }
        Err(refusal.unwrap_or_else(|| Box::new(Reply::new(Cause::Unauthenticated))))
    }

    /// Runs the response hooks of the plugins the request had reached, last first.
    pub async fn response(&self, exchange: &mut Exchange, response: &mut Response<Body>, reached: Reached) {
        for seat in &self.on_response {
            if Reached(seat.place) > reached {
                continue;
            }
            if let Verdict::Reply(reply) = seat.plugin.on_response(exchange, response).verdict().await {
                // Identity of headers earlier seats set is kept by running the rest on the replacement.
                *response = reply.into_response(exchange.dialect);
            }
        }
    }

    /// Asks whether a new session may go on.
    ///
    /// # Errors
    /// The word of the first plugin that refuses.
    pub async fn connect(&self, session: &mut Session) -> Result<(), &'static str> {
        for seat in &self.on_connect {
            match seat.plugin.on_connect(session) {
                Gate::Open => {}
                Gate::Refuse(reason) => return Err(reason),
                Gate::Wait(future) => future.await?,
            }
        }
        Ok(())
    }

    /// What becomes of a message of a session; the first plugin that does not forward it decides.
    pub fn message(&self, session: &Session, message: Message<'_>) -> Passage {
        let Message { direction, kind, payload } = message;
        for seat in &self.on_message {
            match seat.plugin.on_message(session, Message { direction, kind, payload }) {
                Passage::Forward => {}
                decided => return decided,
            }
        }
        Passage::Forward
    }

    /// Hands the record to whoever attends.
    pub fn end(&self, record: &ExchangeRecord<'_>) {
        for seat in &self.on_end {
            seat.plugin.on_end(record);
        }
    }

    /// Hands a session's record to whoever attends.
    pub fn close(&self, record: &SessionRecord<'_>) {
        for seat in &self.on_close {
            seat.plugin.on_close(record);
        }
    }

    /// Whether any plugin reads messages, so that bytes may not be relayed unopened.
    pub fn reads_messages(&self) -> bool {
        !self.on_message.is_empty()
    }
}

async fn walk(
    seats: &[Seat<dyn OnRequest>],
    exchange: &mut Exchange,
    reached: &mut Reached,
) -> Result<(), Box<Reply>> {
    for seat in seats {
        *reached = Reached(seat.place);
        if let Verdict::Reply(reply) = seat.plugin.on_request(exchange).verdict().await {
            return Err(reply);
        }
    }
    Ok(())
}

/// Table order first (stable, so that two of a name keep the file's order), then the `before`/`after` wishes.
fn ordered(registry: &Registry, plugins: &[Member]) -> Vec<Member> {
    let mut list: Vec<Member> = plugins.to_vec();
    list.sort_by_key(|(config, _)| registry.place(&config.plugin_name).unwrap_or(usize::MAX));
    for (config, plugin) in plugins {
        let Some(order) = &config.order else { continue };
        let Some(from) = list.iter().position(|(other, _)| Arc::ptr_eq(other, config)) else { continue };
        list.remove(from);
        let to = match &**order {
            Order::Before(name) => list.iter().position(|(other, _)| other.plugin_name == *name),
            Order::After(name) => {
                list.iter().rposition(|(other, _)| other.plugin_name == *name).map(|at| at + 1)
            }
        };
        list.insert(to.unwrap_or(from), (config.clone(), plugin.clone()));
    }
    list
}
