//! What a file is, by its first bytes.

/// Bytes at the beginning of a file that are looked at.
pub(super) const LOOKED_AT: usize = 8 << 10;

/// What is not recognised.
const UNKNOWN: (&str, &str) = ("application/octet-stream", "bin");

/// The media type and the usual ending of a file's name. `is_whole` says that these bytes are all of it.
pub(super) fn of(start: &[u8], is_whole: bool) -> (&'static str, &'static str) {
    if let Some(kind) = infer::get(start) {
        return (kind.mime_type(), kind.extension());
    }
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // A character may be cut in two where these bytes end.
        Err(error) if !is_whole && error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return UNKNOWN,
    };
    if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return UNKNOWN;
    }
    // A drawing may run scripts where a browser opens it.
    let begins = text.trim_start_matches('\u{feff}').trim_start();
    let lower: String = begins.chars().take(1024).flat_map(char::to_lowercase).collect();
    match () {
        () if lower.contains("<svg") => ("image/svg+xml", "svg"),
        () if ["<!doctype html", "<html", "<head", "<body", "<script", "<iframe"]
            .iter()
            .any(|tag| lower.contains(tag)) =>
        {
            ("text/html", "html")
        }
        () if lower.starts_with("<?xml") => ("application/xml", "xml"),
        () => ("text/plain", "txt"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides() {
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"%PDF-1.7", "application/pdf"),
            (b"PK\x03\x04", "application/zip"),
            (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "application/x-executable"),
            (b"  <!DOCTYPE html><p>", "text/html"),
            (b"hello <script>alert(1)</script>", "text/html"),
            (b"\xef\xbb\xbf<!-- x --><svg onload=alert(1)>", "image/svg+xml"),
            (b"hello", "text/plain"),
            ("h\u{e4}".as_bytes(), "text/plain"),
            (b"", "text/plain"),
            (b"a\0b", "application/octet-stream"),
            (b"\xc3(", "application/octet-stream"),
        ] {
            let found = of(bytes, true).0;
            let is_markup = kind == "text/html" || kind == "image/svg+xml";
            let is_one = found == kind || is_markup && (found.contains("xml") || found == "text/html");
            assert!(is_one, "{kind}: {found}");
        }
        assert_eq!(of(b"a\xc3", false).0, "text/plain", "a character is cut in two");
        assert_eq!(of(b"a\xc3", true).0, "application/octet-stream");
    }
}
