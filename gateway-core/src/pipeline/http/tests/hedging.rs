//! Requests that go to another target as well.

use super::*;
use crate::limit::hedging::Hedged;

/// Three targets, hedging by these rules, and more fields of the proxy.
fn hedged(rules: &str, more: &str) -> String {
    of(rules, more, "{host: one, port: 1}, {host: two, port: 2}, {host: three, port: 3}")
}

fn of(rules: &str, more: &str, targets: &str) -> String {
    format!(
        "proxies: [{{id: a, listen_path: /a, backend_scheme: http, upstream_id: u, hedging: {{{rules}}}{more}}}]\n\
         upstreams: [{{id: u, targets: [{targets}]}}]\n"
    )
}

/// Sends a request; what was answered, and after how many milliseconds.
async fn timed(fake: &Fake, request: http::Request<Body>) -> (fakes::Got, u128) {
    let began = Instant::now();
    let got = fake.serve(request).await;
    (got, began.elapsed().as_millis())
}

fn hedges(fake: &Fake) -> Hedged {
    fake.records().last().expect("a record").hedged
}

#[test]
fn another_target_answers_for_one_that_takes_long() {
    run(async {
        let fake = Fake::new(&hedged("delay: 50ms", ""), [Say::Never, Say::Status(200)]);
        let (got, took) = timed(&fake, request("GET", "/a/x")).await;
        assert_eq!((got.status, took), (StatusCode::OK, 50));
        let asked = fake.asked();
        assert_ne!(asked[0], asked[1]);
        assert_eq!(got.body, format!("body of {} /x", asked[1]));
        assert_eq!(hedges(&fake), Hedged { sent: 1, won: Some(2), withheld: false });
        assert_eq!(fake.records()[0].attempts, 2);
    });
}

#[test]
fn the_first_to_answer_wins_whoever_it_is() {
    run(async {
        let fake = Fake::new(&hedged("delay: 50ms", ""), [Say::Later(40, 200)]);
        assert_eq!(timed(&fake, request("GET", "/a")).await.1, 40);
        assert_eq!((fake.asked().len(), hedges(&fake).sent), (1, 0), "it answered in time");
        let fake = Fake::new(&hedged("delay: 50ms", ""), [Say::Later(80, 200), Say::Never]);
        let (got, took) = timed(&fake, request("GET", "/a/x")).await;
        assert_eq!((got.body, took), (format!("body of {} /x", fake.asked()[0]), 80));
        assert_eq!(hedges(&fake), Hedged { sent: 1, won: None, withheld: false });
    });
}

#[test]
fn each_further_hedge_waits_for_another_delay() {
    run(async {
        let quick = (0..10).map(|_| Say::Status(200));
        let script = quick.chain([Say::Never, Say::Never, Say::Status(200)]);
        let fake = Fake::new(&hedged("delay: 50ms, max_hedges: 2, budget_percent: 50", ""), script);
        // They make room in the budget.
        for _ in 0..10 {
            fake.serve(request("GET", "/a")).await;
        }
        assert_eq!(timed(&fake, request("GET", "/a")).await.1, 50 + 50);
        let asked = fake.asked().split_off(10);
        assert!(asked[0] != asked[1] && asked[1] != asked[2] && asked[0] != asked[2], "{asked:?}");
        assert_eq!(hedges(&fake), Hedged { sent: 2, won: Some(3), withheld: false });
    });
}

#[test]
fn the_budget_is_a_share_of_requests() {
    run(async {
        let script: Vec<Say> = (0..300).map(|_| Say::Later(100, 200)).collect();
        let fake = Fake::new(&hedged("delay: 50ms, budget_percent: 5", ""), script);
        for _ in 0..95 {
            assert_eq!(timed(&fake, request("GET", "/a")).await.1, 100);
        }
        let sent: u32 = fake.records().iter().map(|record| record.hedged.sent).sum();
        assert!((1..=5).contains(&sent), "{sent} of 95");
        assert_eq!(fake.asked().len(), 95 + sent as usize);
        assert!(fake.records().iter().any(|record| record.hedged.withheld));
    });
}

#[test]
fn only_what_may_be_sent_twice_is_hedged() {
    run(async {
        let late = || [Say::Later(90, 200), Say::Status(200)];
        let all = "delay: 50ms, methods: [GET, PUT]";
        let sent = |fake: &Fake| fake.asked().len();
        for (method, expected) in [("GET", 2), ("PUT", 2), ("POST", 1), ("DELETE", 1)] {
            let fake = Fake::new(&hedged(all, ""), late());
            fake.serve(request(method, "/a")).await;
            assert_eq!(sent(&fake), expected, "{method}");
        }
        // A body of unknown length is not read ahead, and one that is too large isn't either.
        for (body, expected) in [(post("/a", "payload").into_body(), 1), (Body::full("payload"), 2)] {
            let fake = Fake::new(&hedged(all, ""), [Say::Later(90, 200), Say::Echo]);
            let got = fake.serve(request("PUT", "/a").map(|_| body)).await;
            assert_eq!(sent(&fake), expected);
            assert_eq!(got.body == "payload", expected == 2, "the hedge has the body");
        }
        let fake = Fake::new(&hedged(&format!("{all}, max_body: 6"), ""), late());
        fake.serve(request("PUT", "/a").map(|_| Body::full("payload"))).await;
        assert_eq!(sent(&fake), 1);
    });
}

#[test]
fn what_a_plugin_wants_sent_once_is_sent_once() {
    run(async {
        let plugged = |rules: &str, more: &str| {
            let plugin = "\nplugin_configs: [{id: o, plugin_name: once, scope: global, config: {}}]\n";
            hedged(rules, more) + plugin
        };
        let fake = Fake::new(&plugged("delay: 50ms", ""), [Say::Later(90, 200), Say::Status(200)]);
        assert_eq!(timed(&fake, request("GET", "/a")).await.1, 90);
        assert_eq!(fake.asked().len(), 1);
        // Nor is it tried again, unless nothing was sent.
        let retry = ", retry: {max_retries: 1, budget_percent: 1000}";
        for (say, attempts) in [(Say::Sent(Cause::UpstreamClosed), 1), (Say::Unsent(Cause::ConnectFailed), 2)]
        {
            let fake = Fake::new(&plugged("delay: 50ms", retry), [say, Say::Status(200)]);
            fake.serve(request("GET", "/a")).await;
            assert_eq!(fake.asked().len(), attempts);
        }
    });
}

#[test]
fn grpc_methods_are_hedged_where_they_are_named() {
    run(async {
        let rules = "delay: 50ms, grpc_methods: [shop.Catalog/Get]";
        for (path, expected) in [("/a/shop.Catalog/Get", 2), ("/a/shop.Catalog/Put", 1)] {
            let fake = Fake::new(&hedged(rules, ""), [Say::Later(90, 200), Say::Echo]);
            let mut call = post(path, "message");
            call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            let got = fake.serve(call).await;
            assert_eq!(fake.asked().len(), expected, "{path}");
            assert_eq!(got.body == "message", expected == 2, "{path}: {}", got.body);
        }
    });
}

#[test]
fn a_failure_does_not_end_a_race() {
    run(async {
        let lost = [Say::Breaks(80), Say::Later(100, 200)];
        let fake = Fake::new(&hedged("delay: 50ms", ""), lost);
        let (got, took) = timed(&fake, request("GET", "/a")).await;
        assert_eq!((got.status, took), (StatusCode::OK, 150));
        let fake = Fake::new(&hedged("delay: 50ms", ""), [Say::Breaks(80), Say::Breaks(100)]);
        let (got, took) = timed(&fake, request("GET", "/a")).await;
        assert_eq!((got.status, took), (StatusCode::BAD_GATEWAY, 150));
        assert_eq!(fake.records()[0].attempts, 2);
    });
}

#[test]
fn an_answer_to_try_again_after_waits_for_a_better_one() {
    run(async {
        let retry = ", retry: {max_retries: 1, retryable_status_codes: [503], budget_percent: 1000}";
        let rules = &hedged("delay: 50ms", retry);
        let fake = Fake::new(rules, [Say::Later(80, 503), Say::Later(100, 200)]);
        let (got, took) = timed(&fake, request("GET", "/a")).await;
        assert_eq!((got.status, took), (StatusCode::OK, 150));
        // Where there is none, it is tried again as ever; a hedge is no retry.
        let fake = Fake::new(rules, [Say::Later(80, 503), Say::Breaks(100), Say::Status(200)]);
        let (got, took) = timed(&fake, request("GET", "/a")).await;
        assert_eq!((got.status, took, fake.asked().len()), (StatusCode::OK, 150, 3));
        let none = &hedged("delay: 50ms", &retry.replace("max_retries: 1", "max_retries: 0"));
        let fake = Fake::new(none, [Say::Later(80, 503), Say::Breaks(100)]);
        assert_eq!(fake.serve(request("GET", "/a")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    });
}

#[test]
fn backups_are_left_alone() {
    run(async {
        let script = || [Say::Later(90, 200), Say::Status(200)];
        let backup = "{host: one, port: 1}, {host: two, port: 2, priority: 1}";
        let fake = Fake::new(&of("delay: 50ms", "", backup), script());
        assert_eq!(timed(&fake, request("GET", "/a")).await.1, 90);
        assert_eq!(fake.asked(), ["one:1"]);
        let fake = Fake::new(&of("delay: 50ms", "", "{host: one, port: 1}"), script());
        assert_eq!(timed(&fake, request("GET", "/a")).await.1, 90);
        assert_eq!(fake.asked().len(), 1, "there is no other target");
    });
}

#[test]
fn a_loser_is_not_blamed() {
    run(async {
        let spec = hedged("delay: 50ms", ", circuit_breaker: {failure_threshold: 1}")
            .replace("{id: u, ", "{id: u, health_checks: {passive: {unhealthy_threshold: 1}}, ");
        let fake = Fake::new(&spec, [Say::Never, Say::Status(200)]);
        fake.serve(request("GET", "/a")).await;
        assert_eq!(hedges(&fake).sent, 1);
        assert!(fake.is_all_well(), "the target that took long is asked on");
    });
}

#[test]
fn the_delay_follows_recent_answers() {
    run(async {
        let rules = "delay: 500ms, delay_percentile: 95";
        let script = (0..100).map(|_| Say::Later(8, 200)).chain([Say::Never, Say::Status(200)]);
        let fake = Fake::new(&hedged(rules, ""), script);
        for _ in 0..100 {
            fake.serve(request("GET", "/a")).await;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let (got, took) = timed(&fake, request("GET", "/a")).await;
        assert!(got.status == StatusCode::OK && (8..=10).contains(&took), "{took} ms");
    });
}

#[test]
fn the_whole_is_bounded_and_recorded_like_any_other() {
    run(async {
        let spec = hedged("delay: 50ms", ", total_timeout: 200ms");
        let fake = Fake::new(&spec, [Say::Never, Say::Never]);
        let (got, took) = timed(&fake, request("GET", "/a")).await;
        assert_eq!((got.status, took), (StatusCode::GATEWAY_TIMEOUT, 200));
        assert_eq!((hedges(&fake).sent, fake.records().len()), (1, 1));
        let fake = Fake::new(&hedged("delay: 50ms", ""), [Say::Never, Say::Never]);
        {
            let serving = std::pin::pin!(fake.serve(request("GET", "/a")));
            assert!(tokio::time::timeout(Duration::from_secs(1), serving).await.is_err());
        }
        let [record] = &fake.records()[..] else { panic!("one record") };
        assert_eq!((record.status, record.cause, record.hedged.sent), (499, Some(Cause::ClientGone), 1));
    });
}

#[test]
fn exchanges_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    run(async {
        let fake = Fake::new(&hedged("", ""), [Say::Status(200)]);
        let serving = fake.serve(request("GET", "/a"));
        is_send(&serving);
        assert_eq!(serving.await.status, StatusCode::OK);
    });
}
