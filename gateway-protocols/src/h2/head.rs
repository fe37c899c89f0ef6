//! From decoded fields to a message's head, and what makes it malformed (RFC 9113 §8).

use bytes::{Bytes, BytesMut};
use gateway_core::http::reply::Cause;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HeaderName, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, uri};

use super::Role;
use crate::hpack::{Field, Name, Value};

/// The `:protocol` of an extended CONNECT (RFC 8441), in a request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Protocol(pub(crate) Bytes);

/// Room in a request for what most have and what the gateway adds, so that the map doesn't grow on the way.
const REQUEST_FIELDS: usize = 12;
/// Room in a response.
const RESPONSE_FIELDS: usize = 6;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Why a head is malformed; for the log.
pub(crate) type Malformed = &'static str;

/// A head under construction.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    method: Option<Bytes>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    status: Option<Bytes>,
    protocol: Option<Bytes>,
    map: HeaderMap,
    cookies: usize,
    malformed: Option<Malformed>,
    /// More fields than a map can hold.
    pub(crate) overflow: bool,
}

/// A request's head.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) request: Request<()>,
    /// What its content-length says.
    pub(crate) length: Option<u64>,
}

impl Fields {
    pub(crate) fn new(role: Role) -> Self {
        let room = if role == Role::Server { REQUEST_FIELDS } else { RESPONSE_FIELDS };
        Self { map: HeaderMap::with_capacity(room), ..Self::default() }
    }

    /// Takes the next field.
    pub(crate) fn push(&mut self, field: Field) {
        let value = match field.value {
            Value::Text(text) => text,
            Value::Header(value) => match field.name {
                Name::Header(name) => return self.header(name, value),
                _ => return self.spoil("a field's name"),
            },
            Value::Bad => return self.spoil("a field's value"),
        };
        let place = match field.name {
            Name::Method => &mut self.method,
            Name::Scheme => &mut self.scheme,
            Name::Authority => &mut self.authority,
            Name::Path => &mut self.path,
            Name::Status => &mut self.status,
            Name::Protocol => &mut self.protocol,
            Name::Header(_) | Name::Bad(_) => return self.spoil("a field's name"),
        };
        let twice = place.replace(value).is_some();
        if twice || !self.map.is_empty() {
            self.spoil("a pseudo-header field twice or late");
        }
    }

    fn spoil(&mut self, why: Malformed) {
        self.malformed.get_or_insert(why);
    }

    fn header(&mut self, name: HeaderName, value: HeaderValue) {
        if is_of_connection(&name) || (name == TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers")) {
            self.spoil("a field of HTTP/1.1 connections");
        }
        self.cookies += usize::from(name == COOKIE);
        self.overflow |= self.map.try_append(name, value).is_err();
    }

    fn has_pseudo(&self) -> bool {
        let all = [&self.method, &self.scheme, &self.authority, &self.path, &self.status, &self.protocol];
        all.into_iter().any(Option::is_some)
    }

    /// A request's head.
    pub(crate) fn take_request(&mut self) -> Result<RequestHead, Malformed> {
        if let Some(why) = self.malformed {
            return Err(why);
        }
        if self.status.is_some() {
            return Err("a status in a request");
        }
        let method = self.method.take().ok_or("no method")?;
        let method = Method::from_bytes(&method).map_err(|_| "the method")?;
        let length = self.length()?;
        let uri = self.uri(&method)?;
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        if let Some(protocol) = self.protocol.take() {
            request.extensions_mut().insert(Protocol(protocol));
        }
        if self.cookies > 1 {
            self.join_cookies();
        }
        *request.headers_mut() = std::mem::take(&mut self.map);
        Ok(RequestHead { request, length })
    }

    fn uri(&mut self, method: &Method) -> Result<Uri, Malformed> {
        let mut parts = uri::Parts::default();
        let connect = *method == Method::CONNECT;
        let extended = self.protocol.is_some();
        if extended && !connect {
            return Err("a protocol without CONNECT");
        }
        if let Some(authority) = self.authority.take() {
            parts.authority = Some(Authority::from_maybe_shared(authority).map_err(|_| "the authority")?);
        }
        if connect && !extended {
            // RFC 9113 §8.5: the authority alone says where to.
            if parts.authority.is_none() || self.scheme.is_some() || self.path.is_some() {
                return Err("a CONNECT that is none");
            }
            return Uri::from_parts(parts).map_err(|_| "the target");
        }
        let scheme = self.scheme.take().ok_or("no scheme")?;
        let path = self.path.take().ok_or("no path")?;
        if path.is_empty() || (extended && parts.authority.is_none()) {
            return Err("no path or authority");
        }
        let form_fits = match &path[..] {
            [b'/', ..] => true,
            b"*" => *method == Method::OPTIONS,
            _ => false,
        };
        if !form_fits {
            return Err("the path");
        }
        let path = PathAndQuery::from_maybe_shared(path).map_err(|_| "the path")?;
        if parts.authority.is_some() {
            parts.scheme = Some(match &scheme[..] {
                b"http" => Scheme::HTTP,
                b"https" => Scheme::HTTPS,
                other => Scheme::try_from(other).map_err(|_| "the scheme")?,
            });
        }
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).map_err(|_| "the target")
    }

    /// RFC 9113 §8.2.3: crumbs are one cookie again before anyone else sees them.
    fn join_cookies(&mut self) {
        let mut joined = BytesMut::new();
        for crumb in self.map.get_all(COOKIE) {
            if !joined.is_empty() {
                joined.extend_from_slice(b"; ");
            }
            joined.extend_from_slice(crumb.as_bytes());
        }
        if let Ok(cookie) = HeaderValue::from_maybe_shared(joined.freeze()) {
            self.map.insert(COOKIE, cookie);
        }
    }

    /// A response's head, and what its content-length says.
    pub(crate) fn take_response(&mut self) -> Result<(Response<()>, Option<u64>), Malformed> {
        if let Some(why) = self.malformed {
            return Err(why);
        }
        let status = self.status.take().ok_or("no status")?;
        if self.has_pseudo() {
            return Err("a request's pseudo-header field in a response");
        }
        let status = StatusCode::from_bytes(&status).map_err(|_| "the status")?;
        let length = self.length()?;
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.version_mut() = Version::HTTP_2;
        *response.headers_mut() = std::mem::take(&mut self.map);
        Ok((response, length))
    }

    /// Trailers.
    pub(crate) fn take_trailers(&mut self) -> Result<HeaderMap, Malformed> {
        match self.malformed {
            Some(why) => Err(why),
            None if self.has_pseudo() => Err("a pseudo-header field in trailers"),
            None => Ok(std::mem::take(&mut self.map)),
        }
    }

    /// RFC 9113 §8.1.1: one number, or none.
    fn length(&self) -> Result<Option<u64>, Malformed> {
        let mut values = self.map.get_all(CONTENT_LENGTH).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let digits = value.as_bytes();
        if values.next().is_some() || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err("the content-length");
        }
        let length = value.to_str().ok().and_then(|text| text.parse().ok());
        length.map(Some).ok_or("the content-length")
    }
}

/// Fields of one HTTP/1.1 hop, which have no place here (RFC 9113 §8.2.2).
pub(crate) fn is_of_connection(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// Fields whose values are somebody's secret, never to be kept in a table others could probe (RFC 7541 §7.1.3).
pub(crate) fn is_secret(name: &HeaderName, value: &HeaderValue) -> bool {
    *name == header::AUTHORIZATION
        || *name == COOKIE
        || *name == SET_COOKIE
        || *name == PROXY_AUTHORIZATION
        || value.is_sensitive()
}

/// A request that was not understood, or will not be: what it is recorded as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) cause: Cause,
    /// Whether the client can still be answered; else its stream has been reset.
    pub(crate) answerable: bool,
}

#[cfg(test)]
mod tests;
