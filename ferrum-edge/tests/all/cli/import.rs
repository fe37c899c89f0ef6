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
fn formats_are_found_by_the_names_of_programs() {
    let folder = Folder::new();
    folder.write("site", "a.test {\n reverse_proxy 127.0.0.1:9\n}\n");
    for (from, code) in [("caddy", 0), ("caddyfile", 0), ("ingress-nginx", 3), ("kubernetes", 3), ("what", 2)]
    {
        let run = ferrum_edge(&folder).args(["import", "site", "--from", from]).output().unwrap();
        assert_eq!(run.status.code(), Some(code), "{from}: {}", String::from_utf8_lossy(&run.stderr));
    }
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

/// Kong's `replace.uri`: the path that a target receives, or 503 where it can't be made. Never the path that the client sent.
#[test]
fn kong_paths_are_made_anew_or_closed() {
    let folder = Folder::new();
    let ask = |transformer: &str, url: &str| {
        let text = format!(
            r"_format_version: '3.0'
services:
- name: s
  url: http://127.0.0.1:3000/base
  routes:
  - name: r
    paths: ['~/api/(?<id>\d+)', '~/old/(?<id>\d+)']
    plugins: [{{name: request-transformer, config: {transformer}}}]
  - {{name: p, paths: [/plain], plugins: [{{name: request-transformer, config: {transformer}}}]}}
"
        );
        folder.write("kong.yaml", &text);
        let made = ferrum_edge(&folder).args(["import", "kong.yaml"]).output().unwrap();
        folder.write("made.yaml", &String::from_utf8(made.stdout).unwrap());
        let mut command = ferrum_edge(&folder);
        command.args(["explain", "GET", url, "-H", "x-user: ann", "-H", "x-drop: 1", "--spec", "made.yaml"]);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let has_drop = text.contains("x-drop: 1");
        let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned);
        match line("sent:      GET ") {
            Some(sent) => format!("{sent}{}", if has_drop { " x-drop" } else { "" }),
            None => line("outcome:   ").unwrap_or(text),
        }
    };
    const API: &str = "http://127.0.0.1/api/12/x?q=1";
    const PLAIN: &str = "http://127.0.0.1/plain/a";
    for (transformer, url, expected) in [
        ("{replace: {uri: /fixed}}", PLAIN, "/fixed x-drop"),
        ("{replace: {uri: /fixed}, remove: {headers: [x-drop]}}", PLAIN, "/fixed"),
        ("{replace: {uri: '/v2/$(uri_captures.id)'}}", API, "/v2/12?q=1 x-drop"),
        ("{replace: {uri: \"/v2/$(uri_captures['id'])\"}, remove: {headers: [x-drop]}}", API, "/v2/12?q=1"),
        ("{replace: {uri: '/v2/$(uri_captures.id)'}}", PLAIN, "503"),
        ("{replace: {uri: '/u/$(headers.x_user)'}}", PLAIN, "/u/ann x-drop"),
        ("{replace: {uri: '/u/$(headers[\"X-User\"])'}}", PLAIN, "/u/ann x-drop"),
        ("{replace: {uri: \"/u/$(headers.x_none or 'nobody')\"}}", PLAIN, "/u/nobody x-drop"),
        ("{replace: {uri: '/q/$(query_params.q)/costs-$5'}}", API, "/q/1/costs-$5?q=1 x-drop"),
        ("{replace: {uri: '/u/$(headers.x_user)'}, remove: {headers: [x-drop]}}", PLAIN, "503"),
        ("{replace: {uri: '$(string.gsub(path, \"a\", \"b\"))'}}", PLAIN, "503"),
        ("{replace: {uri: '/a/$(shared.x)'}}", PLAIN, "503"),
    ] {
        let found = ask(transformer, url);
        let is_as_expected = found == expected || expected == "503" && found.starts_with("503");
        assert!(is_as_expected, "{transformer} {url}: {found}");
    }
}
