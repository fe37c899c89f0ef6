//! WebSocket frames (RFC 6455 §5.2), read and written.

use crate::driver::Fault;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub last: bool,
    pub opcode: Opcode,
    pub mask: Option<[u8; 4]>,
    /// Bytes of the header itself.
    pub length: usize,
    /// Bytes of the payload.
    pub payload: usize,
}

/// Bytes of the longest header.
pub const LARGEST_HEADER: usize = 14;

/// Reads a header; nothing while it is incomplete.
///
/// # Errors
/// Reserved bits, an unknown opcode, or a length beyond this machine.
pub fn read_header(bytes: &[u8]) -> Result<Option<Header>, Fault> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(Fault::protocol("reserved bits without an extension"));
    }
    let opcode = match first & 15 {
        0 => Opcode::Continuation,
        1 => Opcode::Text,
        2 => Opcode::Binary,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        other => return Err(Fault::protocol(format!("opcode {other}"))),
    };
    let (payload, extra) = match second & 127 {
        126 => match rest.first_chunk::<2>() {
            Some(length) => (u64::from(u16::from_be_bytes(*length)), 2),
            None => return Ok(None),
        },
        127 => match rest.first_chunk::<8>() {
            Some(length) => (u64::from_be_bytes(*length), 8),
            None => return Ok(None),
        },
        short => (u64::from(short), 0),
    };
    let mask = if second & 128 == 0 {
        None
    } else {
        let Some(mask) = rest.get(extra..).and_then(<[u8]>::first_chunk::<4>) else { return Ok(None) };
        Some(*mask)
    };
    Ok(Some(Header {
        last: first & 128 != 0,
        opcode,
        mask,
        length: 2 + extra + if mask.is_some() { 4 } else { 0 },
        payload: usize::try_from(payload).map_err(Fault::protocol)?,
    }))
}

/// Appends a whole frame as clients send it.
pub fn write_masked(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    write_header(out, opcode, payload.len(), 128);
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(&mut out[start..], mask);
}

/// Appends a whole frame as servers send it.
pub fn write_plain(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    write_header(out, opcode, payload.len(), 0);
    out.extend_from_slice(payload);
}

/// Masks or unmasks, which is the same.
pub fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let wide = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        chunk.copy_from_slice(&(u64::from_ne_bytes(word) ^ wide).to_ne_bytes());
    }
    for (byte, mask) in chunks.into_remainder().iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

fn write_header(out: &mut Vec<u8>, opcode: Opcode, length: usize, mask_bit: u8) {
    let code = match opcode {
        Opcode::Continuation => 0,
        Opcode::Text => 1,
        Opcode::Binary => 2,
        Opcode::Close => 8,
        Opcode::Ping => 9,
        Opcode::Pong => 10,
    };
    out.push(128 | code);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => out.push(mask_bit | short),
        (_, Ok(medium)) => {
            out.push(mask_bit | 126);
            out.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            out.push(mask_bit | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for size in [0, 1, 64, 125, 126, 65_535, 65_536, 70_001] {
            let payload: Vec<u8> = (0..size).map(|at: usize| at.to_le_bytes()[0]).collect();
            let mut wire = Vec::new();
            write_masked(&mut wire, Opcode::Binary, &payload, [1, 2, 3, 4]);
            for short in 0..wire.len().min(LARGEST_HEADER) {
                if let Some(header) = read_header(&wire[..short]).expect("good") {
                    assert!(header.length <= short);
                }
            }
            let header = read_header(&wire).expect("good").expect("whole");
            assert_eq!((header.payload, header.opcode, header.last), (size, Opcode::Binary, true));
            apply_mask(&mut wire[header.length..], header.mask.expect("masked"));
            assert_eq!(&wire[header.length..], &payload[..]);
        }
    }

    #[test]
    fn reserved_bits_and_opcodes_are_refused() {
        assert!(read_header(&[0xC2, 0]).is_err());
        assert!(read_header(&[0x83, 0]).is_err());
    }
}
