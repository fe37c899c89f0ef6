//! What is inspected, as the caller has it.

use std::net::IpAddr;

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a [u8],
    /// Path and query as they were sent.
    pub target: &'a [u8],
    /// `HTTP/1.1`.
    pub version: &'a str,
    /// Header fields in order.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// The client's address.
    pub client: IpAddr,
    /// The request's id, for rules that sample.
    pub unique_id: &'a [u8],
}

/// The head of a response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: u16,
    /// `HTTP/1.1`.
    pub version: &'a str,
    /// Header fields in order.
    pub headers: &'a [(&'a [u8], &'a [u8])],
}
