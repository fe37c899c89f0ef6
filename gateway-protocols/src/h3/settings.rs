//! SETTINGS (RFC 9114 §7.2.4).

use super::frame::{kind, put_varint, varint};
use super::{Code, H3Error};

const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// RFC 9220.
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
const QPACK_BLOCKED_STREAMS: u64 = 0x7;

/// What an end says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Settings {
    /// Octets of a field section it takes; `None` is no limit.
    pub(crate) max_field_section: Option<u64>,
    /// Takes extended CONNECT.
    pub(crate) connect_protocol: bool,
}

impl Settings {
    /// Reads a frame's payload.
    ///
    /// # Errors
    /// When it is cut off, or says something twice or what it must not.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, H3Error> {
        let mut input = payload;
        let mut said: Vec<u64> = Vec::new();
        let mut settings = Self::default();
        while !input.is_empty() {
            let pair = varint(&mut input).and_then(|name| Some((name, varint(&mut input)?)));
            let Some((name, value)) = pair else {
                return Err(H3Error::new(Code::FRAME_ERROR, "SETTINGS that are cut off"));
            };
            if said.contains(&name) {
                return Err(H3Error::new(Code::SETTINGS_ERROR, "a setting twice"));
            }
            said.push(name);
            match name {
                MAX_FIELD_SECTION_SIZE => settings.max_field_section = Some(value),
                ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    return Err(H3Error::new(Code::SETTINGS_ERROR, "neither yes nor no to extended CONNECT"));
                }
                ENABLE_CONNECT_PROTOCOL => settings.connect_protocol = value == 1,
                // RFC 9114 §7.2.4.1: these mean something in HTTP/2.
                0x2..=0x5 => return Err(H3Error::new(Code::SETTINGS_ERROR, "a setting of HTTP/2")),
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Appends a frame.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        let mut say = |name, value| {
            put_varint(&mut payload, name);
            put_varint(&mut payload, value);
        };
        say(QPACK_MAX_TABLE_CAPACITY, 0);
        say(QPACK_BLOCKED_STREAMS, 0);
        if let Some(octets) = self.max_field_section {
            say(MAX_FIELD_SECTION_SIZE, octets);
        }
        if self.connect_protocol {
            say(ENABLE_CONNECT_PROTOCOL, 1);
        }
        put_varint(out, kind::SETTINGS);
        put_varint(out, payload.len() as u64);
        out.extend_from_slice(&payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let settings = Settings { max_field_section: Some(65_536), connect_protocol: true };
        let mut out = Vec::new();
        settings.write(&mut out);
        assert_eq!(out[..2], [4, out.len() as u8 - 2]);
        assert_eq!(Settings::read(&out[2..]), Ok(settings));
        assert_eq!(Settings::read(&[]), Ok(Settings::default()));
        // A reserved one (RFC 9114 §7.2.4.1) says nothing.
        assert_eq!(Settings::read(&[0x21, 5]), Ok(Settings::default()));
    }

    #[test]
    fn what_may_not_be_said_is_refused() {
        for (payload, code) in [
            (&[6_u8][..], Code::FRAME_ERROR),
            (&[6, 0x40], Code::FRAME_ERROR),
            (&[6, 1, 6, 1], Code::SETTINGS_ERROR),
            (&[8, 2], Code::SETTINGS_ERROR),
            (&[2, 0], Code::SETTINGS_ERROR),
            (&[3, 10], Code::SETTINGS_ERROR),
            (&[4, 1], Code::SETTINGS_ERROR),
            (&[5, 1], Code::SETTINGS_ERROR),
        ] {
            assert_eq!(Settings::read(payload).unwrap_err().code, code, "{payload:?}");
        }
    }
}
