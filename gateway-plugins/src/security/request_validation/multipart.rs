//! Forms of several parts (`multipart/form-data`, RFC 7578) as texts by name.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{FutureExt, stream};

use super::values::MAX_PAIRS;

/// The boundary that a content type names.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    multer::parse_boundary(content_type).ok()
}

/// The parts of a whole form, files among them; `None` where it can't be read. What is not UTF-8 in a file is left out of the text.
pub(super) fn pairs(boundary: &str, form: &Bytes) -> Option<Vec<(String, String)>> {
    let form = form.clone();
    let reading = async {
        let whole = stream::once(async { Ok::<_, Infallible>(form) });
        let mut parts = multer::Multipart::new(whole, boundary);
        let mut pairs = Vec::new();
        while let Some(part) = parts.next_field().await.ok()? {
            let name = part.name()?.to_owned();
            let text = part.bytes().await.ok()?;
            if pairs.len() == MAX_PAIRS {
                return None;
            }
            pairs.push((name, String::from_utf8_lossy(&text).into_owned()));
        }
        Some(pairs)
    };
    // All of it is there: nothing has to be waited for.
    reading.now_or_never().flatten()
}
