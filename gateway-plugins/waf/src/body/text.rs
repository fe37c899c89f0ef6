//! Bodies whose kind is not known, and messages: JSON by its leaves where it is JSON, else one argument.

use super::{ItemKind, Sink, TOO_MANY, Unreadable, json};

/// The name of a text that is taken as a whole.
const NAME: &[u8] = b"message";

/// JSON by its leaves, all else as one argument.
pub(crate) fn read(text: &[u8], depth: usize, sink: &mut dyn Sink) -> Result<(), Unreadable> {
    match leaves(text, depth, sink) {
        Some(read) => read,
        None => sink.take(ItemKind::Argument, NAME, text).then_some(()).ok_or(TOO_MANY),
    }
}

/// JSON by its leaves, of all else nothing.
pub(crate) fn guess(text: &[u8], depth: usize, sink: &mut dyn Sink) -> Result<(), Unreadable> {
    leaves(text, depth, sink).unwrap_or(Ok(()))
}

/// The leaves, if this is JSON.
fn leaves(text: &[u8], depth: usize, sink: &mut dyn Sink) -> Option<Result<(), Unreadable>> {
    let bare = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    if !matches!(bare.first(), Some(b'{' | b'[' | b'"')) {
        return None;
    }
    let read = json::read(text, depth, sink);
    // JSON that can't be read to its end is not taken for anything else.
    (read.is_ok() || read == Err(TOO_MANY) || read == Err(json::DEEP)).then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Collected;

    fn found(read: fn(&[u8], usize, &mut dyn Sink) -> Result<(), Unreadable>, text: &str) -> Vec<String> {
        let mut found = Collected::default();
        read(text.as_bytes(), 8, &mut found).unwrap();
        found.0.into_iter().map(|(_, name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn texts_are_json_or_one_argument() {
        assert_eq!(found(read, " {\"a\":\"\\u0062\"}"), ["json.a=b"]);
        assert_eq!(found(guess, "[1]"), ["json.0=1"]);
        assert_eq!(found(read, "a=b"), ["message=a=b"]);
        assert_eq!(found(guess, "a=b"), Vec::<String>::new());
        assert_eq!(guess("[".repeat(9).as_bytes(), 8, &mut Collected::default()), Err(json::DEEP));
        assert_eq!(found(read, "{broken").last().unwrap(), "message={broken");
        assert_eq!(
            read(format!("[{}1]", "1,".repeat(2000)).as_bytes(), 8, &mut Collected::default()),
            Err(TOO_MANY)
        );
    }
}
