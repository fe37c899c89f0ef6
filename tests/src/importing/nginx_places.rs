//! Locations of nginx: what guards them besides, what they send to targets, and which files they look for.

use super::compare::{Case, compare};

/// For methods that `limit_except` leaves out, nothing else of the location holds.
#[tokio::test]
async fn methods_before_answers() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location /o { limit_except GET { deny all; } return 204; }
        location /r { limit_except POST { deny all; } return 301 /o; }
        location /i { limit_except GET { deny all; } if ($http_x_a) { return 410; } proxy_pass http://@A@; }
        location /w { limit_except GET { deny all; } rewrite ^/w/(.*)$ /o/$1 last; proxy_pass http://@A@; }
        location /p { limit_except GET { allow 127.0.0.1; deny all; } return 204; }
        location / { proxy_pass http://@B@; }
    }
}
"#,
        paths: &["/o", "/r", "/i", "/w", "/w/x", "/p", "/"],
        methods: &["GET", "POST", "OPTIONS", "DELETE"],
        fields: &["", "x-a: 1"],
        known: &[("a.test/p", "only `deny all` in it can be converted")],
        ..Case::default()
    })
    .await;
}

/// A location with a slash at its end answers for the path without it, as it answers for others.
#[tokio::test]
async fn paths_without_their_slash() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location /secret/ { internal; proxy_pass http://@A@; }
        location = /one/ { proxy_pass http://@B@; }
        location /two/ { proxy_pass http://@C@; }
        location ^~ /b { location /b/in/ { internal; proxy_pass http://@C@; } proxy_pass http://@D@; }
        location ~ ^/three { proxy_pass http://@D@; }
        location /three/ { internal; proxy_pass http://@C@; }
        location /never/ { location /never//app { deny all; } proxy_pass http://@D@; }
        location = /dot/. { deny all; }
        location /.hid { deny all; }
        location / { proxy_pass http://@A@; }
    }
}
"#,
        paths: &[
            "/",
            "/secret",
            "/secret/",
            "/secret/x",
            "/secretx",
            "/one",
            "/one/",
            "/one/x",
            "/two",
            "/two/x",
            "/three",
            "/three/x",
            "/b/in",
            "/b/in/x",
            "/b/x",
            "/never/app",
            "/never/x",
            "/dot/x",
            "/.hidden",
        ],
        methods: &["GET", "POST"],
        ..Case::default()
    })
    .await;
}

/// With variables, `proxy_pass` sends what it says; fields that are empty are not sent, those of the connection are nobody's.
#[tokio::test]
async fn targets_by_variables() {
    compare(Case {
        config: r#"
events {}
http {
    map $host $backend { default @A@; }
    server {
        listen 127.0.0.1:@PORT@;
        proxy_set_header Connection "";
        proxy_set_header Upgrade "";
        proxy_set_header TE "";
        proxy_set_header X-Query $args;
        proxy_set_header X-Both $arg_a$cookie_b;
        location /u/ { proxy_pass http://@A@$uri; }
        location /full/ { proxy_pass http://@A@$request_uri; }
        location /args/ { proxy_pass http://@A@$uri$is_args$args; }
        location /fixed/ { proxy_pass http://$backend/; }
        location /v2/ { proxy_pass http://$backend/health; }
        location /own/ { proxy_pass http://$backend; }
        location /before/ { proxy_pass http://@A@/x$request_uri; }
        location / { add_header Connection close; proxy_pass http://@B@; }
    }
}
"#,
        paths: &[
            "/",
            "/u/a",
            "/u/a?q=1",
            "/full/a?q=1",
            "/args/a?q=1",
            "/fixed/a",
            "/fixed/a?q=1",
            "/v2/x",
            "/own/x?q",
            "/before/a?q=1",
            "/p?a=1&b",
        ],
        fields: &["", "cookie: b=2"],
        ..Case::default()
    })
    .await;
}

const FILES: &str = r#"
events {}
http {
    client_max_body_size 3;
    server {
        listen 127.0.0.1:@PORT@;
        root @DIR@/www;
        location / { try_files $uri @app; }
        location /dirs/ { try_files $uri $uri/ @app; }
        location /small/ { client_max_body_size 1; try_files $uri @app; }
        location /evil/ { if ($http_x_a) { set $team red; } try_files $uri @app; }
        location /down/ { try_files /maintenance.html $uri @app; }
        location @app { client_max_body_size 10m; proxy_pass http://@D@; }
    }
}
"#;

const FOLDER: &[(&str, &str)] = &[
    ("www/index.html", "<html>start</html>"),
    ("www/static/index.html", "<html>static</html>"),
    ("www/dirs/index.html", "<html>dirs</html>"),
    ("www/file.txt", "file"),
    ("www/evil/file.txt", "evil"),
];

/// `$uri` is a file, and a folder with `$uri/` only. An `if` takes `try_files` away.
#[tokio::test]
async fn files_before_a_server() {
    compare(Case {
        config: FILES,
        files: FOLDER,
        paths: &[
            "/",
            "/static/",
            "/static",
            "/file.txt",
            "/none",
            "/dirs/",
            "/dirs",
            "/small/x",
            "/evil/x",
            "/evil/file.txt",
            "/down/x",
        ],
        methods: &["GET", "HEAD"],
        fields: &["", "x-a: 1"],
        known: &[("a.test/down", "whether a fixed file is there is not looked at")],
        ..Case::default()
    })
    .await;
}

/// A body has to be small enough for the location that looks for files, too, and files are only read.
#[tokio::test]
async fn bodies_before_a_named_location() {
    compare(Case {
        config: FILES,
        files: FOLDER,
        paths: &[
            "/",
            "/none",
            "/small/x",
            "/static/",
            "/file.txt",
            "/file.txt?a=1",
            "/dirs/",
            "/dirs/index.html",
        ],
        methods: &["GET", "POST", "DELETE", "OPTIONS"],
        ..Case::default()
    })
    .await;
}
