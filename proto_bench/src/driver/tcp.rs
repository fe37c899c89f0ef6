//! Raw TCP (or TLS): the payload goes out, the same number of bytes must come back.

use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::link::{Link, Linker};
use super::{Driver, Fault, Lane, NewConnection, Pattern, Stamp, VerifiedAnswer};
use crate::plan::Plan;

/// Opens byte streams.
pub struct Tcp {
    linker: Linker,
    pattern: Rc<Pattern>,
}

/// One connected stream.
pub struct Stream {
    link: Link,
    pattern: Rc<Pattern>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Tcp {
    /// Prepares what all connections of a thread share.
    ///
    /// # Errors
    /// What makes every connection impossible, such as an unreadable root certificate.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        Ok(Self { linker: Linker::new(plan)?, pattern: Rc::new(Pattern::new(plan.message.payload.max(1))) })
    }
}

impl Driver for Tcp {
    type Lane = Stream;

    async fn connect(&self) -> Result<NewConnection<Stream>, Fault> {
        let (link, negotiated) = self.linker.open().await?;
        let size = self.pattern.size();
        let stream = Stream {
            link,
            pattern: Rc::clone(&self.pattern),
            sent: vec![0; size],
            // One byte more than is due, so that a server that sends too much is seen.
            received: vec![0; size + 1],
        };
        Ok(NewConnection { lanes: vec![stream], negotiated })
    }
}

/// Payloads up to this size are sent before reading begins. Above it, both ends could block in writing while their
/// receive buffers are full, so larger ones are sent and received at once.
const WHOLE: usize = 64 * 1024;

impl Lane for Stream {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        self.pattern.write(stamp, &mut self.sent);
        let filled = if self.sent.len() <= WHOLE {
            self.link.write_all(&self.sent).await?;
            read_at_least(&mut self.link, &mut self.received, self.pattern.size()).await?
        } else {
            let (mut reading, mut writing) = tokio::io::split(&mut self.link);
            let send = async { writing.write_all(&self.sent).await.map_err(Fault::Io) };
            let receive = read_at_least(&mut reading, &mut self.received, self.pattern.size());
            tokio::try_join!(send, receive)?.1
        };
        if filled > self.pattern.size() {
            return Err(Fault::protocol("bytes after the answer"));
        }
        self.pattern.check(stamp, &self.received[..filled])?;
        Ok(VerifiedAnswer::message(filled))
    }
}

async fn read_at_least<R>(link: &mut R, buffer: &mut [u8], size: usize) -> Result<usize, Fault>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let mut filled = 0;
    while filled < size {
        match link.read(&mut buffer[filled..]).await? {
            0 => return Err(Fault::Closed),
            count => filled += count,
        }
    }
    Ok(filled)
}
