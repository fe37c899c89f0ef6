//! Which configuration is meant.

use std::path::PathBuf;

use clap::Args;

use super::print;
use crate::source::file::{Source, Spec};

/// Where `run` and the others look when nobody says where.
const PLACES: [&str; 4] =
    ["ferrum.yaml", "ferrum.json", "/etc/ferrum-edge/ferrum-edge.yaml", "/etc/ferrum/ferrum.yaml"];
/// Another name the variable is known by.
const OTHER_VARIABLE: &str = "FERRUM_FILE_CONFIG_PATH";

/// Which configuration is meant.
#[derive(Debug, Clone, Default, Args)]
pub struct SpecArgs {
    /// The configuration, YAML or JSON [default: ./ferrum.yaml, ./ferrum.json, /etc/ferrum-edge/ferrum-edge.yaml, /etc/ferrum/ferrum.yaml]
    #[arg(long, short, env = "FERRUM_SPEC", value_name = "FILE")]
    pub spec: Option<PathBuf>,
}

impl SpecArgs {
    /// The same with the file that was given by itself.
    pub(super) fn or(&self, file: Option<PathBuf>) -> Self {
        // The environment's is no flag, so that the argument goes before it.
        Self { spec: file.or_else(|| self.spec.clone()) }
    }

    /// The file meant: as said, else the first there is.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.specified().or_else(|| PLACES.iter().map(PathBuf::from).find(|path| path.exists()))
    }

    /// The same without the files of the whole machine.
    pub(super) fn path_here(&self) -> Option<PathBuf> {
        let mut places = PLACES.iter().map(PathBuf::from).filter(|path| path.is_relative());
        self.specified().or_else(|| places.find(|path| path.exists()))
    }

    fn specified(&self) -> Option<PathBuf> {
        self.spec.clone().or_else(|| std::env::var_os(OTHER_VARIABLE).map(PathBuf::from))
    }

    /// The settings of the gateway as a whole, in database mode: a file is not needed.
    pub(super) fn settings(&self, flags: Vec<(String, String)>) -> Source {
        let spec = match self.path() {
            Some(path) => Spec::File(path),
            None => Spec::Text { name: "the default settings", text: String::new() },
        };
        Source { spec, flags }
    }

    /// The source, or three lines for somebody who doesn't know yet what to do.
    pub(super) fn source(&self, flags: Vec<(String, String)>) -> Option<Source> {
        let Some(path) = self.path() else {
            print::error(format_args!("No configuration: there is no {}.", PLACES.join(", ")));
            print::error("Try it with a ready-made one:   ferrum-edge quickstart");
            print::error(
                "Or say which one to use:        ferrum-edge run --spec FILE   (or FERRUM_SPEC=FILE)",
            );
            return None;
        };
        Some(Source { spec: Spec::File(path), flags })
    }
}
