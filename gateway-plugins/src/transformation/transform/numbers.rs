//! Numbers of a JSON body as they came: a changed body has the same digits, however many.
//!
//! A number that would be written otherwise than it came is a string while the body is changed, marked by bytes that no client
//! can know, and its own digits again when the body is written.

use std::borrow::Cow;

/// Marks strings that stand for numbers of one body.
pub(super) struct KeptNumbers {
    /// `"` and bytes that nobody can guess.
    mark: Option<String>,
}

impl KeptNumbers {
    /// The body with strings for such numbers. Without any it is the body itself.
    pub(super) fn keep(body: &[u8]) -> (Self, Cow<'_, [u8]>) {
        let (mut mark, mut kept) = (None, Vec::new());
        let (mut at, mut copied) = (0, 0);
        while let Some(byte) = body.get(at) {
            match byte {
                b'"' => at = end_of_string(body, at),
                b'-' | b'0'..=b'9' => {
                    let end = end_of_number(body, at);
                    let token = body.get(at..end).unwrap_or_default();
                    if is_number(token) && ends_value(body, end) && !is_canonical(token) {
                        let Some(mark) = mark.get_or_insert_with(new_mark).as_ref() else {
                            return (Self { mark: None }, Cow::Borrowed(body));
                        };
                        kept.extend_from_slice(body.get(copied..at).unwrap_or_default());
                        kept.extend_from_slice(mark.as_bytes());
                        kept.extend_from_slice(token);
                        kept.push(b'"');
                        copied = end;
                    }
                    at = end;
                }
                _ => at += 1,
            }
        }
        let Some(Some(mark)) = mark else { return (Self { mark: None }, Cow::Borrowed(body)) };
        kept.extend_from_slice(body.get(copied..).unwrap_or_default());
        (Self { mark: Some(mark) }, Cow::Owned(kept))
    }

    /// The changed body, its numbers as they came.
    pub(super) fn restore(&self, body: String) -> Vec<u8> {
        let Some(mark) = &self.mark else { return body.into_bytes() };
        let (mut restored, mut rest) = (String::with_capacity(body.len()), body.as_str());
        while let Some((before, after)) = rest.split_once(mark.as_str()) {
            let (number, behind) = after.split_once('"').unwrap_or((after, ""));
            restored.extend([before, number]);
            rest = behind;
        }
        restored.push_str(rest);
        restored.into_bytes()
    }
}

/// A mark; none where there is no randomness.
fn new_mark() -> Option<String> {
    let mut random = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut random).ok()?;
    let digits = random.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(b'a' + digit));
    Some(std::iter::once('"').chain(digits).collect())
}

/// Behind a string that begins at `start`.
fn end_of_string(body: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = body.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    body.len()
}

fn end_of_number(body: &[u8], start: usize) -> usize {
    let rest = body.get(start..).unwrap_or_default();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    rest.iter().position(|byte| !is_part(byte)).map_or(body.len(), |length| start + length)
}

/// Whether a value can end here: what is the name of a field is left for the parser to refuse.
fn ends_value(body: &[u8], end: usize) -> bool {
    let rest = body.get(end..).unwrap_or_default();
    matches!(rest.iter().find(|byte| !b" \t\r\n".contains(byte)), None | Some(b',' | b'}' | b']'))
}

/// Whether a text is a number of JSON (RFC 8259 §6).
fn is_number(token: &[u8]) -> bool {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let token = token.strip_prefix(b"-").unwrap_or(token);
    let (mantissa, exponent) = split(token, |byte| byte == b'e' || byte == b'E');
    let (whole, fraction) = split(mantissa, |byte| byte == b'.');
    let exponent =
        exponent.map(|text| text.strip_prefix(b"+").or_else(|| text.strip_prefix(b"-")).unwrap_or(text));
    digits(whole)
        && (whole == b"0" || whole.first() != Some(&b'0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

fn split(text: &[u8], is_border: impl Fn(u8) -> bool) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| is_border(*byte)) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Whether a number is written as it came.
fn is_canonical(token: &[u8]) -> bool {
    let is_short =
        token.len() < 16 && token != b"-0" && token.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
    is_short
        || serde_json::from_slice::<serde_json::Number>(token)
            .is_ok_and(|number| number.to_string().as_bytes() == token)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What becomes of a body that is read and written.
    fn written(body: &str) -> Option<String> {
        let (numbers, kept) = KeptNumbers::keep(body.as_bytes());
        let document: Value = serde_json::from_slice(&kept).ok()?;
        String::from_utf8(numbers.restore(document.to_string())).ok()
    }

    #[test]
    fn numbers_keep_their_digits() {
        for body in [
            "12345678901234567890123",
            "[0.1234567890123456789012345,-0,1.10,1E5,1e400,-1.5e-3]",
            r#"{"a":{"id":18446744073709551616,"b":[1,2.50,"x"]}}"#,
            r#"{"a":"1.10","b":"\"1.10"}"#,
            "[1,2,3.5,-7]",
            "0",
        ] {
            assert_eq!(written(body).as_deref(), Some(body));
        }
        assert_eq!(written("[ 1.10 , 2 ]").as_deref(), Some("[1.10,2]"));
    }

    #[test]
    fn what_is_no_json_stays_none() {
        for body in
            ["01", "1.", ".5", "+1", "1e", "0x10", "{1.10:2}", "[1.10 2]", "1.10 1.10", "-", "1.1.1", "NaN"]
        {
            assert_eq!(written(body), None, "{body}");
        }
    }
}
