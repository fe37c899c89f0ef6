//! DTLS 1.3 clients that are asked to say hello again: with a cookie, and with a key share of another group where the first is of no
//! use here. Their second hello differs from the first in these (RFC 8446 §4.1.2), and some change more, such as a key. The first is
//! not kept, so its hash travels in the cookie (§4.2.2). The engine's own cookies are too short for that: it hears and says messages with a short one, and where
//! it hashes the transcript, its beginning is put right.

use dimpl::crypto::{Buf, HashAlgorithm, aws_lc_rs};

use super::cookie::{Claim, FirstHello};
use super::hello::{self, ByteReader, CLIENT_HELLO, COOKIE, KEY_SHARE, extension, short};
use super::transcript::Beginnings;

const SERVER_HELLO: u8 = 2;
/// What takes the first hello's place in a transcript (RFC 8446 §4.4.1).
const MESSAGE_HASH: u8 = 254;
/// The random of a ServerHello that is a HelloRetryRequest (RFC 8446 §4.1.3).
const RETRY: [u8; 32] = [
    0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91, 0xC2,
    0xA2, 0x11, 0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
];
/// TLS_AES_256_GCM_SHA384; the other suites hash with SHA-256.
const AES_256_GCM_SHA384: usize = 0x1302;

/// A HelloRetryRequest of the engine.
pub(crate) struct Retry<'d> {
    record: &'d [u8],
    number: &'d [u8],
    body: &'d [u8],
    /// Up to the extensions' length.
    head: &'d [u8],
    extensions: &'d [u8],
    hash: HashAlgorithm,
    /// It asks for another key share.
    is_other_share: bool,
}

impl<'d> Retry<'d> {
    /// Reads the engine's datagram; `None` when it is anything else.
    pub(crate) fn read(datagram: &'d [u8]) -> Option<Self> {
        let record = datagram.get(1..11)?;
        let mut reader = ByteReader(datagram);
        reader.take(11)?;
        let mut message = ByteReader(reader.vector(2)?);
        if message.number(1)? != usize::from(SERVER_HELLO) {
            return None;
        }
        let length = message.number(3)?;
        let number = message.take(2)?;
        message.take(6)?;
        let body = message.take(length)?;
        let mut reader = ByteReader(body);
        reader.take(2)?;
        if reader.take(32)? != RETRY {
            return None;
        }
        reader.vector(1)?;
        let hash = match reader.number(2)? {
            AES_256_GCM_SHA384 => HashAlgorithm::SHA384,
            _ => HashAlgorithm::SHA256,
        };
        reader.take(1)?;
        let head = body.get(..body.len() - reader.0.len())?;
        let extensions = reader.vector(2)?;
        let is_other_share = hello::extensions(extensions).any(|(kind, _)| kind == KEY_SHARE);
        Some(Self { record, number, body, head, extensions, hash, is_other_share })
    }

    /// The same for the client: with a cookie that carries its hello's hash.
    pub(crate) fn answer(&self, claim: &Claim<'_, '_>) -> Option<Vec<u8>> {
        let hash = hashed(self.hash, &hello::message(CLIENT_HELLO, claim.hello.body()));
        let first = FirstHello { hash: &hash, is_other_share: self.is_other_share };
        let body = self.with_cookie(&claim.with_hash(first)?);
        Some(hello::datagram(SERVER_HELLO, self.record, self.number, &body))
    }

    fn with_cookie(&self, cookie: &[u8]) -> Vec<u8> {
        let mut extensions = Vec::with_capacity(self.extensions.len() + cookie.len());
        for (kind, data) in hello::extensions(self.extensions) {
            match kind {
                COOKIE => extension(&mut extensions, kind, &[&short(cookie.len())[..], cookie].concat()),
                _ => extension(&mut extensions, kind, data),
            }
        }
        [self.head, &short(extensions.len()), &extensions].concat()
    }

    /// How the transcript begins, for a client that came back with this hash in its cookie. The engine has
    /// heard `first` instead of the first hello and is about to hear `second`, a datagram as the others.
    pub(crate) fn transcript(
        &self,
        claim: &Claim<'_, '_>,
        hash: &[u8],
        first: &[u8],
        second: &[u8],
    ) -> Option<Beginnings> {
        let [first, second] = [hello::Hello::read(first)?, hello::Hello::read(second)?];
        let assumed = hashed(self.hash, &hello::message(CLIENT_HELLO, first.body()));
        // Another suite than the first time, with another hash.
        if assumed.len() != hash.len() {
            return None;
        }
        let begin = |hash: &[u8], retry: &[u8], hello: &[u8]| {
            let messages = [(MESSAGE_HASH, hash), (SERVER_HELLO, retry), (CLIENT_HELLO, hello)];
            messages.map(|(kind, body)| hello::message(kind, body)).concat()
        };
        let said = self.with_cookie(claim.hello.cookie()?);
        let engine = begin(&assumed, self.body, second.body());
        Some(Beginnings::new(engine, begin(hash, &said, claim.hello.body())))
    }
}

fn hashed(algorithm: HashAlgorithm, data: &[u8]) -> Vec<u8> {
    let mut context = aws_lc_rs::default_provider().hash_provider.create_hash(algorithm);
    context.update(data);
    let mut out = Buf::new();
    context.clone_and_finalize(&mut out);
    out.to_vec()
}
