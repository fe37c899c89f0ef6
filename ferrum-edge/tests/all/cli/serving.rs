//! `serve`: files without a configuration.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use crate::process::{Folder, ferrum_edge, get};

/// Ends with its test.
struct Serving(Child, SocketAddr);

impl Serving {
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let mut command = ferrum_edge(folder);
        command.args(["serve", "site", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once(". Stop"));
        let address = address.unwrap_or_else(|| panic!("{line}")).0.parse().unwrap();
        Self(child, address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn site() -> Folder {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("site/docs")).unwrap();
    folder.write("site/index.html", "home");
    folder.write("site/docs/a.txt", "text");
    folder.write("secret.txt", "secret");
    std::os::unix::fs::symlink("../secret.txt", folder.path("site/out.txt")).unwrap();
    folder
}

#[test]
fn a_folder_is_served() {
    let folder = site();
    let serving = Serving::start(&folder, &[]);
    let home = get(serving.1, "/");
    assert!(home.starts_with("HTTP/1.1 200") && home.ends_with("\r\n\r\nhome"), "{home}");
    assert!(home.contains("content-length: 4\r\n") && home.contains("text/html; charset=utf-8"), "{home}");
    assert!(get(serving.1, "/docs/a.txt").ends_with("text"));
    for path in ["/docs/", "/../secret.txt", "/%2e%2e%2fsecret.txt", "/out.txt", "/nowhere"] {
        let answer = get(serving.1, path);
        assert!(answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
        assert!(!answer.contains("secret\n") && !answer.ends_with("secret"), "{path}: {answer}");
    }
    let pages = Serving::start(&folder, &["--listing", "--spa", "index.html"]);
    assert!(get(pages.1, "/docs/").contains("a.txt"));
    assert!(get(pages.1, "/users/7").ends_with("home"));
}

#[test]
fn a_folder_that_is_not_there_is_a_wrong_use() {
    let folder = Folder::new();
    let output = ferrum_edge(&folder).args(["serve", "nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let printed = ferrum_edge(&folder).args(["serve", "--print"]).output().unwrap();
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(printed["plugin_configs"][0]["plugin_name"], "static_files");
}

#[test]
fn a_page_that_is_not_there_is_refused() {
    let folder = site();
    let output = ferrum_edge(&folder).args(["serve", "site", "--spa", "nosuch.html"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--spa nosuch.html: there is no such file"));
}
