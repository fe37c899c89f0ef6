//! Paths with their empty, `.` and `..` segments resolved.

pub(super) fn normalize(input: &[u8], out: &mut Vec<u8>) {
    resolve(input, out);
}

pub(super) fn normalize_windows(input: &[u8], out: &mut Vec<u8>) {
    let slashes: Vec<u8> = input.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
    resolve(&slashes, out);
}

fn resolve(input: &[u8], out: &mut Vec<u8>) {
    let absolute = input.first() == Some(&b'/');
    // What a relative path goes up beyond its beginning stays in it.
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut ends_open = false;
    let mut segments = input.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"" => ends_open |= is_last,
            b"." => ends_open |= is_last,
            b".." => {
                match kept.last() {
                    Some(last) if *last != b".." => drop(kept.pop()),
                    _ if absolute => {}
                    _ => kept.push(segment),
                }
                ends_open |= is_last;
            }
            _ => kept.push(segment),
        }
    }
    if absolute {
        out.push(b'/');
    }
    for (n, segment) in kept.iter().enumerate() {
        if n > 0 {
            out.push(b'/');
        }
        out.extend_from_slice(segment);
    }
    if ends_open && !kept.is_empty() {
        out.push(b'/');
    }
}
