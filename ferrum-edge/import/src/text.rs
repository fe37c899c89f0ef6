//! Small readings that several formats share.

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::Value;

/// A duration as our configuration has it: `5s`, or `1500ms` where it is not whole.
pub(crate) fn duration(millis: u64) -> Value {
    if millis.is_multiple_of(1000) {
        format!("{}s", millis / 1000).into()
    } else {
        format!("{millis}ms").into()
    }
}

/// `1h30m`, `500ms`, `2d`, `60`: milliseconds; a plain number counts `unit` milliseconds each.
pub(crate) fn millis(text: &str, unit: u64) -> Option<u64> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (word, after) = after.split_at_checked(letters)?;
        let factor = match word {
            "us" => 0,
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "M" => 30 * 86_400_000,
            "y" => 365 * 86_400_000,
            "" => unit,
            _ => return None,
        };
        let part = match number.split_once('.') {
            None => number.parse::<u64>().ok()?.checked_mul(factor)?,
            Some(_) => {
                let value: f64 = number.parse().ok()?;
                let thousandths = (value * 1000.0).round();
                if !(0.0..1e12).contains(&thousandths) {
                    return None;
                }
                format!("{thousandths:.0}").parse::<u64>().ok()?.checked_mul(factor)? / 1000
            }
        };
        total = total.checked_add(part)?;
        rest = after.trim_start();
    }
    Some(total)
}

/// `10m`, `512k`, `1GiB`, `10MB`, `0`: bytes. Letters alone are powers of 1024, as are those with `i`; `KB`, `MB` and `GB`
/// are powers of `thousand`.
pub(crate) fn bytes(text: &str, thousand: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kib" | "ki" => 1 << 10,
        "m" | "mib" | "mi" => 1 << 20,
        "g" | "gib" | "gi" => 1 << 30,
        "kb" => thousand,
        "mb" => thousand.checked_pow(2)?,
        "gb" => thousand.checked_pow(3)?,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Milliseconds as whole seconds, at least one.
pub(crate) fn seconds(millis: u64) -> u64 {
    millis.div_ceil(1000).max(1)
}

/// A URL's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// From the first slash on; empty where there is none.
    pub(crate) path: String,
}

/// Scheme, host, port and path of a URL.
pub(crate) fn url(text: &str) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(at)?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = host_port(authority)?;
    if host.is_empty() {
        return None;
    }
    Some(Url { scheme: scheme.to_ascii_lowercase(), host, port, path: path.to_owned() })
}

/// `host`, `host:port`, `[::1]:port`, `::1`: the host without brackets, and the port. `None` when the port is none.
pub(crate) fn host_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let port = match after.strip_prefix(':') {
            None if after.is_empty() => None,
            None => return None,
            Some(port) => Some(port.parse().ok()?),
        };
        return Some((host.to_owned(), port));
    }
    match text.split_once(':') {
        None => Some((text.to_owned(), None)),
        // An IPv6 address without brackets.
        Some((_, rest)) if rest.contains(':') => Some((text.to_owned(), None)),
        Some((host, port)) => Some((host.to_owned(), Some(port.parse().ok()?))),
    }
}

/// A text as a regex that matches nothing else.
pub(crate) fn literal(text: &str) -> String {
    regex::escape(text)
}

/// Whether a regex is one here too: lookarounds and backreferences are not.
pub(crate) fn is_regex(text: &str) -> bool {
    if text.len() > 4000 {
        return false;
    }
    if plain_groups(text).is_some() {
        return true;
    }
    regex_syntax::parse(text).is_ok_and(|parsed| is_small(text, &parsed))
}

/// How many groups that can be named a short regex of the most usual kind has: plain text, digits, anchors, choices, repetitions and
/// groups. `None` for others, which have to be parsed.
fn plain_groups(regex: &str) -> Option<usize> {
    const SHORT: usize = 150;
    let start = regex.strip_prefix("(?i)").unwrap_or(regex);
    let mut rest = start.strip_prefix(".*?").unwrap_or(start).as_bytes();
    let (mut groups, mut depth, mut is_repeatable) = (0, 0_usize, false);
    if regex.len() > SHORT {
        return None;
    }
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let was_repeatable = std::mem::replace(&mut is_repeatable, false);
        match first {
            b'(' => {
                match rest.strip_prefix(b"?:") {
                    Some(behind) => rest = behind,
                    None if rest.first() == Some(&b'?') => return None,
                    None => groups += 1,
                }
                depth += 1;
            }
            b'?' | b'*' | b'+' if was_repeatable => {}
            b'^' | b'$' | b'|' => {}
            _ => {
                is_repeatable = true;
                match first {
                    b')' => depth = depth.checked_sub(1)?,
                    b'[' => rest = rest.strip_prefix(b"0-9]")?,
                    b'\\' => {
                        rest = rest.split_first().filter(|(next, _)| b".-/+*?()[]{}|^$".contains(next))?.1
                    }
                    b'.' | b'/' | b'-' | b'_' | b'%' | b'~' | b':' | b',' | b' ' => {}
                    letter if letter.is_ascii_alphanumeric() => {}
                    _ => return None,
                }
            }
        }
    }
    (depth == 0).then_some(groups)
}

/// Whether a regex, compiled, is small enough.
fn is_small(text: &str, parsed: &Hir) -> bool {
    weight(parsed) <= LIGHT || regex::RegexBuilder::new(text).size_limit(MAX_REGEX_BYTES).build().is_ok()
}

/// Bytes that a compiled regex may take.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// A weight whose regex takes less for sure, so that it is not compiled to find out.
const LIGHT: usize = 2000;

/// About how many states a regex is compiled to; no more than ten times as many.
fn weight(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) => 4 * class.ranges().len(),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len(),
        HirKind::Repetition(many) => {
            let times = many.max.unwrap_or(many.min).max(many.min).max(1);
            weight(&many.sub).saturating_add(2).saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
        }
        HirKind::Capture(group) => weight(&group.sub).saturating_add(2),
        HirKind::Concat(all) | HirKind::Alternation(all) => {
            all.iter().map(weight).fold(1, usize::saturating_add)
        }
    }
}

/// A regex that is looked for anywhere as one over the whole value.
pub(crate) fn anywhere(regex: &str) -> String {
    // With alternatives at the top, the anchors belong to one of them only.
    let has_choice = has_top_choice(regex);
    let (before, inner) = match regex.strip_prefix('^').filter(|_| !has_choice) {
        Some(rest) => ("", rest),
        // With groups, what they take begins at the first place that fits.
        None => (if regex.contains('(') { ".*?" } else { ".*" }, regex),
    };
    let ends = inner.ends_with('$') && !ends_escaped(inner) && !has_choice;
    let (inner, after) = if ends { (inner.strip_suffix('$').unwrap_or(inner), "") } else { (inner, ".*") };
    format!("{before}(?:{inner}){after}")
}

/// A text as a regex over the ways in which a query may spell it.
pub(crate) fn in_query(text: &str) -> String {
    let each = text.bytes().map(|byte| {
        let hex: String =
            format!("{byte:02x}")
                .chars()
                .map(|c| {
                    if c.is_ascii_digit() {
                        c.to_string()
                    } else {
                        format!("[{c}{}]", c.to_ascii_uppercase())
                    }
                })
                .collect();
        match byte {
            b' ' => r"(?:\+|%20)".to_owned(),
            byte if byte.is_ascii_graphic() && !b"&=+%;#".contains(&byte) => {
                format!("(?:{}|%{hex})", literal(char::from(byte).encode_utf8(&mut [0; 4])))
            }
            _ => format!("%{hex}"),
        }
    });
    each.collect()
}

/// What may be behind a host: a dot, and a port.
pub(crate) const HOST_END: &str = r"\.?(?::[0-9]+)?";

/// A regex over hosts as one over authorities, which may have a port.
pub(crate) fn host_regex(regex: &str) -> Option<String> {
    let inner = regex.strip_suffix('$').unwrap_or(regex);
    let made = if has_top_choice(regex) || with_ends(inner) != inner {
        format!("(?i){}", anywhere(&with_ends(regex)))
    } else {
        let whole = anywhere(regex);
        let end = if whole.ends_with(".*") { "" } else { HOST_END };
        format!("(?i){whole}{end}")
    };
    is_regex(&made).then_some(made)
}

/// A regex in which the end of the host is followed by what an authority has there.
fn with_ends(regex: &str) -> String {
    let end = format!("(?:{HOST_END}$)");
    let (mut made, mut in_class) = (String::new(), false);
    let mut chars = regex.chars();
    while let Some(c) = chars.next() {
        match (c, in_class) {
            ('\\', _) => match chars.next() {
                Some('z') if !in_class => made.push_str(&end),
                next => made.extend(std::iter::once('\\').chain(next)),
            },
            ('$', false) => made.push_str(&end),
            _ => {
                in_class = c == '[' || in_class && c != ']';
                made.push(c);
            }
        }
    }
    made
}

/// Whether what stands before the last character is an odd number of backslashes.
fn ends_escaped(text: &str) -> bool {
    let before = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
    before.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// Whether a regex has alternatives that are in no group.
pub(crate) fn has_top_choice(regex: &str) -> bool {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for c in regex.chars() {
        if escaped {
            escaped = false;
            continue;
        }
        match c {
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            '|' if !in_class && depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Whether a regex has groups that can be named.
pub(crate) fn has_groups(regex: &str) -> bool {
    if let Some(groups) = plain_groups(regex) {
        return groups > 0;
    }
    let has = |parsed: &Hir| parsed.properties().explicit_captures_len() > 0;
    regex_syntax::parse(regex).is_ok_and(|parsed| has(&parsed) && is_small(regex, &parsed))
}

/// The names of a regex's groups, of which the regex may be only a part.
pub(crate) fn named_groups(regex: &str) -> Vec<String> {
    let starts = regex.split("(?").skip(1);
    let named = starts.filter_map(|rest| rest.trim_start_matches('P').strip_prefix('<')?.split_once('>'));
    let is_name =
        |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    named.map(|(name, _)| name).filter(is_name).map(str::to_owned).collect()
}

/// Whether a text is an address or a CIDR block.
pub(crate) fn is_network(text: &str) -> bool {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.is_none_or(|bits| bits.parse::<u8>().is_ok_and(|bits| bits <= most))
}

/// Standard base64.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let mut made = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for c in text.bytes().filter(|c| *c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            made.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        for (text, expected) in [
            ("60s", Some(60_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5s", Some(1500)),
            ("250ms", Some(250)),
            ("1d", Some(86_400_000)),
            ("7", Some(7000)),
            ("", None),
            ("x", None),
            ("9999999999999999999", None),
        ] {
            assert_eq!(millis(text, 1000), expected, "{text}");
        }
        for (text, expected) in [
            ("10m", Some(10 << 20)),
            ("1KB", Some(1000)),
            ("2MiB", Some(2 << 20)),
            ("5 q", None),
            ("0", Some(0)),
        ] {
            assert_eq!(bytes(text, 1000), expected, "{text}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(host_port("a:80"), Some(("a".to_owned(), Some(80))));
        assert_eq!(host_port("[::1]:80"), Some(("::1".to_owned(), Some(80))));
        assert_eq!(host_port("::1"), Some(("::1".to_owned(), None)));
        assert_eq!(host_port("a:x"), None);
        assert_eq!(
            url("http://u:p@a:1/x?y").map(|url| (url.host, url.port, url.path)),
            Some(("a".into(), Some(1), "/x?y".into()))
        );
        assert_eq!(url("http:///x"), None);
        assert!(
            is_network("10.0.0.0/8") && is_network("::1") && !is_network("10.0.0.0/40") && !is_network("all")
        );
    }

    #[test]
    fn spellings_of_a_query() {
        let regex = regex::Regex::new(&format!("^{}$", in_query("a b+\u{e9}/"))).expect("is a regex");
        for text in ["a+b%2B%c3%A9/", "%61%20b%2b%C3%A9%2F"] {
            assert!(regex.is_match(text), "{text}");
        }
        assert!(!regex.is_match("a b+\u{e9}/"));
    }

    /// What is known without parsing is what the parser says.
    #[test]
    fn plain_regexes() {
        let pieces = [
            "(", "(?:", ")", ".*", ".+", ".", "^", "$", "/a-b", "\\.", "%2F", "(?i)", "*", "|", "?", ")?",
            "x ",
        ];
        let mut known = 0;
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let text: String = (0..random.usize(..9)).map(|_| pieces[random.usize(..pieces.len())]).collect();
            let Some(groups) = plain_groups(&text) else { continue };
            let parsed = regex_syntax::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(parsed.properties().explicit_captures_len(), groups, "{text}");
            assert!(is_small(&text, &parsed), "{text}");
            known += 1;
        }
        assert!(known > 1000);
        let long = format!("(?i){}", "a".repeat(146));
        assert!(plain_groups(&long).is_some() && weight(&regex_syntax::parse(&long).unwrap()) <= LIGHT);
    }

    #[test]
    fn regexes_over_the_whole_value() {
        for (regex, expected) in [
            ("^/a$", "(?:/a)"),
            ("a", ".*(?:a).*"),
            (r"\.php$", r".*(?:\.php)"),
            (r"a\$", r".*(?:a\$).*"),
            ("^a|b$", ".*(?:^a|b$).*"),
            ("^(a|b)$", "(?:(a|b))"),
            ("/r/(.*)", ".*?(?:/r/(.*)).*"),
        ] {
            assert_eq!(anywhere(regex), expected, "{regex}");
        }
        assert!(is_regex("a+") && !is_regex("(?=a)") && !is_regex(r"(a)\1"));
    }
}
