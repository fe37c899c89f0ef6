//! The console's files, from the archive that `console/pack.mjs` writes: a tar file of gzipped members, sorted by name. The gateway
//! serves each member as stored.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use aws_lc_rs::digest;

/// Built by `npm run build` in `ferrum-edge/console`; `.ci/run` builds it anew and compares.
static ARCHIVE: &[u8] = include_bytes!("../../../console/console.tar");

/// Bytes of a block of a tar file.
const BLOCK: usize = 512;

/// A file of the console.
#[derive(Debug)]
pub(super) struct Asset {
    /// Gzipped.
    pub(super) bytes: &'static [u8],
    pub(super) content_type: &'static str,
    /// A strong entity tag, with its quotes.
    pub(super) etag: String,
    /// Whether the name contains a hash of the content, so that it can be kept for ever.
    pub(super) is_immutable: bool,
}

/// The file of this name, such as `index.html`.
pub(super) fn asset(name: &str) -> Option<&'static Asset> {
    static ASSETS: OnceLock<BTreeMap<&'static str, Asset>> = OnceLock::new();
    ASSETS.get_or_init(|| assets(ARCHIVE)).get(name)
}

/// The members of an archive by their names without `.gz`; reading ends at the first header that is none.
fn assets(mut archive: &'static [u8]) -> BTreeMap<&'static str, Asset> {
    let mut assets = BTreeMap::new();
    while let Some((name, bytes, rest)) = member(archive) {
        archive = rest;
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let hash = digest::digest(&digest::SHA256, bytes);
        let etag =
            hash.as_ref().iter().take(16).fold(String::from("\""), |tag, byte| format!("{tag}{byte:02x}"));
        let is_immutable = name.starts_with("assets/");
        let asset = Asset { bytes, content_type: content_type(name), etag: etag + "\"", is_immutable };
        assets.insert(name, asset);
    }
    assets
}

/// The first member of a tar file: its name, its bytes, and what comes after it (POSIX.1-1988 `ustar`).
fn member(archive: &'static [u8]) -> Option<(&'static str, &'static [u8], &'static [u8])> {
    let (header, rest) = archive.split_at_checked(BLOCK)?;
    let text = |from: usize, to: usize| {
        let field = std::str::from_utf8(header.get(from..to)?).ok()?;
        Some(field.trim_end_matches(['\0', ' ']))
    };
    let name = text(0, 100).filter(|name| !name.is_empty())?;
    let size = usize::from_str_radix(text(124, 136)?, 8).ok()?;
    let bytes = rest.get(..size)?;
    Some((name, bytes, rest.get(size.next_multiple_of(BLOCK)..)?))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the issue allows.
    const MOST: usize = 500 << 10;

    #[test]
    fn the_archive_is_complete_and_small() {
        let all = assets(ARCHIVE);
        assert!(all.contains_key("index.html") && all.keys().any(|name| name.ends_with(".js")), "{all:?}");
        for (name, asset) in &all {
            assert_eq!(asset.bytes.get(..2), Some(&[0x1f, 0x8b][..]), "{name} is gzipped");
            assert_ne!(asset.content_type, "application/octet-stream", "{name}");
        }
        let size: usize = all.values().map(|asset| asset.bytes.len()).sum();
        assert!(size <= MOST, "{size} bytes");
    }

    #[test]
    fn a_broken_archive_ends_where_it_breaks() {
        assert!(assets(b"").is_empty());
        assert!(assets(&[b'x'; 511]).is_empty());
        assert!(assets(&[0; 2048]).is_empty());
        assert!(assets(&[b'7'; 1024]).is_empty(), "it claims more than there is");
    }
}
