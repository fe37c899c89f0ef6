//! XML to texts and attribute values. Only well-formed nesting is checked; documents with a document type are refused.

use super::{ItemKind, Sink, TOO_MANY, Unreadable};

const SYNTAX: Unreadable = Unreadable("the body is not well-formed XML");
const DEEP: Unreadable = Unreadable("the XML is nested too deeply");
const ENCODING: Unreadable = Unreadable("the XML names an encoding that hides what it says");
const DOCTYPE: Unreadable = Unreadable("XML with a document type is not read");

/// Reads one document.
pub(crate) fn read(text: &[u8], depth: usize, sink: &mut dyn Sink) -> Result<(), Unreadable> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut open: Vec<&[u8]> = Vec::new();
    let mut run = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let plain = memchr::memchr(b'<', rest).unwrap_or(rest.len());
        if plain > 0 {
            let piece = &rest[..plain];
            if open.is_empty() && piece.iter().any(|byte| !byte.is_ascii_whitespace()) {
                return Err(SYNTAX);
            }
            unescape(piece, &mut run);
            at += plain;
            continue;
        }
        if let Some(inner) = rest.strip_prefix(b"<!--") {
            // What is before and behind a comment is one text.
            at += 4 + end(inner, b"-->")?;
        } else if let Some(inner) = rest.strip_prefix(b"<![CDATA[") {
            let length = end(inner, b"]]>")?;
            run.extend_from_slice(&inner[..length - 3]);
            at += 9 + length;
        } else if rest.starts_with(b"<!") {
            return Err(DOCTYPE);
        } else if let Some(inner) = rest.strip_prefix(b"<?") {
            let length = end(inner, b"?>")?;
            encoding(&inner[..length - 2])?;
            at += 2 + length;
        } else {
            flush(&mut run, open.last().copied().unwrap_or_default(), sink)?;
            let length = tag_end(rest)?;
            tag(&rest[1..length - 1], &mut open, sink)?;
            if open.len() > depth {
                return Err(DEEP);
            }
            at += length;
        }
    }
    flush(&mut run, b"", sink)?;
    if open.is_empty() && !text.is_empty() { Ok(()) } else { Err(SYNTAX) }
}

/// Refuses a declaration whose encoding writes ASCII in another way, such as UTF-7.
fn encoding(inner: &[u8]) -> Result<(), Unreadable> {
    let inner = match inner.strip_prefix(b"xml") {
        Some(rest) if rest.first().is_some_and(u8::is_ascii_whitespace) => rest.to_ascii_lowercase(),
        _ => return Ok(()),
    };
    for at in memchr::memmem::find_iter(&inner, b"encoding") {
        let name = inner[at + 8..].trim_ascii_start();
        let name = name.strip_prefix(b"=").unwrap_or(name).trim_ascii_start();
        let name = name.strip_prefix(b"\"").or_else(|| name.strip_prefix(b"'")).unwrap_or(name);
        let length = name.iter().position(|byte| matches!(byte, b'"' | b'\'')).unwrap_or(name.len());
        if !keeps_ascii(&name[..length]) {
            return Err(ENCODING);
        }
    }
    Ok(())
}

/// Whether the encoding of this name, in lower case, writes ASCII as ASCII.
fn keeps_ascii(name: &[u8]) -> bool {
    matches!(name, b"utf-8" | b"utf8" | b"us-ascii" | b"ascii" | b"latin1")
        || name.starts_with(b"iso-8859-")
        || name.starts_with(b"windows-125")
}

/// How long it is up to the end of `mark`.
fn end(text: &[u8], mark: &[u8]) -> Result<usize, Unreadable> {
    memchr::memmem::find(text, mark).map(|at| at + mark.len()).ok_or(SYNTAX)
}

/// How long a tag is; `>` in quotes is not its end.
fn tag_end(text: &[u8]) -> Result<usize, Unreadable> {
    let mut quote = None;
    for (n, byte) in text.iter().enumerate().skip(1) {
        match (quote, byte) {
            (None, b'>') => return Ok(n + 1),
            (None, b'<') => return Err(SYNTAX),
            (None, b'"' | b'\'') => quote = Some(*byte),
            (Some(open), byte) if open == *byte => quote = None,
            _ => {}
        }
    }
    Err(SYNTAX)
}

fn flush(run: &mut Vec<u8>, name: &[u8], sink: &mut dyn Sink) -> Result<(), Unreadable> {
    let taken = run.iter().all(u8::is_ascii_whitespace) || sink.take(ItemKind::Text, name, run);
    run.clear();
    taken.then_some(()).ok_or(TOO_MANY)
}

/// What stands between `<` and `>`.
fn tag<'t>(inner: &'t [u8], open: &mut Vec<&'t [u8]>, sink: &mut dyn Sink) -> Result<(), Unreadable> {
    if let Some(name) = inner.strip_prefix(b"/") {
        return if open.pop() == Some(name.trim_ascii()) { Ok(()) } else { Err(SYNTAX) };
    }
    let (inner, is_empty) = inner.strip_suffix(b"/").map_or((inner, false), |inner| (inner, true));
    let length = inner.iter().position(u8::is_ascii_whitespace).unwrap_or(inner.len());
    let (name, mut rest) = inner.split_at(length);
    if name.is_empty() {
        return Err(SYNTAX);
    }
    let mut value = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        let at = memchr::memchr(b'=', rest).ok_or(SYNTAX)?;
        let attribute = rest[..at].trim_ascii_end();
        let behind = rest[at + 1..].trim_ascii_start();
        let (quote, behind) = behind.split_first().ok_or(SYNTAX)?;
        if !matches!(quote, b'"' | b'\'') || attribute.is_empty() {
            return Err(SYNTAX);
        }
        let length = memchr::memchr(*quote, behind).ok_or(SYNTAX)?;
        value.clear();
        unescape(&behind[..length], &mut value);
        if !sink.take(ItemKind::Attribute, attribute, &value) {
            return Err(TOO_MANY);
        }
        rest = &behind[length + 1..];
    }
    if !is_empty {
        open.push(name);
    }
    Ok(())
}

/// Writes text with its character references decoded; others stay as they are.
fn unescape(text: &[u8], out: &mut Vec<u8>) {
    crate::transform::Transform::HtmlEntityDecode.apply(text, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Collected;

    fn found(text: &str) -> Result<Vec<(ItemKind, String, String)>, Unreadable> {
        let mut found = Collected::default();
        read(text.as_bytes(), 8, &mut found)?;
        Ok(found.0)
    }

    #[test]
    fn texts_and_attributes_are_found() {
        let text =
            "<?xml version='1.0'?><a x='1 &lt; 2'>un<!-- c -->ion<b y=\"&#x41;\"/><c><![CDATA[<s>]]></c></a>";
        let got: Vec<String> = found(text)
            .unwrap()
            .iter()
            .map(|(kind, name, value)| format!("{kind:?} {name}={value}"))
            .collect();
        assert_eq!(got, ["Attribute x=1 < 2", "Text a=union", "Attribute y=A", "Text c=<s>"]);
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        for text in [
            "",
            "<a>",
            "<a></b>",
            "</a>",
            "<a",
            "text",
            "<a>x</a>y",
            "<a>x</a>\u{feff}",
            "<a b></a>",
            "<a b=c></a>",
            "<a b='></a>",
            "<>",
        ] {
            assert_eq!(found(text), Err(SYNTAX), "{text}");
        }
        for name in ["UTF-7", "utf-16", "ibm037", "iso-2022-jp", "hz-gb-2312"] {
            assert_eq!(
                found(&format!("<?xml version='1.0' encoding='{name}'?><a/>")),
                Err(ENCODING),
                "{name}"
            );
        }
        assert_eq!(found("\u{feff}<a/>"), Ok(Vec::new()));
        assert_eq!(found("<?xml version=\"1.0\" encoding = \"ISO-8859-1\" ?><a/>"), Ok(Vec::new()));
        assert_eq!(found("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"), Err(DOCTYPE));
        assert_eq!(found(&"<a>".repeat(10)), Err(DEEP));
        assert_eq!(found(&"<a ".repeat(30_000)), Err(SYNTAX));
        assert_eq!(found(&format!("<a>{}</a>", "<b>x</b>".repeat(2000))), Err(TOO_MANY));
    }
}
