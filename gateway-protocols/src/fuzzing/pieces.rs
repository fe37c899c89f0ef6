//! The same octets in pieces of several sizes: what they say must not depend on how they arrive.

/// Sizes of pieces that are tried; the first is all at once.
pub(super) const STEPS: [usize; 4] = [usize::MAX, 1, 7, 61];

/// What `read` makes of `data` at once; it must be the same in pieces.
pub(super) fn whole<T: PartialEq + std::fmt::Debug>(data: &[u8], read: impl Fn(&[u8], usize) -> T) -> T {
    let [whole, steps @ ..] = STEPS;
    let once = read(data, whole);
    for step in steps {
        let again = read(data, step);
        assert_eq!(once, again, "in pieces of {step} octets it is read differently");
    }
    once
}

/// A reader that always knows as soon as it can: with more octets, what it has decided must stay. `open` is its answer
/// while it wants more.
pub(super) fn decided_once<T: PartialEq + std::fmt::Debug>(
    data: &[u8],
    open: &T,
    read: impl Fn(&[u8]) -> T,
) -> T {
    let end = read(data);
    let mut decided: Option<T> = None;
    // Where prefixes are many, those at the beginning matter most.
    for cut in (0..data.len().min(300)).chain((300..data.len()).step_by(37)) {
        let now = read(&data[..cut]);
        if let Some(before) = &decided {
            assert_eq!(before, &now, "after {cut} octets it thinks otherwise");
        } else if now != *open {
            decided = Some(now);
        }
    }
    if let Some(before) = decided {
        assert_eq!(before, end, "with the last octets it thinks otherwise");
    }
    end
}
