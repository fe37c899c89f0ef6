//! Forms and queries: `a=1&b=2`.

use super::{ItemKind, Sink, TOO_MANY, Unreadable};
use crate::transform::decode_form;

/// Reads pairs. `%` that is not followed by two digits stays as it is.
pub(crate) fn read(text: &[u8], sink: &mut dyn Sink) -> Result<(), Unreadable> {
    let (mut name, mut value) = (Vec::new(), Vec::new());
    for pair in text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let at = memchr::memchr(b'=', pair);
        let (raw_name, raw_value) = match at {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        name.clear();
        value.clear();
        decode_form(raw_name, &mut name);
        decode_form(raw_value, &mut value);
        if !sink.take(ItemKind::Argument, &name, &value) {
            return Err(TOO_MANY);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Collected;

    #[test]
    fn pairs_are_decoded() {
        let mut found = Collected::default();
        read(b"a=1&b=%3Cx%3e+y&&c&=d&e==&f=%zz%", &mut found).unwrap();
        let pairs: Vec<_> = found.0.iter().map(|(_, name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "<x> y"), ("c", ""), ("", "d"), ("e", "="), ("f", "%zz%")]);
    }

    #[test]
    fn too_many_are_refused() {
        assert_eq!(read(&b"a&".repeat(2000), &mut Collected::default()), Err(TOO_MANY));
    }
}
