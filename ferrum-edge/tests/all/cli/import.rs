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
    assert_eq!(code(&["gone.conf"]), Some(1));
    assert_eq!(code(&[]), Some(2));
}
