//! What the gateway's templates call nginx's variables.

/// What stands behind the group of `$request_uri` that the query is a part of.
pub(super) const WITH_QUERY: char = '\u{1}';

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
        "remote_addr" => "client.address",
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
