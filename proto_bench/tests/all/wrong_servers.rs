//! Servers that are wrong in every way that has fooled a published benchmark: each makes its row void.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use proto_bench::command::measure::row;
use proto_bench::driver::FaultKind;
use proto_bench::engine::RoundOutcome;
use proto_bench::plan::{ExpectBody, Method, Pace, Plan, Protocol, Target};
use proto_bench::report::Round;
use proto_bench::report::model::Verdict;
use proto_bench::report::{judge, marks};

use crate::support::{answer, faults, longer, read_request, run, run_until, serve, short, short_http};

/// The reasons for which a round of this plan is void.
fn void_reasons(plan: &Plan) -> Vec<String> {
    let mut row = row("test", "test", "target", plan);
    row.rounds.push(Round::new(plan, &run(plan)));
    row.conclude();
    match row.verdict {
        Verdict::Void(reasons) => {
            assert!(row.summary.is_none(), "a void row must have no figures");
            reasons
        }
        other => panic!("not void: {other:?}"),
    }
}

fn assert_void_for(plan: &Plan, words: &str) {
    let found = longer(plan, |plan| {
        let reasons = void_reasons(plan);
        if reasons.iter().any(|reason| reason.contains(words)) { Ok(()) } else { Err(reasons) }
    });
    found.unwrap_or_else(|reasons| panic!("expected `{words}` in {reasons:?}"));
}

#[test]
fn a_fast_502_is_no_answer() {
    let address = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            answer(&mut stream, "502 Bad Gateway", &body);
        }
    });
    let plan = short_http(address);
    let outcome = run(&plan);
    assert_eq!(outcome.tally.completed, 0);
    assert!(outcome.tally.statuses.contains_key(&502));
    assert_void_for(&plan, "wrong statuses");
}

#[test]
fn a_502_that_is_expected_passes() {
    let address = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            answer(&mut stream, "502 Bad Gateway", &body);
        }
    });
    let mut plan = short_http(address);
    plan.expect.status = 502;
    assert!(run(&plan).tally.faults.is_empty());
}

#[test]
fn swapped_answers_are_caught() {
    // Two connections meet here and leave with each other's bodies.
    type Meeting = Arc<(Mutex<Vec<Option<Vec<u8>>>>, Condvar)>;
    let meeting: Meeting = Arc::new((Mutex::new(vec![None, None]), Condvar::new()));
    let seats = Arc::new(AtomicUsize::new(0));
    let address = serve(move |mut stream| {
        let own = seats.fetch_add(1, Ordering::Relaxed) % 2;
        while let Some((_, body)) = read_request(&mut stream) {
            let (bodies, changed) = &*meeting;
            let mut bodies = bodies.lock().expect("no panic");
            bodies[own] = Some(body.clone());
            changed.notify_all();
            // At the end of the test one of them waits alone and gets its own body back.
            let waited = changed
                .wait_timeout_while(bodies, Duration::from_secs(2), |bodies| bodies[1 - own].is_none());
            let mut bodies = waited.expect("no panic").0;
            let other = bodies[1 - own].take().unwrap_or(body);
            drop(bodies);
            answer(&mut stream, "200 OK", &other);
        }
    });
    let plan = short_http(address);
    assert_void_for(&plan, "swapped answers");
}

#[test]
fn an_answer_of_an_earlier_request_is_swapped_too() {
    let address = serve(|mut stream| {
        let mut earlier = vec![0; 64];
        while let Some((_, body)) = read_request(&mut stream) {
            answer(&mut stream, "200 OK", &earlier);
            earlier = body;
        }
    });
    assert_void_for(&short_http(address), "swapped answers");
}

#[test]
fn truncation_is_caught_in_both_forms() {
    let shorter = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            answer(&mut stream, "200 OK", &body[..body.len() / 2]);
        }
    });
    assert_void_for(&short_http(shorter), "wrong lengths");
    let broken_off = serve(|mut stream| {
        if let Some((_, body)) = read_request(&mut stream) {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 64\r\n\r\n").ok();
            stream.write_all(&body[..32]).ok();
        }
    });
    assert_void_for(&short_http(broken_off), "closed early");
}

#[test]
fn one_wrong_byte_is_caught() {
    let address = serve(|mut stream| {
        let mut count = 0;
        while let Some((_, mut body)) = read_request(&mut stream) {
            count += 1;
            if count % 10 == 0 {
                body[63] ^= 1;
            }
            answer(&mut stream, "200 OK", &body);
        }
    });
    let plan = short_http(address);
    let found = |outcome: &RoundOutcome| faults(outcome, FaultKind::Content) > 0;
    assert!(found(&run_until(&plan, found)));
    assert_void_for(&plan, "wrong contents");
}

#[test]
fn more_bytes_than_an_answer_has_are_caught() {
    let http = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            let answers = b"HTTP/1.1 200 OK\r\ncontent-length: 64\r\n\r\n";
            stream.write_all(&[&answers[..], &body, &answers[..], &body].concat()).ok();
        }
    });
    assert_void_for(&short_http(http), "protocol errors");
    let tcp = serve(|mut stream| {
        let mut bytes = [0; 64];
        while std::io::Read::read_exact(&mut stream, &mut bytes).is_ok() {
            stream.write_all(&[&bytes[..], b"x"].concat()).ok();
        }
    });
    assert_void_for(&short(Target::at(Protocol::Tcp, false, tcp)), "protocol errors");
}

#[test]
fn ambiguous_framing_is_no_answer() {
    let address = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 64\r\ncontent-length: 65\r\n\r\n").ok();
            stream.write_all(&body).ok();
        }
    });
    assert_void_for(&short_http(address), "protocol errors");
}

#[test]
fn chunked_and_interim_answers_are_right_answers() {
    let address = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            let head = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n\
                         HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1f\r\n";
            let tail = b"\r\n21;a=b\r\n";
            stream
                .write_all(
                    &[&head[..], &body[..31], &tail[..], &body[31..], b"\r\n0\r\nt: v\r\n\r\n"].concat(),
                )
                .ok();
        }
    });
    let outcome = run(&short_http(address));
    assert!(outcome.tally.faults.is_empty() && outcome.tally.completed > 0, "{:?}", outcome.tally.faults);
}

#[test]
fn a_server_that_closes_politely_is_asked_again() {
    let address = serve(|mut stream| {
        if let Some((_, body)) = read_request(&mut stream) {
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 64\r\nconnection: close\r\n\r\n";
            stream.write_all(&[&head[..], &body].concat()).ok();
        }
    });
    let again = |outcome: &RoundOutcome| outcome.tally.completed > 1 && outcome.tally.reopened > 0;
    let outcome = run_until(&short_http(address), again);
    assert!(outcome.tally.faults.is_empty(), "{:?}", outcome.tally.faults);
    assert!(again(&outcome));
}

#[test]
fn lost_datagrams_are_missing_answers() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound");
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        let mut count = 0;
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            count += 1;
            if count % 50 != 0 {
                socket.send_to(&buffer[..length], from).ok();
            }
        }
    });
    let mut plan = short(Target::at(Protocol::Udp, false, address));
    plan.timing.timeout = Duration::from_millis(50);
    assert_void_for(&plan, "answers missing");
}

#[test]
fn nobody_listening_is_void_and_not_endless() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("bound");
    drop(listener);
    let reasons = void_reasons(&short_http(address));
    assert!(reasons.iter().any(|reason| reason.contains("connect failures")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("0 of 2 connections")), "{reasons:?}");
}

#[test]
fn garbage_is_a_protocol_error_in_every_protocol() {
    let address = serve(|mut stream| {
        // Nothing a client of any of these protocols can take for an answer.
        let mut bytes = [0; 256];
        while std::io::Read::read(&mut stream, &mut bytes).is_ok_and(|count| count > 0) {
            if stream.write_all(&[0xFF; 200]).is_err() {
                return;
            }
        }
    });
    for (protocol, tls) in [
        (Protocol::Http1, false),
        (Protocol::Http1, true),
        (Protocol::Http2, false),
        (Protocol::Grpc, false),
        (Protocol::WebSocket, false),
        (Protocol::Tcp, false),
    ] {
        let mut plan = short(Target::at(protocol, tls, address));
        plan.timing.timeout = Duration::from_millis(300);
        plan.timing.connect = Duration::from_millis(500);
        let outcome = run(&plan);
        assert_eq!(outcome.tally.completed, 0, "{protocol:?}");
        assert!(!outcome.tally.faults.is_empty(), "{protocol:?}");
    }
}

/// Every hundredth answer comes this much later, and the connection waits with it.
const STALL: Duration = Duration::from_millis(20);

fn stalling_server() -> SocketAddr {
    serve(|mut stream| {
        let mut count = 0;
        while let Some((_, body)) = read_request(&mut stream) {
            count += 1;
            if count % 100 == 0 {
                thread::sleep(STALL);
            }
            answer(&mut stream, "200 OK", &body);
        }
    })
}

#[test]
fn a_stall_of_one_answer_in_a_hundred_shows_in_the_open_loop() {
    let mut plan = short_http(stalling_server());
    plan.load.connections = 1;
    plan.load.pace = Pace::Open { rate: 1_000.0 };
    plan.timing.duration = Duration::from_secs(1);
    let outcome = run(&plan);
    let round = Round::new(&plan, &outcome);
    // About twenty requests are due during each stall of a hundred, so one in five waits for it.
    assert!(round.latency.p99_us > 10_000.0, "p99 is {} us", round.latency.p99_us);
    let service = round.service.expect("an open loop tells both");
    assert!(service.p50_us <= round.latency.p50_us);
    assert!(!judge::limits_of(&plan).iter().any(|note| note.starts_with("Closed loop")));
}

#[test]
fn the_closed_loop_says_that_it_cannot_show_a_stall() {
    let mut plan = short_http(stalling_server());
    plan.load.connections = 1;
    let outcome = run(&plan);
    assert!(outcome.tally.faults.is_empty());
    let notes = judge::limits_of(&plan);
    assert!(notes.iter().any(|note| note.contains("missing from the percentiles")), "{notes:?}");
}

#[test]
fn a_rate_that_is_not_sustained_is_marked() {
    let address = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            thread::sleep(Duration::from_millis(10));
            answer(&mut stream, "200 OK", &body);
        }
    });
    let mut plan = short_http(address);
    plan.load.pace = Pace::Open { rate: 2_000.0 };
    let round = Round::new(&plan, &run(&plan));
    assert!(round.marks.iter().any(|mark| mark == marks::UNSUSTAINED), "{:?}", round.marks);
    let open = round.open_loop.expect("an open loop");
    assert!(!open.sustained && open.never_started > 0);
    // What was never sent has waited too.
    assert!(round.latency.count > round.completed);
}

#[test]
fn sizes_are_checked_without_an_echo() {
    let address = serve(|mut stream| {
        while read_request(&mut stream).is_some() {
            answer(&mut stream, "200 OK", b"seven!!");
        }
    });
    let plan = |body| {
        let mut plan = short_http(address);
        plan.message.method = Method::Get;
        plan.expect.body = body;
        plan
    };
    let right = Round::new(&plan(ExpectBody::Size(7)), &run(&plan(ExpectBody::Size(7))));
    assert!(right.void.is_empty(), "{:?}", right.void);
    for mark in [marks::UNSTAMPED, marks::UNVERIFIED] {
        assert!(right.marks.iter().any(|found| found == mark), "{:?}", right.marks);
    }
    assert_void_for(&plan(ExpectBody::Size(8)), "wrong lengths");
}
