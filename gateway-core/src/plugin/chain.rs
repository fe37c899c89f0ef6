//! A proxy's plugins, compiled: one slice for each hook, so that an absent hook is no call at all.

mod behind;
mod captures;
mod identify;
pub(super) mod order;
mod panics;
mod rare;
mod required_paths;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;

use super::entry::{Built, Registry};
use super::hooks::{Authenticate, DeclaredSubset, Hooks, OnRequest, OnResponse, Seated};
use super::seat::{Around, Attempt, AttemptEnd};
use super::step::{Decision, Gate, Passage, Refusal, Step, Wait};
use crate::config::capabilities::Capability;
use crate::config::model::{Id, Order, PluginConfig, Scope, Traffic};
use crate::config::problem::{Problem, Problems};
use crate::config::resolve::idle;
use crate::http::body::Body;
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};
use crate::limit::Meters;
use crate::proxy_state::Plugins;
use crate::record::{ExchangeRecord, SessionRecord};
use crate::stream::cut::{Cut, Stream};
use crate::stream::session::{Direction, Message, MessageKind, Session};
pub(crate) use panics::Panics;
use rare::RareSeats;
pub(crate) use verdict::{Panicked, guarded};
use verdict::{timed, verdict};

/// How long a hook may wait where the proxy has no total timeout.
pub const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The compiled chain of one proxy.
#[derive(Default)]
pub struct Chain {
    authenticate: Box<[Seated<dyn Authenticate>]>,
    on_request: Box<[Seated<dyn OnRequest>]>,
    on_response: Box<[Seated<dyn OnResponse>]>,
    rare: Option<Box<RareSeats>>,
    members: Box<[Member]>,
}

/// A built plugin and the config it was built from.
pub type Member = (Arc<PluginConfig>, Arc<dyn Built>);

/// How far a request came; a refusal unwinds through the response seats up to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached(u16);

impl Reached {
    /// No plugin has seen the request.
    pub const NONE: Self = Self(0);
    /// Every plugin has.
    pub const ALL: Self = Self(u16::MAX);

    /// The place of the plugin that saw the request last; 0 where none did.
    pub(crate) fn place(self) -> u16 {
        self.0
    }
}

impl Seated<dyn OnResponse> {
    /// Whether it sees the answer to a request that came so far.
    #[inline]
    fn sees_answer(&self, reached: Reached) -> bool {
        Reached(self.place) <= reached || self.has(Capability::AttendsEveryReply)
    }
}

impl Chain {
    /// Freezes built plugins into a chain, ordered by the registry's table and each config's own wish.
    ///
    /// # Errors
    /// A plugin that can do nothing for this kind of traffic, or `before` and `after` that form a cycle: a plugin is
    /// never configured and left out.
    pub fn build(registry: &Registry, plugins: &[Member], traffic: &Traffic) -> Result<Self, Problems> {
        if plugins.is_empty() {
            return Ok(Self::default());
        }
        let mut hooks = Hooks::default();
        let mut problems = Problems::default();
        let members = order::ordered(registry, plugins)?;
        for (place, (config, plugin)) in members.iter().enumerate() {
            // Places start at 1: 0 is before every plugin.
            hooks.place = u16::try_from(place + 1).unwrap_or(u16::MAX - 1);
            hooks.when.clone_from(&config.when);
            hooks.capabilities = plugin.capabilities();
            plugin.attend(&mut hooks);
            if plugin.guards() || config.scope != Scope::Global {
                problems.0.extend(idle(config, plugin.hooks(), plugin.capabilities(), traffic));
            }
        }
        problems.0.extend(too_early(&hooks, &members));
        problems.0.extend(captures::unknown(&hooks, &members, traffic));
        problems.0.extend(order::bypassed(registry, &members));
        problems.0.extend(required_paths::unreachable(&hooks, &members, traffic));
        // Responses go back the way requests came.
        hooks.on_response.reverse();
        hooks.inspect_first();
        problems.into_result(Self {
            authenticate: std::mem::take(&mut hooks.authenticate).into(),
            on_request: std::mem::take(&mut hooks.on_request).into(),
            on_response: std::mem::take(&mut hooks.on_response).into(),
            rare: RareSeats::of(hooks),
            members: members.into(),
        })
    }

    /// The plugins' names in execution order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.members.iter().map(|(config, _)| &config.plugin_name)
    }

    /// The plugins with their configs, in execution order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.iter()
    }

    /// Plugin configs that were moved in front of a plugin that guards, and answer requests before it has looked at them; with the
    /// name of that plugin.
    pub(crate) fn answers_before_guards(&self) -> impl Iterator<Item = (&PluginConfig, &Arc<str>)> {
        let is_moved = |config: &PluginConfig| matches!(config.order.as_deref(), Some(Order::Before(_)));
        let answers = |plugin: &dyn Built| plugin.capabilities().has(Capability::AnswersAnybody);
        self.members.iter().enumerate().filter(move |(_, (_, plugin))| answers(&**plugin)).filter_map(
            move |(n, (config, _))| {
                let mut behind = self.members.iter().skip(n + 1);
                let (guard, _) = behind.find(|(_, plugin)| plugin.guards())?;
                is_moved(config).then_some((&**config, &guard.plugin_name))
            },
        )
    }

    /// The plugin built from the config with this id.
    pub fn member(&self, id: &Id) -> Option<&Member> {
        self.members.iter().find(|(config, _)| config.id == *id)
    }

    /// The upstreams that plugins of this chain may choose.
    pub fn chooses(&self) -> &[Arc<str>] {
        self.rare(|rare| &rare.chooses)
    }

    /// The subsets that plugins of this chain may choose.
    pub(crate) fn subsets(&self) -> &[DeclaredSubset] {
        self.rare(|rare| &rare.subsets)
    }

    /// What is known of its plugins, for those who don't run them. Their secrets are told once.
    pub(crate) fn known(&mut self) -> Plugins {
        Plugins {
            configs: self.members.iter().map(|(config, _)| config.clone()).collect(),
            credentials: self.rare.as_mut().and_then(|rare| rare.credentials.take()),
        }
    }

    /// Whether any plugin identifies callers.
    pub fn authenticates(&self) -> bool {
        !self.authenticate.is_empty()
    }

    /// Identifies the caller and runs the request hooks; stops at the first refusal.
    ///
    /// # Errors
    /// The refusal; `reached` says how far the request came in either case.
    pub(crate) async fn request(
        &self,
        exchange: &mut Exchange,
        around: Around<'_>,
        reached: &mut Reached,
    ) -> Result<(), Box<Reply>> {
        // Seats before the first authenticating plugin see the request first, so that an id or CORS is there
        // when a credential is refused.
        let first_auth = self.authenticate.first().map_or(u16::MAX, |seat| seat.place);
        let split = self.on_request.partition_point(|seat| seat.place < first_auth);
        let (before, after) = self.on_request.split_at(split);
        walk(before, exchange, around, reached).await?;
        if !self.authenticate.is_empty() {
            self.identify(exchange, around, reached).await?;
        }
        walk(after, exchange, around, reached).await?;
        *reached = Reached::ALL;
        Ok(())
    }

    /// Whether any plugin attends to attempts.
    pub(crate) fn has_attempt_seats(&self) -> bool {
        !self.on_attempt().is_empty()
    }

    /// Shows an attempt to whoever attends.
    ///
    /// # Errors
    /// The first plugin's reply; nothing is sent then.
    pub(crate) async fn attempt(
        &self,
        exchange: &mut Exchange,
        attempt: Attempt<'_>,
        around: Around<'_>,
    ) -> Result<(), Box<Reply>> {
        for seat @ Seated { place, plugin, .. } in self.on_attempt() {
            if !seat.runs(exchange) {
                continue;
            }
            match plugin.on_attempt(exchange, attempt, around.seat(*place)) {
                Step::Next => {}
                step => {
                    let (waited, decided) = timed(step).await;
                    exchange.note_wait(*place, "attempt", waited);
                    decided?;
                }
            }
        }
        Ok(())
    }

    /// Tells whoever attends to attempts how one ended.
    pub(crate) fn attempted(
        &self,
        exchange: &mut Exchange,
        attempt: Attempt<'_>,
        end: AttemptEnd<'_>,
        around: Around<'_>,
    ) {
        for seat @ Seated { place, plugin, .. } in self.on_attempt() {
            if seat.runs(exchange) {
                plugin.after_attempt(exchange, attempt, end, around.seat(*place));
            }
        }
    }

    /// Whether any plugin attends to responses.
    pub(crate) fn has_response_seats(&self) -> bool {
        !self.on_response.is_empty()
    }

    /// Runs the response hooks of the plugins the request had reached, last first, until one has the target asked again. A reply takes the response's place,
    /// and passes the seats that saw the response before it: what they add to every response is on the reply as well.
    /// The second reply of one exchange ends that, so that two plugins can't replace each other's for ever.
    pub(crate) async fn response(
        &self,
        exchange: &mut Exchange,
        response: &mut Response<Body>,
        around: Around<'_>,
        reached: Reached,
        replaced: &mut Option<Cause>,
    ) {
        let mut replies = 0;
        let mut next = 0;
        while let Some(seat @ Seated { place, plugin, .. }) = self.on_response.get(next) {
            next += 1;
            if !seat.sees_answer(reached) || !seat.runs(exchange) {
                continue;
            }
            let decided = match plugin.on_response(exchange, response, around.seat(*place)) {
                Step::Next => Ok(()),
                step => {
                    let (waited, decided) = timed(step).await;
                    exchange.note_wait(*place, "response", waited);
                    decided
                }
            };
            if exchange.is_asked_again() {
                return;
            }
            let Err(reply) = decided else { continue };
            *replaced = Some(reply.cause);
            exchange.note_decider(*place);
            exchange.note_reply(&reply);
            *response = exchange.response_of(*reply);
            replies += 1;
            if replies == 1 {
                self.again(next - 1, exchange, response, around, reached).await;
            }
        }
    }

    /// Shows a reply to the seats that saw the response it replaces.
    async fn again(
        &self,
        until: usize,
        exchange: &mut Exchange,
        response: &mut Response<Body>,
        around: Around<'_>,
        reached: Reached,
    ) {
        for seat @ Seated { place, plugin, .. } in self.on_response.iter().take(until) {
            if seat.sees_answer(reached) && seat.runs(exchange) {
                // What it would answer itself has had its chance.
                drop(verdict(plugin.on_response(exchange, response, around.seat(*place))).await);
            }
        }
    }

    /// Decides which of the session's hooks run for an exchange that becomes one.
    pub(crate) fn decide_session(&self, exchange: &mut Exchange) {
        self.on_connect().iter().for_each(|seat| _ = seat.runs(exchange));
        self.on_message().iter().for_each(|seat| _ = seat.runs(exchange));
        self.on_close().iter().for_each(|seat| _ = seat.runs(exchange));
        self.on_transfer().iter().for_each(|seat| _ = seat.runs(exchange));
    }

    /// Asks whether a new session may go on.
    ///
    /// # Errors
    /// What the first plugin that refuses says.
    pub(crate) async fn connect(&self, session: &mut Session, around: Around<'_>) -> Result<(), Refusal> {
        for seat @ Seated { place, plugin, .. } in self.on_connect() {
            if !seat.attends(session) {
                continue;
            }
            match plugin.on_connect(session, around.seat(*place)) {
                Gate::Open => {}
                Gate::Refuse(refusal) => return Err(refusal),
                Gate::Wait(future) => tokio::time::timeout(PLUGIN_TIMEOUT, future)
                    .await
                    .unwrap_or(Err(Refusal { reason: "plugin_timeout", cause: Cause::PluginTimeout }))?,
            }
        }
        Ok(())
    }

    /// What becomes of a message of a session, asking the plugins from the one at `from` on; the first that does not
    /// forward it decides.
    pub(crate) fn message<'a>(
        &'a self,
        session: &'a Session,
        direction: Direction,
        kind: MessageKind,
        payload: &mut Bytes,
        around: Around<'a>,
        from: usize,
    ) -> Decided<'a> {
        for (n, seat @ Seated { place, plugin, .. }) in self.on_message().iter().enumerate().skip(from) {
            let is_seen = kind != MessageKind::Control || plugin.sees_control_frames();
            if !is_seen || !seat.attends(session) {
                continue;
            }
            let message = Message { direction, kind, payload };
            match plugin.on_message(session, message, around.seat(*place)) {
                Passage::Forward => {}
                Passage::Drop => return Decided::Drop,
                Passage::Answer(answers) => return Decided::Answer(answers),
                Passage::Close(code) => return Decided::Close(code),
                Passage::Wait(future) => return Decided::Wait(future, n + 1),
            }
        }
        Decided::Forward
    }

    /// Hands the record to whoever attends. A panic costs only the plugin that panicked its record.
    pub(crate) fn end(&self, record: &ExchangeRecord<'_>, around: Around<'_>) -> Panics {
        let mut panics = Panics(0);
        for seat @ Seated { place, plugin, .. } in self.on_end() {
            if seat.when.as_ref().is_some_and(|when| !record.exchange.decided(*place, when)) {
                continue;
            }
            panics.guard(|| plugin.on_end(record, around.seat(*place)));
        }
        panics
    }

    /// Hands a session's record to whoever attends.
    pub(crate) fn close(&self, record: &SessionRecord<'_>, around: Around<'_>) -> Panics {
        let mut panics = Panics(0);
        for seat @ Seated { place, plugin, .. } in self.on_close() {
            if !seat.attends(record.session) {
                continue;
            }
            panics.guard(|| plugin.on_close(record, around.seat(*place)));
        }
        panics
    }

    /// Whether any plugin attends to sessions.
    pub(crate) fn has_session_seats(&self) -> bool {
        !(self.on_connect().is_empty()
            && self.on_message().is_empty()
            && self.on_close().is_empty()
            && self.on_transfer().is_empty())
    }

    /// What a session's bytes count against, in chain order.
    pub(crate) fn meters(&self, session: &Session, around: Around<'_>) -> Meters {
        let mut meters = Meters::default();
        for seat @ Seated { place, plugin, .. } in self.on_transfer() {
            if seat.attends(session) {
                plugin.meters(session, around.seat(*place), &mut meters);
            }
        }
        meters
    }

    /// Whether any plugin sees the bytes of streams.
    pub(crate) fn has_byte_seats(&self) -> bool {
        !self.on_bytes().is_empty()
    }

    /// The client's end with the plugins in front of it that see bytes, the first in the chain next to the client.
    pub(crate) fn bytes<'a>(
        &'a self,
        client: Stream<'a>,
        session: &'a Session,
        cut: &'a Cut,
        around: Around<'a>,
    ) -> Stream<'a> {
        let seats = self.on_bytes().iter().filter(|seat| seat.attends(session));
        seats.fold(client, |client, Seated { place, plugin, .. }| {
            plugin.on_bytes(client, session, cut, around.seat(*place))
        })
    }

    /// Whether any plugin reads messages, so that bytes may not be relayed unopened.
    pub fn reads_messages(&self) -> bool {
        !self.on_message().is_empty()
    }
}

/// What was decided about a message.
pub(crate) enum Decided<'a> {
    Forward,
    Drop,
    Answer(Vec<(MessageKind, Bytes)>),
    Close(u16),
    /// Not decided yet; the plugins from this one on are still to be asked.
    Wait(Wait<'a, Decision>, usize),
}

async fn walk(
    seats: &[Seated<dyn OnRequest>],
    exchange: &mut Exchange,
    around: Around<'_>,
    reached: &mut Reached,
) -> Result<(), Box<Reply>> {
    for seat @ Seated { place, plugin, .. } in seats {
        if !seat.runs(exchange) {
            continue;
        }
        *reached = Reached(*place);
        match plugin.on_request(exchange, around.seat(*place)) {
            Step::Next => {}
            step => {
                let (waited, decided) = timed(step).await;
                exchange.note_wait(*place, "request", waited);
                decided?;
            }
        }
    }
    Ok(())
}

/// Plugins whose condition or settings ask who the caller is, before that is known: they would never run, never be needed, or
/// go by an empty name. Settings may be shared by proxies without authentication, where nothing else is to be expected.
fn too_early<'m>(hooks: &Hooks, members: &'m [Member]) -> impl Iterator<Item = Problem> + 'm {
    let last_auth = hooks.authenticate.last().map(|seat| usize::from(seat.place));
    // Request hooks between two plugins that identify callers run once both were asked.
    let first_auth = hooks.authenticate.first().map(|seat| seat.place);
    let settings: Vec<Problem> = hooks
        .asks
        .iter()
        .filter_map(|(place, setting)| {
            let (config, _) = members.get(usize::from(*place).checked_sub(1)?)?;
            let why = match first_auth {
                Some(first) if *place < first => "the plugin runs before the caller is known",
                None if matches!(config.scope, Scope::Proxy(_)) && setting.ends_with(".when") => {
                    "no plugin of this proxy identifies callers"
                }
                _ => return None,
            };
            let message = format!("this goes by who the caller is, and {why}");
            let problem = Problem::new(format!("plugin_configs.{}.{setting}", config.id), message);
            Some(problem.remedy(
                "give the plugin config an `after` with the name of the plugin that identifies callers",
            ))
        })
        .collect();
    let conditions = members.iter().enumerate().filter_map(move |(n, (config, _))| {
        let asks = config.when.as_ref().is_some_and(|when| when.asks_for_caller());
        if !asks || last_auth.is_some_and(|last| n + 1 > last) {
            return None;
        }
        let why = match last_auth {
            None => "no plugin of this proxy identifies callers",
            Some(_) => "the plugin runs before the caller is known",
        };
        let message = format!("`when` names consumers or groups, and {why}");
        Some(Problem::new(format!("plugin_configs.{}.when", config.id), message))
    });
    conditions.chain(settings)
}
