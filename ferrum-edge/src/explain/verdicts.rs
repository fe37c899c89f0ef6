//! What the plugins of a running gateway would decide about a request: by their live counters, lists and rules. Nothing is counted or
//! changed; counters that gateways share are read.

use std::sync::Arc;

use gateway_core::condition::{Condition, Holds};
use gateway_core::config::model::AuthMode;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::Reply;
use gateway_core::plugin::chain::Member;
use gateway_core::plugin::{Foreseen, Foresight, Seat};
use gateway_core::snapshot::{Route, Snapshot};
use http::header::RETRY_AFTER;
use serde_json::{Value, json};

/// What a plugin says, in the order of the chain.
pub(super) struct Verdict {
    /// `passes`, `recognises`, `absent`, `refuses`, `would_refuse` or `unknown`.
    outcome: &'static str,
    why: String,
    caller: Option<Arc<str>>,
    reply: Option<Box<Reply>>,
}

impl Verdict {
    fn new(outcome: &'static str, why: impl Into<String>) -> Self {
        Self { outcome, why: why.into(), caller: None, reply: None }
    }

    fn of(foreseen: Foreseen) -> Self {
        match foreseen {
            Foreseen::Passes(why) => Self::new("passes", why),
            Foreseen::Caller(identity) => {
                let why = format!("the caller is `{}`", identity.name);
                Self { caller: Some(identity.name.clone()), ..Self::new("recognises", why) }
            }
            Foreseen::Refuses(reply, why) => Self { reply: Some(reply), ..Self::new("refuses", why) },
            Foreseen::Absent(reply) => {
                Self { reply: Some(reply), ..Self::new("absent", "the credential is missing") }
            }
            Foreseen::WouldRefuse(why) => Self::new("would_refuse", why),
            Foreseen::Unknown(why) => Self::new("unknown", why),
        }
    }

    /// Where the request ends here: status, reason and plugin config.
    fn refusal(&self, id: &str) -> Option<String> {
        (self.outcome == "refuses").then(|| self.answer_line(id))
    }

    fn answer_line(&self, id: &str) -> String {
        let (status, reason) =
            self.reply.as_deref().map_or((0, ""), |reply| (reply.http_status().as_u16(), reason(reply)));
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        format!("{status} {reason} by {id}{why}")
    }

    /// Shown with the plugin.
    pub(super) fn document(&self) -> Value {
        let header = |reply: &Reply| Some(reply.headers.get(RETRY_AFTER)?.to_str().ok()?.to_owned());
        json!({
            "outcome": self.outcome,
            "why": self.why,
            "caller": self.caller.as_deref(),
            "status": self.reply.as_ref().map(|reply| reply.http_status().as_u16()),
            "reason": self.reply.as_deref().map(reason),
            "retry_after": self.reply.as_deref().and_then(header),
        })
    }
}

fn reason(reply: &Reply) -> &'static str {
    reply.reason.unwrap_or_else(|| reply.cause.reason())
}

/// The verdicts of a chain.
#[derive(Default)]
pub(super) struct Verdicts {
    /// One for each plugin, in the order of the chain.
    pub(super) list: Vec<Option<Verdict>>,
    /// The refusal, as `429 rate_limited by ID: WHY`.
    pub(super) refusal: Option<String>,
}

/// The request as the plugins are asked about it.
pub(super) struct Request<'a> {
    pub(super) body: Option<&'a [u8]>,
    pub(super) body_bytes: u64,
    pub(super) caller: GivenCaller,
}

/// Who sends the request, as far as that is given and plugins need not tell.
#[derive(Debug)]
pub(super) enum GivenCaller {
    /// The question names nobody; the plugins identify the caller.
    Asked,
    Consumer(Arc<Identity>),
    /// The access record names a caller that is not a consumer, such as the subject of a token. Records keep no tokens.
    Unknown,
}

/// Goes through a chain.
struct Walk<'a> {
    snapshot: &'a Snapshot,
    route: &'a Route,
    exchange: &'a mut Exchange,
    request: &'a Request<'a>,
    is_caller_known: bool,
    /// What the first plugin that misses a credential would answer.
    absent: Option<String>,
}

impl Verdicts {
    /// Asks each plugin that would run, until one refuses. `exchange` gets the identity of the caller.
    pub(super) fn of(
        snapshot: &Snapshot,
        route: &Route,
        exchange: &mut Exchange,
        request: &Request<'_>,
    ) -> Self {
        let identifies = |member: &Member| member.1.hooks().authenticates();
        let last_auth = route.chain.members().collect::<Vec<_>>().iter().rposition(|it| identifies(it));
        let mut walk = Walk { snapshot, route, exchange, request, is_caller_known: true, absent: None };
        if matches!(request.caller, GivenCaller::Unknown) {
            walk.is_caller_known = false;
        }
        let mut verdicts = Self::default();
        for (n, member) in route.chain.members().enumerate() {
            let verdict = match (&verdicts.refusal, identifies(member)) {
                (Some(_), _) => None,
                (None, true) => walk.identify(n, member),
                (None, false) => walk.ask(n, member).map(Verdict::of),
            };
            if let Some(said) = verdict.as_ref().and_then(|verdict| verdict.refusal(member.0.id.as_str())) {
                verdicts.refusal = Some(said);
            }
            verdicts.list.push(verdict);
            if last_auth == Some(n) && verdicts.refusal.is_none() && walk.exchange.identity.is_none() {
                verdicts.refusal = walk.absent.take().filter(|_| walk.is_caller_known);
            }
        }
        verdicts
    }
}

impl Walk<'_> {
    /// What a plugin that identifies callers says.
    fn identify(&mut self, n: usize, member: &Member) -> Option<Verdict> {
        let is_given = match &self.request.caller {
            GivenCaller::Asked => false,
            GivenCaller::Consumer(identity) => {
                self.exchange.identity.get_or_insert_with(|| identity.clone());
                true
            }
            GivenCaller::Unknown => {
                return Some(Verdict::new("unknown", "the credentials of a recorded request are not kept"));
            }
        };
        let must_all = matches!(self.route.proxy.auth_mode, AuthMode::All { .. });
        if self.exchange.identity.is_some() && (!must_all || is_given) {
            return None;
        }
        let verdict = match self.ask(n, member)? {
            Foreseen::Caller(identity) => {
                self.exchange.identity = Some(identity.clone());
                Verdict::of(Foreseen::Caller(identity))
            }
            Foreseen::Absent(reply) if must_all => {
                Verdict::of(Foreseen::Refuses(reply, "the credential is missing".into()))
            }
            Foreseen::Absent(reply) => {
                let verdict =
                    Verdict { reply: Some(reply), ..Verdict::new("absent", "the credential is missing") };
                self.absent.get_or_insert_with(|| verdict.answer_line(member.0.id.as_str()));
                verdict
            }
            Foreseen::Refuses(reply, why) if self.route.proxy.auth_mode == AuthMode::Multi => {
                let verdict = Verdict { reply: Some(reply), ..Verdict::new("absent", why) };
                self.absent.get_or_insert_with(|| verdict.answer_line(member.0.id.as_str()));
                verdict
            }
            other => Verdict::of(other),
        };
        self.is_caller_known &= verdict.outcome != "unknown";
        Some(verdict)
    }

    /// What a plugin foresees; `None` where it does not run for the request, or foresees nothing.
    fn ask(&self, n: usize, (config, plugin): &Member) -> Option<Foreseen> {
        let is_of_caller = |when: &Condition| when.asks_for_caller() && !self.is_caller_known;
        match config.when.as_deref() {
            Some(when) if is_of_caller(when) => {
                return Some(Foreseen::Unknown("`when` depends on who the caller is".into()));
            }
            Some(when) if !when.holds(&*self.exchange) => return None,
            _ => {}
        }
        let foreseen = plugin.foresee(&Foresight {
            exchange: self.exchange,
            seat: Seat::unused(
                &self.route.state,
                &self.snapshot.consumers,
                u16::try_from(n + 1).unwrap_or(u16::MAX),
            ),
            body: self.request.body,
            body_bytes: self.request.body_bytes,
            is_caller_known: self.is_caller_known,
        });
        let identifies = plugin.hooks().authenticates();
        let unknown = || Foreseen::Unknown("credentials of this kind are not checked".into());
        foreseen.or_else(|| identifies.then(unknown))
    }
}
