//! Probes begin, go on over reloads, and end with what asked for them.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant as Clock;

use super::*;
use crate::{Gateway, source};

/// Longer than anything here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn spec(address: SocketAddr, checks: &str) -> String {
    let (host, port) = (address.ip(), address.port());
    format!(
        "
gateway: {{ http: '127.0.0.1:0', https: off, workers: 1 }}
proxies:
  - {{ id: a, listen_path: /a, backend_scheme: http, upstream_id: group }}
  - {{ id: b, listen_path: /b, backend_scheme: http, upstream_id: group }}
  - {{ id: c, listen_path: /c, backend_scheme: http, backend_host: {host}, backend_port: {port} }}
upstreams:
  - {{ id: group, targets: [{{ host: {host}, port: {port} }}], {checks} }}
"
    )
}

const CHECKS: &str = "health_checks: { active: { probe_type: tcp, interval: 1, unhealthy_threshold: 1, \
                      healthy_threshold: 1 } }";

fn model(text: &str) -> gateway_core::config::model::Model {
    source::file::parse(text, "test.yaml", &crate::plugins()).unwrap()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Clock::now() + TIMEOUT;
    while !is_so() {
        assert!(Clock::now() < deadline, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn healthy(gateway: &Gateway) -> bool {
    let snapshot = gateway.snapshot();
    let (_, targets) = snapshot.upstreams.iter().next().unwrap();
    targets.list()[0].is_healthy(Instant::now())
}

#[test]
fn a_target_that_goes_and_comes_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let gateway = Gateway::start(model(&spec(address, CHECKS)), crate::plugins()).unwrap();
    let control = &gateway.telemetry().control;
    until("it is asked", || control.probes_good.load(Relaxed) > 0);
    assert!(healthy(&gateway));
    drop(listener);
    until("it is missed", || !healthy(&gateway));
    gateway.reload(&model(&spec(address, CHECKS))).unwrap();
    assert!(!healthy(&gateway), "a reload forgets nothing");
    let _listener = TcpListener::bind(address).unwrap();
    until("it is back", || healthy(&gateway));
    assert_eq!((control.failed.load(Relaxed), control.recovered.load(Relaxed)), (1, 1));
}

#[test]
fn a_configuration_wants_each_target_asked_once() {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let jobs_of = |checks: &str| {
        let gateway = Gateway::start(model(&spec(address, checks)), crate::plugins()).unwrap();
        jobs(&gateway.snapshot()).len()
    };
    assert_eq!(jobs_of(CHECKS), 1, "two proxies share the upstream");
    assert_eq!(jobs_of("name: unwatched"), 0);
}

#[tokio::test]
async fn probes_begin_stay_and_end_with_the_configuration() {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let gateway = Gateway::start(model(&spec(address, CHECKS)), crate::plugins()).unwrap();
    let mut probes = Probes::new(&gateway.engine().clone());
    let follow = |probes: &mut Probes, checks: &str| {
        gateway.reload(&model(&spec(address, checks))).unwrap();
        probes.follow(&gateway.snapshot());
        probes.running.values().map(|run| run.task.id()).collect::<Vec<_>>()
    };
    let first = follow(&mut probes, CHECKS);
    assert_eq!(first.len(), 1);
    assert_eq!(follow(&mut probes, CHECKS), first, "the same rules go on undisturbed");
    let slower = CHECKS.replace("interval: 1", "interval: 2");
    assert_ne!(follow(&mut probes, &slower), first, "other rules begin anew");
    assert!(follow(&mut probes, "name: unwatched").is_empty());
}
