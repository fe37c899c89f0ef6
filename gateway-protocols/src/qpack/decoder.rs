//! Reading field sections.

use bytes::Bytes;

use super::QpackError;
use super::table::STATIC;
use crate::hpack::{Field, HpackError, Name, huffman, integer};

/// What is kept of a section's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    /// All of them.
    Whole,
    /// Only those within the limit.
    BeyondLimit,
}

/// Reads a field section and hands over its fields, as long as they sum up to no more than `limit` octets by
/// RFC 9114 §4.2.2's way of counting; what lies beyond is not looked at.
///
/// # Errors
/// When the section is broken, or wants a dynamic table.
pub(crate) fn decode(
    section: &Bytes,
    limit: usize,
    mut each: impl FnMut(Field),
) -> Result<Listed, QpackError> {
    let mut input = &section[..];
    if integer::decode(&mut input, 8)? != 0 {
        return Err(QpackError::Dynamic);
    }
    // RFC 9204 §4.5.1.2: without entries the base is of no use, but it can't be negative either.
    let negative = input.first().is_some_and(|first| first & 0x80 != 0);
    integer::decode(&mut input, 7)?;
    if negative {
        return Err(QpackError::Base);
    }
    let mut scratch = Vec::new();
    let mut total = 0_usize;
    while let Some(&first) = input.first() {
        let field = match first {
            0xc0.. => {
                let (name, value) = known(integer::decode(&mut input, 6)?)?;
                Field::fixed(name, value)
            }
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = known(integer::decode(&mut input, 4)?)?;
                Field::new(name.clone(), value(section, &mut input, &mut scratch)?)
            }
            0x20..=0x3f => {
                let coded = first & 0x08 != 0;
                let length = integer::decode(&mut input, 3)?;
                let text = take(&mut input, length)?;
                let name = if coded {
                    scratch.clear();
                    huffman::decode(text, &mut scratch)?;
                    Name::parse(&scratch)
                } else {
                    Name::parse(text)
                };
                Field::new(name, value(section, &mut input, &mut scratch)?)
            }
            _ => return Err(QpackError::Dynamic),
        };
        total = total.saturating_add(field.size);
        if total > limit {
            return Ok(Listed::BeyondLimit);
        }
        each(field);
    }
    Ok(Listed::Whole)
}

fn known(index: usize) -> Result<&'static (Name, &'static str), QpackError> {
    STATIC.get(index).ok_or(QpackError::Index)
}

fn value(section: &Bytes, input: &mut &[u8], scratch: &mut Vec<u8>) -> Result<Bytes, QpackError> {
    let coded = input.first().ok_or(HpackError::Truncated)? & 0x80 != 0;
    let length = integer::decode(input, 7)?;
    let text = take(input, length)?;
    if !coded {
        return Ok(section.slice_ref(text));
    }
    scratch.clear();
    huffman::decode(text, scratch)?;
    Ok(Bytes::copy_from_slice(scratch))
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8], QpackError> {
    let (text, rest) = input.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *input = rest;
    Ok(text)
}
