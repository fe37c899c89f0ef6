//! A request written once; only its stamp and its body change.

use crate::driver::{Pattern, Stamp};
use crate::plan::{Method, Plan};

/// The name of the header in which a request without a body carries its stamp.
pub(super) const STAMP_HEADER: &str = "x-bench-stamp";

/// The prepared request.
#[derive(Debug)]
pub(super) struct Template {
    bytes: Vec<u8>,
    body_at: usize,
    stamp_at: Option<usize>,
}

impl Template {
    pub(super) fn new(plan: &Plan, payload: usize) -> Self {
        let method = plan.message.method;
        let mut text = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\n",
            method.name(),
            plan.target.path,
            plan.target.authority()
        );
        for (name, value) in &plan.message.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut stamp_at = None;
        let fixed = plan.message.body.as_ref().filter(|_| method == Method::Post);
        if method == Method::Post {
            text.push_str(&format!("content-length: {}\r\n", fixed.map_or(payload, |body| body.len())));
        }
        if method == Method::Get || fixed.is_some() {
            text.push_str(&format!("{STAMP_HEADER}: "));
            stamp_at = Some(text.len());
            text.push_str(&format!("{}\r\n", "0".repeat(Stamp::LENGTH * 2)));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(fixed.map_or(&[], |body| body));
        let body_at = bytes.len();
        bytes.resize(body_at + payload, 0);
        Self { bytes, body_at, stamp_at }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes a copy of the request this stamp's request.
    pub(super) fn patch(&self, request: &mut [u8], stamp: Stamp, pattern: &Pattern) {
        if let Some(at) = self.stamp_at {
            request[at..at + Stamp::LENGTH * 2].copy_from_slice(&stamp.hex());
        }
        pattern.write(stamp, &mut request[self.body_at..]);
    }
}
