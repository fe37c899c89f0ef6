//! What a UDP port can be asked about its sessions from outside.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gateway_core::config::model::Id;
use gateway_core::stream::relay::Carried;
use gateway_core::stream::sessions::About;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Questions that wait for a port; more are not answered.
pub(crate) const QUEUE: usize = 64;
/// A session of a UDP port, unique while the process runs: worker, port and its key there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramId {
    pub(crate) worker: usize,
    pub(crate) port: u16,
    pub(crate) key: u64,
}

/// An open session of a UDP port.
#[derive(Debug, Clone)]
pub struct DatagramSession {
    /// Which one.
    pub id: DatagramId,
    /// What it is.
    pub about: About,
    /// When it began.
    pub since: Instant,
    /// What it has carried.
    pub carried: Carried,
}

/// What is wanted of those sessions for which the question's filter holds.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// So many of them, in the order of ids, after this one.
    List(Option<DatagramId>, usize),
    /// What they have carried, by proxy and protocol.
    Sum,
    /// That they end.
    End,
    /// That this one ends.
    EndOne(DatagramId),
}

/// A question to every port of every worker.
#[derive(Clone)]
pub struct Question {
    /// What is wanted.
    pub wanted: Wanted,
    /// Which sessions are meant.
    pub filter: Arc<dyn Fn(&About) -> bool + Send + Sync>,
    /// Where the answers go.
    pub answers: mpsc::UnboundedSender<PortAnswer>,
}

/// A port's answer.
#[derive(Debug, Default)]
pub struct PortAnswer {
    /// Sessions that are open there.
    pub open: usize,
    /// Those that were wanted.
    pub listed: Vec<DatagramSession>,
    /// What they have carried.
    pub sums: Vec<DatagramSum>,
    /// How many were ended.
    pub ended: usize,
}

/// What the open sessions of a proxy have carried.
#[derive(Debug)]
pub struct DatagramSum {
    /// The proxy.
    pub proxy: Id,
    /// `udp`, `dtls` or `quic`.
    pub protocol: &'static str,
    /// How many they are.
    pub open: u64,
    /// Their bytes.
    pub carried: Carried,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Question({:?})", self.wanted)
    }
}

impl DatagramId {
    /// The order of pages.
    pub fn order(&self) -> (usize, u16, usize) {
        (self.worker, self.port, slot_of(self.key))
    }
}

impl fmt::Display for DatagramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp-{}-{}-{}", self.worker, self.port, self.key)
    }
}

impl FromStr for DatagramId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.strip_prefix("udp-").ok_or(())?.split('-');
        let mut next = || parts.next().ok_or(());
        let (worker, port, key) = (next()?, next()?, next()?);
        let id = Self {
            worker: worker.parse().map_err(|_| ())?,
            port: port.parse().map_err(|_| ())?,
            key: key.parse().map_err(|_| ())?,
        };
        parts.next().is_none().then_some(id).ok_or(())
    }
}

/// The place of a session in the table; the other half of a key is its generation.
pub(crate) fn slot_of(key: u64) -> usize {
    usize::try_from(key & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = DatagramId { worker: 3, port: 5353, key: 7 << 32 | 9 };
        assert_eq!(id.to_string(), "udp-3-5353-30064771081");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.order(), (3, 5353, 9));
        for wrong in ["", "7", "udp-1-2", "udp-1-2-3-4", "udp-1-70000-3", "udp-a-2-3"] {
            assert!(wrong.parse::<DatagramId>().is_err(), "{wrong}");
        }
    }
}
