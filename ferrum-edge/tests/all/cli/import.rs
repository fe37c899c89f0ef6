//! `import`: what it prints where, and its exit codes.

use crate::process::{Folder, ferrum_edge};

const OPEN: &str = "http { server { listen 80; location / { proxy_pass http://127.0.0.1:9; } } }\n";
const GUARDED: &str =
    "http {\n server {\n  listen 80;\n  location / { auth_jwt x; proxy_pass http://127.0.0.1:9; }\n }\n}\n";

#[test]
fn the_configuration_goes_out_and_the_report_beside_it() {
    let folder = Folder::new();
    folder.write("nginx.conf", GUARDED);
    let run = |arguments: &[&str]| ferrum_edge(&folder).arg("import").args(arguments).output().unwrap();
    let made = run(&["nginx.conf", "--report", "report.json"]);
    assert_eq!(made.status.code(), Some(0));
    let said = String::from_utf8(made.stderr).unwrap();
    assert!(said.contains("nginx.conf:4: danger: closed (503): "), "{said}");
    let report: serde_json::Value = serde_json::from_str(&folder.read("report.json")).unwrap();
    assert_eq!(report["counts"]["closed (503)"], 1);
    assert_eq!((&report["proxies"]["closed"], &report["locations"]["closed"]), (&1.into(), &1.into()));
    assert!(
        said.starts_with("1 of 1 proxies answer 503 until they are completed by hand, for 1 of 1 locations"),
        "{said}"
    );
    let json = run(&["nginx.conf", "--output", "json"]);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&json.stderr).unwrap(), report);
    folder.write("made.yaml", &String::from_utf8(made.stdout).unwrap());
    let checked = ferrum_edge(&folder).args(["check", "--spec", "made.yaml"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    assert_eq!(run(&["nginx.conf", "--strict"]).status.code(), Some(3));
    let open = run(&["nginx.conf", "--open"]);
    assert!(String::from_utf8(open.stderr).unwrap().contains("danger: OPEN: "));
}

#[test]
fn what_is_not_recognised_is_3_and_a_loss_only_where_there_is_one() {
    let folder = Folder::new();
    folder.write("nginx.conf", OPEN);
    folder.write("what", "hello\n");
    folder.write("bad.conf", "http {");
    let code = |arguments: &[&str]| {
        ferrum_edge(&folder).arg("import").args(arguments).output().unwrap().status.code()
    };
    assert_eq!(code(&["nginx.conf", "--strict"]), Some(0));
    assert_eq!(code(&["what"]), Some(3));
    assert_eq!(code(&["what", "--from", "nginx"]), Some(3));
    assert_eq!(code(&["bad.conf"]), Some(3));
    assert_eq!(code(&["gone.conf"]), Some(3));
    assert_eq!(code(&[]), Some(2));
}

#[test]
fn recorded_requests_are_compared() {
    let folder = Folder::new();
    let server = "http { server { listen 80; server_name a.test; location / { proxy_pass http://127.0.0.1:9; } \
                  location /old { return 301 /new; } location /private { deny all; } } }\n";
    folder.write("nginx.conf", server);
    let line = |path: &str, status: u16| {
        format!(
            "10.0.0.7 - - [27/Nov/2026:10:00:00 +0000] \"GET {path} HTTP/1.1\" {status} 5 \"-\" \"curl/8\"\n"
        )
    };
    let same =
        [line("/", 200), line("/x", 404), line("/old", 301), line("/private", 403), line("/y", 403)].concat();
    folder.write("access.log", &format!("{same}nonsense\n"));
    let run = |log: &str| ferrum_edge(&folder).args(["import", ".", "--compare", log]).output().unwrap();
    let made = run("access.log");
    let text = String::from_utf8(made.stdout).unwrap();
    assert_eq!(made.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(
        text,
        "4 of 5 recorded requests get the same answer, 1 refusal is left to targets, 0 differ\n"
    );
    assert!(
        String::from_utf8_lossy(&made.stderr).contains("1 line is no record of a request, and is left out")
    );
    folder.write("access.log", &[same, line("/private", 200), line("/old", 404)].concat());
    let made = run("access.log");
    let text = String::from_utf8(made.stdout).unwrap();
    assert_eq!(made.status.code(), Some(4), "{text}");
    assert!(text.contains("refused") && text.contains("200 -> 403"), "{text}");
    assert!(text.contains("admitted") && text.contains("404 -> 301"), "{text}");
    assert_eq!(run("gone.log").status.code(), Some(1));
}

#[test]
fn values_fill_placeholders() {
    let folder = Folder::new();
    folder.write("Caddyfile", "http://{$HOST} {\n reverse_proxy {$TARGET:10.0.0.9:9}\n}\n");
    folder.write("site.env", "# values\nHOST=file.test\nTARGET=10.0.0.1:81\n");
    let run = |arguments: &[&str]| ferrum_edge(&folder).arg("import").args(arguments).output().unwrap();
    let made = run(&["Caddyfile", "--env-file", "site.env", "--set", "HOST=set.test"]);
    let text = String::from_utf8(made.stdout).unwrap();
    assert!(
        text.contains("set.test") && text.contains("backend_port: 81") && !text.contains("file.test"),
        "{text}"
    );
    for bad in [
        &["Caddyfile", "--set", "HOST"][..],
        &["Caddyfile", "--set", "A B=1"],
        &["Caddyfile", "--env-file", "gone"],
    ] {
        assert_eq!(run(bad).status.code(), Some(3), "{bad:?}");
    }
}
