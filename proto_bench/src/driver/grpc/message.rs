//! A gRPC message with one protobuf field, `bytes payload = 1`: five bytes of framing, a tag, a length, the bytes.

use crate::driver::Fault;

const TAG: u8 = 1 << 3 | 2;

/// Frames a payload.
#[must_use]
pub fn encode(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 16);
    out.extend_from_slice(&[0; 5]);
    out.push(TAG);
    let mut length = payload.len();
    while length > 127 {
        out.push(128 | (length & 127) as u8);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(payload);
    let framed = u32::try_from(out.len() - 5).unwrap_or(u32::MAX);
    out[1..5].copy_from_slice(&framed.to_be_bytes());
    out
}

/// Takes the payload out of exactly one framed message.
///
/// # Errors
/// Compression, a length that is not the message's, or other fields than the one there is.
pub fn decode(bytes: &[u8]) -> Result<&[u8], Fault> {
    let Some((prefix, message)) = bytes.split_first_chunk::<5>() else {
        return Err(Fault::protocol("no whole gRPC message"));
    };
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 {
        return Err(Fault::protocol("a compressed message that nobody asked for"));
    }
    let length = u32::from_be_bytes(length) as usize;
    if message.len() != length {
        return Err(Fault::Length { got: message.len(), expected: length });
    }
    let (Some(TAG), mut rest) = (message.first().copied(), message.get(1..).unwrap_or_default()) else {
        return Err(Fault::protocol("unknown field in the message"));
    };
    let (mut size, mut shift) = (0_usize, 0);
    while let Some((byte, tail)) = rest.split_first() {
        size |= usize::from(byte & 127) << shift;
        (rest, shift) = (tail, shift + 7);
        if byte & 128 == 0 {
            break;
        }
        if shift > 28 {
            return Err(Fault::protocol("overlong field length"));
        }
    }
    if rest.len() != size {
        return Err(Fault::Length { got: rest.len(), expected: size });
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_framing() {
        for size in [0, 1, 64, 127, 128, 20_000] {
            let payload = vec![7; size];
            assert_eq!(decode(&encode(&payload)).expect("good"), &payload[..]);
        }
    }

    #[test]
    fn short_and_compressed_messages_are_refused() {
        let mut wire = encode(b"payload");
        assert!(decode(&wire[..wire.len() - 1]).is_err());
        assert!(decode(&wire[..4]).is_err());
        wire[0] = 1;
        assert!(decode(&wire).is_err());
    }
}
