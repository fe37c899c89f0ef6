//! Modules made by compilers. Where a compiler is not installed, its test has nothing to do; CONTRIBUTING.md says how to get each.

use std::path::{Path, PathBuf};
use std::process::Command;

use http_body::Frame;

use super::grpc::{asking, fields, local, message, piece};
use super::*;
use crate::testing::served;

/// A guest's folder, and the file that its module goes to.
struct Guest {
    folder: PathBuf,
    out: PathBuf,
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.out));
    }
}

impl Guest {
    fn new(language: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(language);
        let out = std::env::temp_dir().join(format!("ferrum-guest-{language}-{}.wasm", std::process::id()));
        Self { folder, out }
    }

    /// The module, as this command makes it; `None` where there is no such command.
    fn built(&self, command: &mut Command) -> Option<Vec<u8>> {
        let built = match command.current_dir(&self.folder).output() {
            Ok(built) => built,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("{} is not installed: nothing to test", command.get_program().display());
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let said = String::from_utf8_lossy(&built.stderr);
        if said.contains("requires go >= ") {
            eprintln!("go is too old: nothing to test");
            return None;
        }
        assert!(built.status.success(), "{said}");
        Some(std::fs::read(&self.out).unwrap())
    }
}

#[tokio::test]
async fn a_module_written_in_go_works() {
    let guest = Guest::new("go");
    let mut go = Command::new("go");
    go.args(["build", "-buildmode=c-shared", "-o"]).arg(&guest.out).arg(".");
    go.envs([("GOOS", "wasip1"), ("GOARCH", "wasm"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod")]);
    let Some(module) = guest.built(&mut go) else { return };
    let config = json!({ "settings": "hello", "start_timeout": 10, "timeout": "500ms" });
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

#[tokio::test]
async fn a_module_written_in_c_works() {
    let guest = Guest::new("c");
    let mut clang = Command::new("clang");
    clang.args([
        "--target=wasm32",
        "-O2",
        "-Wall",
        "-Werror",
        "-nostdlib",
        "-Wl,--no-entry",
        "-Wl,--allow-undefined",
    ]);
    clang.arg("-o").arg(&guest.out).arg("guest.c");
    let Some(module) = guest.built(&mut clang) else { return };
    let config = json!({ "settings": "hello" });
    let (trial, _) = calling(module, config, |_, _| Err(Cause::ConnectFailed));
    let trial = trial.answering(|_| Response::new("quiet".into()));
    let got = trial.get("/closed", &[]).await;
    assert_eq!((got.status, got.text().as_str()), (403, "CLOSED\n"), "a reply passes the module, too");
    for path in ["/", "/closed/not", "/close"] {
        assert_eq!(trial.get(path, &[]).await.text(), "QUIET", "{path}");
        assert_eq!(trial.asked().pop().unwrap().field("x-configured"), "hello");
    }
}

#[tokio::test]
async fn a_module_written_in_assemblyscript_works() {
    let guest = Guest::new("assemblyscript");
    let installed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/interop/node/node_modules/.bin/asc");
    let mut asc = Command::new(if installed.exists() { installed } else { "asc".into() });
    asc.args([
        "guest.ts",
        "-O",
        "--runtime",
        "stub",
        "--use",
        "abort=guest/abort",
        "--exportStart",
        "_initialize",
    ]);
    asc.arg("-o").arg(&guest.out);
    let Some(module) = guest.built(&mut asc) else { return };
    let (trial, _) = calling(module, json!({ "timeout": "500ms" }), |_, _| Err(Cause::ConnectFailed));
    for (path, number) in [("/a", "1"), ("/b?x", "1"), ("/a", "2"), ("/a", "3"), ("/b?x", "2")] {
        assert_eq!(trial.get(path, &[]).await.status, 200);
        assert_eq!(trial.asked().pop().unwrap().field("x-number"), number, "{path}");
    }
}

/// Whether this toolchain has Rust's standard library for modules.
fn has_rust() -> bool {
    let libraries =
        Command::new("rustc").args(["--print", "target-libdir", "--target", "wasm32-wasip1"]).output();
    libraries.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
}

#[tokio::test]
async fn a_module_written_in_rust_works() {
    if !has_rust() {
        eprintln!("there is no `wasm32-wasip1` in this toolchain: nothing to test");
        return;
    }
    let guest = Guest::new("rust");
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "--target", "wasm32-wasip1", "--target-dir"]).arg(&target);
    cargo.env_remove("RUSTFLAGS");
    let built = cargo.current_dir(&guest.folder).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let module = std::fs::read(target.join("wasm32-wasip1/release/guest.wasm")).unwrap();
    for (said, expected) in [("pass", (200, "ok")), ("never", (403, "never"))] {
        local(decided(module.clone(), said, expected)).await;
    }
    local(left(module)).await;
}

fn guarded(module: Vec<u8>) -> (Arc<Trial>, tokio::sync::mpsc::UnboundedReceiver<crate::testing::Served>) {
    let disk = Arc::<Disk>::default();
    disk.write("m.wasm", module);
    let (world, scripted) = served(disk);
    let server = |name: &str| json!({ "url": format!("http://{name}.test") });
    let calls = json!({ "guard": server("guard"), "journal": server("journal") });
    let config = json!({ "settings": "pkg.Guard", "calls": calls, "timeout": "500ms" });
    (Arc::new(of_world(&world, config)), scripted)
}

/// A guard that says this, and what comes of it.
async fn decided(module: Vec<u8>, said: &str, expected: (u16, &str)) {
    let (trial, mut scripted) = guarded(module);
    let got = asking(&trial, "/x");
    let call = scripted.recv().await.unwrap();
    assert_eq!(call.request.uri().path(), "/pkg.Guard/Watch");
    assert_eq!(call.request.headers()["x-path"], "/x");
    let (mut told, answers) = call.answer(Response::builder().header("x-guard", "g1").body(()).unwrap());
    assert_eq!(piece(&mut told).await.unwrap(), message("/x"));
    answers.send(Frame::data(message(said))).unwrap();
    if expected.0 == 200 {
        let journal = scripted.recv().await.unwrap();
        assert_eq!(journal.request.uri().path(), "/seen");
        journal.end(Ok(Response::new("page 7".into())));
        assert_eq!(piece(&mut told).await.unwrap(), message("done"));
    }
    let got = got.await.unwrap();
    assert_eq!((got.status, got.text().as_str()), expected);
    if expected.0 == 200 {
        assert_eq!(got.field("x-journal"), "page 7");
        assert_eq!(trial.asked().pop().unwrap().field("x-guard"), "g1");
    } else {
        assert_eq!((got.field("x-reason"), trial.asked().len()), ("guard", 0));
    }
    answers.closed().await;
}

/// A guard that leaves without a word.
async fn left(module: Vec<u8>) {
    let (trial, mut scripted) = guarded(module);
    let got = asking(&trial, "/x");
    let (_told, answers) = scripted.recv().await.unwrap().answer(Response::new(()));
    answers.send(Frame::trailers(fields(&[("grpc-status", "14")]))).unwrap();
    let got = got.await.unwrap();
    assert_eq!((got.status, got.text().as_str()), (503, "the guard has left"));
}
