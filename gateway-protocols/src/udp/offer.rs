//! What the gateway offers to targets. The engine offers SRTP (RFC 5764), which targets without a profile for it refuse, and
//! doesn't say which name it asks for. Its hellos are put right on their way out, and in the transcript.

use std::sync::{Mutex, PoisonError};

use rustls_pki_types::ServerName;

use super::hello::{CLIENT_HELLO, Hello, SERVER_NAME, handshake, message, short};

/// The extension that offers SRTP.
const USE_SRTP: u16 = 14;
/// Hellos kept: the first one, and one with a cookie or another key share after it.
const MAX_HELLOS: usize = 4;

/// What a target is told otherwise than the engine believes.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The extension's content; `None` where the target is known by its address.
    name: Option<Vec<u8>>,
    said: Mutex<Vec<HelloBody>>,
}

/// A hello's body.
#[derive(Debug)]
struct HelloBody {
    engine: Vec<u8>,
    target: Vec<u8>,
}

impl Offer {
    /// To a target of this name, where it has one.
    pub(crate) fn to(name: Option<&ServerName<'_>>) -> Self {
        let name = match name {
            Some(ServerName::DnsName(name)) => Some(host_name(name.as_ref())),
            _ => None,
        };
        Self { name, said: Mutex::default() }
    }

    /// The hello that goes out instead of this datagram; `None` where it is no hello.
    pub(crate) fn datagram(&self, engine: &[u8]) -> Option<Vec<u8>> {
        let hello = Hello::read(engine)?;
        let name = self.name.as_deref().map(|name| (SERVER_NAME, name));
        let (datagram, target) = hello.offering(USE_SRTP, name);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < MAX_HELLOS && !said.iter().any(|said| said.engine == hello.body()) {
            said.push(HelloBody { engine: hello.body().to_vec(), target });
        }
        Some(datagram)
    }

    /// A transcript as the target knows it; `None` where no hello is in it.
    pub(crate) fn transcript(&self, engine: &[u8]) -> Option<Vec<u8>> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().find_map(|said| said.in_place(engine))
    }
}

/// The content of `server_name` (RFC 6066 §3): a list of one host name.
fn host_name(name: &str) -> Vec<u8> {
    [&short(name.len() + 3)[..], &[0], &short(name.len()), name.as_bytes()].concat()
}

impl HelloBody {
    fn in_place(&self, transcript: &[u8]) -> Option<Vec<u8>> {
        let at = transcript.windows(self.engine.len()).position(|part| part == self.engine)?;
        let (before, rest) = (transcript.get(..at)?, transcript.get(at + self.engine.len()..)?);
        // With the head of DTLS 1.3's transcripts, or of DTLS 1.2.
        let short = message(CLIENT_HELLO, &self.engine);
        let short = short.get(..short.len() - self.engine.len())?;
        if let Some(before) = before.strip_suffix(short) {
            return Some([before, &message(CLIENT_HELLO, &self.target), rest].concat());
        }
        let (before, head) = before.split_last_chunk::<12>()?;
        let number = head.get(4..6)?;
        Some([before, &handshake(CLIENT_HELLO, number, &self.target), rest].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::super::hello::{datagram, extension};
    use super::*;

    fn body(cookie: &[u8], kinds: &[(u16, &[u8])]) -> Vec<u8> {
        let mut extensions = Vec::new();
        kinds.iter().for_each(|(kind, data)| extension(&mut extensions, *kind, data));
        let head = [&[0xFE, 0xFD][..], &[7; 32], &[0, cookie.len() as u8], cookie, &[0, 2, 0xC0, 0x2B, 1, 0]];
        [&head.concat()[..], &short(extensions.len()), &extensions].concat()
    }

    fn sent(body: &[u8], number: u8) -> Vec<u8> {
        datagram(CLIENT_HELLO, &[0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, number], &[0, number], body)
    }

    #[test]
    fn srtp_is_not_offered_and_the_name_is_asked_for() {
        let name = ServerName::try_from("a.test").expect("a name");
        let offer = Offer::to(Some(&name));
        for (number, cookie) in [(0, &b""[..]), (1, b"cookie")] {
            let groups = (10, &[0, 2, 0, 23][..]);
            let engine = body(cookie, &[groups, (USE_SRTP, &[0, 2, 0, 7, 0]), (21, &[0; 90])]);
            let name = (SERVER_NAME, &b"\0\x09\0\0\x06a.test"[..]);
            let target = body(cookie, &[name, groups, (21, &[0; 84])]);
            assert_eq!(engine.len(), target.len(), "it fits where the engine's does");
            assert_eq!(offer.datagram(&sent(&engine, number)), Some(sent(&target, number)));
            // Said again, it is the same.
            assert_eq!(offer.datagram(&sent(&engine, number)), Some(sent(&target, number)));
            // In the transcripts of either version, also behind a request to say it again.
            for before in [&b""[..], b"\xFE\0\0\x02ab\x02\0\0\x01c"] {
                for (engine, target) in [
                    (message(CLIENT_HELLO, &engine), message(CLIENT_HELLO, &target)),
                    (handshake(CLIENT_HELLO, &[0, 1], &engine), handshake(CLIENT_HELLO, &[0, 1], &target)),
                ] {
                    let told = offer.transcript(&[before, &engine, b"rest"].concat());
                    assert_eq!(told, Some([before, &target, b"rest"].concat()));
                }
            }
        }
        assert_eq!(offer.datagram(b"no hello"), None);
        assert_eq!(offer.transcript(b"no transcript"), None);
    }

    #[test]
    fn an_address_is_no_name() {
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let engine = body(b"", &[(USE_SRTP, &[0, 2, 0, 7, 0]), (10, &[0, 2, 0, 23])]);
        let target = sent(&body(b"", &[(10, &[0, 2, 0, 23])]), 0);
        for name in [Some(&name), None] {
            assert_eq!(Offer::to(name).datagram(&sent(&engine, 0)), Some(target.clone()));
        }
    }
}
