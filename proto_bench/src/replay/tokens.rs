//! Keys and tokens of the rows with authentication, made anew for each run, and the key set that gateways fetch.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use crate::text_files::{FileError, write_file};

/// The secret of HS256, the same as in the tables.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Who signs, and for whom, as published.
pub const ISSUER: &str = "https://auth.example.com/";
pub const AUDIENCE: &str = "my-api";
/// When tokens end: in the year 2100.
const EXPIRES: u64 = 4_102_444_800;
/// How long somebody who asks for the key set may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot make keys")]
    Keys,
    #[error("cannot serve the key set: {0}")]
    Serve(#[source] std::io::Error),
    #[error(transparent)]
    File(#[from] FileError),
}

/// Tokens, and the address of the key set.
#[derive(Debug, Clone)]
pub struct Tokens {
    pub hs256: String,
    pub rs256: String,
    pub es256: String,
    pub jwks: SocketAddr,
}

impl Tokens {
    /// Makes keys and tokens, writes the public keys as `rsa.pem` and `ec.pem`, and serves the key set until the process ends.
    ///
    /// # Errors
    /// No keys, no port, or a file that cannot be written.
    pub fn make(directory: &Path) -> Result<Self, TokenError> {
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| TokenError::Keys)?;
        let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| TokenError::Keys)?;
        let random = SystemRandom::new();
        let secret = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let hs256 = token("HS256", |text| Some(hmac::sign(&secret, text).as_ref().to_vec()))?;
        let rs256 = token("RS256", |text| {
            let mut signature = vec![0; rsa.public_modulus_len()];
            rsa.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature).ok()?;
            Some(signature)
        })?;
        let es256 = token("ES256", |text| Some(ec.sign(&random, text).ok()?.as_ref().to_vec()))?;
        let (rsa_der, ec_der): (PublicKeyX509Der<'_>, PublicKeyX509Der<'_>) = (
            rsa.public_key().as_der().map_err(|_| TokenError::Keys)?,
            ec.public_key().as_der().map_err(|_| TokenError::Keys)?,
        );
        write_file(&directory.join("rsa.pem"), &pem(rsa_der.as_ref()))?;
        write_file(&directory.join("ec.pem"), &pem(ec_der.as_ref()))?;
        let keys = key_set(rsa.public_key().as_ref(), ec.public_key().as_ref()).ok_or(TokenError::Keys)?;
        Ok(Self { hs256, rs256, es256, jwks: serve(keys)? })
    }
}

/// A token, with its algorithm as the key's id.
fn token(algorithm: &str, sign: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Result<String, TokenError> {
    let head = json!({ "alg": algorithm, "typ": "JWT", "kid": algorithm });
    let claims = json!({ "sub": "bench", "iss": ISSUER, "aud": AUDIENCE, "exp": EXPIRES });
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&head), part(&claims));
    let signature = sign(text.as_bytes()).ok_or(TokenError::Keys)?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
}

/// The key set of both public keys: RSA's is modulus and exponent in DER, P-256's the uncompressed point.
fn key_set(rsa: &[u8], ec: &[u8]) -> Option<String> {
    let (modulus, exponent) = numbers(rsa)?;
    let (x, y) = ec.strip_prefix(&[4])?.split_at_checked(32)?;
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let keys = json!({ "keys": [
        { "kty": "RSA", "use": "sig", "alg": "RS256", "kid": "RS256", "n": text(modulus), "e": text(exponent) },
        { "kty": "EC", "use": "sig", "alg": "ES256", "kid": "ES256", "crv": "P-256", "x": text(x), "y": text(y) },
    ] });
    Some(keys.to_string())
}

/// Both numbers of a PKCS#1 public key, without leading zeros.
fn numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, sequence, _) = element(der)?;
    let (first_tag, modulus, rest) = element(sequence)?;
    let (second_tag, exponent, _) = element(rest)?;
    let bare = |number: &[u8]| number.iter().take_while(|byte| **byte == 0).count();
    (tag == 0x30 && first_tag == 2 && second_tag == 2)
        .then(|| (modulus.split_at(bare(modulus)).1, exponent.split_at(bare(exponent)).1))
}

/// Tag, content and rest of a DER element.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        (bytes.iter().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Answers every request with the key set, one at a time, in a thread that ends with the process.
fn serve(keys: String) -> Result<SocketAddr, TokenError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(TokenError::Serve)?;
    let address = listener.local_addr().map_err(TokenError::Serve)?;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{keys}",
        keys.len()
    );
    let run = move || {
        for mut stream in listener.incoming().flatten() {
            // Whoever goes away before the answer asks again.
            answer_one(&mut stream, &answer).ok();
        }
    };
    thread::Builder::new().name("key-set".to_owned()).spawn(run).map_err(TokenError::Serve)?;
    Ok(address)
}

fn answer_one(stream: &mut TcpStream, answer: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut head: Vec<u8> = Vec::new();
    let mut piece = [0; 2048];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") && head.len() < 16 * 1024 {
        match stream.read(&mut piece)? {
            0 => break,
            count => head.extend(piece.iter().take(count)),
        }
    }
    stream.write_all(answer.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
    };

    #[test]
    fn tokens_are_signed_with_the_keys_of_the_set() {
        let directory = std::env::temp_dir().join(format!("proto_bench-tokens-{:08x}", fastrand::u32(..)));
        let tokens = Tokens::make(&directory).expect("tokens");
        let mut stream = TcpStream::connect(tokens.jwks).expect("served");
        stream.write_all(b"GET /keys HTTP/1.1\r\nhost: x\r\n\r\n").expect("asked");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        let set: serde_json::Value = serde_json::from_str(body).expect("JSON");
        let bytes = |key: usize, name: &str| {
            URL_SAFE_NO_PAD.decode(set["keys"][key][name].as_str().expect("a text")).expect("base64")
        };
        let parts = |token: &str| {
            let (text, signature) = token.rsplit_once('.').expect("three parts");
            (text.to_owned(), URL_SAFE_NO_PAD.decode(signature).expect("base64"))
        };
        let (text, signature) = parts(&tokens.rs256);
        let rsa = RsaPublicKeyComponents { n: bytes(0, "n"), e: bytes(0, "e") };
        rsa.verify(&RSA_PKCS1_2048_8192_SHA256, text.as_bytes(), &signature).expect("RS256");
        let (text, signature) = parts(&tokens.es256);
        let point = [vec![4], bytes(1, "x"), bytes(1, "y")].concat();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(text.as_bytes(), &signature)
            .expect("ES256");
        assert!(
            std::fs::read_to_string(directory.join("rsa.pem")).expect("a key").contains("BEGIN PUBLIC KEY")
        );
        std::fs::remove_dir_all(&directory).ok();
    }
}
