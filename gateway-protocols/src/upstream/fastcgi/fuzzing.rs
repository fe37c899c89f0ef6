//! The entry point for the fuzzers: what a target sends.

use bytes::BytesMut;

use super::head;
use super::record::{Event, RecordError, RecordReader, RequestEnd};

/// What was read of a target's octets.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReadAnswer {
    output: Vec<u8>,
    errors: Vec<u8>,
    end: Option<Result<RequestEnd, RecordError>>,
}

impl ReadAnswer {
    /// Reads octets that arrive in pieces of this size.
    fn read(data: &[u8], step: usize) -> Self {
        let (mut answer, mut reader, mut buffer) =
            (Self::default(), RecordReader::default(), BytesMut::new());
        for piece in data.chunks(step) {
            buffer.extend_from_slice(piece);
            loop {
                match reader.next(&mut buffer) {
                    Ok(Event::More) => break,
                    Ok(Event::Output(output)) => answer.output.extend_from_slice(&output),
                    Ok(Event::Error(error)) => answer.errors.extend_from_slice(&error),
                    Ok(Event::End(end)) => {
                        answer.end = Some(Ok(end));
                        return answer;
                    }
                    Err(error) => {
                        answer.end = Some(Err(error));
                        return answer;
                    }
                }
            }
        }
        answer
    }
}

/// A target's octets: they mean the same however they arrive, and contain no more than there is.
pub(crate) fn response(data: &[u8]) {
    let whole = ReadAnswer::read(data, data.len().max(1));
    assert!(whole.output.len() + whole.errors.len() <= data.len(), "nothing is made up");
    for step in [1, 7] {
        assert_eq!(ReadAnswer::read(data, step), whole, "in pieces of {step}");
    }
    let mut output = BytesMut::from(&*whole.output);
    if let Ok(Some(head)) = head::response(&mut output) {
        assert!(output.len() < whole.output.len(), "a head has octets");
        assert!((200..600).contains(&head.response.status().as_u16()), "{:?}", head.response.status());
    }
}
