//! Comments of SQL, C, shells and HTML.

/// Takes out `/*…*/`, `<!--…-->` and whatever follows `--` or `#`.
pub(super) fn remove(input: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = input.get(at) {
        let rest = input.get(at..).unwrap_or_default();
        if rest.starts_with(b"/*") {
            at += 2 + until(input, at + 2, b"*/");
        } else if rest.starts_with(b"<!--") {
            at += 4 + until(input, at + 4, b"-->");
        } else if rest.starts_with(b"--") || rest.starts_with(b"#") {
            return;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
}

/// Puts one space in the place of each `/*…*/`, also of one that is never closed.
pub(super) fn replace(input: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = input.get(at) {
        if *byte == b'/' && input.get(at + 1) == Some(&b'*') {
            out.push(b' ');
            at += 2 + until(input, at + 2, b"*/");
        } else {
            out.push(*byte);
            at += 1;
        }
    }
}

/// Takes out the marks of comments, and leaves what is in them.
pub(super) fn remove_chars(input: &[u8], out: &mut Vec<u8>) {
    const MARKS: [&[u8]; 6] = [b"/*", b"*/", b"<!--", b"-->", b"--", b"#"];
    let mut at = 0;
    while let Some(byte) = input.get(at) {
        let rest = input.get(at..).unwrap_or_default();
        match MARKS.iter().find(|mark| rest.starts_with(mark)) {
            Some(mark) => at += mark.len(),
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
}

/// How many bytes there are to the end of `mark`, or of the input where there is none.
fn until(input: &[u8], from: usize, mark: &[u8]) -> usize {
    let rest = input.get(from..).unwrap_or_default();
    memchr::memmem::find(rest, mark).map_or(rest.len(), |at| at + mark.len())
}
