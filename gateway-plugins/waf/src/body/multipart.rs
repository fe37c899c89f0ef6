//! `multipart/form-data` (RFC 7578), read strictly: what two readers could split at different places is refused.

use super::{ItemKind, Sink, TOO_MANY, Unreadable};

/// Lines of one part's head.
const MAX_LINES: usize = 32;
/// Bytes of one of them. PHP reads a line in pieces of 5 KiB, and takes each for a line of its own.
const MAX_LINE: usize = 4096;

const NO_BOUNDARY: Unreadable = Unreadable("the multipart body has no usable boundary");
const NO_END: Unreadable = Unreadable("the multipart body has no end");
const BEFORE: Unreadable = Unreadable("there is data before the first part");
const AFTER: Unreadable = Unreadable("there is data behind the last part");
const HEAD: Unreadable = Unreadable("the head of a part is malformed");
const LINE: Unreadable = Unreadable("a line of a part's head does not end in CRLF");
const BARE: Unreadable = Unreadable("a boundary comes after a bare line feed or carriage return");
const CODING: Unreadable = Unreadable("a part has a content transfer encoding");
const PARTS: Unreadable = Unreadable("there are too many parts");

/// The boundary that a content type names.
pub(crate) fn boundary(content_type: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let mut found = None;
    if !names_it_once(content_type) {
        return Err(NO_BOUNDARY);
    }
    for (name, value) in parameters(content_type).ok_or(NO_BOUNDARY)? {
        // `boundary*` and `boundary*0` are other ways to write it (RFC 2231).
        if name.starts_with(b"boundary*") {
            return Err(NO_BOUNDARY);
        }
        if name == b"boundary" && found.replace(value).is_some() {
            return Err(NO_BOUNDARY);
        }
    }
    let found = found.ok_or(NO_BOUNDARY)?;
    // RFC 2046 §5.1.1.
    let is_valid = (1..=70).contains(&found.len())
        && found.iter().all(|byte| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte))
        && found.last() != Some(&b' ');
    is_valid.then_some(found).ok_or(NO_BOUNDARY)
}

/// Whether a reader that looks for the word `boundary` anywhere finds the parameter, and the same end of its value as others.
fn names_it_once(content_type: &[u8]) -> bool {
    const WORD: &[u8] = b"boundary";
    let lower = content_type.to_ascii_lowercase();
    let Some(at) = memchr::memmem::find(&lower, WORD) else { return false };
    let is_name = lower[..at].trim_ascii_end().ends_with(b";");
    let is_exact = content_type[at..].starts_with(WORD);
    let rest = &lower[at + WORD.len()..];
    if !is_name || (!is_exact && memchr::memmem::find(rest, WORD).is_some()) {
        return false;
    }
    // Some readers end an unquoted value at a comma, too.
    let value = rest.split(|byte| *byte == b';').next().unwrap_or_default();
    value.starts_with(b"=\"") || !value.iter().any(|byte| b",() ".contains(byte))
}

/// The parameters behind the first `;`, names in lower case. What some readers take for something else is refused: blanks
/// around `=`, words that are no tokens, and single quotes, which are quotes to PHP.
fn parameters(text: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let end = memchr::memchr(b';', text).unwrap_or(text.len());
    if !text[..end].trim_ascii().iter().all(|byte| is_token(*byte) || *byte == b'/') {
        return None;
    }
    let mut rest = text.get(end + 1..).unwrap_or_default();
    let mut found = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(found);
        }
        let at = memchr::memchr(b'=', rest)?;
        let name = rest[..at].to_ascii_lowercase();
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return None;
        }
        let is_extended = name.ends_with(b"*");
        let (value, behind) = value(&rest[at + 1..], is_extended)?;
        found.push((name, value));
        rest = behind.trim_ascii_start();
        match rest.split_first() {
            None => return Some(found),
            Some((b';', behind)) => rest = behind,
            Some(_) => return None,
        }
    }
}

/// RFC 9110 §5.6.2, without the single quote.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&*+-.^_`|~".contains(&byte)
}

/// A parameter's value, quoted or not, and what is behind it.
fn value(text: &[u8], is_extended: bool) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        let value = text[..end].trim_ascii_end();
        let quotes = value.iter().filter(|byte| **byte == b'\'').count();
        let is_plain = !value.iter().any(|byte| byte.is_ascii_whitespace() || b"\"\\".contains(byte))
            && (quotes == 0 || (is_extended && quotes == 2));
        return is_plain.then(|| (value.to_vec(), &text[end..]));
    };
    let mut out = Vec::new();
    let mut rest = quoted.iter().enumerate();
    while let Some((n, byte)) = rest.next() {
        match byte {
            b'"' => return Some((out, &quoted[n + 1..])),
            // To some, the first backslash escapes the second, and the quote is the end; to others it is escaped.
            b'\\' if quoted[n + 1..].starts_with(b"\\\"") => return None,
            // Browsers escape nothing but the quote, and some clients write Windows paths.
            b'\\' if quoted.get(n + 1) == Some(&b'"') => out.push(*rest.next()?.1),
            byte => out.push(*byte),
        }
    }
    None
}

/// Reads a body with this boundary, of at most so many parts. Files' contents are not looked at.
pub(crate) fn read(
    text: &[u8],
    boundary: &[u8],
    parts: usize,
    sink: &mut dyn Sink,
) -> Result<(), Unreadable> {
    let mark = [b"\r\n--", boundary].concat();
    let mut rest = text.strip_prefix(&mark[2..]).ok_or(BEFORE)?;
    let finder = memchr::memmem::Finder::new(&mark);
    for _ in 0..parts {
        if let Some(end) = rest.strip_prefix(b"--") {
            return if end.iter().all(u8::is_ascii_whitespace) { Ok(()) } else { Err(AFTER) };
        }
        rest = rest.strip_prefix(b"\r\n").ok_or(NO_BOUNDARY)?;
        let length = finder.find(rest).ok_or(NO_END)?;
        // Lenient readers would begin a part here; the empty rest of a line belongs to the mark before.
        if has_bare_boundary(&rest[..length], &mark[2..]) {
            return Err(BARE);
        }
        part(&rest[..length], sink)?;
        rest = &rest[length + mark.len()..];
    }
    if rest.starts_with(b"--") { Ok(()) } else { Err(PARTS) }
}

fn part(text: &[u8], sink: &mut dyn Sink) -> Result<(), Unreadable> {
    let (head, content) = match text.strip_prefix(b"\r\n") {
        Some(content) => (&b""[..], content),
        None => {
            let end = memchr::memmem::find(text, b"\r\n\r\n").ok_or(HEAD)?;
            (&text[..end], &text[end + 4..])
        }
    };
    let mut lines: Vec<&[u8]> = Vec::new();
    for line in head.split(|byte| *byte == b'\n').filter(|_| !head.is_empty()) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Continued lines are obsolete, and read in two ways. A reader in C ends a line at a zero byte.
        if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
            || line.first().is_none_or(u8::is_ascii_whitespace)
            || line.len() > MAX_LINE
            || lines.len() >= MAX_LINES
        {
            return Err(HEAD);
        }
        lines.push(line);
    }
    let endings = memchr::memchr_iter(b'\n', head).count();
    if memchr::memmem::find_iter(head, b"\r\n").count() != endings {
        return Err(LINE);
    }
    let disposition = disposition(&lines)?;
    let name = disposition.name.unwrap_or_default();
    let mut taken = lines.iter().all(|line| sink.take(ItemKind::PartHeader, &name, line));
    for file in &disposition.files {
        taken = taken && sink.take(ItemKind::File, &name, file);
    }
    // Some readers take a part whose file has no name for an ordinary field, and PHP one with `filename*` alone.
    if !disposition.has_filename || disposition.files.iter().any(Vec::is_empty) {
        taken = taken && sink.take(ItemKind::Argument, &name, content);
    } else {
        sink.file_size(content.len());
    }
    taken.then_some(()).ok_or(TOO_MANY)
}

/// Whether a boundary stands behind a line end that is not CRLF.
fn has_bare_boundary(text: &[u8], boundary: &[u8]) -> bool {
    memchr::memmem::find_iter(text, boundary)
        .any(|at| at.checked_sub(1).is_some_and(|before| matches!(text[before], b'\n' | b'\r')))
}

/// What a part is called.
#[derive(Default)]
struct Disposition {
    name: Option<Vec<u8>>,
    /// `filename`, and `filename*` decoded.
    files: Vec<Vec<u8>>,
    /// Whether there is a plain `filename`.
    has_filename: bool,
}

fn disposition(lines: &[&[u8]]) -> Result<Disposition, Unreadable> {
    let mut found = Disposition::default();
    let (mut seen, mut extended) = (false, false);
    for line in lines {
        let colon = memchr::memchr(b':', line).ok_or(HEAD)?;
        let (field, text) = (&line[..colon], line[colon + 1..].trim_ascii());
        if field.is_empty() || !field.iter().all(|byte| is_token(*byte)) {
            return Err(HEAD);
        }
        // RFC 7578 §4.7: nobody sends these, but Go's reader decodes them.
        let codings = [&b"7bit"[..], b"8bit", b"binary"];
        if field.eq_ignore_ascii_case(b"content-transfer-encoding")
            && !codings.iter().any(|known| text.eq_ignore_ascii_case(known))
        {
            return Err(CODING);
        }
        if !field.eq_ignore_ascii_case(b"content-disposition") {
            continue;
        }
        if std::mem::replace(&mut seen, true) {
            return Err(HEAD);
        }
        for (parameter, value) in parameters(text).ok_or(HEAD)? {
            let again = match parameter.as_slice() {
                b"name" => found.name.replace(value).is_some(),
                b"filename" => {
                    found.files.push(value);
                    std::mem::replace(&mut found.has_filename, true)
                }
                b"filename*" => {
                    found.files.push(extended_value(&value).ok_or(HEAD)?);
                    std::mem::replace(&mut extended, true)
                }
                // Names in pieces or with a character set (RFC 2231), which some readers know and others do not.
                other => other.starts_with(b"name*") || other.starts_with(b"filename*"),
            };
            if again {
                return Err(HEAD);
            }
        }
    }
    Ok(found)
}

/// `UTF-8''a%20b`, decoded (RFC 8187).
fn extended_value(value: &[u8]) -> Option<Vec<u8>> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _language, text) = (parts.next()?, parts.next()?, parts.next()?);
    if ![&b"utf-8"[..], b"iso-8859-1"].iter().any(|known| charset.eq_ignore_ascii_case(known)) {
        return None;
    }
    let mut out = Vec::new();
    crate::transform::Transform::UrlDecode.apply_path(text, &mut out);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Collected;

    fn found(text: &str) -> Result<Vec<String>, Unreadable> {
        let mut found = Collected::default();
        read(text.replace('\n', "\r\n").as_bytes(), b"B", 10, &mut found)?;
        Ok(found.0.into_iter().map(|(kind, name, value)| format!("{kind:?} {name}={value}")).collect())
    }

    #[test]
    fn parts_are_found() {
        let text = "--B\nContent-Disposition: form-data; name=\"a\"\n\n1\n2\n--B\n\
                    Content-Disposition: form-data; name=b; filename=\"x\\\".php\"\nContent-Type: text/plain\n\nzz\n--B--\n";
        assert_eq!(
            found(text).unwrap(),
            [
                "PartHeader a=Content-Disposition: form-data; name=\"a\"",
                "Argument a=1\r\n2",
                "PartHeader b=Content-Disposition: form-data; name=b; filename=\"x\\\".php\"",
                "PartHeader b=Content-Type: text/plain",
                "File b=x\".php"
            ]
        );
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let head = "Content-Disposition: form-data; name=\"a\"";
        for (text, why) in [
            (format!("x\n--B\n{head}\n\n1\n--B--"), BEFORE),
            (format!("--B\n{head}\n\n1\n--B"), NO_BOUNDARY),
            (format!("--B\n{head}\n\n1"), NO_END),
            (format!("--B\n{head}\n\n1\n--B--\nx"), AFTER),
            (format!("--B\n{head}; name=\"b\"\n\n1\n--B--"), HEAD),
            ("--B\nContent-Disposition: form-data;\n name=\"a\"\n\n1\n--B--".to_owned(), HEAD),
            ("--B\nContent-Disposition: form-data; name=\"a\n\n1\n--B--".to_owned(), HEAD),
            ("--B\nno colon\n\n1\n--B--".to_owned(), HEAD),
            (format!("--B\n{head}\n\n1\n--B-- x"), AFTER),
            (format!("--B\n{head}\n{head}\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; filename=\"a.php\"; filename=\"a.txt\"\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; filename*0=\"a.p\"; filename*1=hp\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; filename*=utf-7''a\n\n1\n--B--"), HEAD),
            ("--B\nContent-Disposition: form-data; name*=utf-8''a\n\n1\n--B--".to_owned(), HEAD),
            // PHP does not know `filename ` and takes single quotes for quotes; C ends a text at a zero byte.
            (format!("--B\n{head}; filename =\"a\"\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; filename= a\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; a='; filename=x; b='\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; a\0; filename=x\n\n1\n--B--"), HEAD),
            ("--B\nContent-Disposition: form-data; name=a\0; filename=x\n\n1\n--B--".to_owned(), HEAD),
            ("--B\nContent-Disposition: a\"; filename=x; b=\"; name=a\n\n1\n--B--".to_owned(), HEAD),
            ("--B\nContent-Disposition : form-data; name=a; filename=x\n\n1\n--B--".to_owned(), HEAD),
            (format!("--B\n{head}; b; filename=x\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; b=\"\\\\\"; filename=x\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; filename*=utf-8''a'b; c=d'\n\n1\n--B--"), HEAD),
            (format!("--B\n{head}; b=\"{}\"; filename=x\n\n1\n--B--", "c".repeat(MAX_LINE)), HEAD),
            (format!("--B\n{head}\nContent-Transfer-Encoding: quoted-printable\n\n1\n--B--"), CODING),
            ("--Bx\n".to_owned(), NO_BOUNDARY),
            (format!("{}--B--", format!("--B\n{head}\n\n1\n").repeat(11)), PARTS),
        ] {
            assert_eq!(found(&text), Err(why), "{text}");
        }
    }

    /// A reader that splits at `\n--B` would find fields in what looks like a file.
    #[test]
    fn boundaries_after_bare_line_ends_are_refused() {
        let head = "Content-Disposition: form-data; name=\"f\"; filename=\"a.bin\"";
        for end in ["\n", "\r"] {
            let text = format!("--B\r\n{head}\r\n\r\nx{end}--B\r\nhidden\r\n--B--");
            let read = read(text.as_bytes(), b"B", 10, &mut Collected::default());
            assert_eq!(read, Err(BARE), "{end:?}");
        }
        assert!(found(&format!("--B\n{head}\n\nx --B y\n--B--")).is_ok());
    }

    #[test]
    fn every_name_of_a_file_is_seen() {
        let text = "--B\nContent-Disposition: form-data; name=f; filename=\"a.txt\"; FileName*=UTF-8''a%2Ephp\n\nz\n--B--";
        assert_eq!(found(text).unwrap()[1..], ["File f=a.txt", "File f=a.php"]);
        // PHP reads the first as an ordinary field, Go the others.
        let text = "--B\nContent-Disposition: form-data; name=f; filename*=UTF-8''a.txt\n\nz\n--B--";
        assert_eq!(found(text).unwrap()[1..], ["File f=a.txt", "Argument f=z"]);
        let text =
            "--B\nContent-Disposition: form-data; name=f; filename=\"a\"; filename*=UTF-8''\n\nz\n--B--";
        assert_eq!(found(text).unwrap()[1..], ["File f=a", "File f=", "Argument f=z"]);
        let text = "--B\nContent-Disposition: form-data; name=f; filename=\"\"\n\nz\n--B--";
        assert_eq!(found(text).unwrap()[1..], ["File f=", "Argument f=z"]);
    }

    #[test]
    fn boundaries() {
        assert_eq!(boundary(b"multipart/form-data; boundary=\"a b\"; x=y"), Ok(b"a b".to_vec()));
        assert_eq!(boundary(b"multipart/form-data;boundary=--boundary1; x=y"), Ok(b"--boundary1".to_vec()));
        assert_eq!(boundary(b"Multipart/Form-Data; Boundary=a:b=/?c"), Ok(b"a:b=/?c".to_vec()));
        for text in [
            &b"multipart/form-data"[..],
            b"multipart/form-data; boundary=",
            b"multipart/form-data; boundary=a; boundary=b",
            b"multipart/form-data; boundary=\"a",
            b"multipart/form-data; boundary=a; boundary*0=b",
            b"multipart/form-data; boundary=a\"b",
            b"multipart/form-data; boundary=a\x00b",
            // Readers that look for the word find another value, or another end of it.
            b"multipart/form-data; xboundary=a; boundary=b",
            b"multipart/form-data; x=\"boundary=a\"; boundary=b",
            b"multipart/form-data; Boundary=b; x=\"boundary=a\"",
            b"multipart/form-data; boundary=a,b",
            b"multipart/form-data; boundary =a",
            b"multipart/form-data; x='; boundary=a; y='",
        ] {
            assert_eq!(boundary(text), Err(NO_BOUNDARY), "{}", String::from_utf8_lossy(text));
        }
    }
}
