//! One response in one file.
//!
//! ```text
//! 8 bytes   "FERRUMC1"
//! 8 bytes   milliseconds since 1970 when a purge marked it stale; 0 is not at all
//! 4 bytes   length of the head
//! 8 bytes   length of the body
//! 32 bytes  SHA-256 of the lengths and the head
//! 32 bytes  SHA-256 of the body
//! head, body
//! ```
//!
//! A file is written beside its place and renamed. It is not forced to the disk: what a power failure leaves is told
//! by the digests, and not used. Only the time of a purge is changed in place; it is 8 bytes within one sector.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use rustix::fs::OFlags;

use super::super::wire::MAX_HEAD;

const MAGIC: &[u8; 8] = b"FERRUMC1";
/// Bytes before the head.
const FRONT: usize = 8 + 8 + 4 + 8 + 32 + 32;
/// Where the moment of a purge is.
const STALE_AT: u64 = 8;

/// What the front of a file says.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) stale_since: u64,
    pub(super) head: Vec<u8>,
    pub(super) body_length: u64,
    body_digest: [u8; 32],
}

/// Bytes of a file with a head and a body of these lengths.
pub(super) fn size_of(head: usize, body: usize) -> u64 {
    (FRONT + head + body) as u64
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().unwrap_or_default()
}

/// Writes a file: it is there whole, or not at all.
pub(super) fn write(path: &Path, head: &[u8], body: &[u8], stale_since: u64) -> io::Result<()> {
    let mut front = Vec::with_capacity(FRONT + head.len());
    front.extend_from_slice(MAGIC);
    front.extend_from_slice(&stale_since.to_be_bytes());
    let lengths = front.len();
    let head_length = u32::try_from(head.len()).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    front.extend_from_slice(&head_length.to_be_bytes());
    front.extend_from_slice(&(body.len() as u64).to_be_bytes());
    let of_body = digest(&[body]);
    let of_head = digest(&[&front[lengths..], &of_body, head]);
    front.extend_from_slice(&of_head);
    front.extend_from_slice(&of_body);
    front.extend_from_slice(head);
    let beside = path.with_extension("new");
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(&front)?;
        file.write_all(body)?;
        drop(file);
        std::fs::rename(&beside, path)
    })();
    if written.is_err() {
        drop(std::fs::remove_file(&beside));
    }
    written
}

/// Marks a file stale.
pub(super) fn mark_stale(path: &Path, since: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).custom_flags(AS_IT_IS).open(path)?;
    file.write_all_at(&since.to_be_bytes(), STALE_AT)
}

/// Reads the front of a file, whose length must be as it says.
pub(super) fn read_front(path: &Path, most_body: u64) -> io::Result<(Front, File)> {
    let mut file = OpenOptions::new().read(true).custom_flags(AS_IT_IS).open(path)?;
    let front = front_of(&mut file, most_body)?;
    Ok((front, file))
}

/// A symbolic link in the folder is nobody's file, and a pipe is not waited for.
const AS_IT_IS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

fn damaged() -> io::Error {
    ErrorKind::InvalidData.into()
}

fn front_of(file: &mut File, most_body: u64) -> io::Result<Front> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(damaged());
    }
    let mut front = [0; FRONT];
    file.read_exact(&mut front)?;
    let mut rest = &front[..];
    let mut take = |length: usize| rest.split_off(..length).unwrap_or_default();
    let (magic, stale, head_length, body_length) = (take(8), take(8), take(4), take(8));
    let (of_head, of_body) = (take(32), take(32));
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let (head, body) = (number(head_length), number(body_length));
    let is_possible = magic == MAGIC
        && head <= MAX_HEAD as u64
        && body <= most_body
        && about.len() == (FRONT as u64).saturating_add(head).saturating_add(body);
    if !is_possible {
        return Err(damaged());
    }
    let mut bytes = vec![0; usize::try_from(head).unwrap_or(0)];
    file.read_exact(&mut bytes)?;
    if digest(&[head_length, body_length, of_body, &bytes]) != of_head {
        return Err(damaged());
    }
    let body_digest = of_body.try_into().unwrap_or_default();
    Ok(Front { stale_since: number(stale), head: bytes, body_length: body, body_digest })
}

/// Reads a whole file, and checks each byte of it.
pub(super) fn read(path: &Path, most_body: u64) -> io::Result<(Front, Bytes)> {
    let (front, mut file) = read_front(path, most_body)?;
    file.seek(SeekFrom::Start(size_of(front.head.len(), 0)))?;
    let length = usize::try_from(front.body_length).map_err(|_| damaged())?;
    let mut body = Vec::with_capacity(length);
    file.take(front.body_length).read_to_end(&mut body)?;
    if body.len() != length || digest(&[&body]) != front.body_digest {
        return Err(damaged());
    }
    Ok((front, body.into()))
}
