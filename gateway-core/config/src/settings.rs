//! The table of environment variables, and how they and flags lie over a file's `gateway` section.
//!
//! Flags take precedence over the environment, the environment over the file, the file over defaults. Flags are applied
//! as a layer of the same kind, after the environment: `--http-port 80` is `FERRUM_PROXY_HTTP_PORT=80`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::file::{self, Certificate, Gateway, Listener, ListenerParts, Tls, nearest};
use super::problem::{Problem, Problems};
use super::resolve;

mod table;

pub use table::SETTINGS;

/// What all names begin with.
pub const PREFIX: &str = "FERRUM_";

/// One environment variable. The same name with `_FILE` behind it names a file that holds the value.
#[derive(Debug)]
pub struct Setting {
    /// The variable's name.
    pub name: &'static str,
    /// The key of the `gateway` section it goes before.
    pub key: &'static str,
    /// What it means: unit, default, consequence.
    pub doc: &'static str,
    how: How,
}

/// How a variable's text becomes a setting.
#[derive(Debug, Clone, Copy)]
enum How {
    /// The text is the value.
    Value,
    /// `true` or `false`, also as 1, 0, yes, no, on, off.
    Switch,
    /// Values with commas between.
    List,
    /// A path, relative ones from where the gateway was started.
    Path,
    /// The port of a listener; 0 switches it off.
    Port,
    /// The address of listeners.
    Address(&'static [&'static str]),
    /// Half of the pair of certificate and key.
    Certificate,
    /// The key of that pair.
    Key,
    /// Whether there is a `Via` at all.
    Via,
}

/// A layer of values over the file.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    /// What problems call it: `environment` or `command line`.
    pub name: &'a str,
    /// Relative paths among the values start here; where the gateway was started.
    pub folder: &'a Path,
    /// Reads the files that `_FILE` names; relative paths are already joined to the folder.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// `FERRUM_` names that somebody else reads, so that they are not called unknown; those with `_FILE` only where they are
    /// among them.
    pub also: &'a [&'a str],
}

/// What applying a layer brought up.
#[derive(Debug, Default)]
pub struct Applied {
    /// Values that can't be used.
    pub problems: Problems,
    /// Names that nobody knows.
    pub warnings: Problems,
}

/// Lays a layer's values over `gateway`. Names without `FERRUM_` are passed over.
pub fn apply(
    gateway: &mut Gateway,
    values: impl IntoIterator<Item = (String, String)>,
    layer: Layer<'_>,
) -> Applied {
    let mut applied = Applied::default();
    let values = gather(values, layer, &mut applied);
    let (mut certificate, mut key) = (None, None);
    // In the order of the table, so that the outcome doesn't hang on the order of the environment.
    for setting in SETTINGS {
        let Some(text) = values.get(setting.name) else {
            continue;
        };
        match setting.how {
            How::Certificate => certificate = Some(layer.folder.join(text).display().to_string()),
            How::Key => key = Some(layer.folder.join(text).display().to_string()),
            _ => match setting.read(text, layer.folder) {
                Ok(change) => change.lay_over(gateway),
                Err(problems) => applied.problems.extend(problems.0),
            },
        }
    }
    match (certificate, key) {
        (Some(cert_path), Some(key_path)) => {
            let tls = gateway.tls.get_or_insert_with(Tls::default);
            let (cert_path, key_path) = (Some(cert_path), Some(key_path));
            tls.certificates = Some(vec![Certificate { cert_path, key_path, acme: None }]);
        }
        (None, None) => {}
        (Some(_), None) => {
            half(&mut applied, "FERRUM_FRONTEND_TLS_CERT_PATH", "FERRUM_FRONTEND_TLS_KEY_PATH")
        }
        (None, Some(_)) => {
            half(&mut applied, "FERRUM_FRONTEND_TLS_KEY_PATH", "FERRUM_FRONTEND_TLS_CERT_PATH")
        }
    }
    for problem in applied.problems.0.iter_mut().chain(&mut applied.warnings.0) {
        layer.name.clone_into(&mut problem.file);
    }
    applied
}

fn half(applied: &mut Applied, given: &str, missing: &str) {
    applied.problems.add(given, format!("{missing} is not set")).remedy =
        Some("a certificate and its key go together".to_owned());
}

/// The values by name, `_FILE` ones read.
fn gather(
    values: impl IntoIterator<Item = (String, String)>,
    layer: Layer<'_>,
    applied: &mut Applied,
) -> BTreeMap<&'static str, String> {
    let mut gathered = BTreeMap::new();
    let mut given: Vec<(String, String)> =
        values.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    given.sort();
    for (name, value) in given {
        let (setting, is_file) = match (known(&name), name.strip_suffix("_FILE").and_then(known)) {
            (Some(setting), _) => (setting, false),
            (None, Some(setting)) => (setting, true),
            (None, None) => {
                unknown(&name, layer.also, &mut applied.warnings);
                continue;
            }
        };
        let value = match is_file.then(|| (layer.read)(&layer.folder.join(&value))) {
            None => value,
            Some(Ok(text)) => text.trim_end_matches(['\r', '\n']).to_owned(),
            Some(Err(error)) => {
                applied.problems.add(name, format!("{value} can't be read: {error}"));
                continue;
            }
        };
        if gathered.insert(setting.name, value).is_some() {
            applied.problems.add(name, format!("{} is set too", setting.name)).remedy =
                Some("set one of the two".to_owned());
        }
    }
    gathered
}

fn known(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

fn unknown(name: &str, also: &[&str], warnings: &mut Problems) {
    if also.contains(&name) {
        return;
    }
    if let Some(plain) = name.strip_suffix("_FILE").filter(|plain| also.contains(plain)) {
        let message = format!("{plain} has no such form, so it changes nothing");
        warnings.add(name, message).remedy = Some(format!("set {plain} itself"));
        return;
    }
    // What all names begin with would make any two of them look alike.
    let names = SETTINGS.iter().map(|setting| setting.name).chain(also.iter().copied());
    let near = nearest(name.trim_start_matches(PREFIX), names.map(|name| name.trim_start_matches(PREFIX)));
    warnings.add(name, "nothing of this name is known, so it changes nothing").remedy =
        near.map(|near| format!("did you mean {PREFIX}{near}?"));
}

/// What one value changes.
#[derive(Debug)]
enum SettingChange {
    Merge(Box<Gateway>),
    Port(&'static str, u32),
    Address(&'static [&'static str], String),
    Via(bool),
}

impl Setting {
    /// The change a text stands for, judged by itself, so that a problem carries this variable's name.
    fn read(&self, text: &str, folder: &Path) -> Result<SettingChange, Problems> {
        let text = text.trim();
        let values = match self.how {
            How::Value => vec![text.to_owned()],
            How::Path if text == "-" => vec![text.to_owned()],
            How::Path | How::Certificate | How::Key => vec![folder.join(text).display().to_string()],
            How::Switch => vec![self.switch(text)?.to_string()],
            How::Via => return self.switch(text).map(SettingChange::Via),
            How::List => {
                text.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
            }
            How::Port => {
                let port = text.parse::<u16>().map_err(|_| {
                    self.problem(format!("`{text}` is not a port"), "0 to 65535; 0 switches it off")
                })?;
                return Ok(SettingChange::Port(self.key, port.into()));
            }
            How::Address(listeners) => {
                let address = Gateway { stream_address: Some(text.to_owned()), ..Gateway::default() };
                self.named(resolve::values(&address))?;
                return Ok(SettingChange::Address(listeners, text.to_owned()));
            }
        };
        let change = file::setting(self.key, values, matches!(self.how, How::List));
        let change = change.or_else(|problems| {
            self.named(problems)?;
            Ok::<_, Problems>(Gateway::default())
        })?;
        self.named(resolve::values(&change))?;
        Ok(SettingChange::Merge(Box::new(change)))
    }

    fn switch(&self, text: &str) -> Result<bool, Problems> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(self.problem(format!("`{text}` is neither true nor false"), "write true or false")),
        }
    }

    fn problem(&self, message: String, remedy: &str) -> Problems {
        Problems(vec![Problem::new(self.name, message).remedy(remedy)])
    }

    /// An error when there are problems, under this variable's name.
    fn named(&self, mut problems: Problems) -> Result<(), Problems> {
        for problem in &mut problems.0 {
            self.name.clone_into(&mut problem.path);
        }
        problems.into_result(())
    }
}

impl SettingChange {
    fn lay_over(self, gateway: &mut Gateway) {
        match self {
            Self::Merge(change) => merge(gateway, *change),
            Self::Port(key, port) => {
                let listener = listener(gateway, key);
                let address = parts(listener.take()).address;
                *listener = Some(Listener::Parts(ListenerParts { address, port: Some(port) }));
            }
            Self::Address(keys, address) => {
                for key in keys {
                    if *key == "stream_address" {
                        gateway.stream_address = Some(address.clone());
                    } else {
                        move_to(listener(gateway, key), &address);
                    }
                }
            }
            Self::Via(false) => gateway.via = Some(String::new()),
            Self::Via(true) => gateway.via = gateway.via.take().filter(|name| !name.is_empty()),
        }
    }
}

fn listener<'g>(gateway: &'g mut Gateway, key: &str) -> &'g mut Option<Listener> {
    match key {
        "https" => &mut gateway.https,
        "admin" => &mut gateway.admin,
        _ => &mut gateway.http,
    }
}

/// The listener as address and port apart, whichever way it was written.
fn parts(listener: Option<Listener>) -> ListenerParts {
    let apart = match listener {
        Some(Listener::Parts(parts)) => parts,
        Some(Listener::Port(port)) => ListenerParts { address: None, port: Some(port) },
        Some(Listener::Address(text)) => ListenerParts { address: Some(text), port: None },
        None => ListenerParts::default(),
    };
    // `127.0.0.1:80` holds both; what lies over it changes one.
    match apart.address.as_deref().map(str::parse::<std::net::SocketAddr>) {
        Some(Ok(both)) => {
            ListenerParts { address: Some(both.ip().to_string()), port: Some(both.port().into()) }
        }
        _ if apart.address.as_deref() == Some("off") => ListenerParts { address: None, port: Some(0) },
        _ => apart,
    }
}

/// Moves a listener to an address, keeping its port, also one that is chosen by the system.
fn move_to(listener: &mut Option<Listener>, address: &str) {
    let is_free_port = |text: &str| text.parse::<std::net::SocketAddr>().is_ok_and(|a| a.port() == 0);
    let free = match listener {
        Some(Listener::Address(text)) => is_free_port(text),
        Some(Listener::Parts(parts)) => parts.address.as_deref().is_some_and(is_free_port),
        _ => false,
    };
    let both = format!("{address}:0").parse().or_else(|_| format!("[{address}]:0").parse());
    match both {
        Ok::<std::net::SocketAddr, _>(both) if free => *listener = Some(Listener::Address(both.to_string())),
        _ => {
            let port = parts(listener.take()).port;
            *listener = Some(Listener::Parts(ListenerParts { address: Some(address.to_owned()), port }));
        }
    }
}

/// Lays what `change` says over what `gateway` says.
fn merge(gateway: &mut Gateway, change: Gateway) {
    let over = |below: &Gateway, above: &Gateway| -> serde_json::Result<Gateway> {
        let (mut below, above) = (serde_json::to_value(below)?, serde_json::to_value(above)?);
        lay(&mut below, above);
        serde_json::from_value(below)
    };
    // Both were read by serde, so that both can be written and their sum be read; if not, nothing changes.
    if let Ok(merged) = over(gateway, &change) {
        *gateway = merged;
    }
}

fn lay(below: &mut serde_json::Value, above: serde_json::Value) {
    match (below, above) {
        (_, serde_json::Value::Null) => {}
        (serde_json::Value::Object(below), serde_json::Value::Object(above)) => {
            for (key, value) in above {
                lay(below.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

#[cfg(test)]
mod tests;
