//! The gRPC-Web frame that carries trailers at the end of a body, and where in a body it may follow: after a whole frame.

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;

use super::dialect::GrpcWeb;

/// The flag of a frame that holds trailers (gRPC-Web, "Message framing").
const TRAILERS: u8 = 0x80;
/// Bytes before each frame: a flag and a length.
const PREFIX: usize = 5;
/// The trailers that say how a call ended.
const STATUS: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The frame with the status of these fields, as clients of this kind read it.
pub(crate) fn status_frame(kind: GrpcWeb, fields: &HeaderMap) -> Bytes {
    let mut text = BytesMut::new();
    for name in STATUS {
        if let Some(value) = fields.get(name) {
            text.put_slice(name.as_bytes());
            text.put_slice(b":");
            text.put_slice(value.as_bytes());
            text.put_slice(b"\r\n");
        }
    }
    let mut frame = BytesMut::with_capacity(PREFIX + text.len());
    frame.put_u8(TRAILERS);
    frame.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    frame.put_slice(&text);
    match kind {
        GrpcWeb::Binary => frame.freeze(),
        GrpcWeb::Text => base64(&frame),
    }
}

fn base64(bytes: &[u8]) -> Bytes {
    let mut text = BytesMut::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let octet = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let bits = octet(0) << 16 | octet(1) << 8 | octet(2);
        for n in 0..4 {
            let sextet = usize::try_from(bits >> (18 - 6 * n) & 63).unwrap_or(0);
            let is_filled = n <= group.len();
            text.put_u8(if is_filled { DIGITS.get(sextet).copied().unwrap_or(b'=') } else { b'=' });
        }
    }
    text.freeze()
}

/// How far into a frame a body has come. A status may only follow a whole one.
#[derive(Debug)]
pub(crate) struct FramePosition {
    kind: GrpcWeb,
    /// Digits of Base64 that make no whole group yet.
    digits: u32,
    count: u8,
    /// The prefix of a frame, as far as it came.
    prefix: [u8; PREFIX],
    filled: usize,
    /// Bytes of the frame that are still to come.
    left: usize,
}

impl FramePosition {
    pub(crate) fn new(kind: GrpcWeb) -> Self {
        Self { kind, digits: 0, count: 0, prefix: [0; PREFIX], filled: 0, left: 0 }
    }

    /// Whether nothing of a frame has come, or all of it.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.count == 0 && self.filled == 0 && self.left == 0
    }

    /// Follows what passes.
    pub(crate) fn pass(&mut self, data: &[u8]) {
        match self.kind {
            GrpcWeb::Binary => self.octets(data),
            GrpcWeb::Text => data.iter().for_each(|digit| self.digit(*digit)),
        }
    }

    fn octets(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let skipped = self.left.min(data.len());
            self.left -= skipped;
            data = data.get(skipped..).unwrap_or_default();
            if let Some((first, rest)) = data.split_first() {
                self.octet(*first);
                data = rest;
            }
        }
    }

    fn octet(&mut self, octet: u8) {
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        if let Some(slot) = self.prefix.get_mut(self.filled) {
            *slot = octet;
        }
        self.filled += 1;
        if self.filled == PREFIX {
            let [_, length @ ..] = self.prefix;
            self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            self.filled = 0;
        }
    }

    /// Padding may stand at the end of each group.
    fn digit(&mut self, digit: u8) {
        let sextet = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => 64,
            _ => return,
        };
        let is_padding = sextet == 64;
        if !is_padding {
            self.digits = self.digits << 6 | u32::from(sextet);
            self.count += 1;
        }
        if self.count == 4 || is_padding && self.count > 0 {
            let [_, octets @ ..] = (self.digits << (6 * (4 - u32::from(self.count)))).to_be_bytes();
            let whole = usize::from(self.count) * 6 / 8;
            octets.iter().take(whole).for_each(|octet| self.octet(*octet));
            (self.digits, self.count) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_as_a_frame() {
        let mut fields = HeaderMap::new();
        fields.insert("grpc-status", "4".parse().unwrap());
        fields.insert("x-other", "1".parse().unwrap());
        assert_eq!(&*status_frame(GrpcWeb::Binary, &fields), b"\x80\0\0\0\x0fgrpc-status:4\r\n");
        assert_eq!(&*status_frame(GrpcWeb::Text, &fields), b"gAAAAA9ncnBjLXN0YXR1czo0DQo=");
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn positions_are_known_however_a_body_is_cut() {
        let frame = b"\0\0\0\0\x03abc";
        for (kind, whole) in [
            (GrpcWeb::Binary, [&frame[..], frame, b"\x80\0\0\0\0"].concat()),
            // A message encoded on its own, and two together.
            (GrpcWeb::Text, [base64(frame), base64(&[&frame[..], b"\0\0\0\0\0"].concat())].concat()),
        ] {
            let ends = match kind {
                GrpcWeb::Binary => vec![0, 8, 16, 21],
                GrpcWeb::Text => vec![0, 12, 31, 32],
            };
            for step in 1..=whole.len() {
                let mut position = FramePosition::new(kind);
                let mut passed = 0;
                assert!(position.is_between_frames());
                for piece in whole.chunks(step) {
                    position.pass(piece);
                    passed += piece.len();
                    assert_eq!(
                        position.is_between_frames(),
                        ends.contains(&passed),
                        "{kind:?} {step} {passed}"
                    );
                }
            }
        }
        let mut large = FramePosition::new(GrpcWeb::Binary);
        large.pass(b"\0\xff\xff\xff\xff");
        large.pass(&[0; 100]);
        assert!(!large.is_between_frames());
    }
}
