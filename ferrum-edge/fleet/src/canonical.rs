//! Canonical JSON: both sides compute the same hash of a document, however it was written.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How deep a document may nest.
const MAX_DEPTH: usize = 128;

/// The canonical form of a JSON object: no white space, keys ordered by their code points, strings escaped only where
/// JSON requires it, numbers as they were written.
///
/// `None` if the text is not a JSON object, nests deeper than 128, or has a key twice: readers disagree about which of the two counts.
pub fn canonical(document: &str) -> Option<String> {
    let mut out = String::with_capacity(document.len());
    write_object(document, MAX_DEPTH, &mut out)?;
    Some(out)
}

/// An object with each value as it was written.
struct Fields<'d>(BTreeMap<String, &'d RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ReadFields;

        impl<'de> Visitor<'de> for ReadFields {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields<'de>, M::Error> {
                let mut fields = BTreeMap::new();
                while let Some((key, value)) = map.next_entry()? {
                    if fields.insert(key, value).is_some() {
                        return Err(M::Error::custom("a key stands twice"));
                    }
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(ReadFields)
    }
}

/// Writes a value that nests at most `depth` deep.
fn write_value(text: &str, depth: usize, out: &mut String) -> Option<()> {
    match text.as_bytes().first()? {
        b'{' => write_object(text, depth, out),
        b'[' => {
            let depth = depth.checked_sub(1)?;
            out.push('[');
            for (number, value) in serde_json::from_str::<Vec<&RawValue>>(text).ok()?.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                write_value(value.get(), depth, out)?;
            }
            out.push(']');
            Some(())
        }
        b'"' => write_string(&serde_json::from_str::<String>(text).ok()?, out),
        _ => {
            out.push_str(text);
            Some(())
        }
    }
}

fn write_object(text: &str, depth: usize, out: &mut String) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    out.push('{');
    for (number, (key, value)) in serde_json::from_str::<Fields<'_>>(text).ok()?.0.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        write_string(key, out)?;
        out.push(':');
        write_value(value.get(), depth, out)?;
    }
    out.push('}');
    Some(())
}

fn write_string(text: &str, out: &mut String) -> Option<()> {
    out.push_str(&serde_json::to_string(text).ok()?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_mean_the_same_have_one_form() {
        for (document, expected) in [
            ("{}", Some("{}")),
            (" { } ", Some("{}")),
            (r#"{"b":1,"a":[1, 2 ,{"d":null,"c":true}]}"#, Some(r#"{"a":[1,2,{"c":true,"d":null}],"b":1}"#)),
            (r#"{"a":"\u0041\/\n","é":"\u00e9"}"#, Some(r#"{"a":"A/\n","é":"é"}"#)),
            (
                r#"{"a":1.0,"b":1e3,"c":-0,"d":123456789012345678901234567890}"#,
                Some(r#"{"a":1.0,"b":1e3,"c":-0,"d":123456789012345678901234567890}"#),
            ),
            (r#"{"a":[],"b":{},"c":[[],[{}]]}"#, Some(r#"{"a":[],"b":{},"c":[[],[{}]]}"#)),
            (r#"{"a":"}]\"\\"}"#, Some(r#"{"a":"}]\"\\"}"#)),
            (r#"{"a":1,"a":1}"#, None),
            (r#"{"a":1,"\u0061":1}"#, None),
            (r#"{"x":{"a":1,"a":2}}"#, None),
            ("[]", None),
            ("1", None),
            ("{", None),
            (r#"{"a":1}}"#, None),
            ("", None),
        ] {
            assert_eq!(canonical(document).as_deref(), expected, "{document}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000));
        assert!(canonical(&deep).is_none(), "depth is limited");
    }

    #[test]
    fn the_canonical_form_is_its_own() {
        let document = r#"{"z":[{"y":"\t","x":1}],"a":{"c":"\"","b":false}}"#;
        let first = canonical(document).unwrap();
        assert_eq!(canonical(&first).as_deref(), Some(first.as_str()));
    }
}
