//! Entry points for the fuzzers: what clients' first datagrams say.

use rustls::Side;
use rustls::quic::{Keys, Version};

use super::hello::Hello;
use super::initial::{Long, Opening, RequestedName, is_short};

/// Octets of a client's first datagrams.
const DATAGRAM: usize = 1200;
/// Octets of a packet that are not frames: the header below, and what the seal adds.
const OVERHEAD: usize = 26 + TAG;
const TAG: usize = 16;
/// The id our packets' keys come from.
const DESTINATION: &[u8] = b"12345678";

/// `data` as a datagram, and as the frames of packets that are sealed as a client would.
pub(crate) fn quic_initial(data: &[u8]) {
    let mut raw = data.to_vec();
    if let Some(long) = Long::read(&raw) {
        assert!(!is_short(&raw), "a header is long or short");
        assert!(long.destination.len() <= 20 && long.source.len() <= 20, "ids are short");
    }
    raw.resize(raw.len().max(DATAGRAM), 0);
    let _asked = Opening::default().take(&raw);

    for version in [Version::V1, Version::V2] {
        let mut opening = Opening::default();
        for (number, frames) in (0_u8..4).zip(data.chunks(DATAGRAM - OVERHEAD)) {
            let packet = initial(version, number, frames);
            assert_eq!(packet.len(), DATAGRAM);
            let asked = opening.take(&packet);
            opening.check();
            if asked == RequestedName::Unknown {
                break;
            }
        }
    }
}

/// A client's packet with these frames, as long as a datagram has to be.
fn initial(version: Version, number: u8, frames: &[u8]) -> Vec<u8> {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
    let suite = suite.expect("it is a suite of TLS 1.3");
    let quic = suite.quic.expect("it is one for QUIC");
    let keys = Keys::initial(version, suite, quic, DESTINATION, Side::Client);
    let (first, code) = match version {
        Version::V2 => (0xD0, 0x6B33_43CF_u32),
        _ => (0xC0, 1),
    };
    let mut header = vec![first];
    header.extend_from_slice(&code.to_be_bytes());
    header.push(DESTINATION.len() as u8);
    header.extend_from_slice(DESTINATION);
    header.extend_from_slice(&[4, 9, 9, 9, 9, 0]);
    // Its length in two octets, and a number of one.
    let rest = DATAGRAM - header.len() - 2;
    header.extend_from_slice(&(rest as u16 | 0x4000).to_be_bytes());
    header.push(number);
    let mut payload = frames.to_vec();
    payload.resize(rest - 1 - TAG, 0);
    let tag = keys.local.packet.encrypt_in_place(number.into(), &header, &mut payload);
    let tag = tag.expect("the first packets can be sealed");
    let mut packet = [header.as_slice(), &payload, tag.as_ref()].concat();
    let (head, sealed) = packet.split_at_mut(header.len());
    let (first, number) = head.split_at_mut(header.len() - 1);
    let hidden = keys.local.header.encrypt_in_place(&sealed[3..19], &mut first[0], number);
    hidden.expect("a sample has the length it must have");
    packet
}

/// `data` as a DTLS client's first datagram: the hello before a cookie is one too, and says the same.
pub(crate) fn dtls_hello(data: &[u8]) {
    let Some(hello) = Hello::read(data) else { return };
    let name = hello.server_name();
    for padding in [None, Some(0), Some(100)] {
        let before = hello.without_cookie(padding);
        let Some(first) = Hello::read(&before) else {
            assert!(name.is_none() || before.len() > 16 << 10, "a hello stays one");
            continue;
        };
        assert_eq!(first.cookie(), None, "it has no cookie");
        assert_eq!(first.random, hello.random);
        if name.is_some() {
            assert_eq!(first.server_name(), name, "and asks for the same");
            assert!(first.padding().is_none() || padding.is_some(), "nobody padded it");
        }
    }
}
