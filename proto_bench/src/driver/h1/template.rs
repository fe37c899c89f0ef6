//! A request written once; only its stamps and its body change.

use crate::driver::{Pattern, Stamp};
use crate::plan::{Method, Plan, STAMP_MARK};

/// The name of the header in which a request without a body carries its stamp.
pub(super) const STAMP_HEADER: &str = "x-bench-stamp";

/// The prepared request.
#[derive(Debug)]
pub(super) struct Template {
    bytes: Vec<u8>,
    /// Where the stamped bytes begin.
    body_at: usize,
    /// Where the body begins that is the message's own.
    fixed_at: Option<usize>,
    stamps: Vec<usize>,
}

/// Bytes with places for stamps.
#[derive(Default)]
struct Marked {
    bytes: Vec<u8>,
    stamps: Vec<usize>,
    varied: bool,
}

impl Template {
    pub(super) fn new(plan: &Plan, payload: usize) -> Self {
        let method = plan.message.method;
        let varied = plan.message.varied;
        let fixed = plan.message.body.as_ref().filter(|_| method == Method::Post);
        let mut body = Marked { varied, ..Marked::default() };
        body.push(fixed.map_or(&[], |body| body));
        let mut head = Marked { varied, ..Marked::default() };
        head.push(format!("{} {} HTTP/1.1\r\n", method.name(), plan.target.path).as_bytes());
        head.push(format!("host: {}\r\n", plan.target.authority()).as_bytes());
        for (name, value) in &plan.message.headers {
            head.push(format!("{name}: {value}\r\n").as_bytes());
        }
        if method == Method::Post {
            let length = if fixed.is_some() { body.bytes.len() } else { payload };
            head.push(format!("content-length: {length}\r\n").as_bytes());
        }
        if method == Method::Get || fixed.is_some() {
            head.push(format!("{STAMP_HEADER}: ").as_bytes());
            head.stamp();
            head.push(b"\r\n");
        }
        head.push(b"\r\n");
        let (fixed_at, mut bytes, mut stamps) = (fixed.map(|_| head.bytes.len()), head.bytes, head.stamps);
        stamps.extend(body.stamps.iter().map(|at| bytes.len() + at));
        bytes.extend_from_slice(&body.bytes);
        let body_at = bytes.len();
        bytes.resize(body_at + payload, 0);
        Self { bytes, body_at, fixed_at, stamps }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes a copy of the request this stamp's request.
    pub(super) fn patch(&self, request: &mut [u8], stamp: Stamp, pattern: &Pattern) {
        for at in &self.stamps {
            request[*at..*at + Stamp::LENGTH * 2].copy_from_slice(&stamp.hex());
        }
        pattern.write(stamp, &mut request[self.body_at..]);
    }

    /// The body of a copy of the request, where it is the message's own.
    pub(super) fn fixed_body<'a>(&self, request: &'a [u8]) -> Option<&'a [u8]> {
        self.fixed_at.map(|at| &request[at..])
    }
}

impl Marked {
    /// Appends bytes, with a stamp for each mark if they are varied.
    fn push(&mut self, mut part: &[u8]) {
        let mark = STAMP_MARK.as_bytes();
        while let Some(at) = part.windows(mark.len()).position(|piece| self.varied && piece == mark) {
            self.bytes.extend_from_slice(&part[..at]);
            self.stamp();
            part = &part[at + mark.len()..];
        }
        self.bytes.extend_from_slice(part);
    }

    fn stamp(&mut self) {
        self.stamps.push(self.bytes.len());
        self.bytes.extend_from_slice(&[b'0'; Stamp::LENGTH * 2]);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bytes::Bytes;

    use super::*;
    use crate::plan::{Protocol, Target};

    fn request(varied: bool) -> (Template, String) {
        let target = Target::at(Protocol::Http1, false, SocketAddr::from(([127, 0, 0, 1], 80)));
        let mut plan = Plan::new(target.with_path("/a?b={stamp}"));
        plan.message.headers.push(("cookie".to_owned(), "c={stamp}; d={stamp}".to_owned()));
        plan.message.body = Some(Bytes::from_static(b"e={stamp}&f=g"));
        plan.message.varied = varied;
        let template = Template::new(&plan, 0);
        let mut bytes = template.bytes().to_vec();
        let stamp = Stamp { connection: 1, lane: 0, sequence: 0x2A };
        template.patch(&mut bytes, stamp, &Pattern::new(0));
        (template, String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn a_varied_message_has_the_stamp_wherever_it_is_marked() {
        let (template, text) = request(true);
        let stamp = "2a0000000000b75a0100000000000000";
        let right = format!(
            "POST /a?b={stamp} HTTP/1.1\r\nhost: localhost:80\r\ncookie: c={stamp}; d={stamp}\r\ncontent-length: 38\r\n\
             x-bench-stamp: {stamp}\r\n\r\ne={stamp}&f=g"
        );
        assert_eq!(text, right);
        assert_eq!(template.fixed_body(text.as_bytes()), Some(format!("e={stamp}&f=g").as_bytes()));
    }

    #[test]
    fn others_keep_what_looks_like_a_mark() {
        let (_, text) = request(false);
        assert!(text.contains("/a?b={stamp} ") && text.contains("content-length: 13\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\ne={stamp}&f=g"), "{text}");
    }
}
