//! Which of several things a client would rather have (RFC 9110 §12.4.2, quality values).

use http::{HeaderMap, HeaderName};

/// Members of one field that are read; what goes beyond is ignored.
const MAX_MEMBERS: usize = 64;

/// How much the client wants the best match of `wanted` among the members of a field, in thousandths: 1000 is most, 0 is
/// not at all. `rank` says how exactly a member matches; zero is no match. `None` where no member matches.
pub fn quality(headers: &HeaderMap, field: HeaderName, rank: impl Fn(&str) -> u8) -> Option<u16> {
    let values = headers.get_all(field).into_iter().filter_map(|value| value.to_str().ok());
    let members = values.flat_map(|value| value.split(',')).take(MAX_MEMBERS);
    let mut best: Option<(u8, u16)> = None;
    for member in members {
        let (name, parameters) = member.split_once(';').unwrap_or((member, ""));
        let rank = rank(name.trim());
        if rank > 0 && best.is_none_or(|(known, _)| rank > known) {
            best = Some((rank, weight(parameters)));
        }
    }
    best.map(|(_, weight)| weight)
}

/// The `q` among parameters, in thousandths; one that is malformed counts as zero, so that nothing is sent that may not
/// be wanted.
fn weight(parameters: &str) -> u16 {
    let q = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(q) = q else { return 1000 };
    match q.parse::<f32>() {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 to 1000")]
        Ok(value) if (0.0..=1.0).contains(&value) => (value * 1000.0).round() as u16,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::ACCEPT_ENCODING;

    use super::*;

    #[test]
    fn weights() {
        let exact = |name: &str| match name {
            "gzip" => 2,
            "*" => 1,
            _ => 0,
        };
        for (text, expected) in [
            ("gzip", Some(1000)),
            ("gzip;q=0.5", Some(500)),
            ("gzip ; Q=0", Some(0)),
            ("*;q=0.3, gzip;q=0.7", Some(700)),
            ("*;q=0.3", Some(300)),
            ("br", None),
            ("gzip;q=nan", Some(0)),
            ("gzip;q=7", Some(0)),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(quality(&headers, ACCEPT_ENCODING, exact), expected, "{text}");
        }
    }
}
