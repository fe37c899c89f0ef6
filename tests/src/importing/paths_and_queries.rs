//! Which path and query targets are asked for, and where clients are sent: by groups of regexes, and without the query where the
//! original leaves it out.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

/// The groups of a location are in what `proxy_pass` sends, and the query only where it is named.
#[tokio::test]
async fn nginx_passes_groups_of_locations() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location ~ ^/b1/(.+)$ { proxy_pass http://@A@/bucket/$1$is_args$args; }
        location ~ ^/b2/(.+)$ { proxy_pass http://@A@/bucket/$1; }
        location ~ ^/b3/(?<rest>.*)$ { proxy_pass http://@B@/$rest?x=1&from=$host; }
        location ~ ^/b4/([a-z]+)/([0-9]+)$ { proxy_pass http://@B@/x/$2/$1?$args; }
        location ~ ^/b5(/.*)$ { proxy_pass http://@C@$1$is_args$query_string; }
        location ~ ^/b6/([a-z]+)$ { proxy_pass http://@C@/$host/$1$request_uri; }
        location /fixed/ { proxy_pass http://@D@/of/$host; }
        location / { proxy_pass http://@D@; }
    }
}
"#,
        paths: &[
            "/b1/a/b",
            "/b1/a/b?q=1&r=%20",
            "/b2/a?q=1",
            "/b3/a/b?q=1",
            "/b3/",
            "/b4/ab/12?q=1",
            "/b4/12/ab?q=1",
            "/b5/a?q=1",
            "/b5",
            "/b6/a?q=1",
            "/fixed/a?q=1",
            "/?q=1",
        ],
        ..Case::default()
    })
    .await;
}

/// A regex is found at the first place that fits, a new path may begin with a group, and `?` at its end leaves the query out.
#[tokio::test]
async fn nginx_rewrites_by_groups() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location /r1/ { rewrite ^/r1(/.*)$ $1 break; proxy_pass http://@A@; }
        location /r2/ { rewrite /r2/(.*) /$1 break; proxy_pass http://@A@; }
        location /r3/ { rewrite ^/r3/(.*)$ /x/$1? break; proxy_pass http://@B@; }
        location /r4/ { rewrite ^/r4/(.*)$ /x/$1?n=1? break; proxy_pass http://@B@; }
        location /r5/ { rewrite ^/r5(/.*)$ /to$1 last; }
        location /to/ { proxy_pass http://@C@; }
        location /e1 { return 301 /n$is_args$args; }
        location /e2 { return 302 http://new.test$uri?$args; }
        location /e3 { return 302 http://$host/n$is_args$query_string; }
        location /e4/ { rewrite /e4/(.*) /n/$1 permanent; }
        location / { proxy_pass http://@D@; }
    }
}
"#,
        paths: &[
            "/r1/a?q=1",
            "/r1/",
            "/r2/a/r2/b?q=1",
            "/r3/a?q=1",
            "/r4/a?q=1",
            "/r5/a?q=1",
            "/e1",
            "/e1?q=1&r=2",
            "/e2/a?q=1&r=%20",
            "/e3?q=1",
            "/e4/a/e4/b?q=1",
        ],
        ..Case::default()
    })
    .await;
}

/// Methods that only some servers know are asked for by their names.
#[tokio::test]
async fn nginx_asks_for_methods() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location /m1 { if ($request_method ~ ^(TRACK|DEBUG)$) { return 405; } proxy_pass http://@A@; }
        location /m2 { if ($request_method !~ ^(GET|REPORT)$) { return 405; } proxy_pass http://@B@; }
        location /m3 { if ($request_method ~* ^(propfind|put)$) { return 403; } proxy_pass http://@C@; }
    }
}
"#,
        paths: &["/m1", "/m2", "/m3"],
        methods: &["GET", "POST", "PUT", "REPORT", "DEBUG", "PROPFIND"],
        ..Case::default()
    })
    .await;
}

/// `regsub` of the path, and conditions on what the whole target has.
#[tokio::test]
async fn haproxy_replaces_in_paths() {
    let config = r#"defaults
  mode http
  timeout connect 2s
  timeout client 10s
  timeout server 10s
frontend main
  bind 127.0.0.1:@PORT@
  http-request deny deny_status 400 if { req.hdr_cnt(host) eq 0 }
  http-request deny deny_status 404 if { url_sub -i secret }
  http-request deny deny_status 410 if { query -m sub gone=1 }
  http-request deny deny_status 401 unless { hdr_cnt(x-key) gt 0 }
  http-request replace-path ^/v1/(.*)$ /v2/\1 if { path_beg /v1/ }
  http-request deny deny_status 403 if { path_beg /v2/closed }
  use_backend api if { path_beg /api/ }
  use_backend v2 if { path_beg /v2/ }
  use_backend old if { path_beg /old/ }
  use_backend all if { path_beg /all }
  default_backend web
backend api
  http-request set-path %[path,regsub(^/api/,/)]
  server s @A@
backend v2
  http-request set-query %[query]&lb=x if { path_beg /v2/a }
  http-request replace-header Host (.*) inner.test
  server s @A@
backend old
  http-request set-path "/new%[path,regsub('/([a-z]+)-([a-z]+)','/\\2_\\1',i)]"
  server s @B@
backend all
  http-request set-pathq /one?x=1
  server s @C@
backend web
  server s @D@
"#;
    compare(Case {
        format: Format::Haproxy,
        config,
        paths: &[
            "/api/a/api/b?q=1",
            "/api/",
            "/v1/a?q=1",
            "/v1/closed/x",
            "/v2/closed",
            "/v2/b",
            "/v1",
            "/old/Ab-cd/ef-gh?q=1",
            "/old/x",
            "/all?q=1",
            "/Secret",
            "/x?a=SECRET",
            "/x?gone=1",
            "/x?agone=12",
            "/gone=1",
        ],
        fields: &["x-key: 1", ""],
        ..Case::default()
    })
    .await;
}

/// Groups of a matcher's regex, every place that `uri` replaces, and queries that a `rewrite` leaves out.
#[tokio::test]
async fn caddy_replaces_in_paths() {
    let site = |name: &str, rules: &str| format!("http://{name}.test:@PORT@ {{\n{rules}\n}}\n");
    let config = [
        "{\n  admin off\n  auto_https off\n}\n".to_owned(),
        site("a", "@old path_regexp old ^/old/([0-9]+)\nredir @old /new/{re.old.1} 301\nreverse_proxy @A@"),
        site(
            "b",
            "@p {\nmethod GET\npath_regexp p ^/p/(?P<lang>en|de)/(.*)$\n}\nredir @p https://x.test/{re.p.lang}/{re.p.2}\nreverse_proxy @A@",
        ),
        site("c", "@r path_regexp r /r/(.*)/x\nrewrite @r /to/{re.r.1}?{query}\nreverse_proxy @B@"),
        site("d", "uri /rep/* replace foo bar\nreverse_proxy @B@"),
        site("e", "uri path_regexp /[0-9]+ /n\nreverse_proxy @C@"),
        site("f", "rewrite /q1 /r?x=1&{query}\nreverse_proxy @C@"),
        site("g", "rewrite /q2 /r?x=1\nreverse_proxy @D@"),
    ];
    compare(Case {
        format: Format::Caddyfile,
        config: &config.concat(),
        hosts: &["a.test", "b.test", "c.test", "d.test", "e.test", "f.test", "g.test"],
        paths: &[
            "/",
            "/old/12/x?q=1",
            "/old/x",
            "/p/de/a/b?q=1",
            "/a/r/b/c/x/d?q=1",
            "/rep/foo/afoo",
            "/a/12/b/34?q=1",
            "/q1?z=2",
            "/q2?z=2",
        ],
        ..Case::default()
    })
    .await;
}
