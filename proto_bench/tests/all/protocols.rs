//! Every driver against its echo peer: no fault, every byte verified.

use std::time::Duration;

use proto_bench::backend::{Backend, Options};
use proto_bench::plan::{ExpectBody, Method, Pace, Plan, Protocol, Target};
use proto_bench::tls::Identity;

use crate::support::{run, short};

fn backend() -> Backend {
    let options = Options { threads: 2, ..Options::default() };
    Backend::start(&options, Identity::generate().expect("a certificate")).expect("free ports")
}

/// Runs a shaped plan and checks that everything was right.
fn check(target: Target, shape: impl Fn(&mut Plan)) {
    let mut plan = short(target);
    plan.load.connections = 4;
    if plan.target.protocol.multiplexes() {
        plan.load.streams = 3;
    }
    shape(&mut plan);
    let outcome = run(&plan);
    let tally = &outcome.tally;
    let name = plan.target.url();
    assert!(tally.faults.is_empty(), "{name}: {:?}", tally.faults);
    assert!(tally.completed > 0, "{name} answered nothing");
    assert_eq!(tally.unstamped, 0, "{name}");
    if !plan.message.fresh {
        assert_eq!(tally.opened, u64::from(plan.load.connections), "{name}");
    }
    if plan.expect.body == ExpectBody::Echo {
        let sent = plan.message.payload.max(usize::from(plan.target.protocol != Protocol::Grpc)) as u64;
        assert_eq!(tally.body_bytes, tally.completed * sent, "{name}");
    }
}

/// Every protocol, with and without TLS where both exist.
fn targets(backend: &Backend) -> Vec<Target> {
    let ports = &backend.ports;
    let at = |protocol, tls, address: Option<_>| Target::at(protocol, tls, address.expect("served"));
    vec![
        at(Protocol::Http1, false, ports.http),
        at(Protocol::Http1, true, ports.https),
        at(Protocol::Http2, false, ports.h2c),
        at(Protocol::Http2, true, ports.https),
        at(Protocol::Http3, true, ports.h3),
        at(Protocol::Grpc, false, ports.h2c),
        at(Protocol::Grpc, true, ports.https),
        at(Protocol::WebSocket, false, ports.http),
        at(Protocol::WebSocket, true, ports.https),
        at(Protocol::Tcp, false, ports.tcp),
        at(Protocol::Tcp, true, ports.tls),
        at(Protocol::Udp, false, ports.udp),
        at(Protocol::Dtls, true, ports.dtls),
    ]
}

#[test]
fn every_protocol_echoes_64_bytes() {
    let backend = backend();
    for target in targets(&backend) {
        check(target, |_| {});
    }
}

#[test]
fn every_protocol_echoes_what_spans_several_reads() {
    let backend = backend();
    for target in targets(&backend) {
        let datagram = matches!(target.protocol, Protocol::Udp | Protocol::Dtls);
        check(target, |plan| plan.message.payload = if datagram { 9_000 } else { 300_000 });
    }
}

#[test]
fn one_byte_is_enough() {
    let backend = backend();
    for target in targets(&backend) {
        check(target, |plan| plan.message.payload = 1);
    }
}

#[test]
fn every_protocol_runs_by_the_clock() {
    let backend = backend();
    for target in targets(&backend) {
        check(target, |plan| plan.load.pace = Pace::Open { rate: 300.0 });
    }
}

#[test]
fn a_connection_for_each_request() {
    let backend = backend();
    for target in targets(&backend) {
        check(target, |plan| plan.message.fresh = true);
    }
}

#[test]
fn requests_without_a_body_carry_their_stamp_in_a_header() {
    let backend = backend();
    for target in targets(&backend) {
        if target.protocol.has_status() && target.protocol != Protocol::Grpc {
            check(target.with_path("/size/5000"), |plan| {
                plan.message.method = Method::Get;
                plan.expect.body = ExpectBody::Size(5_000);
            });
        }
    }
}

#[test]
fn certificates_are_verified_when_asked() {
    let identity = Identity::generate().expect("a certificate");
    let directory = std::env::temp_dir().join(format!("proto_bench-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    identity.write_to(&directory).expect("written");
    let backend = Backend::start(&Options::default(), identity).expect("free ports");
    let stranger = self::backend();
    let with_roots = |target: Target| {
        let mut plan = short(target);
        plan.verify_tls = Some(directory.join("cert.pem"));
        plan.timing.connect = Duration::from_secs(30);
        run(&plan)
    };
    for (protocol, pick) in [(Protocol::Http1, 0), (Protocol::Http3, 1)] {
        let port = |backend: &Backend| [backend.ports.https, backend.ports.h3][pick].expect("served");
        let known = with_roots(Target::at(protocol, true, port(&backend)));
        assert!(known.tally.faults.is_empty() && known.tally.completed > 0, "{:?}", known.tally.faults);
        let unknown = with_roots(Target::at(protocol, true, port(&stranger)));
        assert_eq!(unknown.tally.completed, 0);
        assert!(!unknown.tally.faults.is_empty());
    }
    std::fs::remove_dir_all(&directory).ok();
}
