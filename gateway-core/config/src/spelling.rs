//! How paths are spelled when they are matched: percent-encoding in its one form, for requests and for what is configured.

/// What a target may read otherwise than the gateway: found in a path, for the proxy's rules to decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Oddities {
    /// `%2F`
    pub slash: bool,
    /// `%5C`, or a plain backslash, which is written as `%5C` from here on.
    pub backslash: bool,
    /// `%252F`, `%2561` and the like: an octet that is encoded twice.
    pub double: bool,
    /// `;` in a segment: some targets read what precedes it as the whole segment.
    pub parameters: bool,
    /// `%3A` and the like: a character that a path may have plainly as well. It stays, as there are targets that tell the two apart;
    /// those that don't must not be reached past a proxy whose path has it plainly.
    pub reserved: bool,
}

impl Oddities {
    /// Whether there are any that the proxy's rules decide on.
    pub fn any(self) -> bool {
        Self { reserved: false, ..self } != Self::default()
    }
}

/// Characters that a segment of a path may have plainly and escaped (RFC 3986 §3.3), but for `;`, by which some targets take a segment
/// apart.
pub const fn is_reserved(value: u8) -> bool {
    matches!(value, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@')
}

/// Octets that a path may contain raw, `pchar` and `/` of RFC 3986 §3.3, but for `;` and `%`.
pub const NEEDS_NO_LOOK: [bool; 256] = {
    let mut table = [false; 256];
    let mut c = 0_u8;
    while c < 0x7f {
        table[c as usize] =
            matches!(c, b'/' | b'-' | b'.' | b'_' | b'~') || c.is_ascii_alphanumeric() || is_reserved(c);
        c += 1;
    }
    table
};

/// A path of the configuration, or a piece of one, in the spelling of requests when they are matched: escaped unreserved characters
/// are written plainly, octets that a path may not contain raw are escaped, escapes are in capitals. Slashes and dot segments stay.
///
/// # Errors
/// A `%` that begins no escape, a NUL, a space, a control character or `#`: no request's path contains them.
pub fn in_request_spelling(text: &str) -> Result<String, InvalidPath> {
    let (decoded, _) = decode(text.as_bytes()).map_err(|_| InvalidPath)?;
    String::from_utf8(decoded).map_err(|_| InvalidPath)
}

/// A text that no request's path is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no request has such a path: it contains a broken escape, a NUL, a space, a control character or `#`"
)]
pub struct InvalidPath;

/// Appends `%XX` for an octet.
pub(crate) fn push_octet(out: &mut String, octet: u8) {
    for c in [b'%', HEX[usize::from(octet >> 4)], HEX[usize::from(octet & 15)]] {
        out.push(c.into());
    }
}

/// Whether a path may contain this octet raw.
pub(crate) fn may_be_raw(octet: u8) -> bool {
    octet == b';' || NEEDS_NO_LOOK[usize::from(octet)]
}

/// Why a path has no spelling that two readers agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecodable {
    /// A broken escape, or a character that no path may have.
    Malformed,
    /// An escaped NUL.
    Nul,
}

/// The path with unreserved characters written plainly, and the rest in capitals.
pub fn decode(path: &[u8]) -> Result<(Vec<u8>, Oddities), Undecodable> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut oddities = Oddities::default();
    let mut rest = path;
    while let Some((&c, tail)) = rest.split_first() {
        rest = tail;
        match c {
            b'%' => {
                let (value, tail) = escape(rest).ok_or(Undecodable::Malformed)?;
                rest = tail;
                match value {
                    0 => return Err(Undecodable::Nul),
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        decoded.push(value)
                    }
                    _ => push_escaped(&mut decoded, value),
                }
                oddities.reserved |= is_reserved(value);
                oddities.slash |= value == b'/';
                oddities.backslash |= value == b'\\';
                oddities.double |= value == b'%' && escape(tail).is_some();
            }
            b'\\' => {
                oddities.backslash = true;
                push_escaped(&mut decoded, c);
            }
            b'#' | 0..=b' ' | 0x7f => return Err(Undecodable::Malformed),
            b';' => {
                oddities.parameters = true;
                decoded.push(c);
            }
            c if NEEDS_NO_LOOK[usize::from(c)] => decoded.push(c),
            c => push_escaped(&mut decoded, c),
        }
    }
    Ok((decoded, oddities))
}

/// The value of the two hexadecimal digits in front, and what follows them.
pub fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, tail @ ..] = text else { return None };
    Some((hex(*high)? << 4 | hex(*low)?, tail))
}

fn push_escaped(out: &mut Vec<u8>, value: u8) {
    out.extend_from_slice(&[b'%', HEX[usize::from(value >> 4)], HEX[usize::from(value & 15)]]);
}

fn hex(c: u8) -> Option<u8> {
    (c as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

const HEX: [u8; 16] = *b"0123456789ABCDEF";
