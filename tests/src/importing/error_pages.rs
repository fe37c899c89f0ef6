//! What clients get instead of errors: files, other locations, redirects and texts.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};
use super::routes::{good, import, lost};

/// Statuses that only nginx has: no request gets their page, and the report says so.
#[test]
fn pages_of_statuses_that_only_nginx_has() {
    for (page, status, is_lost) in [
        ("error_page 497 https://$host:$server_port$request_uri;", None, true),
        ("error_page 497 =301 https://a.test$request_uri;", None, true),
        ("error_page 495 496 = @none;", None, true),
        ("error_page 495 404 https://a.test/;", Some("404"), true),
        ("error_page 404 https://a.test/$host;", Some("404"), false),
    ] {
        let text = format!(
            "http {{ server {{ listen 80; {page} location / {{ proxy_redirect off; proxy_pass http://10.0.0.1:1001; }} location @none {{ return 302 /; }} }} }}"
        );
        let imported = import(Format::Nginx, &text, false);
        let document = good(&imported);
        let made = document["plugin_configs"].as_array().into_iter().flatten();
        let mut statuses = made.filter_map(|it| it["config"]["pages"][0]["status"].as_str());
        assert_eq!((statuses.next(), lost(&imported, "error_page 49")), (status, is_lost), "{page}");
    }
}

#[tokio::test]
async fn nginx_error_pages() {
    compare(Case {
        config: r#"
events {}
http {
    upstream pages { server @B@; }
    server {
        listen 127.0.0.1:@PORT@;
        root @DIR@/site;
        error_page 404 /404.html;
        error_page 500 502 503 504 /50x.html;
        location = /50x.html { root @DIR@/pages; }
        location / { try_files $uri =404; }
        location /dead { proxy_pass http://@DEAD@; }
        location /target { proxy_pass http://@A@; }
        location /intercepted { proxy_pass http://@A@; proxy_intercept_errors on; }
        location /ok { proxy_pass http://@DEAD@; error_page 502 =200 /50x.html; }
        location /moved { return 404; error_page 404 https://other.test/; }
        location /forever { return 404; error_page 404 =301 https://other.test/$host; }
        location /named { proxy_pass http://@DEAD@; error_page 502 = @maintenance; }
        location @maintenance { root @DIR@/pages; rewrite ^(.*)$ /down.html break; }
        location /away { return 403; error_page 403 @away; }
        location @away { return 302 /login; }
        location /text { return 403; error_page 403 =202 @text; }
        location @text { default_type text/plain; return 200 "nothing here"; }
        location /kept { return 403; error_page 403 @text; }
        location /denied { deny all; error_page 403 /errors/403.html; }
        location /errors/ { internal; alias @DIR@/pages/; }
        location /asked { return 410; error_page 410 /service/gone; }
        location /service/ { proxy_pass http://pages; }
        location /none { return 418; error_page 418 /none.html; }
        location /body { return 404 "own text"; }
    }
}
"#,
        paths: &[
            "/",
            "/a.txt",
            "/none.txt",
            "/dead",
            "/target",
            "/intercepted",
            "/ok",
            "/moved",
            "/forever",
            "/named/x",
            "/away",
            "/text",
            "/kept",
            "/denied",
            "/asked",
            "/body",
            "/50x.html",
        ],
        methods: &["GET", "HEAD"],
        fields: &["", "reply-status: 404", "reply-status: 503\r\nreply-retry-after: 7", "if-none-match: *"],
        files: &[
            ("site/index.html", "home"),
            ("site/a.txt", "a"),
            ("site/404.html", "<p>no such page</p>"),
            ("pages/50x.html", "<p>broken</p>"),
            ("pages/down.html", "<p>down</p>"),
            ("pages/403.html", "<p>no</p>"),
        ],
        known: &[("/asked", "gets its own address as `Host`")],
        ..Case::default()
    })
    .await;
}

/// Pages that are found by `try_files`, and those of a named location for what it answers itself.
#[tokio::test]
async fn nginx_error_pages_of_named_locations() {
    let servers = [
        "error_page 500 502 /50x.html; location / { try_files $uri/index.html $uri @app; } location @app { proxy_intercept_errors on; proxy_pass http://@A@; }",
        "error_page 502 /50x.html; location / { try_files $uri @app; } location @app { proxy_pass http://@DEAD@; }",
        "location / { try_files $uri @app; } location @app { error_page 502 /50x.html; proxy_pass http://@DEAD@; }",
        "error_page 502 @down; location / { proxy_pass http://@DEAD@; } location @down { try_files /50x.html =502; }",
        "error_page 404 /50x.html; location / { try_files $uri @none; } location @none { return 404; }",
        "error_page 403 =404 /50x.html; location / { deny all; }",
        "error_page 403 @text; location / { deny all; } location @text { default_type text/plain; return 403 \"not $uri\"; }",
    ];
    let mut config = String::from("events {}\nhttp {\n");
    let mut hosts = Vec::new();
    for (n, server) in servers.iter().enumerate() {
        hosts.push(format!("n{n}.test"));
        config.push_str(&format!(
            "server {{\nlisten 127.0.0.1:@PORT@;\nserver_name n{n}.test;\nroot @DIR@/site;\n{server}\n}}\n"
        ));
    }
    config.push_str("}\n");
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    compare(Case {
        config: &config,
        hosts: &hosts,
        paths: &["/", "/a.txt", "/x/y", "/status/500", "/status/404"],
        files: &[("site/50x.html", "sorry"), ("site/a.txt", "a")],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn haproxy_error_pages() {
    compare(Case {
        format: Format::Haproxy,
        config: r#"
defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 30s
    errorfile 503 @DIR@/503.http
    errorloc302 404 https://other.test/404
frontend main
    bind 127.0.0.1:@PORT@
    http-error status 403 content-type text/plain string "not here"
    errorloc303 429 /later
    http-request deny if { path_beg /admin }
    http-request deny deny_status 429 if { path_beg /much }
    http-request deny deny_status 404 if { path_beg /none }
    http-request deny deny_status 400 if { path_beg /bad }
    use_backend dead if { path_beg /dead }
    default_backend app
backend app
    server a @A@
backend dead
    server a @DEAD@
"#,
        paths: &["/", "/admin", "/much", "/none", "/bad", "/dead"],
        methods: &["GET", "HEAD"],
        fields: &["", "reply-status: 403", "reply-status: 503"],
        files: &[(
            "503.http",
            "HTTP/1.0 503 Service Unavailable\r\ncache-control: no-cache\r\nconnection: close\r\ncontent-type: text/html\r\n\r\n<p>soon</p>",
        )],
        ..Case::default()
    })
    .await;
}
