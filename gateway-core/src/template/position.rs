//! What may stand where, in a text that is made of values.

use super::TextContext;

/// What a value was part of in the request, which says what of it is encoded already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// Any text, not encoded.
    Plain,
    /// Part of a path, percent-encoded.
    Path,
    /// A whole query, without its `?`.
    Query,
    /// A path with its query.
    Target,
    /// A host, with or without a port, that was checked when the request came.
    Authority,
}

/// Where the next value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// At the beginning of a URL: a colon here would end its scheme.
    Start,
    /// In the authority of a URL.
    Authority,
    /// In a path.
    Path,
    /// At the beginning of a parameter.
    Parameter,
    /// In a parameter of a query, or in a fragment.
    Value,
    /// In a host.
    Host,
    /// In a cookie.
    Cookie,
}

impl Position {
    /// The position behind `before` in a text of this kind.
    pub(super) fn of(place: TextContext, before: &[u8]) -> Self {
        match place {
            TextContext::Path => Self::behind(before).unwrap_or(Self::Path),
            TextContext::Url => Self::of_url(before),
            TextContext::Host => Self::Host,
            TextContext::Cookie => Self::Cookie,
            TextContext::Query | TextContext::Text | TextContext::Log => Self::Value,
        }
    }

    /// The position of a value that may begin the path itself.
    pub(super) fn of_value(self, value: &[u8], kind: ValueKind) -> Self {
        let is_path = value.starts_with(b"/");
        match self {
            Self::Start if is_path => Self::Path,
            Self::Authority if is_path && matches!(kind, ValueKind::Path | ValueKind::Target) => Self::Path,
            position => position,
        }
    }

    fn of_url(before: &[u8]) -> Self {
        if let Some(position) = Self::behind(before) {
            return position;
        }
        let rest = memchr::memmem::find(before, b"//").map(|at| (at, &before[at + 2..]));
        match rest {
            Some((at, rest)) if at == 0 || before[at - 1] == b':' => {
                if rest.contains(&b'/') {
                    Self::Path
                } else {
                    Self::Authority
                }
            }
            _ if before.contains(&b'/') => Self::Path,
            _ => Self::Start,
        }
    }

    /// The position, where a query or fragment has begun.
    fn behind(before: &[u8]) -> Option<Self> {
        if before.contains(&b'#') {
            return Some(Self::Value);
        }
        before.contains(&b'?').then(|| match before.last() {
            Some(b'?' | b'&') => Self::Parameter,
            _ => Self::Value,
        })
    }
}

/// Whether a byte of a value may stand as it is (RFC 3986 §3.2 to §3.5, RFC 6265 §4.1.1).
pub(super) fn stays(byte: u8, position: Position, kind: ValueKind) -> bool {
    let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if is_unreserved {
        return true;
    }
    match position {
        Position::Host | Position::Authority => {
            kind == ValueKind::Authority && b":[]".contains(&byte)
                || position == Position::Host && byte == b':'
        }
        Position::Start => byte != b':' && stays_in_path(byte, kind),
        Position::Path => stays_in_path(byte, kind),
        Position::Parameter if kind == ValueKind::Query => b"/:@!$'()*,;%&=+?".contains(&byte),
        Position::Parameter | Position::Value => {
            b"/:@!$'()*,".contains(&byte) || byte == b'%' && kind == ValueKind::Path
        }
        Position::Cookie => byte.is_ascii_graphic() && !b"\",;\\%".contains(&byte),
    }
}

fn stays_in_path(byte: u8, kind: ValueKind) -> bool {
    match byte {
        b'%' => matches!(kind, ValueKind::Path | ValueKind::Query | ValueKind::Target),
        b'?' => kind == ValueKind::Target,
        b'[' | b']' => kind == ValueKind::Authority,
        _ => b"/:@!$'()*,;&=+".contains(&byte),
    }
}
