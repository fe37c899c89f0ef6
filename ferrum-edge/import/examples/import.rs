//! Prints another gateway's configuration as one of ferrum-edge's (JSON), and the report on standard error:
//! `cargo run -p ferrum-gateway-import --example import -- nginx.conf`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use gateway_import::{Disk, Files, Options, detect, import};

fn main() -> ExitCode {
    let mut sources = Vec::new();
    for name in std::env::args().skip(1) {
        match Disk.read(Path::new(&name)) {
            Ok(text) => sources.push((name, text)),
            Err(error) => return fail(format_args!("{name}: {error}")),
        }
    }
    let format = sources.first().and_then(|(name, text)| detect(Path::new(name), text));
    let Some(format) = format else { return fail(format_args!("which format is it?")) };
    match import(format, &sources, &Disk, Options::default()) {
        Ok(import) => {
            for finding in import.report.losses() {
                drop(writeln!(std::io::stderr(), "{finding}"));
            }
            drop(writeln!(std::io::stderr(), "{}", import.report));
            drop(writeln!(std::io::stdout(), "{:#}", import.document()));
            ExitCode::SUCCESS
        }
        Err(error) => fail(format_args!("{error}")),
    }
}

fn fail(why: std::fmt::Arguments<'_>) -> ExitCode {
    drop(writeln!(std::io::stderr(), "{why}"));
    ExitCode::FAILURE
}
