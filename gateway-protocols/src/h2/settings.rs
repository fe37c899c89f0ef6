//! What each side tells the other to keep to (RFC 9113 §6.5).

use super::frame::{self, INITIAL_WINDOW, MAX_MAX_FRAME, MAX_WINDOW, MIN_MAX_FRAME};
use super::{H2Error, Reason};

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
/// RFC 8441 §3.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// Streams opened at a time before the peer has said how many it takes.
pub(crate) const STREAMS_UNTOLD: u32 = 100;

/// The settings of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) header_table_size: u32,
    /// `None` until the peer's settings have come; then what they say, or no limit.
    pub(crate) max_concurrent_streams: Option<u32>,
    pub(crate) initial_window_size: u32,
    pub(crate) max_frame_size: u32,
    pub(crate) max_header_list_size: Option<u32>,
    pub(crate) enable_connect_protocol: bool,
    pub(crate) enable_push: bool,
}

impl Default for Settings {
    /// What holds before anything is said.
    fn default() -> Self {
        Self {
            header_table_size: crate::hpack::TABLE_BYTES as u32,
            max_concurrent_streams: None,
            initial_window_size: INITIAL_WINDOW,
            max_frame_size: MIN_MAX_FRAME,
            max_header_list_size: None,
            enable_connect_protocol: false,
            enable_push: true,
        }
    }
}

impl Settings {
    /// Appends the frame that says what differs from the defaults.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let usual = Self::default();
        let mut entries: smallvec::SmallVec<[(u16, u32); 7]> = smallvec::SmallVec::new();
        if !self.enable_push {
            entries.push((ENABLE_PUSH, 0));
        }
        if let Some(most) = self.max_concurrent_streams {
            entries.push((MAX_CONCURRENT_STREAMS, most));
        }
        if self.initial_window_size != usual.initial_window_size {
            entries.push((INITIAL_WINDOW_SIZE, self.initial_window_size));
        }
        if self.max_frame_size != usual.max_frame_size {
            entries.push((MAX_FRAME_SIZE, self.max_frame_size));
        }
        if let Some(most) = self.max_header_list_size {
            entries.push((MAX_HEADER_LIST_SIZE, most));
        }
        if self.enable_connect_protocol {
            entries.push((ENABLE_CONNECT_PROTOCOL, 1));
        }
        frame::settings(out, &entries);
    }

    /// Takes in the payload of a SETTINGS frame; its length is a multiple of six. `from_server` says who sent it.
    ///
    /// # Errors
    /// Values nobody may send.
    pub(crate) fn apply(&mut self, payload: &[u8], from_server: bool) -> Result<(), H2Error> {
        if self.max_concurrent_streams.is_none() {
            self.max_concurrent_streams = Some(u32::MAX);
        }
        for entry in payload.as_chunks::<6>().0 {
            let [a, b, c, d, e, f] = *entry;
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                HEADER_TABLE_SIZE => self.header_table_size = value,
                ENABLE_PUSH => match value {
                    // RFC 9113 §6.5.2: a server must not offer it.
                    0 => self.enable_push = false,
                    1 if !from_server => self.enable_push = true,
                    _ => return Err(H2Error::new(Reason::PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")),
                },
                MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = Some(value),
                INITIAL_WINDOW_SIZE if i64::from(value) > MAX_WINDOW => {
                    return Err(H2Error::new(Reason::FLOW_CONTROL_ERROR, "the initial window is too large"));
                }
                INITIAL_WINDOW_SIZE => self.initial_window_size = value,
                MAX_FRAME_SIZE if !(MIN_MAX_FRAME..=MAX_MAX_FRAME).contains(&value) => {
                    return Err(H2Error::new(Reason::PROTOCOL_ERROR, "the frame size is out of range"));
                }
                MAX_FRAME_SIZE => self.max_frame_size = value,
                MAX_HEADER_LIST_SIZE => self.max_header_list_size = Some(value),
                ENABLE_CONNECT_PROTOCOL => match (value, self.enable_connect_protocol) {
                    (1, _) => self.enable_connect_protocol = true,
                    (0, false) => {}
                    // RFC 8441 §3: it can't be taken back.
                    _ => {
                        return Err(H2Error::new(Reason::PROTOCOL_ERROR, "ENABLE_CONNECT_PROTOCOL is wrong"));
                    }
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// Streams that may be open at a time.
    pub(crate) fn streams(&self) -> u32 {
        self.max_concurrent_streams.unwrap_or(STREAMS_UNTOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u16, value: u32) -> Vec<u8> {
        [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let ours = Settings {
            max_concurrent_streams: Some(128),
            initial_window_size: 1 << 20,
            max_frame_size: 1 << 20,
            max_header_list_size: Some(9),
            enable_connect_protocol: true,
            enable_push: false,
            ..Settings::default()
        };
        let mut out = Vec::new();
        ours.write(&mut out);
        let mut theirs = Settings::default();
        theirs.apply(&out[9..], true).unwrap();
        assert_eq!(theirs, ours);
    }

    #[test]
    fn wrong_values() {
        let cases = [
            (2, 2, Reason::PROTOCOL_ERROR),
            (4, 1 << 31, Reason::FLOW_CONTROL_ERROR),
            (5, 16_383, Reason::PROTOCOL_ERROR),
            (5, 1 << 24, Reason::PROTOCOL_ERROR),
            (8, 2, Reason::PROTOCOL_ERROR),
        ];
        for (id, value, reason) in cases {
            let fault = Settings::default().apply(&entry(id, value), false).unwrap_err();
            assert_eq!(fault.reason, reason, "{id}={value}");
        }
        Settings::default().apply(&entry(2, 1), false).unwrap();
        Settings::default().apply(&entry(2, 1), true).unwrap_err();
        Settings::default().apply(&entry(0xff, 9), true).unwrap();
    }

    #[test]
    fn no_word_about_streams_is_no_limit() {
        let mut settings = Settings::default();
        assert_eq!(settings.streams(), STREAMS_UNTOLD);
        settings.apply(&[], true).unwrap();
        assert_eq!(settings.streams(), u32::MAX);
    }
}
