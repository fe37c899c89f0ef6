//! Each part of a status document that reports trouble becomes one finding.

use serde_json::{Value, json};

use super::Findings;

/// A status document, and the findings that it leads to: level, code, about, and a part of the message.
struct Case(Value, &'static [[&'static str; 4]]);

fn failing(plugin: &str, config: &str, task: &str) -> Value {
    json!({ "tasks": [{ "plugin": plugin, "plugin_config": config, "task": task,
        "failing_since": "2026-11-28T17:59:49.5Z", "last_error": "no route" }] })
}

fn warning(code: &str, path: &str) -> Value {
    json!({ "list": [{ "code": code, "path": path, "message": "m", "remedy": "r" }] })
}

#[test]
fn each_trouble_is_one_finding_with_its_cause() {
    let since = "2026-11-28T17:59:49.5Z";
    let sink = json!([{ "name": "s1", "failing_since": since, "last_error": "connect_failed" }]);
    let down = |last_error: Value| json!([{ "name": "main", "up": false, "last_error": last_error }]);
    let overload = json!({ "level": "refuse_most", "memory_bytes": 18_038_784, "memory_limit_bytes": 5 << 20,
        "descriptors": 40, "descriptor_limit": null, "delay_seconds": 0.0 });
    let cases = [
        Case(
            json!({ "overload": overload }),
            &[[
                "error",
                "overloaded",
                "gateway.overload",
                "memory 17.2 MiB of 5.0 MiB, file descriptors 40, without a limit",
            ]],
        ),
        Case(
            json!({ "redis": down(json!("Connection refused")) }),
            &[["error", "redis_down", "gateway.redis.main", "Connection refused"]],
        ),
        Case(
            json!({ "redis": down(Value::Null) }),
            &[["error", "redis_down", "gateway.redis.main", "the cause is not known yet"]],
        ),
        Case(json!({ "redis": [{ "name": "main", "up": true, "last_error": null }] }), &[]),
        // A sink runs as a task does, and is reported once.
        Case(
            json!({ "log_sinks": sink, "plugin_tasks": failing("access_log", "s1", "send") }),
            &[["error", "sink_failing", "gateway.access_log.sinks s1", "connect_failed"]],
        ),
        Case(
            json!({ "plugin_tasks": failing("metrics", "otlp", "push") }),
            &[["error", "metrics_push_failing", "gateway.metrics.otlp", "no route"]],
        ),
        Case(
            json!({ "plugin_tasks": failing("jwks_auth", "keys", "refresh") }),
            &[["error", "plugin_task_failing", "plugin_configs.keys refresh", "no route"]],
        ),
        Case(
            json!({ "warnings": warning("certificate_expired", "gateway.tls.certificates[0]") }),
            &[["error", "certificate_expired", "gateway.tls.certificates[0]", "m"]],
        ),
        Case(
            json!({ "warnings": warning("certificate_expires", "gateway.tls.certificates[0]") }),
            &[["warning", "certificate_expires", "gateway.tls.certificates[0]", "m"]],
        ),
        Case(
            json!({ "database": { "last_good": { "path": "/var/copy", "problem": "read-only file system" } } }),
            &[["error", "last_good_unsaved", "/var/copy", "read-only file system"]],
        ),
        Case(json!({ "database": { "last_good": { "path": "/var/copy", "problem": null } } }), &[]),
    ];
    for Case(part, wanted) in cases {
        let mut status = json!({ "overload": { "level": "normal" } });
        status.as_object_mut().expect("an object").extend(part.as_object().expect("an object").clone());
        let document = Findings::of(&status).document();
        let found = document["list"].as_array().expect("a list");
        assert_eq!(found.len(), wanted.len(), "{part}: {document}");
        for (finding, [level, code, about, message]) in found.iter().zip(wanted) {
            let named = (&finding["level"], &finding["code"], &finding["about"]);
            assert_eq!(named, (&json!(level), &json!(code), &json!(about)), "{part}");
            assert!(finding["message"].as_str().is_some_and(|text| text.contains(message)), "{finding}");
            assert_ne!(finding["remedy"], "", "{finding}");
        }
    }
}
