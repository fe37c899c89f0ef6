//! nginx: conditions on files, last words of `try_files`, redirects by maps and groups, each beside the original.

use super::compare::{Case, compare};

const FILES: &[(&str, &str)] = &[
    ("www/index.html", "index"),
    ("www/a.txt", "a"),
    ("www/page.html", "page"),
    ("www/sub/index.html", "sub"),
    ("www/empty/x.txt", "x"),
    ("www/app.php", "<?php echo 'app ', $_SERVER['REQUEST_URI'], ' ', $_GET['q'] ?? '-';"),
    ("www/index.php", "<?php echo 'front ', $_SERVER['REQUEST_URI'], ' ', $_GET['q'] ?? '-';"),
];
const PATHS: &[&str] = &[
    "/",
    "/a.txt",
    "/page",
    "/page.html",
    "/sub/",
    "/sub",
    "/empty/",
    "/none",
    "/none/x?y=z",
    "/app.php?q=1",
];

/// Servers of nginx with these directives each, one a name: `n0.test`, `n1.test` and so on.
async fn servers(http: &str, servers: &[&str], case: Case<'_>) {
    let mut config = format!("events {{}}\nhttp {{\n{http}\n");
    let mut names = Vec::new();
    for (n, server) in servers.iter().enumerate() {
        names.push(format!("n{n}.test"));
        config.push_str(&format!(
            "server {{\nlisten 127.0.0.1:@PORT@;\nserver_name n{n}.test;\n{server}\n}}\n"
        ));
    }
    config.push_str("}\n");
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    compare(Case { config: &config, hosts: &hosts, ..case }).await;
}

#[tokio::test]
async fn conditions_on_files() {
    let root = "root @DIR@/www; index index.html;";
    let all: Vec<String> = [
        "location / { if (!-f $request_filename) { proxy_pass http://@A@; break; } }",
        "location / { if (-f $request_filename) { break; } if (!-e $request_filename) { proxy_pass http://@A@; } }",
        "location / { if (-f $request_filename.html) { rewrite (.*) $1.html break; } if (!-e $request_filename) { proxy_pass http://@A@; } }",
        "location / { proxy_set_header X-From here; if (!-e $request_filename) { rewrite ^/(.*)$ /app/$1 break; proxy_pass http://@A@; } }",
        "location / { if (!-e $request_filename) { return 404; } }",
        "location / { set $is 0; if (!-f $request_filename) { set $is 1; } if (!-d $request_filename) { set $is \"${is}1\"; } if ($is = 11) { proxy_pass http://@A@; } }",
        "location / { if (!-e $request_filename) { rewrite ^ /page.html last; } }",
        "location / { if (!-e $request_filename) { return 302 /page.html; } }",
    ]
    .iter()
    .map(|server| format!("{root} {server}"))
    .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let known = &[("POST", "405 where it is not read")];
    servers(
        "",
        &all,
        Case { paths: PATHS, methods: &["GET", "POST"], files: FILES, known, ..Case::default() },
    )
    .await;
}

#[tokio::test]
async fn front_controllers_by_conditions() {
    let php = "location ~ \\.php$ { fastcgi_pass unix:@DIR@/fpm.sock; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_URI $request_uri; fastcgi_param REQUEST_METHOD $request_method; }";
    let all: Vec<String> = [
        "location / { if (!-e $request_filename) { rewrite ^/(.*)$ /index.php?q=$1 last; } }",
        "location / { if (-f $request_filename) { break; } rewrite ^(.+)$ /index.php?q=$1 last; }",
        "if (!-e $request_filename) { rewrite ^.*$ /index.php last; }",
        "location / { try_files $uri @front; } location @front { rewrite ^ /index.php last; }",
        "location / { try_files $uri.html $uri $uri/ /index.php?q=$uri; }",
    ]
    .iter()
    .map(|server| format!("root @DIR@/www; index index.html; {server} {php}"))
    .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    servers("", &all, Case { paths: PATHS, files: FILES, php: true, ..Case::default() }).await;
}

/// nginx asks whether a script is there before it passes it on; the gateway passes no other on.
#[tokio::test]
async fn scripts_that_are_looked_for() {
    let passed = "fastcgi_pass unix:@DIR@/fpm.sock; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_URI $request_uri; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param PATH_INFO $fastcgi_path_info;";
    let split = "fastcgi_split_path_info ^(.+?\\.php)(/.*)$;";
    let all = [
        format!("location / {{ try_files $uri $uri/ =404; }} location ~ [^/]\\.php(/|$) {{ {split} if (!-f $document_root$fastcgi_script_name) {{ return 404; }} {passed} }}"),
        format!("location ~ \\.php$ {{ if (!-e $request_filename) {{ return 404; }} {passed} }}"),
    ]
    .map(|server| format!("root @DIR@/www; index index.php; {server}"));
    let all = [all[0].as_str(), all[1].as_str()];
    let mut paths = PATHS.to_vec();
    paths.extend(["/app.php/x/y", "/none.php", "/none.php/x", "/sub/none.php"]);
    servers("", &all, Case { paths: &paths, files: FILES, php: true, ..Case::default() }).await;
}

/// Files of another folder, and indexes that a location with a folder of its own or before regexes serves itself.
#[tokio::test]
async fn files_in_other_folders() {
    let all = [
        "root @DIR@; location / { try_files /www$uri /www$uri.html /none$uri @app; } location @app { proxy_pass http://@A@; }",
        "root @DIR@; location / { try_files /www/$uri =404; }",
        "location /i/ { alias @DIR@/www/; index a.txt; } location /a { proxy_pass http://@A@; } location /sub { alias @DIR@/www/sub; }",
        "root @DIR@; index index.html; location ~ \\.html$ { deny all; } location ^~ /www/ { } location / { proxy_pass http://@A@; }",
    ];
    let mut paths = PATHS.to_vec();
    paths.extend(["/i/", "/i/a.txt", "/www/", "/www/page.html", "/www/sub/"]);
    servers("", &all, Case { paths: &paths, files: FILES, ..Case::default() }).await;
}

/// The page that a folder or `try_files` leads to has the fields of its own location.
#[tokio::test]
async fn fields_of_pages() {
    let page = "location = /index.html { add_header Cache-Control no-store; }";
    let all: Vec<String> = [
        &format!("location / {{ try_files $uri $uri/ /index.html; }} {page}"),
        &format!("location / {{ }} {page} location /sub/ {{ expires 1h; }}"),
        "location / { try_files $uri /page.html; } location ~* \\.html$ { expires -1; } location ~ \\.txt$ { expires 1h; }",
        &format!("location / {{ expires 2h; }} {page}"),
        "location / { } location ~ \\.html$ { add_header X-Page $uri; }",
    ]
    .iter()
    .map(|server| format!("root @DIR@/www; index index.html; {server}"))
    .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let known = &[
        ("n3.test", "without the fields of the location"),
        ("n4.test", "without the fields of the location"),
    ];
    servers("", &all, Case { paths: PATHS, files: FILES, known, ..Case::default() }).await;
}

#[tokio::test]
async fn last_words_of_try_files() {
    let app = "location /app/ { proxy_pass http://@A@; proxy_set_header X-From app; }";
    let all: Vec<String> = [
        "location / { try_files $uri $uri/ /app/index?$args; }",
        "location / { try_files $uri /app/none; }",
        "location / { try_files $uri @app; } location @app { rewrite ^/(none.*)$ /cgi/$1 break; proxy_pass http://@B@; }",
        "location / { try_files $uri @app; } location @app { return 302 /a.txt; }",
        "location / { try_files $uri @app; } location @app { rewrite ^(.*)$ /app$1 permanent; }",
        "location / { try_files $uri @app; } location @app { return 410; }",
        "location / { try_files /missing.html $uri $uri.html @app; } location @app { proxy_pass http://@B@; }",
        "location / { try_files $uri $uri/ /index.html; }",
        "location / { try_files $uri /page.html =404; } location ~* \\.html$ { add_header X-Html yes; }",
        "location / { try_files /page.html @app; } location @app { proxy_pass http://@B@; }",
        "location / { try_files /pages/$host$uri.html $uri =404; }",
    ]
    .iter()
    .map(|server| format!("root @DIR@/www; index index.html; {server} {app}"))
    .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let known = &[
        ("n1.test/none/x?y=z", "the query of the request stays"),
        ("POST", "405 where it is not read"),
        ("n8.test", "the last file is sent without the fields"),
    ];
    let paths = [PATHS, &["/app/x", "/.hidden", "/none.js"]].concat();
    servers(
        "",
        &all,
        Case { paths: &paths, methods: &["GET", "POST"], files: FILES, known, ..Case::default() },
    )
    .await;
}

#[tokio::test]
async fn redirects_by_maps_and_groups() {
    let many: String = (0..40).map(|n| format!("/many/{n} /new/{n};\n")).collect();
    let http = format!(
        "map $uri $new {{ default ''; /a /b; /C https://x.test/c; ~^/d/(.*)$ /e/$1; ~*^/f/(?<rest>.*)$ /g?x=$rest; }}
         map $request_uri $exact {{ default ''; /q?x=1 /q1; /q /q0; }}
         map $uri $table {{ default ''; {many} }}
         map $host $to {{ default c.test; n3.test b.test; }}"
    );
    let all = [
        "if ($new) { return 301 $new; } location / { proxy_pass http://@A@; }",
        "if ($exact != '') { rewrite ^ $exact permanent; } location / { proxy_pass http://@A@; }",
        "location / { if ($table) { return 302 https://z.test$table; } proxy_pass http://@A@; }",
        "location = / { return 301 https://$to$request_uri; } location / { return 301 https://$server_name$request_uri; }",
        "if ($request_uri ~ ^/old/(.*)$) { return 301 /new/$1; } if ($request_uri ~ \"^/i\\.php\\?id=(\\d+)$\") { return 301 /i/$1; } location / { proxy_pass http://@A@; }",
        "if ($args ~ ^id=(\\d+)$) { return 301 /posts/$1; } if ($args ~* union) { return 403; } if ($query_string = '') { return 410; } if ($arg_n ~ ^([a-z]+)$) { return 302 /n/$1; } location / { proxy_pass http://@A@; }",
        "if ($host ~ ^n(\\d)\\.(.+)$) { set $n $1; return 301 https://m$1.$2$request_uri; } location / { proxy_pass http://@A@; }",
        "if ($http_x = '') { return 400; } set $t \"\"; if ($args ~ a=1) { set $t A; } if ($http_x = b) { set $t \"${t}B\"; } if ($t = AB) { return 403; } location / { proxy_pass http://@A@; }",
    ];
    servers(
        &http,
        &all,
        Case {
            paths: &[
                "/",
                "/a",
                "/A?x",
                "/C",
                "/d/1/2?z",
                "/F/x",
                "/q?x=1",
                "/q",
                "/q?x=2",
                "/many/7",
                "/many/99",
                "/old/x?y=1",
                "/old/",
                "/i.php?id=12",
                "/i.php?id=x",
                "/x?id=5",
                "/x?a=1",
                "/x?u=UNION+1",
                "/x?n=abc",
                "/x?n=a1",
            ],
            fields: &["", "x: b"],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn a_file_switches_maintenance_on() {
    let site = "root @DIR@/www; error_page 503 @maintenance; \
        location @maintenance { rewrite ^(.*)$ /page.html break; } location / { proxy_pass http://@A@; } \
        location /files/ { alias @DIR@/www/; }";
    let there = format!("if (-f $document_root/a.txt) {{ return 503; }} {site}");
    let gone = format!("if (-f $document_root/off.txt) {{ return 503; }} {site}");
    let within = "location / { if (-e @DIR@/www/a.txt) { return 503; } proxy_pass http://@A@; }";
    servers(
        "",
        &[&there, &gone, within],
        Case { paths: &["/", "/x", "/files/a.txt", "/page.html"], files: FILES, ..Case::default() },
    )
    .await;
}
