//! Networks as they are written, and as clients are looked up by.

use ipnet::{IpNet, Ipv4Net};

/// IPv4 networks that are written as parts of IPv6 (`::ffff:10.0.0.0/104`), as IPv4: clients' addresses are
/// [canonical](std::net::IpAddr::to_canonical).
pub fn canonical_network(network: IpNet) -> IpNet {
    let IpNet::V6(within) = network else { return network };
    let mapped = within.network().to_ipv4_mapped().zip(within.prefix_len().checked_sub(96));
    mapped.and_then(|(first, bits)| Ipv4Net::new(first, bits).ok()).map_or(network, IpNet::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_networks_are_those_of_ipv4() {
        for (given, expected) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:192.0.2.7/128", "192.0.2.7/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("64:ff9b::/96", "64:ff9b::/96"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
        ] {
            assert_eq!(canonical_network(given.parse().unwrap()).to_string(), expected, "{given}");
        }
    }
}
