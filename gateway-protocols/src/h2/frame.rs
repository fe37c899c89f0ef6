//! Frames as they are on the wire (RFC 9113 §4 and §6).

use super::Reason;

/// Octets before a frame's payload.
pub(crate) const HEAD_BYTES: usize = 9;
/// The smallest and the largest size a peer may allow frames (RFC 9113 §6.5.2).
pub(crate) const MIN_MAX_FRAME: u32 = 16 << 10;
pub(crate) const MAX_MAX_FRAME: u32 = (1 << 24) - 1;
/// The largest window (RFC 9113 §6.9.1).
pub(crate) const MAX_WINDOW: i64 = (1 << 31) - 1;
/// The window either side starts with (RFC 9113 §6.9.2).
pub(crate) const INITIAL_WINDOW: u32 = 65_535;

/// What a client sends before its first frame (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameType {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// To be ignored (RFC 9113 §4.1).
    Unknown,
}

pub(crate) mod flag {
    //! Bits of a frame's flags.

    /// The last frame of its sender's side of a stream.
    pub(crate) const END_STREAM: u8 = 0x1;
    /// Of SETTINGS and PING: an answer.
    pub(crate) const ACK: u8 = 0x1;
    /// The last frame of a header block.
    pub(crate) const END_HEADERS: u8 = 0x4;
    /// Padding follows the payload.
    pub(crate) const PADDED: u8 = 0x8;
    /// Of HEADERS: priority comes before the block.
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// A frame without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) kind: FrameType,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    /// Reads a frame's first nine octets; `None` when they are not all there.
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, d, e, f, g] = *octets.first_chunk::<HEAD_BYTES>()?;
        let kind = match kind {
            0 => FrameType::Data,
            1 => FrameType::Headers,
            2 => FrameType::Priority,
            3 => FrameType::RstStream,
            4 => FrameType::Settings,
            5 => FrameType::PushPromise,
            6 => FrameType::Ping,
            7 => FrameType::GoAway,
            8 => FrameType::WindowUpdate,
            9 => FrameType::Continuation,
            _ => FrameType::Unknown,
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        // The reserved bit is ignored (RFC 9113 §4.1).
        let stream = u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff;
        Some(Self { length, kind, flags, stream })
    }

    /// Whether a flag is set.
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The nine octets of a frame.
pub(crate) fn head(length: usize, kind: FrameType, flags: u8, stream: u32) -> [u8; HEAD_BYTES] {
    // Whoever writes frames keeps to the peer's largest, which has 24 bits.
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, kind as u8, flags, d, e, f, g]
}

/// What of a DATA or HEADERS payload is not padding: how many octets to skip at its start, and at its end.
///
/// # Errors
/// When there is more padding than payload (RFC 9113 §6.1), or no room for what the flags announce.
pub(crate) fn unpad(head: &Head, payload: &[u8]) -> Result<(usize, usize), Reason> {
    let mut skip = 0;
    let mut padding = 0;
    if head.has(flag::PADDED) {
        padding = usize::from(*payload.first().ok_or(Reason::FRAME_SIZE_ERROR)?);
        skip = 1;
    }
    if head.kind == FrameType::Headers && head.has(flag::PRIORITY) {
        skip += 5;
    }
    if skip > payload.len() {
        return Err(Reason::FRAME_SIZE_ERROR);
    }
    if skip + padding > payload.len() {
        return Err(Reason::PROTOCOL_ERROR);
    }
    Ok((skip, padding))
}

/// A 31-bit number at the start of a payload, without its reserved bit.
pub(crate) fn number(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*payload.first_chunk()?))
}

/// Appends a SETTINGS frame.
pub(crate) fn settings(out: &mut Vec<u8>, entries: &[(u16, u32)]) {
    out.extend_from_slice(&head(entries.len() * 6, FrameType::Settings, 0, 0));
    for (id, value) in entries {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the answer to a SETTINGS frame.
pub(crate) fn settings_ack(out: &mut Vec<u8>) {
    out.extend_from_slice(&head(0, FrameType::Settings, flag::ACK, 0));
}

/// Appends a PING frame.
pub(crate) fn ping(out: &mut Vec<u8>, ack: bool, payload: [u8; 8]) {
    out.extend_from_slice(&head(8, FrameType::Ping, if ack { flag::ACK } else { 0 }, 0));
    out.extend_from_slice(&payload);
}

/// Appends a WINDOW_UPDATE frame; stream zero is the connection.
pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    out.extend_from_slice(&head(4, FrameType::WindowUpdate, 0, stream));
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends a RST_STREAM frame.
pub(crate) fn rst_stream(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    out.extend_from_slice(&head(4, FrameType::RstStream, 0, stream));
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Appends a GOAWAY frame; `note` is for whoever debugs the peer.
pub(crate) fn goaway(out: &mut Vec<u8>, last: u32, reason: Reason, note: &str) {
    out.extend_from_slice(&head(8 + note.len(), FrameType::GoAway, 0, 0));
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.0.to_be_bytes());
    out.extend_from_slice(note.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back() {
        let kinds = [
            FrameType::Data,
            FrameType::Headers,
            FrameType::Priority,
            FrameType::RstStream,
            FrameType::Settings,
            FrameType::PushPromise,
            FrameType::Ping,
            FrameType::GoAway,
            FrameType::WindowUpdate,
            FrameType::Continuation,
            FrameType::Unknown,
        ];
        for kind in kinds {
            let octets = head(0x12_3456, kind, 0xa5, 0x7fff_fffe);
            let back = Head::parse(&octets).unwrap();
            assert_eq!(back, Head { length: 0x12_3456, kind, flags: 0xa5, stream: 0x7fff_fffe });
        }
        assert_eq!(Head::parse(&[0; 8]), None);
        assert_eq!(Head::parse(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]).unwrap().stream, 1);
    }

    #[test]
    fn padding() {
        let padded = |kind, flags, payload: &[u8]| {
            unpad(&Head { length: payload.len(), kind, flags, stream: 1 }, payload)
        };
        assert_eq!(padded(FrameType::Data, 0, b"abc"), Ok((0, 0)));
        assert_eq!(padded(FrameType::Data, flag::PADDED, &[2, b'a', 0, 0]), Ok((1, 2)));
        assert_eq!(padded(FrameType::Data, flag::PADDED, &[2, 0, 0]), Ok((1, 2)));
        assert_eq!(padded(FrameType::Data, flag::PADDED, &[3, 0, 0]), Err(Reason::PROTOCOL_ERROR));
        assert_eq!(padded(FrameType::Data, flag::PADDED, &[]), Err(Reason::FRAME_SIZE_ERROR));
        assert_eq!(padded(FrameType::Headers, flag::PRIORITY, &[0; 5]), Ok((5, 0)));
        assert_eq!(padded(FrameType::Headers, flag::PRIORITY, &[0; 4]), Err(Reason::FRAME_SIZE_ERROR));
        let both = flag::PRIORITY | flag::PADDED;
        assert_eq!(padded(FrameType::Headers, both, &[1, 0, 0, 0, 0, 0, 9]), Ok((6, 1)));
        assert_eq!(padded(FrameType::Headers, both, &[1, 0, 0, 0, 0, 0]), Err(Reason::PROTOCOL_ERROR));
    }
}
