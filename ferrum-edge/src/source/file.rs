//! Configuration from a file, with the environment and the command line laid over its settings.

mod text;

use std::env::VarError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fmt, io};

use gateway_core::config::file::{self, Document, Gateway, Origin, Positions, References};
use gateway_core::config::model::{Model, Settings};
use gateway_core::config::problem::{Problem, Problems};
use gateway_core::config::resolve;
use gateway_core::config::settings::{self, Applied, Layer};
use gateway_core::config::warning::Warning;
use gateway_core::plugin::Registry;

use super::outputs;
use crate::control::certificate_files;
use crate::variables::NOT_UTF_8;
pub(crate) use text::read as read_text;

/// A configuration and what goes before its settings.
#[derive(Debug, Clone)]
pub struct Source {
    /// The document.
    pub spec: Spec,
    /// Settings from the command line, by their environment names.
    pub flags: Vec<(String, String)>,
}

/// Where the document is.
#[derive(Debug, Clone)]
pub enum Spec {
    /// A file, YAML or JSON, read anew with each reload.
    File(PathBuf),
    /// A text that is part of the program.
    Text {
        /// What problems call it.
        name: &'static str,
        /// The document.
        text: String,
    },
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Text { name, .. } => f.write_str(name),
        }
    }
}

/// `FERRUM_` names that the command line reads itself.
const READ_BY_CLI: &[&str] =
    &["FERRUM_SPEC", "FERRUM_FILE_CONFIG_PATH", "FERRUM_LOG_LEVEL", "FERRUM_PID_FILE"];

/// The one beside those that the command line reads, too, and only as it is.
const MODE: &str = "FERRUM_MODE";

/// Those of them that are paths, which need not be UTF-8.
const PATHS: &[&str] = &["FERRUM_SPEC", "FERRUM_FILE_CONFIG_PATH", "FERRUM_PID_FILE"];

/// What the names of variables begin with that the gateway reads; OpenTelemetry's are read by exporters.
const READ: [&str; 2] = [settings::PREFIX, "OTEL_"];

impl Source {
    /// Reads and checks everything: the document, the environment over it, the flags over both.
    ///
    /// # Errors
    /// Every problem there is; a document without a `proxies` section is one.
    pub fn load(&self, registry: &Registry) -> Result<Model, Problems> {
        self.read(registry, Document::require_proxies)
    }

    /// As [`Source::load`], for a document that has nothing but settings because everything else comes from a database.
    ///
    /// # Errors
    /// Every problem there is; any other section is one.
    pub fn load_settings(&self, registry: &Registry) -> Result<Model, Problems> {
        let model = self.read(registry, |_| {})?;
        let mut problems = Problems::default();
        let sections = [
            ("proxies", model.proxies.is_empty()),
            ("consumers", model.consumers.is_empty()),
            ("upstreams", model.upstreams.is_empty()),
            ("plugin_configs", model.plugin_configs.is_empty()),
        ];
        for (section, _) in sections.iter().filter(|(_, is_empty)| !is_empty) {
            problems.add(*section, "in database mode these come from the database").remedy = Some(
                "put them there with `ferrum-edge apply FILE`, and leave only `gateway` here".to_owned(),
            );
        }
        problems.into_result(model)
    }

    /// What the document says about the admin listener, whatever is wrong with the rest of it. `None` when it says nothing
    /// that can be used.
    pub(crate) fn admin_of_broken(&self) -> Option<Settings> {
        let Spec::File(path) = &self.spec else { return None };
        let origin = Origin::file(path);
        let text = text::read(path).ok()?;
        let mut read = file::parse(&text, &origin, &Machine);
        if !read.has_sections {
            // The rest may be what can't be read at all.
            read = file::parse(&gateway_section(&text), &origin, &Machine);
        }
        let read = read.gateway;
        let mut written = Gateway {
            admin: read.admin,
            admin_socket: read.admin_socket,
            admin_tls: read.admin_tls,
            ..Gateway::default()
        };
        let _ignored = self.lay_over(&mut written);
        resolve::settings(&written, resolve::ObjectPlace { at: "gateway", folder: &origin.folder }).ok()
    }

    fn read(&self, registry: &Registry, demand: impl FnOnce(&mut Document)) -> Result<Model, Problems> {
        let (text, origin) = match &self.spec {
            Spec::Text { name, text } => (text.clone(), named(name)),
            Spec::File(path) => {
                let origin = Origin::file(path);
                let unreadable = |error: io::Error| {
                    let mut problem = Problem::new("", format!("this file can't be read: {error}"));
                    problem.file.clone_from(&origin.name);
                    Problems(vec![problem])
                };
                (text::read(path).map_err(unreadable)?, origin)
            }
        };
        let model = resolve::load(&text, &origin, &Machine, registry, |document| {
            demand(document);
            self.lay_over(&mut document.gateway)
        })?;
        with_files(model, &text, &origin)
    }

    /// Lays the environment and the flags over the settings.
    fn lay_over(&self, gateway: &mut Gateway) -> Problems {
        let mut problems = apply(gateway, environment(), "environment").problems;
        problems.extend(not_text(env::vars_os()).0);
        let from_flags = apply(gateway, self.flags.iter().cloned(), "command line");
        problems.extend(from_flags.problems.0);
        problems
    }
}

fn apply(
    gateway: &mut Gateway,
    values: impl IntoIterator<Item = (String, String)>,
    name: &'static str,
) -> Applied {
    let folder = env::current_dir().unwrap_or_default();
    let database = crate::variables::VARIABLES.iter().map(|variable| variable.name);
    let files = database.clone().filter(|name| *name != MODE).map(|name| format!("{name}_FILE"));
    let files: Vec<String> = files.collect();
    let files = files.iter().map(String::as_str);
    let also: Vec<&str> = READ_BY_CLI.iter().copied().chain(database).chain(files).collect();
    settings::apply(gateway, values, Layer { name, folder: &folder, read: &text::read, also: &also })
}

/// Variables that the gateway reads and whose value is no text: they would change nothing.
fn not_text(all: impl Iterator<Item = (OsString, OsString)>) -> Problems {
    let mut problems = Problems::default();
    for (name, _) in all.filter(|(_, value)| value.to_str().is_none()) {
        let is_read = |name: &&str| READ.iter().any(|start| name.starts_with(start)) && !PATHS.contains(name);
        if let Some(name) = name.to_str().filter(is_read) {
            "environment".clone_into(&mut problems.add(name, NOT_UTF_8).file);
        }
    }
    problems
}

/// The variables that are text; [`not_text`] has the others.
fn environment() -> impl Iterator<Item = (String, String)> {
    env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Variables of the environment whose name begins with `FERRUM_` and that nothing reads.
pub(crate) fn unknown_variables() -> Vec<Warning> {
    let found = apply(&mut Gateway::default(), environment(), "environment").warnings;
    let warning = |problem: Problem| Warning {
        code: "unknown_variable",
        path: format!("environment.{}", problem.path),
        message: match problem.remedy {
            Some(remedy) => format!("{}; {remedy}", problem.message),
            None => problem.message,
        },
        remedy: "correct the name, or remove it",
    };
    found.0.into_iter().map(warning).collect()
}

/// The lines of the section `gateway` of a YAML text.
fn gateway_section(text: &str) -> String {
    let is_inside = |line: &&str| line.is_empty() || line.starts_with([' ', '#', '\t']);
    let mut lines = text.lines().skip_while(|line| !line.starts_with("gateway:"));
    let first = lines.next().into_iter();
    first.chain(lines.take_while(is_inside)).collect::<Vec<_>>().join("\n")
}

fn named(name: &str) -> Origin {
    Origin { name: name.to_owned(), folder: PathBuf::new(), format: None }
}

/// A configuration from a text, without the environment; for programs that embed the gateway.
///
/// # Errors
/// Every problem there is; `name` stands before each. An empty text is one.
pub fn parse(text: &str, name: &str, registry: &Registry) -> Result<Model, Problems> {
    let origin = named(name);
    let model = resolve::load(text, &origin, &Machine, registry, |document| {
        document.require_sections();
        Problems::default()
    })?;
    with_files(model, text, &origin)
}

/// The model, when the files it names are of use, too.
fn with_files(model: Model, text: &str, origin: &Origin) -> Result<Model, Problems> {
    let mut problems = certificate_files::check(&model);
    problems.0.extend(outputs::check(&model.settings).0);
    Positions::of(text, origin).locate(problems).into_result(model)
}

/// What `${env:…}` and `${file:…}` refer to.
pub(crate) struct Machine;

impl References for Machine {
    /// Everything that is there. A variable whose value is no text is there, and can't be used.
    fn permit(&self, reference: &str) -> Result<(), Problem> {
        let Some(name) = reference.strip_prefix("env:") else { return Ok(()) };
        match env::var(name) {
            Err(VarError::NotUnicode(_)) => {
                let message = format!("the value of the environment variable {name} is not UTF-8");
                Err(Problem::new("", message))
            }
            _ => Ok(()),
        }
    }

    fn env(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        text::read(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn variables_that_are_no_text_are_named() {
        let bad = || OsString::from_vec(b"true\xa0".to_vec());
        let names = [
            "FERRUM_ADMIN_REQUIRE_TOKEN",
            "FERRUM_ADMIN_TOKEN_FILE",
            "OTEL_SERVICE_NAME",
            "FERRUM_SPEC",
            "FERRUM_PID_FILE",
            "PATH",
        ];
        let all = names.into_iter().map(|name| (OsString::from(name), bad()));
        let good = [(OsString::from("FERRUM_PROXY_HTTP_PORT"), OsString::from("80"))];
        let told = not_text(all.chain(good)).0;
        let paths: Vec<_> = told.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["FERRUM_ADMIN_REQUIRE_TOKEN", "FERRUM_ADMIN_TOKEN_FILE", "OTEL_SERVICE_NAME"]);
        assert_eq!(told[0].to_string(), "environment: FERRUM_ADMIN_REQUIRE_TOKEN: its value is not UTF-8");
    }
}
