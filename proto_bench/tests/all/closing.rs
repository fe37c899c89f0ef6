//! Servers that close connections as their protocol says: no request is lost, so none is a fault.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use proto_bench::plan::{Pace, Plan, Protocol, Target};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{run, short};

/// Requests that a connection gets answered before the server says GOAWAY.
const ANSWERED: usize = 50;

/// A round that is longer than the slowest machine needs.
const LONGEST: Duration = Duration::from_secs(300);

/// An HTTP/2 server that echoes bodies and says GOAWAY again and again. What is above its last stream is not answered.
fn echo_that_leaves() -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("a socket");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a socket");
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(tcp));
            }
        });
    });
    address
}

async fn serve(tcp: TcpStream) -> Option<()> {
    let mut connection = h2::server::handshake(tcp).await.ok()?;
    let mut count = 0;
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        count += 1;
        if count == ANSWERED {
            connection.graceful_shutdown();
        }
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut all = Vec::new();
            while let Some(Ok(chunk)) = body.data().await {
                all.extend_from_slice(&chunk);
                drop(body.flow_control().release_capacity(chunk.len()));
            }
            let mut sending = respond.send_response(Response::new(()), false).ok()?;
            sending.send_data(Bytes::from(all), true).ok()
        });
    }
    None
}

fn plan(pace: Option<f64>) -> Plan {
    let mut plan = short(Target::at(Protocol::Http2, false, echo_that_leaves()));
    plan.load.streams = 4;
    if let Some(rate) = pace {
        plan.load.pace = Pace::Open { rate };
    }
    plan
}

#[test]
fn a_goaway_is_no_fault() {
    for pace in [None, Some(2000.0)] {
        let mut plan = plan(pace);
        // A slow machine needs longer for the same number of requests.
        loop {
            let outcome = run(&plan);
            assert!(outcome.tally.faults.is_empty(), "{pace:?}: {:?}", outcome.tally.faults);
            if outcome.tally.completed > 4 * ANSWERED as u64 {
                break;
            }
            plan.timing.duration *= 2;
            assert!(plan.timing.duration < LONGEST, "{pace:?}: {} requests only", outcome.tally.completed);
        }
    }
}
