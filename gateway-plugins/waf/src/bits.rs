//! Sets of rules as words of bits.

/// Words that hold so many bits.
pub(crate) fn words(bits: usize) -> usize {
    bits.div_ceil(64).max(1)
}

pub(crate) fn set(bits: &mut [u64], n: usize) {
    if let Some(word) = bits.get_mut(n >> 6) {
        *word |= 1 << (n & 63);
    }
}

pub(crate) fn has(bits: &[u64], n: usize) -> bool {
    bits.get(n >> 6).is_some_and(|word| word & (1 << (n & 63)) != 0)
}

pub(crate) fn or(bits: &mut [u64], other: &[u64]) {
    for (word, other) in bits.iter_mut().zip(other) {
        *word |= other;
    }
}

/// Adds what is in both others.
pub(crate) fn or_common(bits: &mut [u64], a: &[u64], b: &[u64]) {
    for ((word, a), b) in bits.iter_mut().zip(a).zip(b) {
        *word |= a & b;
    }
}

/// The first member from `from` on.
pub(crate) fn next(bits: &[u64], from: usize) -> Option<usize> {
    let mut n = from >> 6;
    let mut word = *bits.get(n)? & (u64::MAX << (from & 63));
    loop {
        if word != 0 {
            return Some((n << 6) + word.trailing_zeros() as usize);
        }
        n += 1;
        word = *bits.get(n)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_in_order() {
        let mut bits = vec![0; words(130)];
        for n in [0, 63, 64, 129] {
            set(&mut bits, n);
        }
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(n) = next(&bits, from) {
            found.push(n);
            from = n + 1;
        }
        assert_eq!(found, [0, 63, 64, 129]);
        assert!(has(&bits, 63) && !has(&bits, 62) && !has(&bits, 1000));
    }
}
