//! A set of HTTP statuses that is asked once for every response.

use http::StatusCode;

/// One bit for each of the statuses 100–999.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses([u64; WORDS]);

const FIRST: u16 = 100;
const LAST: u16 = 999;
const WORDS: usize = ((LAST - FIRST) as usize / 64) + 1;

impl Statuses {
    /// The set of these codes; a code outside 100–999 can never be received and is left out.
    pub fn new(codes: &[u16]) -> Self {
        let mut words = [0; WORDS];
        for code in codes.iter().filter(|code| (FIRST..=LAST).contains(code)) {
            let bit = usize::from(code - FIRST);
            words[bit / 64] |= 1 << (bit % 64);
        }
        Self(words)
    }

    /// Whether the set holds this status.
    pub fn contains(&self, status: StatusCode) -> bool {
        let bit = usize::from(status.as_u16().saturating_sub(FIRST));
        self.0.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_exactly_the_codes_given() {
        let set = Statuses::new(&[100, 500, 503, 999, 0, 99, 1000, u16::MAX]);
        for code in 100..=999 {
            let expected = [100, 500, 503, 999].contains(&code);
            assert_eq!(set.contains(StatusCode::from_u16(code).unwrap()), expected, "{code}");
        }
    }
}
