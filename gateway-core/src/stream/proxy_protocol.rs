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

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header at most: version 2 says the length of what follows its first 16 bytes in 16 bits.
pub const MAX_HEADER: usize = 16 + u16::MAX as usize;
const MAX_V1: usize = 107;
/// What a header of version 2 is about, in the lower half of its byte for the address family.
const STREAM: u8 = 1;
const DATAGRAM: u8 = 2;
/// The extension of version 2 with a CRC32c of the whole header.
const CRC32C: u8 = 3;

/// The extension of version 2 with the application protocol of the connection (ALPN).
const ALPN: u8 = 1;
/// The extension of version 2 with the server name that the client asked for.
const AUTHORITY: u8 = 2;
/// The extension of version 2 with bytes that name the connection to all proxies on its way, and how many there may be.
const UNIQUE_ID: u8 = 5;
const MAX_UNIQUE_ID: usize = 128;
/// Bytes of an application protocol's name (RFC 7301 §3.1).
const MAX_ALPN: usize = 255;
/// The extension of version 2 with facts of the client's TLS, and those inside of it.
const TLS: u8 = 0x20;
const TLS_VERSION: u8 = 0x21;
const TLS_CIPHER: u8 = 0x23;
/// Flags of [`TLS`]: the client uses TLS, and showed a certificate in this connection.
const OVER_TLS: u8 = 1;
const WITH_CERTIFICATE: u8 = 2;

/// What a header of version 2 says beside the ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extensions<'a> {
    /// The application protocol of the connection.
    pub alpn: Option<&'a [u8]>,
    /// What names the connection to all proxies on its way.
    pub unique_id: Option<&'a [u8]>,
    /// The server name that the client asked for.
    pub authority: Option<&'a str>,
    /// Facts of the client's TLS.
    pub tls: Option<TlsSummary>,
    /// Ends with a CRC32c of the header.
    pub checksum: bool,
}

/// What targets learn of a client's TLS.
#[derive(Debug, Clone, Copy)]
pub struct TlsSummary {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// IANA name.
    pub cipher: &'static str,
    /// Whether the client showed a certificate, which was verified.
    pub has_certificate: bool,
}

/// What a header of version 2 said of a connection beside its ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceivedExtensions {
    /// The server name that the client asked for; `None` where there is none or it is not a host name.
    pub authority: Option<String>,
    /// The application protocol; 1 to 255 bytes.
    pub alpn: Option<Box<[u8]>>,
    /// What names the connection to all proxies on its way; 1 to 128 bytes.
    pub unique_id: Option<Box<[u8]>>,
}

/// Reads the extensions of a complete header, which [`parse`] has accepted. Those that are empty or too long are left out.
pub fn read_extensions(header: &[u8]) -> ReceivedExtensions {
    let mut told = ReceivedExtensions {
        authority: authority(header).map(str::to_owned),
        ..ReceivedExtensions::default()
    };
    let within = |value: &[u8], most: usize| (1..=most).contains(&value.len()).then(|| Box::from(value));
    for (kind, value) in Values::of(header) {
        match kind {
            ALPN => told.alpn = within(value, MAX_ALPN),
            UNIQUE_ID => told.unique_id = within(value, MAX_UNIQUE_ID),
            _ => {}
        }
    }
    told
}

/// Reads the server name of a complete header of version 2, which [`parse`] has accepted. Returns `None` if the header has none or it is not a
/// host name.
pub fn authority(header: &[u8]) -> Option<&str> {
    let (_, value) = Values::of(header).find(|(kind, _)| *kind == AUTHORITY)?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    let is_name = !value.is_empty() && value.len() <= 253 && value.iter().all(is_plain);
    is_name.then(|| std::str::from_utf8(value).ok()).flatten()
}

/// The extensions of a header of version 2, in its order; none of one of version 1.
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    fn of(header: &'a [u8]) -> Self {
        Self(extensions_of(header).unwrap_or_default())
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[kind, high, low], rest) = self.0.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(usize::from(high) << 8 | usize::from(low))?;
        self.0 = rest;
        Some((kind, value))
    }
}

/// The bytes behind the addresses.
fn extensions_of(header: &[u8]) -> Option<&[u8]> {
    let block = header.get(16..).filter(|_| header.starts_with(SIGNATURE))?;
    let addresses = match header.get(13)? >> 4 {
        0 => 0,
        1 => 12,
        2 => 36,
        _ => 216,
    };
    block.get(addresses..)
}

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

/// Reads the header of version 2 at the beginning of a datagram. Returns its length and the ends that it names.
///
/// `None` is a datagram without a whole header, or with one for a connection.
pub fn parse_datagram(datagram: &[u8]) -> Option<(usize, Option<(SocketAddr, SocketAddr)>)> {
    let Header::Ends(length, ends) = parse(datagram) else { return None };
    // A proxy that speaks for itself need not say what it speaks.
    let is_of_datagrams = datagram.starts_with(SIGNATURE)
        && (ends.is_none() || datagram.get(13).is_some_and(|family| family & 15 == DATAGRAM));
    is_of_datagrams.then_some((length, ends))
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
    let mut number = || port(words.next()?);
    let (source_port, destination_port) = (number(), number());
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

/// A decimal number without a sign or leading zeros.
fn port(word: &str) -> Option<u16> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    (digits && (word == "0" || !word.starts_with('0'))).then(|| word.parse().ok())?
}

fn version2(bytes: &[u8]) -> Header {
    let Some(&[command, family, high, low]) = bytes.get(12..16) else { return Header::More };
    let length = usize::from(high) << 8 | usize::from(low);
    if command >> 4 != 2 || command & 15 > 1 {
        return Header::Malformed;
    }
    let whole = 16 + length;
    let (Some(block), Some(header)) = (bytes.get(16..whole), bytes.get(..whole)) else { return Header::More };
    if command & 15 == 0 {
        // LOCAL: the proxy speaks for itself, and the rest says nothing.
        return Header::Ends(whole, None);
    }
    let (addresses, ends) = match family >> 4 {
        0 => (0, None),
        1 => (12, ends_of::<4, Ipv4Addr>(block)),
        2 => (36, ends_of::<16, Ipv6Addr>(block)),
        // A Unix socket: nothing we could use, and nothing wrong.
        3 => (216, None),
        _ => return Header::Malformed,
    };
    match block.get(addresses..).and_then(|extensions| intact(header, extensions)) {
        Some(true) => Header::Ends(whole, ends),
        Some(false) | None => Header::Malformed,
    }
}

/// Whether a header's checksum is right, where its extensions have one; `None` when they go beyond its end.
fn intact(header: &[u8], mut extensions: &[u8]) -> Option<bool> {
    let mut intact = true;
    while let Some((&[kind, high, low], rest)) = extensions.split_first_chunk() {
        let (value, rest) = rest.split_at_checked(usize::from(high) << 8 | usize::from(low))?;
        if kind == CRC32C {
            let at = header.len() - rest.len() - value.len();
            let said = u32::from_be_bytes(value.try_into().ok()?);
            let (before, after) = (header.get(..at)?, header.get(at + value.len()..)?);
            // The checksum is of the header with zeros in its own place.
            intact &= crc32c([before, &[0; 4], after]) == said;
        }
        extensions = rest;
    }
    extensions.is_empty().then_some(intact)
}

/// CRC32c (RFC 3720 §12.1) of these pieces. Headers are few and short: a bit at a time will do.
fn crc32c(pieces: [&[u8]; 3]) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let bytes = pieces.into_iter().flatten();
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg()))
    })
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

/// Writes the header of version 2 for datagrams between these ends.
pub fn datagram_header(source: SocketAddr, destination: SocketAddr, extensions: Extensions<'_>) -> Vec<u8> {
    version2_header(DATAGRAM, same_family(source, destination), extensions)
}

/// Writes the header for a connection between these ends, in version 1 or 2.
/// Version 1 has no extensions.
pub fn header(
    version: u8,
    source: SocketAddr,
    destination: SocketAddr,
    extensions: Extensions<'_>,
) -> Vec<u8> {
    let ends = same_family(source, destination);
    if version == 1 {
        let (source, destination) = ends;
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let (from, to) = (source.ip(), destination.ip());
        return format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
            .into_bytes();
    }
    version2_header(STREAM, ends, extensions)
}

fn version2_header(transport: u8, ends: (SocketAddr, SocketAddr), extensions: Extensions<'_>) -> Vec<u8> {
    let (source, destination) = ends;
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
    out.push(if source.is_ipv4() { 0x10 } else { 0x20 } | transport);
    extensions.write(&mut block);
    let checksum_at = block.len() + 3;
    if extensions.checksum {
        extension(&mut block, CRC32C, &[0; 4]);
    }
    out.extend_from_slice(&u16::try_from(block.len()).unwrap_or(u16::MAX).to_be_bytes());
    let at = out.len() + checksum_at;
    out.extend_from_slice(&block);
    if extensions.checksum {
        let sum = crc32c([&out, &[], &[]]).to_be_bytes();
        if let Some(place) = out.get_mut(at..at + 4) {
            place.copy_from_slice(&sum);
        }
    }
    out
}

impl Extensions<'_> {
    /// All but the checksum.
    fn write(self, block: &mut Vec<u8>) {
        if let Some(protocol) = self.alpn {
            extension(block, ALPN, protocol);
        }
        if let Some(id) = self.unique_id {
            extension(block, UNIQUE_ID, id);
        }
        if let Some(name) = self.authority {
            extension(block, AUTHORITY, name.as_bytes());
        }
        let Some(tls) = self.tls else { return };
        let has_certificate = tls.has_certificate;
        let mut value = vec![OVER_TLS | if has_certificate { WITH_CERTIFICATE } else { 0 }];
        // Zero is a certificate that was verified; the gateway accepts no other.
        value.extend_from_slice(&u32::from(!has_certificate).to_be_bytes());
        extension(&mut value, TLS_VERSION, tls.version.as_bytes());
        extension(&mut value, TLS_CIPHER, tls.cipher.as_bytes());
        extension(block, TLS, &value);
    }
}

/// Appends one extension; values are at most 65,535 bytes long.
fn extension(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    out.push(kind);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
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
                let mut bytes = header(version, ends.0, ends.1, Extensions::default());
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
        let bytes = header(
            1,
            "[::ffff:192.0.2.1]:1".parse().unwrap(),
            "198.51.100.2:2".parse().unwrap(),
            Extensions::default(),
        );
        assert_eq!(bytes, b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n");
        let bytes = header(
            1,
            "[2001:db8::1]:1".parse().unwrap(),
            "198.51.100.2:2".parse().unwrap(),
            Extensions::default(),
        );
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
            b"PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n",
            &[b"PROXY ".as_slice(), &[b'x'; 200]].concat(),
            &[SIGNATURE.as_slice(), &[0x11, 0x11, 0, 12], &[0; 12]].concat(),
            &[SIGNATURE.as_slice(), &[0x21, 0x11, 0, 4], &[0; 4]].concat(),
            &[SIGNATURE.as_slice(), &[0x21, 0x41, 0, 0]].concat(),
        ] {
            assert_eq!(parse(bad), Header::Malformed, "{:?}", String::from_utf8_lossy(bad));
        }
    }

    /// A header of version 2 from 192.0.2.1:1 to 198.51.100.2:2 with these extensions.
    fn extended(extensions: &[u8]) -> Vec<u8> {
        let mut bytes = header(
            2,
            "192.0.2.1:1".parse().unwrap(),
            "198.51.100.2:2".parse().unwrap(),
            Extensions::default(),
        );
        bytes[14..16].copy_from_slice(&u16::try_from(12 + extensions.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(extensions);
        bytes
    }

    #[test]
    fn extensions_are_as_long_as_they_say() {
        let good = extended(&[4, 0, 0, 2, 0, 3, b'a', b'b', b'c']);
        assert!(matches!(parse(&good), Header::Ends(37, Some(_))));
        for bad in [&[4][..], &[4, 0], &[4, 0, 1], &[2, 0, 4, 1, 2, 3], &[2, 0xff, 0xff]] {
            assert_eq!(parse(&extended(bad)), Header::Malformed, "{bad:?}");
        }
        // As many as the length can say.
        let mut most = vec![4, 0xff, 0xf0];
        most.resize(65_523, 0);
        assert_eq!(parse(&extended(&most)[..65_550]), Header::More);
        assert!(matches!(parse(&extended(&most)), Header::Ends(65_551, Some(_))));
    }

    #[test]
    fn a_checksum_has_to_be_right() {
        assert_eq!(crc32c([b"1234", b"567", b"89"]), 0xE306_9283, "the check value of CRC-32C");
        let mut bytes = extended(&[3, 0, 4, 0, 0, 0, 0, 4, 0, 1, 9]);
        let sum = crc32c([&bytes, &[], &[]]);
        bytes[31..35].copy_from_slice(&sum.to_be_bytes());
        assert!(matches!(parse(&bytes), Header::Ends(39, Some(_))));
        for at in [12, 16, 27, 31, 34, 38] {
            let mut other = bytes.clone();
            other[at] ^= if at == 12 { 0x20 } else { 1 };
            assert_eq!(parse(&other), Header::Malformed, "byte {at}");
        }
        assert_eq!(parse(&extended(&[3, 0, 2, 0, 0])), Header::Malformed, "it has four bytes");
    }

    #[test]
    fn extensions_are_written_and_read() {
        let (source, destination) = ("192.0.2.7:1111".parse().unwrap(), "198.51.100.9:2222".parse().unwrap());
        let tls = TlsSummary { version: "TLSv1.3", cipher: "X", has_certificate: true };
        let extensions =
            Extensions { authority: Some("a.test"), tls: Some(tls), checksum: true, ..Extensions::default() };
        let written = header(2, source, destination, extensions);
        assert_eq!(parse(&written), Header::Ends(written.len(), Some((source, destination))));
        assert_eq!(authority(&written), Some("a.test"));
        let expected: &[u8] = b"\x02\0\x06a.test\x20\0\x13\x03\0\0\0\0\x21\0\x07TLSv1.3\x23\0\x01X\x03\0\x04";
        assert_eq!(&written[28..written.len() - 4], expected);
        // A changed kind of the last extension hides the checksum.
        for at in (28..written.len()).filter(|at| *at != written.len() - 7) {
            let mut broken = written.clone();
            broken[at] ^= 1;
            let read = parse(&broken);
            assert_ne!(read, Header::Ends(written.len(), Some((source, destination))), "byte {at}");
        }
    }

    #[test]
    fn the_protocol_and_the_id_are_told_within_their_limits() {
        let (source, destination) = ("192.0.2.7:1".parse().unwrap(), "192.0.2.8:2".parse().unwrap());
        let written = |alpn: &[u8], id: &[u8]| {
            let extensions = Extensions { alpn: Some(alpn), unique_id: Some(id), ..Extensions::default() };
            read_extensions(&header(2, source, destination, extensions))
        };
        let read = written(b"h2", &[0xff; 128]);
        assert_eq!(read.alpn.as_deref(), Some(&b"h2"[..]));
        assert_eq!(read.unique_id.as_deref(), Some(&[0xff; 128][..]));
        assert_eq!(written(b"", &[0; 129]), ReceivedExtensions::default(), "empty or too long");
        assert_eq!(read_extensions(b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"), ReceivedExtensions::default());
    }

    #[test]
    fn headers_of_datagrams_are_told_from_those_of_connections() {
        let ends = ("192.0.2.7:1".parse().unwrap(), "[2001:db8::8]:2".parse().unwrap());
        let extensions = Extensions { checksum: true, ..Extensions::default() };
        let mut datagram = datagram_header(ends.0, ends.1, extensions);
        let length = datagram.len();
        for cut in 0..length {
            assert_eq!(parse_datagram(&datagram[..cut]), None, "{cut} bytes");
        }
        datagram.extend_from_slice(b"payload");
        let (read, told) = parse_datagram(&datagram).unwrap();
        let (source, destination) = told.unwrap();
        assert_eq!((read, source.to_string()), (length, "[::ffff:192.0.2.7]:1".to_owned()));
        assert_eq!(destination, ends.1);
        assert_eq!(parse_datagram(&header(2, ends.0, ends.1, Extensions::default())), None);
        assert_eq!(parse_datagram(b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"), None);
        let local = [SIGNATURE.as_slice(), &[0x20, 0, 0, 0, b'x']].concat();
        assert_eq!(parse_datagram(&local), Some((16, None)));
    }

    #[test]
    fn an_authority_that_is_no_name_is_left_out() {
        let (source, destination) = ("[::1]:1".parse().unwrap(), "[::1]:2".parse().unwrap());
        for name in ["", "a b", "a/..", "ä.test", &"a".repeat(254)] {
            let extensions = Extensions { authority: Some(name), ..Extensions::default() };
            assert_eq!(authority(&header(2, source, destination, extensions)), None, "{name}");
        }
        assert_eq!(authority(&header(2, source, destination, Extensions::default())), None);
        assert_eq!(authority(b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"), None);
    }
}
