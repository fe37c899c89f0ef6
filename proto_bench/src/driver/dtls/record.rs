//! DTLS 1.2 records under TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 (RFC 6347 §4.1, RFC 5288 §3).

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use webrtc_dtls::conn::DTLSConn;

use crate::driver::Fault;

/// What a record carries, as far as anybody asks after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Alert,
    Application,
}

/// Both directions of an association.
pub struct Records {
    seal: Half,
    open: Half,
    /// Epoch and sequence number of the next record, as one number.
    next: u64,
}

struct Half {
    key: LessSafeKey,
    salt: [u8; 4],
}

/// What the handshake agrees on, always the same.
pub const NEGOTIATED: &str = "DTLSv1_2 TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
/// Bytes a record adds to its payload.
pub const OVERHEAD: usize = HEADER + EXPLICIT_NONCE + TAG;
/// The alert that ends an association: warning, close_notify.
pub const CLOSE_NOTIFY: [u8; 2] = [1, 0];

const HEADER: usize = 13;
const EXPLICIT_NONCE: usize = 8;
const TAG: usize = 16;
const VERSION: [u8; 2] = [0xFE, 0xFD];
const EPOCH_ONE: u64 = 1 << 48;

impl Records {
    /// Derives the keys of a finished handshake.
    ///
    /// # Errors
    /// The handshake is not finished, or webrtc-dtls changed the form of its state.
    pub async fn take_over(connection: &DTLSConn, client: bool) -> Result<Self, Fault> {
        let state = connection.connection_state().await.marshal_binary().await.map_err(Fault::handshake)?;
        Self::from_state(&state, client)
            .ok_or_else(|| Fault::handshake("unknown form of webrtc-dtls's state"))
    }

    /// The state is: epochs (2 × u16), local and remote random (32 each), suite (u16), master secret (u64 length and
    /// bytes), sequence number (u64); all little-endian.
    fn from_state(state: &[u8], client: bool) -> Option<Self> {
        let local_random = state.get(4..36)?;
        let remote_random = state.get(36..68)?;
        let length = usize::try_from(u64::from_le_bytes(*state.get(70..)?.first_chunk()?)).ok()?;
        let master = state.get(78..78 + length).filter(|secret| secret.len() == 48)?;
        let sequence = u64::from_le_bytes(*state.get(78 + length..)?.first_chunk()?);
        let (client_random, server_random) =
            if client { (local_random, remote_random) } else { (remote_random, local_random) };
        let seed = [b"key expansion", server_random, client_random].concat();
        let block = prf_sha256(master, &seed, 40);
        let clients = Half::new(block.get(..16)?, block.get(32..36)?)?;
        let servers = Half::new(block.get(16..32)?, block.get(36..40)?)?;
        let (seal, open) = if client { (clients, servers) } else { (servers, clients) };
        Some(Self { seal, open, next: EPOCH_ONE | sequence })
    }

    /// Makes one record; `out` is overwritten.
    ///
    /// # Errors
    /// The cipher refuses, which it never does for lengths a record may have.
    pub fn seal(&mut self, content: Content, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let number = self.next.to_be_bytes();
        self.next += 1;
        let kind = if content == Content::Alert { 21 } else { 23 };
        let length = u16::try_from(payload.len()).map_err(Fault::protocol)?;
        out.clear();
        out.push(kind);
        out.extend_from_slice(&VERSION);
        out.extend_from_slice(&number);
        out.extend_from_slice(&(length + (EXPLICIT_NONCE + TAG) as u16).to_be_bytes());
        out.extend_from_slice(&number);
        out.extend_from_slice(payload);
        let aad = Aad::from(additional_data(number, kind, length));
        let body = &mut out[HEADER + EXPLICIT_NONCE..];
        let tag =
            self.seal.key.seal_in_place_separate_tag(self.seal.nonce(number), aad, body).map_err(broken)?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens one record in place; nothing for records of the handshake.
    ///
    /// # Errors
    /// A record that is cut short, has another version, or was changed on its way.
    pub fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<Option<(Content, &'a [u8])>, Fault> {
        let Some((header, rest)) = datagram.split_first_chunk_mut::<HEADER>() else {
            return Err(Fault::protocol("a datagram shorter than a record's header"));
        };
        let content = match header[0] {
            23 => Content::Application,
            21 => Content::Alert,
            _ => return Ok(None),
        };
        let length = usize::from(u16::from_be_bytes([header[11], header[12]]));
        let Some((nonce, sealed)) = rest.split_first_chunk_mut::<EXPLICIT_NONCE>() else {
            return Err(Fault::protocol("a record without a nonce"));
        };
        if header[1..3] != VERSION || length != EXPLICIT_NONCE + sealed.len() || sealed.len() < TAG {
            return Err(Fault::protocol("a datagram that is not exactly one record"));
        }
        let mut number = [0; 8];
        number.copy_from_slice(&header[3..11]);
        let plain = u16::try_from(sealed.len() - TAG).map_err(Fault::protocol)?;
        let aad = Aad::from(additional_data(number, header[0], plain));
        let payload = self.open.key.open_in_place(self.open.nonce(*nonce), aad, sealed).map_err(broken)?;
        Ok(Some((content, payload)))
    }
}

impl Half {
    fn new(key: &[u8], salt: &[u8]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).ok()?);
        Some(Self { key, salt: *salt.first_chunk()? })
    }

    fn nonce(&self, explicit: [u8; EXPLICIT_NONCE]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&explicit);
        Nonce::assume_unique_for_key(nonce)
    }
}

fn additional_data(number: [u8; 8], kind: u8, length: u16) -> [u8; HEADER] {
    let mut data = [0; HEADER];
    data[..8].copy_from_slice(&number);
    data[8] = kind;
    data[9..11].copy_from_slice(&VERSION);
    data[11..].copy_from_slice(&length.to_be_bytes());
    data
}

/// P_SHA256 of RFC 5246 §5.
fn prf_sha256(secret: &[u8], seed: &[u8], length: usize) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut chained = hmac::sign(&key, seed);
    let mut out = Vec::with_capacity(length + 32);
    while out.len() < length {
        let block = [chained.as_ref(), seed].concat();
        out.extend_from_slice(hmac::sign(&key, &block).as_ref());
        chained = hmac::sign(&key, chained.as_ref());
    }
    out.truncate(length);
    out
}

fn broken(_: Unspecified) -> Fault {
    Fault::protocol("a record does not authenticate")
}
