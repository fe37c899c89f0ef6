//! The pipeline between a fake client and fake targets, on a paused clock.

mod fakes;
mod grpc_web;
mod hedging;

use std::time::Duration;

use http::StatusCode;
use http::header::{ALLOW, RETRY_AFTER};
use tokio::time::Instant;

use super::*;
use crate::http::body::BodyError;
use crate::http::exchange::ClientTls;
use crate::http::upstream::Failure;
use crate::plugin::World;
use crate::testing::Trial;
use fakes::{Fake, Say, post, put_with_length, request, run};

const ONE: &str =
    "proxies: [{id: a, listen_path: /a, backend_scheme: http, backend_host: t.test, backend_port: 80}]\n";

/// Two targets and these rules for trying again.
fn two(retry: &str) -> String {
    format!(
        "proxies: [{{id: a, listen_path: /a, backend_scheme: http, upstream_id: u, retry: {{{retry}}}}}]\n\
         upstreams: [{{id: u, targets: [{{host: one, port: 1}}, {{host: two, port: 2}}]}}]\n"
    )
}

#[test]
fn an_answer_passes_and_is_recorded_once() {
    run(async {
        let fake = Fake::new(ONE, [Say::Status(200)]);
        let got = fake.serve(request("GET", "/a/x?y")).await;
        assert_eq!((got.status, got.body.as_str()), (StatusCode::OK, "body of t.test:80 /x?y"));
        let [record] = &fake.records()[..] else { panic!("one record") };
        assert_eq!((record.status, record.cause, record.attempts, record.response_bytes), (200, None, 1, 22));
    });
}

#[test]
fn what_has_no_proxy_is_recorded_too() {
    run(async {
        let fake = Fake::new(ONE, []);
        assert_eq!(fake.serve(request("GET", "/b")).await.status, StatusCode::NOT_FOUND);
        let [record] = &fake.records()[..] else { panic!("one record") };
        assert_eq!((record.status, record.cause, record.attempts), (404, Some(Cause::NoRoute), 0));
    });
}

#[test]
fn a_dropped_exchange_is_recorded_as_the_clients_doing() {
    run(async {
        let fake = Fake::new(ONE, [Say::Never]);
        {
            let serving = fake.serve(request("GET", "/a"));
            tokio::pin!(serving);
            assert!(tokio::time::timeout(Duration::from_secs(1), serving).await.is_err());
        }
        let [record] = &fake.records()[..] else { panic!("one record") };
        assert_eq!((record.status, record.cause), (499, Some(Cause::ClientGone)));
    });
}

#[test]
fn the_total_timeout_covers_waiting_for_a_target() {
    run(async {
        let spec = ONE.replace("backend_port: 80", "backend_port: 80, total_timeout: 5000ms");
        let fake = Fake::new(&spec, [Say::Never]);
        let began = Instant::now();
        assert_eq!(fake.serve(request("GET", "/a")).await.status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        assert_eq!(fake.records()[0].cause, Some(Cause::TotalTimeout));
    });
}

#[test]
fn a_failure_to_connect_moves_on_with_the_body_untouched() {
    run(async {
        let fake = Fake::new(
            &two("max_retries: 1, budget_percent: 1000"),
            [Say::Unsent(Cause::ConnectFailed), Say::Echo],
        );
        let got = fake.serve(post("/a", "payload")).await;
        assert_eq!((got.status, got.body.as_str()), (StatusCode::OK, "payload"));
        let asked = fake.asked();
        assert_eq!(asked.len(), 2);
        assert_ne!(asked[0], asked[1], "another target is tried");
        assert_eq!(fake.records()[0].attempts, 2);
    });
}

#[test]
fn what_may_have_been_carried_out_is_not_sent_twice() {
    run(async {
        for (method, attempts) in
            [("POST", 1), ("PATCH", 1), ("GET", 2), ("PUT", 2), ("DELETE", 2), ("HEAD", 2)]
        {
            let fake = Fake::new(
                &two("max_retries: 3, budget_percent: 1000"),
                [Say::Sent(Cause::UpstreamClosed), Say::Status(200)],
            );
            fake.serve(request(method, "/a")).await;
            assert_eq!(fake.asked().len(), attempts, "{method}");
        }
    });
}

#[test]
fn retries_end_and_pause_as_configured() {
    run(async {
        let rules = "max_retries: 2, budget_percent: 1000, backoff: {fixed: {delay: 100ms}}";
        let fake = Fake::new(&two(rules), [const { Say::Sent(Cause::UpstreamClosed) }; 5]);
        let began = Instant::now();
        assert_eq!(fake.serve(request("GET", "/a")).await.status, StatusCode::BAD_GATEWAY);
        assert_eq!(fake.asked().len(), 3);
        assert_eq!(began.elapsed(), Duration::from_millis(200));
    });
}

#[test]
fn a_stale_connection_is_replaced_without_any_rule_but_not_for_ever() {
    run(async {
        let fake = Fake::new(ONE, [Say::Stale, Say::Stale, Say::Status(200)]);
        assert_eq!(fake.serve(request("GET", "/a")).await.status, StatusCode::OK);
        let fake = Fake::new(ONE, [const { Say::Stale }; 10]);
        assert_eq!(fake.serve(request("GET", "/a")).await.status, StatusCode::BAD_GATEWAY);
        assert_eq!(fake.asked().len(), 4);
        // A request that was sent and is not idempotent is not repeated, also here.
        let fake = Fake::new(ONE, [Say::Stale, Say::Status(200)]);
        assert_eq!(fake.serve(request("POST", "/a")).await.status, StatusCode::BAD_GATEWAY);
    });
}

#[test]
fn a_status_is_retried_where_wanted_and_passed_on_at_last() {
    run(async {
        let rules = "max_retries: 1, retryable_status_codes: [503], budget_percent: 1000";
        let fake = Fake::new(&two(rules), [Say::Status(503), Say::Status(200)]);
        assert_eq!(fake.serve(request("GET", "/a")).await.status, StatusCode::OK);
        let fake = Fake::new(&two(rules), [Say::Status(503), Say::Status(503)]);
        assert_eq!(fake.serve(request("GET", "/a")).await.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(fake.records()[0].cause, None, "it is the target's own answer");
        let fake = Fake::new(&two(rules), [Say::Status(503)]);
        assert_eq!(fake.serve(request("POST", "/a")).await.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(fake.asked().len(), 1);
    });
}

#[test]
fn a_method_that_is_not_allowed_is_answered_with_those_that_are() {
    run(async {
        let spec = ONE.replace("backend_port: 80", "backend_port: 80, allowed_methods: [GET]");
        let fake = Fake::new(&spec, []);
        let got = fake.serve(request("PUT", "/a")).await;
        assert_eq!(
            (got.status, &got.headers[ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &HeaderValue::from_static("GET, HEAD"))
        );
    });
}

#[test]
fn beyond_the_ceiling_exchanges_are_refused_at_once() {
    run(async {
        let spec = format!("gateway: {{limits: {{max_requests: 1}}}}\n{ONE}");
        let fake = Fake::new(&spec, [Say::Never, Say::Status(200)]);
        let first = fake.serve(request("GET", "/a"));
        let second = async {
            let got = fake.serve(request("GET", "/a")).await;
            assert_eq!((got.status, &got.headers[RETRY_AFTER]), (StatusCode::SERVICE_UNAVAILABLE, &A_SECOND));
        };
        tokio::select! {
            biased;
            _ = first => panic!("it never ends"),
            () = second => {}
        }
        assert_eq!(fake.records().len(), 2);
        assert_eq!(fake.serve(request("GET", "/a")).await.status, StatusCode::OK, "its place is free again");
    });
}

#[test]
fn refusals_unwind_through_the_plugins_reached_only() {
    run(async {
        let plugins =
            "plugins: [{plugin_config_id: early}, {plugin_config_id: refuses}, {plugin_config_id: late}]";
        let spec = ONE.replace("backend_port: 80", &format!("backend_port: 80, {plugins}"))
            + "plugin_configs:\n  - {id: early, plugin_name: early, scope: proxy_group}\n  \
               - {id: refuses, plugin_name: refuses, scope: proxy_group}\n  - {id: late, plugin_name: late, scope: proxy_group}\n";
        let fake = Fake::new(&spec, []);
        let got = fake.serve(request("GET", "/a")).await;
        assert_eq!(got.status, StatusCode::IM_A_TEAPOT);
        assert!(
            got.headers.contains_key("x-early") && !got.headers.contains_key("x-late"),
            "{:?}",
            got.headers
        );
        assert_eq!(fake.records()[0].cause, Some(Cause::Plugin));
        assert!(fake.asked().is_empty());
    });
}

#[test]
fn a_proxy_whose_plugin_cannot_be_built_is_closed() {
    run(async {
        let spec = ONE.replace("backend_port: 80", "backend_port: 80, plugins: [{plugin_config_id: broken}]")
            + "plugin_configs: [{id: broken, plugin_name: broken, scope: proxy_group}]\n";
        let fake = Fake::new(&spec, [Say::Status(200)]);
        let got = fake.serve(request("GET", "/a")).await;
        assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(!got.body.contains("broken"), "{}", got.body);
        assert!(fake.asked().is_empty());
        assert_eq!(fake.records()[0].cause, Some(Cause::Quarantined));
    });
}

#[test]
fn a_refusal_is_said_in_grpcs_words_to_grpc() {
    run(async {
        let fake = Fake::new(ONE, [Say::Sent(Cause::UpstreamTimeout)]);
        let mut call = request("POST", "/a");
        call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc+proto"));
        let got = fake.serve(call).await;
        assert_eq!(
            (got.status, &got.headers["grpc-status"]),
            (StatusCode::OK, &HeaderValue::from_static("4"))
        );
        assert_eq!(fake.records()[0].status, 200);
        assert_eq!(fake.records()[0].cause, Some(Cause::UpstreamTimeout));
    });
}

#[test]
fn an_answer_cut_short_is_recorded_with_its_cause() {
    run(async {
        let fake = Fake::new(ONE, [Say::Cut]);
        assert_eq!(fake.serve(request("GET", "/a")).await.cut, Some(Cause::UpstreamClosed));
        let [record] = &fake.records()[..] else { panic!("one record") };
        assert_eq!((record.status, record.cause), (200, Some(Cause::UpstreamClosed)));
    });
}

/// A browser sends requests for several hosts over one connection; a proxy that goes by the TLS server name tells it to open another.
#[test]
fn a_connection_for_another_host_is_misdirected() {
    run(async {
        let spec = "proxies:\n  \
            - {id: a, backend_scheme: http, backend_host: a.target, backend_port: 80, matches: [{hosts: [a.test], path: /, tls: {server_names: [a.test]}}]}\n  \
            - {id: b, backend_scheme: http, backend_host: b.target, backend_port: 80, matches: [{hosts: [b.test], path: /}]}\n  \
            - {id: c, backend_scheme: http, backend_host: c.target, backend_port: 80, hosts: ['*.test'], listen_path: /}\n";
        for (server_name, host, status) in [
            ("a.test", "a.test", 200),
            ("A.test", "a.test:443", 200),
            ("b.test", "a.test", 421),
            ("a.test", "b.test", 200),
            ("a.test", "c.test", 200),
        ] {
            let trial = Trial::of_spec(&[], spec, &World::default());
            let tls = ClientTls { server_name: Some(server_name.into()), ..ClientTls::default() };
            let trial = trial.from_client([192, 0, 2, 1].into(), Some(tls));
            assert_eq!(trial.get("/", &[("host", host)]).await.status, status, "{server_name} {host}");
        }
    });
}

/// With retries the gateway takes the body itself, so that an answer without it can be tried again.
#[test]
fn the_record_says_when_the_target_s_last_byte_came() {
    run(async {
        for (say, expected) in [
            (Say::Status(200), Some(1)),
            (Say::Pieces(&[5, 20], true), Some(25)),
            (Say::Pieces(&[5, 20], false), Some(25)),
            (Say::Cut, None),
        ] {
            let fake = Fake::new(ONE, [say]);
            fake.serve(request("GET", "/a")).await;
            let record = fake.records().pop().expect("a record");
            assert_eq!(record.last_byte.map(|took| took.as_millis()), expected, "{record:?}");
        }
        // A retry begins anew; a reply of the gateway's own has none.
        let rules = "max_retries: 2, budget_percent: 1000";
        let fake = Fake::new(&two(rules), [Say::Breaks(50), Say::Pieces(&[7], false)]);
        fake.serve(request("GET", "/a")).await;
        assert_eq!(fake.records()[0].last_byte, Some(Duration::from_millis(7)));
        let fake = Fake::new(ONE, [Say::Unsent(Cause::ConnectFailed)]);
        fake.serve(request("GET", "/a")).await;
        assert_eq!(fake.records()[0].last_byte, None);
        // Nor is there one of an answer that led to a retry, which failed.
        let rules = format!("{rules}, retryable_status_codes: [503]");
        let fails = || Say::Unsent(Cause::ConnectFailed);
        let fake = Fake::new(&two(&rules), [Say::Status(503), fails(), fails()]);
        fake.serve(request("GET", "/a")).await;
        let record = fake.records().remove(0);
        assert_eq!((record.attempts, record.last_byte), (3, None));
    });
}

#[test]
fn a_body_that_waits_for_100_continue_can_be_sent_again() {
    run(async {
        let rules = two(
            "max_retries: 1, retryable_status_codes: [503], retryable_methods: [PUT], budget_percent: 1000",
        );
        let fake = Fake::new(&rules, [Say::Status(503), Say::Echo]);
        let mut request = put_with_length("/a", "payload");
        request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
        let got = fake.serve(request).await;
        assert_eq!((got.status, got.body.as_str()), (StatusCode::OK, "payload"));
    });
}
