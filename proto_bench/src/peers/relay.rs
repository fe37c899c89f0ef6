//! Our own bare relay: what two reads and two writes cost.

use std::path::Path;

use super::tests::Test;
use super::{Setup, Site, upstream};
use crate::plan::Protocol;

pub(super) fn setup(test: Test, program: &Path, site: &Site<'_>) -> Option<Setup> {
    let (front, tls) = test.front();
    let is_datagrams = matches!(front, Protocol::Http3 | Protocol::Udp | Protocol::Dtls);
    if tls || is_datagrams || test.is_fixed() || front != test.back() {
        return None;
    }
    let to = upstream(site.backend, front, false)?;
    let program = program.to_string_lossy().into_owned();
    let arguments =
        ["relay", "--listen", &site.listen.to_string(), "--to", &to.to_string()].map(str::to_owned);
    Some(Setup { command: [program].into_iter().chain(arguments).collect(), files: Vec::new() })
}
