//! What `bind` lines ask of clients' certificates. The gateway has one file of authorities, and one of revocation lists, for all of them.

use super::Haproxy;
use super::sections::{HaproxyLine, Section};
use crate::cond::Cond;
use crate::draft::{GatewayTls, To};
use crate::steps::{RouteEnd, RouteStep};

const WHY: &str =
    "the gateway has one file of authorities, and one of revocation lists, for all clients' certificates";

/// What all frontends ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum ClientCertificates {
    /// Nothing.
    #[default]
    Unasked,
    /// Certificates of one file of authorities.
    Verified { ca: String, crl: Option<String>, is_required: bool },
    /// Different things.
    Different,
}

/// The word behind another one.
fn value<'l>(line: &'l HaproxyLine, word: &str) -> Option<&'l str> {
    let words = line.arguments();
    words.iter().position(|it| it == word).and_then(|n| words.get(n + 1)).map(String::as_str)
}

fn verifies(line: &HaproxyLine) -> bool {
    matches!(value(line, "verify"), Some("required" | "optional"))
}

fn binds(section: &Section) -> impl Iterator<Item = &HaproxyLine> {
    let is_tls = |line: &&HaproxyLine| line.name() == "bind" && line.arguments().iter().any(|it| it == "ssl");
    section.lines.iter().filter(is_tls).filter(|line| line.lacks().is_none())
}

impl ClientCertificates {
    /// Reads what the frontends of HTTP ask for.
    pub(super) fn read<'s>(fronts: impl Iterator<Item = &'s Section>) -> Self {
        let lines: Vec<&HaproxyLine> = fronts.flat_map(binds).collect();
        let is_required = lines.iter().all(|line| value(line, "verify") == Some("required"));
        let mut files: Vec<_> = lines
            .into_iter()
            .filter(|line| verifies(line))
            .map(|line| (value(line, "ca-file"), value(line, "crl-file")))
            .collect();
        files.sort_unstable();
        files.dedup();
        match files.as_slice() {
            [] => Self::Unasked,
            [(Some(ca), crl)] => {
                Self::Verified { ca: (*ca).to_owned(), crl: crl.map(str::to_owned), is_required }
            }
            // HAProxy does not start without authorities.
            _ => Self::Different,
        }
    }

    /// Writes them into the settings of TLS.
    pub(super) fn write(&self, tls: &mut GatewayTls) {
        if let Self::Verified { ca, crl, is_required } = self {
            tls.client_ca_path(ca);
            tls.client_cert_required(*is_required);
            if let Some(crl) = crl {
                tls.client_crl_path(crl);
            }
        }
    }
}

impl Haproxy<'_, '_> {
    /// What keeps clients without a certificate out of a frontend.
    pub(super) fn certified(&mut self, section: &Section) -> Option<RouteStep> {
        let line = binds(section).find(|line| verifies(line))?;
        match &self.client_certificates {
            ClientCertificates::Different => {
                let todo = "split it up, or set gateway.tls.client_ca_path";
                let is_closed = self.out.guard_not_converted(line.at, line.text(), WHY, todo);
                is_closed.then(|| RouteStep::End(Cond::Always, RouteEnd::new(line.at, To::Closed)))
            }
            ClientCertificates::Verified { is_required: false, .. } => {
                let line = binds(section).find(|line| value(line, "verify") == Some("required"))?;
                if binds(section).any(|line| value(line, "verify") != Some("required")) {
                    let why = "all TLS ports of the frontend ask for a certificate";
                    self.out.partial(line.at, line.text(), why, "");
                }
                let shown = Cond::client_certificate();
                let without = Cond::tls().and(shown.negate());
                Some(RouteStep::End(without, RouteEnd::answer(line.at, 403, "")))
            }
            ClientCertificates::Verified { .. } | ClientCertificates::Unasked => None,
        }
    }
}
