//! Guards of nginx behind rewrites, internal redirects and values that come several times.

use super::compare::{Case, compare};

/// What is asked behind a `rewrite` is asked of the new path.
#[tokio::test]
async fn guards_behind_rewrites() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        rewrite ^/pub/(.*)$ /admin/$1;
        rewrite ^/one$ /two last;
        if ($uri ~ ^/admin/) { return 403; }
        location / { proxy_pass http://@A@; }
        location /gone/ { rewrite ^/gone/(.*)$ /here/$1; return 410; }
        location /in/ {
            if ($http_x_go) { rewrite ^/in/(.*)$ /admin2/$1; }
            if ($uri ~ ^/admin2/) { return 405; }
            proxy_pass http://@B@;
        }
        location /twice/ {
            rewrite ^/twice/a$ /secret/x;
            rewrite ^/other/a$ /open;
            proxy_pass http://@C@;
        }
        location /secret/ { deny all; }
        location = /two { deny all; }
    }
    server {
        listen 127.0.0.1:@PORT@;
        server_name b.test;
        location / { proxy_pass http://@A@; }
    }
}
"#,
        hosts: &["a.test", "b.test"],
        paths: &[
            "/",
            "/pub/x",
            "/admin/x",
            "/one",
            "/two",
            "/gone/x",
            "/in/x",
            "/admin2/x",
            "/twice/a",
            "/twice/b",
            "/secret/x",
        ],
        fields: &["", "x-go: 1"],
        known: &[
            ("a.test/pub/x", "rewrite ^/pub/"),
            ("a.test/gone/x", "rewrite ^/gone/"),
            ("a.test/in/x x-go", "rewrite ^/in/"),
        ],
        ..Case::default()
    })
    .await;
}

/// nginx takes the names of parameters and cookies in any case, and parameters as they were sent.
#[tokio::test]
async fn several_values() {
    compare(Case {
        config: r#"
events {}
http {
    map $arg_level $is_high { default 0; high 1; ~^top 1; }
    map $http_user_agent $is_bad { default 0; ~*evil 1; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        if ($arg_debug = 1) { return 403; }
        if ($cookie_adm = 2) { return 404; }
        if ($cookie_any) { return 405; }
        if ($is_high) { return 410; }
        if ($is_bad) { return 406; }
        if ($arg_word ~ ^o.e$) { return 409; }
        if ($request_uri ~* "base64_decode|etc/passwd") { return 411; }
        location /key { if ($arg_key != sesame) { return 401; } proxy_pass http://@B@; }
        location / { proxy_pass http://@A@; }
    }
}
"#,
        paths: &[
            "/",
            "/?debug=1",
            "/?DEBUG=1",
            "/?a&debug=1",
            "/?xdebug=1",
            "/?debug=11",
            "/?level=high",
            "/?level=topmost",
            "/?level=atop",
            "/?word=one&x",
            "/?word=ones",
            "/key",
            "/key?key=sesame",
            "/key?KEY=sesame&a=b",
            "/key?key=x",
            "/key?key=",
            "/key?key=sesame&key=x",
            "/key?key=x&key=sesame",
            "/?debug=2&debug=1",
            "/?x=base64_decode",
            "/base64_decode?x",
            "/?word=o&e",
        ],
        fields: &[
            "",
            "cookie: adm=2",
            "cookie: a=b; ADM=2",
            "cookie: a=b\r\ncookie: adm=2",
            "cookie: xadm=2; any=0",
            "cookie: adm=1; adm=2",
            "cookie: any=x",
            "user-agent: so EVIL\u{ff}",
        ],
        ..Case::default()
    })
    .await;
}

/// Where nginx goes on with another path by itself, the guards of that one hold.
#[tokio::test]
async fn guards_behind_internal_redirects() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        root @DIR@/www;
        location / { try_files $uri /admin/index.html; }
        location /dir/ { index page.html; }
        location = /dir/page.html { deny all; }
        location /admin/ { deny all; }
        location /ok/ { try_files $uri $uri.html =404; }
        location /named/ { try_files $uri @back; }
        location @back { deny 127.0.0.1; proxy_pass http://@A@; }
    }
    server {
        listen 127.0.0.1:@PORT@;
        server_name b.test;
        location / { proxy_pass http://@A@; }
    }
}
"#,
        hosts: &["a.test", "b.test"],
        paths: &[
            "/a.txt",
            "/none",
            "/admin/index.html",
            "/dir/",
            "/dir/page.html",
            "/ok/a",
            "/ok/b",
            "/named/x",
        ],
        known: &[("a.test/", "own answers")],
        files: &[
            ("www/a.txt", "a"),
            ("www/admin/index.html", "secret"),
            ("www/dir/page.html", "page"),
            ("www/ok/a.html", "ok"),
        ],
        ..Case::default()
    })
    .await;
}

/// What an outer block guards, an inner one guards, too, unless it says so itself.
#[tokio::test]
async fn guards_of_outer_blocks() {
    compare(Case {
        config: r#"
events {}
http {
    deny 127.0.0.1;
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        location / { proxy_pass http://@A@; }
        location /open { allow all; proxy_pass http://@B@; }
        location /half { limit_except GET { deny all; } proxy_pass http://@C@; }
        location /outer { allow all; location /outer/inner { proxy_pass http://@D@; } proxy_pass http://@A@; }
        location ~ ^/secret { deny all; }
    }
    server {
        listen 127.0.0.1:@PORT@;
        server_name b.test;
        allow all;
        location / { proxy_pass http://@A@; }
        location /private/ { deny all; location /private/x/ { proxy_pass http://@B@; } }
        location ~ \.key$ { deny all; }
        location ^~ /keys/ { proxy_pass http://@C@; }
    }
}
"#,
        hosts: &["a.test", "b.test"],
        paths: &[
            "/",
            "/open",
            "/half",
            "/outer/x",
            "/outer/inner/x",
            "/secret",
            "/private/x/y",
            "/private/",
            "/a.key",
            "/keys/a.key",
        ],
        methods: &["GET", "POST"],
        ..Case::default()
    })
    .await;
}
