//! Sites of further applications behind nginx, written after their manuals: one row for each, all beside the original.

use super::compare::{Case, compare};

/// An application's servers, and the requests for it.
struct App {
    /// Blocks of `http` beside the server.
    http: &'static str,
    /// What stands in its server, but for `listen` and `server_name`.
    server: &'static str,
    paths: &'static [&'static str],
    methods: &'static [&'static str],
    fields: &'static [&'static str],
    known: &'static [(&'static str, &'static str)],
    php: bool,
}

const PLAIN: App = App {
    http: "",
    server: "",
    paths: &["/"],
    methods: &["GET", "POST"],
    fields: &[""],
    known: &[],
    php: false,
};

const FILES: &[(&str, &str)] = &[
    ("www/index.html", "index"),
    ("www/index.php", "<?php echo 'front ', $_SERVER['REQUEST_URI'], ' ', $_GET['q'] ?? '-';"),
    ("www/update.php", "<?php echo 'update';"),
    ("www/robots.txt", "robots"),
    ("www/page/index.html", "page"),
    ("www/assets/a.css", "css"),
    ("www/uploads/a.png", "png"),
    ("www/private/a.txt", "secret"),
    ("www/500.html", "oh"),
    ("www/.env", "SECRET=1"),
    ("userContent/a.txt", "content"),
    ("htpasswd", "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n"),
];

/// Runs an application's configuration.
async fn run(app: App) {
    let App { http, server, paths, methods, fields, known, php } = app;
    let config = format!(
        "events {{}}\nhttp {{\ntypes {{ text/html html; text/css css; text/plain txt; image/png png; }}\n{http}\nserver {{\nlisten 127.0.0.1:@PORT@;\nserver_name a.test;\n{server}\n}}\n}}\n"
    );
    let always = [("POST", "405 where it is not read"), ("", "there is no `Expires`")];
    let known = [known, &always].concat();
    let case =
        Case { config: &config, paths, methods, fields, known: &known, php, files: FILES, ..Case::default() };
    compare(case).await;
}

#[tokio::test]
async fn discourse_with_its_assets() {
    run(App {
        http: "upstream discourse { server @A@; } map $http_x_forwarded_proto $thescheme { default $scheme; https https; }",
        server: r#"
root @DIR@/www;
server_tokens off;
sendfile on;
client_max_body_size 10m;
etag off;
location ^~ /backups/ { internal; }
location /favicon.ico { return 204; access_log off; log_not_found off; }
location / {
    add_header ETag "";
    location ~ ^/uploads/short-url/ { proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $thescheme; proxy_pass http://discourse; break; }
    location ~ ^/(secure-media-uploads/|secure-uploads)/ { proxy_set_header Host $http_host; proxy_pass http://discourse; break; }
    location ~* (assets|plugins|uploads)/.*\.(eot|ttf|woff|woff2|ico|otf|css|png)$ { expires 1y; add_header Cache-Control public,immutable; add_header Access-Control-Allow-Origin *; }
    location = /srv/status { access_log off; log_not_found off; proxy_set_header Host $http_host; proxy_pass http://discourse; break; }
    location ~ ^/(svg-sprite/|letter_avatar/|user_avatar|highlight-js|stylesheets|service-worker) {
        proxy_ignore_headers "Set-Cookie";
        proxy_hide_header "Set-Cookie";
        proxy_hide_header "X-Discourse-Username";
        proxy_set_header Host $http_host;
        proxy_pass http://discourse;
        break;
    }
    try_files $uri @discourse;
}
location /message-bus/ { proxy_set_header Host $http_host; proxy_http_version 1.1; proxy_buffering off; proxy_pass http://discourse; break; }
location @discourse { proxy_set_header Host $http_host; proxy_set_header X-Request-Start "t=1"; proxy_pass http://discourse; }
"#,
        paths: &[
            "/", "/t/x/1", "/assets/a.css", "/assets/none.css", "/uploads/a.png", "/uploads/short-url/a", "/robots.txt",
            "/backups/x", "/favicon.ico", "/srv/status", "/letter_avatar/x/1.png", "/message-bus/1/poll",
        ],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn gitlab_of_the_omnibus_package() {
    run(App {
        http: "upstream gitlab-workhorse { server @A@; } map $http_upgrade $connection_upgrade { default upgrade; '' close; }",
        server: r#"
set $http_host_with_default "";
if ($http_host = "") { set $http_host_with_default "a.test"; }
if ($http_host != "") { set $http_host_with_default $http_host; }
client_max_body_size 0;
gzip on;
proxy_set_header Host $http_host_with_default;
proxy_set_header X-Real-IP $remote_addr;
proxy_set_header Connection $connection_upgrade;
proxy_set_header Upgrade $http_upgrade;
location ~ (\.git/git-receive-pack$|\.git/info/refs\?service=git-receive-pack$|\.git/gitlab-lfs/objects) { proxy_cache off; proxy_pass http://gitlab-workhorse; proxy_request_buffering off; }
location ~ ^/api/v\d { proxy_pass http://gitlab-workhorse; proxy_request_buffering off; }
location /-/metrics { allow 127.0.0.0/8; deny all; proxy_pass http://gitlab-workhorse; }
location /-/readiness { allow 10.0.0.0/8; deny all; proxy_pass http://gitlab-workhorse; }
location = /robots.txt { return 200 "User-agent: *\n"; }
location / { proxy_pass http://gitlab-workhorse; }
error_page 404 /404.html;
error_page 502 /500.html;
location ~ ^/(404|500)\.html$ { root @DIR@/www; internal; }
"#,
        paths: &["/", "/g/p.git/git-receive-pack", "/api/v4/x", "/-/metrics", "/-/readiness", "/robots.txt", "/500.html"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn sentry_with_relay_and_its_loader() {
    run(App {
        http: "upstream relay { server @A@; keepalive 2; } upstream sentry { server @B@; } proxy_next_upstream error timeout invalid_header http_502 http_503; \
               set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;",
        server: r#"
proxy_redirect off;
proxy_set_header Host $host;
location /api/store/ { proxy_pass http://relay; }
location ~ ^/api/[1-9]\d*/ { proxy_pass http://relay; }
location ^~ /api/0/relays/ { proxy_pass http://relay; }
location ^~ /js-sdk/ { root @DIR@/www; add_header Access-Control-Allow-Origin *; }
location / { proxy_pass http://sentry; add_header Access-Control-Allow-Origin *; }
location /_static/ { proxy_pass http://sentry; proxy_hide_header Content-Disposition; }
"#,
        paths: &["/", "/api/store/", "/api/7/envelope/", "/api/0/relays/register/", "/api/0/x", "/js-sdk/none.js", "/_static/x.js"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn a_registry_with_passwords_and_its_version_field() {
    run(App {
        http: "upstream registry { server @A@; } map $upstream_http_docker_distribution_api_version $docker_distribution_api_version { '' 'registry/2.0'; }",
        server: r#"
client_max_body_size 0;
chunked_transfer_encoding on;
location /v2/ {
    if ($http_user_agent ~ "^(docker\/1\.(3|4|5(?!\.[0-9]-dev))|Go ).*$" ) { return 404; }
    auth_basic "Registry realm";
    auth_basic_user_file @DIR@/htpasswd;
    add_header 'Docker-Distribution-Api-Version' $docker_distribution_api_version always;
    proxy_pass http://registry;
    proxy_set_header Host $http_host;
    proxy_read_timeout 900;
}
"#,
        paths: &["/", "/v2/", "/v2/a/manifests/latest"],
        fields: &["", "authorization: Basic YWRhOnNlY3JldA==", "authorization: Basic YWRhOndyb25n", "user-agent: Go 1"],
        known: &[("/v2/", "Docker-Distribution-Api-Version")],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn vaultwarden_and_its_admin_page() {
    run(App {
        http: "upstream vaultwarden { zone v 64k; server @A@; keepalive 2; } upstream hub { server @B@; }",
        server: r#"
client_max_body_size 525M;
location / { proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; proxy_pass http://vaultwarden; }
location /admin { allow 10.0.0.0/8; deny all; proxy_set_header Host $host; proxy_pass http://vaultwarden; }
location /notifications/hub { proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade"; proxy_pass http://hub; }
location /notifications/hub/negotiate { proxy_pass http://vaultwarden; }
location = /alive { add_header X-Alive yes; return 200 alive; }
"#,
        paths: &["/", "/admin", "/admin/users", "/administrator", "/notifications/hub", "/notifications/hub/negotiate", "/alive"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn synapse_with_its_well_known_answers() {
    run(App {
        server: r#"
location ~ ^(/_matrix|/_synapse/client) { proxy_pass http://@A@; proxy_set_header Host $host:$server_port; client_max_body_size 50M; }
location /.well-known/matrix/client { default_type application/json; add_header Access-Control-Allow-Origin *; return 200 '{"m.homeserver": {"base_url": "https://a.test"}}'; }
location = /.well-known/matrix/server { default_type application/json; return 200 '{"m.server": "a.test:443"}'; }
location ~ ^/_synapse/admin { return 403; }
location / { return 302 https://app.a.test$request_uri; }
"#,
        paths: &["/", "/x?y", "/_matrix/client/versions", "/_synapse/client/x", "/_synapse/admin/v1", "/.well-known/matrix/client", "/.well-known/matrix/server"],
        known: &[("/_matrix", "with its port"), ("/_synapse/client", "with its port")],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn drupal_with_clean_urls() {
    run(App {
        server: r#"
root @DIR@/www;
index index.php;
location = /favicon.ico { log_not_found off; access_log off; }
location = /robots.txt { allow all; log_not_found off; access_log off; }
location ~* \.(txt|log)$ { deny all; }
location ~ \..*/.*\.php$ { return 403; }
location ~ ^/private/ { return 403; }
location ~ (^|/)\. { return 403; }
location / { try_files $uri /index.php?$query_string; }
location @rewrite { rewrite ^ /index.php; }
location ~ /vendor/.*\.php$ { deny all; return 404; }
location ~ '\.php$|^/update.php' { fastcgi_split_path_info ^(.+?\.php)(|/.*)$; try_files $fastcgi_script_name =404; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri; fastcgi_intercept_errors on; fastcgi_pass unix:@DIR@/fpm.sock; }
location ~* \.(js|css|png|jpg|gif|ico|svg)$ { try_files $uri @rewrite; expires max; log_not_found off; }
if ($request_uri ~* "^(.*/)index\.php/(.*)") { return 307 $1$2; }
"#,
        paths: &[
            "/", "/node/1?x=y", "/robots.txt", "/other.txt", "/.env", "/private/a.txt", "/assets/a.css", "/assets/none.css",
            "/update.php", "/none.php", "/vendor/x.php", "/a.b/x.php", "/index.php?q=1",
        ],
        known: &[("", "fastcgi_intercept_errors")],
        php: true,
        methods: &["GET"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn symfony_with_one_script() {
    run(App {
        server: r#"
root @DIR@/www;
location / { try_files $uri /index.php$is_args$args; }
location ~ ^/index\.php(/|$) { fastcgi_pass unix:@DIR@/fpm.sock; fastcgi_split_path_info ^(.+\.php)(/.*)$; fastcgi_param SCRIPT_FILENAME $realpath_root$fastcgi_script_name; fastcgi_param DOCUMENT_ROOT $realpath_root; fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri; internal; }
location ~ \.php$ { return 404; }
"#,
        paths: &["/", "/a/b?q=1", "/robots.txt", "/index.php", "/index.php/x", "/update.php", "/page/"],
        php: true,
        methods: &["GET"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn rails_with_maintenance_and_cached_pages() {
    run(App {
        http: "upstream puma { server @A@ fail_timeout=0; }",
        server: r#"
root @DIR@/www;
error_page 500 502 504 /500.html;
error_page 503 @maintenance;
location @maintenance { rewrite ^(.*)$ /500.html break; }
if (-f $document_root/system/maintenance.html) { return 503; }
if ($request_method !~ ^(GET|HEAD|PUT|PATCH|POST|DELETE|OPTIONS)$ ) { return 405; }
location ^~ /assets/ { gzip_static on; expires max; add_header Cache-Control public; }
location ~* \.(git|env|bak)$ { return 404; }
try_files $uri/index.html $uri @puma;
location / { try_files $uri/index.html $uri @puma; }
location @puma { proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header Host $http_host; proxy_redirect off; proxy_pass http://puma; }
"#,
        paths: &["/", "/posts/1", "/page", "/assets/a.css", "/assets/none.css", "/x.env", "/robots.txt"],
        methods: &["GET", "POST", "TRACE"],
        known: &[("TRACE", "405")],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn jenkins_with_static_files_of_its_own() {
    run(App {
        http: "upstream jenkins { keepalive 4; server @A@; }",
        server: r#"
root @DIR@/www;
ignore_invalid_headers off;
location ~ "^/static/[0-9a-fA-F]{8}\/(.*)$" { rewrite "^/static/[0-9a-fA-F]{8}\/(.*)" /$1 last; }
location /userContent { root @DIR@; if (!-f $request_filename) { rewrite (.*) /jenkins$1 last; break; } sendfile on; }
location / { sendfile off; proxy_pass http://jenkins; proxy_redirect default; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_max_temp_file_size 0; client_max_body_size 10m; proxy_request_buffering off; }
"#,
        paths: &["/", "/job/x/", "/static/0123abcd/css/x.css", "/static/x/y", "/userContent/a.txt", "/userContent/none", "/login"],
        known: &[("/static/0123abcd", "which location it leads to is not known beforehand")],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn minio_with_its_console_below_a_path() {
    run(App {
        http: "upstream s3 { least_conn; server @A@; } upstream console { least_conn; server @B@; }",
        server: r#"
ignore_invalid_headers off;
client_max_body_size 0;
proxy_buffering off;
location / { proxy_set_header Host $http_host; proxy_connect_timeout 300; proxy_set_header Connection ""; chunked_transfer_encoding off; proxy_pass http://s3; }
location /minio/ui/ { rewrite ^/minio/ui/(.*) /$1 break; proxy_set_header Host $http_host; proxy_set_header X-NginX-Proxy true; real_ip_header X-Real-IP; proxy_pass http://console; }
location = /minio/ui { return 301 $scheme://$http_host/minio/ui/; }
"#,
        paths: &["/", "/bucket/key?x-id=GetObject", "/minio/ui", "/minio/ui/", "/minio/ui/login?x=1", "/minio/health/live"],
        methods: &["GET", "PUT", "DELETE"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn an_old_site_with_many_redirects() {
    run(App {
        http: r#"map $uri $moved { default ""; /about.html /about; /Shop /store; ~^/blog/(?<slug>[^/]+)\.html$ /posts/$slug; }
                 map $http_user_agent $is_bot { default 0; ~*(badbot|scraper) 1; }
                 map $arg_lang $language { default en; de de; fr fr; }"#,
        server: r#"
if ($is_bot) { return 403; }
if ($moved) { return 301 $moved; }
if ($args ~ ^page_id=(\d+)$) { return 301 /pages/$1; }
location = /lang { return 302 /$language/; }
location ~* ^/user/([a-z0-9]+)/profile$ { return 301 /u/$1; }
rewrite ^/old/(.*)$ /new/$1 permanent;
rewrite ^/docs/v1/(.+)$ /docs/v2/$1 redirect;
location / { proxy_pass http://@A@; proxy_set_header X-Language $language; expires 1h; }
location /static/ { alias @DIR@/www/; expires 7d; }
location /never/ { proxy_pass http://@B@; expires -1; }
location /slow/ { alias @DIR@/www/; limit_rate 512k; }
"#,
        paths: &[
            "/", "/about.html", "/shop", "/blog/hello.html", "/blog/a/b.html", "/?page_id=3", "/?page_id=x", "/lang", "/lang?lang=de",
            "/lang?lang=xx", "/User/ada/profile", "/old/x?y", "/docs/v1/a", "/static/robots.txt", "/never/x", "/slow/robots.txt",
        ],
        fields: &["", "user-agent: BadBot/1"],
        ..PLAIN
    })
    .await;
}

#[tokio::test]
async fn a_small_cache_before_an_application() {
    run(App {
        http: "proxy_cache_path @DIR@/cache levels=1:2 keys_zone=app:1m max_size=10m inactive=60m use_temp_path=off;",
        server: r#"
location / { proxy_cache app; proxy_cache_valid 200 10m; proxy_cache_methods GET HEAD; proxy_cache_bypass $http_x_no_cache; proxy_no_cache $http_x_no_cache; proxy_ignore_headers Cache-Control; proxy_pass http://@A@; }
location /api/ { proxy_cache off; proxy_pass http://@B@; }
"#,
        paths: &["/", "/x?y=1", "/api/x"],
        fields: &["", "x-no-cache: 1"],
        ..PLAIN
    })
    .await;
}
