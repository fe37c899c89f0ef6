//! SCRAM (RFC 5802) with SHA-256 and SHA-512, as a client without channel binding.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Rounds that a broker may ask for: fewer are no protection, more keep the sender from its work.
const ROUNDS: std::ops::RangeInclusive<u32> = 4096..=1_000_000;

/// Which hash.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

/// One exchange.
pub(super) struct Scram {
    hash: Hash,
    user: String,
    nonce: String,
}

impl Scram {
    pub(super) fn new(hash: Hash, user: &str) -> Self {
        let mut random = [0; 24];
        // Without random bytes the nonce is known, and the broker's part of it still is not.
        let _filled = rand::fill(&mut random);
        Self::with_nonce(hash, user, STANDARD.encode(random))
    }

    fn with_nonce(hash: Hash, user: &str, nonce: String) -> Self {
        Self { hash, user: user.replace('=', "=3D").replace(',', "=2C"), nonce }
    }

    fn bare(&self) -> String {
        format!("n={},r={}", self.user, self.nonce)
    }

    /// The first message.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.bare())
    }

    /// The last message, and what the broker has to answer.
    ///
    /// # Errors
    /// What is wrong with the broker's challenge.
    pub(super) fn last(&self, challenge: &[u8], password: &str) -> Result<(String, String), &'static str> {
        let challenge = std::str::from_utf8(challenge).map_err(|_| "the broker's challenge is not text")?;
        let part = |name: &str| challenge.split(',').find_map(|part| part.strip_prefix(name));
        let nonce =
            part("r=").filter(|nonce| nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce));
        let nonce = nonce.ok_or("the broker's challenge is for another client")?;
        let salt = part("s=").and_then(|salt| STANDARD.decode(salt).ok());
        let salt = salt.ok_or("the broker's challenge has no salt")?;
        let rounds =
            part("i=").and_then(|rounds| rounds.parse().ok()).filter(|rounds| ROUNDS.contains(rounds));
        let rounds = rounds.and_then(NonZeroU32::new);
        let rounds = rounds.ok_or("the broker asks for a number of rounds that is not taken")?;
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{without_proof}", self.bare());
        let salted = self.salted(password, &salt, rounds);
        let client_key = self.hmac(&salted, b"Client Key");
        let stored = digest::digest(self.digest(), &client_key);
        let signature = self.hmac(stored.as_ref(), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(key, signed)| key ^ signed).collect();
        let server_key = self.hmac(&salted, b"Server Key");
        let expected = self.hmac(&server_key, signed.as_bytes());
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        Ok((last, format!("v={}", STANDARD.encode(expected))))
    }

    fn digest(&self) -> &'static digest::Algorithm {
        match self.hash {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    fn salted(&self, password: &str, salt: &[u8], rounds: NonZeroU32) -> Vec<u8> {
        let algorithm = match self.hash {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut out = vec![0; self.digest().output_len()];
        pbkdf2::derive(algorithm, rounds, salt, password.as_bytes(), &mut out);
        out
    }

    fn hmac(&self, key: &[u8], text: &[u8]) -> Vec<u8> {
        let algorithm = match self.hash {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), text).as_ref().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677 §3.
    #[test]
    fn the_exchange_is_that_of_the_standard() {
        let scram = Scram::with_nonce(Hash::Sha256, "user", "rOprNGfwEbeRWgbNEkqO".to_owned());
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let challenge =
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (last, expected) = scram.last(challenge, "pencil").unwrap();
        assert_eq!(
            last,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(expected, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn challenges_that_weaken_it_are_refused() {
        let scram = Scram::with_nonce(Hash::Sha512, "a=b,c", "abc".to_owned());
        assert_eq!(scram.first(), "n,,n=a=3Db=2Cc,r=abc");
        for challenge in
            ["r=abc,s=YQ==,i=4096", "r=xyz1,s=YQ==,i=4096", "r=abcd,s=YQ==,i=1", "r=abcd,i=4096", "\u{0}"]
        {
            assert!(scram.last(challenge.as_bytes(), "p").is_err(), "{challenge}");
        }
        assert!(scram.last(b"r=abcd,s=YQ==,i=4096", "p").is_ok());
    }
}
