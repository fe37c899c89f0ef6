//! The session cookie.
//!
//! Browsers share cookies between all ports of a host, so the cookie's name contains the port: two gateways on one machine have
//! separate sessions. With TLS, the prefix `__Host-` prevents other hosts of the same domain from setting the cookie.

use std::time::Duration;

use axum::http::header::{COOKIE, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue};

use super::sessions::Key;

fn name(headers: &HeaderMap, is_encrypted: bool) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let port = host.and_then(|host| host.port_u16()).unwrap_or(if is_encrypted { 443 } else { 80 });
    if is_encrypted { format!("__Host-ferrum-console-{port}") } else { format!("ferrum-console-{port}") }
}

/// The session that a request's cookie names.
pub(super) fn read(headers: &HeaderMap, is_encrypted: bool) -> Option<Key> {
    value(headers, &name(headers, is_encrypted))
}

/// Gives a browser the session, until the browser closes or the session ends.
pub(super) fn set(headers: &HeaderMap, is_encrypted: bool, key: &Key) -> Option<HeaderValue> {
    set_cookie(headers, is_encrypted, &key.text(), "")
}

/// Takes the session from a browser.
pub(super) fn clear(headers: &HeaderMap, is_encrypted: bool) -> Option<HeaderValue> {
    set_cookie(headers, is_encrypted, "", "; Max-Age=0")
}

/// The browser of a login under way, by a request's cookie.
pub(super) fn read_login(headers: &HeaderMap, is_encrypted: bool) -> Option<Key> {
    value(headers, &login_name(headers, is_encrypted))
}

/// Gives a browser the key of its logins under way. Browsers send it on the way back from the provider, too.
pub(super) fn set_login(
    headers: &HeaderMap,
    is_encrypted: bool,
    key: &Key,
    lasts: Duration,
) -> Option<HeaderValue> {
    let (name, key, seconds) = (login_name(headers, is_encrypted), key.text(), lasts.as_secs());
    let (path, secure) = place(is_encrypted);
    let line = format!("{name}={key}; Path={path}; HttpOnly; SameSite=Lax{secure}; Max-Age={seconds}");
    HeaderValue::from_str(&line).ok()
}

fn login_name(headers: &HeaderMap, is_encrypted: bool) -> String {
    format!("{}-login", name(headers, is_encrypted))
}

/// The path of a cookie, and whether it is for TLS alone.
fn place(is_encrypted: bool) -> (&'static str, &'static str) {
    if is_encrypted { ("/", "; Secure") } else { ("/console", "") }
}

fn value(headers: &HeaderMap, name: &str) -> Option<Key> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).and_then(|(_, value)| Key::parse(value))
}

fn set_cookie(headers: &HeaderMap, is_encrypted: bool, value: &str, end: &str) -> Option<HeaderValue> {
    let name = name(headers, is_encrypted);
    let (path, secure) = place(is_encrypted);
    HeaderValue::from_str(&format!("{name}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}{end}"))
        .ok()
}
