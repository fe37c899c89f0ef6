//! Which deadline a call has, and who is told of it.

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use serde_json::{Value, json};

use super::*;
use crate::content::fault_injection::FaultInjection;

fn trial(config: Value) -> Trial {
    Trial::new(&[entry::<GrpcDeadline>()], "grpc_deadline", config)
}

/// What the target is told, or the gRPC status.
async fn told(trial: &Trial, timeout: Option<&str>) -> Result<String, String> {
    let mut fields = vec![("content-type", "application/grpc")];
    fields.extend(timeout.map(|timeout| ("grpc-timeout", timeout)));
    let before = trial.asked().len();
    let got = trial.request("POST", "/s.S/M", &fields, "").await;
    match trial.asked().get(before) {
        Some(asked) => Ok(asked.field("grpc-timeout").to_owned()),
        None => Err(got.field("grpc-status").to_owned()),
    }
}

#[tokio::test(start_paused = true)]
async fn deadlines_are_given_kept_and_shortened() {
    let both = trial(json!({ "default_deadline": "2s", "max_deadline": "10s" }));
    for (sent, expected) in
        [(None, "2000000u"), (Some("5S"), "5000000u"), (Some("60S"), "10000000u"), (Some("100m"), "100000u")]
    {
        assert_eq!(told(&both, sent).await, Ok(expected.to_owned()), "{sent:?}");
    }
    let max = trial(json!({ "max_deadline": "30m" }));
    assert_eq!(told(&max, None).await, Ok("1800000m".to_owned()), "a call without any has the longest");
    let default = trial(json!({ "default_deadline": "2s" }));
    assert_eq!(told(&default, Some("23H")).await, Ok("82800000m".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_good_deadline_may_be_refused() {
    let strict = trial(json!({ "require_deadline": true }));
    assert_eq!(told(&strict, None).await, Err("3".to_owned()));
    assert_eq!(strict.records()[0].reason, Some("grpc_deadline_missing"));
    assert_eq!(told(&strict, Some("1S")).await, Ok("1000000u".to_owned()));
    let lax = trial(json!({ "max_deadline": "1s" }));
    for bad in ["", "S", "1", "123456789S", "-1S", "1s", "1 S", "0x1S"] {
        assert_eq!(told(&lax, Some(bad)).await, Err("3".to_owned()), "{bad}");
    }
    assert_eq!(lax.records()[0].reason, Some("grpc_timeout_malformed"));
    assert_eq!(told(&lax, Some("0S")).await, Err("4".to_owned()), "over before it began");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_grpc_passes_untouched() {
    let trial = trial(json!({ "require_deadline": true }));
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert_eq!(trial.asked()[0].field("grpc-timeout"), "");
}

#[tokio::test(start_paused = true)]
async fn the_call_ends_at_the_deadline_and_the_target_hears_what_is_left() {
    let entries = [entry::<GrpcDeadline>(), entry::<FaultInjection>()];
    let delayed = |config: Value, delay: u64| {
        let delay = json!({ "delay": { "percentage": 100, "duration_ms": delay } });
        Trial::of_plugins(&entries, &[("grpc_deadline", config), ("fault_injection", delay)])
    };
    let late = delayed(json!({ "default_deadline": "1s" }), 1500);
    let begun = Instant::now();
    assert_eq!(told(&late, None).await, Err("4".to_owned()), "between the plugins");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let late = delayed(json!({ "default_deadline": "1s" }), 400);
    assert_eq!(told(&late, None).await, Ok("600000u".to_owned()));
    let whole = delayed(json!({ "default_deadline": "1s", "subtract_elapsed": false }), 400);
    assert_eq!(told(&whole, None).await, Ok("1000000u".to_owned()));
}

#[test]
fn timeouts_are_written_as_grpc_has_them() {
    for (left, text) in [
        (Duration::from_nanos(1), "1u"),
        (Duration::from_micros(1500), "1500u"),
        (Duration::from_secs(99), "99000000u"),
        (Duration::from_secs(100), "100000m"),
        (Duration::from_secs(86_400), "86400000m"),
        (Duration::from_secs(200_000), "200000S"),
    ] {
        assert_eq!(written(left), text);
    }
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({}), "config"),
        (json!({ "default_deadline": "2s", "max_deadline": "1s" }), "config.default_deadline"),
        (json!({ "default_deadline": "2s", "require_deadline": true }), "config.default_deadline"),
        (json!({ "max_deadline": 0 }), "config.max_deadline"),
        (json!({ "max_deadline": "25h" }), "config.max_deadline"),
    ] {
        let problems = Trial::refused(&[entry::<GrpcDeadline>()], "grpc_deadline", &config);
        assert_eq!(problems.0[0].path, path, "{problems}");
    }
}
