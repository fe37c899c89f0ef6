//! Cipher suites of DTLS 1.3 that put the certificate message of a handshake right before it is encrypted.

use std::sync::{Arc, LazyLock};

use dimpl::CryptoError;
use dimpl::crypto::{
    Aad, Buf, Cipher, Dtls13CipherSuite, HashAlgorithm, Nonce, SupportedDtls13CipherSuite, TmpBuf, aws_lc_rs,
};

use super::certificate_list::CertificateList;
use super::transcript::Transcript;

/// aws-lc-rs' suites; those of a handshake with a [`CertificateList`] put its records right.
pub(crate) fn cipher_suites() -> &'static [&'static dyn SupportedDtls13CipherSuite] {
    static OURS: LazyLock<Vec<Suite>> = LazyLock::new(|| {
        aws_lc_rs::default_provider().dtls13_cipher_suites.iter().copied().map(Suite).collect()
    });
    static SUITES: LazyLock<Vec<&'static dyn SupportedDtls13CipherSuite>> =
        LazyLock::new(|| OURS.iter().map(|suite| suite as &dyn SupportedDtls13CipherSuite).collect());
    &SUITES
}

#[derive(Debug)]
struct Suite(&'static dyn SupportedDtls13CipherSuite);

impl SupportedDtls13CipherSuite for Suite {
    fn suite(&self) -> Dtls13CipherSuite {
        self.0.suite()
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        self.0.hash_algorithm()
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn iv_len(&self) -> usize {
        self.0.iv_len()
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn min_protected_fragment_len(&self) -> usize {
        self.0.min_protected_fragment_len()
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        let plain = self.0.create_cipher(key)?;
        Ok(match Transcript::current_list() {
            None => plain,
            Some(list) => Box::new(Corrected { list, plain }),
        })
    }

    fn encrypt_sn(&self, key: &[u8], sample: &[u8; 16]) -> [u8; 16] {
        self.0.encrypt_sn(key, sample)
    }
}

#[derive(Debug)]
struct Corrected {
    list: Arc<CertificateList>,
    plain: Box<dyn Cipher>,
}

impl Cipher for Corrected {
    fn encrypt(&mut self, plaintext: &mut Buf, aad: Aad, nonce: Nonce) -> Result<(), CryptoError> {
        self.list.put_right(plaintext);
        self.plain.encrypt(plaintext, aad, nonce)
    }

    fn decrypt(&mut self, ciphertext: &mut TmpBuf<'_>, aad: Aad, nonce: Nonce) -> Result<(), CryptoError> {
        self.plain.decrypt(ciphertext, aad, nonce)
    }
}
