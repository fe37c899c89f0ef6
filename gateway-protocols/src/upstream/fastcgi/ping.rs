//! Health checks of FastCGI servers: a GET of a page such as `ping.path` of PHP-FPM. Only the status of its response matters.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::head;
use super::record::{self, Event, RecordReader, pair};
use crate::link::Link;

/// The status of `GET path`; `None` if the response is not valid FastCGI.
///
/// # Errors
/// The connection failed.
pub(crate) async fn ping(mut link: Link, path: &str) -> io::Result<Option<u16>> {
    let (mut request, mut pairs) = (Vec::with_capacity(256), Vec::with_capacity(256));
    for (name, value) in [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SCRIPT_NAME", path),
        ("SCRIPT_FILENAME", path),
        ("REQUEST_URI", path),
        ("QUERY_STRING", ""),
    ] {
        pair(&mut pairs, name.as_bytes(), value.as_bytes());
    }
    record::begin(&mut request, false);
    record::params(&mut request, &pairs);
    record::stdin(&mut request, 0);
    link.write_all(&request).await?;
    link.flush().await?;
    let (mut reader, mut buffer, mut output) = (RecordReader::default(), BytesMut::new(), BytesMut::new());
    loop {
        match reader.next(&mut buffer) {
            Ok(Event::Output(data)) => {
                output.extend_from_slice(&data);
                match head::response(&mut output) {
                    Ok(None) => {}
                    Ok(Some(head)) => return Ok(Some(head.response.status().as_u16())),
                    Err(_) => return Ok(None),
                }
            }
            Ok(Event::Error(_)) => {}
            Ok(Event::More) => {
                if link.read_buf(&mut buffer).await? == 0 {
                    return Ok(None);
                }
            }
            Ok(Event::End(_)) | Err(_) => return Ok(None),
        }
    }
}
