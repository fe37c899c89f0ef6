//! Files that the kernel sends, and what it can't send.

use std::future::poll_fn;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use gateway_core::http::body::FileBody;
use http_body::{Body as HttpBody, SizeHint};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::link::Link;

/// A file of zeros that says what is asked of it. `read` is what it yields where it is pulled.
struct File {
    file: Arc<OwnedFd>,
    at: u64,
    length: u64,
    read: Option<Bytes>,
}

const LENGTH: u64 = 3 << 20;
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

fn zeros(length: u64) -> File {
    let file = memfd_create("zeros", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, length).unwrap();
    File { file: Arc::new(file), at: 0, length: LENGTH, read: None }
}

impl FileBody for File {
    fn cached(&self) -> Option<FilePiece> {
        let length = (self.length - self.at).min(1 << 20);
        (length > 0).then(|| FilePiece { file: self.file.clone(), from: self.at, length })
    }

    fn advance(mut self: Pin<&mut Self>, bytes: u64) {
        self.at += bytes;
    }
}

impl HttpBody for File {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        let Some(bytes) = self.read.take() else { panic!("pulled at {}", self.at) };
        self.at += bytes.len() as u64;
        Poll::Ready(Some(Ok(http_body::Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length - self.at)
    }
}

/// What a client gets, and how the sending ended.
async fn sent(body: Body, frame: Frame) -> (Vec<u8>, Result<(), Stopped>, Sender) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, server) = tokio::join!(client, listener.accept());
    let (mut client, mut link) = (client.unwrap(), Link::Tcp(server.unwrap().0));
    let reading = tokio::spawn(async move {
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.unwrap();
        all
    });
    let mut sender = Sender::new(HEAD.to_vec(), body, frame);
    let end = poll_fn(|cx| sender.poll_send(cx, &mut link)).await;
    drop(link);
    (reading.await.unwrap(), end, sender)
}

#[tokio::test]
async fn the_kernel_sends_a_file_behind_the_head() {
    let body = Body::file(zeros(LENGTH));
    let meter = body.meter();
    let (got, end, sender) = sent(body, Frame::Length(LENGTH)).await;
    end.unwrap();
    assert!(got.starts_with(HEAD) && got[HEAD.len()..].iter().all(|byte| *byte == 0));
    assert_eq!((got.len() as u64 - HEAD.len() as u64, sender.sent, meter.bytes()), (LENGTH, LENGTH, LENGTH));
}

#[tokio::test]
async fn a_file_that_became_shorter_is_cut_off() {
    let (got, end, _) = sent(Body::file(zeros(LENGTH - 5)), Frame::Length(LENGTH)).await;
    assert!(matches!(end, Err(Stopped::Body(BodyError::Incomplete))));
    assert_eq!(got.len() as u64, HEAD.len() as u64 + LENGTH - 5);
}

/// What exceeds the limit is pulled, which ends the body.
#[tokio::test]
async fn a_limit_counts_what_the_kernel_sends() {
    let mut file = zeros(LENGTH);
    file.read = Some(Bytes::from_static(&[0; 2]));
    let body = Body::file(file).limited((2 << 20) + 1);
    let (got, end, _) = sent(body, Frame::Length(LENGTH)).await;
    assert!(matches!(end, Err(Stopped::Body(BodyError::TooLarge { .. }))));
    assert_eq!(got.len(), HEAD.len() + (2 << 20));
}

#[tokio::test]
async fn what_the_kernel_can_not_send_is_read() {
    let (read, mut write) = io::pipe().unwrap();
    write.write_all(b"never read").unwrap();
    let file =
        File { file: Arc::new(read.into()), at: 0, length: 4, read: Some(Bytes::from_static(b"text")) };
    let (got, end, _) = sent(Body::file(file), Frame::Length(4)).await;
    end.unwrap();
    assert_eq!(got, [HEAD, b"text"].concat());
}

#[tokio::test]
async fn chunks_are_read() {
    let mut file = zeros(4);
    (file.length, file.read) = (4, Some(Bytes::from_static(b"text")));
    let (got, end, _) = sent(Body::file(file), Frame::Chunked).await;
    end.unwrap();
    assert_eq!(got, [HEAD, b"4\r\ntext\r\n0\r\n\r\n"].concat());
}

/// Takes all that it is given, at once.
struct Greedy(u64);

impl Sink for Greedy {
    fn poll_write(&mut self, _: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn sends_files(&self) -> bool {
        true
    }

    fn poll_send_file(&mut self, _: &mut Context<'_>, piece: &FilePiece) -> Poll<io::Result<usize>> {
        self.0 += piece.length;
        Poll::Ready(Ok(usize::try_from(piece.length).unwrap()))
    }
}

#[tokio::test]
async fn a_large_file_leaves_turns_to_others() {
    let mut sender = Sender::new(HEAD.to_vec(), Body::file(zeros(LENGTH)), Frame::Length(LENGTH));
    let mut sink = Greedy(0);
    let polled = poll_fn(|cx| Poll::Ready(sender.poll_send(cx, &mut sink).is_pending())).await;
    assert_eq!((polled, sink.0), (true, 2 << 20));
    poll_fn(|cx| sender.poll_send(cx, &mut sink)).await.unwrap();
    assert_eq!((sink.0, sender.sent), (LENGTH, LENGTH));
}

/// A client that takes nothing is the one that is waited for.
#[tokio::test]
async fn a_client_that_takes_nothing_blocks_a_file() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, server) = tokio::join!(client, listener.accept());
    let mut link = Link::Tcp(server.unwrap().0);
    let mut file = zeros(1 << 30);
    file.length = 1 << 30;
    let mut sender = Sender::new(HEAD.to_vec(), Body::file(file), Frame::Length(1 << 30));
    let polled = poll_fn(|cx| Poll::Ready(sender.poll_send(cx, &mut link).is_pending())).await;
    assert!(polled && sender.is_blocked() && sender.moved());
    drop(client);
}
