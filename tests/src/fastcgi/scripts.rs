//! The script that a path runs. The gateway forwards no path to another file, and sends the source of none.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::edge::Edge;
use crate::support::fastcgi::{Responder, answer};

/// The folder of an application. Dropping it removes the folder.
pub(super) struct Site(PathBuf);

impl Site {
    /// Creates these files. The content of each is its own path.
    pub(super) fn with(files: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ferrum-site-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let site = Self(std::env::temp_dir().join(name));
        for file in files {
            site.write(file, file);
        }
        site
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A target that answers with the path of the script that it was to run.
async fn telling(root: &Path) -> String {
    let root = root.display().to_string();
    let port = Responder::listen().await.serve(move |request| {
        let file = request.param("SCRIPT_FILENAME").strip_prefix(&root).unwrap_or("elsewhere").to_owned();
        let told = ["SCRIPT_NAME", "PATH_INFO", "QUERY_STRING"].map(|name| request.param(name).to_owned());
        assert!(request.param("DOCUMENT_ROOT") == root);
        answer(&format!("Content-Type: text/plain\r\n\r\n{file} {}", told.join(" ")))
    });
    format!("backend_protocol: fastcgi, backend_host: 127.0.0.1, backend_port: {port}")
}

const FILES: &[&str] = &[
    "index.php",
    "page.php",
    "upper.PHP",
    "blog/index.php",
    "blog/style.css",
    "uploads/a.jpg",
    "uploads/evil.php.txt",
    ".env.php",
    "dir.php/inner.php",
    "sp ace.php",
];

#[tokio::test]
async fn only_scripts_that_exist_are_passed_on() {
    let site = Site::with(FILES);
    let outside = Site::with(&["secret.php"]);
    symlink(outside.path().join("secret.php"), site.path().join("out.php")).unwrap();
    symlink(site.path().join("page.php"), site.path().join("in.php")).unwrap();
    symlink("page.php", site.path().join("near.php")).unwrap();
    let backend = telling(site.path()).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, {backend}, fastcgi: {{root: {:?}}}}}\n",
        site.path()
    ));
    for (path, expected) in [
        ("/", Some("/index.php /index.php  ")),
        ("/page.php?a=1", Some("/page.php /page.php  a=1")),
        ("/upper.PHP", Some("/upper.PHP /upper.PHP  ")),
        ("/page.php/x/y", Some("/page.php /page.php /x/y ")),
        ("/blog/", Some("/blog/index.php /blog/index.php  ")),
        ("/dir.php/inner.php", Some("/dir.php/inner.php /dir.php/inner.php  ")),
        ("/sp%20ace.php", Some("/sp ace.php /sp ace.php  ")),
        ("/near.php", Some("/near.php /near.php  ")),
        // Absolute links are never followed, even if they lead back into the root.
        ("/in.php", None),
        ("/out.php", None),
        ("/blog", None),
        ("/missing.php", None),
        ("/uploads/a.jpg", None),
        ("/uploads/a.jpg/x.php", None),
        ("/uploads/a.jpg%00.php", None),
        ("/uploads/evil.php.txt", None),
        ("/.env.php", None),
        ("/%2e%2e/secret.php", None),
        ("/blog/..%2f..%2fsecret.php", None),
    ] {
        let (head, body) = edge.get(path).await;
        match expected {
            Some(expected) => assert_eq!((head.status(), body.as_str()), (200, expected), "{path}"),
            None => assert!(matches!(head.status(), 400 | 404), "{path}: {} {body}", head.status()),
        }
    }
    let (head, body) = edge.get("/missing.php").await;
    assert!(head.status() == 404 && body.contains("script_not_found"), "{body}");
}

#[tokio::test]
async fn a_front_controller_answers_what_is_no_file() {
    let site = Site::with(FILES);
    let backend = telling(site.path()).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, {backend}, fastcgi: {{root: {root:?}, try_files: ['{{path}}', \
         '{{path}}/index.php', '/index.php?q=${{request.path}}&${{request.query}}']}}}}\n\
         plugin_configs:\n  - {{id: s, plugin_name: static_files, scope: proxy, proxy_id: a, config: {{root: {root:?}, \
         passthrough: true, index: [index.html, index.php]}}}}\n",
        root = site.path()
    ));
    for (path, expected) in [
        ("/", "/index.php /index.php  "),
        ("/2024/hello/?a=b", "/index.php /index.php  q=/2024/hello/&a=b"),
        ("/blog/style.css", "blog/style.css"),
        ("/uploads/a.jpg", "uploads/a.jpg"),
        ("/uploads/evil.php.txt", "uploads/evil.php.txt"),
        ("/page.php", "/page.php /page.php  "),
        ("/blog/", "/blog/index.php /blog/index.php  "),
        ("/upper.PHP", "/upper.PHP /upper.PHP  "),
        // The front controller answers hidden and missing paths. `static_files` never sends such a file.
        ("/.env.php", "/index.php /index.php  q=/.env.php&"),
        ("/missing.php", "/index.php /index.php  q=/missing.php&"),
        ("/uploads/a.jpg/x.php", "/index.php /index.php  q=/uploads/a.jpg/x.php&"),
    ] {
        let (head, body) = edge.get(path).await;
        assert_eq!((head.status(), body.as_str()), (200, expected), "{path}");
    }
    // The path of a folder's page ends with a slash.
    let (head, _) = edge.get("/blog?x=1").await;
    assert_eq!((head.status(), head.field("location")), (301, "/blog/?x=1"));
}

#[tokio::test]
async fn a_source_is_not_sent_though_nothing_passes() {
    let site = Site::with(FILES);
    let backend = telling(site.path()).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, {backend}, fastcgi: {{root: {root:?}}}}}\n\
         plugin_configs:\n  - {{id: s, plugin_name: static_files, scope: proxy, proxy_id: a, config: {{root: {root:?}, \
         index: [index.php]}}}}\n",
        root = site.path()
    ));
    for path in ["/", "/page.php", "/page.php", "/blog/", "/upper.PHP"] {
        let (head, body) = edge.get(path).await;
        assert_eq!(head.status(), 404, "{path}: {body}");
    }
    assert_eq!(edge.get("/uploads/a.jpg").await.1, "uploads/a.jpg");
}

#[tokio::test]
async fn folders_that_the_gateway_can_not_read_have_a_rule_of_their_own() {
    let backend = telling(Path::new("/remote/app")).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, {backend}, fastcgi: {{root: /remote/app, check_scripts: false}}}}\n  \
         - {{id: b, listen_path: /checked, {backend}, fastcgi: {{root: /remote/app}}}}\n"
    ));
    assert_eq!(edge.get("/page.php/x").await.1, "/page.php /page.php /x ");
    assert_eq!(edge.get("/a.jpg/x.php").await.0.status(), 404);
    let (head, body) = edge.get("/checked/page.php").await;
    assert!(head.status() == 503 && body.contains("scripts_unreadable"), "{body}");
}

#[tokio::test]
async fn a_script_that_goes_is_not_forwarded_any_more() {
    let site = Site::with(&["a.php", "b.php"]);
    let backend = telling(site.path()).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, {backend}, fastcgi: {{root: {:?}}}}}\n",
        site.path()
    ));
    for _ in 0..3 {
        assert_eq!(edge.get("/a.php").await.0.status(), 200);
    }
    fs::remove_file(site.path().join("a.php")).unwrap();
    crate::support::soon(async {
        while edge.get("/a.php").await.0.status() != 404 {
            assert_eq!(edge.get("/b.php").await.0.status(), 200);
        }
    })
    .await;
}

#[tokio::test]
async fn a_release_that_a_link_is_turned_to_is_used() {
    let (old, new) = (Site::with(&["a.php"]), Site::with(&["b.php"]));
    let links = Site::with(&["keep"]);
    let current = links.path().join("current");
    symlink(old.path(), &current).unwrap();
    let backend = telling(&current).await;
    let edge = Edge::start(&format!(
        "proxies:\n  - {{id: a, listen_path: /, {backend}, fastcgi: {{root: {current:?}}}}}\n"
    ));
    assert_eq!(edge.get("/a.php").await.0.status(), 200);
    assert_eq!(edge.get("/b.php").await.0.status(), 404);
    fs::remove_file(&current).unwrap();
    symlink(new.path(), &current).unwrap();
    crate::support::soon(async {
        while edge.get("/b.php").await.0.status() != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(edge.get("/a.php").await.0.status(), 404);
}
