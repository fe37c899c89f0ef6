//! Numbers as the reports write them.

/// Bytes as MiB.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown in one decimal")]
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// A count with separators: `102,183`.
#[must_use]
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digit.is_ascii_digit() && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn thousands_are_separated() {
        for (value, text) in [(0.0, "0"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(thousands(value), text);
        }
    }
}
