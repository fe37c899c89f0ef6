//! Names of hosts, as routes are looked up by them.

use smallvec::SmallVec;

/// The longest host name there is (RFC 1035 §2.3.4); longer ones match as no host.
const MAX_HOST: usize = 253;

/// What `f` makes of a host's name in lower case, without port and trailing dot; empty when there is none, or one that is
/// too long to be a host.
pub fn host_name<T>(host: Option<&str>, f: impl FnOnce(&str) -> T) -> T {
    let mut lower = SmallVec::<[u8; 256]>::new();
    let name = host.map_or(&[][..], |host| clean_host(host, &mut lower));
    f(std::str::from_utf8(name).unwrap_or_default())
}

/// The host's name in lower case, without port and trailing dot; empty when it is too long to be one.
/// `lower` is only written to when the name has capitals.
pub(super) fn clean_host<'a>(host: &'a str, lower: &'a mut SmallVec<[u8; 256]>) -> &'a [u8] {
    let host = host.as_bytes();
    let end = if host.first() == Some(&b'[') {
        memchr::memchr(b']', host).map_or(host.len(), |bracket| bracket + 1)
    } else {
        memchr::memchr(b':', host).unwrap_or(host.len())
    };
    let name = &host[..end];
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.len() > MAX_HOST {
        return &[];
    }
    if !name.iter().any(u8::is_ascii_uppercase) {
        return name;
    }
    lower.extend_from_slice(name);
    lower.make_ascii_lowercase();
    lower
}
