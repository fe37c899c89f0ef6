//! Configurations of nginx as people run them, with names of our own.

use super::compare::{Case, compare};

/// A shop: a front end, an API with versions, an admin area for the office, pictures by their ending.
#[tokio::test]
async fn a_shop_with_an_admin_area() {
    compare(Case {
        config: r#"
events {}
http {
    access_log off;
    upstream front { server @A@; }
    upstream api { server @B@; keepalive 16; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name shop.test www.shop.test;
        location / { proxy_pass http://front; proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; }
        location /api/ { proxy_pass http://api/; proxy_set_header Host $host; proxy_set_header X-Tenant shop; }
        location /api/v2/ { proxy_pass http://api/new/; proxy_set_header Host $host; }
        location = /api/health { return 200 "fine\n"; }
        location ~ ^/api/admin { return 403; }
        location ~* \.(png|jpg)$ { proxy_pass http://@C@; proxy_set_header Host $host; }
        location ^~ /raw/ { proxy_pass http://@D@; proxy_set_header Host $host; }
        location /admin { deny 127.0.0.1; allow 10.0.0.0/8; deny all; proxy_pass http://api; }
        location ~ /\.ht { deny all; }
    }
    server { listen 127.0.0.1:@PORT@ default_server; server_name _; return 404; }
}
"#,
        hosts: &["shop.test", "www.shop.test", "other.test"],
        paths: &[
            "/", "/a", "/api", "/api/", "/api/x", "/api/x?q=1", "/api/v2/", "/api/v2/x", "/api/v2", "/api/health",
            "/api/healthy", "/api/admin", "/api/admin/x", "/apix", "/img/a.PNG", "/api/a.png", "/raw/a.png", "/raw",
            "/admin", "/admin/x", "/administrator", "/x/.htaccess", "/a.png.txt",
        ],
        methods: &["GET", "POST", "DELETE"],
        ..Case::default()
    })
    .await;
}

/// Prefixes that end within a segment, with and without slashes and paths in `proxy_pass`.
#[tokio::test]
async fn prefixes_and_paths_of_proxy_pass() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location /a { proxy_pass http://@A@; }
        location /b/ { proxy_pass http://@A@/; }
        location /c { proxy_pass http://@A@/x; }
        location /d/ { proxy_pass http://@A@/x; }
        location /e/ { proxy_pass http://@A@/x/y/; }
        location = /f { proxy_pass http://@A@/exact; }
        location = /g { proxy_pass http://@A@; }
        location /h/i { proxy_pass http://@B@; }
        location /h { proxy_pass http://@C@; }
    }
}
"#,
        hosts: &["a.test", "b.test"],
        paths: &[
            "/a", "/ab", "/a/b", "/b", "/b/", "/b/c?d=e", "/c", "/cd", "/c/d", "/d/", "/d/e", "/d", "/e/",
            "/e/f", "/e", "/f", "/f/", "/fg", "/g", "/gh", "/h", "/h/i", "/h/ij", "/h/j", "/hi", "/", "/x",
        ],
        methods: &["GET", "PUT"],
        known: &[("PUT", "what no location takes")],
        ..Case::default()
    })
    .await;
}

/// Who may come in: by address, password, method, and referer.
#[tokio::test]
async fn guards_of_every_kind() {
    compare(Case {
        config: r#"
events {}
http {
    geo $inside { default 0; 127.0.0.0/8 1; 127.0.0.1 0; 10.0.0.0/8 1; }
    map $http_x_key $good_key { default 0; "sesame" 1; ~^open- 1; }
    server {
        listen 127.0.0.1:@PORT@;
        proxy_set_header Host $host;
        location / { proxy_pass http://@A@; }
        location /office/ { allow 10.0.0.0/8; deny all; proxy_pass http://@A@; }
        location /home/ { allow 127.0.0.1; deny all; proxy_pass http://@A@; }
        location /odd/ { deny 10.0.0.1; allow 127.0.0.0/8; deny all; proxy_pass http://@A@; }
        location /but/ { deny 127.0.0.1; allow 127.0.0.0/8; deny all; proxy_pass http://@A@; }
        location /secret/ { auth_basic "staff"; auth_basic_user_file @DIR@/users; proxy_pass http://@A@; }
        location /either/ { satisfy any; allow 10.0.0.0/8; deny all; auth_basic "x"; auth_basic_user_file @DIR@/users; proxy_pass http://@A@; }
        location /home-or-password/ { satisfy any; allow 127.0.0.1; deny all; auth_basic "x"; auth_basic_user_file @DIR@/users; proxy_pass http://@A@; }
        location /unnamed/ { satisfy any; deny 10.0.0.1; auth_basic "x"; auth_basic_user_file @DIR@/users; proxy_pass http://@A@; }
        location /named/ { satisfy any; allow 127.0.0.1; auth_basic "x"; auth_basic_user_file @DIR@/users; proxy_pass http://@A@; }
        location /anybody/ { satisfy any; allow all; auth_basic "x"; auth_basic_user_file @DIR@/users; proxy_pass http://@A@; }
        location /read/ { limit_except GET { deny all; } proxy_pass http://@A@; }
        location /key/ { if ($good_key = 0) { return 401; } proxy_pass http://@A@; }
        location /geo/ { if ($inside = 0) { return 403; } proxy_pass http://@A@; }
        location /methods/ { if ($request_method !~ ^(GET|POST)$) { return 405; } proxy_pass http://@A@; }
        location /hidden/ { internal; proxy_pass http://@A@; }
        location /pictures/ {
            valid_referers none blocked good.test *.better.test;
            if ($invalid_referer) { return 403; }
            proxy_pass http://@A@;
        }
        location /nested/ {
            deny all;
            location /nested/open/ { allow all; proxy_pass http://@A@; }
            location ~ \.txt$ { proxy_pass http://@A@; }
        }
    }
}
"#,
        paths: &[
            "/", "/office/x", "/home/x", "/odd/x", "/but/x", "/secret/x", "/either/x", "/home-or-password/x",
            "/unnamed/x", "/named/x", "/anybody/x", "/read/x",
            "/key/x", "/geo/x", "/methods/x", "/hidden/x", "/pictures/x", "/nested/x", "/nested/open/x", "/nested/a.txt",
        ],
        methods: &["GET", "POST", "DELETE", "HEAD"],
        fields: &[
            "",
            "authorization: Basic YW5uOnNlY3JldA==",
            "authorization: Basic YW5uOndyb25n",
            "x-key: sesame",
            "x-key: open-x",
            "referer: http://good.test/x",
            "referer: http://bad.test/",
            "referer: https://a.better.test/",
        ],
        // "secret", by apr1.
        files: &[("users", "ann:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n")],
        ..Case::default()
    })
    .await;
}

/// A second server that is asked who may come in.
#[tokio::test]
async fn auth_requests() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location / { proxy_pass http://@A@; proxy_set_header Host $host; }
        location /app/ { auth_request /check; proxy_pass http://@A@; proxy_set_header Host $host; }
        location /dead/ { auth_request /gone; proxy_pass http://@A@; proxy_set_header Host $host; }
        location /other/ { auth_request /local; proxy_pass http://@A@; }
        location /token/ { auth_request /tokens; proxy_pass http://@A@; }
        location /alone/ { auth_request /bare; proxy_pass http://@A@; proxy_set_header Host $host; }
        location = /check { internal; proxy_pass http://@B@/verify; proxy_pass_request_body off; proxy_set_header Content-Length ""; }
        location = /gone { internal; proxy_pass http://127.0.0.1:1/; }
        location = /local { internal; return 403; }
        location = /tokens {
            internal;
            if ($http_x_admin != 1) { return 403; }
            proxy_pass http://@B@/verify;
            proxy_set_header Content-Length "";
        }
        location = /bare {
            internal;
            proxy_pass http://@B@/verify;
            proxy_pass_request_headers off;
            proxy_set_header Content-Length "";
        }
    }
}
"#,
        paths: &["/", "/app/x", "/app/", "/dead/x", "/other/x", "/check", "/gone", "/local", "/token/x", "/alone/x"],
        methods: &["GET", "POST"],
        fields: &["", "x-admin: 1"],
        known: &[("/other/", "auth_request /local"), ("/token/", "auth_request /tokens")],
        ..Case::default()
    })
    .await;
}

/// Old addresses: `return`, `rewrite` with each of its flags, `if`.
#[tokio::test]
async fn rewrites_and_redirects() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name new.test;
        proxy_set_header Host $host;
        rewrite ^/gone$ /here permanent;
        rewrite ^/moved/(.*)$ /to/$1 redirect;
        rewrite ^/old-api/(.*)$ /api/$1 last;
        if ($arg_debug) { return 403; }
        if ($http_user_agent ~* "badbot") { return 403; }
        location / { proxy_pass http://@A@; }
        location /api/ { proxy_pass http://@B@/v1/; }
        location /v1/ { rewrite ^/v1/(.*)$ /v2/$1 break; proxy_pass http://@C@; }
        location /strip/ { rewrite ^/strip/(.*)$ /$1 break; proxy_pass http://@C@; }
        location /out { return 301 https://else.test$request_uri; }
        location /teapot { return 418; }
        location /text { return 200 "hello"; }
        location /to-a { return 302 /a; }
    }
    server { listen 127.0.0.1:@PORT@; server_name old.test; return 301 http://new.test$request_uri; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name certs.test;
        if ($host = certs.test) { return 301 https://$host$request_uri; }
        return 404;
    }
}
"#,
        hosts: &["new.test", "old.test", "certs.test", "unknown.test"],
        paths: &[
            "/",
            "/gone",
            "/gone/",
            "/moved/x",
            "/moved/x/y?z=1",
            "/old-api/x",
            "/old-api/",
            "/api/x",
            "/v1/x?y=1",
            "/v1/",
            "/strip/a/b",
            "/out/x",
            "/teapot",
            "/text",
            "/to-a",
            "/a?debug=1",
            "/api/x?debug=0",
        ],
        fields: &["", "user-agent: BadBot/1"],
        ..Case::default()
    })
    .await;
}

/// Targets by `map`: by host, by header, by cookie.
#[tokio::test]
async fn targets_by_map() {
    compare(Case {
        config: r#"
events {}
http {
    map $host $backend { hostnames; default @A@; b.test @B@; *.c.test @C@; }
    map $http_x_version $versioned { default @A@; v2 @B@; ~^beta-\d+$ @C@; }
    map $cookie_group $by_cookie { default "@A@"; "" "@D@"; test "@B@"; }
    map $http_upgrade $connection_upgrade { default upgrade; '' close; }
    map $versioned $which { default other; @B@ second; }
    server {
        listen 127.0.0.1:@PORT@ default_server;
        proxy_set_header Host $host;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $connection_upgrade;
        location / { proxy_pass http://$backend; }
        location /version/ { proxy_pass http://$versioned; proxy_set_header Host $host; proxy_set_header X-Which $which; }
        location /cookie/ { proxy_pass http://$by_cookie; }
    }
}
"#,
        hosts: &["a.test", "b.test", "x.c.test", "c.test", "B.TEST"],
        paths: &["/", "/x?y", "/version/x", "/cookie/x"],
        known: &[("B.TEST", "sent as it came")],
        methods: &["GET", "POST"],
        fields: &["", "x-version: v2", "x-version: V2", "x-version: beta-7", "x-version: beta-x", "cookie: group=test", "cookie: group=x"],
        ..Case::default()
    })
    .await;
}

/// Locations within locations, and a regex that goes before some of them.
#[tokio::test]
async fn nested_locations() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        proxy_set_header Host $host;
        location / { proxy_pass http://@A@; }
        location /app/ {
            proxy_pass http://@B@;
            location /app/static/ { proxy_pass http://@C@; }
            location ~ \.php$ { return 403; }
            location = /app/exact { return 204; }
        }
        location /app/long/ { proxy_pass http://@D@; }
        location ~ \.php$ { proxy_pass http://@A@; }
        location ~ ^/api/(\w+)/ {
            proxy_pass http://@B@;
            location ~ /private$ { return 403; }
        }
        location ^~ /pure/ { proxy_pass http://@C@; location ~ \.gif$ { return 410; } }
    }
}
"#,
        paths: &[
            "/",
            "/x.php",
            "/app/",
            "/app/x",
            "/app/x.php",
            "/app/static/x",
            "/app/static/x.php",
            "/app/exact",
            "/app/long/x",
            "/app/long/x.php",
            "/api/a/b",
            "/api/a/private",
            "/api/a",
            "/pure/x",
            "/pure/x.php",
            "/pure/x.gif",
            "/app",
        ],
        methods: &["GET", "POST"],
        ..Case::default()
    })
    .await;
}

/// Files beside a server: `root`, `alias`, `try_files`.
#[tokio::test]
async fn files_and_what_is_tried() {
    compare(Case {
        config: r#"
events {}
http {
    default_type text/plain;
    server {
        listen 127.0.0.1:@PORT@;
        root @DIR@/www;
        location / { try_files $uri $uri/ =404; }
        location /app/ { try_files $uri /app/index.html; }
        location /api/ { proxy_pass http://@A@; proxy_set_header Host $host; }
        location /media/ { alias @DIR@/files/; }
        location /maybe/ { try_files $uri @app; }
        location @app { proxy_pass http://@B@; proxy_set_header Host $host; }
        location /run/ { fastcgi_pass 127.0.0.1:9000; }
    }
}
"#,
        paths: &[
            "/",
            "/index.html",
            "/a.txt",
            "/none",
            "/app/",
            "/app/some/page",
            "/app/real.txt",
            "/api/x",
            "/media/m.txt",
            "/media/none",
            "/maybe/there.txt",
            "/maybe/none",
            "/run/x",
        ],
        methods: &["GET", "HEAD"],
        known: &[("/run/", "fastcgi_pass"), ("/app/", "the last file is")],
        files: &[
            ("www/index.html", "index"),
            ("www/a.txt", "a"),
            ("www/app/index.html", "app"),
            ("www/app/real.txt", "real"),
            ("www/maybe/there.txt", "there"),
            ("files/m.txt", "m"),
        ],
        ..Case::default()
    })
    .await;
}

/// Headers in both directions, and a rate that only some clients have.
#[tokio::test]
async fn headers_and_variables() {
    compare(Case {
        config: r#"
events {}
http {
    map $http_x_plan $plan { default free; gold gold; }
    proxy_set_header Host $host;
    proxy_set_header X-Outer outer;
    server {
        listen 127.0.0.1:@PORT@;
        set $team blue;
        location / { proxy_pass http://@A@; }
        location /own/ {
            proxy_set_header Host target.test;
            proxy_set_header X-Method $request_method;
            proxy_set_header X-Query $arg_q;
            proxy_set_header X-Path $uri;
            proxy_set_header X-Gone "";
            proxy_set_header X-Plan $plan;
            proxy_set_header X-Team $team;
            proxy_pass http://@A@;
        }
        location /odd/ { proxy_set_header Host $host; proxy_set_header X-Odd $nginx_version; proxy_pass http://@A@; }
        location /default/ { proxy_set_header X-Only only; proxy_pass http://@B@; }
    }
}
"#,
        paths: &["/", "/own/x?q=1", "/own/", "/odd/x", "/default/x"],
        methods: &["GET", "POST"],
        fields: &["", "x-gone: here", "x-plan: gold", "x-odd: forged", "x-outer: forged"],
        known: &[("/odd/", "X-Odd")],
        ..Case::default()
    })
    .await;
}

/// What can't be converted is closed, whatever it stands in.
#[tokio::test]
async fn what_is_not_known_is_closed() {
    compare(Case {
        config: r#"
events {}
http {
    upstream many { least_conn; server @A@ weight=2; server @A@; server @D@ backup; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        proxy_set_header Host $host;
        location / { proxy_pass http://many; }
        location ~ ^/(?!public)private { return 403; }
        location /jump/ { rewrite ^/jump/(.*)$ /$1 last; }
        location /file/ { if (-f $request_filename) { return 403; } proxy_pass http://@B@; }
        location /var/ { proxy_pass http://$arg_to; }
        location /big/ { client_max_body_size 1; proxy_pass http://@A@; }
    }
    server { listen 127.0.0.1:@PORT@; server_name b.test; include @DIR@/extra.conf; location / { proxy_pass http://@B@; proxy_set_header Host $host; } }
    server { listen 127.0.0.1:@PORT@; server_name *.w.test .d.test; location / { proxy_pass http://@C@; proxy_set_header Host $host; } }
}
"#,
        hosts: &["a.test", "b.test", "x.w.test", "d.test", "x.d.test", "w.test"],
        paths: &["/x", "/private", "/file/x", "/closed/x", "/big/x"],
        methods: &["GET", "POST"],
        known: &[("a.test", "(?!public)"), ("w.test", "(?!public)"), ("b.test", "extra"), ("/file/", "-f")],
        files: &[("extra.conf", "location /closed/ { deny all; }\n")],
        ..Case::default()
    })
    .await;
}

/// Servers are chosen by port before they are by name.
#[tokio::test]
async fn several_ports() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test both.test;
        location / { proxy_pass http://@A@; proxy_set_header Host $host; }
        location /private { return 403; }
    }
    server { listen 127.0.0.1:@PORT@ default_server; server_name _; location / { return 404; } }
    server {
        listen 127.0.0.1:@PORT2@;
        server_name b.test both.test;
        location / { proxy_pass http://@B@; proxy_set_header Host $host; }
    }
    server { listen 127.0.0.1:@PORT2@; listen 127.0.0.1:@PORT@; server_name c.test; location / { proxy_pass http://@C@; proxy_set_header Host $host; } }
}
"#,
        hosts: &["a.test", "b.test", "both.test", "c.test", "d.test"],
        paths: &["/", "/private"],
        ..Case::default()
    })
    .await;
}
