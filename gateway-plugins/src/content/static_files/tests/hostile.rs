//! Nothing outside of the folder is ever read.

use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

const SECRET: &str = "what must never be read";

/// A folder `root` with `a.txt`, beside something that nobody may read.
fn beside_a_secret() -> Folder {
    Folder::with(&[
        ("root/a.txt", "a"),
        ("root/d/b.txt", "b"),
        ("secret.txt", SECRET),
        ("outside/b.txt", SECRET),
    ])
}

fn of_root(folder: &Folder, more: Value) -> Trial {
    let mut config = json!({ "root": folder.path("root"), "recheck": "0ms" });
    more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
    trial(folder, config)
}

#[tokio::test]
async fn no_spelling_leads_outside() {
    let folder = beside_a_secret();
    folder.write("root/.env", SECRET);
    folder.write("root/.git/config", SECRET);
    let files = of_root(&folder, json!({ "try_files": ["{path}", "{path}.txt"], "listing": true }));
    for path in [
        "/../secret.txt",
        "/d/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2E%2Fsecret.txt",
        "/..%2fsecret.txt",
        "/..%5csecret.txt",
        "/%252e%252e%252fsecret.txt",
        "/%252e%252e/secret.txt",
        "/d/%2e%2e/%2e%2e/secret",
        "/.%2e/secret.txt",
        "/...//secret.txt",
        "//secret.txt",
        "/d;/../../secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%u002e%u002e/secret.txt",
        "/a.txt%00.html",
        "/secret.txt%00",
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/.git/",
        "/d/.%2e/.env",
    ] {
        let got = files.get(path, &[]).await;
        assert!(matches!(got.status, 400 | 404), "{path}: {}", got.status);
        assert!(!got.text().contains(SECRET), "{path}");
    }
    assert_eq!(text(&files, "/a.txt").await, is(200, "a"));
}

#[tokio::test]
async fn links_are_followed_beneath_the_root_only() {
    let folder = beside_a_secret();
    folder.link("a.txt", "root/inside.txt");
    folder.link("d", "root/inside");
    folder.link("../secret.txt", "root/outside.txt");
    folder.link(folder.path("secret.txt"), "root/absolute.txt");
    folder.link("..", "root/up");
    folder.link("/", "root/top");
    folder.link("/proc/self/root", "root/magic");
    folder.link("loop", "root/loop");
    folder.link("outside.txt", "root/twice.txt");
    let files = of_root(&folder, json!({ "listing": true }));
    assert_eq!(text(&files, "/inside.txt").await, is(200, "a"));
    assert_eq!(text(&files, "/inside/b.txt").await, is(200, "b"));
    let out = [
        "/outside.txt",
        "/absolute.txt",
        "/up/secret.txt",
        "/up/",
        "/top/etc/passwd",
        "/magic/etc/passwd",
        "/loop",
        "/twice.txt",
    ];
    for path in out {
        assert!(nothing(&files.get(path, &[]).await), "{path}");
    }
    let strict = of_root(&folder, json!({ "symlinks": false }));
    for path in out.into_iter().chain(["/inside.txt", "/inside/b.txt"]) {
        assert!(nothing(&strict.get(path, &[]).await), "{path}");
    }
    assert_eq!(text(&strict, "/a.txt").await, is(200, "a"));
}

#[tokio::test]
async fn what_is_no_file_is_not_read() {
    let folder = beside_a_secret();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path("root/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path("root/socket")).unwrap();
    let files = of_root(&folder, json!({}));
    for path in ["/pipe", "/socket", "/pipe/x"] {
        assert!(nothing(&files.get(path, &[]).await), "{path}");
    }
}

#[tokio::test]
async fn a_folder_that_is_swapped_while_it_is_read_leads_nowhere_else() {
    let folder = beside_a_secret();
    // `d` is a folder one moment, and a link to the outside the next.
    folder.link("../outside", "root/evil");
    let (root, done) = (folder.path("root"), Arc::new(AtomicBool::new(false)));
    let over = done.clone();
    let swapping = thread::spawn(move || {
        while !over.load(Relaxed) {
            let swap = |a: &str, b: &str| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                // Some file systems can't exchange; then nothing is swapped.
                _ = rustix::fs::renameat_with(cwd, root.join(a), cwd, root.join(b), flags);
            };
            swap("d", "evil");
        }
    });
    let files = of_root(&folder, json!({ "memory": 0 }));
    let mut seen = [0, 0];
    for _ in 0..5000 {
        let got = files.get("/d/b.txt", &[]).await;
        assert!(!got.text().contains(SECRET), "read outside of the root");
        seen[usize::from(got.status == 200)] += 1;
    }
    done.store(true, Relaxed);
    swapping.join().unwrap();
    assert!(seen[1] > 0, "the folder was there at times");
}

#[tokio::test]
async fn a_file_that_is_cut_short_does_not_look_whole() {
    let folder = beside_a_secret();
    folder.write("root/large.txt", &"x".repeat(1 << 20));
    let files = of_root(&folder, json!({}));
    let wanted =
        Wanted { path: Some("large.txt".into()), has_slash: false, codings: Vec::new(), takes_page: false };
    let root = Root::open(&folder.path("root"), true).unwrap();
    let places = find::FileFinder {
        candidates: vec![find::Candidate::OfPath(String::new(), String::new())],
        ..find::FileFinder::default()
    };
    let Ok(Resolved::File(file)) = places.find(&root, &wanted, None, Wait::May) else {
        panic!("it is there")
    };
    let segment = content::Segment::Range(0, file.stamp.size);
    let mut body = content::body(&file.content, vec![segment], &World::default());
    assert!(body.frame().await.unwrap().is_ok());
    fs::write(folder.path("root/large.txt"), "short").unwrap();
    let rest = async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                other => return other,
            }
        }
    };
    assert!(matches!(rest.await, Some(Err(_))));
    assert_eq!(text(&files, "/large.txt").await, is(200, "short"));
}
