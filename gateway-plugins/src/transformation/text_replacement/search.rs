//! Finds texts in a body that arrives in pieces.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use bytes::{Bytes, BytesMut};
use gateway_core::http::body::{BodyError, Transform, TransformOutput};

/// A text and what takes its place.
pub(super) struct Pair {
    pub(super) find: Vec<u8>,
    pub(super) with: Bytes,
}

/// Replaces texts in a body.
pub(super) struct Replacing {
    /// Those that are still looked for.
    pairs: Vec<Pair>,
    automaton: Option<AhoCorasick>,
    /// Bytes that may be the beginning of a match: fewer than the longest text.
    held: BytesMut,
    once: bool,
    ignores_case: bool,
}

/// What begins at a position of the body.
enum MatchAt {
    /// The text of this number.
    Whole(usize),
    /// Perhaps a text, if more bytes come.
    Begun,
    Nothing,
}

impl Replacing {
    /// `None` where no text is to be looked for. What finds the texts is made here, unless it was `made` of them before.
    pub(super) fn new(
        mut pairs: Vec<Pair>,
        once: bool,
        ignores_case: bool,
        made: Option<AhoCorasick>,
    ) -> Option<Self> {
        pairs.retain(|pair| !pair.find.is_empty());
        let automaton = match made {
            Some(made) => made,
            None => automaton(pairs.iter().map(|pair| &*pair.find), ignores_case)?,
        };
        Some(Self { pairs, automaton: Some(automaton), held: BytesMut::new(), once, ignores_case })
    }

    /// Puts out what is decided.
    fn search(&mut self, is_end: bool, out: &mut TransformOutput) {
        // Behind this, a match may go on beyond the bytes that are there.
        while let Some(automaton) = &self.automaton {
            let longest = self.pairs.iter().map(|pair| pair.find.len()).max().unwrap_or(1);
            let Some(sure) = (self.held.len() + 1).checked_sub(longest).filter(|sure| *sure > 0) else {
                break;
            };
            let found = automaton.find(&self.held).filter(|found| found.start() < sure);
            match found {
                Some(found) => {
                    out.data(self.held.split_to(found.start()));
                    self.replace(found.pattern().as_usize(), out);
                }
                None => {
                    out.data(self.held.split_to(sure));
                    break;
                }
            }
        }
        let mut at = 0;
        while self.automaton.is_some() && at < self.held.len() {
            match self.match_at(at, is_end) {
                MatchAt::Whole(index) => {
                    out.data(self.held.split_to(at));
                    self.replace(index, out);
                    at = 0;
                }
                MatchAt::Begun => break,
                MatchAt::Nothing => at += 1,
            }
        }
        if self.automaton.is_none() {
            at = self.held.len();
        }
        out.data(self.held.split_to(at));
    }

    fn match_at(&self, at: usize, is_end: bool) -> MatchAt {
        let rest = self.held.get(at..).unwrap_or_default();
        let is_same = |one: &[u8], other: &[u8]| match self.ignores_case {
            true => one.eq_ignore_ascii_case(other),
            false => one == other,
        };
        for (index, pair) in self.pairs.iter().enumerate() {
            let length = pair.find.len().min(rest.len());
            if rest.get(..length).zip(pair.find.get(..length)).is_none_or(|(one, other)| !is_same(one, other))
            {
                continue;
            }
            match (length == pair.find.len(), is_end) {
                (true, _) => return MatchAt::Whole(index),
                (false, false) => return MatchAt::Begun,
                (false, true) => {}
            }
        }
        MatchAt::Nothing
    }

    /// Puts out what takes the place of a text at the beginning of what is held.
    fn replace(&mut self, index: usize, out: &mut TransformOutput) {
        let Some(pair) = self.pairs.get(index) else { return };
        drop(self.held.split_to(pair.find.len().min(self.held.len())));
        out.data(pair.with.clone());
        if self.once {
            self.pairs.remove(index);
            self.automaton = automaton(self.pairs.iter().map(|pair| &*pair.find), self.ignores_case);
        }
    }
}

impl Transform for Replacing {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        if self.automaton.is_none() {
            out.data(data);
            return Ok(());
        }
        self.held.extend_from_slice(&data);
        self.search(false, out);
        Ok(())
    }

    fn end(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        self.search(true, out);
        Ok(())
    }
}

/// What finds these texts; `None` where there are none.
pub(super) fn automaton<'t>(
    texts: impl ExactSizeIterator<Item = &'t [u8]>,
    ignores_case: bool,
) -> Option<AhoCorasick> {
    if texts.len() == 0 {
        return None;
    }
    AhoCorasickBuilder::new()
        .match_kind(MatchKind::LeftmostFirst)
        .ascii_case_insensitive(ignores_case)
        .build(texts)
        .ok()
}
