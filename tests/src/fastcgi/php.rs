//! A site like WordPress on the system's PHP-FPM: permalinks, assets, uploads, forms, sessions.

use crate::support::edge::Edge;
use crate::support::php::PhpFpm;

use super::scripts::Site;

/// The front controller. It prints the request that it receives.
const INDEX: &str = r#"<?php
if (isset($_GET['fail'])) { trigger_error('on purpose', E_USER_ERROR); }
if (isset($_GET['go'])) { header('Location: /wp-login.php', true, 302); exit; }
if (isset($_GET['die'])) { header('Content-Length: 100'); echo 'short'; exit; }
if (isset($_GET['kill'])) { echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9); }
if (isset($_GET['big'])) { for ($i = 0; $i < 64; $i++) { echo str_repeat('0123456789abcdef', 4096); flush(); } exit; }
header('Content-Type: text/plain');
echo implode('|', [$_SERVER['REQUEST_URI'], $_SERVER['SCRIPT_NAME'], $_SERVER['PATH_INFO'] ?? '-',
  $_SERVER['QUERY_STRING'], $_SERVER['SERVER_NAME'], $_SERVER['HTTP_HOST'], $_SERVER['REQUEST_METHOD'],
  $_SERVER['PHP_SELF'], realpath($_SERVER['DOCUMENT_ROOT']) === realpath(__DIR__) ? 'root' : 'elsewhere']);
"#;
const LOGIN: &str = r"<?php
session_start();
if ($_SERVER['REQUEST_METHOD'] === 'POST') { $_SESSION['user'] = $_POST['log']; header('Location: /wp-admin/'); exit; }
header('Content-Type: text/plain');
echo 'user=' . ($_SESSION['user'] ?? 'nobody');
";
const UPLOAD: &str = r"<?php
header('Content-Type: text/plain');
if (isset($_FILES['f'])) { echo $_FILES['f']['name'], ' ', $_FILES['f']['size'], ' ', md5_file($_FILES['f']['tmp_name']); }
else { echo strlen(file_get_contents('php://input')); }
";

async fn site() -> (Site, PhpFpm, Edge) {
    let files = ["html/wp-content/themes/a/style.css", "html/robots.txt", "html/wp-content/uploads/x.jpg"];
    let site = Site::with(&files);
    site.write("html/index.php", INDEX);
    site.write("html/wp-login.php", LOGIN);
    site.write("html/wp-admin/index.php", "<?php echo 'admin ', $_SERVER['SCRIPT_NAME'];");
    site.write("html/wp-admin/upload.php", UPLOAD);
    site.write("html/wp-config.php", "<?php define('DB_PASSWORD', 'hunter2'); echo 'configured';");
    let php = PhpFpm::start(site.path()).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: wp, listen_path: /, {backend}, fastcgi: {{root: {root:?}, try_files: ['{{path}}', \
         '{{path}}/index.php', /index.php]}}}}\n\
         plugin_configs:\n  - {{id: s, plugin_name: static_files, scope: proxy, proxy_id: wp, config: {{root: {root:?}, \
         passthrough: true, index: [index.php]}}}}\n",
        backend = php.backend(),
        root = site.path().join("html"),
    ));
    (site, php, edge)
}

fn form(path: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: wp.test\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn pages_assets_and_forms_are_served() {
    let (_site, _php, edge) = site().await;
    let front =
        |uri: &str, query: &str| format!("{uri}|/index.php||{query}|a.test|a.test|GET|/index.php|root");
    for (path, expected) in [
        ("/", front("/", "")),
        ("/2024/05/hello-world/?x=1", front("/2024/05/hello-world/?x=1", "x=1")),
        (
            "/index.php/rest/v1?a",
            "/index.php/rest/v1?a|/index.php|/rest/v1|a|a.test|a.test|GET|/index.php/rest/v1|root".to_owned(),
        ),
        ("/robots.txt", "html/robots.txt".to_owned()),
        ("/wp-content/themes/a/style.css", "html/wp-content/themes/a/style.css".to_owned()),
        ("/wp-login.php", "user=nobody".to_owned()),
        ("/wp-admin/", "admin /wp-admin/index.php".to_owned()),
        ("/wp-config.php", "configured".to_owned()),
        ("/WP-CONFIG.PHP", front("/WP-CONFIG.PHP", "")),
        ("/wp-content/uploads/x.jpg/a.php", front("/wp-content/uploads/x.jpg/a.php", "")),
    ] {
        let (head, body) = edge.get(path).await;
        assert_eq!((head.status(), body), (200, expected), "{path}");
    }
    let (head, _) = edge.get("/?go=1").await;
    assert_eq!((head.status(), head.field("location")), (302, "/wp-login.php"));
    let (head, _) = edge.get("/wp-admin").await;
    assert_eq!((head.status(), head.field("location")), (301, "/wp-admin/"));
    // A session over two requests.
    let login = form("/wp-login.php", "application/x-www-form-urlencoded", "log=ann&pwd=x");
    let (head, _) = edge.ask(&login).await;
    assert_eq!((head.status(), head.field("location")), (302, "/wp-admin/"));
    let cookie = head.field("set-cookie").split(';').next().unwrap().to_owned();
    let again = format!("GET /wp-login.php HTTP/1.1\r\nhost: wp.test\r\ncookie: {cookie}\r\n\r\n");
    assert_eq!(edge.ask(&again).await.1, "user=ann");
}

#[tokio::test]
async fn uploads_and_long_answers_stream() {
    let (_site, _php, edge) = site().await;
    let file = "0123456789abcdef".repeat(1 << 18);
    let part = format!(
        "--b\r\ncontent-disposition: form-data; name=\"f\"; filename=\"photo.jpg\"\r\n\
         content-type: image/jpeg\r\n\r\n{file}\r\n--b--\r\n"
    );
    let (head, body) =
        edge.ask(&form("/wp-admin/upload.php", "multipart/form-data; boundary=b", &part)).await;
    assert_eq!(head.status(), 200);
    assert_eq!(body.split(' ').take(2).collect::<Vec<_>>(), ["photo.jpg", "4194304"], "{body}");
    let (_, body) = edge
        .ask(
            "PUT /wp-admin/upload.php HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n",
        )
        .await;
    assert_eq!(body, "5");
    let (head, body) = edge.get("/?big=1").await;
    assert_eq!((head.status(), body.len()), (200, 64 * 65536));
}

#[tokio::test]
async fn failures_show_as_failures() {
    let (_site, _php, edge) = site().await;
    assert_eq!(edge.get("/?fail=1").await.0.status(), 500);
    for path in ["/?die=1", "/?kill=1"] {
        let mut talker = edge.talker().await;
        talker.wire.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        let head = talker.response(&http::Method::GET).await.unwrap();
        assert_eq!(head.status(), 200, "{path}");
        assert!(talker.body().await.is_err(), "{path} looks whole");
    }
    // The site still works.
    assert_eq!(edge.get("/robots.txt").await.0.status(), 200);
    assert_eq!(edge.get("/wp-login.php").await.1, "user=nobody");
}
