//! Very many networks as sorted ranges that do not touch.

use std::net::IpAddr;

use gateway_core::network::canonical_network;
use ipnet::IpNet;
use thiserror::Error;

/// Networks an address may be in; IPv4 and IPv6 apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Networks {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

/// Networks as they are read, in no order.
#[derive(Debug, Default)]
pub(super) struct Parts {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

/// Networks of one list; each takes 8 or 32 bytes of memory.
pub(super) const MAX_NETWORKS: usize = 2_000_000;

/// Why a list of networks can't be used.
#[derive(Debug, Error)]
pub(super) enum NetworkListError {
    #[error("it is not UTF-8")]
    NoText,
    #[error("the list has more than {MAX_NETWORKS} networks")]
    TooLong,
    #[error("line {line}: `{entry}` is no address or network")]
    NoNetwork { line: usize, entry: String },
}

impl Parts {
    /// Adds an address or network. Bits beyond a network's prefix do not count.
    pub(super) fn add(&mut self, text: &str) -> Result<(), ()> {
        let parsed = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        match canonical_network(parsed.map_err(drop)?) {
            IpNet::V4(net) => self.v4.push((net.network().into(), net.broadcast().into())),
            IpNet::V6(net) => self.v6.push((net.network().into(), net.broadcast().into())),
        }
        Ok(())
    }

    /// Adds what a file has, one a line.
    pub(super) fn add_lines(&mut self, bytes: &[u8]) -> Result<(), NetworkListError> {
        let text = std::str::from_utf8(bytes).map_err(|_| NetworkListError::NoText)?;
        for (n, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let entry = line.split('#').next().unwrap_or_default().trim();
            if entry.is_empty() {
                continue;
            }
            if self.v4.len() + self.v6.len() >= MAX_NETWORKS {
                return Err(NetworkListError::TooLong);
            }
            self.add(entry).map_err(|()| {
                let entry = entry.chars().take(64).flat_map(char::escape_debug).collect();
                NetworkListError::NoNetwork { line: n + 1, entry }
            })?;
        }
        Ok(())
    }

    pub(super) fn into_networks(self) -> Networks {
        Networks {
            v4: merged(self.v4, |end, start| end.checked_add(1).is_none_or(|next| start <= next)),
            v6: merged(self.v6, |end, start| end.checked_add(1).is_none_or(|next| start <= next)),
        }
    }
}

/// Sorted, and those that overlap or touch as one.
fn merged<T: Ord + Copy>(mut ranges: Vec<(T, T)>, touches: impl Fn(T, T) -> bool) -> Box<[(T, T)]> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if touches(last.1, start) => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged.into()
}

impl Networks {
    /// How many there are, once those that touch are one.
    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => is_in(&self.v4, address.into()),
            IpAddr::V6(address) => is_in(&self.v6, address.into()),
        }
    }
}

fn is_in<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let after = ranges.partition_point(|(start, _)| *start <= address);
    after.checked_sub(1).and_then(|n| ranges.get(n)).is_some_and(|(_, end)| address <= *end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        let mut parts = Parts::default();
        texts.iter().for_each(|text| parts.add(text).unwrap());
        parts.into_networks()
    }

    #[test]
    fn addresses_are_found() {
        let list =
            networks(&["10.0.0.0/8", "192.0.2.7", "192.0.2.8", "2001:db8::/32", "::ffff:203.0.113.0/120"]);
        assert_eq!(list.v4.len(), 3, "what touches is one");
        for (address, is_in) in [
            ("9.255.255.255", false),
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("192.0.2.6", false),
            ("192.0.2.7", true),
            ("192.0.2.8", true),
            ("192.0.2.9", false),
            ("::ffff:10.1.2.3", true),
            ("203.0.113.255", true),
            ("203.0.114.0", false),
            ("2001:db8::", true),
            ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("2001:db9::", false),
            ("::", false),
        ] {
            assert_eq!(list.contains(address.parse().unwrap()), is_in, "{address}");
        }
    }

    #[test]
    fn everything_and_nothing() {
        let all = networks(&["0.0.0.0/0", "::/0", "255.255.255.255"]);
        let none = networks(&[]);
        for address in ["0.0.0.0", "255.255.255.255", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
            assert!(all.contains(address.parse().unwrap()), "{address}");
            assert!(!none.contains(address.parse().unwrap()), "{address}");
        }
        assert!(networks(&["::ffff:0:0/96"]).contains("1.2.3.4".parse().unwrap()));
    }

    #[test]
    fn a_long_list_is_the_same_as_looking_at_each() {
        let nets: Vec<IpNet> = (0..100_000_u32)
            .map(|n| {
                let address = std::net::Ipv4Addr::from(n.wrapping_mul(2_654_435_761));
                IpNet::new(address.into(), 24 + (n % 9) as u8).unwrap()
            })
            .collect();
        let mut parts = Parts::default();
        nets.iter().for_each(|net| parts.add(&net.to_string()).unwrap());
        let list = parts.into_networks();
        for n in 0..200_u32 {
            let address = IpAddr::from(std::net::Ipv4Addr::from(n.wrapping_mul(2_246_822_519)));
            assert_eq!(list.contains(address), nets.iter().any(|net| net.contains(&address)), "{address}");
        }
        nets.iter().take(1000).for_each(|net| assert!(list.contains(net.addr())));
    }

    #[test]
    fn files_are_read_and_their_faults_named() {
        let mut parts = Parts::default();
        parts.add_lines("\u{feff}# list\n\n10.0.0.0/8 # ours\r\n  ::1\n".as_bytes()).unwrap();
        assert_eq!((parts.v4.len(), parts.v6.len()), (1, 1));
        for (text, error) in [
            (&b"10.0.0.1\n10.0.0.0/33"[..], "line 2: `10.0.0.0/33`"),
            (b"host.example", "line 1: `host.example`"),
            (b"10.0.0.1, 10.0.0.2", "line 1"),
            (b"\xff\xfe", "UTF-8"),
            (b"a\x1b[2J", "line 1: `a\\u{1b}[2J`"),
        ] {
            let found = Parts::default().add_lines(text).expect_err(error);
            assert!(found.to_string().contains(error), "{found}");
        }
    }
}
