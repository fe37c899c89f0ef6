//! What nginx's rewrites leave for the directives behind them, and what locations have of those around them.

use super::compare::{Case, compare};

/// Variables have the new path, and what was said by the old one is not taken for it.
#[tokio::test]
async fn variables_behind_rewrites() {
    compare(Case {
        config: r#"
events {}
http {
    map $uri $by_path { default other; /old/x old; }
    server {
        listen 127.0.0.1:@PORT@;
        set $before $uri;
        set $copied one;
        set $copy $copied;
        set $copied two;
        rewrite ^/old/(.*)$ /new/$1 last;
        rewrite ^/query/(.*)$ /new/$1?n=1? last;
        rewrite ^/more/(.*)$ /new/$1?n=1 last;
        proxy_set_header X-Path $uri;
        proxy_set_header X-Args $args;
        proxy_set_header X-Copy $copy$copied;
        location /new/ { proxy_pass http://@A@; }
        location /map/ { rewrite ^/map/(.*)$ /to/$1 break; proxy_set_header X-Map $by_path; proxy_set_header X-Before $before; proxy_pass http://@B@; }
        location / { proxy_pass http://@C@; }
    }
}
"#,
        paths: &["/old/x", "/old/x?a=b", "/query/x?a=b", "/more/x?a=b", "/new/y", "/map/x", "/z?q"],
        known: &[
            ("/more/", "proxy_set_header X-Args $args: a variable in it has no counterpart"),
            ("/map/", "proxy_set_header X-Map $by_path: a variable in it has no counterpart"),
        ],
        ..Case::default()
    })
    .await;
}

/// Behind `break` outside of locations, the path that `proxy_pass` has is not put before the new one.
#[tokio::test]
async fn a_break_of_the_server() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        rewrite ^/api/(.*)$ /in/$1 break;
        if ($http_x_a) { rewrite ^/if/(.*)$ /in/$1 break; }
        rewrite ^/last/(.*)$ /in/$1 last;
        location /in/ { proxy_pass http://@A@/v2/; }
        location / { proxy_pass http://@B@/w; }
    }
}
"#,
        paths: &["/api/x", "/if/x", "/last/x?q=1", "/in/x", "/x"],
        fields: &["", "x-a: 1"],
        ..Case::default()
    })
    .await;
}

/// Fields of `add_header` are on redirects of `rewrite`, and on those to a location's slash.
#[tokio::test]
async fn fields_of_redirects() {
    compare(Case {
        config: r#"
events {}
http {
    map $request_method $flag { default ""; GET 1; }
    server {
        listen 127.0.0.1:@PORT@;
        add_header X-Always yes always;
        add_header X-Some yes;
        rewrite ^/old/(.*)$ /new/$1 permanent;
        location /go/ { rewrite ^/go/(.*)$ https://else.test/$1; proxy_pass http://@A@; }
        location /hide { proxy_hide_header X-Origin-Secret; add_header X-Origin-Secret $flag; proxy_pass http://@A@; }
        location /own { add_header X-Own 1; rewrite ^ /x redirect; }
        location /slash/ { proxy_pass http://@A@; }
        location /hidden/ { internal; proxy_pass http://@A@; }
        location /in { location /in/side/ { proxy_pass http://@B@; } location /in/ { proxy_pass http://@C@; } proxy_pass http://@A@; }
        location / { proxy_pass http://@B@; }
    }
}
"#,
        paths: &["/hide", "/old/x", "/go/x", "/own", "/slash", "/hidden", "/in", "/in/", "/in/side", "/in/side/x", "/"],
        ..Case::default()
    })
    .await;
}

/// Several fields of one name are named; `$remote_user` is nobody whom nothing asks.
#[tokio::test]
async fn fields_for_targets() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location /host { proxy_set_header Host $http_host; proxy_set_header Host fixed.test; proxy_pass http://@A@; }
        location /two { proxy_set_header X-A 1; proxy_set_header x-a 2; proxy_pass http://@A@; }
        location /user { proxy_set_header X-User $remote_user; proxy_pass http://@A@; }
        location / { proxy_pass http://@B@; }
    }
}
"#,
        paths: &["/host", "/two", "/user", "/", "/a", "/b", "/c"],
        fields: &["", "authorization: Basic YW5uOnNlY3JldA=="],
        known: &[
            ("/host", "proxy_set_header Host fixed.test: another `proxy_set_header` sets this field"),
            ("/two", "proxy_set_header x-a 2: another `proxy_set_header` sets this field"),
            ("/user", "proxy_set_header X-User $remote_user: a variable in it has no counterpart"),
        ],
        ..Case::default()
    })
    .await;
}

/// Locations within one have its `internal`, and none of its targets and files; a named location has nothing of the one that
/// leads to it.
#[tokio::test]
async fn locations_within_others() {
    compare(Case {
        config: r#"
events {}
http {
    root @DIR@/www;
    server {
        listen 127.0.0.1:@PORT@;
        location /api { internal; location ^~ /api/ { proxy_pass http://@A@; } location ~ \.php$ { proxy_pass http://@A@; } }
        location /out/ { proxy_pass http://@A@/; location /out/in/ { add_header X-In 1; } location /out/b/ { try_files $uri @named; } }
        location /try { try_files $uri @named; location /try/in { add_header X-In 1; } }
        location /alias { alias @DIR@/www/out; add_header X-Al 1; }
        location /host/ { proxy_set_header Host $http_host; proxy_set_header X-A 1; try_files $uri @named; }
        location @named { proxy_pass http://@D@; }
        location / { proxy_pass http://@B@; }
    }
}
"#,
        paths: &[
            "/api", "/api/x", "/apix.php", "/alias", "/alias/in/x", "/alias?q=1", "/out/x", "/out/in/x", "/out/b/x", "/try", "/try/in", "/host/x", "/x",
        ],
        files: &[("www/out/in/x", "file x"), ("www/index.html", "index")],
        ..Case::default()
    })
    .await;
}

/// Groups are those of the regex that was asked last, and `break` skips what is behind it.
#[tokio::test]
async fn groups_and_breaks() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location ~ ^/a/(\w+)/(\w+) {
            if ($http_x_a ~ ^(.)) { return 302 /to/$1; }
            return 302 /plain/$2;
        }
        location ~ ^/b/(\w+) { set $kept $1; if ($http_x_a ~ ^(.)) { set $kept $1; } return 302 /kept/$kept; }
        location ~ ^/r/(\w+) { rewrite ^/r/(z.*)$ /y/$1 redirect; return 302 /other/$1; }
        location ~ ^/c/(\w+) { if ($uri ~ ^/c/(x.*)) { return 302 /x/$1; } return 302 /other/$1; }
        location /d { if ( $http_x_a = zed ) { set $who zed; break; } return 403; proxy_set_header X-Who $who; proxy_pass http://@A@/in; }
        location /e/ { if ($http_x_a) { set $flag "${flag}a"; } set $flag "${flag}b"; proxy_set_header X-Flag $flag; proxy_pass http://@A@; }
        location / { proxy_pass http://@B@; }
    }
}
"#,
        paths: &["/a/one/two", "/b/one", "/r/one", "/r/zed", "/c/xy", "/c/one", "/d", "/d/x", "/e/x", "/"],
        fields: &["", "x-a: zed"],
        known: &[
            ("/a/", "return 302 /to/$1: this redirect can't be converted"),
            ("/b/", "return 302 /kept/$kept: this redirect can't be converted"),
        ],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn folders_without_their_slash() {
    compare(Case {
        config: r#"
events {}
http {
    server { listen 127.0.0.1:@PORT@; root @DIR@/www; location / { index index.html; } }
}
"#,
        paths: &["/with", "/with/", "/without", "/without/", "/without/x", "/"],
        files: &[("www/index.html", "index"), ("www/with/index.html", "in"), ("www/without/x", "x")],
        ..Case::default()
    })
    .await;
}

/// Servers of hosts that fit a pattern are not the default one's, and go before it in nginx's order.
#[tokio::test]
async fn hosts_by_pattern() {
    compare(Case {
        config: r#"
events {}
http {
    server { listen 127.0.0.1:@PORT@ default_server; location / { proxy_pass http://@A@; } }
    server { listen 127.0.0.1:@PORT@; server_name ~^(\w+)\.r\.test$; location / { proxy_pass http://@B@; } location /x { deny all; } }
    server { listen 127.0.0.1:@PORT@; server_name b.test www.*; location / { proxy_pass http://@C@; } location /x { return 403; } }
    server { listen 127.0.0.1:@PORT@; server_name ~r\.test www.r.*; location / { proxy_pass http://@D@; } }
}
"#,
        hosts: &["a.test", "q.r.test", "Q.R.test:80", "q.r.test.", "x.q.r.test", "www.a.test", "www.r.test", "b.test", "www"],
        paths: &["/", "/x"],
        ..Case::default()
    })
    .await;
}

/// A name that only other ports have is, on this one, a pattern's or the default server's; a default server's own name is no
/// pattern's.
#[tokio::test]
async fn names_of_other_ports() {
    compare(Case {
        config: r#"
events {}
http {
    server { listen 127.0.0.1:@PORT@; server_name a.test x.in.test; location / { proxy_pass http://@A@; } }
    server { listen 127.0.0.1:@PORT@; server_name ~^ad; location / { return 403; } }
    server { listen 127.0.0.1:@PORT@ default_server; location / { proxy_pass http://@B@; } }
    server { listen 127.0.0.1:@PORT2@; server_name admin.test; location / { proxy_pass http://@C@; } }
    server { listen 127.0.0.1:@PORT2@; server_name *.in.test; location / { return 403; } }
    server { listen 127.0.0.1:@PORT2@ default_server; server_name b.test; location / { return 403; } }
    server { listen 127.0.0.1:@PORT2@; server_name ~^b ~x\.test$; location / { proxy_pass http://@D@; } }
}
"#,
        hosts: &[
            "a.test",
            "qx.test",
            "admin.test",
            "x.in.test",
            "y.in.test",
            "b.test",
            "bx.test",
            "none.test",
        ],
        paths: &["/"],
        ..Case::default()
    })
    .await;
}

/// A path that is rewritten to a location's without its slash is redirected to it.
#[tokio::test]
async fn rewrites_to_a_location_without_its_slash() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        location /old { rewrite ^ /app last; }
        location /app/ { proxy_pass http://@A@; }
        location / { proxy_pass http://@B@; }
    }
}
"#,
        paths: &["/old", "/old?q=1", "/app", "/app/", "/x"],
        ..Case::default()
    })
    .await;
}

/// A new path that several locations may take goes to each of them by what the old one is like.
#[tokio::test]
async fn rewrites_into_several_locations() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        rewrite ^/old/(.*)$ /new/$1 last;
        rewrite ^/item/([0-9]+)$ /shop/$1?from=item last;
        rewrite ^/code/(.*)$ /run.do?code=$1 last;
        rewrite ^/any/(.*)$ /$1 last;
        location = /new/exact { return 403; }
        location /new/ { proxy_pass http://@A@; }
        location /new/api { deny all; }
        location ^~ /new/static/ { proxy_pass http://@B@; }
        location ~ \.do$ { proxy_pass http://@C@; }
        location ~* ^/new/admin { return 401; }
        location /shop/ { proxy_pass http://@B@; location /shop/1 { internal; proxy_pass http://@D@; } }
        location /in/ { internal; proxy_pass http://@D@; }
        location / { proxy_pass http://@D@/root; }
    }
}
"#,
        paths: &[
            "/old/x",
            "/old/x?a=1",
            "/old/exact",
            "/old/exact/x",
            "/old/api/x",
            "/old/apix",
            "/old/static/x.do",
            "/old/x.do",
            "/old/ADMIN/x",
            "/old/static",
            "/old/",
            "/item/1",
            "/item/12?q=1",
            "/item/2",
            "/item/x",
            "/code/7",
            "/any/new/x",
            "/any/new/api/x",
            "/any/in/x",
            "/any/x",
            "/any/x.do",
            "/new/api",
            "/in/x",
            "/shop/1",
        ],
        known: &[("/old/static ", "lacks the slash of a location")],
        ..Case::default()
    })
    .await;
}

/// Texts of several variables in `map` and `if`: each way to divide what they are compared with.
#[tokio::test]
async fn texts_of_several_variables() {
    compare(Case {
        config: r#"
events {}
http {
    map $host$uri $blocked { default 0; a.test/secret 1; "b.test/Secret" 1; }
    map "$request_method:$http_x_role" $writes { default no; "DELETE:" yes; "DELETE:guest" yes; "GET:" ""; }
    map $http_x_one$http_x_two $both { default ""; ab 1; }
    map $request_uri $listed { default ""; /listed one; /listed?a=b two; }
    server {
        listen 127.0.0.1:@PORT@;
        if ($blocked) { return 403; }
        if ($writes = yes) { return 405; }
        if ($both) { return 410; }
        set $where "$scheme:$host";
        set $zeros $http_x_one$arg_off;
        if ($where = "http:c.test") { return 302 https://c.test/; }
        if ($zeros = 00) { return 409; }
        if ($request_uri = /asked?x=1) { return 418; }
        if ($listed = two) { return 404; }
        if ($listed) { return 400; }
        location / { proxy_pass http://@A@; }
    }
}
"#,
        hosts: &["a.test", "b.test", "c.test"],
        paths: &[
            "/",
            "/secret",
            "/secret/x",
            "/?off=0",
            "/asked",
            "/asked?x=1",
            "/listed",
            "/listed?a=b",
            "/listed?a=c",
        ],
        methods: &["GET", "DELETE"],
        fields: &[
            "",
            "x-role: guest",
            "x-role: admin",
            "x-one: a",
            "x-one: ab",
            "x-two: ab",
            "x-one: 0",
            "x-one: 00",
        ],
        ..Case::default()
    })
    .await;
}
