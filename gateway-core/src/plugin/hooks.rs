//! The seven places a plugin may sit.

use std::sync::Arc;

use http::Response;

use super::step::{Claim, Step};
use crate::consumer::Consumers;
use crate::http::body::Body;
use crate::http::exchange::Exchange;
use crate::record::{ExchangeRecord, SessionRecord};
use crate::stream::session::{Gate, Message, Passage, Session};

/// Finds out who the caller is. Called once an exchange, before [`OnRequest`], until one plugin recognises the caller.
pub trait Authenticate: Send + Sync {
    /// Looks for this plugin's kind of credential, and for its owner among `consumers`.
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, consumers: &'a Consumers) -> Claim<'a>;
}

/// Sees a request before a target is picked. Called once an exchange, in chain order.
pub trait OnRequest: Send + Sync {
    /// May change the request, answer it, or wait. To see the body, collect it with a limit or wrap it.
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange) -> Step<'a>;
}

/// Sees a response's head before the client does, also a reply of the gateway's own. Called in reverse chain order,
/// only for plugins the request had reached.
pub trait OnResponse: Send + Sync {
    /// May change the response, wrap its body, or replace it by a reply.
    fn on_response<'a>(&'a self, exchange: &'a mut Exchange, response: &'a mut Response<Body>) -> Step<'a>;
}

/// Sees the record of every ended exchange. Must not wait: push to a bounded sink.
pub trait OnEnd: Send + Sync {
    /// Called exactly once an exchange of the proxy, however it ended.
    fn on_end(&self, record: &ExchangeRecord<'_>);
}

/// Sees a new session after its handshake, before a target is picked.
pub trait OnConnect: Send + Sync {
    /// May let it pass, refuse it, or wait.
    fn on_connect<'a>(&'a self, session: &'a mut Session) -> Gate<'a>;
}

/// Sees each WebSocket message (put together from its frames) or datagram. When nobody attends, bytes are relayed
/// unopened. Byte streams have no messages.
pub trait OnMessage: Send + Sync {
    /// May change, drop or refuse the message. Must not wait.
    fn on_message(&self, session: &Session, message: Message<'_>) -> Passage;
}

/// Sees the record of every ended session. Must not wait.
pub trait OnClose: Send + Sync {
    /// Called exactly once a session of the proxy, however it ended.
    fn on_close(&self, record: &SessionRecord<'_>);
}

/// A seat and its plugin's place in the chain; a refusal unwinds only through the places already reached.
pub(crate) struct Seat<T: ?Sized> {
    pub(crate) place: u16,
    pub(crate) plugin: Arc<T>,
}

/// Where plugins take their seats while a chain is built.
#[derive(Default)]
pub struct Hooks {
    pub(crate) place: u16,
    pub(crate) authenticate: Vec<Seat<dyn Authenticate>>,
    pub(crate) on_request: Vec<Seat<dyn OnRequest>>,
    pub(crate) on_response: Vec<Seat<dyn OnResponse>>,
    pub(crate) on_end: Vec<Seat<dyn OnEnd>>,
    pub(crate) on_connect: Vec<Seat<dyn OnConnect>>,
    pub(crate) on_message: Vec<Seat<dyn OnMessage>>,
    pub(crate) on_close: Vec<Seat<dyn OnClose>>,
}

impl Hooks {
    /// Takes a seat in [`Authenticate`].
    pub fn authenticate(&mut self, plugin: Arc<dyn Authenticate>) {
        self.authenticate.push(Seat { place: self.place, plugin });
    }

    /// Takes a seat in [`OnRequest`].
    pub fn on_request(&mut self, plugin: Arc<dyn OnRequest>) {
        self.on_request.push(Seat { place: self.place, plugin });
    }

    /// Takes a seat in [`OnResponse`].
    pub fn on_response(&mut self, plugin: Arc<dyn OnResponse>) {
        self.on_response.push(Seat { place: self.place, plugin });
    }

    /// Takes a seat in [`OnEnd`].
    pub fn on_end(&mut self, plugin: Arc<dyn OnEnd>) {
        self.on_end.push(Seat { place: self.place, plugin });
    }

    /// Takes a seat in [`OnConnect`].
    pub fn on_connect(&mut self, plugin: Arc<dyn OnConnect>) {
        self.on_connect.push(Seat { place: self.place, plugin });
    }

    /// Takes a seat in [`OnMessage`].
    pub fn on_message(&mut self, plugin: Arc<dyn OnMessage>) {
        self.on_message.push(Seat { place: self.place, plugin });
    }

    /// Takes a seat in [`OnClose`].
    pub fn on_close(&mut self, plugin: Arc<dyn OnClose>) {
        self.on_close.push(Seat { place: self.place, plugin });
    }
}
