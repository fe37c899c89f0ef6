//! The strings within a GraphQL document, without its escapes (GraphQL, "String Value").

use super::{ItemKind, Sink};
use crate::bytes::hex;

/// Whether a text is a document that may have strings; any other is no document for us.
pub(crate) fn may_have_strings(text: &[u8]) -> bool {
    let start = text.trim_ascii_start();
    let begins =
        [&b"{"[..], b"query", b"mutation", b"subscription", b"fragment", b"#", b"\xef\xbb\xbf", b","];
    begins.iter().any(|word| start.starts_with(word))
        && memchr::memchr(b'{', start).is_some()
        && memchr::memchr(b'"', start).is_some()
}

/// Gives each string under the name of the argument or variable before it. `false`: there are too many.
pub(crate) fn strings(text: &[u8], sink: &mut dyn Sink) -> bool {
    let (mut at, mut name) = (0, &b""[..]);
    let mut value = Vec::new();
    while let Some(byte) = text.get(at).copied() {
        match byte {
            b'#' => {
                at += text[at..]
                    .iter()
                    .position(|byte| matches!(byte, b'\n' | b'\r'))
                    .unwrap_or(text.len() - at)
            }
            b'"' => {
                value.clear();
                at = match text[at..].strip_prefix(b"\"\"\"") {
                    Some(inner) => at + 3 + block(inner, &mut value),
                    None => at + 1 + plain(&text[at + 1..], &mut value),
                };
                if !sink.take(ItemKind::Argument, &[b"graphql.", name].concat(), &value) {
                    return false;
                }
            }
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                let rest = &text[at..];
                let length =
                    rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
                name = &rest[..length];
                at += length;
            }
            _ => at += 1,
        }
    }
    true
}

/// A block string up to `"""`, in which only that mark is escaped. Says how long it is.
fn block(text: &[u8], out: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(b"\\\"\"\"") {
            out.extend_from_slice(b"\"\"\"");
            at += 4;
        } else if text[at..].starts_with(b"\"\"\"") {
            return at + 3;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    at
}

/// A string up to its quote. Says how long it is.
fn plain(text: &[u8], out: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at).copied() {
        at += 1;
        match byte {
            b'"' => return at,
            b'\\' => at += escape(&text[at..], out),
            byte => out.push(byte),
        }
    }
    at
}

/// What is behind a backslash. Says how long it is.
fn escape(text: &[u8], out: &mut Vec<u8>) -> usize {
    let digits = match text {
        [b'u', b'{', rest @ ..] => {
            rest.iter().take(8).position(|byte| *byte == b'}').map(|end| (&rest[..end], end + 3))
        }
        [b'u', rest @ ..] => rest.get(..4).map(|digits| (digits, 5)),
        _ => None,
    };
    if let Some((digits, length)) = digits
        && let Some(code) =
            digits.iter().try_fold(0u32, |code, digit| Some(code << 4 | u32::from(hex(*digit)?)))
    {
        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        return length;
    }
    let Some(kind) = text.first() else { return 0 };
    out.push(match kind {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        other => *other,
    });
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Collected;

    #[test]
    fn strings_are_found_without_their_escapes() {
        let text = "query Q($a: String = \"d\\u0027x\") { # \"no\"\n user(name: \"a\\\"b\\u{3c}\\n\", list: [\"1\", \"2\"]) \
                    { post(text: \"\"\"block \"q\" \\\"\"\" end\"\"\") } }";
        let mut found = Collected::default();
        assert!(may_have_strings(text.as_bytes()) && strings(text.as_bytes(), &mut found));
        let got: Vec<_> = found.0.iter().map(|(_, name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            got,
            [
                "graphql.String=d'x",
                "graphql.name=a\"b<\n",
                "graphql.list=1",
                "graphql.list=2",
                "graphql.text=block \"q\" \"\"\" end"
            ]
        );
        assert!(!may_have_strings(b"how to select a union") && !may_have_strings(b"{ a { b } }"));
    }
}
