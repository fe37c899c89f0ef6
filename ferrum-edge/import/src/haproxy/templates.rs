//! HAProxy's texts with samples as the gateway's templates.

/// `\1` as `${1}`.
pub(super) fn groups(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' if rest.peek().is_some_and(char::is_ascii_digit) => {
                made.push_str("${");
                made.extend(rest.next());
                made.push('}');
            }
            '$' => made.push_str("$$"),
            c => made.push(c),
        }
    }
    made
}

/// A text with HAProxy's `%[…]` as one with ours; `None` when one of them has no counterpart.
pub(super) fn template(text: &str) -> Option<String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        made.push_str(&before.replace('$', "$$"));
        if let Some(after) = after.strip_prefix('%') {
            made.push('%');
            rest = after;
            continue;
        }
        let (fetch, tail) = after.strip_prefix('[')?.split_once(']')?;
        made.push_str(&format!("${{{}}}", variable(fetch)?));
        rest = tail;
    }
    made.push_str(&rest.replace('$', "$$"));
    Some(made)
}

fn variable(fetch: &str) -> Option<String> {
    let (name, argument) =
        fetch.split_once('(').map_or((fetch, ""), |(name, rest)| (name, rest.trim_end_matches(')')));
    let known = match name {
        "src" => "client.address",
        "src_port" => "client.port",
        "dst" => "server.address",
        "dst_port" => "server.port",
        "path" => "request.path",
        "query" => "request.query",
        "url" | "capture.req.uri" | "pathq" => "request.target",
        "method" | "capture.req.method" => "request.method",
        "uuid" | "unique-id" => "request.id",
        "ssl_fc_sni" => "tls.server_name",
        "ssl_fc_protocol" => "tls.version",
        "ssl_fc_cipher" => "tls.cipher",
        "ssl_c_s_dn" if argument.is_empty() => "tls.client.subject",
        "ssl_c_s_dn" if argument == "cn" || argument == "CN" => "tls.client.common_name",
        "hdr" | "req.hdr" | "req.fhdr" if argument.eq_ignore_ascii_case("host") => "request.authority",
        "hdr" | "req.hdr" | "req.fhdr" if !argument.is_empty() && !argument.contains(',') => {
            return Some(format!("request.header.{}", argument.to_ascii_lowercase()));
        }
        "url_param" | "urlp" if !argument.is_empty() => return Some(format!("request.query.{argument}")),
        "cook" | "req.cook" if !argument.is_empty() => return Some(format!("request.cookie.{argument}")),
        _ => return None,
    };
    Some(known.to_owned())
}
