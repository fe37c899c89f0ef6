//! QPACK's field sections.

use bytes::Bytes;

use crate::hpack::{Field, Name, Value};
use crate::qpack::{Listed, begin, decode, field};

/// Octets of fields that are listed.
const LIMIT: usize = 1 << 16;

fn read(section: &Bytes, limit: usize) -> Option<(Vec<Field>, Listed)> {
    let mut fields = Vec::new();
    let listed = decode(section, limit, |field| fields.push(field)).ok()?;
    Some((fields, listed))
}

fn name(name: &Name) -> Option<&[u8]> {
    Some(match name {
        Name::Method => b":method",
        Name::Scheme => b":scheme",
        Name::Authority => b":authority",
        Name::Path => b":path",
        Name::Status => b":status",
        Name::Protocol => b":protocol",
        Name::Header(name) => name.as_str().as_bytes(),
        Name::Bad(_) => return None,
    })
}

fn value(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Text(text) => Some(text),
        Value::Header(value) => Some(value.as_bytes()),
        Value::Bad => None,
    }
}

/// Whatever fields `data` stands for come back when they are written and read again, and a limit leaves out only what
/// is beyond it.
pub(super) fn qpack(data: &[u8]) {
    let section = Bytes::copy_from_slice(data);
    let Some((fields, listed)) = read(&section, LIMIT) else { return };
    let octets: usize = fields.iter().map(|field| field.size).sum();
    assert!(octets <= LIMIT, "a limit is one");
    let half = octets / 2;
    let (first, _) = read(&section, half).expect("what can be read can be read with a limit");
    let within = fields.iter().scan(0, |sum, field| {
        *sum += field.size;
        Some(*sum)
    });
    assert_eq!(first.len(), within.take_while(|sum| *sum <= half).count(), "as many as there is room for");

    let whole: Vec<(&[u8], &[u8])> =
        fields.iter().filter_map(|field| Some((name(&field.name)?, value(&field.value)?))).collect();
    for sensitive in [false, true] {
        let mut out = Vec::new();
        begin(&mut out);
        for (name, value) in &whole {
            field(&mut out, name, value, sensitive);
        }
        let (back, again) = read(&out.into(), LIMIT).expect("what was written can be read");
        assert!(again == Listed::Whole || listed == Listed::BeyondLimit, "all of it");
        assert_eq!(back.len(), whole.len(), "as many fields");
        for (read, written) in back.iter().zip(&whole) {
            assert_eq!((name(&read.name), value(&read.value)), (Some(written.0), Some(written.1)));
        }
    }
}
