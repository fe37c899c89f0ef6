//! What waits to be written: small things side by side in one buffer, large ones as they are, in order.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

/// Payloads up to this size are copied next to their frame's head.
const COPY_BYTES: usize = 2 << 10;
/// Slices given to one write.
const MAX_SLICES: usize = 32;
/// A buffer that had to grow beyond this is given back when it is empty.
const KEEP_BYTES: usize = 32 << 10;

/// Frames on their way out.
#[derive(Debug, Default)]
pub(crate) struct FrameOutput {
    small: Vec<u8>,
    /// Bytes of `small` that are written.
    done: usize,
    /// Large pieces, each with the place in `small` it comes before.
    large: VecDeque<(usize, Bytes)>,
    large_bytes: usize,
}

impl FrameOutput {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.small.len() - self.done + self.large_bytes
    }

    /// Whether everything is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where frames are appended.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.small
    }

    /// Appends a payload.
    pub(crate) fn payload(&mut self, data: Bytes) {
        if data.len() <= COPY_BYTES {
            self.small.extend_from_slice(&data);
        } else {
            self.large_bytes += data.len();
            self.large.push_back((self.small.len(), data));
        }
    }

    /// What to write next, in order.
    pub(crate) fn slices(&self) -> SmallVec<[IoSlice<'_>; MAX_SLICES]> {
        let mut slices = SmallVec::new();
        let mut at = self.done;
        for (place, data) in self.large.iter().take(MAX_SLICES / 2 - 1) {
            if *place > at {
                slices.push(IoSlice::new(&self.small[at..*place]));
                at = *place;
            }
            slices.push(IoSlice::new(data));
        }
        let end = self.large.get(MAX_SLICES / 2 - 1).map_or(self.small.len(), |(place, _)| *place);
        if end > at {
            slices.push(IoSlice::new(&self.small[at..end]));
        }
        slices
    }

    /// So many bytes were written.
    pub(crate) fn advance(&mut self, mut written: usize) {
        while written > 0 {
            let before = self.large.front().map_or(self.small.len(), |(place, _)| *place);
            let of_small = written.min(before - self.done);
            self.done += of_small;
            written -= of_small;
            let Some((_, data)) = self.large.front_mut() else { break };
            let of_large = written.min(data.len());
            data.advance(of_large);
            self.large_bytes -= of_large;
            written -= of_large;
            if !data.is_empty() {
                break;
            }
            self.large.pop_front();
        }
        self.tidy();
    }

    /// Forgets what is written.
    fn tidy(&mut self) {
        if self.is_empty() {
            self.small.clear();
            self.done = 0;
            if self.small.capacity() > KEEP_BYTES {
                self.small = Vec::new();
            }
        } else if self.done > KEEP_BYTES {
            self.small.drain(..self.done);
            for (place, _) in &mut self.large {
                *place -= self.done;
            }
            self.done = 0;
        }
    }

    /// Gives memory back while nothing happens.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(output: &mut FrameOutput, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !output.is_empty() {
            let before = all.len();
            for slice in output.slices() {
                let room = step - (all.len() - before);
                all.extend_from_slice(&slice[..room.min(slice.len())]);
            }
            assert!(all.len() > before);
            output.advance(all.len() - before);
        }
        all
    }

    #[test]
    fn order_is_kept_however_it_is_written() {
        for step in [1, 7, 1000, 5000, usize::MAX] {
            let mut output = FrameOutput::default();
            let mut expected = Vec::new();
            for number in 0..60_usize {
                let length = if number % 3 == 0 { 3000 } else { number };
                let data = vec![number as u8; length];
                output.buffer().push(b'|');
                output.payload(data.clone().into());
                expected.push(b'|');
                expected.extend_from_slice(&data);
            }
            assert_eq!(output.len(), expected.len());
            assert!(written(&mut output, step) == expected, "by {step}");
            assert!(output.small.is_empty());
        }
    }

    #[test]
    fn what_is_written_is_forgotten_though_more_comes() {
        let mut output = FrameOutput::default();
        for _ in 0..1000 {
            output.payload(Bytes::from_static(&[b'x'; 1000]));
            output.payload(Bytes::from_static(&[b'y'; 3000]));
            while output.len() > 5000 {
                output.advance(700);
            }
        }
        assert!(output.small.len() < 2 * KEEP_BYTES, "{}", output.small.len());
    }
}
