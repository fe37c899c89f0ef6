//! A scripted authenticator, and what is refused of it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

use super::*;

const CHALLENGE: &[u8] = b"a challenge that was sent once";
const EXPECTED: Expected<'static> =
    Expected { challenge: CHALLENGE, rp_id: "gateway.example", authority: "gateway.example:9443" };

/// An authenticator with a key of P-256.
struct Authenticator(EcdsaKeyPair);

/// What an answer says; each test changes a part.
#[derive(Clone)]
struct Answer {
    kind: &'static str,
    challenge: Vec<u8>,
    origin: &'static str,
    is_cross_origin: bool,
    rp_id: &'static str,
    flags: u8,
    counter: u32,
}

fn answer(kind: &'static str) -> Answer {
    Answer {
        kind,
        challenge: CHALLENGE.to_vec(),
        origin: "https://gateway.example:9443",
        is_cross_origin: false,
        rp_id: "gateway.example",
        flags: USER_PRESENT | USER_VERIFIED,
        counter: 8,
    }
}

impl Answer {
    fn client_data(&self) -> Vec<u8> {
        let challenge = URL_SAFE_NO_PAD.encode(&self.challenge);
        json!({
            "type": self.kind, "challenge": challenge, "origin": self.origin, "crossOrigin": self.is_cross_origin,
        })
        .to_string()
        .into_bytes()
    }

    fn data(&self) -> Vec<u8> {
        let hash = digest(&SHA256, self.rp_id.as_bytes());
        [hash.as_ref(), &[self.flags], &self.counter.to_be_bytes()].concat()
    }
}

impl Authenticator {
    fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap())
    }

    /// As COSE has it.
    fn key(&self) -> Vec<u8> {
        let point = self.0.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        [&[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32][..], x, &[0x22, 0x58, 32], y].concat()
    }

    fn make(&self, answer: &Answer) -> Result<NewPasskey, PasskeyError> {
        let mut data = answer.data();
        data[32] |= HAS_CREDENTIAL;
        data.extend([&[0; 16][..], &[0, 4], b"the1", &self.key()].concat());
        verify_new(EXPECTED, &answer.client_data(), &data)
    }

    fn log_in(&self, answer: &Answer, counter: u32) -> Result<u32, PasskeyError> {
        let (client_data, data) = (answer.client_data(), answer.data());
        let signature = self.sign(&client_data, &data);
        verify_login(EXPECTED, &client_data, &data, &signature, &self.key(), counter)
    }

    fn sign(&self, client_data: &[u8], data: &[u8]) -> Vec<u8> {
        let signed = [data, digest(&SHA256, client_data).as_ref()].concat();
        self.0.sign(&SystemRandom::new(), &signed).unwrap().as_ref().to_vec()
    }
}

#[test]
fn a_passkey_is_made_and_used() {
    let own = Authenticator::new();
    let made = own.make(&answer("webauthn.create")).unwrap();
    assert_eq!(made, NewPasskey { id: b"the1".to_vec(), key: own.key(), counter: 8 });
    assert_eq!(own.log_in(&answer("webauthn.get"), 7), Ok(8));
    let localhost = Expected { rp_id: "localhost", authority: "localhost:9000", ..EXPECTED };
    let there = Answer { origin: "http://localhost:9000", rp_id: "localhost", ..answer("webauthn.get") };
    let (client_data, data) = (there.client_data(), there.data());
    let signature = own.sign(&client_data, &data);
    assert_eq!(verify_login(localhost, &client_data, &data, &signature, &own.key(), 0), Ok(8));
}

#[test]
fn answers_about_something_else_are_refused() {
    let own = Authenticator::new();
    let change = |change: &dyn Fn(&mut Answer)| {
        ["webauthn.create", "webauthn.get"].map(|kind| {
            let mut answer = answer(kind);
            change(&mut answer);
            match kind {
                "webauthn.create" => own.make(&answer).map(drop),
                _ => own.log_in(&answer, 7).map(drop),
            }
        })
    };
    for (error, make) in [
        (PasskeyError::Type, &(|answer: &mut Answer| answer.kind = "payment.get") as &dyn Fn(&mut Answer)),
        (PasskeyError::Challenge, &|answer| answer.challenge = b"another one".to_vec()),
        (PasskeyError::Challenge, &|answer| answer.challenge.clear()),
        (PasskeyError::Origin, &|answer| answer.origin = "https://evil.example:9443"),
        (PasskeyError::Origin, &|answer| answer.origin = "https://gateway.example"),
        (PasskeyError::Origin, &|answer| answer.origin = "http://gateway.example:9443"),
        (PasskeyError::Origin, &|answer| answer.origin = "null"),
        (PasskeyError::Origin, &|answer| answer.is_cross_origin = true),
        (PasskeyError::Host, &|answer| answer.rp_id = "evil.example"),
        (PasskeyError::Host, &|answer| answer.rp_id = "example"),
        (PasskeyError::UserVerification, &|answer| answer.flags = USER_PRESENT),
        (PasskeyError::UserVerification, &|answer| answer.flags = USER_VERIFIED),
    ] {
        assert_eq!(change(make), [Err(error), Err(error)]);
    }
    // What was made for a registration is no login, and the other way round.
    assert_eq!(own.make(&answer("webauthn.get")), Err(PasskeyError::Type));
    assert_eq!(own.log_in(&answer("webauthn.create"), 7), Err(PasskeyError::Type));
}

#[test]
fn a_counter_that_goes_back_is_refused() {
    let own = Authenticator::new();
    let log_in =
        |now: u32, before: u32| own.log_in(&Answer { counter: now, ..answer("webauthn.get") }, before);
    for (now, before, result) in [
        (0, 0, Ok(0)),
        (1, 0, Ok(1)),
        (9, 8, Ok(9)),
        (8, 8, Err(PasskeyError::Counter)),
        (7, 8, Err(PasskeyError::Counter)),
        (0, 8, Err(PasskeyError::Counter)),
    ] {
        assert_eq!(log_in(now, before), result, "{now} after {before}");
    }
}

#[test]
fn only_the_passkeys_own_signature_counts() {
    let (own, other) = (Authenticator::new(), Authenticator::new());
    let answer = answer("webauthn.get");
    let (client_data, data) = (answer.client_data(), answer.data());
    let verify = |signature: &[u8]| verify_login(EXPECTED, &client_data, &data, signature, &own.key(), 0);
    let signature = own.sign(&client_data, &data);
    assert_eq!(verify(&signature), Ok(8));
    assert_eq!(verify(&other.sign(&client_data, &data)), Err(PasskeyError::Signature));
    assert_eq!(verify(&signature[..8]), Err(PasskeyError::Signature));
    assert_eq!(verify(&[]), Err(PasskeyError::Signature));
    let more = Answer { counter: 9, ..answer }.data();
    let moved = verify_login(EXPECTED, &client_data, &more, &signature, &own.key(), 0);
    assert_eq!(moved, Err(PasskeyError::Signature), "the counter is signed, too");
}

#[test]
fn rejects_unreadable_answers() {
    let own = Authenticator::new();
    let answer = answer("webauthn.create");
    let mut data = answer.data();
    data[32] |= HAS_CREDENTIAL;
    data.extend([&[0; 16][..], &[0, 4], b"the1", &own.key()].concat());
    for end in 0..data.len() {
        assert!(verify_new(EXPECTED, &answer.client_data(), &data[..end]).is_err(), "{end}");
    }
    let key = own.key();
    let mut refused = 0;
    for at in 0..key.len() {
        for byte in [0, 1, 0x3a, 0x5b, 0x80, 0xbf, 0xff] {
            let mut broken = key.clone();
            broken[at] = byte;
            refused += usize::from(public_key(&mut CborReader(&broken)).is_none());
        }
    }
    assert!(refused > 0);
    // Extensions may follow the key.
    data.extend([0xa0]);
    assert_eq!(verify_new(EXPECTED, &answer.client_data(), &data).unwrap().key, key);
    for text in ["", "{}", "[]", "null"] {
        assert_eq!(verify_new(EXPECTED, text.as_bytes(), &data), Err(PasskeyError::ClientData), "{text}");
    }
    // A key of another curve, and one of another type.
    let curve = [&key[..6], &[2], &key[7..]].concat();
    assert!(public_key(&mut CborReader(&curve)).is_none());
    assert!(public_key(&mut CborReader(&[0xa2, 1, 1, 3, 0x27])).is_none());
}

#[test]
fn keys_of_rsa_are_read() {
    let key =
        [&[0xa4, 1, 3, 3, 0x39, 1, 0, 0x20, 0x59, 1, 0][..], &[0xc3; 256], &[0x21, 0x43, 1, 0, 1]].concat();
    let found = public_key(&mut CborReader(&key));
    assert!(matches!(found, Some(PublicKey::Rs256 { modulus, exponent: [1, 0, 1] }) if modulus.len() == 256));
    for (host, is) in
        [("gateway.example", true), ("localhost", true), ("127.0.0.1", false), ("[::1]", false), ("", false)]
    {
        assert_eq!(is_host(host), is, "{host}");
    }
}
