//! No credential leaves the gateway by the log, the access log, the status or metrics.

use std::os::unix::fs::PermissionsExt;

use crate::process::{Folder, Gateway, get, until};

/// Each credential has `hush` in it; nobody answers on port 9.
const SPEC: &str = "
gateway:
  workers: 1
  access_log:
    sinks:
      - {name: t, file: {path: template.log}, template: '${request.target} ${request.query.api_key} ${response.header.location}'}
      - {name: j, file: {path: json.log}, response_headers: [location]}
proxies:
  - {id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9}
  - {id: b, listen_path: /b, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9}
plugin_configs:
  - {id: r, plugin_name: redirect, proxy_id: a, config: {location: '/cb?code=hush-1'}}
  - {id: i, plugin_name: ip_restriction, proxy_id: b, config: {allow_urls: ['http://127.0.0.1:9/list?token=hush-2']}}
  - id: j
    plugin_name: jwks_auth
    proxy_id: b
    config: {providers: [{issuer: 'https://i.test', jwks_uri: 'http://127.0.0.1:9/keys?api_key=hush-3'}]}
";

#[test]
fn credentials_show_nowhere() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", SPEC);
    let gateway = Gateway::start(&folder, |_| ());
    let answer = get(gateway.http, "/x?token=hush-4&api_key=hush-5&page=2");
    assert!(answer.contains("/cb?code=hush-1"), "the client gets all of it: {answer}");
    until("the lists were asked for", || {
        let tasks = gateway.status()["plugin_tasks"].to_string();
        tasks.matches("\"last_failure\":\"").count() >= 2
    });
    for log in ["template.log", "json.log"] {
        until("the request is logged", || folder.exists(log) && folder.read(log).ends_with('\n'));
        let mode = std::fs::metadata(folder.path(log)).unwrap().permissions().mode();
        assert_eq!(mode & 0o007, 0, "{log} is nobody else's: {mode:o}");
    }
    let status = gateway.status().to_string();
    assert!(status.contains("token=REDACTED") && status.contains("api_key=REDACTED"), "{status}");
    let all = [
        ("status", status),
        ("metrics", get(gateway.admin, "/metrics")),
        ("log", gateway.log()),
        ("template", folder.read("template.log")),
        ("json", folder.read("json.log")),
    ];
    for (name, text) in all {
        assert!(!text.contains("hush"), "{name}: {text}");
    }
    assert_eq!(
        folder.read("template.log"),
        "/x?token=REDACTED&api_key=REDACTED&page=2 REDACTED \
         /cb?code=REDACTED&token=REDACTED&api_key=REDACTED&page=2\n"
    );
}
