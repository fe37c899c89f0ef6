//! Scripted servers and short plans.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use proto_bench::driver::FaultKind;
use proto_bench::engine::{self, RoundOutcome};
use proto_bench::plan::{Plan, Protocol, Target};

/// A plan that is over soon: two connections, one thread, no warm-up.
pub(crate) fn short(target: Target) -> Plan {
    let mut plan = Plan::new(target);
    plan.load.connections = 2;
    plan.threads = 1;
    plan.timing.warm_up = Duration::ZERO;
    plan.timing.duration = Duration::from_millis(300);
    plan.timing.timeout = Duration::from_secs(5);
    plan
}

/// A short plan for HTTP/1.1 on this address.
pub(crate) fn short_http(address: SocketAddr) -> Plan {
    short(Target::at(Protocol::Http1, false, address))
}

/// A round that is longer than the slowest machine needs.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs a plan without looking at processes, until something has come of it.
pub(crate) fn run(plan: &Plan) -> RoundOutcome {
    run_until(plan, |outcome| outcome.tally.completed > 0 || !outcome.tally.faults.is_empty())
}

/// Runs a plan until this is true of its outcome, each time for longer: a busy machine does little in a short time.
pub(crate) fn run_until(plan: &Plan, is_enough: impl Fn(&RoundOutcome) -> bool) -> RoundOutcome {
    let mut last = None;
    let _done = longer(plan, |plan| {
        let outcome = engine::run(plan, &[], &mut |_| {}).expect("the plan itself is right");
        let is_enough = is_enough(&outcome);
        last = Some(outcome);
        if is_enough { Ok(()) } else { Err(()) }
    });
    last.expect("it ran once")
}

/// Has a plan tried until that is good, each time for longer; the last failure when even the longest is not.
pub(crate) fn longer<T, E>(plan: &Plan, mut attempt: impl FnMut(&Plan) -> Result<T, E>) -> Result<T, E> {
    let mut plan = plan.clone();
    loop {
        match attempt(&plan) {
            Err(_) if plan.timing.duration < LONGEST => plan.timing.duration *= 4,
            done => return done,
        }
    }
}

/// How often this fault was counted.
pub(crate) fn faults(outcome: &RoundOutcome, kind: FaultKind) -> u64 {
    outcome.tally.faults.get(&kind).map_or(0, |(count, _)| *count)
}

/// A server that handles each connection on a thread of its own; it ends with the process.
pub(crate) fn serve(script: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let script = script.clone();
            thread::spawn(move || script(stream));
        }
    });
    address
}

/// Reads one HTTP/1.1 request with a content-length; returns its head and its body, or nothing at the end.
pub(crate) fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .and_then(|value| value.trim().parse::<usize>().ok())
                .unwrap_or(0);
            while bytes.len() < end + 4 + length {
                read_more(stream, &mut bytes)?;
            }
            let original = String::from_utf8_lossy(&bytes[..end]).into_owned();
            return Some((original, bytes[end + 4..].to_vec()));
        }
        read_more(stream, &mut bytes)?;
    }
}

fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 16 * 1024];
    match stream.read(&mut chunk) {
        Ok(count) if count > 0 => {
            bytes.extend_from_slice(&chunk[..count]);
            Some(())
        }
        _ => None,
    }
}

/// Writes a whole answer; a client that is gone does not matter.
pub(crate) fn answer(stream: &mut TcpStream, status: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).ok();
}
