//! `Location`, `Refresh` and cookies of targets, rewritten on their way back.

use std::time::Duration;

use ferrum_edge::import::Format;

use super::compare::{Case, compare, imported, spec};
use super::server::{Original, folder, free_port};
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::wire::Wire;

/// What targets answer.
const REDIRECTS: &[&str] = &[
    "",
    "reply-status: 302\r\nreply-location: http://@A@/two/x?y=z",
    "reply-status: 302\r\nreply-location: http://@A@/two/",
    "reply-status: 301\r\nreply-location: http://@A@/other",
    "reply-status: 302\r\nreply-location: http://backend/two/x",
    "reply-status: 302\r\nreply-location: http://backend",
    "reply-status: 302\r\nreply-location: http://other.test/x",
    "reply-status: 302\r\nreply-location: http://a.test/x",
    "reply-status: 302\r\nreply-location: https://a.test/login?to=http://a.test/",
    "reply-status: 302\r\nreply-location: /two/x",
    "reply-status: 302\r\nreply-location: /app/page/3",
    "reply-status: 302\r\nreply-location: http://internal.lan:8080/app/page/3",
    "reply-refresh: 5; URL=http://@A@/two/x",
    "reply-refresh: 5;url=/app/page/3",
    "reply-refresh: 5",
];

#[tokio::test]
async fn nginx_redirects_of_targets() {
    compare(Case {
        config: r#"
events {}
http {
    upstream backend { server @A@; }
    server {
        listen 127.0.0.1:@PORT@;
        location / { proxy_pass http://@A@; }
        location /one/ { proxy_pass http://@A@/two/; }
        location = /exact { proxy_pass http://@A@/two/; }
        location /off/ { proxy_pass http://@A@/two/; proxy_redirect off; }
        location /default/ { proxy_pass http://backend/two/; proxy_redirect http://other.test/ /o/; proxy_redirect default; }
        location /named { proxy_pass http://backend; proxy_set_header Host $host; }
        location /tls { proxy_pass http://backend; proxy_redirect http:// https://; }
        location /scheme { proxy_pass http://backend; proxy_redirect http://$host/ $scheme://new.$host/; }
        location /regex {
            proxy_pass http://backend;
            proxy_redirect ~^http://[^:/]+(?::\d+)?(?<rest>/app/.*)$ /sub$rest;
            proxy_redirect ~*^/APP/page/(\d+) /p/$1/$host;
        }
        location ~ ^/where/ { proxy_pass http://backend; }
    }
}
"#,
        paths: &["/x", "/one/x", "/exact", "/off/x", "/default/x", "/named", "/tls", "/scheme", "/regex", "/where/x"],
        fields: REDIRECTS,
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn nginx_cookies_of_targets() {
    compare(Case {
        config: r#"
events {}
http {
    proxy_cookie_path /all/ /;
    server {
        listen 127.0.0.1:@PORT@;
        location / { proxy_pass http://@A@; }
        location /domain {
            proxy_pass http://@A@;
            proxy_cookie_domain .app.internal .$host;
            proxy_cookie_domain ~\.lan$ .example.test;
        }
        location /path {
            proxy_pass http://@A@;
            proxy_cookie_path /app/ /;
            proxy_cookie_path ~^/user/(\w+)/ /u/$1;
        }
        location /trick { proxy_pass http://@A@; proxy_cookie_path / "/; Secure; HttpOnly; SameSite=Lax"; }
        location /off { proxy_pass http://@A@; proxy_cookie_path off; }
        location /flags {
            proxy_pass http://@A@;
            proxy_cookie_flags sid secure httponly samesite=strict;
            proxy_cookie_flags ~^open nosecure nohttponly nosamesite;
            proxy_cookie_flags plain samesite=none;
        }
    }
}
"#,
        paths: &["/", "/domain", "/path", "/trick", "/off", "/flags"],
        fields: &[
            "",
            "reply-set-cookie: sid=1",
            "reply-set-cookie: sid=1; Path=/; Domain=.app.internal; secure; SameSite=Lax",
            "reply-set-cookie: SID=1;path=/app/x;HttpOnly",
            "reply-set-cookie: openid=a b=c; Path=/user/7/x; Secure; HttpOnly; SameSite=None; Max-Age=3",
            "reply-set-cookie: PLAIN=; Domain=a.LAN; Path=/all/",
            "reply-set-cookie: nothing; Path=/app/",
            "reply-set-cookie: two=1; Domain=x.app.internal; Path=/appx",
            "reply-set-cookie: a=1; Path=/app/\r\nreply-set-cookie: b=2; Path=/all/",
        ],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn caddy_replaces_in_fields() {
    for format in [Format::Caddyfile, Format::CaddyJson] {
        compare(Case {
            format,
            config: r#"
{
    admin off
    auto_https off
}
http://a.test:@PORT@ {
    bind 127.0.0.1
    handle /up* {
        reverse_proxy @A@ {
            header_up X-Name "^(\w+)-(?P<last>\w+)$" "${last}.$1"
        }
    }
    handle {
        reverse_proxy @A@ {
            header_down Location "^http://[^/]*(/.*)$" "https://{host}$1"
            header_down Set-Cookie "Path=/app/" "Path=/"
            header_down Refresh "app" "a$$p$9"
        }
    }
}
"#,
            paths: &["/x", "/up"],
            fields: &[
                "",
                "x-name: ada-lovelace",
                "reply-status: 302\r\nreply-location: http://@A@/two/x?y=z",
                "reply-status: 302\r\nreply-location: /two/x",
                "reply-set-cookie: a=1; Path=/app/; Path=/app/\r\nreply-set-cookie: b=2; Path=/app/x",
                "reply-refresh: 5; url=/app/app",
            ],
            ..Case::default()
        })
        .await;
    }
}

#[tokio::test]
async fn haproxy_replaces_in_fields() {
    compare(Case {
        format: Format::Haproxy,
        config: r#"
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend main
    bind 127.0.0.1:@PORT@
    http-request replace-header X-Name ^(\w+)-(\w+) \2.\1
    http-response replace-header Location ^http://[^/]*(/.*)$ https://a.test\1
    http-response replace-header Set-Cookie (.*)Path=/app/(.*) \1Path=/\2
    default_backend app
backend app
    server a @A@
"#,
        paths: &["/x"],
        fields: &[
            "",
            "x-name: ada-lovelace-king",
            "reply-status: 302\r\nreply-location: http://@A@/two/x?y=z",
            "reply-status: 302\r\nreply-location: /two/x",
            "reply-set-cookie: a=1; Path=/app/; Secure\r\nreply-set-cookie: b=2; Path=/app/x",
        ],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn nginx_texts_in_bodies() {
    compare(Case {
        config: r#"
events {}
http {
    sub_filter old.test $host;
    server {
        listen 127.0.0.1:@PORT@;
        location / { proxy_pass http://@A@; }
        location /all {
            proxy_pass http://@A@;
            sub_filter 'href="/' 'href="/app/';
            sub_filter </HEAD> '<script src="/x.js"></script></head>';
            sub_filter_once off;
            sub_filter_types text/css;
        }
        location /any { proxy_pass http://@A@; sub_filter a bb; sub_filter_types *; sub_filter_last_modified on; }
        location /files/ { root @DIR@; sub_filter one two; }
    }
}
"#,
        paths: &["/", "/all", "/any", "/files/a.html", "/files/a.txt"],
        methods: &["GET", "HEAD"],
        fields: &[
            "",
            "reply-content-type: text/html\r\nreply-body: <a href=\"/x\">OLD.test old.test</a><A HREF=\"/y\"></head>\r\nreply-etag: \"1\"",
            "reply-content-type: text/css\r\nreply-body: a old.test href=\"/",
            "reply-content-type: text/html; charset=utf-8\r\nreply-status: 404\r\nreply-body: old.test",
            "reply-content-type: text/html\r\nreply-status: 304",
        ],
        files: &[("files/a.html", "one ONE one"), ("files/a.txt", "one")],
        ..Case::default()
    })
    .await;
}

/// `expires` by status, in place of what a target says, on files and on answers of the server's own.
#[tokio::test]
async fn nginx_expires() {
    compare(Case {
        config: r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        expires 1h;
        location / { proxy_pass http://@A@; }
        location /off { expires off; proxy_pass http://@A@; }
        location /max { expires max; proxy_pass http://@A@; }
        location /epoch { expires epoch; proxy_pass http://@A@; }
        location /past { expires -1; proxy_pass http://@A@; }
        location /days { expires 30d; add_header X-More yes; proxy_pass http://@A@; }
        location /files/ { root @DIR@; expires 10m; }
        location /text { return 200 "text"; }
        location /gone { return 410; }
        location /moved { return 301 https://b.test/; }
    }
}
"#,
        paths: &[
            "/",
            "/off",
            "/max",
            "/epoch",
            "/past",
            "/days",
            "/files/a.txt",
            "/files/none",
            "/text",
            "/gone",
            "/moved",
        ],
        fields: &[
            "",
            "reply-status: 404",
            "reply-status: 302\r\nreply-location: /x",
            "reply-cache-control: private, max-age=7\r\nreply-expires: 0",
        ],
        files: &[("files/a.txt", "file")],
        ..Case::default()
    })
    .await;
}

/// `limit_rate` of both takes the time that the rate says; what is not limited takes none.
#[tokio::test]
async fn nginx_limits_of_rates() {
    let (folder, port) = (folder("rates"), free_port());
    std::fs::create_dir_all(folder.join("slow")).expect("a folder");
    for name in ["slow/a.bin", "a.bin"] {
        std::fs::write(folder.join(name), vec![7; 192 << 10]).expect("a file");
    }
    let text = format!(
        "events {{}}\nhttp {{ root {}; server {{ listen 127.0.0.1:{port}; location /slow/ {{ limit_rate 64k; }} location / {{ }} }} }}",
        folder.display()
    );
    let imported = imported(Format::Nginx, &text, &folder);
    let (settings, spec) = spec(&imported);
    let edge = Edge::start_with(&settings, &spec);
    let original = Original::start(Format::Nginx, &text, &folder, port);
    for at in [original.address, edge.http()] {
        let mut taken = Vec::new();
        for path in ["/slow/a.bin", "/a.bin"] {
            let begun = std::time::Instant::now();
            let mut talker = Talker::new(Wire::open(at).await);
            talker
                .wire
                .send(format!("GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n"))
                .await;
            let head = talker.response(&http::Method::GET).await.expect("an answer");
            assert_eq!(head.status(), 200, "{path} of {at}");
            assert_eq!(talker.body().await.expect("a body").len(), 192 << 10);
            taken.push(begun.elapsed());
        }
        // The first second's share is sent at once by both.
        assert!(
            taken[0] >= Duration::from_millis(1500) && taken[0] < Duration::from_secs(10),
            "{taken:?} of {at}"
        );
        assert!(taken[1] < taken[0] / 2, "{taken:?} of {at}");
    }
}
