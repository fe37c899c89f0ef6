//! Sites as people run them behind nginx, HAProxy and Caddy: one configuration for each application, written after its manual.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

#[tokio::test]
async fn grafana_below_a_path() {
    compare(Case {
        config: r#"
events {}
http {
    map $http_upgrade $connection_upgrade { default upgrade; '' close; }
    upstream grafana { server @A@; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        location / { return 404; }
        location /grafana/ {
            rewrite ^/grafana/(.*) /$1 break;
            proxy_set_header Host $host;
            proxy_pass http://grafana;
        }
        location /grafana/api/live/ {
            rewrite ^/grafana/(.*) /$1 break;
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header Host $host;
            proxy_pass http://grafana;
        }
    }
}
"#,
        paths: &["/", "/grafana", "/grafana/", "/grafana/d/x?orgId=1", "/grafana/api/live/ws"],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn mastodon_with_its_public_folder() {
    compare(Case {
        config: r#"
events {}
http {
    upstream backend { server @A@ fail_timeout=0; }
    upstream streaming { least_conn; server @B@ fail_timeout=0; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        keepalive_timeout 70;
        sendfile on;
        client_max_body_size 99m;
        root @DIR@/public;
        gzip on;
        gzip_disable "msie6";
        location / { try_files $uri @proxy; }
        location = /sw.txt { add_header Cache-Control "public, max-age=604800, must-revalidate" always; try_files $uri =404; }
        location ~ ^/assets/ {
            add_header Cache-Control "public, max-age=2419200, must-revalidate" always;
            add_header Strict-Transport-Security "max-age=63072000; includeSubDomains" always;
            try_files $uri =404;
        }
        location ^~ /api/v1/streaming {
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header Proxy "";
            proxy_pass http://streaming;
            proxy_buffering off;
            proxy_redirect off;
            tcp_nodelay on;
        }
        location @proxy {
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header Proxy "";
            proxy_pass_header Server;
            proxy_pass http://backend;
            proxy_buffering on;
            proxy_redirect off;
        }
        error_page 404 500 501 502 503 504 /500.html;
    }
}
"#,
        paths: &["/", "/home", "/robots.txt", "/sw.txt", "/assets/a.txt", "/assets/none.txt", "/api/v1/streaming/user"],
        fields: &["", "proxy: evil"],
        known: &[("none.txt", "error_page")],
        files: &[
            ("public/robots.txt", "robots"),
            ("public/sw.txt", "worker"),
            ("public/assets/a.txt", "script"),
            ("public/500.html", "oh"),
        ],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn jellyfin_and_home_assistant() {
    compare(Case {
        config: r#"
events {}
http {
    map $http_upgrade $connection_upgrade { default upgrade; '' close; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name jellyfin.test;
        client_max_body_size 20M;
        set $jellyfin 127.0.0.1;
        add_header X-Content-Type-Options "nosniff";
        add_header Permissions-Policy "accelerometer=(), camera=()" always;
        add_header Content-Security-Policy "default-src https: data: blob:; font-src 'self'";
        location = / { return 302 http://$host/web/; }
        location / {
            proxy_pass http://@A@;
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-Protocol $scheme;
            proxy_buffering off;
        }
        location = /web/ { proxy_pass http://@A@/web/index.html; proxy_set_header Host $host; }
        location /socket { proxy_pass http://@A@; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade"; }
    }
    server {
        listen 127.0.0.1:@PORT@;
        server_name ha.test;
        proxy_buffering off;
        location / {
            proxy_pass http://@B@;
            proxy_set_header Host $host;
            proxy_redirect http:// https://;
            proxy_http_version 1.1;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
        }
    }
    server { listen 127.0.0.1:@PORT@ default_server; server_name _; return 404; }
}
"#,
        hosts: &["jellyfin.test", "ha.test", "other.test"],
        paths: &["/", "/web/", "/web/main.js", "/socket", "/api/x?y=z", "/Items/1/Download"],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn a_registry_with_its_old_clients() {
    compare(Case {
        config: r#"
events {}
http {
    upstream registry { server @A@; }
    map $upstream_http_docker_distribution_api_version $docker_distribution_api_version { '' 'registry/2.0'; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        client_max_body_size 0;
        chunked_transfer_encoding on;
        location /v2/ {
            if ($http_user_agent ~ "^(docker\/1\.(3|4|5(?!\.[0-9]-dev))|Go ).*$" ) { return 404; }
            proxy_pass http://registry;
            proxy_set_header Host $http_host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_read_timeout 900;
        }
        location /v1/ { return 404; }
        location / { deny all; }
    }
}
"#,
        paths: &["/", "/v1/x", "/v2/", "/v2/a/manifests/latest"],
        methods: &["GET", "HEAD", "PUT"],
        fields: &[
            "",
            "user-agent: docker/1.4.1",
            "user-agent: docker/20.10",
            "user-agent: Go 1.1 package http",
        ],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn gitlab_with_its_workhorse() {
    compare(Case {
        config: r#"
events {}
http {
    upstream gitlab-workhorse { server @A@ fail_timeout=0; }
    map $http_upgrade $connection_upgrade_gitlab { default upgrade; '' close; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        server_tokens off;
        real_ip_header X-Real-IP;
        real_ip_recursive off;
        access_log off;
        location / {
            client_max_body_size 0;
            gzip off;
            proxy_read_timeout 300;
            proxy_connect_timeout 300;
            proxy_redirect off;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade_gitlab;
            proxy_pass http://gitlab-workhorse;
        }
        location ~ ^/(?:api/v4/jobs/request|-/metrics)$ { allow 10.0.0.0/8; deny all; proxy_pass http://gitlab-workhorse; }
        error_page 404 /404.html;
        error_page 502 /502.html;
        location ~ ^/(404|502)(-custom)?\.html$ { root @DIR@/public; internal; }
    }
}
"#,
        paths: &["/", "/group/project.git/info/refs?service=git-upload-pack", "/-/metrics", "/api/v4/jobs/request", "/404.html"],
        methods: &["GET", "POST"],
        files: &[("public/404.html", "gone"), ("public/502.html", "down")],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn discourse_and_a_maintenance_page() {
    compare(Case {
        config: r#"
events {}
http {
    limit_req_zone $binary_remote_addr zone=flood:10m rate=1000r/s;
    limit_conn_zone $binary_remote_addr zone=connperip:10m;
    upstream discourse { server @A@; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        limit_conn connperip 200;
        if ($http_user_agent ~* "semrush|ahrefs") { return 403; }
        location ~ ^/uploads/short-url/ { proxy_pass http://discourse; proxy_set_header Host $http_host; }
        location ~ /\.(?!well-known) { deny all; }
        location = /srv/status { access_log off; proxy_pass http://discourse; proxy_set_header Host $http_host; break; }
        location /downloads/ { internal; alias @DIR@/public/; }
        location / {
            limit_req zone=flood burst=1000 nodelay;
            proxy_set_header Host $http_host;
            proxy_set_header X-Request-Start "t=1";
            proxy_set_header X-Real-IP $remote_addr;
            proxy_pass http://discourse;
        }
    }
}
"#,
        paths: &["/", "/t/x/1", "/uploads/short-url/a.png", "/.git/config", "/.well-known/x", "/srv/status", "/downloads/a"],
        fields: &["", "user-agent: AhrefsBot"],
        files: &[("public/a", "a")],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn harbor_below_one_name() {
    compare(Case {
        config: r#"
events {}
http {
    upstream core { server @A@; }
    upstream portal { server @B@; }
    server {
        listen 127.0.0.1:@PORT@;
        server_tokens off;
        client_max_body_size 0;
        chunked_transfer_encoding on;
        add_header X-Frame-Options DENY;
        add_header Content-Security-Policy "frame-ancestors 'none'";
        location / { proxy_pass http://portal/; proxy_set_header Host $http_host; proxy_buffering off; }
        location /c/ { proxy_pass http://core/c/; proxy_set_header Host $host; proxy_buffering off; proxy_request_buffering off; }
        location /api/ { proxy_pass http://core/api/; proxy_set_header Host $host; }
        location /v1/ { return 404; }
        location /v2/ { proxy_pass http://core/v2/; proxy_set_header Host $http_host; }
        location /service/notifications { return 404; }
    }
}
"#,
        paths: &["/", "/harbor/sign-in", "/c/login", "/api/v2.0/health", "/v1/x", "/v2/_catalog", "/service/notifications", "/apix"],
        methods: &["GET", "POST"],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn haproxy_before_several_applications() {
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
    acl is_wp hdr(host) -i blog.test
    acl is_grafana hdr(host) -i grafana.test
    acl is_admin path_beg /wp-admin /wp-login.php
    acl from_office src 10.0.0.0/8
    acl bad_agent hdr_sub(user-agent) -i sqlmap nikto
    acl is_static path_end .css .js .png
    http-request deny if bad_agent
    http-request allow if { path_beg /grafana } is_grafana
    http-request deny if { hdr(x-powered) y } is_grafana
    http-request deny deny_status 403 if is_wp is_admin !from_office
    http-request set-header X-Site blog if is_wp
    http-request del-header X-Powered
    http-request redirect code 301 location http://new.test%[path] if { path_beg /old }
    http-response set-header X-Frame-Options SAMEORIGIN
    use_backend static if is_wp is_static
    use_backend blog if is_wp
    use_backend grafana if is_grafana
    default_backend none
backend blog
    server one @A@
backend static
    server two @B@
backend grafana
    http-request replace-path /grafana/(.*) /\1
    server three @C@
backend none
    http-request deny deny_status 404
"#,
        hosts: &["blog.test", "grafana.test", "other.test"],
        paths: &["/", "/wp-admin/x", "/wp-login.php", "/style.css", "/old/x", "/grafana/d/1"],
        fields: &["", "user-agent: sqlmap/1", "x-powered: y"],
        known: &[("other.test", "`http-response` rules hold for redirects and other answers")],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn caddy_with_snippets_for_several_sites() {
    compare(Case {
        format: Format::Caddyfile,
        config: "(secure) {
	header {
		X-Frame-Options DENY
		-X-Powered-By
		?X-Site {args.0}
	}
	@hidden path /.git/* /.env *.bak
	respond @hidden 404
}
(app) {
	import secure {args.0}
	reverse_proxy {args.1} {
		header_up X-Real-IP {remote_host}
	}
}
http://blog.test:@PORT@ {
	import app blog @A@
	redir /feed /rss permanent
}
http://wiki.test:@PORT@ {
	@api path /api/*
	handle @api {
		reverse_proxy @B@
	}
	handle_path /files/* {
		root * @DIR@/files
		file_server
	}
	handle {
		reverse_proxy @C@
	}
}
",
        hosts: &["blog.test", "wiki.test"],
        paths: &["/", "/.git/config", "/.env", "/x.bak", "/feed", "/api/x", "/files/a.txt", "/files/none"],
        files: &[("files/a.txt", "a")],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn nextcloud_behind_a_proxy_with_sentry_beside_it() {
    compare(Case {
        config: r#"
events {}
http {
    upstream sentry { server @B@; keepalive 4; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name cloud.test;
        client_max_body_size 10G;
        client_body_timeout 300s;
        location /.well-known/carddav { return 301 $scheme://$host/remote.php/dav; }
        location /.well-known/caldav { return 301 $scheme://$host/remote.php/dav; }
        location / {
            proxy_pass http://@A@/;
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_hide_header X-Powered-By;
            proxy_request_buffering off;
            add_header Strict-Transport-Security "max-age=15768000" always;
        }
    }
    server {
        listen 127.0.0.1:@PORT@;
        server_name sentry.test;
        proxy_set_header Host $host;
        location /api/store/ { proxy_pass http://sentry; client_max_body_size 1m; }
        location ~ ^/api/[1-9]\d*/(envelope|minidump)/ { proxy_pass http://sentry; }
        location ^~ /api/0/ { satisfy any; allow 127.0.0.1; deny all; proxy_pass http://sentry; }
        location / { if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; } proxy_pass http://sentry; }
    }
}
"#,
        hosts: &["cloud.test", "sentry.test"],
        paths: &[
            "/",
            "/.well-known/carddav",
            "/remote.php/dav/x",
            "/api/store/",
            "/api/12/envelope/",
            "/api/0/projects/",
            "/status.php",
        ],
        methods: &["GET", "POST", "PUT", "DELETE"],
        ..Case::default()
    })
    .await;
}
