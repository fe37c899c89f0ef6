//! A look at a document before it is parsed: the parser keeps a note of each byte that it can't read, and a place in the tree for each
//! comma.

use super::GraphqlRefusal;

/// Tokens, commas among them, for each token that a document may have.
const MARKS_A_TOKEN: usize = 2;

/// Checks that a document has no byte that can't be one, and not many more marks than it may have tokens.
pub(super) fn check(document: &str, max_tokens: usize) -> Result<(), GraphqlRefusal> {
    let bytes = document.as_bytes();
    let (mut at, mut marks) = (if document.starts_with('\u{feff}') { 3 } else { 0 }, 0_usize);
    while let Some(byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        let length = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'#' => rest.iter().position(|c| matches!(c, b'\n' | b'\r')).unwrap_or(rest.len()),
            b'"' => text(rest).ok_or_else(|| unreadable(at))?,
            c if is_name(*c) => rest.iter().position(|c| !is_name(*c)).unwrap_or(rest.len()),
            b'!' | b'$' | b'&' | b'(' | b')' | b'.' | b':' | b'=' | b'@' | b'[' | b']' | b'{' | b'|'
            | b'}' | b',' | b'-' | b'+' => 1,
            _ => return Err(unreadable(at)),
        };
        (at, marks) = (at + length, marks + 1);
        if marks / MARKS_A_TOKEN > max_tokens {
            return Err(GraphqlRefusal::bad(
                "graphql_tokens",
                format!("a document may have {max_tokens} tokens"),
            ));
        }
    }
    Ok(())
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn unreadable(at: usize) -> GraphqlRefusal {
    GraphqlRefusal::bad("graphql_syntax", format!("syntax error at byte {at}"))
}

/// The length of the string that is in front, with its quotation marks; `None` where it has no end.
fn text(rest: &[u8]) -> Option<usize> {
    if let Some(block) = rest.strip_prefix(b"\"\"\"") {
        let mut at = 0;
        loop {
            let inside = block.get(at..)?;
            if inside.starts_with(b"\\\"\"\"") {
                at += 4;
            } else if inside.starts_with(b"\"\"\"") {
                return Some(at + 6);
            } else if inside.is_empty() {
                return None;
            } else {
                at += 1;
            }
        }
    }
    let mut at = 1;
    loop {
        match rest.get(at)? {
            b'"' => return Some(at + 1),
            b'\n' | b'\r' => return None,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_passes() {
        for document in [
            "{a}",
            "\u{feff}query Q($a: [Int!] = [-1, 2.5e+3]) @d { ...F | & a(b: \"\\\" ä\", c: \"\"\"x \\\"\"\" \" y\"\"\") } # ü",
            "\"\"",
            "",
        ] {
            assert_eq!(check(document, 100), Ok(()), "{document}");
        }
        for document in ["{a%}", "{ä}", "{a(b: \"x)}", "\"a\nb\"", "\"\"\"x", "\"\\", "{a;}"] {
            assert_eq!(check(document, 100).unwrap_err().reason, "graphql_syntax", "{document}");
        }
        assert_eq!(check(&",".repeat(22), 10).unwrap_err().reason, "graphql_tokens");
        assert_eq!(check(&",".repeat(21), 10), Ok(()));
    }
}
