//! HTTP/1.1 by hand on a raw link: a prepared request whose stamp and body are patched in place, and a parser that
//! looks only at what decides the framing.

use std::rc::Rc;

use bytes::Bytes;

use super::choice::Choice;
use super::fault::compare;
use super::link::Linker;
use super::{Driver, Fault, Lane, NewConnection, Pattern, Stamp, VerifiedAnswer};
use crate::plan::{Expect, ExpectBody, Method, Plan};

mod coded;
pub(crate) mod response;
mod template;
pub(crate) mod wire;

use coded::Coded;
use response::Head;
use template::Template;
use wire::Wire;

/// Opens HTTP/1.1 connections.
pub struct H1 {
    linker: Linker,
    shape: Rc<Choice<H1Plan>>,
}

/// What all requests of a plan have in common.
struct H1Plan {
    template: Template,
    pattern: Pattern,
    expect: Expect,
    content: Bytes,
    coded: Option<Coded>,
}

/// One keep-alive connection.
pub struct Connection {
    wire: Wire,
    shape: Rc<Choice<H1Plan>>,
    /// A request for each URL.
    requests: Vec<Vec<u8>>,
}

impl H1 {
    /// Prepares what all connections of a thread share.
    ///
    /// # Errors
    /// What makes every connection impossible, such as an unreadable root certificate.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        let stamped = plan.message.method == Method::Post && plan.message.body.is_none();
        let payload = if stamped { plan.message.payload } else { 0 };
        let shape = Choice::new(plan, |plan| {
            Ok(H1Plan {
                template: Template::new(plan, payload),
                pattern: Pattern::new(payload),
                expect: plan.expect,
                content: plan.content.clone(),
                coded: plan.coding.map(Coded::new),
            })
        })?;
        Ok(Self { linker: Linker::new(plan)?, shape: Rc::new(shape) })
    }
}

impl Driver for H1 {
    type Lane = Connection;

    async fn connect(&self) -> Result<NewConnection<Connection>, Fault> {
        let (link, negotiated) = self.linker.open().await?;
        let connection = Connection {
            wire: Wire::new(link),
            requests: self.shape.iter().map(|shape| shape.template.bytes().to_vec()).collect(),
            shape: Rc::clone(&self.shape),
        };
        Ok(NewConnection { lanes: vec![connection], negotiated })
    }
}

impl Lane for Connection {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        let place = self.shape.place(stamp);
        let (shape, request) = (self.shape.at(place), &mut self.requests[place]);
        shape.template.patch(request, stamp, &shape.pattern);
        let (head, body) = self.wire.exchange(request).await?;
        shape.verify(&head, stamp, self.wire.body(body), request)
    }
}

impl H1Plan {
    fn verify(&self, head: &Head, stamp: Stamp, got: &[u8], request: &[u8]) -> Result<VerifiedAnswer, Fault> {
        let expect = self.expect;
        if expect.refused == Some(head.status) {
            let stamped = head.stamp.is_none_or(|echoed| echoed == stamp);
            return Ok(VerifiedAnswer { status: head.status, body: got.len(), stamped, last: head.last });
        }
        if head.status != expect.status {
            return Err(Fault::Status { got: head.status, expected: expect.status });
        }
        let mut stamped = head.stamp.is_some();
        if let Some(echoed) = head.stamp
            && echoed != stamp
        {
            return Err(Fault::Swapped { got: echoed, expected: stamp });
        }
        match expect.body {
            ExpectBody::Echo => {
                match self.template.fixed_body(request) {
                    Some(body) => compare(got, body)?,
                    None => self.pattern.check(stamp, got)?,
                }
                stamped = true;
            }
            ExpectBody::Content(_) => match &self.coded {
                Some(coded) => coded.compare(got, &self.content)?,
                None => compare(got, &self.content)?,
            },
            ExpectBody::Size(expected) if got.len() != expected => {
                return Err(Fault::Length { got: got.len(), expected });
            }
            ExpectBody::Size(_) | ExpectBody::Unverified => {}
        }
        Ok(VerifiedAnswer { status: head.status, body: got.len(), stamped, last: head.last })
    }
}
