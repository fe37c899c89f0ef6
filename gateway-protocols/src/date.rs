//! The `Date` of responses (RFC 9110 §6.6.1), written out once a second.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut, BytesMut};

/// `Sun, 06 Nov 1994 08:49:37 GMT`
pub(crate) type Date = [u8; 29];

thread_local! {
    static CURRENT: Cell<(u64, Date)> = const { Cell::new((0, [b' '; 29])) };
}

/// The current time as an IMF-fixdate.
pub(crate) fn now() -> Date {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (written, date) = CURRENT.get();
    if written == seconds {
        return date;
    }
    let date = format(seconds);
    CURRENT.set((seconds, date));
    date
}

fn format(seconds: u64) -> Date {
    let time = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let mut text = BytesMut::with_capacity(29);
    text.put_slice(httpdate::fmt_http_date(time).as_bytes());
    text[..].try_into().unwrap_or([b' '; 29])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rfc_example() {
        assert_eq!(&super::format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
