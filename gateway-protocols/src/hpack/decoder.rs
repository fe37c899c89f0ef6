//! Reading header blocks.

use std::collections::VecDeque;

use super::name::STATIC;
use super::{Field, HpackError, Name, TABLE_BYTES, huffman, integer};
use bytes::Bytes;

/// What is kept of a block's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    /// All of them.
    Whole,
    /// Only those within the limit; the tables are in step all the same.
    BeyondLimit,
}

/// The reading end of one direction.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: VecDeque<Field>,
    size: usize,
    /// What the peer chose.
    max: usize,
    /// What it may choose.
    allowed: usize,
    scratch: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        let (max, allowed) = (TABLE_BYTES, TABLE_BYTES);
        Self { table: VecDeque::new(), size: 0, max, allowed, scratch: Vec::new() }
    }
}

impl Decoder {
    /// Reads a whole block and hands over its fields, as long as they sum up to no more than `limit` octets by
    /// RFC 9113 §6.5.2's way of counting. What lies beyond is read for the sake of the table, and dropped.
    ///
    /// # Errors
    /// When the block is broken; the connection is lost then.
    pub(crate) fn decode(
        &mut self,
        block: &Bytes,
        limit: usize,
        mut each: impl FnMut(Field),
    ) -> Result<Listed, HpackError> {
        let mut input = &block[..];
        let mut total = 0_usize;
        let mut began = false;
        while let Some(&first) = input.first() {
            if first & 0xe0 == 0x20 {
                let size = integer::decode(&mut input, 5)?;
                if began || size > self.allowed {
                    return Err(HpackError::TableSize);
                }
                self.max = size;
                self.evict(0);
                continue;
            }
            began = true;
            let field = match first {
                0x80.. => self.entry(integer::decode(&mut input, 7)?)?,
                0x40.. => self.literal(block, &mut input, 6)?,
                _ => self.literal(block, &mut input, 4)?,
            };
            total = total.saturating_add(field.size);
            if total <= limit {
                each(field);
            }
        }
        Ok(if total > limit { Listed::BeyondLimit } else { Listed::Whole })
    }

    fn entry(&self, index: usize) -> Result<Field, HpackError> {
        match index.checked_sub(1).ok_or(HpackError::Index)? {
            at if at < STATIC.len() => {
                let (name, value) = &STATIC[at];
                Ok(Field::fixed(name, value))
            }
            at => self.table.get(at - STATIC.len()).cloned().ok_or(HpackError::Index),
        }
    }

    /// The name of an entry; `index` is not zero.
    fn name(&self, index: usize) -> Result<Name, HpackError> {
        match STATIC.get(index - 1) {
            Some((name, _)) => Ok(name.clone()),
            None => {
                let field = self.table.get(index - 1 - STATIC.len()).ok_or(HpackError::Index)?;
                Ok(field.name.clone())
            }
        }
    }

    /// A field whose value, and often its name, is written out; with a prefix of six bits it is kept in the table.
    fn literal(&mut self, block: &Bytes, input: &mut &[u8], prefix: u8) -> Result<Field, HpackError> {
        let keep = prefix == 6;
        let name = match integer::decode(input, prefix)? {
            0 => {
                let (coded, text) = string(input)?;
                match coded {
                    false => Name::parse(text),
                    true => {
                        self.scratch.clear();
                        huffman::decode(text, &mut self.scratch)?;
                        Name::parse(&self.scratch)
                    }
                }
            }
            index => self.name(index)?,
        };
        let (coded, text) = string(input)?;
        let value = match coded {
            true => {
                self.scratch.clear();
                huffman::decode(text, &mut self.scratch)?;
                Bytes::copy_from_slice(&self.scratch)
            }
            // The table outlives the read buffer by far, and must not hold on to it.
            false if keep => Bytes::copy_from_slice(text),
            false => block.slice_ref(text),
        };
        let field = Field::new(name, value);
        if keep {
            self.insert(field.clone());
        }
        Ok(field)
    }

    fn insert(&mut self, field: Field) {
        self.evict(field.size);
        // One that is larger than the table empties it (RFC 7541 §4.4).
        if field.size <= self.max {
            self.size += field.size;
            self.table.push_front(field);
        }
    }

    fn evict(&mut self, room: usize) {
        while self.size + room > self.max {
            let Some(oldest) = self.table.pop_back() else { return };
            self.size -= oldest.size;
        }
    }
}

/// The octets of a string, and whether they are coded.
fn string<'a>(input: &mut &'a [u8]) -> Result<(bool, &'a [u8]), HpackError> {
    let coded = input.first().ok_or(HpackError::Truncated)? & 0x80 != 0;
    let length = integer::decode(input, 7)?;
    let (text, rest) = input.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *input = rest;
    Ok((coded, text))
}

#[cfg(test)]
mod tests;
