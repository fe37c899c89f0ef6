//! Every setting has its effect on traffic.

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Field;
use gateway_core::plugin::entry;
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::testing::Machine;
use http::{Request, Response};
use serde_json::{Value, json};

mod grpc;
mod uploads;

use super::*;

const XSS: &str = "/?q=%3Cscript%3Ealert(1)%3C/script%3E";

fn trial(config: Value) -> Trial {
    Trial::new(&[entry::<Waf>()], "waf", config)
}

#[track_caller]
fn refused(config: &Value) -> Problems {
    Trial::refused(&[entry::<Waf>()], "waf", config)
}

/// A gateway whose machine has these files.
fn with_files(machine: &Machine, config: &Value) -> Trial {
    try_with_files(machine, config).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn try_with_files(machine: &Machine, config: &Value) -> Result<Trial, Problems> {
    let spec = json!({
        "proxies": [{"id": "p", "listen_path": "/", "backend_host": "t", "backend_port": 80}],
        "plugin_configs": [{"id": "w", "plugin_name": "waf", "scope": "proxy", "proxy_id": "p", "config": config}],
    });
    Trial::try_of_spec(&[entry::<Waf>()], &spec.to_string(), &machine.world())
}

async fn post(trial: &Trial, kind: &str, body: impl Into<Bytes>) -> Got {
    let request = Request::post("/").header("host", "h.example").header("content-type", kind);
    trial.send(request.body(Body::full(body.into())).unwrap()).await
}

fn field(trial: &Trial, name: &str) -> Option<String> {
    let records = trial.records();
    let (_, field) = records.last()?.fields.iter().find(|(known, _)| *known == name)?;
    Some(match field {
        Field::Text(text) => text.to_string(),
        Field::Number(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

#[tokio::test]
async fn an_attack_is_refused_without_a_reason_and_recorded_with_one() {
    let trial = trial(json!({}));
    let got = trial.get(XSS, &[]).await;
    assert_eq!(got.status, 400);
    for word in ["waf", "rule", "script", "1000300"] {
        assert!(!got.text().contains(word), "{}", got.text());
    }
    assert!(trial.asked().is_empty());
    assert_eq!(trial.records().pop().unwrap().reason, Some("waf_rejected"));
    assert_eq!(field(&trial, "waf.outcome").as_deref(), Some("refused"));
    assert_eq!(field(&trial, "waf.reason").as_deref(), Some("rules"));
    assert!(field(&trial, "waf.rules").unwrap().contains("1000300"));
    assert!(field(&trial, "waf.matches").unwrap().contains("ARGS:q: <script>"));
    assert!(field(&trial, "waf.score").unwrap().parse::<u64>().unwrap() >= 5);
    assert_eq!(trial.get("/?q=hello+world", &[]).await.status, 200);
    assert_eq!(field(&trial, "waf.outcome"), None);
}

#[tokio::test]
async fn bodies_are_inspected_and_forwarded_unchanged() {
    let trial = trial(json!({}));
    for (kind, body) in [
        ("application/json", "{\"a\":[\"<script>alert(1)</script>\"]}"),
        ("application/x-www-form-urlencoded", "a=%3Cscript%3Ealert(1)%3C/script%3E"),
        ("text/xml", "<a>&lt;script&gt;alert(1)</a>"),
    ] {
        assert_eq!(post(&trial, kind, body).await.status, 400, "{kind}");
    }
    assert_eq!(post(&trial, "application/json", "{\"a\": 1}").await.status, 200);
    assert_eq!(trial.asked()[0].body, "{\"a\": 1}");
}

#[tokio::test]
async fn modes() {
    let detect = trial(json!({"mode": "detect"}));
    assert_eq!(detect.get(XSS, &[]).await.status, 200);
    assert_eq!(field(&detect, "waf.outcome").as_deref(), Some("would_refuse"));
    let off = trial(json!({"mode": "off"}));
    assert_eq!(off.get(XSS, &[]).await.status, 200);
    assert_eq!(field(&off, "waf.rules"), None);
    let status = trial(json!({"deny_status": 403}));
    assert_eq!(status.get(XSS, &[]).await.status, 403);
}

#[tokio::test]
async fn what_cannot_be_inspected_is_refused_unless_settings_say_otherwise() {
    let big = vec![b'a'; 2000];
    let small = trial(json!({"body": {"max_size": 1000}}));
    assert_eq!(post(&small, "text/plain", big.clone()).await.status, 413);
    let pass = trial(json!({"body": {"max_size": 1000, "over_limit": "pass"}}));
    assert_eq!(post(&pass, "text/plain", big.clone()).await.status, 200);
    assert_eq!(pass.asked()[0].body.len(), 2000);
    assert_eq!(field(&pass, "waf.not_inspected").as_deref(), Some("large body"));

    let strict = trial(json!({}));
    assert_eq!(post(&strict, "application/json", "{").await.status, 400);
    assert_eq!(field(&strict, "waf.reason").as_deref(), Some("malformed_body"));
    let lax = trial(json!({"body": {"malformed": "pass"}}));
    assert_eq!(post(&lax, "application/json", "{").await.status, 200);
    assert_eq!(post(&lax, "application/json", "{<script>alert(1)</script>").await.status, 400);

    let coded = |trial: Trial| async move {
        let request = Request::post("/").header("host", "h").header("content-encoding", "gzip");
        trial.send(request.body(Body::full("x")).unwrap()).await.status
    };
    assert_eq!(coded(trial(json!({}))).await, 415);
    assert_eq!(coded(trial(json!({"body": {"encoded": "pass"}}))).await, 200);

    let blind = trial(json!({"body": {"inspect": false}}));
    assert_eq!(post(&blind, "application/json", "{<script>alert(1)</script>").await.status, 200);
}

#[tokio::test]
async fn limits_are_enforced() {
    let form = "application/x-www-form-urlencoded";
    for (limits, kind, body) in [
        (json!({"arguments": 2}), form, "a=1&b=2&c=3"),
        (json!({"json_depth": 2}), "application/json", "[[[1]]]"),
        (json!({"xml_depth": 2}), "text/xml", "<a><b><c></c></b></a>"),
        (
            json!({"parts": 1}),
            "multipart/form-data; boundary=B",
            "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n1\r\n--B--",
        ),
        (json!({"value_size": 64}), form, &format!("a={}", "b".repeat(65))),
    ] {
        let trial = trial(json!({ "limits": limits }));
        assert_eq!(post(&trial, kind, body.to_owned()).await.status, 400, "{limits}");
        let default = self::trial(json!({}));
        assert_eq!(post(&default, kind, body.to_owned()).await.status, 200, "{limits}");
    }
    let long = format!("/?a={}", "b%20-".repeat(300));
    let tight = trial(json!({"limits": {"budget": 1024}}));
    assert_eq!(tight.get(&long, &[]).await.status, 400);
    assert_eq!(field(&tight, "waf.reason").as_deref(), Some("limits"));
    let pass = trial(json!({"limits": {"budget": 1024, "exceeded": "pass"}}));
    assert_eq!(pass.get(&long, &[]).await.status, 200);
}

/// What PHP takes for a field is inspected as one.
#[tokio::test]
async fn a_part_that_is_a_file_to_some_readers_only_is_inspected() {
    let trial = trial(json!({}));
    for (parameters, status) in [
        ("name=\"q\"; filename=\"x.txt\"", 200),
        ("name=\"q\"; filename*=UTF-8''x.txt", 400),
        ("name=\"q\"; filename =\"x.txt\"", 400),
        ("name=\"q\"; a='; filename=x; b='", 400),
    ] {
        let body = format!(
            "--B\r\nContent-Disposition: form-data; {parameters}\r\n\r\n1 union select 2,3 from x\r\n--B--\r\n"
        );
        let fields = [("content-type", "multipart/form-data; boundary=B")];
        assert_eq!(trial.request("POST", "/", &fields, body).await.status, status, "{parameters}");
    }
}

#[tokio::test]
async fn rules_are_left_out_for_some_requests() {
    let config = json!({"exclusions": [
        {"when": {"path": "/editor"}, "tags": ["attack-xss"], "targets": ["ARGS:html"]},
        {"when": {"path": "/all"}, "rules": ["1000000-1999999"]},
    ]});
    let trial = trial(config);
    for (path, status) in [
        ("/editor?html=%3Cb%20onclick%3Dx%3E", 200),
        ("/editor?text=%3Cb%20onclick%3Dx%3E", 400),
        ("/other?html=%3Cb%20onclick%3Dx%3E", 400),
        ("/all?q=%3Cscript%3Ealert(1)%3C/script%3E", 200),
    ] {
        assert_eq!(trial.get(path, &[]).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn settings_choose_and_change_our_rules() {
    let markup = "/?q=%3Cb%3Ebold%3C/b%3E";
    assert_eq!(trial(json!({})).get(markup, &[]).await.status, 200);
    assert_eq!(trial(json!({"rules": {"profile": "aggressive"}})).get(markup, &[]).await.status, 400);
    assert_eq!(trial(json!({"rules": {"threshold": 1000}})).get(XSS, &[]).await.status, 200);
    assert_eq!(trial(json!({"rules": {"remove_tags": ["attack-xss"]}})).get(XSS, &[]).await.status, 200);
    assert_eq!(
        trial(json!({"rules": {"remove_rules": ["1000300-1000399"]}})).get(XSS, &[]).await.status,
        200
    );
}

#[tokio::test]
async fn shadow_rules_are_counted_and_refuse_nothing() {
    let trial = trial(json!({"shadow": {"profile": "aggressive"}}));
    assert_eq!(trial.get("/?q=%3Cb%3Ebold%3C/b%3E", &[]).await.status, 200);
    assert!(field(&trial, "waf.shadow.rules").unwrap().contains("1001003"));
    assert_eq!(field(&trial, "waf.shadow.would_refuse").as_deref(), Some("Flag(true)"));
}

#[tokio::test]
async fn matches_are_sampled() {
    let trial = trial(json!({"audit_sample": 0.0}));
    assert_eq!(trial.get(XSS, &[]).await.status, 400);
    assert_eq!(field(&trial, "waf.matches"), None);
    assert!(field(&trial, "waf.rules").is_some());
}

const RULES: &str = r#"
SecRule &TX:crs_setup_version "@eq 0" "id:901001,phase:1,deny,status:500"
SecRule &TX:inbound_anomaly_score_threshold "@eq 0" "id:901100,phase:1,pass,nolog,setvar:tx.inbound_anomaly_score_threshold=5"
SecRule &TX:outbound_anomaly_score_threshold "@eq 0" "id:901110,phase:1,pass,nolog,setvar:tx.outbound_anomaly_score_threshold=4"
SecRule &TX:blocking_paranoia_level "@eq 0" "id:901120,phase:1,pass,nolog,setvar:tx.blocking_paranoia_level=1"
SecRule &TX:detection_paranoia_level "@eq 0" "id:901125,phase:1,pass,nolog,setvar:tx.detection_paranoia_level=%{tx.blocking_paranoia_level}"
SecRule &TX:allowed_methods "@eq 0" "id:901160,phase:1,pass,nolog,setvar:'tx.allowed_methods=GET POST'"
SecRule &TX:allowed_request_content_type "@eq 0" "id:901162,phase:1,pass,nolog,setvar:'tx.allowed_request_content_type=|text/plain|'"
SecRule REQUEST_METHOD "!@within %{tx.allowed_methods}" "id:911100,phase:1,block,setvar:tx.inbound_anomaly_score_pl1=+5"
SecRule REQUEST_HEADERS:Content-Type "@rx ^[^;]+" "id:920420,phase:1,block,capture,setvar:'tx.kind=|%{tx.0}|',chain"
    SecRule TX:kind "!@within %{tx.allowed_request_content_type}" "setvar:tx.inbound_anomaly_score_pl1=+5"
SecRule ARGS "@pmFromFile words.data" "id:1,phase:2,block,setvar:tx.inbound_anomaly_score_pl1=+5"
SecRule TX:DETECTION_PARANOIA_LEVEL "@lt 2" "id:2,phase:2,pass,nolog,skipAfter:END"
SecRule ARGS "@rx two" "id:3,phase:2,block,setvar:tx.inbound_anomaly_score_pl2=+5"
SecMarker END
SecRule ARGS "@gt %{tx.max_length}" "id:4,phase:2,block,t:length,chain"
    SecRule &TX:max_length "@gt 0" "setvar:tx.inbound_anomaly_score_pl1=+5"
SecRule TX:BLOCKING_PARANOIA_LEVEL "@ge 1" "id:5,phase:2,pass,nolog,setvar:tx.score=+%{tx.inbound_anomaly_score_pl1}"
SecRule TX:BLOCKING_PARANOIA_LEVEL "@ge 2" "id:6,phase:2,pass,nolog,setvar:tx.score=+%{tx.inbound_anomaly_score_pl2}"
SecRule TX:score "@ge %{tx.inbound_anomaly_score_threshold}" "id:949110,phase:2,deny"
SecRule RESPONSE_BODY "@rx leak" "id:7,phase:4,block,setvar:tx.outbound_anomaly_score_pl1=+4"
SecRule RESPONSE_HEADERS:X-Leak "@rx ." "id:8,phase:3,block,setvar:tx.outbound_anomaly_score_pl1=+4"
SecRule TX:outbound_anomaly_score_pl1 "@ge %{tx.outbound_anomaly_score_threshold}" "id:959100,phase:4,deny"
"#;

fn machine() -> Machine {
    let machine = Machine::default();
    machine.files.put("/crs/rules/rules.conf", RULES);
    machine.files.put("/crs/rules/words.data", "evil\n");
    machine
}

#[tokio::test]
async fn a_folder_of_rules_is_used_with_its_settings() {
    let machine = machine();
    let status = async |rules: Value, path: &str| {
        let mut config = json!({"rules": {"crs": "/crs"}});
        for (name, value) in rules.as_object().unwrap() {
            config["rules"][name] = value.clone();
        }
        with_files(&machine, &config).get(path, &[]).await.status
    };
    assert_eq!(status(json!({}), "/?a=evil").await, 400);
    assert_eq!(status(json!({}), "/?a=two").await, 200);
    assert_eq!(status(json!({"threshold": 6}), "/?a=evil").await, 200);
    assert_eq!(status(json!({"paranoia_level": 2}), "/?a=two").await, 400);
    assert_eq!(status(json!({"detection_paranoia_level": 2}), "/?a=two").await, 200);
    assert_eq!(status(json!({"allowed_methods": ["PUT"]}), "/").await, 400);
    assert_eq!(status(json!({"variables": {"max_length": "3"}}), "/?a=four").await, 400);
    assert_eq!(status(json!({}), "/?a=four").await, 200);
    let kind = async |config: Value| post(&with_files(&machine, &config), "text/csv", "x").await.status;
    assert_eq!(kind(json!({"rules": {"crs": "/crs"}})).await, 400);
    assert_eq!(kind(json!({"rules": {"crs": "/crs", "allowed_content_types": ["text/csv"]}})).await, 200);
}

#[tokio::test]
async fn responses_are_inspected_where_wanted() {
    let machine = machine();
    let answer = |kind: &'static str, leaks: bool| {
        move |_: &gateway_core::testing::ReceivedRequest| {
            let mut response = Response::builder().header("content-type", kind);
            if leaks {
                response = response.header("x-leak", "1");
            }
            response.body(Body::full("a leak")).unwrap()
        }
    };
    let send = async |config: Value, kind, leaks| {
        with_files(&machine, &config).answering(answer(kind, leaks)).get("/", &[]).await.status
    };
    let with = |response: Value| json!({"rules": {"crs": "/crs"}, "response": response});
    assert_eq!(send(json!({"rules": {"crs": "/crs"}}), "text/html", false).await, 200);
    assert_eq!(send(with(json!({})), "text/html", false).await, 502);
    assert_eq!(send(with(json!({})), "image/png", false).await, 200);
    assert_eq!(send(with(json!({"content_types": ["image/png"]})), "image/png", false).await, 502);
    assert_eq!(send(with(json!({"max_size": 2})), "text/html", false).await, 200);
    assert_eq!(send(with(json!({"max_size": 0})), "image/png", true).await, 502);
    let mut lax = with(json!({}));
    lax["rules"]["outbound_threshold"] = json!(5);
    assert_eq!(send(lax, "text/html", false).await, 200);
    let mut detect = with(json!({}));
    detect["mode"] = json!("detect");
    let trial = with_files(&machine, &detect).answering(answer("text/html", false));
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert_eq!(field(&trial, "waf.reason").as_deref(), Some("response_rules"));
}

/// A gateway with response rules and one more plugin; the target leaks.
fn leaking(machine: &Machine, plugin: &str, config: &Value, coding: &'static str) -> Trial {
    let waf = json!({"rules": {"crs": "/crs"}, "response": {}});
    let spec = json!({
        "proxies": [{"id": "p", "listen_path": "/", "backend_host": "t", "backend_port": 80}],
        "plugin_configs": [
            {"id": "w", "plugin_name": "waf", "scope": "proxy", "proxy_id": "p", "config": waf},
            {"id": "x", "plugin_name": plugin, "scope": "proxy", "proxy_id": "p", "config": config},
        ],
    });
    let trial = Trial::try_of_spec(crate::PLUGINS, &spec.to_string(), &machine.world());
    let trial = trial.unwrap_or_else(|problems| panic!("{problems:?}"));
    trial.answering(move |_| {
        let response =
            Response::builder().header("content-type", "text/html").header("cache-control", "max-age=60");
        let response = if coding.is_empty() { response } else { response.header("content-encoding", coding) };
        response.body(Body::full("a leak ".repeat(200))).unwrap()
    })
}

#[tokio::test]
async fn responses_are_inspected_before_they_are_compressed() {
    let machine = machine();
    for coding in ["br", "gzip", "zstd"] {
        let trial = leaking(&machine, "compression", &json!({}), "");
        assert_eq!(trial.get("/", &[("accept-encoding", coding)]).await.status, 502, "{coding}");
        let asked = trial.asked();
        assert_eq!(asked.last().unwrap().headers.get("accept-encoding"), None, "the target answers in plain");
    }
    let good = leaking(&machine, "compression", &json!({}), "");
    let good = good.answering(|_| {
        let response = Response::builder().header("content-type", "text/html");
        response.body(Body::full("all is well ".repeat(200))).unwrap()
    });
    let got = good.get("/", &[("accept-encoding", "br")]).await;
    assert_eq!((got.status, got.field("content-encoding")), (200.try_into().unwrap(), "br"));
    // What comes compressed nevertheless is not seen, and the record says so.
    let stubborn = leaking(&machine, "compression", &json!({}), "br");
    assert_eq!(stubborn.get("/", &[("accept-encoding", "br")]).await.status, 200);
    assert_eq!(field(&stubborn, "waf.not_inspected").as_deref(), Some("compressed response"));
}

/// In pieces of a few bytes it would pass.
#[tokio::test]
async fn ranges_of_inspected_responses_are_not_asked_for() {
    let machine = machine();
    let ranges = [("range", "bytes=0-1"), ("if-range", "\"a\"")];
    for (response, is_whole) in [(json!({}), true), (json!({"max_size": 0}), false), (Value::Null, false)] {
        let config = json!({"rules": {"crs": "/crs"}, "response": response});
        let trial = with_files(&machine, &config);
        assert_eq!(trial.get("/", &ranges).await.status, 200, "{response}");
        let asked = trial.asked();
        let headers = &asked.last().unwrap().headers;
        assert_eq!((headers.get("range").is_none(), headers.get("if-range").is_none()), (is_whole, is_whole));
    }
    let cached = leaking(&machine, "response_cache", &json!({}), "").answering(|_| {
        let response =
            Response::builder().header("content-type", "text/html").header("cache-control", "max-age=60");
        response.body(Body::full("all is well")).unwrap()
    });
    for _ in 0..2 {
        let got = cached.get("/", &ranges[..1]).await;
        assert_eq!(
            (got.status, got.text()),
            (200.try_into().unwrap(), "all is well".into()),
            "also from the cache"
        );
    }
}

#[tokio::test]
async fn what_was_refused_is_not_given_out_again() {
    let machine = machine();
    let cached = leaking(&machine, "response_cache", &json!({}), "");
    for _ in 0..3 {
        let got = cached.get("/a", &[]).await;
        assert_eq!((got.status, got.text().contains("leak")), (502.try_into().unwrap(), false));
    }
    let kept = leaking(&machine, "request_deduplication", &json!({}), "");
    // The target has carried it out: a repetition is neither sent nor answered with what was refused.
    for status in [502, 409, 409] {
        let request = Request::post("/").header("host", "h.example").header("idempotency-key", "k1");
        let got = kept.send(request.body(Body::full("x=1")).unwrap()).await;
        assert_eq!((got.status, got.text().contains("leak")), (status.try_into().unwrap(), false));
    }
}

#[test]
fn rules_that_cannot_be_enforced_are_refused_with_file_and_line() {
    let machine = Machine::default();
    machine.files.put("/bad/a.conf", "\nSecRule ARGS \"@rx (\" \"id:1\"\n");
    let Err(problems) = try_with_files(&machine, &json!({"rules": {"crs": "/bad"}})) else { panic!("taken") };
    assert!(format!("{problems:?}").contains("/bad/a.conf:2"), "{problems:?}");
    let Err(problems) = try_with_files(&machine, &json!({"rules": {"crs": "/none"}})) else {
        panic!("taken")
    };
    assert!(format!("{problems:?}").contains("/none"), "{problems:?}");
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    for (config, says) in [
        (json!({"rules": {"profile": "balanced", "crs": "/crs"}}), "our own rules"),
        (json!({"rules": {"paranoia_level": 2}}), "needs `crs`"),
        (json!({"rules": {"allowed_methods": ["GET"]}}), "needs `crs`"),
        (json!({"rules": {"variables": {"x": "1"}}}), "needs `crs`"),
        (json!({"rules": {"remove_rules": ["x"]}}), "not a rule id"),
        (json!({"rules": {"remove_tags": ["("]}}), "not a pattern"),
        (json!({"exclusions": [{"rules": ["5"]}]}), "no active rule has `5`"),
        (json!({"exclusions": [{"targets": ["ARGS:x"]}]}), "`rules` or `tags`"),
        (json!({"exclusions": [{"rules": ["1000300"], "targets": ["NOPE"]}]}), "not supported"),
        (json!({"exclusions": [{"when": {"path": "~("}, "rules": ["1000300"]}]}), "exclusions[0].when"),
        (json!({"response": {}}), "none about responses"),
        (json!({"deny_status": 200}), "deny_status"),
        (json!({"body": {"max_size": 0}}), "max_size"),
        (json!({"audit_sample": 2.0}), "audit_sample"),
    ] {
        let problems = format!("{:?}", refused(&config));
        assert!(problems.contains(says), "{config}: {problems}");
    }
}

/// When every thread is busy, large requests do not pass uninspected.
#[tokio::test]
async fn it_fails_closed_when_it_cannot_inspect() {
    let machine = Machine::default();
    machine.threads.refuse();
    let body = format!("{{\"a\":\"{}\"}}", "b".repeat(4000));
    let block = with_files(&machine, &json!({}));
    assert_eq!(post(&block, "application/json", body.clone()).await.status, 503);
    let detect = with_files(&machine, &json!({"mode": "detect"}));
    assert_eq!(post(&detect, "application/json", body).await.status, 200);
}

#[test]
fn a_request_is_explained() {
    let trial = trial(json!({}));
    let got = trial
        .act("waf", "explain", &json!({"target": XSS, "headers": {"cookie": "sid=%3Cscript%3E"}}))
        .unwrap();
    assert_eq!(got["refused_by"], 1_000_900);
    assert!(got["score"].as_i64().unwrap() >= 5);
    let matches = got["matches"].as_array().unwrap();
    assert!(matches.iter().any(|found| found["variable"] == "ARGS:q" && found["score"].as_i64() >= Some(5)));
    assert!(
        matches.iter().all(|found| found["variable"] != "REQUEST_COOKIES:sid" || found["excerpt"] == "***")
    );
    let calm = trial.act("waf", "explain", &json!({"target": "/?q=1"})).unwrap();
    assert_eq!((calm["refused_by"].is_null(), calm["score"].as_i64()), (true, Some(0)));
    assert!(trial.act("waf", "explain", &json!({"taget": "/"})).is_err());
}

/// A message is text of the client, JSON or not.
#[test]
fn messages_are_judged() {
    let plugin =
        Waf::build(serde_json::from_value(json!({"websocket_messages": true})).unwrap(), &World::default());
    let plugin = plugin.unwrap_or_else(|problems| panic!("{problems:?}"));
    let passes = |payload: &str| {
        let mut transaction = plugin.0.transaction();
        transaction.message(payload.as_bytes());
        plugin.0.objection(&transaction).is_none()
    };
    assert!(passes("{\"op\":\"subscribe\"}") && passes("hello"));
    assert!(!passes("{\"op\":\"<script>alert(1)</script>\"}") && !passes("<script>alert(1)</script>"));
}
