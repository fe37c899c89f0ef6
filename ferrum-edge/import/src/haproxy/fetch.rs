//! Sample fetches with their converters, as HAProxy writes them.

/// Splits at commas that are in no parentheses.
pub(super) fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_u32);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (c, depth, parts.last_mut()) {
            (',', 0, _) => parts.push(String::new()),
            (c, _, Some(part)) => part.push(c),
            _ => {}
        }
    }
    parts
}

/// A fetch's name cut before its way of comparing.
pub(super) fn ending(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('_')
        .filter(|(_, suffix)| matches!(*suffix, "beg" | "end" | "sub" | "reg" | "dir" | "dom" | "len"))
}

/// Whether a converter cuts the port off a host.
pub(super) fn cuts_port(converter: &str) -> bool {
    matches!(converter, "field(1,:)" | "word(1,:)" | "host_only")
}
