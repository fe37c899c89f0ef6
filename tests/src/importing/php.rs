//! Sites on PHP-FPM beside nginx and Caddy: they return the same pages and never the source of a script.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

/// A script that prints the request that it receives.
const SHOW: &str = "<?php header('Content-Type: text/plain'); echo basename(__FILE__), '|', implode('|', array_map(
    fn($name) => $_SERVER[$name] ?? '-', ['SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_URI', 'REQUEST_METHOD',
    'DOCUMENT_URI', 'SERVER_NAME', 'HTTP_HOST', 'CONTENT_TYPE', 'CONTENT_LENGTH', 'HTTPS', 'REDIRECT_STATUS', 'HTTP_PROXY',
    'SERVER_PROTOCOL', 'HTTP_X_A', 'front_controller_active'])), '|', file_get_contents('php://input');";

const FILES: &[(&str, &str)] = &[
    ("www/index.php", SHOW),
    ("www/wp-login.php", SHOW),
    ("www/wp-admin/index.php", SHOW),
    ("www/wp-admin/admin-ajax.php", SHOW),
    ("www/xmlrpc.php", SHOW),
    ("www/wp-config.php", "<?php define('PASSWORD', 'hunter2');"),
    ("www/wp-content/uploads/2024/evil.php", SHOW),
    ("www/wp-content/uploads/2024/a.jpg", "a jpeg"),
    ("www/wp-content/themes/t/style.css", "body {}"),
    ("www/robots.txt", "User-agent: *"),
    ("www/docs/index.html", "docs"),
    ("www/.env", "SECRET=1"),
    ("www/.htaccess", "deny"),
    ("www/gone.php", "<?php http_response_code(410); echo 'gone';"),
    ("www/moved.php", "<?php header('Location: /elsewhere', true, 301);"),
    ("www/core/rest.php", SHOW),
    ("www/remote.php", SHOW),
    ("www/status.php", SHOW),
    ("www/public.php", SHOW),
    ("www/ocs/v1.php", SHOW),
    ("www/core/css/a.css", "a {}"),
    ("www/core/img/a.svg", "<svg/>"),
    ("www/data/secret.txt", "hidden"),
    ("www/config/config.php", "<?php $secret = 1;"),
];

const WORDPRESS: &str = r#"
events {}
http {
    include /etc/nginx/mime.types;
    access_log off;
    upstream php { server unix:@DIR@/fpm.sock; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name wp.test;
        root @DIR@/www;
        index index.php;
        client_max_body_size 16m;
        location = /favicon.ico { log_not_found off; access_log off; }
        location = /robots.txt { allow all; log_not_found off; access_log off; }
        location ~ /\. { deny all; }
        location ~* /(?:uploads|files)/.*\.php$ { deny all; }
        location / { try_files $uri $uri/ /index.php?$args; }
        location ~ \.php$ {
            try_files $uri =404;
            fastcgi_split_path_info ^(.+\.php)(/.+)$;
            fastcgi_pass php;
            fastcgi_index index.php;
            fastcgi_intercept_errors off;
            fastcgi_buffers 16 16k;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param DOCUMENT_URI $document_uri;
            fastcgi_param DOCUMENT_ROOT $document_root;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_param HTTPS $https if_not_empty;
            fastcgi_param SERVER_NAME $server_name;
            fastcgi_param REDIRECT_STATUS 200;
            fastcgi_param HTTP_PROXY "";
            fastcgi_param PATH_INFO $fastcgi_path_info;
        }
        location ~* \.(js|css|png|jpg|jpeg|gif|ico)$ { log_not_found off; }
    }
}
"#;

const PATHS: &[&str] = &[
    "/",
    "/?p=1",
    "/2024/05/hello-world/",
    "/2024/05/hello-world/?replytocom=3",
    "/about",
    "/index.php",
    "/index.php?a=b&c=%20d",
    "/wp-login.php",
    "/wp-login.php?redirect_to=%2Fwp-admin%2F",
    "/wp-admin/",
    "/wp-admin/admin-ajax.php",
    "/wp-admin/missing.php",
    "/xmlrpc.php",
    "/wp-config.php",
    "/missing.php",
    "/wp-content/uploads/2024/evil.php",
    "/wp-content/uploads/2024/a.jpg",
    "/wp-content/uploads/2024/a.jpg/x.php",
    "/wp-content/themes/t/style.css",
    "/robots.txt",
    "/favicon.ico",
    "/.env",
    "/.htaccess",
    "/gone.php",
    "/moved.php",
    "/wp-json/wp/v2/posts?per_page=1",
    "/feed/",
    "/sitemap.xml",
    "/docs/",
];

#[tokio::test]
async fn wordpress_beside_nginx() {
    compare(Case {
        config: WORDPRESS,
        hosts: &["wp.test"],
        paths: PATHS,
        methods: &["GET", "POST", "HEAD"],
        fields: &["", "x-a: 1", "proxy: http://evil.test"],
        files: FILES,
        php: true,
        ..Case::default()
    })
    .await;
}

/// What stands behind a script does not lead past a location that guards `.php` at the end.
#[tokio::test]
async fn paths_behind_scripts_beside_nginx() {
    compare(Case {
        config: WORDPRESS,
        hosts: &["wp.test"],
        paths: &[
            "/wp-content/uploads/2024/evil.php/",
            "/wp-content/uploads/2024/evil.php/a",
            "/wp-content/uploads/2024/evil.php/index.php",
            "/xmlrpc.php/",
            "/wp-login.php/x",
            "/index.php/a/b",
            "/wp-admin/admin-ajax.php/",
        ],
        methods: &["GET", "POST"],
        files: FILES,
        php: true,
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn a_folder_with_its_index_beside_nginx() {
    compare(Case {
        config: r#"
events {}
http {
    include /etc/nginx/mime.types;
    access_log off;
    server {
        listen 127.0.0.1:@PORT@;
        root @DIR@/www;
        index index.html index.php;
        location ~ \.php$ {
            fastcgi_pass unix:@DIR@/fpm.sock;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param DOCUMENT_URI $document_uri;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_param REDIRECT_STATUS 200;
            fastcgi_param SERVER_NAME $host;
            fastcgi_param PATH_INFO "";
        }
    }
}
"#,
        paths: &[
            "/",
            "/wp-admin/",
            "/wp-admin",
            "/docs/",
            "/docs",
            "/index.php",
            "/missing/",
            "/robots.txt",
            "/a.php",
            "/x/missing.jpg",
        ],
        methods: &["GET"],
        files: FILES,
        php: true,
        ..Case::default()
    })
    .await;
}

const NEXTCLOUD: &str = r#"
events {}
http {
    include /etc/nginx/mime.types;
    access_log off;
    upstream php-handler { server unix:@DIR@/fpm.sock; }
    server {
        listen 127.0.0.1:@PORT@;
        server_name cloud.test;
        client_max_body_size 512M;
        fastcgi_buffers 64 4K;
        add_header Referrer-Policy "no-referrer" always;
        add_header X-Content-Type-Options "nosniff" always;
        fastcgi_hide_header X-Powered-By;
        root @DIR@/www;
        index index.php index.html /index.php$request_uri;
        location = /robots.txt { allow all; log_not_found off; access_log off; }
        location ^~ /.well-known {
            location = /.well-known/carddav { return 301 /remote.php/dav/; }
            location = /.well-known/caldav { return 301 /remote.php/dav/; }
            return 301 /index.php$request_uri;
        }
        location ~ ^/(?:build|tests|config|lib|3rdparty|templates|data)(?:$|/) { return 404; }
        location ~ ^/(?:\.|autotest|occ|issue|indie|db_|console) { return 404; }
        location ~ \.php(?:$|/) {
            fastcgi_split_path_info ^(.+?\.php)(/.*)$;
            set $path_info $fastcgi_path_info;
            try_files $fastcgi_script_name =404;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param DOCUMENT_URI $document_uri;
            fastcgi_param SERVER_PROTOCOL $server_protocol;
            fastcgi_param SERVER_NAME $server_name;
            fastcgi_param REDIRECT_STATUS 200;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param PATH_INFO $path_info;
            fastcgi_param modHeadersAvailable true;
            fastcgi_param front_controller_active true;
            fastcgi_pass php-handler;
            fastcgi_intercept_errors off;
            fastcgi_request_buffering off;
            fastcgi_max_temp_file_size 0;
        }
        location ~ \.(?:css|js|mjs|svg|gif|ico|jpg|png|webp)$ { try_files $uri /index.php$request_uri; }
        location ~ \.woff2?$ { try_files $uri /index.php$request_uri; }
        location /remote { return 301 /remote.php$request_uri; }
        location / { try_files $uri $uri/ /index.php$request_uri; }
    }
}
"#;

#[tokio::test]
async fn nextcloud_beside_nginx() {
    compare(Case {
        config: NEXTCLOUD,
        hosts: &["cloud.test"],
        paths: &[
            "/index.php",
            "/index.php/apps/files/?dir=/",
            "/index.php/login",
            "/remote.php/dav/files/ann/a.txt",
            "/remote.php/dav/",
            "/status.php",
            "/public.php/webdav",
            "/ocs/v1.php/cloud/user?format=json",
            "/core/css/a.css",
            "/core/img/a.svg",
            "/robots.txt",
            "/.well-known/carddav",
            "/.well-known/caldav",
            "/.well-known/webfinger?resource=x",
            "/config/config.php",
            "/data/secret.txt",
            "/data",
            "/.htaccess",
            "/occ",
            "/console.php",
            "/missing.php",
            "/missing.php/x",
            "/core/rest.php/a/b",
            "/remote",
        ],
        methods: &["GET", "POST", "PUT", "HEAD"],
        files: FILES,
        php: true,
        ..Case::default()
    })
    .await;
}

/// A script without the variables for which Caddy sends other empty values.
const SHORT: &str = "<?php header('Content-Type: text/plain'); echo basename(__FILE__), '|', implode('|', array_map(
    fn($name) => $_SERVER[$name] ?? '-', ['SCRIPT_NAME', 'QUERY_STRING', 'REQUEST_URI', 'REQUEST_METHOD', 'SERVER_NAME',
    'HTTP_HOST', 'SERVER_PROTOCOL', 'HTTP_PROXY'])), '|', $_SERVER['PATH_INFO'] ?? '', '|', file_get_contents('php://input');";
const CADDY_FILES: &[(&str, &str)] = &[
    ("www/index.php", SHORT),
    ("www/wp-login.php", SHORT),
    ("www/wp-admin/index.php", SHORT),
    ("www/wp-admin/admin-ajax.php", SHORT),
    ("www/xmlrpc.php", SHORT),
    ("www/wp-config.php", "<?php define('PASSWORD', 'hunter2');"),
    ("www/wp-content/uploads/2024/a.jpg", "a jpeg"),
    ("www/wp-content/themes/t/style.css", "body {}"),
    ("www/robots.txt", "User-agent: *"),
    ("www/docs/index.html", "docs"),
    ("www/gone.php", "<?php http_response_code(410); echo 'gone';"),
    ("www/moved.php", "<?php header('Location: /elsewhere', true, 301);"),
];

#[tokio::test]
async fn php_fastcgi_beside_caddy() {
    compare(Case {
        format: Format::Caddyfile,
        config: r"
{
    admin off
    auto_https off
}
http://wp.test:@PORT@ {
    root * @DIR@/www
    php_fastcgi unix/@DIR@/fpm.sock
    file_server
}
",
        hosts: &["wp.test"],
        paths: PATHS,
        methods: &["GET", "POST"],
        known: &[
            ("wp-admin ", "in Caddy 308"),
            ("POST wp.test/wp-content", "on files are for PHP"),
            ("POST wp.test/robots", "on files are for PHP"),
        ],
        files: CADDY_FILES,
        php: true,
        ..Case::default()
    })
    .await;
}

/// `fastcgi_cache`: what is kept for one request is sent to the next, and callers that log in get pages of their own. The script
/// prints `X-A`, which the cache does not know.
#[tokio::test]
async fn a_site_with_a_cache_beside_nginx() {
    let cached = WORDPRESS
        .replace(
            "    upstream php",
            r#"    fastcgi_cache_path @DIR@/cache levels=1:2 keys_zone=wp:1m inactive=60m use_temp_path=off;
    fastcgi_cache_key "$scheme$request_method$host$request_uri";
    upstream php"#,
        )
        .replace(
            "        index index.php;",
            r#"        index index.php;
        set $skip_cache 0;
        if ($request_method = POST) { set $skip_cache 1; }
        if ($query_string != "") { set $skip_cache 1; }
        if ($request_uri ~* "/wp-admin/|/xmlrpc.php|wp-.*.php|/feed/|index.php|sitemap(_index)?.xml") { set $skip_cache 1; }
        if ($http_cookie ~* "comment_author|wordpress_logged_in") { set $skip_cache 1; }"#,
        )
        .replace(
            "            fastcgi_pass php;",
            "            fastcgi_pass php; fastcgi_cache wp; fastcgi_cache_valid 200 60m; fastcgi_cache_bypass $skip_cache; fastcgi_no_cache $skip_cache;",
        );
    assert!(
        cached.contains("fastcgi_cache wp")
            && cached.contains("keys_zone=wp")
            && cached.contains("set $skip_cache")
    );
    compare(Case {
        config: &cached,
        hosts: &["wp.test"],
        paths: &[
            "/",
            "/2024/a-post",
            "/?s=x",
            "/wp-login.php",
            "/wp-admin/",
            "/xmlrpc.php",
            "/index.php?a=b",
        ],
        methods: &["GET"],
        fields: &["", "x-a: 1", "x-a: 2", "cookie: wordpress_logged_in=1"],
        php: true,
        files: FILES,
        ..Case::default()
    })
    .await;
}
