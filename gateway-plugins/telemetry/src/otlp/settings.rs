//! Where spans, records and metrics go: an exporter's settings, with OpenTelemetry's variables as defaults.

use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use super::exporter::Exporter;
use super::resource::Signal;
use gateway_core::config::exporter::{Compression, ExporterSettings, Protocol};
use gateway_core::config::model::BackendHttp;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::Endpoint;
use http::{HeaderMap, HeaderName, HeaderValue};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The exporter of one signal. Every problem's path begins with `path`, or is the name of a variable.
///
/// # Errors
/// What is wrong, all of it.
pub fn build_exporter(
    settings: &ExporterSettings,
    signal: Signal,
    path: &str,
    world: &World,
) -> Result<Exporter, Problems> {
    SettingsWithDefaults(settings).build(signal, path, world)
}

/// What was written, with defaults from the environment.
struct SettingsWithDefaults<'s>(&'s ExporterSettings);

impl Deref for SettingsWithDefaults<'_> {
    type Target = ExporterSettings;

    fn deref(&self) -> &ExporterSettings {
        self.0
    }
}

impl SettingsWithDefaults<'_> {
    fn build(&self, signal: Signal, path: &str, world: &World) -> Result<Exporter, Problems> {
        let mut problems = Problems::default();
        let defaults = Variables { world, signal };
        let protocol = self.protocol.or_else(|| defaults.word("PROTOCOL", protocol, &mut problems));
        let protocol = protocol.unwrap_or(Protocol::HttpProtobuf);
        let compression =
            self.compression.or_else(|| defaults.word("COMPRESSION", compression, &mut problems));
        let timeout = self.timeout.map(Millis::duration);
        let timeout = timeout.or_else(|| defaults.word("TIMEOUT", milliseconds, &mut problems));
        let target = self.target(path, protocol, &defaults, &mut problems);
        // Credentials of the environment are for the environment's server, whoever writes the settings.
        let is_ours = target.as_ref().is_some_and(|(endpoint, _)| defaults.is_for(endpoint, protocol));
        let headers = self.headers(path, &defaults, is_ours, &mut problems);
        let client_cert = self.client_cert(path, &defaults, is_ours, &mut problems);
        let (Some((endpoint, target)), true) = (target, problems.is_empty()) else { return Err(problems) };
        let ca_path = self.ca_path.clone().or_else(|| defaults.get("CERTIFICATE").map(PathBuf::from));
        let timeout = timeout.unwrap_or(TIMEOUT);
        let mut endpoint = endpoint.trusting(ca_path).within(timeout);
        endpoint.tls.client_cert = client_cert;
        if protocol == Protocol::Grpc {
            endpoint.http = BackendHttp::Http2;
        }
        let client = world.client(endpoint).map_err(|problems| under(path, problems))?;
        let is_compressed = compression == Some(Compression::Gzip);
        Ok(Exporter::new(client, signal, protocol, target, headers, is_compressed, timeout))
    }

    fn target(
        &self,
        path: &str,
        protocol: Protocol,
        defaults: &Variables<'_>,
        problems: &mut Problems,
    ) -> Option<(Endpoint, String)> {
        let own = defaults.own("ENDPOINT").filter(|_| self.endpoint.is_none());
        let common = self.endpoint.as_deref().or_else(|| defaults.common("ENDPOINT"));
        let url = own.or(common).unwrap_or_else(|| fallback(protocol));
        let (endpoint, uri) = match Endpoint::of_url(url) {
            Ok(parsed) => parsed,
            Err(message) => {
                let place = if self.endpoint.is_some() {
                    format!("{path}.endpoint")
                } else {
                    defaults.name("ENDPOINT")
                };
                problems.add(place, message);
                return None;
            }
        };
        if protocol == Protocol::Grpc {
            return Some((endpoint, defaults.signal.method().to_owned()));
        }
        let given = uri.path_and_query().map_or("/", |target| target.as_str());
        let suffix = format!("/v1/{}", defaults.signal.word());
        // The variable of one signal is used as it is, the common one is a base.
        let is_whole = own.is_some() || uri.path().ends_with(&suffix);
        let target =
            if is_whole { given.to_owned() } else { format!("{}{suffix}", given.trim_end_matches('/')) };
        Some((endpoint, target))
    }

    fn headers(
        &self,
        path: &str,
        defaults: &Variables<'_>,
        is_ours: bool,
        problems: &mut Problems,
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let written = self.headers.clone().map(|headers| headers.into_iter().collect::<Vec<_>>());
        let place = if written.is_some() { format!("{path}.headers") } else { defaults.name("HEADERS") };
        let listed = written.or_else(|| {
            let text = defaults.get("HEADERS").filter(|_| is_ours)?;
            let all = pairs(text);
            if all.is_none() {
                problems.add(place.clone(), "is not a list like `name=value,other=value`");
            }
            all
        });
        for (name, value) in listed.unwrap_or_default() {
            match (HeaderName::try_from(&name), HeaderValue::try_from(&value)) {
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                // Not the value: it may be a secret.
                _ => {
                    problems.add(place.clone(), format!("`{name}` is not a valid header field"));
                }
            }
        }
        if let Some(token) = &self.bearer_token {
            match HeaderValue::try_from(format!("Bearer {token}")) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    headers.insert(http::header::AUTHORIZATION, value);
                }
                Err(_) => {
                    problems.add(format!("{path}.bearer_token"), "has characters that a header may not have");
                }
            }
        }
        headers
    }

    fn client_cert(
        &self,
        path: &str,
        defaults: &Variables<'_>,
        is_ours: bool,
        problems: &mut Problems,
    ) -> Option<(PathBuf, PathBuf)> {
        let default = |name| defaults.get(name).filter(|_| is_ours).map(PathBuf::from);
        let or = |own: &Option<PathBuf>, name| own.clone().or_else(|| default(name));
        match (or(&self.client_cert_path, "CLIENT_CERTIFICATE"), or(&self.client_key_path, "CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                problems.add(path.to_owned(), "a client certificate and its key need each other");
                None
            }
        }
    }
}

/// `OTEL_EXPORTER_OTLP_…` for one signal, else for all.
struct Variables<'w> {
    world: &'w World,
    signal: Signal,
}

impl<'w> Variables<'w> {
    fn own(&self, name: &str) -> Option<&'w str> {
        let signal = self.signal.word().to_ascii_uppercase();
        self.world.variable(&format!("OTEL_EXPORTER_OTLP_{signal}_{name}"))
    }

    fn common(&self, name: &str) -> Option<&'w str> {
        self.world.variable(&format!("OTEL_EXPORTER_OTLP_{name}"))
    }

    fn get(&self, name: &str) -> Option<&'w str> {
        self.own(name).or_else(|| self.common(name))
    }

    /// Whether this is the server that the environment names, so that it gets the environment's credentials.
    fn is_for(&self, endpoint: &Endpoint, protocol: Protocol) -> bool {
        let url = self.get("ENDPOINT").unwrap_or_else(|| fallback(protocol));
        Endpoint::of_url(url)
            .is_ok_and(|(ours, _)| ours.server == endpoint.server && ours.encrypted == endpoint.encrypted)
    }

    /// The name of the variable that was used.
    fn name(&self, name: &str) -> String {
        match self.own(name) {
            Some(_) => format!("OTEL_EXPORTER_OTLP_{}_{name}", self.signal.word().to_ascii_uppercase()),
            None => format!("OTEL_EXPORTER_OTLP_{name}"),
        }
    }

    fn word<T>(&self, name: &str, read: fn(&str) -> Option<T>, problems: &mut Problems) -> Option<T> {
        let text = self.get(name)?;
        let value = read(text);
        if value.is_none() {
            problems.add(self.name(name), format!("`{text}` is not a value that it may have"));
        }
        value
    }
}

/// Where a collector listens, if nothing says so.
fn fallback(protocol: Protocol) -> &'static str {
    if protocol == Protocol::Grpc { "http://localhost:4317" } else { "http://localhost:4318" }
}

fn protocol(text: &str) -> Option<Protocol> {
    match text {
        "http/protobuf" => Some(Protocol::HttpProtobuf),
        "http/json" => Some(Protocol::HttpJson),
        "grpc" => Some(Protocol::Grpc),
        _ => None,
    }
}

fn compression(text: &str) -> Option<Compression> {
    match text {
        "none" => Some(Compression::None),
        "gzip" => Some(Compression::Gzip),
        _ => None,
    }
}

fn milliseconds(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// `key=value,key=value` of OpenTelemetry's variables, percent-decoded; `None` where it is malformed.
pub fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text.trim()).decode_utf8().ok().map(|text| text.into_owned())
    };
    let members = text.split(',').filter(|member| !member.trim().is_empty());
    members
        .map(|member| {
            let (key, value) = member.split_once('=')?;
            let key = decode(key).filter(|key| !key.is_empty())?;
            Some((key, decode(value)?))
        })
        .collect()
}

fn under(path: &str, mut problems: Problems) -> Problems {
    for problem in &mut problems.0 {
        problem.path = problem.path.replacen("config", path, 1);
    }
    problems
}
