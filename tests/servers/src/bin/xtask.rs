//! The project's own commands: `cargo xtask test` and `cargo xtask prepare`.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

const USAGE: &str = "\
cargo xtask test [ARGUMENTS]   installs the servers that tests start, and runs every test;
                               with arguments it is `cargo test --workspace ARGUMENTS`
cargo xtask prepare            installs those servers only (Debian packages)
";

/// Tests at a time for each processor: most of them wait for a server or for a moment.
const TESTS_PER_PROCESSOR: usize = 2;
/// Binaries of tests at a time.
const BINARIES: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["prepare"] => prepare(),
        ["test"] => prepare().and_then(|()| test_all()),
        ["test", arguments @ ..] => {
            prepare().and_then(|()| run(cargo().args(["test", "--workspace"]).args(arguments)))
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    limit_tests(&mut cargo);
    cargo
}

/// Has so many tests run at a time, unless the caller's environment says how many.
fn limit_tests(command: &mut Command) {
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (processors * TESTS_PER_PROCESSOR).to_string());
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}

/// Installs what is missing, which the script says.
fn prepare() -> Result<(), String> {
    run(&mut Command::new(root().join("tests/prepare")))
}

/// A binary of tests.
struct Binary {
    path: PathBuf,
    /// The folder of its package, where its tests run.
    folder: PathBuf,
    bytes: u64,
}

/// Runs every binary of tests, some side by side, and then the examples in doc comments.
fn test_all() -> Result<(), String> {
    let mut binaries = built()?;
    // The largest ones have the most to do: they begin first, so that no long one is left at the end.
    binaries.sort_by_key(|binary| std::cmp::Reverse(binary.bytes));
    let waiting = Mutex::new(VecDeque::from(binaries));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..BINARIES {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(binary) = next else { return };
                    if !passes(&binary) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(binary.path);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let names = failed.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    if !failed.is_empty() {
        return Err(format!("tests failed in {names}"));
    }
    run(cargo().args(["test", "--workspace", "--doc"]))
}

/// Builds the binaries of tests.
fn built() -> Result<Vec<Binary>, String> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let mut building =
        command.stdout(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let lines = BufReader::new(building.stdout.take().ok_or("cargo has no output")?).lines();
    let mut found = Vec::new();
    for line in lines {
        let line = line.map_err(|error| error.to_string())?;
        let message: Value = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
        if message["profile"]["test"] == true {
            found.extend(binary(&message));
        }
    }
    let status = building.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(found) } else { Err(format!("{command:?} ended with {status}")) }
}

fn binary(message: &Value) -> Option<Binary> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let bytes = path.metadata().map_or(0, |about| about.len());
    Some(Binary { path, folder, bytes })
}

/// Whether all tests of a binary pass; shows what it says once it has ended.
fn passes(binary: &Binary) -> bool {
    let begun = Instant::now();
    let mut command = Command::new(&binary.path);
    command.current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder);
    limit_tests(&mut command);
    let name = binary.path.display();
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            show(&format!("{name}, {:.0} s", begun.elapsed().as_secs_f64()), &output);
            output.status.success()
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            false
        }
    }
}

fn show(title: &str, output: &Output) {
    let mut out = std::io::stdout().lock();
    // Who reads the output may be gone; the verdict is the exit code.
    drop(writeln!(out, "\n     Running {title}"));
    drop(out.write_all(&output.stdout));
    drop(out.write_all(&output.stderr));
}
