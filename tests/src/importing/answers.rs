//! What originals and the gateway answer by themselves and add to answers, and where requests go when a target is away.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

const DEFAULTS: &str =
    "defaults\n  mode http\n  timeout connect 2s\n  timeout client 5s\n  timeout server 5s\n";

#[tokio::test]
async fn nginx_fixed_answers_and_response_headers() {
    compare(Case {
        config: r#"
events {}
http {
    access_log off;
    add_header X-Everywhere yes;
    server {
        listen 127.0.0.1:@PORT@;
        location / { proxy_pass http://@A@; }
        location /own { add_header X-Own "a b" always; proxy_pass http://@A@; }
        location = /text { return 200 "hello"; }
        location = /lines { return 200 "one\ntwo\n"; }
        location = /json { default_type application/json; return 200 '{"a": 1, "b": "\\"}'; }
        location = /quoted { return 200 'it\'s "so"'; }
        location = /html { default_type text/html; return 200 "<p>hi</p>"; }
        location /none { return 204; }
        location /no { add_header X-No always always; return 403; }
        location /hidden { proxy_hide_header X-Origin-Secret; add_header Cache-Control "no-store, max-age=0"; proxy_pass http://@B@; }
    }
}
"#,
        paths: &["/", "/own/x", "/text", "/lines", "/json", "/quoted", "/html", "/none", "/no", "/hidden/x"],
        methods: &["GET", "HEAD"],
        ..Case::default()
    })
    .await;
}

/// The media type of a `return` is that of the path's ending, and its variables are filled in.
#[tokio::test]
async fn nginx_answers_with_types_and_variables() {
    compare(Case {
        config: r#"
events {}
http {
    types { text/plain txt; application/json json; text/html html; }
    default_type application/octet-stream;
    map $http_x_a $name { default nobody; one "number one"; }
    server {
        listen 127.0.0.1:@PORT@;
        location = /robots.txt { return 200 "User-agent: *\nDisallow: /\n"; }
        location /security.TXT { return 200 "Contact: none"; }
        location = /a.json { default_type text/css; return 200 '{"a": 1}'; }
        location ~ \.html$ { return 200 "<p>hi</p>"; }
        location = /plain { return 200 "plain"; }
        location = /b.unknown { default_type text/x-own; return 200 "own"; }
        location = /gone.txt { return 410 "gone"; }
        location = /preflight { add_header Content-Type text/plain; add_header X-A b; return 204; }
        location = /me.txt { return 200 "$remote_addr $request_method $host$uri"; }
        location = /named.txt { return 200 "${name}: $arg_q"; }
        location / { proxy_pass http://@A@; }
    }
}
"#,
        paths: &[
            "/robots.txt",
            "/security.TXT",
            "/a.json",
            "/x.html",
            "/plain",
            "/b.unknown",
            "/gone.txt",
            "/preflight",
            "/me.txt",
            "/named.txt?q=1",
        ],
        methods: &["GET", "POST"],
        fields: &["", "x-a: one"],
        ..Case::default()
    })
    .await;
}

/// Bodies with values of the request.
#[tokio::test]
async fn haproxy_and_caddy_answer_with_variables() {
    let haproxy = format!(
        "{DEFAULTS}frontend main
  bind 127.0.0.1:@PORT@
  http-request return status 200 content-type text/plain lf-string \"you are %[src], 100%% sure\" if {{ path /me }}
  http-request return status 404 content-type text/plain lf-string %[method]$%[path] if {{ path_beg /no }}
  default_backend web
backend web
  server w @A@
"
    );
    let caddy = r#"{
  admin off
  auto_https off
}
http://a.test:@PORT@ {
  respond /me "{method} {host} ${path}"
  respond /no* "{query.q} is not {not}" 404
  reverse_proxy @A@
}
"#;
    for (format, config) in [(Format::Haproxy, &*haproxy), (Format::Caddyfile, caddy)] {
        compare(Case {
            format,
            config,
            paths: &["/me", "/no/x?q=1", "/"],
            known: &[("/no/", "placeholders in a body are sent as they are written")],
            ..Case::default()
        })
        .await;
    }
}

#[tokio::test]
async fn nginx_goes_to_the_next_target() {
    compare(Case {
        config: r#"
events {}
http {
    access_log off;
    upstream pair { server @DEAD@; server @A@; }
    upstream spare { server @DEAD@; server @B@ backup; }
    upstream tired { server @DEAD@ max_fails=1 fail_timeout=60s; server @C@ weight=5; }
    server {
        listen 127.0.0.1:@PORT@;
        location / { proxy_pass http://pair; }
        location /spare { proxy_pass http://spare; }
        location /tired { proxy_pass http://tired; }
        location /alone { proxy_pass http://@DEAD@; }
    }
}
"#,
        paths: &["/", "/a", "/b", "/spare", "/spare/a", "/tired", "/tired/a", "/tired/b", "/alone"],
        methods: &["GET", "POST"],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn haproxy_fixed_answers_and_response_headers() {
    compare(Case {
        format: Format::Haproxy,
        config: &format!(
            r#"{DEFAULTS}
frontend web
  bind 127.0.0.1:@PORT@
  http-request return status 200 content-type text/plain string "hello" if {{ path /text }}
  http-request return status 200 content-type application/json string "{{\"a\":1}}" if {{ path /json }}
  http-request deny deny_status 429 if {{ path_beg /busy }}
  http-response set-header X-Frame-Options DENY
  http-response del-header X-Origin-Secret
  http-response add-header X-More more if {{ status 200 }}
  default_backend web
backend web
  http-response set-header X-Of-Backend yes
  server w1 @A@
"#
        ),
        paths: &["/", "/x", "/text", "/json", "/busy", "/busy/x"],
        methods: &["GET", "POST"],
        known: &[("", "X-More")],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn haproxy_goes_to_the_next_target() {
    compare(Case {
        format: Format::Haproxy,
        config: &format!(
            r#"{DEFAULTS}
frontend web
  bind 127.0.0.1:@PORT@
  use_backend spare if {{ path_beg /spare }}
  default_backend pair
backend pair
  retries 3
  option redispatch 1
  server dead @DEAD@
  server a @A@
backend spare
  retries 3
  option redispatch 1
  server dead @DEAD@
  server b @B@ backup
"#
        ),
        paths: &["/", "/a", "/b"],
        methods: &["GET", "POST"],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn haproxy_backends_by_map() {
    compare(Case {
        format: Format::Haproxy,
        config: &format!(
            r#"{DEFAULTS}
frontend web
  bind 127.0.0.1:@PORT@
  use_backend %[path,map_beg(@DIR@/paths.map)] if {{ path_beg /by-path }}
  use_backend %[req.hdr(host),lower,map(@DIR@/hosts.map,rest)]
  default_backend never
backend shop
  server s @A@
backend blog
  server b @B@
backend rest
  server r @C@
backend never
  server n @D@
"#
        ),
        hosts: &["shop.test", "SHOP.test", "blog.test", "gone.test", "other.test"],
        paths: &[
            "/",
            "/x",
            "/by-path",
            "/by-path/shop",
            "/by-path/shop/cart",
            "/by-path/blog/1",
            "/by-path/gone",
        ],
        methods: &["GET"],
        files: &[
            ("hosts.map", "# hosts\nshop.test shop\nblog.test   blog\ngone.test gone\n"),
            (
                "paths.map",
                "/by-path/shop shop\n/by-path/shop/cart blog\n/by-path/b blog\n/by-path/gone gone\n",
            ),
        ],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn caddy_fixed_answers_and_response_headers() {
    compare(Case {
        format: Format::Caddyfile,
        config: r#"
{
    admin off
    auto_https off
    http_port @PORT@
}
http://:@PORT@ {
    bind 127.0.0.1
    header X-Everywhere yes
    header /own/* {
        X-Own "a b"
        -X-Origin-Secret
    }
    respond /text "hello" 200
    respond /json `{"a": 1}` 200
    respond /no 403
    reverse_proxy @A@
}
"#,
        paths: &["/", "/own/x", "/text", "/json", "/no", "/other"],
        methods: &["GET", "POST"],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn caddy_goes_to_the_next_target() {
    compare(Case {
        format: Format::Caddyfile,
        config: r#"
{
    admin off
    auto_https off
    http_port @PORT@
}
http://:@PORT@ {
    bind 127.0.0.1
    reverse_proxy /first/* @DEAD@ @A@ {
        lb_policy first
        lb_try_duration 5s
        fail_duration 30s
    }
    reverse_proxy @DEAD@ @B@ {
        lb_policy round_robin
        lb_try_duration 5s
        fail_duration 30s
    }
}
"#,
        paths: &["/", "/a", "/b", "/first/a", "/first/b"],
        methods: &["GET"],
        ..Case::default()
    })
    .await;
}
