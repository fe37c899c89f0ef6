//! Recognises callers by the certificate they show in the TLS handshake, and hands it on to targets (RFC 9440).
//!
//! The certificate has been verified against `gateway.tls.client_ca_path` before a request comes here; without that setting
//! no listener asks for certificates, and every request is refused. A consumer's `mtls_auth` credential is one of the
//! names in its certificate, or the certificate's SHA-256. What clients send in `Client-Cert` headers is never believed,
//! except from trusted proxies where `trust_forwarded` says so.
//!
//! On a TCP or UDP proxy with `frontend_tls` it recognises the client of each connection the same way, so that limits by consumer and by owner,
//! the access log and `/v1/sessions` name it. A connection without a certificate that names a consumer is closed.

mod certificate;

use std::sync::Arc;

use gateway_core::config::credential::{AtRest, CredentialType, any_text};
use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Authenticate, Claim, Family, Gate, Hooks, OnConnect, OnRequest, Plugin, Refusal, Seat, Step, World,
};
use gateway_core::stream::session::Session;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::credential::checked::CheckCache;
use crate::credential::{absent, now};
use certificate::{Certificate, CertificateField, Issuer};

/// Settings of `mtls_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Parts of the certificate that may name the caller, in this order: `fingerprint_sha256`, `san_uri`, `san_dns`,
    /// `san_email`, `subject_cn`. The first that matches a consumer's `mtls_auth` credential decides. If two names of
    /// one part match different consumers, the request is rejected. Default all of them.
    #[schemars(length(max = 5))]
    identify_by: Vec<CertificateField>,
    /// Accepted issuers, each with the `cn`, `o` or `ou` of its name. Default every issuer that
    /// `gateway.tls.client_ca_path` trusts.
    #[schemars(length(max = 100))]
    allowed_issuers: Vec<Issuer>,
    /// Rejects callers that are not consumers. If false, they are named by the first name that `identify_by` finds.
    /// Default true.
    require_consumer: bool,
    /// Sends the certificate to targets in `Client-Cert` (RFC 9440). Default false.
    forward_certificate: bool,
    /// Sends the certificates that the client sent after its own in `Client-Cert-Chain`. Default false.
    forward_chain: bool,
    /// Takes the certificate from `Client-Cert` if a trusted proxy (`gateway.trusted_proxies`) without a client
    /// certificate of its own sends the request. Default false.
    trust_forwarded: bool,
    /// Username of the consumer for requests without a certificate. Default none: a certificate is required.
    anonymous: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            identify_by: vec![
                CertificateField::FingerprintSha256,
                CertificateField::SanUri,
                CertificateField::SanDns,
                CertificateField::SanEmail,
                CertificateField::SubjectCn,
            ],
            allowed_issuers: Vec::new(),
            require_consumer: true,
            forward_certificate: false,
            forward_chain: false,
            trust_forwarded: false,
            anonymous: None,
        }
    }
}

/// The plugin.
pub(crate) struct MtlsAuth {
    config: Config,
    read: CheckCache<Arc<Certificate>>,
    accepted: Counter,
    refused: Counter,
}

/// Certificates that each worker keeps read.
const READ: u32 = 1000;
/// Bytes of `Client-Cert-Chain`; a longer one is refused.
const MAX_CHAIN: usize = 32 << 10;
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");

/// A name in a client's certificate, which is no secret.
static IDENTITY: CredentialType = CredentialType {
    name: "mtls_auth",
    aliases: &["mtlsauth"],
    key: "identity",
    instead: &["identity_sha256"],
    optional: &[],
    check: any_text,
    min_bytes: 1,
    is_unique: true,
    at_rest: AtRest::Clear,
};

const CERTIFICATES: Metric = Metric::counter(
    "ferrum_mtls_auth_certificates_total",
    "Requests with a client certificate, by result: accepted or refused.",
);

impl Plugin for MtlsAuth {
    const NAME: &'static str = "mtls_auth";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str = "Authenticates callers by their TLS client certificate.";
    const CREDENTIAL: Option<&'static CredentialType> = Some(&IDENTITY);
    const EXAMPLE: &'static str = include_str!("../examples/mtls_auth.yaml");
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        for (n, issuer) in config.allowed_issuers.iter().enumerate() {
            if issuer.cn.is_none() && issuer.o.is_none() && issuer.ou.is_none() {
                problems.add(format!("config.allowed_issuers[{n}]"), "needs `cn`, `o` or `ou`");
            }
        }
        if config.identify_by.is_empty() {
            problems.add("config.identify_by", "no part of a certificate names the caller");
        }
        for (n, part) in config.identify_by.iter().enumerate() {
            if config.identify_by.iter().take(n).any(|earlier| earlier == part) {
                problems.add(format!("config.identify_by[{n}]"), "this part is there twice");
            }
        }
        problems.into_result(())?;
        let count = |result| world.meters().counter(CERTIFICATES, &["result"], &[result]);
        Ok(Self {
            config,
            read: CheckCache::new(READ),
            accepted: count("accepted"),
            refused: count("refused"),
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.authenticate(self.clone());
        hooks.on_connect(self.clone());
        if self.config.forward_certificate || self.config.forward_chain {
            hooks.on_request(self);
        }
    }
}

impl Authenticate for MtlsAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let certificate = match self.certificate(exchange) {
            Ok(Some(certificate)) => certificate,
            Ok(None) => {
                let reply = refusal(
                    Cause::Unauthenticated,
                    "certificate_missing",
                    "a client certificate is required",
                );
                return absent(self.config.anonymous.as_deref(), seat, reply);
            }
            Err(reply) => return self.refused(reply),
        };
        match self.judge(&certificate, seat, now()) {
            Ok(identity) => {
                self.accepted.add(1);
                Claim::Caller(identity)
            }
            Err(reply) => self.refused(reply),
        }
    }
}

impl OnConnect for MtlsAuth {
    fn on_connect<'a>(&'a self, session: &'a mut Session, seat: Seat<'a>) -> Gate<'a> {
        // A WebSocket has the caller of the request it began with.
        if session.head.is_some() {
            return Gate::Open;
        }
        let shown = session.client.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
        let judged = match shown.map(|der| self.read(der)) {
            None => {
                let anonymous =
                    self.config.anonymous.as_deref().and_then(|name| seat.consumers().by_name(name));
                anonymous.cloned().ok_or("certificate_missing")
            }
            Some(None) => Err("certificate_unreadable"),
            Some(Some(certificate)) => self
                .judge(&certificate, seat, now())
                .map_err(|reply| reply.reason.unwrap_or("certificate_refused")),
        };
        match judged {
            Ok(identity) => {
                self.accepted.add(1);
                session.identity = Some(identity);
                Gate::Open
            }
            Err(reason) => {
                self.refused.add(1);
                Gate::Refuse(Refusal { reason, cause: Cause::Unauthenticated })
            }
        }
    }
}

impl OnRequest for MtlsAuth {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        let shown = self.certificate(exchange).ok().flatten();
        let forwarded = exchange.request.headers.remove(CLIENT_CERT_CHAIN);
        exchange.request.headers.remove(CLIENT_CERT);
        let Some(certificate) = shown else { return Step::Next };
        if self.config.forward_certificate {
            exchange.request.headers.insert(CLIENT_CERT, certificate.header.clone());
        }
        if !self.config.forward_chain {
            return Step::Next;
        }
        let chain = match &exchange.client.tls {
            Some(tls) if tls.certificate.is_some() => {
                let all: Vec<String> = tls.chain.iter().map(|der| certificate::encoded(der)).collect();
                HeaderValue::try_from(all.join(", ")).ok().filter(|chain| !chain.is_empty())
            }
            _ => forwarded,
        };
        if chain.as_ref().is_some_and(|chain| chain.len() > MAX_CHAIN) {
            let detail = "the client certificate's chain is too long";
            return Step::Reply(refusal(Cause::Forbidden, "certificate_chain_too_long", detail));
        }
        if let Some(chain) = chain {
            exchange.request.headers.insert(CLIENT_CERT_CHAIN, chain);
        }
        Step::Next
    }
}

fn refusal(cause: Cause, reason: &'static str, detail: &'static str) -> Box<Reply> {
    let challenge = HeaderValue::from_static("ClientCertificate realm=\"ferrum-edge\"");
    let reply = Reply::new(cause).reason(reason).detail(detail);
    Box::new(match cause {
        Cause::Unauthenticated => reply.header(WWW_AUTHENTICATE, challenge),
        _ => reply,
    })
}

impl MtlsAuth {
    fn refused(&self, reply: Box<Reply>) -> Claim<'_> {
        self.refused.add(1);
        Claim::Refused(reply)
    }

    /// The certificate of a request; `None` where there is none.
    fn certificate(&self, exchange: &Exchange) -> Result<Option<Arc<Certificate>>, Box<Reply>> {
        let unreadable = || {
            refusal(Cause::Unauthenticated, "certificate_unreadable", "the client certificate can't be read")
        };
        let shown = exchange.client.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
        if let Some(der) = shown {
            return self.read(der).map(Some).ok_or_else(unreadable);
        }
        if !self.config.trust_forwarded || !exchange.client.trusted {
            return Ok(None);
        }
        let mut fields = exchange.request.headers.get_all(CLIENT_CERT).iter();
        match (fields.next(), fields.next()) {
            (None, _) => Ok(None),
            (Some(field), None) => certificate::decoded(field.as_bytes())
                .and_then(|der| self.read(&der))
                .map(Some)
                .ok_or_else(unreadable),
            (Some(_), Some(_)) => Err(unreadable()),
        }
    }

    fn read(&self, der: &[u8]) -> Option<Arc<Certificate>> {
        let print = certificate::fingerprint(der);
        if let Some(known) = self.read.get(&print, 0) {
            return Some(known);
        }
        let certificate = Certificate::read(der, &print)?;
        self.read.put(print, certificate.clone(), u64::MAX);
        Some(certificate)
    }

    /// Whose certificate it is, at this second since 1970.
    fn judge(
        &self,
        certificate: &Certificate,
        seat: Seat<'_>,
        now: u64,
    ) -> Result<Arc<Identity>, Box<Reply>> {
        if !certificate.is_valid(now) {
            let detail = "the client certificate is not valid now";
            return Err(refusal(Cause::Unauthenticated, "certificate_expired", detail));
        }
        let issuers = &self.config.allowed_issuers;
        if !issuers.is_empty() && !issuers.iter().any(|issuer| certificate.is_by(issuer)) {
            let detail = "the client certificate's issuer is not accepted";
            return Err(refusal(Cause::Forbidden, "certificate_issuer", detail));
        }
        for part in &self.config.identify_by {
            let mut owners = certificate
                .names(*part)
                .filter_map(|name| seat.consumers().by_credential(&IDENTITY, name.as_bytes()));
            let Some(owner) = owners.next() else { continue };
            if owners.any(|other| !Arc::ptr_eq(owner, other)) {
                let detail = "the client certificate is that of several consumers";
                return Err(refusal(Cause::Forbidden, "certificate_ambiguous", detail));
            }
            return Ok(owner.clone());
        }
        let name = self.config.identify_by.iter().find_map(|part| certificate.names(*part).next());
        match name.filter(|_| !self.config.require_consumer) {
            Some(name) => Ok(Arc::new(Identity::external(name))),
            None => {
                let detail = "the client certificate is nobody's here";
                Err(refusal(Cause::Forbidden, "certificate_caller", detail))
            }
        }
    }
}

#[cfg(test)]
mod tests;
