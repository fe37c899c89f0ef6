//! The project's own commands: `cargo xtask test` and `cargo xtask prepare`.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

const USAGE: &str = "\
cargo xtask test [ARGUMENTS]   installs the servers that tests start, and runs every test; up to
                               three that fail run once more, alone, and are named at the end;
                               with arguments it is `cargo test --workspace ARGUMENTS`
cargo xtask prepare            installs those servers only (Debian packages)
";

/// Tests at a time for each processor: most of them wait for a server or for a moment.
const TESTS_PER_PROCESSOR: usize = 2;
/// Binaries of tests at a time.
const BINARIES: usize = 2;
/// As many failed tests may run once more: with more of them the machine is not the reason.
const RUN_AGAIN: usize = 3;

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
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..BINARIES {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(binary) = next else { return };
                    if let Err(failed) = run_tests(&binary, &[]) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push((binary, failed));
                    }
                }
            });
        }
    });
    let unsteady = run_again(failures.into_inner().unwrap_or_else(PoisonError::into_inner))?;
    run(cargo().args(["test", "--workspace", "--doc"]))?;
    if !unsteady.is_empty() {
        eprintln!("\nxtask: failed beside other tests, and passed alone: {}", unsteady.join(", "));
    }
    Ok(())
}

/// Runs the tests that failed once more, alone: beside others, a busy machine may have kept them from a deadline. The names
/// of those that pass now.
fn run_again(failures: Vec<(Binary, Vec<String>)>) -> Result<Vec<String>, String> {
    let tests = failures.iter().map(|(_, tests)| tests.len()).sum::<usize>();
    // A binary that names none of its tests did not get to its end.
    if tests > RUN_AGAIN || failures.iter().any(|(_, tests)| tests.is_empty()) {
        let failed =
            failures.iter().map(|(binary, tests)| format!("{}: {}", binary.path.display(), tests.join(" ")));
        return Err(format!("tests failed in {}", failed.collect::<Vec<_>>().join(", ")));
    }
    let mut unsteady = Vec::new();
    for (binary, tests) in failures {
        run_tests(&binary, &tests)
            .map_err(|_| format!("tests failed twice in {}: {}", binary.path.display(), tests.join(" ")))?;
        unsteady.extend(tests);
    }
    Ok(unsteady)
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

/// Runs these tests of a binary, or all where none is named, and shows what it says once it has ended. The names of those
/// that failed.
fn run_tests(binary: &Binary, tests: &[String]) -> Result<(), Vec<String>> {
    let begun = Instant::now();
    let mut command = Command::new(&binary.path);
    command.current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder);
    limit_tests(&mut command);
    if !tests.is_empty() {
        command.args(["--exact", "--test-threads=1"]).args(tests);
    }
    let name = binary.path.display();
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            show(&format!("{name}, {:.0} s", begun.elapsed().as_secs_f64()), &output);
            if output.status.success() {
                Ok(())
            } else {
                Err(failed_tests(&String::from_utf8_lossy(&output.stdout)))
            }
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            Err(Vec::new())
        }
    }
}

/// The names in the last list of failures, which comes right before the result.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((before, _)) = output.rsplit_once("\ntest result: FAILED.") else { return Vec::new() };
    let list = before.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    list.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

fn show(title: &str, output: &Output) {
    let mut out = std::io::stdout().lock();
    // Who reads the output may be gone; the verdict is the exit code.
    drop(writeln!(out, "\n     Running {title}"));
    drop(out.write_all(&output.stdout));
    drop(out.write_all(&output.stderr));
}

#[cfg(test)]
mod tests {
    use super::failed_tests;

    #[test]
    fn failed_tests_are_read_from_the_last_list() {
        for (output, failed) in [
            ("", &[][..]),
            ("running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed\n", &[]),
            ("running 2 tests\nthread 'a' panicked\nSIGSEGV", &[]),
            (
                "\nfailures:\n\n---- a::b stdout ----\n    indented output\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED. 1 passed\n",
                &["a::b", "c"],
            ),
        ] {
            assert_eq!(failed_tests(output), failed, "{output}");
        }
    }
}
