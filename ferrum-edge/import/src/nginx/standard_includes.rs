//! The files that nginx and its packages install for `include`, for configurations that are imported without them.

use super::blocks::{Directive, parse};
use crate::report::At;

/// Names in `/etc/nginx`, with the text that nginx or Debian installs there.
const STANDARD: &[(&str, &str)] = &[
    ("fastcgi_params", FASTCGI_PARAMS),
    ("fastcgi.conf", FASTCGI_CONF),
    ("snippets/fastcgi-php.conf", FASTCGI_PHP),
    ("proxy_params", PROXY_PARAMS),
];

const FASTCGI_PARAMS: &str = "
fastcgi_param QUERY_STRING $query_string;
fastcgi_param REQUEST_METHOD $request_method;
fastcgi_param CONTENT_TYPE $content_type;
fastcgi_param CONTENT_LENGTH $content_length;
fastcgi_param SCRIPT_NAME $fastcgi_script_name;
fastcgi_param REQUEST_URI $request_uri;
fastcgi_param DOCUMENT_URI $document_uri;
fastcgi_param DOCUMENT_ROOT $document_root;
fastcgi_param SERVER_PROTOCOL $server_protocol;
fastcgi_param REQUEST_SCHEME $scheme;
fastcgi_param HTTPS $https if_not_empty;
fastcgi_param GATEWAY_INTERFACE CGI/1.1;
fastcgi_param SERVER_SOFTWARE nginx/$nginx_version;
fastcgi_param REMOTE_ADDR $remote_addr;
fastcgi_param REMOTE_PORT $remote_port;
fastcgi_param SERVER_ADDR $server_addr;
fastcgi_param SERVER_PORT $server_port;
fastcgi_param SERVER_NAME $server_name;
fastcgi_param REDIRECT_STATUS 200;
";
const FASTCGI_CONF: &str = "
fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
include fastcgi_params;
";
const FASTCGI_PHP: &str = "
fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
try_files $fastcgi_script_name =404;
set $path_info $fastcgi_path_info;
fastcgi_param PATH_INFO $path_info;
fastcgi_index index.php;
include fastcgi.conf;
";
const PROXY_PARAMS: &str = "
proxy_set_header Host $http_host;
proxy_set_header X-Real-IP $remote_addr;
proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
proxy_set_header X-Forwarded-Proto $scheme;
";

/// The directives of a file in nginx's own folder that every nginx has, all at the place that includes it. Other folders may have
/// another file of the name.
pub(super) fn directives(pattern: &str, at: At) -> Option<Vec<Directive>> {
    let name = pattern.strip_prefix("/etc/nginx/").unwrap_or(pattern);
    let (_, text) = STANDARD.iter().find(|(known, _)| *known == name)?;
    let mut made = Vec::new();
    for mut directive in parse(name, at.file, text).ok()? {
        match directive.arguments.first().filter(|_| directive.name == "include") {
            Some(inner) => made.extend(directives(inner, at)?),
            None => {
                directive.at = at;
                made.push(directive);
            }
        }
    }
    Some(made)
}
