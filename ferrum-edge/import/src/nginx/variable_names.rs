//! What the gateway's templates call nginx's variables.

/// What stands behind the group of `$request_uri` that the query is a part of.
pub(super) const WITH_QUERY: char = '\u{1}';

/// Whether a text names a variable of this kind.
pub(super) fn names(text: &str, is: &dyn Fn(&str) -> bool) -> bool {
    pieces(text).iter().any(|piece| matches!(piece, ValuePiece::Variable(name) if is(name)))
}

/// The gateway's name for a variable of nginx.
pub(super) fn ours(name: &str) -> Option<String> {
    let known = match name {
        "host" => "request.host",
        "content_type" => "request.header.content-type",
        "content_length" => "request.header.content-length",
        "http_host" => "request.authority",
        "request_uri" => "request.target",
        "uri" | "document_uri" => "request.path",
        "args" | "query_string" => "request.query",
        "scheme" => "request.scheme",
        "request_method" => "request.method",
        "request_id" => "request.id",
        // In its binary form it stands in keys alone.
        "remote_addr" | "binary_remote_addr" => "client.address",
        "remote_port" => "client.port",
        "remote_user" => "identity.name",
        "server_port" => "server.port",
        "server_addr" => "server.address",
        "server_protocol" => "request.version",
        "ssl_protocol" => "tls.version",
        "ssl_cipher" => "tls.cipher",
        "ssl_server_name" => "tls.server_name",
        "ssl_client_s_dn" => "tls.client.subject",
        "upstream_addr" => "target.authority",
        "status" => "response.status",
        _ => {
            let family = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
            if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
                return Some(format!("capture.{name}"));
            }
            if let Some(group) = family("path_group_") {
                return Some(format!("capture.{group}"));
            }
            let header = family("http_").map(|name| format!("request.header.{}", name.replace('_', "-")));
            let query = || family("arg_").map(|name| format!("request.query.{name}"));
            let cookie = || family("cookie_").map(|name| format!("request.cookie.{name}"));
            let sent =
                || family("upstream_http_").map(|name| format!("response.header.{}", name.replace('_', "-")));
            return header.or_else(query).or_else(cookie).or_else(sent);
        }
    };
    Some(known.to_owned())
}

/// A piece of a text.
pub(super) enum ValuePiece<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// A text cut at its variables.
pub(super) fn pieces(text: &str) -> Vec<ValuePiece<'_>> {
    let mut made = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        if !before.is_empty() {
            made.push(ValuePiece::Text(before));
        }
        let after = after.get(1..).unwrap_or_default();
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let (name, tail) = match braced {
            Some(pair) => pair,
            None => {
                // A group of a regex has one digit.
                let group = after.bytes().next().is_some_and(|b| b.is_ascii_digit());
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                after.split_at(if group { 1 } else { end })
            }
        };
        made.push(ValuePiece::Variable(name));
        rest = tail;
    }
    if !rest.is_empty() || made.is_empty() {
        made.push(ValuePiece::Text(rest));
    }
    made
}
