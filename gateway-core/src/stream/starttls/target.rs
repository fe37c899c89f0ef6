//! The gateway as a client that asks a target for TLS.

use bytes::{Buf, BytesMut};

use super::{SSL_REQUEST, Starttls};

/// Bytes of everything that a target says before TLS.
const MAX_ANSWERS: usize = 16 << 10;

/// What the gateway does about what a target has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetStep {
    /// It waits for more.
    More,
    /// It sends this, and waits for more.
    Send(&'static [u8]),
    /// The dialogue is over.
    Ready,
    /// The target does not agree, and why.
    Failed(String),
}

/// What the gateway waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    /// The answer to SMTP's EHLO.
    Hello,
    Consent,
}

/// The dialogue with one target.
#[derive(Debug)]
pub struct TargetDialogue {
    protocol: Starttls,
    stage: Stage,
    /// It ends with the greeting.
    is_greeting_only: bool,
    seen: usize,
}

impl TargetDialogue {
    /// Asks for TLS.
    pub const fn new(protocol: Starttls) -> Self {
        let stage = if protocol.has_greeting() { Stage::Greeting } else { Stage::Consent };
        Self { protocol, stage, is_greeting_only: false, seen: 0 }
    }

    /// Only reads the greeting of a target.
    pub const fn greeting_only(protocol: Starttls) -> Self {
        Self { protocol, stage: Stage::Greeting, is_greeting_only: true, seen: 0 }
    }

    /// What is sent before anything was received.
    pub const fn opening(&self) -> &'static [u8] {
        if self.protocol.has_greeting() { b"" } else { &SSL_REQUEST }
    }

    /// Takes one answer off `received`, if it is whole.
    pub fn step(&mut self, received: &mut BytesMut) -> TargetStep {
        let step = match self.protocol {
            Starttls::Postgres => postgres(received),
            Starttls::Smtp | Starttls::Imap | Starttls::Pop3 => self.lines(received),
        };
        match step {
            TargetStep::Ready if !received.is_empty() => {
                TargetStep::Failed("the target goes on in plain text after it agreed to TLS".to_owned())
            }
            step => step,
        }
    }

    /// Answers of lines.
    fn lines(&mut self, received: &mut BytesMut) -> TargetStep {
        let mut offers_tls = false;
        let mut from = 0;
        while let Some(length) = received.get(from..).and_then(|rest| rest.iter().position(|c| *c == b'\n')) {
            let end = from + length + 1;
            let line = received.get(from..end).unwrap_or_default();
            let line = String::from_utf8_lossy(line).trim_end().to_owned();
            from = end;
            offers_tls |= line.get(4..).is_some_and(|text| text.trim().eq_ignore_ascii_case("STARTTLS"));
            if !self.is_last(&line) {
                continue;
            }
            self.seen += end;
            received.advance(end);
            return self.answered(&line, offers_tls);
        }
        if self.seen + received.len() > MAX_ANSWERS {
            return TargetStep::Failed("the target talks too much".to_owned());
        }
        TargetStep::More
    }

    /// Whether a line ends an answer.
    fn is_last(&self, line: &str) -> bool {
        match (self.protocol, self.stage) {
            // `250-` goes on, `250 ` is the last.
            (Starttls::Smtp, _) => line.as_bytes().get(3) != Some(&b'-'),
            (Starttls::Imap, Stage::Consent) => !line.starts_with("* "),
            _ => true,
        }
    }

    fn answered(&mut self, line: &str, offers_tls: bool) -> TargetStep {
        let expected = match (self.protocol, self.stage) {
            (Starttls::Smtp, Stage::Hello) => "250",
            (Starttls::Smtp, Stage::Greeting | Stage::Consent) => "220",
            (Starttls::Imap, Stage::Greeting) => "* OK",
            (Starttls::Imap, _) => "g OK",
            (Starttls::Pop3, _) => "+OK",
            (Starttls::Postgres, _) => "S",
        };
        if !line.starts_with(expected) {
            let shown: String = line.chars().take(200).collect();
            return TargetStep::Failed(format!("the target answers `{}`", shown.escape_debug()));
        }
        if self.is_greeting_only {
            return TargetStep::Ready;
        }
        let (stage, send): (_, &'static [u8]) = match (self.stage, self.protocol) {
            (Stage::Greeting, Starttls::Smtp) => (Stage::Hello, b"EHLO gateway\r\n"),
            (Stage::Greeting, Starttls::Imap) => (Stage::Consent, b"g STARTTLS\r\n"),
            (Stage::Greeting, Starttls::Pop3) => (Stage::Consent, b"STLS\r\n"),
            (Stage::Hello, _) if offers_tls => (Stage::Consent, b"STARTTLS\r\n"),
            (Stage::Hello, _) => return TargetStep::Failed("the target does not offer STARTTLS".to_owned()),
            (Stage::Consent | Stage::Greeting, _) => return TargetStep::Ready,
        };
        self.stage = stage;
        TargetStep::Send(send)
    }
}

fn postgres(received: &mut BytesMut) -> TargetStep {
    let Some(answer) = received.first().copied() else { return TargetStep::More };
    received.advance(1);
    match answer {
        b'S' => TargetStep::Ready,
        b'N' => TargetStep::Failed("the target does not offer TLS".to_owned()),
        _ => TargetStep::Failed("the target is no PostgreSQL server that knows SSLRequest".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of a dialogue in which a target sends these texts.
    fn steps(mut dialogue: TargetDialogue, said: &[&str]) -> Vec<TargetStep> {
        let mut received = BytesMut::new();
        let step = |text: &&str| {
            received.extend_from_slice(text.as_bytes());
            dialogue.step(&mut received)
        };
        said.iter().map(step).collect()
    }

    #[test]
    fn each_protocol_asks_and_takes_consent() {
        use TargetStep::{More, Ready, Send};
        let smtp = ["220-mail\r\n", "220 x\r\n", "250-mail\r\n250-STARTTLS\r\n250 SIZE 1\r\n", "220 go\r\n"];
        let expected = [More, Send(b"EHLO gateway\r\n"), Send(b"STARTTLS\r\n"), Ready];
        assert_eq!(steps(TargetDialogue::new(Starttls::Smtp), &smtp), expected);
        let imap = ["* OK hi\r\n", "* CAPABILITY x\r\n", "g OK go\r\n"];
        let expected = [Send(b"g STARTTLS\r\n"), More, Ready];
        assert_eq!(steps(TargetDialogue::new(Starttls::Imap), &imap), expected);
        let pop3 = ["+OK hi\r\n", "+OK go\r\n"];
        assert_eq!(steps(TargetDialogue::new(Starttls::Pop3), &pop3), [Send(b"STLS\r\n"), Ready]);
        let postgres = TargetDialogue::new(Starttls::Postgres);
        assert_eq!(postgres.opening(), SSL_REQUEST);
        assert_eq!(steps(postgres, &["", "S"]), [More, Ready]);
        assert_eq!(steps(TargetDialogue::greeting_only(Starttls::Pop3), &["+OK hi\r\n"]), [Ready]);
    }

    #[test]
    fn refusals_and_injected_bytes_fail() {
        for (protocol, said) in [
            (Starttls::Smtp, &["554 no\r\n"][..]),
            (Starttls::Smtp, &["220 x\r\n", "250 SIZE 1\r\n"]),
            (Starttls::Smtp, &["220 x\r\n", "250 STARTTLS\r\n", "220 go\r\n250 injected\r\n"]),
            (Starttls::Imap, &["* OK hi\r\n", "g NO\r\n"]),
            (Starttls::Pop3, &["-ERR\r\n"]),
            (Starttls::Postgres, &["N"]),
            (Starttls::Postgres, &["SR"]),
            (Starttls::Postgres, &["E"]),
        ] {
            let steps = steps(TargetDialogue::new(protocol), said);
            assert!(matches!(steps.last(), Some(TargetStep::Failed(_))), "{said:?}: {steps:?}");
        }
        let endless = "x".repeat(MAX_ANSWERS + 1);
        let steps = steps(TargetDialogue::new(Starttls::Smtp), &[&endless]);
        assert!(matches!(steps[0], TargetStep::Failed(_)));
    }
}
