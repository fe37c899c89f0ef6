//! Texts of settings: templates, regexes, paths, names of headers.

use gateway_core::config::path_regex_in_request_spelling;
use gateway_core::config::problem::Problems;
use gateway_core::http::path::in_request_spelling;
use gateway_core::template::{Moment, Template};
use http::HeaderName;
use regex::Regex;

/// Bytes a compiled regex may take.
const MAX_REGEX: usize = 1 << 20;

/// Reads a template that is rendered at `moment`.
pub fn template(path: &str, text: &str, moment: Moment, problems: &mut Problems) -> Option<Template> {
    match Template::parse(text, moment) {
        Ok(template) => Some(template),
        Err(error) => {
            problems.add(path, error.message).remedy = Some(error.remedy);
            None
        }
    }
}

/// Whether a text is a host with or without a port, and nothing else.
pub fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, after)) if host.parse::<std::net::Ipv6Addr>().is_ok() => ("v6", after),
            _ => return false,
        },
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_port = |port: &str| {
        port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    !host.is_empty()
        && host.bytes().all(is_name)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Reads the name of a header field.
pub fn header_name(path: &str, name: &str, problems: &mut Problems) -> Option<HeaderName> {
    let read = HeaderName::from_bytes(name.as_bytes()).ok();
    if read.is_none() {
        problems.add(path, format!("`{name}` is not a valid header name"));
    }
    read
}

/// Reads a regex over paths: what it says of characters that are percent-encoded in requests, it says of their encoded form.
pub fn path_regex(path: &str, text: &str, problems: &mut Problems) -> Option<Regex> {
    regex(path, &path_regex_in_request_spelling(text), problems)
}

/// Reads a path, or the beginning of one, into the spelling of requests when plugins see them.
pub fn request_path(path: &str, text: &str, problems: &mut Problems) -> Option<String> {
    match in_request_spelling(text) {
        Ok(spelled) => Some(spelled),
        Err(error) => {
            problems.add(path, format!("`{text}`: {error}")).remedy =
                Some("write `%20` for a space and `%25` for a percent sign".into());
            None
        }
    }
}

/// Reads a regex, whose size is limited.
pub fn regex(path: &str, text: &str, problems: &mut Problems) -> Option<Regex> {
    match regex::RegexBuilder::new(text).size_limit(MAX_REGEX).build() {
        Ok(regex) => Some(regex),
        Err(error) => {
            problems.add(path, format!("this is not a regex: {error}"));
            None
        }
    }
}

/// Reads a regex over bytes, whose size is limited.
pub fn byte_regex(path: &str, text: &str, problems: &mut Problems) -> Option<regex::bytes::Regex> {
    match regex::bytes::RegexBuilder::new(text).size_limit(MAX_REGEX).build() {
        Ok(regex) => Some(regex),
        Err(error) => {
            problems.add(path, format!("this is not a regex: {error}"));
            None
        }
    }
}

/// Whether this is one of the usual methods in other letters, which no request has: methods are case-sensitive (RFC 9110 §9.1).
pub fn has_other_case(method: &str) -> bool {
    const USUAL: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    USUAL.iter().any(|usual| *usual != method && usual.eq_ignore_ascii_case(method))
}
