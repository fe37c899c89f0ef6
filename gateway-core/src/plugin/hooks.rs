//! The places where a plugin can run, and what it is given there.

use std::sync::Arc;

use http::{HeaderName, Response};

use super::seat::{Attempt, AttemptEnd, Seat, SeatNumber};
use super::step::{Claim, Gate, Passage, Step, Wait};
use crate::balance::Subset;
use crate::config::capabilities::{Capabilities, Capability};
use crate::config::condition::Condition;
use crate::config::hook_set::HookSet;
use crate::config::template::Template;
use crate::http::body::Body;
use crate::http::exchange::Exchange;
use crate::http::reply::Reply;
use crate::limit::Meters;
use crate::proxy_state::CredentialPlaces;
use crate::record::{ExchangeRecord, SessionRecord};
use crate::stream::cut::{Cut, Stream};
use crate::stream::session::{Message, Session};

/// Identifies the caller. Called once an exchange, before [`OnRequest`], until one plugin recognises the caller.
pub trait Authenticate: Send + Sync {
    /// Looks for this plugin's kind of credential, and for its owner among [`Seat::consumers`].
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a>;

    /// Takes this plugin's kind of credential out of a request, where its settings say so. Called once a caller was
    /// recognised by a chain with several authenticating plugins: what another one was shown is not the target's either.
    fn hide(&self, exchange: &mut Exchange) {
        let _ = exchange;
    }
}

/// Answers requests of paths that are the plugin's own, such as the one at which a login ends. Called before any plugin is asked who the
/// caller is, and whatever the plugin config's `when` says: no other plugin and no target may get them.
pub trait OwnPages: Send + Sync {
    /// The answer, where the request is for one of these paths.
    fn page<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Option<Wait<'a, Box<Reply>>>;

    /// Takes what is the plugin's alone out of a request that `when` keeps it from seeing.
    fn pass_by(&self, exchange: &mut Exchange) {
        let _ = exchange;
    }
}

/// Sees a request before a target is picked. Called once an exchange, in chain order.
pub trait OnRequest: Send + Sync {
    /// May change the request, choose the upstream, answer, or wait. To see the body, collect it with a limit or wrap
    /// it.
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a>;
}

/// Sees each attempt to send the request, once its target is known. Called in chain order, before anything is sent.
pub trait OnAttempt: Send + Sync {
    /// May change the request's headers for this and later attempts, answer instead, or wait. The body is out of reach.
    fn on_attempt<'a>(&'a self, exchange: &'a mut Exchange, attempt: Attempt<'a>, seat: Seat<'a>)
    -> Step<'a>;

    /// Told how an attempt ended: with the head of a response, or without one. Not called for an attempt that is cut off
    /// by a timeout or by the client; [`OnEnd`] is. Must not wait.
    fn after_attempt(
        &self,
        exchange: &mut Exchange,
        attempt: Attempt<'_>,
        end: AttemptEnd<'_>,
        seat: Seat<'_>,
    ) {
        let _ = (exchange, attempt, end, seat);
    }
}

/// Sees a response's head before the client does, also a reply of the gateway's own
/// ([`Exchange::is_from_target`] tells them apart). Called in reverse chain order, only for plugins the request had
/// reached; those that [inspect](Capability::InspectsResponses) go before those that compress or keep responses.
pub trait OnResponse: Send + Sync {
    /// May change the response, wrap its body, or replace it by a reply. A reply passes the plugins that saw the
    /// replaced response once more, so that their headers are on it; such a plugin is called twice for one exchange.
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a>;
}

/// Sees the record of every ended exchange. Must not wait: push to a bounded sink.
pub trait OnEnd: Send + Sync {
    /// Called exactly once for each exchange of the proxy, however it ended.
    fn on_end(&self, record: &ExchangeRecord<'_>, seat: Seat<'_>);
}

/// Sees an exchange that no proxy's chain runs for: no proxy serves it, it was refused before that was looked at, or its
/// proxy is closed. Only for plugin configs of scope `global`; must not wait.
pub trait OnUnrouted: Send + Sync {
    /// Called at most once an exchange, before the gateway's reply is written; may add headers to it. The request may be
    /// malformed.
    fn on_unrouted(&self, exchange: &mut Exchange, reply: &mut Reply, place: SeatNumber);

    /// Called exactly once for each such exchange, with its record, also where the client went before there was a reply.
    fn on_unrouted_end(&self, record: &ExchangeRecord<'_>, place: SeatNumber) {
        let _ = (record, place);
    }
}

/// Sees a new session: a stream before a target is picked, a WebSocket before the client gets its 101.
pub trait OnConnect: Send + Sync {
    /// May let it pass, refuse it, or wait.
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a>;
}

/// Sees each WebSocket message (put together from its frames) or datagram. When no plugin takes this seat, bytes are
/// relayed unopened. Byte streams have no messages.
pub trait OnMessage: Send + Sync {
    /// May change, answer, drop or refuse the message, or wait before it decides. A datagram can't wait: one whose
    /// decision is not there at once is dropped.
    fn on_message<'a>(&'a self, session: &'a Session, message: Message<'_>, seat: Seat<'a>) -> Passage<'a>;

    /// Whether it also sees Ping and Pong frames, which are not messages but cost their reader as much. Default false.
    fn sees_control_frames(&self) -> bool {
        false
    }
}

/// Sees the bytes of a TCP or TLS stream, decrypted where the gateway ends TLS. When no plugin takes this seat, bytes pass by the
/// plugins, in the kernel where that is possible.
pub trait OnBytes: Send + Sync {
    /// Puts something in front of the client's end, once a target has taken the session: what the client sends is read from the
    /// result, what the target sends is written to it, and what may pass is its decision. It must hold back only a bounded number
    /// of bytes, flush what it still holds, and pass a shutdown on. To end the session it notes why in `cut`, and fails.
    fn on_bytes<'a>(
        &'a self,
        client: Stream<'a>,
        session: &'a Session,
        cut: &'a Cut,
        seat: Seat<'a>,
    ) -> Stream<'a>;
}

/// Says what a session's bytes count against. When no plugin takes this seat, nothing is counted.
pub trait OnTransfer: Send + Sync {
    /// Adds its meters. Called once a session was let in, and again while it runs when the configuration has changed: the session's
    /// `state` may then be another plugin's, and must not be used.
    fn meters(&self, session: &Session, seat: Seat<'_>, meters: &mut Meters);
}

/// Sees the record of every ended session. Must not wait.
pub trait OnClose: Send + Sync {
    /// Called exactly once for each session of the proxy, however it ended.
    fn on_close(&self, record: &SessionRecord<'_>, seat: Seat<'_>);
}

impl<T: ?Sized> Seated<T> {
    /// Whether its plugin declares this.
    #[inline]
    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.capabilities.has(capability)
    }

    /// Whether it runs for this exchange. Decided once, by the request as it is when the plugin's first hook comes.
    #[inline]
    pub(crate) fn runs(&self, exchange: &mut Exchange) -> bool {
        match &self.when {
            None => true,
            Some(when) => exchange.decide(self.place, when),
        }
    }

    /// Whether it runs for this session: as for the exchange that it began as.
    pub(crate) fn attends(&self, session: &Session) -> bool {
        self.when.is_none() || session.decided(self.place)
    }
}

/// A plugin in one of its seats. A refusal unwinds only through the places already reached.
pub(crate) struct Seated<T: ?Sized> {
    pub(crate) place: u16,
    /// Which requests it runs for; `None` is all.
    pub(crate) when: Option<Arc<Condition>>,
    pub(crate) plugin: Arc<T>,
    /// What the plugin declares of its hooks.
    pub(crate) capabilities: Capabilities,
}

/// A subset that a plugin may choose, and of which upstream; `None` is the proxy's own.
pub(crate) type DeclaredSubset = (Option<Arc<str>>, Arc<Subset>);

/// A header field of requests that only some plugins may set.
pub(crate) struct OwnedHeader {
    pub(crate) name: HeaderName,
    /// Their places, and which requests they run for; `None` is all.
    pub(crate) owners: Vec<(u16, Option<Arc<Condition>>)>,
}

impl OwnedHeader {
    /// Whether there are requests for which none of its owners runs.
    pub(crate) fn may_be_sent(&self) -> bool {
        self.owners.iter().all(|(_, when)| when.is_some())
    }

    /// Removes what the client sent, unless one of its owners runs for this request, and so has removed it and may have set its own.
    pub(crate) fn remove_unless_set(&self, exchange: &mut Exchange) {
        let mut owners = self.owners.iter();
        if !owners.any(|(place, when)| when.as_ref().is_none_or(|when| exchange.decide(*place, when))) {
            exchange.remove_header(&self.name);
        }
    }
}

/// Declares [`Hooks`]: one list of seats for each hook, a method that takes a seat, and what was taken.
macro_rules! hooks {
    ($($(#[doc = $doc:literal])+ $name:ident: $hook:ident, $flag:ident;)+) => {
        /// Where plugins take their seats while a chain is built.
        #[derive(Default)]
        pub struct Hooks {
            pub(crate) place: u16,
            pub(crate) when: Option<Arc<Condition>>,
            /// What the plugin that attends declares of its hooks.
            pub(crate) capabilities: Capabilities,
            pub(crate) chooses: Vec<Arc<str>>,
            pub(crate) subsets: Vec<DeclaredSubset>,
            pub(crate) credentials: CredentialPlaces,
            pub(crate) owned: Vec<OwnedHeader>,
            pub(crate) own_pages: Vec<Seated<dyn OwnPages>>,
            /// Paths at which a plugin has to be reached, and the settings that name them.
            pub(crate) needed_paths: Vec<(u16, &'static str, String)>,
            /// Who asks for the caller while the request is there, and where its settings say so.
            pub(crate) asks: Vec<(u16, String)>,
            /// The names of the route's path that templates go by, with the settings they stand in.
            pub(crate) captures: Vec<(u16, String, Box<str>)>,
            $(pub(crate) $name: Vec<Seated<dyn $hook>>,)+
        }

        impl Hooks {
            $(
                $(#[doc = $doc])+
                pub fn $name(&mut self, plugin: Arc<dyn $hook>) {
                    self.$name.push(self.seated(plugin));
                }
            )+

            /// The hooks in which there is a seat.
            pub(crate) fn hook_set(&self) -> HookSet {
                let mut taken = HookSet::default();
                $(
                    if !self.$name.is_empty() {
                        taken = taken.with(HookSet::$flag);
                    }
                )+
                taken
            }
        }
    };
}

hooks! {
    /// Takes a seat in [`Authenticate`].
    authenticate: Authenticate, AUTHENTICATE;
    /// Takes a seat in [`OnRequest`].
    on_request: OnRequest, ON_REQUEST;
    /// Takes a seat in [`OnAttempt`].
    on_attempt: OnAttempt, ON_ATTEMPT;
    /// Takes a seat in [`OnResponse`].
    on_response: OnResponse, ON_RESPONSE;
    /// Takes a seat in [`OnEnd`].
    on_end: OnEnd, ON_END;
    /// Takes a seat in [`OnConnect`].
    on_connect: OnConnect, ON_CONNECT;
    /// Takes a seat in [`OnMessage`].
    on_message: OnMessage, ON_MESSAGE;
    /// Takes a seat in [`OnClose`].
    on_close: OnClose, ON_CLOSE;
    /// Takes a seat in [`OnBytes`].
    on_bytes: OnBytes, ON_BYTES;
    /// Takes a seat in [`OnTransfer`].
    on_transfer: OnTransfer, ON_TRANSFER;
    /// Takes a seat in [`OnUnrouted`]; without effect where the plugin config is not of scope `global`.
    on_unrouted: OnUnrouted, ON_UNROUTED;
}

impl Hooks {
    /// Declares that this plugin may send requests to this upstream instead of the proxy's own
    /// ([`Exchange::upstream`]). An upstream that was not declared can't be chosen.
    pub fn may_choose(&mut self, upstream_id: impl Into<Arc<str>>) {
        self.chooses.push(upstream_id.into());
    }

    /// Declares that this plugin may send requests to this subset of an upstream's targets, or of the proxy's own
    /// ([`Exchange::choose_subset`]). One that no target belongs to is a configuration error.
    pub fn may_choose_subset(&mut self, upstream_id: Option<Arc<str>>, subset: Arc<Subset>) {
        self.subsets.push((upstream_id, subset));
    }

    /// A seat of the plugin that attends.
    fn seated<T: ?Sized>(&self, plugin: Arc<T>) -> Seated<T> {
        Seated { place: self.place, when: self.when.clone(), plugin, capabilities: self.capabilities }
    }

    /// Takes a seat in [`OwnPages`].
    pub fn own_pages(&mut self, plugin: Arc<dyn OwnPages>) {
        self.own_pages.push(self.seated(plugin));
    }

    /// Declares that requests for this path, which the setting names, have to reach the plugin. A proxy that can't match the path is
    /// refused where the plugin config is the proxy's own; one that several proxies share may be reached by another of them.
    pub fn needs_path(&mut self, setting: &'static str, path: &str) {
        self.needed_paths.push((self.place, setting, path.to_owned()));
    }

    /// Declares that the value of this query parameter is a credential: logs and traces don't show it.
    pub fn hides_query(&mut self, name: &str) {
        self.credentials.query.push(name.to_ascii_lowercase().into());
    }

    /// Declares that this header field carries a credential: who sends it gets an answer of their own, from caches and
    /// deduplication alike. The fields of [`crate::config::credential_names`] need not be declared.
    pub fn takes_credential_in_field(&mut self, name: &HeaderName) {
        self.credentials.fields.push(name.clone());
    }

    /// The same for a cookie.
    pub fn takes_credential_in_cookie(&mut self, name: &str) {
        self.credentials.cookies.push(name.into());
    }

    /// Declares that this plugin sets this header field of requests, in which targets read who calls. The plugin removes what clients
    /// send in it; from requests that `when` leaves the plugin out of, the pipeline removes it, unless another owner ran.
    pub fn owns_header(&mut self, name: &HeaderName) {
        let owner = (self.place, self.when.clone());
        match self.owned.iter_mut().find(|owned| owned.name == *name) {
            Some(owned) => owned.owners.push(owner),
            None => self.owned.push(OwnedHeader { name: name.clone(), owners: vec![owner] }),
        }
    }

    /// Declares that this setting, such as `config.scope`, goes by who the caller is, and is read by the request hook. A chain
    /// in which the plugin runs before the caller is known is refused.
    pub fn goes_by_caller(&mut self, setting: impl Into<String>) {
        self.asks.push((self.place, setting.into()));
    }

    /// The same, if a template that is rendered by the request hook has such a value in it.
    pub fn renders(&mut self, setting: &str, template: Option<&Template>) {
        if template.is_some_and(Template::asks_for_caller) {
            self.goes_by_caller(setting);
        }
        if let Some(template) = template {
            self.goes_by_captures(setting, template.captures());
        }
    }

    /// Declares that this setting goes by these names of the route's path. A proxy is refused whose paths have no such name,
    /// where the plugin config is not for every proxy.
    pub fn goes_by_captures<'t>(&mut self, setting: &str, names: impl IntoIterator<Item = &'t str>) {
        let place = self.place;
        self.captures.extend(names.into_iter().map(|name| (place, setting.to_owned(), name.into())));
    }

    /// Puts the hooks that inspect before those that take what was inspected, once they are in the order of responses.
    pub(crate) fn inspect_first(&mut self) {
        let takes = |seat: &Seated<dyn OnResponse>| seat.has(Capability::TakesInspectedResponses);
        let Some(first) = self.on_response.iter().position(takes) else { return };
        let behind = self.on_response.split_off(first);
        let inspects = |seat: &Seated<dyn OnResponse>| seat.has(Capability::InspectsResponses);
        let (inspecting, others): (Vec<_>, Vec<_>) = behind.into_iter().partition(inspects);
        self.on_response.extend(inspecting);
        self.on_response.extend(others);
    }
}
