//! Bodies to named values: forms, multipart, JSON and XML.
//!
//! Each reader takes time in proportion to the body, and stops at the limits of [`Limits`](crate::Limits). What it can't read is
//! an error: a body that two readers could take for different things is not passed on as if it had been understood.

pub(crate) mod form;
pub(crate) mod graphql;
pub(crate) mod json;
pub(crate) mod multipart;
pub(crate) mod protobuf;
pub(crate) mod text;
pub(crate) mod xml;

/// How a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `multipart/form-data`.
    Multipart,
    /// JSON.
    Json,
    /// XML.
    Xml,
    /// Messages of gRPC-Web, in Base64 or as they are.
    GrpcWeb,
    /// Text of no known kind: JSON where it is JSON, else one argument. Only rules choose it.
    Text,
    /// JSON where it is JSON, else nothing: a media type does not keep a target from reading it so. Only rules choose it.
    Guess,
}

impl Processor {
    /// Its name in rules.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Form => "URLENCODED",
            Self::Multipart => "MULTIPART",
            Self::Json => "JSON",
            Self::Xml => "XML",
            Self::GrpcWeb => "GRPCWEB",
            Self::Text => "TEXT",
            Self::Guess => "GUESS",
        }
    }

    /// The reader of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Form, Self::Multipart, Self::Json, Self::Xml, Self::GrpcWeb, Self::Text, Self::Guess]
            .into_iter()
            .find(|it| it.name().eq_ignore_ascii_case(name))
    }

    /// The reader for a media type.
    pub fn for_content_type(content_type: &[u8]) -> Option<Self> {
        let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let essence = String::from_utf8_lossy(essence).trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Some(Self::Form),
            // Some frameworks read both as forms.
            "multipart/form-data" | "multipart/mixed" => Some(Self::Multipart),
            "text/xml" | "application/xml" | "application/soap+xml" => Some(Self::Xml),
            "application/json"
            | "application/x-json"
            | "text/json"
            | "text/x-json"
            | "application/csp-report" => Some(Self::Json),
            other if other.starts_with("application/grpc-web") => Some(Self::GrpcWeb),
            other if other.ends_with("+json") => Some(Self::Json),
            other if other.ends_with("+xml") => Some(Self::Xml),
            _ => None,
        }
    }
}

/// What a body holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Argument,
    /// A file: its field's name and its own.
    File,
    /// A line of a part's head, under the part's name.
    PartHeader,
    Text,
    Attribute,
}

/// Takes what a reader finds.
pub(crate) trait Sink {
    /// One value with its name. `false`: there are too many.
    fn take(&mut self, kind: ItemKind, name: &[u8], value: &[u8]) -> bool;

    /// A file of this size was there.
    fn file_size(&mut self, bytes: usize) {
        let _ = bytes;
    }
}

/// Why a body can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable(pub(crate) &'static str);

/// There are more values than may be.
pub(crate) const TOO_MANY: Unreadable = Unreadable("there are too many arguments");

/// For tests: what was found, as text.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Collected(pub(crate) Vec<(ItemKind, String, String)>);

#[cfg(test)]
impl Sink for Collected {
    fn take(&mut self, kind: ItemKind, name: &[u8], value: &[u8]) -> bool {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.0.push((kind, text(name), text(value)));
        self.0.len() < 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever comes, readers end with values or an error, and take no more values than they may.
    #[test]
    fn readers_take_whatever_comes() {
        let pieces: [&[u8]; 40] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b"\"",
            b"\\",
            b"\\u00",
            b"\\ud800",
            b":",
            b",",
            b"1",
            b"-",
            b"e",
            b"null",
            b"true",
            b" ",
            b"<",
            b">",
            b"</",
            b"/>",
            b"<a",
            b"a",
            b"=",
            b"'",
            b"<!--",
            b"-->",
            b"<![CDATA[",
            b"]]>",
            b"<?",
            b"?>",
            b"&lt;",
            b"&",
            b"%",
            b"+",
            b"\r\n",
            b"--B",
            b"--",
            b"Content-Disposition: form-data; name=\"a\"",
            b"\xff",
            b"\0",
        ];
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for _ in 0..20_000 {
            let length = next(24);
            let body: Vec<u8> = (0..length).flat_map(|_| pieces[next(pieces.len())]).copied().collect();
            for reader in 0..6 {
                let mut found = Collected::default();
                let read = match reader {
                    0 => form::read(&body, &mut found),
                    1 => json::read(&body, 8, &mut found),
                    2 => xml::read(&body, 8, &mut found),
                    3 => text::read(&body, 8, &mut found),
                    4 => {
                        let whole = graphql::strings(&body, &mut found);
                        whole.then_some(()).ok_or(TOO_MANY)
                    }
                    _ => multipart::read(&body, b"B", 8, &mut found),
                };
                let bytes: usize = found.0.iter().map(|(_, _, value)| value.len()).sum();
                // Bytes that are not UTF-8 are three each in the collected text.
                assert!(bytes <= body.len() * 3, "{reader} makes {bytes} of {body:?}: {read:?}");
            }
        }
    }

    #[test]
    fn content_types_choose_the_reader() {
        for (kind, reader) in [
            ("application/JSON; charset=utf-8", Some(Processor::Json)),
            ("application/problem+json", Some(Processor::Json)),
            ("application/atom+xml", Some(Processor::Xml)),
            ("text/xml", Some(Processor::Xml)),
            ("Multipart/Form-Data; boundary=x", Some(Processor::Multipart)),
            ("application/x-www-form-urlencoded", Some(Processor::Form)),
            ("text/json;charset=utf-8", Some(Processor::Json)),
            ("multipart/mixed; boundary=x", Some(Processor::Multipart)),
            ("application/grpc-web+proto", Some(Processor::GrpcWeb)),
            ("text/plain", None),
        ] {
            assert_eq!(Processor::for_content_type(kind.as_bytes()), reader, "{kind}");
        }
    }
}
