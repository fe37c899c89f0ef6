//! Names and targets: whether they resolve, take connections, and show certificates that are trusted.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use gateway_core::config::model::{BackendTls, Model, Proxy, Scheme, service_name, socket_path};
use gateway_protocols::dns::Dns;
use gateway_protocols::tls::client;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Findings;

/// Targets that are tried; of more only these.
const MAX_TARGETS: usize = 1000;
/// Targets that are tried at a time.
const AT_ONCE: usize = 32;

/// How long is waited for an alert after a handshake; a target that is content says nothing.
const ALERT_TIMEOUT: Duration = Duration::from_millis(250);

/// A target or a collector as it is used.
pub(super) struct Tried {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    pub(super) scheme: Scheme,
    pub(super) tls: Option<Arc<BackendTls>>,
    pub(super) fixed: Option<std::net::IpAddr>,
    /// The first proxy or setting that uses it so.
    pub(super) of: String,
}

/// What became of it.
enum Reached {
    Good(String),
    /// It is spoken to by datagrams: only its name can be looked at.
    Resolved(String),
    Name(String),
    Connect(String),
    /// What is wrong, and what to do.
    Tls(String, &'static str),
}

/// Tries each target once for each way it is spoken to, and these others.
pub(super) async fn look(findings: &mut Findings, model: &Model, others: Vec<Tried>, limit: Duration) {
    let mut all = targets(model);
    all.extend(others);
    let (count, dns) = (all.len(), Arc::new(Dns::with_servers(&model.settings.dns_servers)));
    let tries = all.into_iter().take(MAX_TARGETS).map(|tried| {
        let dns = dns.clone();
        async move {
            let outcome = attempt(&tried, &dns, limit).await;
            (tried, outcome)
        }
    });
    let mut tries = futures_util::stream::iter(tries).buffered(AT_ONCE);
    while let Some((tried, outcome)) = tries.next().await {
        let about = match socket_path(&tried.host).or_else(|| service_name(&tried.host)) {
            Some(_) => format!("{} over {}", tried.scheme.as_str(), tried.host),
            None => format!("{}://{}:{}", tried.scheme.as_str(), tried.host, tried.port),
        };
        let of = tried.of;
        match outcome {
            Reached::Good(message) => findings.ok("target", about, message),
            Reached::Resolved(message) => findings.ok("name", about, message),
            Reached::Name(error) => {
                let message = format!("{error} ({of})");
                findings.error(
                    "name",
                    about,
                    message,
                    "correct the host, or the name servers of this machine",
                );
            }
            Reached::Connect(error) => {
                let message = format!("no connection: {error} ({of})");
                findings.error(
                    "target",
                    about,
                    message,
                    "start the target, correct host and port, or open the firewall",
                );
            }
            Reached::Tls(error, remedy) => {
                let message = format!("TLS fails: {error} ({of})");
                findings.error("target", about, message, remedy);
            }
        }
    }
    if count > MAX_TARGETS {
        let message = format!("only the first {MAX_TARGETS} of {count} targets were tried");
        findings.warning("target", "", message, "try the others by their own configuration");
    }
}

/// Each target once for each way it is spoken to.
fn targets(model: &Model) -> Vec<Tried> {
    let mut all = BTreeMap::new();
    for proxy in &model.proxies {
        let Proxy { id, backend, .. } = &**proxy;
        for target in &backend.upstream.targets {
            let tls = backend.tls.clone().filter(|_| backend.scheme.is_encrypted());
            let key = (
                target.host.clone(),
                target.port,
                backend.scheme.as_str(),
                format!("{tls:?}"),
                backend.dns_override(),
            );
            all.entry(key).or_insert_with(|| Tried {
                host: target.host.clone(),
                port: target.port,
                scheme: backend.scheme,
                tls,
                fixed: backend.dns_override(),
                of: format!("proxy `{id}`"),
            });
        }
    }
    all.into_values().collect()
}

async fn attempt(tried: &Tried, dns: &Arc<Dns>, limit: Duration) -> Reached {
    if let Some(path) = socket_path(&tried.host) {
        return match timeout(limit, UnixStream::connect(path)).await {
            Ok(Ok(_)) => Reached::Good("the socket takes connections".to_owned()),
            Ok(Err(error)) => Reached::Connect(error.to_string()),
            Err(_) => Reached::Connect("it does not answer in time".to_owned()),
        };
    }
    if let Some(name) = service_name(&tried.host) {
        return match timeout(limit, dns.services(&name.into())).await {
            Ok(Ok((found, _))) => Reached::Resolved(format!("{} servers", found.len())),
            Ok(Err(error)) => Reached::Name(error.to_string()),
            Err(_) => Reached::Name("no name server answers in time".to_owned()),
        };
    }
    let addresses = match tried.fixed {
        Some(address) => vec![SocketAddr::new(address, tried.port)],
        None => match timeout(limit, dns.resolve(&tried.host, tried.port, None)).await {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(error)) => return Reached::Name(error.to_string()),
            Err(_) => return Reached::Name("no name server answers in time".to_owned()),
        },
    };
    let shown = addresses.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(", ");
    if matches!(tried.scheme, Scheme::Udp | Scheme::Dtls) {
        return Reached::Resolved(format!("{shown}; datagrams say nothing about whether it answers"));
    }
    let mut failure = "it has no address".to_owned();
    for address in addresses {
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return encrypted(tried, stream, limit).await,
            Ok(Err(error)) => failure = format!("{address}: {error}"),
            Err(_) => failure = format!("{address}: it does not answer in time"),
        }
    }
    Reached::Connect(failure)
}

async fn encrypted(tried: &Tried, stream: TcpStream, limit: Duration) -> Reached {
    let address = stream.peer_addr().map_or_else(|_| String::new(), |address| address.to_string());
    let Some(rules) = &tried.tls else { return Reached::Good(format!("{address} takes connections")) };
    let prepared =
        client::build(rules, None).and_then(|config| Ok((config, client::server_name(rules, &tried.host)?)));
    let (config, name) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Reached::Tls(error.to_string(), "correct the files and names for TLS to it"),
    };
    match timeout(limit, TlsConnector::from(Arc::new(config)).connect(name, stream)).await {
        Ok(Ok(mut stream)) => {
            // A target that misses something says so by an alert; with TLS 1.3 it comes after the handshake.
            if let Ok(Err(error)) = timeout(limit.min(ALERT_TIMEOUT), stream.read_u8()).await
                && error.kind() != io::ErrorKind::UnexpectedEof
            {
                return Reached::Tls(error.to_string(), remedy(&error));
            }
            let version = stream.get_ref().1.protocol_version().and_then(|version| version.as_str());
            let verified =
                if rules.verify { "its certificate is trusted" } else { "its certificate is not checked" };
            Reached::Good(format!("{address} takes connections, {}, {verified}", version.unwrap_or("TLS")))
        }
        Ok(Err(error)) => Reached::Tls(error.to_string(), remedy(&error)),
        Err(_) => Reached::Tls("the handshake does not end in time".to_owned(), NO_TLS),
    }
}

/// What to do about a target that does not seem to speak TLS.
const NO_TLS: &str =
    "check the port, and that the target speaks TLS there; else write the scheme without TLS";

/// What to do about a handshake that failed.
fn remedy(error: &io::Error) -> &'static str {
    use rustls::AlertDescription as Alert;
    use rustls::{CertificateError, Error};
    let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else { return NO_TLS };
    match error {
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew the target's certificate, or set the clock of this machine",
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "name the host that the certificate is for, by `backend_tls_server_name` for a proxy's target",
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "name its CA, by `backend_tls_ca_path` for a proxy's target and `ca_path` for others"
        }
        Error::AlertReceived(Alert::CertificateRequired) => {
            "give a client certificate, by `backend_tls_client_cert_path` and `…_key_path` for a proxy's target"
        }
        Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate,
        ) => "give a client certificate that the target takes",
        Error::AlertReceived(Alert::ProtocolVersion) | Error::PeerIncompatible(_) => {
            "have the target speak TLS 1.2 or 1.3 with current ciphers"
        }
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => NO_TLS,
        _ => "correct the target's TLS settings or its certificate",
    }
}
