//! The load: each connection walks through all proxies, in steps of the number of connections, so that together they
//! ask each proxy equally often.

use std::cell::Cell;
use std::rc::Rc;

use super::{Options, api};
use crate::driver::h1::wire::Wire;
use crate::driver::link::Linker;
use crate::driver::{Driver, Fault, Lane, NewConnection, Stamp, VerifiedAnswer};
use crate::plan::Plan;

/// Opens connections that walk.
pub(super) struct Walker {
    linker: Linker,
    host: String,
    present: u64,
    step: u64,
    /// Where the next connection begins.
    next: Cell<u64>,
    /// Each thread begins elsewhere.
    threads: u64,
}

/// One walking connection.
pub(super) struct Walk {
    wire: Wire,
    host: String,
    at: u64,
    step: u64,
    present: u64,
    request: Vec<u8>,
}

/// Makes walkers over this many proxies.
pub(super) fn maker(
    options: &Options,
    present: u64,
) -> impl Fn(&Rc<Plan>) -> Result<Walker, Fault> + Send + Sync + use<> {
    let (step, threads) = (u64::from(options.workers.max(1)), options.threads.max(1) as u64);
    let begun = std::sync::atomic::AtomicU64::new(0);
    move |plan| {
        let thread = begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let host = plan.target.authority();
        Ok(Walker { linker: Linker::new(plan)?, host, present, step, next: Cell::new(thread), threads })
    }
}

impl Driver for Walker {
    type Lane = Walk;

    async fn connect(&self) -> Result<NewConnection<Walk>, Fault> {
        let (link, negotiated) = self.linker.open().await?;
        let at = self.next.get();
        self.next.set((at + self.threads) % self.step.max(1));
        let walk = Walk {
            wire: Wire::new(link),
            host: self.host.clone(),
            at: at % self.present,
            step: self.step % self.present.max(1),
            present: self.present,
            request: Vec::new(),
        };
        Ok(NewConnection { lanes: vec![walk], negotiated })
    }
}

impl Lane for Walk {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        let number = self.at;
        self.at = (self.at + self.step.max(1)) % self.present;
        self.write_request(number, stamp);
        let (head, body) = self.wire.exchange(&self.request).await?;
        if head.status != 200 {
            return Err(Fault::Status { got: head.status, expected: 200 });
        }
        if let Some(echoed) = head.stamp
            && echoed != stamp
        {
            return Err(Fault::Swapped { got: echoed, expected: stamp });
        }
        let (got, right) = (self.wire.body(body), api::right_answer(number));
        if got.len() != right.len() {
            return Err(Fault::Length { got: got.len(), expected: right.len() });
        }
        match right.iter().zip(got).position(|(right, got)| right != got) {
            Some(at) => Err(Fault::Content { at }),
            None => Ok(VerifiedAnswer {
                status: 200,
                body: got.len(),
                stamped: head.stamp.is_some(),
                last: head.last,
            }),
        }
    }
}

impl Walk {
    fn write_request(&mut self, number: u64, stamp: Stamp) {
        use std::io::Write;
        self.request.clear();
        // Writing to memory cannot fail.
        write!(
            self.request,
            "GET {} HTTP/1.1\r\nhost: {}\r\n{}: {}\r\nx-bench-stamp: ",
            api::path(number),
            self.host,
            api::KEY_HEADER,
            api::key(number)
        )
        .ok();
        self.request.extend_from_slice(&stamp.hex());
        self.request.extend_from_slice(b"\r\n\r\n");
    }
}
