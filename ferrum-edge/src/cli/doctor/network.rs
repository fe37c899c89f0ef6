//! Names and targets: whether they resolve, take connections, and show certificates that are trusted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use gateway_core::config::model::{BackendTls, Model, Proxy, Scheme, service_name, socket_path};
use gateway_protocols::dns::Dns;
use gateway_protocols::tls::client;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Findings;

/// Targets that are tried; of more only these.
const MAX_TARGETS: usize = 1000;
/// Targets that are tried at a time.
const AT_ONCE: usize = 32;

/// A target as some proxy uses it.
struct Tried {
    host: Arc<str>,
    port: u16,
    scheme: Scheme,
    tls: Option<Arc<BackendTls>>,
    fixed: Option<std::net::IpAddr>,
    /// The first proxy that uses it so.
    proxy: String,
}

/// What became of it.
enum Reached {
    Good(String),
    /// It is spoken to by datagrams: only its name can be looked at.
    Resolved(String),
    Name(String),
    Connect(String),
    Tls(String),
}

/// Tries each target once for each way it is spoken to.
pub(super) async fn look(findings: &mut Findings, model: &Model, limit: Duration) {
    let all = targets(model);
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
        let proxy = tried.proxy;
        match outcome {
            Reached::Good(message) => findings.ok("target", about, message),
            Reached::Resolved(message) => findings.ok("name", about, message),
            Reached::Name(error) => {
                let message = format!("{error} (proxy `{proxy}`)");
                findings.error(
                    "name",
                    about,
                    message,
                    "correct the host, or the name servers of this machine",
                );
            }
            Reached::Connect(error) => {
                let message = format!("no connection: {error} (proxy `{proxy}`)");
                findings.error(
                    "target",
                    about,
                    message,
                    "start the target, correct host and port, or open the firewall",
                );
            }
            Reached::Tls(error) => {
                let message = format!("the TLS handshake fails: {error} (proxy `{proxy}`)");
                let remedy =
                    "name its CA by `backend_tls_server_ca_cert_path`, or correct the target's certificate";
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
                backend.dns_override,
            );
            all.entry(key).or_insert_with(|| Tried {
                host: target.host.clone(),
                port: target.port,
                scheme: backend.scheme,
                tls,
                fixed: backend.dns_override,
                proxy: id.to_string(),
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
        Err(error) => return Reached::Tls(error.to_string()),
    };
    match timeout(limit, TlsConnector::from(Arc::new(config)).connect(name, stream)).await {
        Ok(Ok(stream)) => {
            let version = stream.get_ref().1.protocol_version().and_then(|version| version.as_str());
            let verified =
                if rules.verify { "its certificate is trusted" } else { "its certificate is not checked" };
            Reached::Good(format!("{address} takes connections, {}, {verified}", version.unwrap_or("TLS")))
        }
        Ok(Err(error)) => Reached::Tls(error.to_string()),
        Err(_) => Reached::Tls("it does not end in time".to_owned()),
    }
}
