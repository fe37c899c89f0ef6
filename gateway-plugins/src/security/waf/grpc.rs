//! Messages of gRPC calls through the rules: each is read whole, inspected, and goes on; calls stay streams.

use std::collections::VecDeque;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use gateway_core::http::body::{Body, BodyError, GrpcPrefix};
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_waf::{Exclusion, Transaction};
use http_body::{Body as HttpBody, Frame};

use super::Firewall;
use super::settings::{Mode, OnTrouble};

/// Messages that are larger than this, or compressed, are inspected on another thread.
const LARGE: usize = 2 << 10;

/// How messages are compressed, by `grpc-encoding`.
#[derive(Clone, Copy)]
enum Coding {
    Gzip,
    /// zlib's format.
    Deflate,
    Unknown,
}

/// What comes of one message.
type Judged = Pin<Box<dyn Future<Output = Result<Bytes, BodyError>> + Send>>;

struct Messages {
    body: Body,
    firewall: Arc<Firewall>,
    exclusions: Arc<Vec<Exclusion>>,
    coding: Coding,
    /// What has come of the next message.
    rest: BytesMut,
    /// Bytes of a message that goes on without inspection.
    passing: usize,
    /// It is not gRPC, and goes on as it comes.
    is_malformed: bool,
    judged: Option<Judged>,
    out: VecDeque<Frame<Bytes>>,
    ended: bool,
}

impl Firewall {
    /// The body of this call, which is inspected while it passes.
    pub(super) fn watch_messages(self: &Arc<Self>, exchange: &mut Exchange) -> Body {
        let coding = match exchange.request.headers.get("grpc-encoding").map(|it| it.as_bytes()) {
            Some(b"gzip") => Coding::Gzip,
            Some(b"deflate") => Coding::Deflate,
            _ => Coding::Unknown,
        };
        Body::stream(Messages {
            exclusions: Arc::new(self.policy.exclusions_of(exchange)),
            body: std::mem::take(&mut exchange.body),
            firewall: self.clone(),
            coding,
            rest: BytesMut::new(),
            passing: 0,
            is_malformed: false,
            judged: None,
            out: VecDeque::new(),
            ended: false,
        })
    }

    /// A message that can't be inspected passes, or ends the call.
    fn uninspected(&self, on: OnTrouble, cause: Cause) -> Result<(), BodyError> {
        if on == OnTrouble::Reject && self.policy.mode == Mode::Block {
            self.outcomes.refused.add(1);
            return Err(BodyError::Refused(Box::new(Reply::new(cause))));
        }
        self.outcomes.partial.add(1);
        Ok(())
    }

    fn message_transaction(&self, exclusions: &[Exclusion]) -> Transaction {
        let mut transaction = self.transaction();
        exclusions.iter().for_each(|exclusion| transaction.exclude(exclusion));
        transaction
    }

    fn judge(&self, transaction: Transaction) -> Result<(), BodyError> {
        if self.takes_message(transaction) {
            return Ok(());
        }
        Err(BodyError::Refused(Box::new(self.refusal())))
    }

    /// Inspects a message on another thread.
    async fn judge_apart(
        self: Arc<Self>,
        exclusions: Arc<Vec<Exclusion>>,
        message: Bytes,
        coding: Option<Coding>,
    ) -> Result<Bytes, BodyError> {
        let mut transaction = self.message_transaction(&exclusions);
        let (read, limit) = (message.slice(GrpcPrefix::BYTES..), self.policy.body.max_size);
        let ran = self.world.run_blocking(move || {
            let opened = match coding {
                None => Decompressed::Whole(read.to_vec()),
                Some(coding) => open(&read, coding, limit),
            };
            if let Decompressed::Whole(payload) = &opened {
                transaction.grpc_message(payload);
            }
            (transaction, opened)
        });
        match ran.await {
            Ok((transaction, Decompressed::Whole(_))) => self.judge(transaction)?,
            Ok((_, Decompressed::TooLarge)) => {
                self.uninspected(self.policy.body.over_limit, Cause::BodyTooLarge)?;
            }
            Ok((_, Decompressed::Not)) => self.uninspected(self.policy.body.encoded, Cause::BadRequest)?,
            // With every thread busy it can't be looked at, and does not go on.
            Err(_) => self.uninspected(OnTrouble::Reject, Cause::Overloaded)?,
        }
        Ok(message)
    }
}

/// A message without its compression.
enum Decompressed {
    Whole(Vec<u8>),
    TooLarge,
    Not,
}

fn open(message: &[u8], coding: Coding, limit: u64) -> Decompressed {
    let mut out = Vec::new();
    let read = match coding {
        Coding::Gzip => flate2::read::MultiGzDecoder::new(message).take(limit + 1).read_to_end(&mut out),
        Coding::Deflate => flate2::read::ZlibDecoder::new(message).take(limit + 1).read_to_end(&mut out),
        Coding::Unknown => return Decompressed::Not,
    };
    match read {
        Ok(_) if out.len() as u64 > limit => Decompressed::TooLarge,
        Ok(_) => Decompressed::Whole(out),
        Err(_) => Decompressed::Not,
    }
}

impl Messages {
    /// Goes on without looking at what is no gRPC, or ends the call.
    fn pass_malformed(&mut self) -> Result<(), BodyError> {
        self.firewall.uninspected(self.firewall.policy.body.malformed, Cause::BadRequest)?;
        self.is_malformed = true;
        Ok(())
    }

    /// Goes on with what has come. `false`: more is needed.
    fn advance(&mut self) -> Result<bool, BodyError> {
        if self.is_malformed {
            let rest = self.rest.split().freeze();
            let has_come = !rest.is_empty();
            if has_come {
                self.out.push_back(Frame::data(rest));
            }
            return Ok(has_come);
        }
        if self.passing > 0 {
            let piece = self.rest.split_to(self.passing.min(self.rest.len())).freeze();
            self.passing -= piece.len();
            let has_come = !piece.is_empty();
            if has_come {
                self.out.push_back(Frame::data(piece));
            }
            return Ok(has_come);
        }
        let prefix = match GrpcPrefix::read(&self.rest, u64::MAX) {
            Ok(Some(prefix)) => prefix,
            Ok(None) => return Ok(false),
            Err(_) => {
                self.pass_malformed()?;
                return Ok(true);
            }
        };
        let whole = prefix.length.saturating_add(GrpcPrefix::BYTES);
        if prefix.length as u64 > self.firewall.policy.body.max_size {
            self.firewall.uninspected(self.firewall.policy.body.over_limit, Cause::BodyTooLarge)?;
            self.passing = whole;
            return Ok(true);
        }
        if self.rest.len() < whole {
            return Ok(false);
        }
        let message = self.rest.split_to(whole).freeze();
        if prefix.compressed || whole > LARGE {
            let coding = prefix.compressed.then_some(self.coding);
            let judged = self.firewall.clone().judge_apart(self.exclusions.clone(), message, coding);
            self.judged = Some(Box::pin(judged));
        } else {
            let mut transaction = self.firewall.message_transaction(&self.exclusions);
            transaction.grpc_message(message.get(GrpcPrefix::BYTES..).unwrap_or_default());
            self.firewall.judge(transaction)?;
            self.out.push_back(Frame::data(message));
        }
        Ok(true)
    }

    fn take(&mut self, frame: Option<Frame<Bytes>>) -> Result<(), BodyError> {
        let data = frame.map(Frame::into_data);
        if !matches!(data, Some(Ok(_))) && (self.rest.has_remaining() || self.passing > 0) {
            self.pass_malformed()?;
            self.passing = 0;
            let rest = self.rest.split().freeze();
            self.out.extend(Some(rest).filter(|rest| !rest.is_empty()).map(Frame::data));
        }
        match data {
            Some(Ok(data)) => self.rest.extend_from_slice(&data),
            Some(Err(trailers)) => self.out.push_back(trailers),
            None => self.ended = true,
        }
        Ok(())
    }
}

impl HttpBody for Messages {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(frame) = this.out.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            let step = if let Some(judged) = &mut this.judged {
                let judged = ready!(judged.as_mut().poll(cx));
                this.judged = None;
                judged.map(|message| this.out.push_back(Frame::data(message)))
            } else {
                match this.advance() {
                    Ok(true) => Ok(()),
                    Ok(false) => match ready!(this.body.poll_next(cx)).transpose() {
                        Ok(frame) => this.take(frame),
                        Err(error) => Err(error),
                    },
                    Err(error) => Err(error),
                }
            };
            if let Err(error) = step {
                this.ended = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}
