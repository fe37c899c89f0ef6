//! The gateway's own certificates and the TLS configuration its listeners share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use gateway_core::config::model::{FrontendTls, Settings, TlsVersion};
use gateway_protocols::downstream::accept::Entrance;
use gateway_protocols::quic::{ServerRules, limited, server_config};
use gateway_protocols::tls::challenge::{self, TlsChallenges, WithChallenges};
use gateway_protocols::tls::server::{Certificates, ServerTlsError, build};
use gateway_protocols::tls::trust::{ClientRoots, ClientTrust};
use gateway_protocols::udp::dtls::DtlsRules;
use rustls::ServerConfig;

/// What clients are offered, in this order.
const ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];
/// The same for listeners that also answer a CA. It comes last: who offers anything else gets that.
const ALPN_WITH_CHALLENGES: &[&[u8]] = &[b"h2", b"http/1.1", challenge::ALPN];

/// Certificates and the configuration around them; both can be replaced while connections go on.
pub(crate) struct Frontend {
    certificates: Arc<Certificates>,
    challenges: Arc<TlsChallenges>,
    config: Arc<ArcSwap<ServerConfig>>,
    /// The same without ALPN, for stream proxies that terminate TLS.
    streams: Arc<ArcSwap<ServerConfig>>,
    /// The same over QUIC, once it is served.
    quic: OnceLock<ServerRules>,
    dtls: Arc<DtlsRules>,
    trust: Arc<ClientTrust>,
    in_use: Mutex<TlsInUse>,
}

/// What the configuration in use was made of.
struct TlsInUse {
    rules: FrontendTls,
    roots: Option<ClientRoots>,
    /// By which open connections were judged last.
    judged: Option<ClientRoots>,
}

impl Frontend {
    /// Reads the certificates.
    pub(crate) fn new(rules: &FrontendTls) -> Result<Self, ServerTlsError> {
        let certificates = Arc::new(Certificates::default());
        certificates.load(&rules.certificates)?;
        let challenges = Arc::new(TlsChallenges::default());
        let config = https(rules, &certificates, &challenges)?;
        let streams = build(&without_early_data(rules), certificates.clone(), &[])?;
        let dtls = Arc::new(DtlsRules::default());
        load_dtls(&dtls, rules);
        let roots = ClientRoots::read(rules)?;
        let trust = Arc::new(ClientTrust::default());
        trust.replace(roots.as_ref())?;
        Ok(Self {
            trust,
            dtls,
            certificates,
            challenges,
            config: Arc::new(ArcSwap::from_pointee(config)),
            streams: Arc::new(ArcSwap::from_pointee(streams)),
            quic: OnceLock::new(),
            in_use: Mutex::new(TlsInUse { rules: rules.clone(), judged: roots.clone(), roots }),
        })
    }

    /// What a TLS listener's connections begin with.
    pub(crate) fn entrance(&self) -> Entrance {
        Entrance::Tls(self.config.clone())
    }

    /// Prepares QUIC, with the same certificates.
    pub(crate) fn serve_quic(&self, settings: &Settings) -> Result<(), ServerTlsError> {
        let config = self.build_quic(settings, None)?;
        self.quic.get_or_init(|| Arc::new(ArcSwap::from_pointee(config)));
        Ok(())
    }

    /// The server's side of QUIC, where it is served. One for all listeners and workers: a client is resumed by any, and its session
    /// is gone for all of them.
    pub(crate) fn quic(&self) -> Option<ServerRules> {
        self.quic.get().cloned()
    }

    fn build_quic(
        &self,
        settings: &Settings,
        previous: Option<&quinn::ServerConfig>,
    ) -> Result<quinn::ServerConfig, ServerTlsError> {
        let rules = FrontendTls { min_version: TlsVersion::Tls13, ..settings.tls.clone() };
        let config = build(&rules, self.certificates.clone(), &[b"h3"])?;
        server_config(config, &settings.limits, settings.congestion, previous)
            .map_err(|error| ServerTlsError::Unusable(error.to_string()))
    }

    /// How stream proxies terminate DTLS.
    pub(crate) fn dtls(&self) -> Arc<DtlsRules> {
        self.dtls.clone()
    }

    /// How stream proxies terminate TLS.
    pub(crate) fn stream_config(&self) -> Arc<ArcSwap<ServerConfig>> {
        self.streams.clone()
    }

    /// How clients' certificates are judged after their handshakes.
    pub(crate) fn client_trust(&self) -> Arc<ClientTrust> {
        self.trust.clone()
    }

    /// What CAs are answered that check names by TLS handshakes.
    pub(crate) fn challenges(&self) -> &TlsChallenges {
        &self.challenges
    }

    /// Reads the certificates again. The configuration, with its session tickets, is kept where the rules and the CAs of clients are
    /// the same.
    pub(crate) fn reload(&self, settings: &Settings) -> Result<(), ServerTlsError> {
        let rules = &settings.tls;
        let mut in_use = self.in_use();
        let roots = ClientRoots::read(rules)?;
        let rebuilt = match in_use.rules == *rules && in_use.roots == roots {
            true => None,
            false => Some(self.rebuild(settings, roots)?),
        };
        self.certificates.load(&rules.certificates)?;
        load_dtls(&self.dtls, rules);
        if let Some(rebuilt) = rebuilt {
            self.store(rebuilt, &mut in_use);
        } else if let Some(rules) = self.quic.get() {
            rules.rcu(|quic| limited(quic, &settings.limits, settings.congestion));
        }
        in_use.rules.clone_from(rules);
        Ok(())
    }

    /// Reads changed files again, each by itself: what is bad stays as it was read last, and keeps no other from being used.
    /// The errors are those of bad files.
    pub(crate) fn refresh(&self, settings: &Settings) -> Vec<ServerTlsError> {
        let rules = &settings.tls;
        let mut in_use = self.in_use();
        let mut errors = self.certificates.refresh(&rules.certificates);
        let changed = match ClientRoots::read(rules) {
            Ok(roots) if roots == in_use.roots => Ok(()),
            Ok(roots) => self.rebuild(settings, roots).map(|rebuilt| self.store(rebuilt, &mut in_use)),
            Err(error) => Err(error),
        };
        errors.extend(changed.err());
        drop(in_use);
        self.end_untrusted();
        // What DTLS can't use it passes over, and may then serve nobody: with a bad file it keeps everything as it is.
        if errors.is_empty() {
            load_dtls(&self.dtls, rules);
        }
        errors
    }

    fn rebuild(&self, settings: &Settings, roots: Option<ClientRoots>) -> Result<Rebuilt, ServerTlsError> {
        let rules = &settings.tls;
        let https = https(rules, &self.certificates, &self.challenges)?;
        let streams = build(&without_early_data(rules), self.certificates.clone(), &[])?;
        let quic = self.quic.get().map(|quic| self.build_quic(settings, Some(&quic.load())));
        Ok(Rebuilt { https, streams, quic: quic.transpose()?, roots })
    }

    /// Puts it in use for new connections.
    fn store(&self, rebuilt: Rebuilt, in_use: &mut TlsInUse) {
        let Rebuilt { https, streams, quic, roots } = rebuilt;
        self.config.store(Arc::new(https));
        self.streams.store(Arc::new(streams));
        if let (Some(rules), Some(quic)) = (self.quic.get(), quic) {
            rules.store(Arc::new(quic));
        }
        in_use.roots = roots;
    }

    /// Ends the connections of clients whose certificates come from none of the CAs that are trusted now.
    pub(crate) fn end_untrusted(&self) {
        let mut in_use = self.in_use();
        if in_use.judged == in_use.roots {
            return;
        }
        match self.trust.replace(in_use.roots.as_ref()) {
            Ok(0) => {}
            Ok(connections) => {
                tracing::warn!(
                    connections,
                    "connections end: their clients' certificates are not trusted any more"
                );
            }
            // They were good enough for the rules of new connections.
            Err(error) => {
                tracing::error!(%error, "open connections could not be judged by the changed client CAs")
            }
        }
        in_use.judged = in_use.roots.clone();
    }

    fn in_use(&self) -> MutexGuard<'_, TlsInUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The configurations around the certificates.
struct Rebuilt {
    roots: Option<ClientRoots>,
    https: ServerConfig,
    streams: ServerConfig,
    quic: Option<quinn::ServerConfig>,
}

/// The server's side of https.
fn https(
    rules: &FrontendTls,
    certificates: &Arc<Certificates>,
    challenges: &Arc<TlsChallenges>,
) -> Result<ServerConfig, ServerTlsError> {
    let certificates = certificates.clone();
    if !rules.tls_alpn_challenges {
        return build(rules, certificates, ALPN);
    }
    let resolver = WithChallenges { certificates, challenges: challenges.clone() };
    build(rules, Arc::new(resolver), ALPN_WITH_CHALLENGES)
}

/// The certificate of the admin API, where it is asked by TLS. The configuration around it is that of the start.
pub(crate) struct AdminTls(Option<(Arc<Certificates>, Arc<ArcSwap<ServerConfig>>)>);

impl AdminTls {
    pub(crate) fn new(rules: Option<&FrontendTls>) -> Result<Self, ServerTlsError> {
        let Some(rules) = rules else { return Ok(Self(None)) };
        let certificates = Arc::new(Certificates::default());
        certificates.load(&rules.certificates)?;
        let config = build(rules, certificates.clone(), &[b"http/1.1"])?;
        Ok(Self(Some((certificates, Arc::new(ArcSwap::from_pointee(config))))))
    }

    /// What its listener's connections begin with.
    pub(crate) fn config(&self) -> Option<Arc<ArcSwap<ServerConfig>>> {
        self.0.as_ref().map(|(_, config)| config.clone())
    }

    /// Reads the files again; those in use stay when one is bad.
    pub(crate) fn reload(&self, rules: Option<&FrontendTls>) -> Result<(), ServerTlsError> {
        let (Some((certificates, config)), Some(rules)) = (&self.0, rules) else { return Ok(()) };
        let rebuilt = build(rules, certificates.clone(), &[b"http/1.1"])?;
        certificates.load(&rules.certificates)?;
        config.store(Arc::new(rebuilt));
        Ok(())
    }
}

/// What is repeated can't be told from what is new in a stream of bytes: there is no early data in those.
fn without_early_data(rules: &FrontendTls) -> FrontendTls {
    FrontendTls { early_data: false, ..rules.clone() }
}

/// Not an error by itself: only proxies that terminate DTLS need what it can't do, and they are refused.
fn load_dtls(dtls: &DtlsRules, rules: &FrontendTls) {
    if let Err(error) = dtls.load(rules) {
        tracing::debug!(%error, "no certificate for DTLS");
    }
}
