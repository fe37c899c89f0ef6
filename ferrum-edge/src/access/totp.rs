//! Codes of an authenticator app (TOTP, RFC 6238 with SHA-1, six digits, 30 s), and recovery codes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::{constant_time, digest, hmac, rand};
use data_encoding::{BASE32_NOPAD, HEXLOWER};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Seconds of a step.
const STEP_SECONDS: u64 = 30;
/// Steps before and after the current one whose codes are accepted, for clocks that differ (RFC 6238 §5.2).
const DRIFT: u64 = 1;
/// Digits of a code.
const DIGITS: usize = 6;
/// Bytes of a secret: as many as HMAC-SHA-1 gives (RFC 4226 §4).
const SECRET_BYTES: usize = 20;
/// Recovery codes of a user.
pub(crate) const RECOVERY_CODES: usize = 10;
/// Bytes of a recovery code: 80 bits, so a plain hash cannot be reversed.
const RECOVERY_BYTES: usize = 10;

/// The step at this time.
pub(crate) fn step_at(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() / STEP_SECONDS
}

/// Generates a secret in base32; `None` if the system has no random bits.
pub(crate) fn new_secret() -> Option<String> {
    let mut bytes = [0; SECRET_BYTES];
    rand::fill(&mut bytes).ok()?;
    Some(BASE32_NOPAD.encode(&bytes))
}

/// The URI that authenticator apps read, mostly from a QR code.
pub(crate) fn uri(secret: &str, user: &str, host: &str) -> String {
    let user = utf8_percent_encode(user, NON_ALPHANUMERIC);
    let host = utf8_percent_encode(host, NON_ALPHANUMERIC);
    format!("otpauth://totp/ferrum-edge%20{host}:{user}?secret={secret}&issuer=ferrum-edge%20{host}")
}

/// The step whose code this is, at most one step away from `now` and later than `used`; `None` for any other code. The step of an
/// accepted code becomes `used`, so that no code is accepted twice.
pub(crate) fn accepted_step(secret: &str, code: &str, now: u64, used: u64) -> Option<u64> {
    let secret = BASE32_NOPAD.decode(secret.as_bytes()).ok()?;
    let code: String = code.chars().filter(|letter| !letter.is_whitespace()).collect();
    let mut found = None;
    // All steps are compared, so that the time does not depend on the clock's drift.
    for step in now.saturating_sub(DRIFT)..=now.saturating_add(DRIFT) {
        let is_same =
            constant_time::verify_slices_are_equal(code_of(&secret, step).as_bytes(), code.as_bytes());
        if is_same.is_ok() && step > used {
            found = Some(step);
        }
    }
    found
}

/// The code of a step (RFC 4226 §5.3).
fn code_of(secret: &[u8], step: u64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let tag = tag.as_ref();
    let offset = tag.last().map_or(0, |last| usize::from(last & 0xf));
    let mut bits = [0; 4];
    bits.copy_from_slice(&tag[offset..offset + 4]);
    let number = u32::from_be_bytes(bits) & 0x7fff_ffff;
    format!("{:0DIGITS$}", number % 10_u32.pow(DIGITS as u32))
}

/// Generates recovery codes such as `ABCD-EFGH-IJKL-MNOP`; `None` if the system has no random bits.
pub(crate) fn new_recovery_codes() -> Option<Vec<String>> {
    let mut codes = Vec::with_capacity(RECOVERY_CODES);
    for _ in 0..RECOVERY_CODES {
        let mut bytes = [0; RECOVERY_BYTES];
        rand::fill(&mut bytes).ok()?;
        let mut code = String::new();
        for (n, letter) in BASE32_NOPAD.encode(&bytes).chars().enumerate() {
            if n > 0 && n % 4 == 0 {
                code.push('-');
            }
            code.push(letter);
        }
        codes.push(code);
    }
    Some(codes)
}

/// The hash under which a recovery code is stored. Case, spaces and hyphens make no difference.
pub(crate) fn recovery_hash(code: &str) -> String {
    let plain: String = code.chars().filter(char::is_ascii_alphanumeric).collect();
    let hash = digest::digest(&digest::SHA256, plain.to_ascii_uppercase().as_bytes());
    HEXLOWER.encode(hash.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of RFC 6238, appendix B.
    const SECRET: &[u8] = b"12345678901234567890";

    #[test]
    fn codes_are_those_of_the_rfc() {
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            let step = step_at(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(code_of(SECRET, step), code, "{seconds}");
        }
    }

    #[test]
    fn codes_are_accepted_once_and_one_step_early_or_late() {
        let secret = BASE32_NOPAD.encode(SECRET);
        assert_eq!(secret, "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert_eq!(BASE32_NOPAD.decode(secret.as_bytes()).as_deref(), Ok(SECRET));
        let code = |step| code_of(SECRET, step);
        for (step, is_accepted) in
            [(97, false), (98, false), (99, true), (100, true), (101, true), (102, false)]
        {
            assert_eq!(accepted_step(&secret, &code(step), 100, 0), is_accepted.then_some(step), "{step}");
        }
        assert_eq!(accepted_step(&secret, &code(100), 100, 100), None, "it was used");
        assert_eq!(accepted_step(&secret, &code(99), 100, 100), None, "a later one was used");
        assert_eq!(accepted_step(&secret, &code(101), 100, 100), Some(101));
        let spaced = code(100).chars().map(|digit| format!(" {digit}")).collect::<String>();
        assert_eq!(accepted_step(&secret, &spaced, 100, 0), Some(100));
        for bad in ["", "12345", "1234567", "äöüäöü"] {
            assert_eq!(accepted_step(&secret, bad, 100, 0), None, "{bad}");
        }
        assert_eq!(accepted_step("no base32!", &code(100), 100, 0), None);
    }

    #[test]
    fn secrets_and_recovery_codes_are_random_and_readable() {
        let secret = new_secret().unwrap();
        assert_eq!((secret.len(), BASE32_NOPAD.decode(secret.as_bytes()).unwrap().len()), (32, SECRET_BYTES));
        assert_ne!(new_secret().unwrap(), secret);
        let codes = new_recovery_codes().unwrap();
        assert_eq!(codes.len(), RECOVERY_CODES);
        assert!(codes.iter().all(|code| code.len() == 19 && code.split('-').count() == 4), "{codes:?}");
        assert!(codes[1..].iter().all(|code| *code != codes[0]), "{codes:?}");
        let typed = codes[0].to_lowercase().replace('-', " ");
        assert_eq!(recovery_hash(&typed), recovery_hash(&codes[0]));
        assert_ne!(recovery_hash(&codes[1]), recovery_hash(&codes[0]));
        let uri = uri(&secret, "ann@a.example", "gw 1");
        assert_eq!(
            uri,
            format!(
                "otpauth://totp/ferrum-edge%20gw%201:ann%40a%2Eexample?secret={secret}&issuer=ferrum-edge%20gw%201"
            )
        );
    }
}
