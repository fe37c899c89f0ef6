//! The plain text in which a client asks for TLS, towards clients and towards targets.
//!
//! Towards clients, the gateway takes the place of a server that does nothing before TLS. Towards targets, it is a client that asks for
//! TLS at once. Bytes that come in plain text behind the request, or behind the consent, are refused: an attacker on the path
//! could have injected them (CVE-2011-0411, CVE-2021-23214).

mod target;

use bytes::{Buf, BytesMut};

pub use crate::config::model::Starttls;
pub use target::{TargetDialogue, TargetStep};

/// Bytes of a line.
const MAX_LINE: usize = 2048;
/// The client went on without TLS.
const MISSING: &str = "starttls_missing";
/// Bytes followed the client's request for TLS.
const INJECTED: &str = "starttls_injected";

/// PostgreSQL's requests that have no startup message's form: their codes, each of 8 bytes with the length.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const GSSENC_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];
/// `ErrorResponse`: FATAL, invalid_authorization_specification.
const POSTGRES_REFUSAL: &[u8] = b"E\0\0\0\x38SFATAL\0VFATAL\0C28000\0MTLS is required on this port\0\0";
/// The first byte of a TLS record of a handshake.
const HANDSHAKE: u8 = 22;

/// What the gateway does about what a client has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientStep {
    /// It waits for more.
    More,
    /// It sends this, and waits for more.
    Answer(Vec<u8>),
    /// It sends this, and TLS begins.
    Begin(Vec<u8>),
    /// It sends this, and closes; the word is for the record.
    End(Vec<u8>, &'static str),
}

/// What the gateway sends to a client before it has received anything.
pub const fn greeting(protocol: Starttls) -> &'static [u8] {
    match protocol {
        Starttls::Postgres => b"",
        Starttls::Smtp => b"220 ready\r\n",
        Starttls::Imap => b"* OK [CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED] ready\r\n",
        Starttls::Pop3 => b"+OK ready\r\n",
    }
}

/// Takes one request of a client off `received`, if it is whole.
pub fn client_step(protocol: Starttls, received: &mut BytesMut) -> ClientStep {
    let step = match protocol {
        Starttls::Postgres => return postgres(received),
        Starttls::Smtp => smtp,
        Starttls::Imap => imap,
        Starttls::Pop3 => pop3,
    };
    let Some(end) = received.iter().position(|byte| *byte == b'\n') else {
        let is_long = received.len() > MAX_LINE;
        return if is_long { ClientStep::End(Vec::new(), MISSING) } else { ClientStep::More };
    };
    if end > MAX_LINE {
        return ClientStep::End(Vec::new(), MISSING);
    }
    let line = received.split_to(end + 1);
    let text = String::from_utf8_lossy(&line);
    match step(text.trim_end()) {
        ClientStep::Begin(_) if !received.is_empty() => ClientStep::End(Vec::new(), INJECTED),
        step => step,
    }
}

fn postgres(received: &mut BytesMut) -> ClientStep {
    // A client that negotiates TLS directly sends its hello at once.
    if received.first() == Some(&HANDSHAKE) {
        return ClientStep::Begin(Vec::new());
    }
    let Some(request) = received.first_chunk::<8>().copied() else { return ClientStep::More };
    match request {
        SSL_REQUEST => {
            received.advance(8);
            match received.is_empty() {
                true => ClientStep::Begin(b"S".to_vec()),
                false => ClientStep::End(Vec::new(), INJECTED),
            }
        }
        GSSENC_REQUEST => {
            received.advance(8);
            ClientStep::Answer(b"N".to_vec())
        }
        _ => ClientStep::End(POSTGRES_REFUSAL.to_vec(), MISSING),
    }
}

fn smtp(line: &str) -> ClientStep {
    let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
    match verb.as_str() {
        "EHLO" => ClientStep::Answer(b"250-ready\r\n250 STARTTLS\r\n".to_vec()),
        "HELO" | "NOOP" | "RSET" => ClientStep::Answer(b"250 ready\r\n".to_vec()),
        "STARTTLS" => ClientStep::Begin(b"220 Ready to start TLS\r\n".to_vec()),
        "QUIT" => ClientStep::End(b"221 Bye\r\n".to_vec(), MISSING),
        _ => ClientStep::Answer(b"530 5.7.0 Must issue a STARTTLS command first\r\n".to_vec()),
    }
}

fn imap(line: &str) -> ClientStep {
    let (tag, command) = line.split_once(' ').unwrap_or((line, ""));
    let is_tag = !tag.is_empty() && tag.len() <= 64 && tag.bytes().all(|c| c.is_ascii_alphanumeric());
    if !is_tag {
        return ClientStep::End(b"* BYE tag expected\r\n".to_vec(), MISSING);
    }
    let answer = match command.split(' ').next().unwrap_or_default().to_ascii_uppercase().as_str() {
        "CAPABILITY" => format!("* CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED\r\n{tag} OK done\r\n"),
        "NOOP" => format!("{tag} OK done\r\n"),
        "STARTTLS" => return ClientStep::Begin(format!("{tag} OK Begin TLS\r\n").into_bytes()),
        "LOGOUT" => {
            return ClientStep::End(format!("* BYE\r\n{tag} OK done\r\n").into_bytes(), MISSING);
        }
        _ => format!("{tag} NO [PRIVACYREQUIRED] Issue STARTTLS first\r\n"),
    };
    ClientStep::Answer(answer.into_bytes())
}

fn pop3(line: &str) -> ClientStep {
    match line.to_ascii_uppercase().as_str() {
        "CAPA" => ClientStep::Answer(b"+OK\r\nSTLS\r\n.\r\n".to_vec()),
        "STLS" => ClientStep::Begin(b"+OK Begin TLS\r\n".to_vec()),
        "QUIT" => ClientStep::End(b"+OK\r\n".to_vec(), MISSING),
        _ => ClientStep::Answer(b"-ERR Issue STLS first\r\n".to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(protocol: Starttls, received: &[u8]) -> (ClientStep, usize) {
        let mut received = BytesMut::from(received);
        (client_step(protocol, &mut received), received.len())
    }

    #[test]
    fn postgresql_asks_begins_directly_or_is_refused() {
        let begin = |text: &[u8]| ClientStep::Begin(text.to_vec());
        assert_eq!(step(Starttls::Postgres, &SSL_REQUEST), (begin(b"S"), 0));
        assert_eq!(step(Starttls::Postgres, &SSL_REQUEST[..7]), (ClientStep::More, 7));
        assert_eq!(step(Starttls::Postgres, b"\x16\x03"), (begin(b""), 2), "the hello stays");
        assert_eq!(step(Starttls::Postgres, &GSSENC_REQUEST), (ClientStep::Answer(b"N".to_vec()), 0));
        let injected = [&SSL_REQUEST[..], b"x"].concat();
        assert_eq!(step(Starttls::Postgres, &injected).0, ClientStep::End(Vec::new(), INJECTED));
        let (ClientStep::End(refusal, MISSING), _) = step(Starttls::Postgres, b"\0\0\0\x09\0\x03\0\0\0")
        else {
            panic!("it goes on in plain text")
        };
        assert_eq!(usize::from(refusal[4]) + 1, refusal.len(), "its length is right");
    }

    #[test]
    fn commands_are_answered_until_tls_begins() {
        for (protocol, line, begins) in [
            (Starttls::Smtp, "EHLO a\r\n", false),
            (Starttls::Smtp, "mail FROM:<a@b>\r\n", false),
            (Starttls::Smtp, "starttls\r\n", true),
            (Starttls::Imap, "a1 login a b\r\n", false),
            (Starttls::Imap, "a2 STARTTLS\r\n", true),
            (Starttls::Pop3, "USER a\r\n", false),
            (Starttls::Pop3, "STLS\n", true),
        ] {
            let (step, left) = step(protocol, line.as_bytes());
            let is_begun = matches!(step, ClientStep::Begin(_));
            assert!(
                left == 0 && is_begun == begins && !matches!(step, ClientStep::End(..)),
                "{line}: {step:?}"
            );
        }
        assert_eq!(step(Starttls::Smtp, b"EHLO").0, ClientStep::More);
        assert_eq!(step(Starttls::Smtp, &[b'x'; MAX_LINE + 1]).0, ClientStep::End(Vec::new(), MISSING));
        let injected = b"STARTTLS\r\nEHLO a\r\n";
        assert_eq!(step(Starttls::Smtp, injected).0, ClientStep::End(Vec::new(), INJECTED));
        assert!(matches!(step(Starttls::Imap, b"a\x07b NOOP\r\n").0, ClientStep::End(..)));
    }
}
