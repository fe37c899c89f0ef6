//! Clients' first packets: RFC 9001's own example, many pieces, and what is none.

use rustls::quic::Version;

use super::*;

/// An Initial packet of a client with these frames, padded to a whole datagram.
fn initial(version: Version, destination: &[u8], number: u8, frames: &[u8]) -> Vec<u8> {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    let keys = Keys::initial(version, suite, suite.quic.unwrap(), destination, Side::Client);
    let (first, code) = match version {
        Version::V2 => (0xD0, 0x6B33_43CF_u32),
        _ => (0xC0, 1),
    };
    let mut header = vec![first];
    header.extend_from_slice(&code.to_be_bytes());
    header.push(u8::try_from(destination.len()).unwrap());
    header.extend_from_slice(destination);
    header.extend_from_slice(&[4, 9, 9, 9, 9, 0]);
    let payload = 1200 - header.len() - 3 - 16;
    let length = u16::try_from(payload + 16 + 1).unwrap() | 0x4000;
    header.extend_from_slice(&length.to_be_bytes());
    header.push(number);
    let mut payload_bytes = frames.to_vec();
    payload_bytes.resize(payload, 0);
    let tag = keys.local.packet.encrypt_in_place(number.into(), &header, &mut payload_bytes).unwrap();
    let mut packet = [header.as_slice(), &payload_bytes, tag.as_ref()].concat();
    let (head, rest) = packet.split_at_mut(header.len());
    let (first, number) = head.split_at_mut(header.len() - 1);
    keys.local.header.encrypt_in_place(&rest[3..19], &mut first[0], number).unwrap();
    packet
}

fn crypto(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![6];
    for number in [offset, bytes.len()] {
        frame.extend_from_slice(&(u16::try_from(number).unwrap() | 0x4000).to_be_bytes());
    }
    frame.extend_from_slice(bytes);
    frame
}

/// A ClientHello for `name`, with so many bytes of another extension before it.
fn hello(name: &str, filler: usize) -> Vec<u8> {
    let n = u16::try_from(name.len()).unwrap();
    let mut extensions = vec![0xFE, 0];
    extensions.extend_from_slice(&u16::try_from(filler).unwrap().to_be_bytes());
    extensions.resize(extensions.len() + filler, 7);
    extensions.extend_from_slice(&[0, 0]);
    for length in [n + 5, n + 3] {
        extensions.extend_from_slice(&length.to_be_bytes());
    }
    extensions.push(0);
    extensions.extend_from_slice(&n.to_be_bytes());
    extensions.extend_from_slice(name.as_bytes());
    let mut body = vec![3, 3];
    body.extend_from_slice(&[5; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 1, 1, 0]);
    body.extend_from_slice(&u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&extensions);
    let mut message = vec![1, 0];
    message.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend_from_slice(&body);
    message
}

#[test]
fn a_name_is_read_from_one_packet_in_both_versions() {
    for version in [Version::V1, Version::V2] {
        let packet = initial(version, b"12345678", 0, &crypto(0, &hello("A.test", 10)));
        assert_eq!(Opening::default().take(&packet), RequestedName::Name(Some("a.test".into())));
    }
}

#[test]
fn protocols_are_read_once_the_hello_is_whole() {
    let mut message = hello("a.test", 1400);
    let alpn = [0, 16, 0, 12, 0, 10, 2, b'h', b'3', 6, b'h', b'q', b'-', b'2', b'9', b'!'];
    message.extend_from_slice(&alpn);
    // The handshake message, its extensions.
    let length = u16::try_from(message.len() - 4).unwrap();
    message[2..4].copy_from_slice(&length.to_be_bytes());
    message[45..47].copy_from_slice(&(length - 43).to_be_bytes());
    let (first, second) = message.split_at(1000);
    let mut opening = Opening::default();
    assert_eq!(
        opening.take(&initial(Version::V1, b"12345678", 0, &crypto(1000, second))),
        RequestedName::More
    );
    assert!(opening.alpn_protocols().is_empty());
    let asked = opening.take(&initial(Version::V1, b"12345678", 1, &crypto(0, first)));
    assert_eq!(asked, RequestedName::Name(Some("a.test".into())));
    assert_eq!(opening.alpn_protocols(), [b"h3".to_vec(), b"hq-29!".to_vec()]);
}

#[test]
fn a_long_hello_is_put_together_whatever_its_order() {
    let message = hello("pq.test", 1800);
    let (first, rest) = message.split_at(900);
    let (second, third) = rest.split_at(500);
    let packets = [
        initial(Version::V1, b"12345678", 0, &crypto(1400, third)),
        initial(Version::V1, b"12345678", 1, &[crypto(900, second), vec![1]].concat()),
        initial(Version::V1, b"12345678", 2, &crypto(0, first)),
    ];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let mut opening = Opening::default();
        assert_eq!(opening.take(&packets[order[0]]), RequestedName::More);
        assert_eq!(opening.take(&packets[order[1]]), RequestedName::More);
        assert_eq!(opening.take(&packets[order[2]]), RequestedName::Name(Some("pq.test".into())));
    }
}

#[test]
fn what_is_no_beginning_is_told_apart() {
    let good = initial(Version::V1, b"12345678", 0, &crypto(0, &hello("a.test", 10)));
    let mut forged = good.clone();
    forged[600] ^= 1;
    let mut unknown = good.clone();
    unknown[4] = 9;
    let beyond = initial(Version::V1, b"12345678", 0, &crypto(16_000, &[0; 1000]));
    let stream = initial(Version::V1, b"12345678", 0, &[8, 0, 0]);
    for bad in [&good[..1199], &forged, &unknown, &beyond, &stream, &[0x40; 1200], &[0xC0; 1200], &[]] {
        assert_eq!(Opening::default().take(bad), RequestedName::Unknown);
    }
    for cut in 0..good.len() {
        Opening::default().take(&[&good[..cut], &vec![0xFF; 1300 - cut]].concat());
    }
}

#[test]
fn a_handshake_in_crumbs_is_given_up() {
    let mut opening = Opening::default();
    let frames: Vec<u8> = (0..40).flat_map(|n| crypto(n * 10, b"x")).collect();
    assert_eq!(opening.take(&initial(Version::V1, b"12345678", 0, &frames)), RequestedName::Unknown);
}
