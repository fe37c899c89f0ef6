//! Every distinct value of a request, kept once: what transformations make of it, and which rules are known not to match.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::bits;
use crate::bytes::ByteSet;
use crate::cache::Cache;
use crate::rules::{Node, PhaseRules};

/// One seed for the process, which nobody outside knows.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// Nothing is known yet.
const UNKNOWN: u32 = u32::MAX;

/// A distinct value.
pub(crate) type TextId = u32;
/// The empty one, which is the first of each request.
pub(crate) const EMPTY: TextId = 0;

#[derive(Debug, Clone, Copy)]
struct DistinctText {
    start: u32,
    length: u32,
    hash: u64,
    /// Which bytes it has, once somebody has asked.
    bytes: Option<ByteSet>,
    /// Where its facts begin.
    facts: u32,
    /// Something was learned that the cache does not know.
    is_news: bool,
    /// Where what its transformations make of it begins.
    variants: u32,
    /// Where the rules are whose needs it meets.
    scan: u32,
    /// A value that differs in the case of letters alone.
    alike: TextId,
}

/// Values and what is known of them.
#[derive(Default)]
pub(crate) struct Texts {
    arena: Vec<u8>,
    entries: Vec<DistinctText>,
    index: HashTable<TextId>,
    /// For each value with facts: rules that could match, rules that were asked, and of these those that matched.
    facts: Vec<u64>,
    variants: Vec<TextId>,
    scans: Vec<u64>,
    scratch: Vec<u8>,
    /// Bytes read by automata and operators.
    pub(crate) read: u64,
}

/// Which of the facts.
#[derive(Clone, Copy)]
pub(crate) enum Fact {
    Candidate = 0,
    Asked = 1,
    Matched = 2,
}

impl Texts {
    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.entries.clear();
        self.index.clear();
        self.read = 0;
        self.forget();
    }

    /// Forgets what is known about rules: others are coming.
    pub(crate) fn forget(&mut self) {
        self.facts.clear();
        self.variants.clear();
        self.scans.clear();
        for entry in &mut self.entries {
            (entry.facts, entry.variants, entry.scan) = (UNKNOWN, UNKNOWN, UNKNOWN);
        }
    }

    /// Bytes that it holds.
    pub(crate) fn size(&self) -> usize {
        self.arena.len()
    }

    /// Gives back memory that a large request has taken.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        if self.arena.capacity() > bytes {
            *self = Self::default();
        }
    }

    /// The value, kept if it is new.
    pub(crate) fn keep(&mut self, text: &[u8]) -> TextId {
        let hash = HASHER.hash_one(text);
        let (arena, entries) = (&self.arena, &self.entries);
        let same = |id: &TextId| {
            let entry = &entries[*id as usize];
            entry.hash == hash && slice(arena, entry) == text
        };
        if let Some(id) = self.index.find(hash, same) {
            return *id;
        }
        // Sizes are limited far below this; beyond it the value counts as empty.
        let Ok(start) = u32::try_from(self.arena.len()) else { return 0 };
        let Ok(length) = u32::try_from(text.len()) else { return 0 };
        let id = self.entries.len() as TextId;
        self.arena.extend_from_slice(text);
        self.entries.push(DistinctText {
            start,
            length,
            hash,
            bytes: None,
            facts: UNKNOWN,
            is_news: false,
            variants: UNKNOWN,
            scan: UNKNOWN,
            alike: UNKNOWN,
        });
        let entries = &self.entries;
        self.index.insert_unique(hash, id, |id| entries[*id as usize].hash);
        id
    }

    pub(crate) fn get(&self, id: TextId) -> &[u8] {
        self.entries.get(id as usize).map_or(&[], |entry| slice(&self.arena, entry))
    }

    /// Which bytes the value has.
    pub(crate) fn bytes(&mut self, id: TextId) -> ByteSet {
        let Some(entry) = self.entries.get_mut(id as usize) else { return ByteSet::default() };
        if let Some(bytes) = entry.bytes {
            return bytes;
        }
        let bytes = ByteSet::of(slice(&self.arena, entry));
        entry.bytes = Some(bytes);
        bytes
    }

    /// What a chain of transformations makes of the value.
    pub(crate) fn variant(&mut self, id: TextId, node: usize, nodes: &[Node]) -> TextId {
        if node == 0 {
            return id;
        }
        let Some(entry) = self.entries.get_mut(id as usize) else { return id };
        if entry.variants == UNKNOWN {
            entry.variants = self.variants.len() as u32;
            self.variants.resize(self.variants.len() + nodes.len(), UNKNOWN);
        }
        let slot = entry.variants as usize + node;
        if let Some(known) = self.variants.get(slot).copied().filter(|known| *known != UNKNOWN) {
            return known;
        }
        let Some(step) = nodes.get(node).copied() else { return id };
        let before = self.variant(id, step.parent, nodes);
        let unchanged = step.triggers.is_some_and(|it| !it.meets(&self.bytes(before)));
        let after = if unchanged { before } else { self.apply(before, step) };
        self.variants[slot] = after;
        after
    }

    fn apply(&mut self, id: TextId, step: Node) -> TextId {
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        step.transform.apply(self.get(id), &mut out);
        let after = if out == self.get(id) { id } else { self.keep(&out) };
        self.scratch = out;
        if after != id && step.transform.keeps_letters() {
            self.entries[after as usize].alike = id;
        }
        after
    }

    /// Makes sure that it is known which rules the value could match.
    pub(crate) fn prepare(&mut self, id: TextId, half: &PhaseRules, nodes: &[Node], cache: &mut Cache) {
        let width = half.width;
        let from = self.facts.len();
        match self.entries.get_mut(id as usize) {
            Some(entry) if entry.facts == UNKNOWN => entry.facts = from as u32,
            _ => return,
        }
        self.facts.resize(from + 3 * width, 0);
        let entry = self.entries[id as usize];
        if let Some(known) = cache.get(entry.hash, slice(&self.arena, &entry), 3 * width) {
            self.facts[from..].copy_from_slice(known);
            self.entries[id as usize].is_news = false;
            return;
        }
        self.entries[id as usize].is_news = true;
        let scan = self.scan(id, half);
        bits::or_common(&mut self.facts[from..from + width], &self.scans[scan..scan + width], &half.plain);
        let variants = self.fill(id, half, nodes);
        let (mut before, mut scan) = (id, scan);
        for (node, rules) in &half.nodes {
            let variant = self.variants[variants + node];
            if variant != before {
                (before, scan) = (variant, self.scan(variant, half));
            }
            bits::or_common(&mut self.facts[from..from + width], &self.scans[scan..scan + width], rules);
        }
    }

    /// Applies every transformation that the heads of rules need; where the results are.
    fn fill(&mut self, id: TextId, half: &PhaseRules, nodes: &[Node]) -> usize {
        let from = match self.entries[id as usize].variants {
            UNKNOWN => {
                let from = self.variants.len();
                self.entries[id as usize].variants = from as u32;
                self.variants.resize(from + nodes.len(), UNKNOWN);
                from
            }
            known => known as usize,
        };
        self.variants[from] = id;
        let own = self.bytes(id);
        for node in &half.order {
            if self.variants[from + node] != UNKNOWN {
                continue;
            }
            let step = nodes[*node];
            let before = self.variants[from + step.parent];
            let bytes = if before == id { own } else { self.bytes(before) };
            let unchanged = step.triggers.is_some_and(|it| !it.meets(&bytes));
            self.variants[from + node] = if unchanged { before } else { self.apply(before, step) };
        }
        from
    }

    /// Where the rules are whose needs the value meets; read once for each value.
    fn scan(&mut self, id: TextId, half: &PhaseRules) -> usize {
        let Some(mut entry) = self.entries.get(id as usize).copied() else { return 0 };
        if entry.scan == UNKNOWN
            && let Some(alike) = self.entries.get(entry.alike as usize).copied()
        {
            // Another that differs in the case of letters alone.
            entry.scan = alike.scan;
        }
        if entry.scan == UNKNOWN {
            let (from, bytes) = (self.scans.len(), self.bytes(id));
            self.scans.resize(from + half.width, 0);
            half.filter.scan(slice(&self.arena, &entry), &bytes, &mut self.scans[from..]);
            self.read += u64::from(entry.length);
            entry.scan = from as u32;
        }
        self.entries[id as usize].scan = entry.scan;
        entry.scan as usize
    }

    /// Whether the fact is known of this rule and value.
    #[inline]
    pub(crate) fn is(&self, id: TextId, fact: Fact, rule: usize, width: usize) -> bool {
        bits::has(self.fact(id, fact, width), rule)
    }

    /// All rules that the fact is known of.
    #[inline]
    pub(crate) fn fact(&self, id: TextId, fact: Fact, width: usize) -> &[u64] {
        match self.entries.get(id as usize) {
            Some(entry) if entry.facts != UNKNOWN => {
                let from = entry.facts as usize + fact as usize * width;
                self.facts.get(from..from + width).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Notes that a rule was asked about a value, and what it said.
    pub(crate) fn note(&mut self, id: TextId, rule: usize, matched: bool, width: usize) {
        let Some(entry) = self.entries.get_mut(id as usize).filter(|it| it.facts != UNKNOWN) else { return };
        entry.is_news = true;
        let from = entry.facts as usize;
        let asked = from + Fact::Asked as usize * width;
        bits::set(&mut self.facts[asked..asked + width], rule);
        if matched {
            let hit = from + Fact::Matched as usize * width;
            bits::set(&mut self.facts[hit..hit + width], rule);
        }
    }

    /// Keeps what was learned for later requests.
    pub(crate) fn remember(&self, width: usize, cache: &mut Cache) {
        for entry in self.entries.iter().filter(|entry| entry.is_news && entry.facts != UNKNOWN) {
            let from = entry.facts as usize;
            if let Some(facts) = self.facts.get(from..from + 3 * width) {
                cache.put(entry.hash, slice(&self.arena, entry), facts);
            }
        }
    }
}

fn slice<'a>(arena: &'a [u8], entry: &DistinctText) -> &'a [u8] {
    let from = entry.start as usize;
    arena.get(from..from + entry.length as usize).unwrap_or_default()
}
