//! The PROXY protocol, versions 1 and 2: who a connection really comes from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What the first bytes of a connection tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The header takes so many bytes and names these ends (source, destination); `None` is the proxy itself
    /// (a health check) or an address family we don't carry.
    Ends(usize, Option<(SocketAddr, SocketAddr)>),
    /// More bytes are needed.
    More,
    /// Not the PROXY protocol.
    Malformed,
}

/// Bytes of a header at most; version 2 allows extensions of up to 64 KiB, nobody sends so many.
pub const MAX_HEADER: usize = 2 << 10;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const MAX_V1: usize = 107;

/// Reads a header off the first bytes of a connection.
pub fn parse(bytes: &[u8]) -> Header {
    let common = bytes.len().min(SIGNATURE.len());
    if bytes[..common] == SIGNATURE[..common] {
        return if common < SIGNATURE.len() { Header::More } else { version2(bytes) };
    }
    let common = bytes.len().min(6);
    if bytes[..common] != b"PROXY "[..common] {
        return Header::Malformed;
    }
    version1(bytes)
}

fn version1(bytes: &[u8]) -> Header {
    let Some(end) = memchr::memmem::find(&bytes[..bytes.len().min(MAX_V1)], b"\r\n") else {
        return if bytes.len() >= MAX_V1 { Header::Malformed } else { Header::More };
    };
    let Ok(line) = std::str::from_utf8(&bytes[..end]) else { return Header::Malformed };
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Header::Ends(end + 2, None);
    }
    let mut address = || words.next()?.parse::<IpAddr>().ok();
    let (source, destination) = (address(), address());
    let mut port = || words.next()?.parse::<u16>().ok();
    let (source_port, destination_port) = (port(), port());
    let (Some(source), Some(destination), Some(source_port), Some(destination_port), None) =
        (source, destination, source_port, destination_port, words.next())
    else {
        return Header::Malformed;
    };
    let fits = match family {
        Some("TCP4") => source.is_ipv4() && destination.is_ipv4(),
        Some("TCP6") => source.is_ipv6() && destination.is_ipv6(),
        _ => false,
    };
    if !fits {
        return Header::Malformed;
    }
    let ends = (SocketAddr::new(source, source_port), SocketAddr::new(destination, destination_port));
    Header::Ends(end + 2, Some(ends))
}

fn version2(bytes: &[u8]) -> Header {
    let Some(&[command, family, high, low]) = bytes.get(12..16) else { return Header::More };
    let length = usize::from(high) << 8 | usize::from(low);
    if command >> 4 != 2 || command & 15 > 1 || length + 16 > MAX_HEADER {
        return Header::Malformed;
    }
    let Some(block) = bytes.get(16..16 + length) else { return Header::More };
    let whole = 16 + length;
    if command & 15 == 0 {
        // LOCAL: the proxy speaks for itself.
        return Header::Ends(whole, None);
    }
    let ends = match family >> 4 {
        1 => ends_of::<4, Ipv4Addr>(block),
        2 => ends_of::<16, Ipv6Addr>(block),
        // Unspecified, or a Unix socket: nothing we could use, and nothing wrong.
        _ => return Header::Ends(whole, None),
    };
    ends.map_or(Header::Malformed, |ends| Header::Ends(whole, Some(ends)))
}

fn ends_of<const N: usize, A: From<[u8; N]> + Into<IpAddr>>(
    block: &[u8],
) -> Option<(SocketAddr, SocketAddr)> {
    let address = |at: usize| Some(A::from(block.get(at..at + N)?.try_into().ok()?).into());
    let port = |at: usize| Some(u16::from_be_bytes(block.get(at..at + 2)?.try_into().ok()?));
    let source = SocketAddr::new(address(0)?, port(2 * N)?);
    let destination = SocketAddr::new(address(N)?, port(2 * N + 2)?);
    Some((source, destination))
}

/// Writes the header for a connection between these ends, in version 1 or 2.
pub fn header(version: u8, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let (source, destination) = same_family(source, destination);
    if version == 1 {
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let (from, to) = (source.ip(), destination.ip());
        return format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
            .into_bytes();
    }
    let mut out = SIGNATURE.to_vec();
    let mut block = Vec::with_capacity(36);
    for end in [source, destination] {
        match end.ip() {
            IpAddr::V4(address) => block.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => block.extend_from_slice(&address.octets()),
        }
    }
    for end in [source, destination] {
        block.extend_from_slice(&end.port().to_be_bytes());
    }
    out.push(0x21);
    out.push(if source.is_ipv4() { 0x11 } else { 0x21 });
    out.extend_from_slice(&[0, if source.is_ipv4() { 12 } else { 36 }]);
    out.extend_from_slice(&block);
    out
}

/// IPv4 where both ends can be, else IPv6 for both.
fn same_family(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
    let six = |address: IpAddr| match address {
        IpAddr::V4(address) => IpAddr::V6(address.to_ipv6_mapped()),
        IpAddr::V6(_) => address,
    };
    let (from, to) = if from.is_ipv4() == to.is_ipv4() { (from, to) } else { (six(from), six(to)) };
    (SocketAddr::new(from, source.port()), SocketAddr::new(to, destination.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_in_any_slicing() {
        for (source, destination) in
            [("192.0.2.1:1234", "198.51.100.2:443"), ("[2001:db8::1]:1", "[2001:db8::2]:65535")]
        {
            let ends = (source.parse().unwrap(), destination.parse().unwrap());
            for version in [1, 2] {
                let mut bytes = header(version, ends.0, ends.1);
                let length = bytes.len();
                for cut in 0..length {
                    assert_eq!(parse(&bytes[..cut]), Header::More, "version {version}, {cut} bytes");
                }
                bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
                assert_eq!(parse(&bytes), Header::Ends(length, Some(ends)));
            }
        }
    }

    #[test]
    fn mixed_families_become_one() {
        let bytes = header(1, "[::ffff:192.0.2.1]:1".parse().unwrap(), "198.51.100.2:2".parse().unwrap());
        assert_eq!(bytes, b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n");
        let bytes = header(1, "[2001:db8::1]:1".parse().unwrap(), "198.51.100.2:2".parse().unwrap());
        assert_eq!(bytes, b"PROXY TCP6 2001:db8::1 ::ffff:198.51.100.2 1 2\r\n");
    }

    #[test]
    fn unknown_and_local_name_nobody() {
        assert_eq!(parse(b"PROXY UNKNOWN\r\n"), Header::Ends(15, None));
        let mut local = SIGNATURE.to_vec();
        local.extend_from_slice(&[0x20, 0, 0, 0]);
        assert_eq!(parse(&local), Header::Ends(16, None));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n",
            b"PROXY TCP4 2001:db8::1 198.51.100.2 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 1 65536\r\n",
            &[b"PROXY ".as_slice(), &[b'x'; 200]].concat(),
            &[SIGNATURE.as_slice(), &[0x11, 0x11, 0, 12], &[0; 12]].concat(),
            &[SIGNATURE.as_slice(), &[0x21, 0x11, 0, 4], &[0; 4]].concat(),
            &[SIGNATURE.as_slice(), &[0x21, 0x11, 0xff, 0xff]].concat(),
        ] {
            assert_eq!(parse(bad), Header::Malformed, "{:?}", String::from_utf8_lossy(bad));
        }
    }
}
