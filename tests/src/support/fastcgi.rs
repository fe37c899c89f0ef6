//! A scripted FastCGI server. Tests define each response, valid or invalid.

use std::collections::BTreeMap;

use super::wire::{Port, Wire};

pub(crate) const END_REQUEST: u8 = 3;
pub(crate) const STDOUT: u8 = 6;
pub(crate) const STDERR: u8 = 7;

/// A listening FastCGI server.
pub(crate) struct Responder {
    port: Port,
}

/// A connection from the gateway.
pub(crate) struct Conversation {
    pub(crate) wire: Wire,
}

/// A received request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) params: BTreeMap<String, String>,
    /// Whether the gateway keeps the connection open.
    pub(crate) keeps: bool,
    pub(crate) stdin: Vec<u8>,
}

impl Request {
    /// The value of a parameter; `-` if it is missing.
    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("-", String::as_str)
    }
}

/// A record.
pub(crate) fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a record's content");
    let mut bytes = vec![1, kind];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&[padding, 0]);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + usize::from(padding), 0);
    bytes
}

/// Output records with this text, then the end of the request.
pub(crate) fn answer(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in text.as_bytes().chunks(60_000) {
        bytes.extend(record(STDOUT, 1, piece, 0));
    }
    bytes.extend(record(STDOUT, 1, b"", 0));
    bytes.extend(end(0));
    bytes
}

/// The end of the request.
pub(crate) fn end(status: u8) -> Vec<u8> {
    record(END_REQUEST, 1, &[0, 0, 0, 0, status, 0, 0, 0], 0)
}

impl Responder {
    pub(crate) async fn listen() -> Self {
        Self { port: Port::listen(None).await }
    }

    /// The settings of a proxy for this server.
    pub(crate) fn backend(&self) -> String {
        format!(
            "backend_protocol: fastcgi, backend_host: 127.0.0.1, backend_port: {}",
            self.port.address.port()
        )
    }

    pub(crate) fn number(&self) -> u16 {
        self.port.address.port()
    }

    #[track_caller]
    pub(crate) fn accept(&self) -> impl Future<Output = Conversation> + '_ {
        let accepting = self.port.accept();
        async move { Conversation { wire: Wire::new(accepting.await) } }
    }

    /// Answers each request with `answer`, on a separate connection.
    pub(crate) fn serve(self, answer: impl Fn(Request) -> Vec<u8> + Send + Sync + 'static) -> u16 {
        let number = self.number();
        let answer = std::sync::Arc::new(answer);
        tokio::spawn(async move {
            loop {
                let talk = Conversation { wire: Wire::new_patient(self.port.accept_ever().await) };
                tokio::spawn(talk.carry_on(answer.clone()));
            }
        });
        number
    }
}

impl Conversation {
    /// Answers requests until the gateway closes the connection.
    async fn carry_on(mut self, answer: std::sync::Arc<impl Fn(Request) -> Vec<u8>>) {
        while let Some(request) = self.try_request().await {
            let keeps = request.keeps;
            if self.wire.try_send(answer(request)).await.is_err() || !keeps {
                return;
            }
        }
    }

    async fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            bytes.extend(self.wire.some(count - bytes.len()).await.ok()?);
        }
        Some(bytes)
    }

    /// The next record: its type and content.
    pub(crate) async fn record(&mut self) -> Option<(u8, Vec<u8>)> {
        let header = self.bytes(8).await?;
        assert_eq!((header[0], &header[2..4]), (1, &[0, 1][..]), "version and request");
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut content = self.bytes(length + usize::from(header[6])).await?;
        content.truncate(length);
        Some((header[1], content))
    }

    /// Reads a request up to the end of its parameters.
    pub(crate) async fn head(&mut self) -> Option<Request> {
        let (mut request, mut pairs) = (Request::default(), Vec::new());
        loop {
            match self.record().await? {
                (1, begin) => {
                    assert_eq!(begin[..2], [0, 1], "the role of a responder");
                    request.keeps = begin[2] == 1;
                }
                (4, content) if content.is_empty() => break,
                (4, content) => pairs.extend(content),
                other => panic!("{other:?} among the parameters"),
            }
        }
        let mut rest = &pairs[..];
        while !rest.is_empty() {
            let (name, value) = (length(&mut rest), length(&mut rest));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let known = request.params.insert(text(&rest[..name]), text(&rest[name..name + value]));
            assert_eq!(known, None, "{} twice", text(&rest[..name]));
            rest = &rest[name + value..];
        }
        Some(request)
    }

    /// Reads a whole request; `None` if the connection ends before it.
    pub(crate) async fn try_request(&mut self) -> Option<Request> {
        let mut request = self.head().await?;
        loop {
            match self.record().await? {
                (5, content) if content.is_empty() => return Some(request),
                (5, content) => request.stdin.extend(content),
                other => panic!("{other:?} in the input"),
            }
        }
    }

    pub(crate) async fn request(&mut self) -> Request {
        self.try_request().await.expect("a request")
    }
}

fn length(rest: &mut &[u8]) -> usize {
    let long = rest[0] & 0x80 != 0;
    let (length, size) = match long {
        false => (u32::from(rest[0]), 1),
        true => (u32::from_be_bytes([rest[0] & 0x7f, rest[1], rest[2], rest[3]]), 4),
    };
    *rest = &rest[size..];
    length as usize
}
