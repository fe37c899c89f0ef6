//! How far a server's answers reach, read as they come: an answer that is too large ends before it is in memory.
//!
//! The library that reads answers puts whole ones together, however long they are. This follows their framing (RESP 2 and 3) beside
//! it, keeps nothing of what they say, and refuses an answer as soon as its head tells that it is too large.

/// Bytes of a line, such as an error's text.
pub(super) const MAX_LINE: u64 = 64 << 10;
/// Values in one answer: a cluster of a thousand nodes lists some ten thousand.
pub(super) const MAX_VALUES: u64 = 64 << 10;
/// Aggregates in each other.
pub(super) const MAX_DEPTH: usize = 16;
/// Characters of a length: a sign and nineteen digits.
const MAX_NUMBER: usize = 20;

/// Why an answer is not read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Bytes(u64),
    Line,
    Values,
    Depth,
    Length,
    Kind(u8),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(most) => write!(f, "an answer of Redis has more than {most} bytes"),
            Self::Line => write!(f, "a line of an answer of Redis has more than {MAX_LINE} bytes"),
            Self::Values => write!(f, "an answer of Redis has more than {MAX_VALUES} values"),
            Self::Depth => write!(f, "an answer of Redis has more than {MAX_DEPTH} lists in each other"),
            Self::Length => write!(f, "an answer of Redis has a length that is none"),
            Self::Kind(kind) => {
                write!(f, "an answer of Redis begins with `{}`, which was not asked for", kind.escape_ascii())
            }
        }
    }
}

/// Where in a value it is.
#[derive(Debug)]
enum At {
    Kind,
    /// In a line without a length.
    Line {
        bytes: u64,
        ends: bool,
    },
    /// In the line that says how much follows.
    Length {
        kind: u8,
        ends: bool,
    },
    /// So many bytes of text are left, its end of line among them.
    Text(u64),
}

/// One connection's answers.
#[derive(Debug)]
pub(super) struct Framing {
    at: At,
    number: [u8; MAX_NUMBER],
    digits: usize,
    /// Values that each open aggregate still lacks.
    open: [u64; MAX_DEPTH],
    depth: usize,
    /// Of the answer that is being read.
    bytes: u64,
    values: u64,
}

impl Default for Framing {
    fn default() -> Self {
        Self {
            at: At::Kind,
            number: [0; MAX_NUMBER],
            digits: 0,
            open: [0; MAX_DEPTH],
            depth: 0,
            bytes: 0,
            values: 0,
        }
    }
}

impl Framing {
    /// Follows what was read. An answer may have up to `most` bytes.
    ///
    /// # Errors
    ///
    /// The answer is too large, or framed as no answer is that the library asks for.
    pub(super) fn follow(&mut self, mut read: &[u8], most: u64) -> Result<(), Refused> {
        while let Some((first, rest)) = read.split_first() {
            if let At::Text(left) = self.at {
                let taken = left.min(read.len() as u64);
                self.bytes += taken;
                // No more than there is.
                read = read.get(usize::try_from(taken).unwrap_or(usize::MAX)..).unwrap_or_default();
                self.at = At::Text(left - taken);
                if left == taken {
                    self.end_value();
                }
                continue;
            }
            self.bytes += 1;
            if self.bytes > most {
                return Err(Refused::Bytes(most));
            }
            read = rest;
            self.byte(*first, most)?;
        }
        Ok(())
    }

    fn byte(&mut self, byte: u8, most: u64) -> Result<(), Refused> {
        match &mut self.at {
            At::Kind => {
                self.digits = 0;
                self.at = match byte {
                    b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => At::Line { bytes: 0, ends: false },
                    b'$' | b'!' | b'=' | b'*' | b'~' | b'%' | b'|' => At::Length { kind: byte, ends: false },
                    // What is pushed (`>`) is sent to those who subscribe, which nobody does here.
                    other => return Err(Refused::Kind(other)),
                };
            }
            At::Line { bytes, ends } => {
                if *ends && byte == b'\n' {
                    self.end_value();
                } else {
                    *bytes += 1;
                    *ends = byte == b'\r';
                    if *bytes > MAX_LINE {
                        return Err(Refused::Line);
                    }
                }
            }
            At::Length { kind, ends } => match byte {
                b'\n' if *ends => {
                    let kind = *kind;
                    return self.length(kind, most);
                }
                b'\r' if !*ends => *ends = true,
                _ => {
                    let place = self.number.get_mut(self.digits).filter(|_| !*ends).ok_or(Refused::Length)?;
                    *place = byte;
                    self.digits += 1;
                }
            },
            At::Text(_) => {}
        }
        Ok(())
    }

    /// A line said how much follows.
    fn length(&mut self, kind: u8, most: u64) -> Result<(), Refused> {
        let digits = self.number.get(..self.digits).unwrap_or_default();
        let number: i64 =
            std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(Refused::Length)?;
        let Ok(length) = u64::try_from(number) else {
            // No value, which texts and lists alone can be.
            if !matches!(kind, b'$' | b'*' | b'~') {
                return Err(Refused::Length);
            }
            self.end_value();
            return Ok(());
        };
        let values = match kind {
            b'*' | b'~' => length,
            b'%' => length.saturating_mul(2),
            // What it is about comes behind it.
            b'|' => length.saturating_mul(2).saturating_add(1),
            _ => {
                let text = length.saturating_add(2);
                if self.bytes.saturating_add(text) > most {
                    return Err(Refused::Bytes(most));
                }
                self.at = At::Text(text);
                return Ok(());
            }
        };
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            return Err(Refused::Values);
        }
        if values == 0 {
            self.end_value();
            return Ok(());
        }
        *self.open.get_mut(self.depth).ok_or(Refused::Depth)? = values;
        self.depth += 1;
        self.at = At::Kind;
        Ok(())
    }

    /// A value is whole, and with it each aggregate that it was the last one of.
    fn end_value(&mut self) {
        self.at = At::Kind;
        while let Some(left) = self.depth.checked_sub(1).and_then(|last| self.open.get_mut(last)) {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.depth -= 1;
        }
        (self.bytes, self.values) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1000;

    fn follow(pieces: &[&[u8]]) -> Result<Framing, Refused> {
        let mut framing = Framing::default();
        pieces.iter().try_for_each(|piece| framing.follow(piece, MOST))?;
        Ok(framing)
    }

    #[test]
    fn answers_of_every_kind_end_where_they_end_however_they_are_cut() {
        let answers: &[&[u8]] = &[
            b"+OK\r\n",
            b"-ERR no\r\n",
            b"+a\rb\r\r\n",
            b":1000\r\n",
            b"$5\r\nhello\r\n",
            b"$4\r\n\r\n\r\n\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*3\r\n:1\r\n*2\r\n+a\r\n*0\r\n$1\r\nx\r\n",
            b"_\r\n",
            b",1.5\r\n",
            b"#t\r\n",
            b"(349\r\n",
            b"!5\r\nERR x\r\n",
            b"=5\r\ntxt:a\r\n",
            b"~2\r\n:1\r\n:2\r\n",
            b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
            b"|1\r\n+a\r\n:1\r\n+OK\r\n",
        ];
        for answer in answers {
            let name = answer.escape_ascii().to_string();
            for at in 0..=answer.len() {
                let framing = follow(&[&answer[..at], &answer[at..]]).expect(&name);
                let is_over = matches!(framing.at, At::Kind) && framing.depth == 0 && framing.bytes == 0;
                assert!(is_over, "{name} cut at {at}: {framing:?}");
            }
            let begun = follow(&[&answer[..answer.len() - 1]]).expect(&name);
            assert!(begun.bytes > 0, "{name} is not over before its end");
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_the_bytes_arrive() {
        let line = [b"+".as_slice(), &vec![b'a'; 2000]].concat();
        let nested = b"*1\r\n".repeat(MAX_DEPTH + 1);
        let many =
            b"*3\r\n$400\r\n".iter().copied().chain([b'x'; 400]).chain(*b"\r\n$600\r\n").collect::<Vec<_>>();
        let cases: &[(&[u8], Refused)] = &[
            (b"$999\r\n", Refused::Bytes(MOST)),
            (b"$9223372036854775807\r\n", Refused::Bytes(MOST)),
            (b"=1000\r\n", Refused::Bytes(MOST)),
            (b"!1000\r\n", Refused::Bytes(MOST)),
            (&line, Refused::Bytes(MOST)),
            (&many, Refused::Bytes(MOST)),
            (b"*65537\r\n", Refused::Values),
            (b"*9223372036854775807\r\n", Refused::Values),
            (b"~65537\r\n", Refused::Values),
            (b"%32769\r\n", Refused::Values),
            (b"|32768\r\n", Refused::Values),
            (b"*2\r\n*65535\r\n", Refused::Values),
            (&nested, Refused::Depth),
            (b"%-1\r\n", Refused::Length),
            (b"!-1\r\n", Refused::Length),
            (b"=-1\r\n", Refused::Length),
            (b"|-1\r\n", Refused::Length),
            (b"*x\r\n", Refused::Length),
            (b"*\r\n", Refused::Length),
            (b"*1\rx", Refused::Length),
            (b"$?\r\n", Refused::Length),
            (b"*000000000000000000001\r\n", Refused::Length),
            (b">1\r\n+message\r\n", Refused::Kind(b'>')),
            (b"HTTP/1.1 400 Bad Request\r\n", Refused::Kind(b'H')),
        ];
        for (answer, refused) in cases {
            let name = answer.escape_ascii().to_string();
            assert_eq!(follow(&[answer]).err(), Some(*refused), "{name}");
        }
        assert!(follow(&[b"*2\r\n*65534\r\n"]).is_ok(), "as many as there may be");
        let mut framing = Framing::default();
        let line = vec![b'a'; usize::try_from(MAX_LINE).unwrap() + 1];
        assert_eq!(framing.follow(b"+", u64::MAX), Ok(()));
        assert_eq!(framing.follow(&line, u64::MAX), Err(Refused::Line));
    }

    #[test]
    fn many_answers_are_no_large_one() {
        let mut framing = Framing::default();
        for _ in 0..10_000 {
            assert_eq!(framing.follow(b"*1\r\n$5\r\nhello\r\n", MOST), Ok(()));
        }
    }
}
