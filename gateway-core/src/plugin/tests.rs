//! Every hook and everything it may decide, through the real pipeline.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::config::consumer::Identity;
use crate::http::body::{Body, BodyError};
use crate::http::exchange::{Exchange, Field};
use crate::http::reply::{Cause, Reply};
use crate::record::ExchangeRecord;
use crate::testing::{Got, Trial};

mod conditions;
mod placement;

/// What a probe does in each of its hooks: a word, or nothing.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Script {
    /// What it is called in headers.
    name: String,
    /// In `Authenticate`.
    authenticate: String,
    /// In `OnRequest`.
    request: String,
    /// In `OnAttempt`.
    attempt: String,
    /// In `OnResponse`.
    response: String,
    /// In `OnEnd`.
    end: String,
}

static ENDED: AtomicU32 = AtomicU32::new(0);

/// Declares a plugin that follows a [`Script`].
macro_rules! probe {
    ($type:ident, $name:literal) => {
        struct $type(Script);

        impl Plugin for $type {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "Does what its script says.";
            type Config = Script;

            fn build(script: Script, _: &World) -> Result<Self, Problems> {
                Ok(Self(script))
            }

            fn attend(self: Arc<Self>, hooks: &mut Hooks) {
                let Script { authenticate, request, attempt, response, end, .. } = &self.0;
                if !authenticate.is_empty() {
                    hooks.authenticate(self.clone());
                }
                if !request.is_empty() {
                    hooks.on_request(self.clone());
                }
                if !attempt.is_empty() {
                    hooks.on_attempt(self.clone());
                }
                if !response.is_empty() {
                    hooks.on_response(self.clone());
                }
                if !end.is_empty() {
                    hooks.on_end(self.clone());
                }
                if request.starts_with("choose") {
                    hooks.may_choose("other");
                }
            }
        }

        impl Authenticate for $type {
            fn authenticate<'a>(&'a self, _: &'a mut Exchange, _: Seat<'a>) -> Claim<'a> {
                let challenge = || {
                    let value = HeaderValue::from_str(&self.0.name).expect("a name");
                    let reply = Reply::new(Cause::Unauthenticated);
                    Box::new(reply.header(http::header::WWW_AUTHENTICATE, value))
                };
                match &*self.0.authenticate {
                    "absent" => Claim::Absent(Some(challenge())),
                    "refuse" => Claim::Refused(challenge()),
                    "wait" => Claim::wait(async {
                        tokio::task::yield_now().await;
                        Finding::Caller(Arc::new(Identity::external("waited")))
                    }),
                    "for ever" => Claim::wait(std::future::pending()),
                    "nobody" => Claim::Anonymous(Arc::new(Identity::external("anonymous"))),
                    "answer" => Claim::wait(async {
                        Finding::Answered(Box::new(Reply::fixed(StatusCode::IM_A_TEAPOT, "tea")))
                    }),
                    name => Claim::Caller(Arc::new(Identity::external(name))),
                }
            }
        }

        impl OnRequest for $type {
            fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
                request(&self.0, exchange, seat)
            }
        }

        impl OnAttempt for $type {
            fn on_attempt<'a>(
                &'a self,
                exchange: &'a mut Exchange,
                attempt: Attempt<'a>,
                seat: Seat<'a>,
            ) -> Step<'a> {
                assert!(std::ptr::eq(seat.target().expect("a target"), attempt.target));
                if self.0.attempt == "refuse" {
                    return Step::reply(Reply::new(Cause::Forbidden));
                }
                let value = format!("{} {}", attempt.number, attempt.target.authority());
                let value = HeaderValue::from_str(&value).expect("a value");
                exchange.request.headers.insert("x-attempt", value);
                Step::Next
            }
        }

        impl OnResponse for $type {
            fn on_response<'a>(
                &'a self,
                exchange: &'a mut Exchange,
                response: &'a mut Response<Body>,
                seat: Seat<'a>,
            ) -> Step<'a> {
                respond(&self.0, exchange, response, seat)
            }
        }

        impl OnEnd for $type {
            fn on_end(&self, record: &ExchangeRecord<'_>, seat: Seat<'_>) {
                assert_eq!(seat.proxy().id.as_str(), record.route.expect("a route").proxy.id.as_str());
                ENDED.fetch_add(1, Relaxed);
                assert_ne!(self.0.end, "panic", "a defect of the plugin");
            }
        }
    };
}

probe!(First, "first");
probe!(Second, "second");

const PROBES: &[Entry] = &[entry::<First>(), entry::<Second>()];

fn request<'a>(script: &'a Script, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
    match &*script.request {
        "reply" => Step::reply(Reply::fixed(StatusCode::IM_A_TEAPOT, "tea").reason("teapot")),
        "fine" => Step::reply(Reply::fixed(StatusCode::OK, "fine")),
        "wait" => Step::wait(async {
            tokio::task::yield_now().await;
            exchange.request.headers.insert("x-waited", HeaderValue::from_static("1"));
            Verdict::Next
        }),
        "wait and reply" => Step::wait(async {
            tokio::task::yield_now().await;
            Verdict::reply(Reply::new(Cause::Forbidden))
        }),
        "for ever" => Step::wait(std::future::pending()),
        "panic" => panic!("a defect of the plugin"),
        "panic later" => Step::wait(async {
            tokio::task::yield_now().await;
            panic!("a defect of the plugin")
        }),
        "choose" => {
            exchange.choose_upstream(Arc::from("other"));
            Step::Next
        }
        "choose unknown" => {
            exchange.choose_upstream(Arc::from("nobody"));
            Step::Next
        }
        "note" => {
            exchange.note("probe.name", &*script.name);
            exchange.note("probe.number", 7);
            Step::Next
        }
        "refuse body" => {
            let body = std::mem::take(&mut exchange.body);
            exchange.body = body
                .map(|_| Err(BodyError::Refused(Box::new(Reply::new(Cause::Forbidden).reason("bad_body")))));
            Step::Next
        }
        "stream" => {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-end", HeaderValue::from_static("1"));
            let body = Body::full_with_trailers("streamed", trailers);
            Step::reply(Reply::response(Response::new(body)))
        }
        _ => {
            exchange.state.put(seat, script.name.clone());
            Step::Next
        }
    }
}

fn respond<'a>(
    script: &'a Script,
    exchange: &'a Exchange,
    response: &'a mut Response<Body>,
    seat: Seat<'a>,
) -> Step<'a> {
    match &*script.response {
        "reply" => return Step::reply(Reply::new(Cause::Forbidden).reason("late")),
        "panic" => panic!("a defect of the plugin"),
        "for ever" => return Step::wait(std::future::pending()),
        "state" => {
            let kept = exchange.state.of::<String>(seat).cloned().unwrap_or_default();
            response.headers_mut().append("x-state", HeaderValue::from_str(&kept).expect("a value"));
        }
        "origin" => {
            let from = if exchange.is_from_target() { "target" } else { "gateway" };
            response.headers_mut().insert("x-origin", HeaderValue::from_static(from));
        }
        _ => {
            response.headers_mut().append("x-seen", HeaderValue::from_str(&script.name).expect("a name"));
        }
    }
    Step::Next
}

fn trial(plugins: &[(&str, Value)]) -> Trial {
    Trial::of_plugins(PROBES, plugins)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

fn all<'g>(got: &'g Got, name: &str) -> Vec<&'g str> {
    got.headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect()
}

#[test]
fn a_hook_that_waits_goes_on_where_it_was() {
    run(async {
        let trial = trial(&[("first", json!({ "request": "wait" }))]);
        assert_eq!(trial.get("/", &[]).await.status, 200);
        assert_eq!(trial.asked()[0].field("x-waited"), "1");
    });
}

#[test]
fn a_hook_that_waits_may_reply() {
    run(async {
        let trial = trial(&[("first", json!({ "request": "wait and reply" }))]);
        assert_eq!(trial.get("/", &[]).await.status, 403);
        assert!(trial.asked().is_empty());
    });
}

#[test]
fn a_hook_that_never_decides_is_a_504_with_and_without_a_total_timeout() {
    run(async {
        for (hook, total) in [
            ("request", ""),
            ("authenticate", ""),
            ("response", ""),
            ("request", ", total_timeout: 100ms"),
            ("response", ", total_timeout: 100ms"),
        ] {
            let spec = format!(
                "proxies: [{{id: a, listen_path: /, backend_scheme: http, backend_host: t, backend_port: 80{total}}}]\n\
                 plugin_configs: [{{id: p, plugin_name: first, proxy_id: a, config: {{{hook}: for ever}}}}]\n"
            );
            let trial = Trial::of_spec(PROBES, &spec, &World::default());
            assert_eq!(trial.get("/", &[]).await.status, 504, "{spec}");
            assert_eq!(trial.records().len(), 1);
        }
    });
}

#[test]
fn a_panic_is_a_recorded_500_and_nothing_else_ends() {
    run(async {
        for script in [
            json!({ "request": "panic" }),
            json!({ "request": "panic later" }),
            json!({ "response": "panic" }),
        ] {
            let trial = trial(&[("first", script.clone())]).with_panics();
            assert_eq!(trial.get("/", &[]).await.status, 500, "{script}");
            let [record] = &trial.records()[..] else { panic!("one record") };
            assert_eq!((record.status, record.reason), (500, Some("internal")), "{script}");
        }
    });
}

#[test]
fn a_panic_over_the_record_costs_nobody_else_the_record() {
    run(async {
        let trial = trial(&[("first", json!({ "end": "panic" })), ("second", json!({ "end": "count" }))]);
        let trial = trial.with_panics();
        let before = ENDED.load(Relaxed);
        assert_eq!(trial.get("/", &[]).await.status, 200);
        assert!(ENDED.load(Relaxed) >= before + 2, "the plugin after it sees the record");
        assert_eq!(trial.records().len(), 1);
    });
}

#[test]
fn each_seat_has_a_state_of_its_own() {
    run(async {
        let script = |name: &str| json!({ "name": name, "request": "keep", "response": "state" });
        let trial = trial(&[("first", script("one")), ("first", script("two"))]);
        let got = trial.get("/", &[]).await;
        assert_eq!(all(&got, "x-state"), ["two", "one"], "last first");
    });
}

#[test]
fn a_reply_from_a_response_hook_keeps_its_reason_and_the_headers_of_the_others() {
    run(async {
        let trial = trial(&[
            ("first", json!({ "name": "outer", "response": "mark" })),
            ("second", json!({ "response": "reply" })),
            ("second", json!({ "name": "inner", "response": "mark" })),
        ]);
        let got = trial.get("/", &[]).await;
        assert_eq!((got.status, all(&got, "x-seen")), (403, vec!["inner", "outer"]));
        let record = trial.records().remove(0);
        assert_eq!(
            (record.cause, record.reason, record.is_error),
            (Some(Cause::Forbidden), Some("late"), true)
        );
    });
}

#[test]
fn response_hooks_can_tell_who_answered() {
    run(async {
        let origin = ("second", json!({ "request": "keep", "response": "origin" }));
        let answered = trial(&[origin]).get("/", &[]).await;
        assert_eq!(answered.field("x-origin"), "target");
        let spec = "proxies: [{id: a, listen_path: /, backend_scheme: http, backend_host: t, backend_port: 80}]\n\
                    plugin_configs: [{id: p, plugin_name: first, proxy_id: a, config: {response: origin, request: reply}}]";
        let refused = Trial::of_spec(PROBES, spec, &World::default()).get("/", &[]).await;
        assert_eq!((refused.status, refused.field("x-origin")), (418, "gateway"));
    });
}

#[test]
fn an_answer_on_purpose_is_no_error() {
    run(async {
        for (request, status, is_error, reason) in
            [("fine", 200, false, "plugin"), ("reply", 418, true, "teapot")]
        {
            let trial = trial(&[("first", json!({ "request": request }))]);
            assert_eq!(trial.get("/", &[]).await.status, status);
            let record = trial.records().remove(0);
            assert_eq!((record.is_error, record.reason), (is_error, Some(reason)), "{request}");
        }
    });
}

#[test]
fn a_reply_may_stream_and_carry_trailers() {
    run(async {
        let trial = trial(&[("first", json!({ "request": "stream" }))]);
        let got = trial.get("/", &[]).await;
        assert_eq!(got.text(), "streamed");
        assert_eq!(got.trailers.expect("trailers")["x-end"], "1");
    });
}

#[test]
fn every_attempt_is_seen_with_its_target() {
    run(async {
        let spec = "proxies: [{id: a, listen_path: /, backend_scheme: http, upstream_id: u, \
                    retry: {max_retries: 1, retryable_status_codes: [503]}}]\n\
                    upstreams: [{id: u, targets: [{host: one, port: 1}, {host: two, port: 2}]}]\n\
                    plugin_configs: [{id: p, plugin_name: first, proxy_id: a, config: {attempt: mark}}]";
        let trial = Trial::of_spec(PROBES, spec, &World::default()).answering(|asked| {
            let status = if asked.field("x-attempt").starts_with('1') { 503 } else { 200 };
            Response::builder().status(status).body(Body::empty()).expect("a response")
        });
        assert_eq!(trial.get("/", &[]).await.status, 200);
        let seen: Vec<String> =
            trial.asked().iter().map(|asked| asked.field("x-attempt").to_owned()).collect();
        let expected: Vec<String> = trial
            .asked()
            .iter()
            .enumerate()
            .map(|(n, asked)| format!("{} {}", n + 1, asked.authority))
            .collect();
        assert_eq!((seen, trial.asked().len()), (expected, 2));
    });
}

#[test]
fn an_attempt_hook_may_answer_instead() {
    run(async {
        let trial = trial(&[("first", json!({ "attempt": "refuse" }))]);
        assert_eq!(trial.get("/", &[]).await.status, 403);
        assert!(trial.asked().is_empty());
    });
}

#[test]
fn a_plugin_chooses_among_the_upstreams_it_declared() {
    run(async {
        for (request, status) in [("choose", 200), ("choose unknown", 503)] {
            let spec = format!(
                "proxies: [{{id: a, listen_path: /, backend_scheme: http, backend_host: t, backend_port: 80}}]\n\
                 upstreams: [{{id: other, targets: [{{host: elsewhere, port: 9}}]}}]\n\
                 plugin_configs: [{{id: p, plugin_name: first, proxy_id: a, config: {{request: {request}}}}}]"
            );
            let trial = Trial::of_spec(PROBES, &spec, &World::default());
            assert_eq!(trial.get("/", &[]).await.status, status, "{request}");
            let asked: Vec<String> = trial.asked().into_iter().map(|asked| asked.authority).collect();
            assert_eq!(asked.is_empty(), status == 503);
            assert!(asked.iter().all(|authority| authority == "elsewhere:9"), "{asked:?}");
        }
    });
}

#[test]
fn fields_of_plugins_are_recorded() {
    run(async {
        let trial = trial(&[("first", json!({ "request": "note", "name": "x" }))]);
        trial.get("/", &[]).await;
        let expected = [("probe.name", Field::from("x")), ("probe.number", Field::Number(7))];
        assert_eq!(trial.records()[0].fields, expected);
    });
}

#[test]
fn a_body_wrapper_refuses_with_its_own_reply() {
    run(async {
        let trial = trial(&[("first", json!({ "request": "refuse body" }))]);
        let got = trial.request("POST", "/", &[], "body").await;
        assert_eq!(got.status, 403);
        assert_eq!(trial.records()[0].reason, Some("bad_body"));
    });
}

#[test]
fn several_ways_to_be_recognised() {
    run(async {
        for (mode, first, second, expected) in [
            ("single", "absent", "bob", "200 bob"),
            ("single", "refuse", "bob", "401 one"),
            ("multi", "refuse", "bob", "200 bob"),
            ("multi", "wait", "bob", "200 waited"),
            ("multi", "refuse", "absent", "401 two one"),
            // Nobody is anonymous who shows a credential.
            ("single", "nobody", "bob", "200 bob"),
            ("single", "nobody", "refuse", "401 two"),
            ("single", "nobody", "absent", "200 anonymous"),
            ("single", "absent", "nobody", "200 anonymous"),
            ("multi", "nobody", "bob", "200 bob"),
            ("multi", "nobody", "refuse", "401 two"),
            ("multi", "refuse", "nobody", "401 one"),
            ("all, same_caller: false", "bob", "nobody", "200 anonymous"),
            ("all", "bob", "nobody", "403 "),
            // What a plugin answers itself is the answer.
            ("single", "answer", "bob", "418 "),
            ("multi", "answer", "bob", "418 "),
            ("multi", "nobody", "answer", "418 "),
            ("all", "bob", "answer", "418 "),
            ("single", "absent", "absent", "401 two one"),
            ("all, same_caller: false", "bob", "wait", "200 waited"),
            ("all, same_caller: false", "wait", "bob", "200 bob"),
            ("all", "wait", "bob", "403 "),
            ("all", "bob", "bob", "200 bob"),
            ("all", "bob", "absent", "401 two"),
            ("all", "bob", "refuse", "401 two"),
            ("all", "absent", "bob", "401 one"),
            ("all", "refuse", "bob", "401 one"),
        ] {
            let spec = format!(
                "proxies: [{{id: a, listen_path: /, backend_scheme: http, backend_host: t, backend_port: 80, auth_mode: {mode}}}]\n\
                 plugin_configs:\n\
                 - {{id: p, plugin_name: first, proxy_id: a, config: {{name: one, authenticate: {first}}}}}\n\
                 - {{id: q, plugin_name: second, proxy_id: a, config: {{name: two, authenticate: {second}}}}}\n"
            );
            let trial = Trial::of_spec(PROBES, &spec, &World::default());
            let got = trial.get("/", &[]).await;
            let caller = trial.records()[0].caller.clone();
            let detail = match got.status {
                200 => caller.expect("a caller").to_string(),
                _ => all(&got, "www-authenticate").join(" "),
            };
            assert_eq!(format!("{} {detail}", got.status), expected, "{mode} {first} {second}");
        }
    });
}
