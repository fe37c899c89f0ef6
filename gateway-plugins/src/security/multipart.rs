//! Forms of several parts (`multipart/form-data`, RFC 7578) that are there as a whole.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::HeaderMap;

/// A part of a form.
pub(super) struct FormPart {
    pub(super) name: String,
    pub(super) headers: HeaderMap,
    pub(super) is_file: bool,
    pub(super) content: Bytes,
}

/// The boundary that a content type names.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    multer::parse_boundary(content_type).ok()
}

/// The parts of a whole form, at most so many; `None` where it can't be read.
pub(super) fn parts(boundary: &str, form: &Bytes, max: usize) -> Option<Vec<FormPart>> {
    let form = form.clone();
    let reading = async {
        let whole = stream::once(async { Ok::<_, Infallible>(form) });
        let mut multipart = multer::Multipart::new(whole, boundary);
        let mut parts = Vec::new();
        while let Some(part) = multipart.next_field().await.ok()? {
            if parts.len() == max {
                return None;
            }
            parts.push(FormPart {
                name: part.name()?.to_owned(),
                headers: part.headers().clone(),
                is_file: part.file_name().is_some(),
                content: part.bytes().await.ok()?,
            });
        }
        Some(parts)
    };
    // All of it is there: nothing has to be waited for.
    reading.now_or_never().flatten()
}
