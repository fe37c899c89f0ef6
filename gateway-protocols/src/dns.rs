//! Resolves the host names of targets off the request path. Answers are cached for their TTL, and used a while longer when
//! the next lookup is late or fails.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use gateway_core::snapshot::discovery::{MAX_SERVICES, Service};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError as ResponseError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RData;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Resolves host names and caches the answers; one for all workers.
pub struct Dns {
    resolver: Option<TokioResolver>,
    names: DashMap<Arc<str>, Arc<Name>>,
}

/// The cache entry of a host name.
#[derive(Default)]
struct Name {
    answer: ArcSwapOption<DnsAnswer>,
    /// Held during a lookup; tasks without an answer wait for it, so that only one query is sent. Why the last one failed, and
    /// until when there is no other one.
    lookup: Mutex<Option<(Instant, String)>>,
    refreshing: AtomicBool,
}

#[derive(Debug)]
struct DnsAnswer {
    addresses: Box<[IpAddr]>,
    expires: Instant,
}

/// Where a connection leads that was made by a name.
pub(crate) struct ResolvedAddress {
    dns: Arc<Dns>,
    host: Arc<str>,
    name: Arc<Name>,
    ttl: Option<Duration>,
    address: IpAddr,
}

impl ResolvedAddress {
    /// Whether the name still has this address, as far as is known. A name whose TTL is over is looked up again in the background;
    /// so a connection in constant use doesn't stay with an address that was taken out.
    pub(crate) fn is_current(&self, now: Instant) -> bool {
        let answer = self.name.answer.load();
        let Some(answer) = &*answer else { return true };
        if answer.expires <= now {
            self.dns.refresh(self.host.clone(), self.name.clone(), self.ttl);
        }
        answer.addresses.contains(&self.address)
    }
}

impl std::fmt::Debug for ResolvedAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResolvedAddress({} at {})", self.host, self.address)
    }
}

/// A lookup that failed.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The name server returned an error or no records, or did not answer.
    #[error("{name} could not be resolved: {reason}")]
    Failed {
        /// The name.
        name: Arc<str>,
        /// The resolver's error.
        reason: String,
    },
    /// The system has no usable resolver configuration.
    #[error("{name} could not be resolved: this system has no resolver configuration")]
    NoResolver {
        /// The name.
        name: Arc<str>,
    },
}

/// Why a lookup failed, in the words of operators instead of the resolver's.
fn reason(error: &NetError) -> String {
    if error.is_nx_domain() {
        return "the name does not exist (NXDOMAIN)".to_owned();
    }
    match error {
        NetError::Dns(ResponseError::NoRecordsFound(found))
            if found.response_code != ResponseCode::NoError =>
        {
            format!("the name server answered {}", found.response_code)
        }
        NetError::Dns(ResponseError::ResponseCode(code)) => format!("the name server answered {code}"),
        NetError::Dns(ResponseError::NoRecordsFound(_)) => "the name has no such records".to_owned(),
        NetError::Timeout => "no name server answered in time".to_owned(),
        other => other.to_string(),
    }
}

/// Names in the cache at most; names beyond that are resolved for each new connection.
const MAX_NAMES: usize = 100_000;
/// The lowest TTL, so that a record with TTL 0 does not cost a query per connection.
const MIN_TTL: Duration = Duration::from_secs(5);
/// The highest TTL, so that a record that was to last for days does not keep a server that has moved.
const MAX_TTL: Duration = Duration::from_mins(5);
/// How long a failed lookup is not repeated.
const RETRY: Duration = Duration::from_secs(1);
/// How long an expired answer is still used while a lookup is under way.
const STALE: Duration = Duration::from_secs(3600);

impl Default for Dns {
    fn default() -> Self {
        Self::with_servers(&[])
    }
}

impl Dns {
    /// Queries these name servers; the system's if the list is empty.
    pub fn with_servers(servers: &[SocketAddr]) -> Self {
        let builder = match servers {
            [] => TokioResolver::builder_tokio(),
            servers => Ok(TokioResolver::builder_with_config(
                ResolverConfig::from_name_servers(servers.iter().map(name_server).collect()),
                TokioRuntimeProvider::default(),
            )),
        };
        let resolver = builder.and_then(|mut builder| {
            // Answers are cached here, for as long as the settings say.
            builder.options_mut().cache_size = 0;
            builder.build()
        });
        let resolver = resolver
            .inspect_err(
                |error| tracing::warn!(%error, "no system resolver; only addresses and localhost resolve"),
            )
            .ok();
        Self { resolver, names: DashMap::new() }
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    connections.iter_mut().for_each(|connection| connection.port = address.port());
    NameServerConfig::new(address.ip(), true, connections)
}

impl Dns {
    /// Resolves a host name to at least one address. `ttl` overrides the TTL of the records.
    ///
    /// # Errors
    /// When the lookup fails and no earlier answer is cached.
    pub async fn resolve(
        self: &Arc<Self>,
        host: &Arc<str>,
        port: u16,
        ttl: Option<Duration>,
    ) -> Result<Vec<SocketAddr>, DnsError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let name = self.name(host);
        let now = Instant::now();
        if let Some(answer) = name.answer.load_full() {
            if answer.expires > now {
                return Ok(answer.with_port(port));
            }
            if answer.expires + STALE > now {
                self.refresh(host.clone(), name, ttl);
                return Ok(answer.with_port(port));
            }
        }
        let mut failed = name.lookup.lock().await;
        if let Some(answer) = name.answer.load_full().filter(|answer| answer.expires > now) {
            return Ok(answer.with_port(port));
        }
        if let Some((_, reason)) = failed.as_ref().filter(|(until, _)| *until > Instant::now()) {
            return Err(DnsError::Failed { name: host.clone(), reason: reason.clone() });
        }
        let found = self.lookup(host, ttl).await;
        *failed = match &found {
            Err(DnsError::Failed { reason, .. }) => Some((Instant::now() + RETRY, reason.clone())),
            _ => None,
        };
        let answer = Arc::new(found?);
        name.answer.store(Some(answer.clone()));
        Ok(answer.with_port(port))
    }

    /// Where a connection leads that was made to this address of a host; `None` where the host is an address itself.
    pub(crate) fn resolved(
        self: &Arc<Self>,
        host: &Arc<str>,
        address: IpAddr,
        ttl: Option<Duration>,
    ) -> Option<Arc<ResolvedAddress>> {
        if host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let name = self.name(host);
        Some(Arc::new(ResolvedAddress { dns: self.clone(), host: host.clone(), name, ttl, address }))
    }

    /// Looks up the SRV records of a service: its servers and the TTL. Empty if the records say that there is no such service.
    ///
    /// # Errors
    /// When the lookup fails.
    pub async fn services(&self, name: &Arc<str>) -> Result<(Arc<[Service]>, Duration), DnsError> {
        let Some(resolver) = &self.resolver else { return Err(DnsError::NoResolver { name: name.clone() }) };
        let failed = |reason: String| DnsError::Failed { name: name.clone(), reason };
        let found = resolver.srv_lookup(&**name).await.map_err(|error| failed(reason(&error)))?;
        let mut services: Vec<Service> = Vec::new();
        let mut left_out = 0;
        for record in found.answers() {
            let RData::SRV(srv) = &record.data else { continue };
            let host = srv.target.to_utf8();
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            // A target of `.` says that there is no such service (RFC 2782).
            if host.is_empty() || srv.port == 0 {
                continue;
            }
            if services.len() == MAX_SERVICES {
                left_out += 1;
                continue;
            }
            let (priority, weight) = (srv.priority, srv.weight);
            services.push(Service { priority, host: host.into(), port: srv.port, weight });
        }
        if left_out > 0 {
            tracing::warn!(service = %name, left_out, "a service has more than {MAX_SERVICES} servers");
        }
        services.sort_unstable();
        services.dedup();
        let left = found.valid_until().saturating_duration_since(std::time::Instant::now());
        Ok((services.into(), left.clamp(MIN_TTL, MAX_TTL)))
    }

    fn name(&self, host: &Arc<str>) -> Arc<Name> {
        if let Some(name) = self.names.get(host) {
            return name.clone();
        }
        let name = Arc::new(Name::default());
        if self.names.len() < MAX_NAMES {
            self.names.insert(host.clone(), name.clone());
        }
        name
    }

    /// Looks the name up again in the background; if that fails, the old answer stays.
    fn refresh(self: &Arc<Self>, host: Arc<str>, name: Arc<Name>, ttl: Option<Duration>) {
        if name.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let dns = self.clone();
        tokio::spawn(async move {
            match dns.lookup(&host, ttl).await {
                Ok(answer) => name.answer.store(Some(Arc::new(answer))),
                Err(error) => {
                    tracing::warn!(%error, "keeping the last known addresses");
                    // A resolver that fails immediately would otherwise get a query per connection.
                    tokio::time::sleep(RETRY).await;
                }
            }
            name.refreshing.store(false, Ordering::Release);
        });
    }

    async fn lookup(&self, host: &Arc<str>, ttl: Option<Duration>) -> Result<DnsAnswer, DnsError> {
        if &**host == "localhost" || host.ends_with(".localhost") {
            // RFC 6761 §6.3: no query is sent. IPv4 first, where most development servers listen.
            let addresses = Box::new([IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
            return Ok(DnsAnswer { addresses, expires: Instant::now() + MAX_TTL });
        }
        let Some(resolver) = &self.resolver else { return Err(DnsError::NoResolver { name: host.clone() }) };
        let found = resolver
            .lookup_ip(&**host)
            .await
            .map_err(|error| DnsError::Failed { name: host.clone(), reason: reason(&error) })?;
        let mut addresses: Vec<IpAddr> = found.iter().collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        if addresses.is_empty() {
            return Err(DnsError::Failed { name: host.clone(), reason: "no addresses".into() });
        }
        let left = found.valid_until().saturating_duration_since(std::time::Instant::now());
        let ttl = ttl.unwrap_or_else(|| left.clamp(MIN_TTL, MAX_TTL));
        Ok(DnsAnswer { addresses: addresses.into(), expires: Instant::now() + ttl })
    }
}

impl DnsAnswer {
    /// The addresses, rotated by a random offset, so that connections spread over them.
    fn with_port(&self, port: u16) -> Vec<SocketAddr> {
        let count = self.addresses.len();
        let families =
            self.addresses.iter().any(IpAddr::is_ipv4) && self.addresses.iter().any(IpAddr::is_ipv6);
        // With both families IPv4 comes first, which a rotation would undo.
        let start = if families || count < 2 { 0 } else { fastrand::usize(..count) };
        (0..count).map(|n| SocketAddr::new(self.addresses[(start + n) % count], port)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use super::*;

    /// A name server that answers each SRV query with these records.
    fn server(records: &'static [(u16, u16, u16, &'static str)]) -> Dns {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut query = [0; 1500];
            while let Ok((length, client)) = socket.recv_from(&mut query) {
                // A question is a name, a type and a class.
                let name = query[12..length].iter().position(|byte| *byte == 0).unwrap_or(0);
                let question = &query[12..12 + name + 5];
                let count = u16::try_from(records.len()).unwrap().to_be_bytes();
                let mut answer = vec![query[0], query[1], 0x81, 0x80, 0, 1, count[0], count[1], 0, 0, 0, 0];
                answer.extend_from_slice(question);
                for (priority, weight, port, host) in records {
                    let mut data =
                        [priority.to_be_bytes(), weight.to_be_bytes(), port.to_be_bytes()].concat();
                    for label in host.split('.').filter(|label| !label.is_empty()) {
                        data.push(u8::try_from(label.len()).unwrap());
                        data.extend_from_slice(label.as_bytes());
                    }
                    data.push(0);
                    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
                    answer.extend_from_slice(&[0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 7, length[0], length[1]]);
                    answer.extend_from_slice(&data);
                }
                socket.send_to(&answer, client).unwrap();
            }
        });
        Dns::with_servers(&[address])
    }

    #[tokio::test]
    async fn srv_records_become_services() {
        let dns = server(&[(20, 1, 81, "B.test."), (10, 5, 80, "a.test."), (10, 0, 0, "none.test.")]);
        let (services, ttl) = dns.services(&"_http._tcp.shop.test".into()).await.unwrap();
        let found: Vec<_> = services.iter().map(|it| (it.priority, it.weight, it.port, &*it.host)).collect();
        assert_eq!(found, [(10, 5, 80, "a.test"), (20, 1, 81, "b.test")]);
        assert!(ttl > Duration::from_secs(5) && ttl <= Duration::from_secs(7), "{ttl:?}");
        let (none, _) = server(&[(0, 0, 1, ".")]).services(&"_http._tcp.shop.test".into()).await.unwrap();
        assert!(none.is_empty(), "there is no such service");
    }

    /// A name server that answers each query with this code and no record.
    fn refusing(code: u8) -> Arc<Dns> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut query = [0; 1500];
            while let Ok((length, client)) = socket.recv_from(&mut query) {
                let name = query[12..length].iter().position(|byte| *byte == 0).unwrap_or(0);
                let mut answer = vec![query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0];
                answer.extend_from_slice(&query[12..12 + name + 5]);
                socket.send_to(&answer, client).unwrap();
            }
        });
        Arc::new(Dns::with_servers(&[address]))
    }

    #[tokio::test]
    async fn a_failed_lookup_says_what_the_name_server_answered() {
        let host: Arc<str> = "shop.test".into();
        let cases = [
            (0, "the name has no such records"),
            (2, "the name server answered Server Failure"),
            (3, "the name does not exist (NXDOMAIN)"),
            (5, "the name server answered Query Refused"),
        ];
        for (code, why) in cases {
            let failed = refusing(code).resolve(&host, 80, None).await.unwrap_err().to_string();
            assert_eq!(failed, format!("shop.test could not be resolved: {why}"), "code {code}");
        }
        assert_eq!(reason(&NetError::Timeout), "no name server answered in time");
        let none = Arc::new(Dns { resolver: None, names: DashMap::new() });
        let failed = none.resolve(&host, 80, None).await.unwrap_err().to_string();
        assert_eq!(failed, "shop.test could not be resolved: this system has no resolver configuration");
    }
}
