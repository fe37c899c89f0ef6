//! Rounds over loopback, and a path that changes a byte.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;

fn plan(carrier: Carrier) -> BulkPlan {
    BulkPlan {
        carrier,
        to: None,
        rate: None,
        streams: 2,
        datagram: 1400,
        omit: Duration::from_millis(50),
        window: Duration::from_millis(200),
        subject: Some(std::process::id()),
    }
}

fn sink(carrier: Carrier) -> Sink {
    Sink::open(carrier, "127.0.0.1:0".parse().expect("an address")).expect("a free port")
}

/// The first round of up to fifty that is as it should be, or the first: on a busy machine, a round may get no time at all.
fn first_round(plan: &BulkPlan, is_right: impl Fn(&BulkOutcome) -> bool) -> BulkOutcome {
    let mut rounds = (0..50).map(|_| sink(plan.carrier).round(plan).expect("a round"));
    let first = rounds.next().expect("a round");
    if is_right(&first) { first } else { rounds.find(is_right).unwrap_or(first) }
}

#[test]
fn all_bytes_arrive_and_are_right() {
    let has_cpu = |outcome: &BulkOutcome| outcome.cpu_seconds.is_some_and(|cpu| cpu > 0.0);
    let outcome = first_round(&plan(Carrier::Tcp), |outcome| outcome.void.is_empty() && has_cpu(outcome));
    assert_eq!(outcome.void, Vec::<String>::new());
    assert!(outcome.bytes > 0 && outcome.sent == outcome.received, "{outcome:?}");
    assert!(has_cpu(&outcome), "{outcome:?}");
    let plan = BulkPlan { rate: Some(8e6), ..plan(Carrier::Udp) };
    let outcome = first_round(&plan, |outcome| outcome.void.is_empty());
    assert_eq!(outcome.void, Vec::<String>::new());
    assert!(outcome.datagrams_received > 0 && outcome.lost_percent() < 100.0, "{outcome:?}");
}

#[test]
fn the_offered_load_is_kept() {
    let plan = BulkPlan { rate: Some(40e6), window: Duration::from_millis(500), ..plan(Carrier::Tcp) };
    let outcome = first_round(&plan, |outcome| (36.0..44.0).contains(&outcome.megabits));
    assert!((36.0..44.0).contains(&outcome.megabits), "{} of 40 Mbit/s", outcome.megabits);
}

/// A path that changes one byte makes the round void.
#[test]
fn a_changed_byte_is_seen() {
    let sink = sink(Carrier::Tcp);
    let (to, relay) = (sink.address(), TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let listen = relay.local_addr().expect("an address");
    let relaying = thread::spawn(move || {
        let (mut client, _) = relay.accept().expect("a sender");
        let mut target = TcpStream::connect(to).expect("the sink");
        let mut buffer = vec![0; 65_536];
        let mut is_first = true;
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            if std::mem::take(&mut is_first) {
                buffer[count / 2] ^= 1;
            }
            target.write_all(&buffer[..count]).expect("the sink reads");
        }
    });
    let plan = BulkPlan { to: Some(listen), streams: 1, ..plan(Carrier::Tcp) };
    let outcome = sink.round(&plan).expect("a round");
    assert!(outcome.void.iter().any(|why| why.contains("other bytes")), "{outcome:?}");
    relaying.join().expect("the relay ends");
}
