//! Pages of metrics: few at a time in memory, however many clients ask and do not read.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::export::page_format::PageFormat;

/// Pages in memory, those that clients are still reading among them.
const MAX_PAGES: usize = 4;
/// Bytes that are handed to a connection at a time: what it copies and has not sent yet.
const PIECE: usize = 64 << 10;

/// The pages that clients are reading.
#[derive(Debug, Default)]
pub(crate) struct Pages(Mutex<Vec<SharedPage>>);

#[derive(Debug)]
struct SharedPage {
    format: PageFormat,
    /// When it was begun.
    begun: Instant,
    page: Weak<Vec<u8>>,
}

impl Pages {
    /// A page in this format: one that was made since it was asked for, or, when enough are being read, the newest of those; else
    /// a new one. Only one is made at a time.
    pub(super) async fn of(&self, format: PageFormat, make: impl FnOnce() -> Vec<u8>) -> Option<PageBody> {
        let asked = Instant::now();
        let mut pages = self.0.lock().await;
        pages.retain(|shared| shared.page.strong_count() > 0);
        let is_full = pages.len() >= MAX_PAGES;
        let newest = pages.iter().rev().find(|shared| shared.format == format);
        let newest = newest.filter(|shared| is_full || shared.begun > asked);
        if let Some(page) = newest.and_then(|shared| shared.page.upgrade()) {
            return Some(PageBody { page, sent: 0 });
        }
        if is_full {
            return None;
        }
        let begun = Instant::now();
        let page = Arc::new(make());
        pages.push(SharedPage { format, begun, page: Arc::downgrade(&page) });
        Some(PageBody { page, sent: 0 })
    }
}

/// A shared page on its way to one client.
#[derive(Debug)]
pub(super) struct PageBody {
    page: Arc<Vec<u8>>,
    sent: usize,
}

impl PageBody {
    pub(super) fn into_body(self) -> Body {
        Body::new(self)
    }
}

impl hyper::body::Body for PageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let end = self.page.len().min(self.sent + PIECE);
        let piece = self.page.get(self.sent..end).unwrap_or_default();
        if piece.is_empty() {
            return Poll::Ready(None);
        }
        let piece = Bytes::copy_from_slice(piece);
        self.sent = end;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.page.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.page.len() - self.sent) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unread_pages_are_shared_beyond_a_few() {
        let pages = Pages::default();
        let mut unread = Vec::new();
        for n in 0..100_u8 {
            unread.push(pages.of(PageFormat::Prometheus, || vec![n]).await.unwrap());
        }
        let made: Vec<u8> = unread.iter().map(|page| page.page[0]).collect();
        assert_eq!(made[..5], [0, 1, 2, 3, 3]);
        assert_eq!(made[99], 3);
        assert!(
            pages.of(PageFormat::Protobuf, Vec::new).await.is_none(),
            "no page of another format is there"
        );
        drop(unread);
        let page = pages.of(PageFormat::Protobuf, || vec![b'x'; 3 * PIECE / 2]).await.unwrap();
        let whole = axum::body::to_bytes(page.into_body(), usize::MAX).await.unwrap();
        assert_eq!(whole.len(), 3 * PIECE / 2);
    }
}
