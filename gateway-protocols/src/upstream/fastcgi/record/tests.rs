//! Writing and reading of records.

use super::*;

fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    let mut out = vec![1, kind];
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[padding, 0]);
    out.extend_from_slice(content);
    out.resize(out.len() + usize::from(padding), 0);
    out
}

/// Standard output, standard error and the end of a request.
type Seen = (Vec<u8>, Vec<u8>, Option<RequestEnd>);

/// All events of these bytes, which arrive in pieces of `size`.
fn read(bytes: &[u8], size: usize) -> Result<Seen, RecordError> {
    let (mut reader, mut buffer) = (RecordReader::default(), BytesMut::new());
    let (mut output, mut errors, mut end) = (Vec::new(), Vec::new(), None);
    for piece in bytes.chunks(size) {
        buffer.extend_from_slice(piece);
        loop {
            match reader.next(&mut buffer)? {
                Event::Output(data) => output.extend_from_slice(&data),
                Event::Error(data) => errors.extend_from_slice(&data),
                Event::End(ending) => end = Some(ending),
                Event::More => break,
            }
        }
    }
    Ok((output, errors, end))
}

#[test]
fn records_are_read_however_they_arrive() {
    let bytes = [
        record(STDOUT, 1, b"hello ", 3),
        record(STDERR, 1, b"oh", 0),
        record(10, 0, b"ignored", 1),
        record(STDOUT, 1, b"world", 255),
        record(STDOUT, 1, b"", 0),
        record(END_REQUEST, 1, &[0, 0, 0, 255, 0, 0, 0, 0], 0),
    ]
    .concat();
    let expected = (b"hello world".to_vec(), b"oh".to_vec(), Some(RequestEnd::Complete));
    for size in [1, 2, 7, 8, 9, 20, bytes.len()] {
        assert_eq!(read(&bytes, size), Ok(expected.clone()), "{size}");
    }
}

#[test]
fn foreign_bytes_are_refused() {
    let end = |status| record(END_REQUEST, 1, &[0, 0, 0, 0, status, 0, 0, 0], 0);
    assert_eq!(read(b"HTTP/1.1 400 Bad", 16), Err(RecordError::Version(b'H')));
    assert_eq!(read(&record(STDOUT, 2, b"x", 0), 99), Err(RecordError::Request(2)));
    assert_eq!(read(&record(STDIN, 1, b"x", 0), 99), Err(RecordError::Kind(STDIN)));
    assert_eq!(read(&record(END_REQUEST, 1, b"x", 0), 99), Err(RecordError::BadEnd(1)));
    assert_eq!(read(&end(9), 99), Err(RecordError::Status(9)));
    assert_eq!(read(&end(2), 99).unwrap().2, Some(RequestEnd::Overloaded));
    assert_eq!(read(&end(3), 99).unwrap().2, Some(RequestEnd::UnknownRole));
    let behind = [record(STDOUT, 1, b"", 0), record(STDOUT, 1, b"x", 0)].concat();
    assert_eq!(read(&behind, 99), Err(RecordError::BehindEnd));
    assert_eq!(read(&record(STDERR, 1, b"", 0).repeat(4097), 1 << 20), Err(RecordError::Vain));
}

#[test]
fn requests_are_written_as_specified() {
    let mut out = Vec::new();
    begin(&mut out, true);
    assert_eq!(out, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
    let (mut pairs, long) = (Vec::new(), vec![b'v'; 300]);
    pair(&mut pairs, b"A", b"b");
    pair(&mut pairs, b"LONG", &long);
    assert_eq!(pairs[..4], [1, 1, b'A', b'b']);
    assert_eq!(pairs[4..9], [4, 0x80, 0, 1, 44]);
    // Content longer than a record is split at any position.
    let mut out = Vec::new();
    params(&mut out, &vec![7; MAX_CONTENT + 5]);
    assert_eq!(out[..8], [1, 4, 0, 1, 255, 255, 0, 0]);
    assert_eq!(out[HEADER + MAX_CONTENT..][..8], [1, 4, 0, 1, 0, 5, 0, 0]);
    assert_eq!(out[out.len() - 8..], [1, 4, 0, 1, 0, 0, 0, 0]);
}
