//! Modules made by compilers. Where a compiler is not installed, its test has nothing to do.

use std::path::Path;
use std::process::Command;

use super::*;

#[tokio::test]
async fn a_module_written_in_go_works() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/go");
    let out = std::env::temp_dir().join(format!("ferrum-guest-{}.wasm", std::process::id()));
    let built = Command::new("go")
        .args(["build", "-buildmode=c-shared", "-o"])
        .arg(&out)
        .arg(".")
        .current_dir(folder)
        .envs([("GOOS", "wasip1"), ("GOARCH", "wasm"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod")])
        .output();
    let Ok(built) = built else {
        eprintln!("go is not installed: nothing to test");
        return;
    };
    let said = String::from_utf8_lossy(&built.stderr);
    if said.contains("requires go >= ") {
        eprintln!("go is too old: nothing to test");
        return;
    }
    assert!(built.status.success(), "{said}");
    let module = std::fs::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    let config = json!({ "settings": "hello", "start_timeout_ms": 10_000, "timeout_ms": 500 });
    let (trial, _) = calling(module, config, |_, _| Err(Cause::ConnectFailed));
    for n in 1..=3 {
        assert_eq!(trial.get("/", &[]).await.status, 200);
        let asked = trial.asked().pop().unwrap();
        assert_eq!(
            (asked.field("x-configured"), asked.field("x-requests")),
            ("hello", n.to_string().as_str())
        );
    }
}
