//! Modules that can't be used, fail, or never end.

use std::time::Instant;

use super::*;

/// A module, its settings, and what is wrong with them where.
type Case = (Vec<u8>, Value, &'static str, &'static str);

fn modules() -> Vec<Case> {
    let wat = |source: &str| wat::parse_str(source).unwrap();
    let says = r#"(func (export "proxy_abi_version_0_2_1")) (memory (export "memory") 1)"#;
    let no = r#"(param i32 i32) (result i32) (i32.const 0)"#;
    vec![
        (b"\0asm".to_vec(), json!({}), "config.path", "m.wasm: "),
        (wat("(module)"), json!({}), "config.path", "ABI 0.2"),
        (wat(r#"(module (func (export "proxy_abi_version_0_2_1")))"#), json!({}), "config.path", "memory"),
        (
            wat(&format!(r#"(module (import "env" "proxy_new" (func)) {says})"#)),
            json!({}),
            "config.path",
            "proxy_new",
        ),
        (
            wat(&format!(
                r#"(module {says} (func (export "proxy_on_request_headers") (param i32 i32) (result i32) (i32.const 0)))"#
            )),
            json!({}),
            "config.path",
            "`proxy_on_request_headers` has other parameters",
        ),
        (
            wat(&format!("(module {says} (func (export \"proxy_on_vm_start\") {no}))")),
            json!({}),
            "config.path",
            "`vm_settings`",
        ),
        (
            wat(&format!("(module {says} (func (export \"proxy_on_configure\") {no}))")),
            json!({}),
            "config.path",
            "refuses `settings`",
        ),
        (
            wat(&format!("(module {says} (func (export \"_start\") (unreachable)))")),
            json!({}),
            "config.path",
            "unreachable",
        ),
        (
            wat(&format!("(module {says} (func (export \"_start\") (loop $l (br $l))))")),
            json!({ "start_timeout": "10ms" }),
            "config.path",
            "longer than it may",
        ),
        (
            wat(r#"(module (func (export "proxy_abi_version_0_2_1")) (memory (export "memory") 100))"#),
            json!({ "max_memory": 65536 }),
            "config.path",
            "memory",
        ),
    ]
}

fn settings() -> Vec<Case> {
    let wat = |source: &str| wat::parse_str(source).unwrap();
    let says = r#"(func (export "proxy_abi_version_0_2_1")) (memory (export "memory") 1)"#;
    vec![
        (
            wat(&format!("(module {says})")),
            json!({ "sha256": "0".repeat(64) }),
            "config.sha256",
            "has the SHA-256",
        ),
        (wat(&format!("(module {says})")), json!({ "sha256": "0" }), "config.sha256", "is not a SHA-256"),
        (
            wat(&format!("(module {says})")),
            json!({ "environment": { "A=B": "" } }),
            "config.environment.A=B",
            "variable",
        ),
        (
            wat(&format!("(module {says})")),
            json!({ "calls": { "a": { "url": "http://a/path" } } }),
            "config.calls.a.url",
            "has no path",
        ),
        (wat(&format!("(module {says})")), json!({ "path": "" }), "config.path", "required"),
        (wat(&format!("(module {says})")), json!({ "path": "/none" }), "config.path", "can't be read"),
    ]
}

#[test]
fn modules_that_cannot_be_used_are_refused() {
    for (bytes, config, path, expected) in modules().into_iter().chain(settings()) {
        let disk = Arc::<Disk>::default();
        disk.write("m.wasm", bytes);
        let registry = gateway_core::plugin::Registry::new(&[WASM])
            .with_world(world(|_, _| Err(Cause::ConnectFailed), disk));
        let mut full = json!({ "path": "m.wasm" });
        full.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        let Err(problems) = registry.build("wasm", None, &full) else { panic!("{config} is taken") };
        assert_eq!(problems.0[0].path, path, "{config}: {problems}");
        assert!(problems.0[0].message.contains(expected), "{config}: {problems}");
    }
}

#[tokio::test]
async fn the_digest_of_a_module_is_checked() {
    let module = module("");
    use sha2::Digest as _;
    let digest: String = sha2::Sha256::digest(&module).iter().map(|byte| format!("{byte:02X}")).collect();
    let (trial, _) = calling(module, json!({ "sha256": digest }), |_, _| Err(Cause::ConnectFailed));
    assert_eq!(trial.get("/", &[]).await.status, 200);
}

/// Fails for some paths: `/t…` traps, `/l…` never ends.
const FAILS: &str = r#"
  (global $seen (mut i32) (i32.const 48))
  (func $first (result i32)
    (drop (call $get (i32.const 0) {{:path}} (i32.const 0) (i32.const 4)))
    (i32.load8_u offset=1 (i32.load (i32.const 0))))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (global.set $seen (i32.add (global.get $seen) (i32.const 1)))
    (i32.store8 (i32.const 64) (global.get $seen))
    (drop (call $set (i32.const 0) {{x-seen}} (i32.const 64) (i32.const 1)))
    (if (i32.eq (call $first) (i32.const 116)) (then (unreachable)))
    (if (i32.eq (call $first) (i32.const 108)) (then (loop $l (br $l))))
    (i32.const 0))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (if (i32.eqz (call $get (i32.const 0) {{x-fail}} (i32.const 0) (i32.const 4))) (then (unreachable)))
    (i32.const 0))"#;

#[tokio::test]
async fn a_failure_costs_one_request_and_the_instance_is_replaced() {
    let trial = trial(FAILS, json!({ "timeout": "10ms" }));
    for (path, expected, seen) in [
        ("/a", 200, "1"),
        ("/a", 200, "2"),
        ("/t", 500, ""),
        ("/a", 200, "1"),
        ("/loop", 500, ""),
        ("/a", 200, "1"),
    ] {
        let before = trial.asked().len();
        let begun = Instant::now();
        let got = trial.get(path, &[]).await;
        assert_eq!(got.status, expected, "{path}");
        assert!(begun.elapsed().as_millis() < 1000, "{path}: {:?}", begun.elapsed());
        let asked = trial.asked().get(before).map(|asked| asked.field("x-seen").to_owned());
        assert_eq!(asked.unwrap_or_default(), seen, "{path}");
    }
    assert_eq!(trial.records()[2].reason, Some("wasm_failed"));
    assert_eq!(trial.get("/a", &[("x-fail", "1")]).await.status, 500, "in its response");
    assert_eq!(trial.get("/a", &[]).await.status, 200);
}

#[tokio::test]
async fn a_failure_lets_pass_where_that_is_asked_for() {
    let trial = trial(FAILS, json!({ "timeout": "10ms", "on_error": "open" }));
    for path in ["/t", "/loop"] {
        let got = trial.request("POST", path, &[], "body").await;
        assert_eq!((got.status, got.text().as_str()), (200, "ok"), "{path}");
        let asked = trial.asked().pop().unwrap();
        assert_eq!((&asked.body[..], asked.field("x-seen")), (&b"body"[..], ""), "{path}: nothing half done");
    }
}

#[tokio::test]
async fn a_response_that_fails_is_refused() {
    let functions =
        r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (unreachable))"#;
    let closed = trial(functions, json!({}));
    assert_eq!((closed.get("/", &[]).await.status, closed.asked().len()), (500, 1));
    let open = trial(functions, json!({ "on_error": "open" }));
    assert_eq!((open.get("/", &[]).await.status, open.get("/", &[]).await.text().as_str()), (200, "ok"));
}

#[tokio::test]
async fn broken_pointers_are_refused_without_harm() {
    let trial = trial(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (if (i32.ne (i32.const 6) (call $set (i32.const 0) (i32.const -8) (i32.const 100) {{v}})) (then (unreachable)))
             (if (i32.ne (i32.const 6) (call $get (i32.const 0) {{:path}} (i32.const -2) (i32.const 4))) (then (unreachable)))
             (if (i32.ne (i32.const 2) (call $get (i32.const 99) {{:path}} (i32.const 0) (i32.const 4))) (then (unreachable)))
             (if (i32.ne (i32.const 1) (call $get (i32.const 2) {{:status}} (i32.const 0) (i32.const 4))) (then (unreachable)))
             (if (i32.ne (i32.const 2) (call $set (i32.const 0) {{x-a}} {{a\0b}})) (then (unreachable)))
             (if (i32.ne (i32.const 2) (call $set (i32.const 0) {{:path}} {{/a/../b}})) (then (unreachable)))
             (if (i32.ne (i32.const 2) (call $effective (i32.const 77))) (then (unreachable)))
             (if (i32.ne (i32.const 52) (call $path_open (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
               (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 0))) (then (unreachable)))
             (i32.const 0))"#,
        json!({}),
    );
    assert_eq!(trial.get("/", &[]).await.status, 200);
}
