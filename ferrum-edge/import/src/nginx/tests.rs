//! Texts that no server would take, and files that include one another.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::draft::answers_itself;
use crate::{Conversion, Failure, Files, Format, Import, NoFiles, Options};

mod fastcgi;
mod guards;
mod scripts;
mod values;

/// Files in memory.
struct Memory(HashMap<String, String>);

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.0.get(&path.display().to_string()).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let folder = format!("{}/", folder.display());
        let mut names: Vec<String> =
            self.0.keys().filter_map(|name| name.strip_prefix(&folder)).map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }
}

fn import(text: &str, files: &dyn Files) -> Result<Import, Failure> {
    crate::import(
        Format::Nginx,
        &[("/etc/nginx/nginx.conf".to_owned(), text.to_owned())],
        files,
        Options::default(),
    )
}

#[test]
fn what_is_not_nginx_is_refused_with_its_line() {
    for (bad, place) in [
        ("http {\n server { listen 80 }", ":2: "),
        ("}", ":1: "),
        ("http { ; }", ":1: "),
        ("\n\na \"b", ":3: "),
        ("{ }", ":1: "),
        (&"a { ".repeat(100), ":1: "),
        ("location / { return 403; }", ":1: "),
        ("events {}", ":1: "),
        ("x_by_lua_block { if {", ":1: "),
    ] {
        let error = import(bad, &NoFiles).map(|_| ()).expect_err(bad).to_string();
        assert!(error.contains(place), "{bad}: {error}");
    }
}

#[test]
fn includes_are_followed_with_limits() {
    let server = "server { listen 80; server_name a.test; location / { proxy_pass http://10.0.0.1:1; } }";
    let files = Memory(HashMap::from([
        ("/etc/nginx/conf.d/a.conf".to_owned(), server.to_owned()),
        ("/etc/nginx/conf.d/b.txt".to_owned(), "this is no nginx {".to_owned()),
        ("/etc/nginx/conf.d/.a.conf.swp.conf".to_owned(), "nor is this {".to_owned()),
        ("/etc/nginx/loop.conf".to_owned(), "include loop.conf;".to_owned()),
    ]));
    let good = import("http { include conf.d/*.conf; }", &files).expect("an import");
    assert_eq!(good.proxies.len(), 1);
    assert!(!good.report.has_loss());
    let looped = import(&format!("http {{ include loop.conf; {server} }}"), &files).expect("an import");
    assert_eq!(looped.report.count(Conversion::Closed), 1, "what it would say may guard");
    assert!(answers_itself(&looped.proxies[0]));
    let missing = import(&format!("http {{ include gone.conf; {server} }}"), &files).expect("an import");
    assert!(answers_itself(&missing.proxies[0]));
    let empty = import(&format!("http {{ include gone/*.conf; {server} }}"), &files).expect("an import");
    assert_eq!(empty.proxies[0]["backend_port"], 1, "a pattern may mean no file");
    assert!(empty.report.losses().any(|one| one.to_string().contains("include gone/*.conf: no file")));
}

#[test]
fn a_dump_has_its_files_names_and_lines() {
    let dump = "# configuration file /etc/nginx/nginx.conf:\nhttp {\n  include /etc/nginx/conf.d/*.conf;\n}\n\
                # configuration file /etc/nginx/conf.d/a.conf:\nserver {\n  server_name a.test;\n  include snippets/deny.conf;\n  \
                location / { proxy_pass http://10.0.0.1:1001; }\n}\n\
                # configuration file /etc/nginx/snippets/deny.conf:\nlocation /private/ {\n deny all;\n auth_jwt on;\n}\n";
    let made = import(dump, &NoFiles).expect("an import");
    let closed: Vec<String> = made.report.losses().map(ToString::to_string).collect();
    assert!(
        closed.iter().any(|line| line.starts_with("/etc/nginx/snippets/deny.conf:3: danger")),
        "{closed:#?}"
    );
}

#[test]
fn large_ones_end() {
    let many: String = (0..20_000).map(|n| format!("location /{n} {{ return 403; }}")).collect();
    let made = import(&format!("server {{ listen 80; {many} }}"), &NoFiles).expect("an import");
    assert!(made.proxies.len() <= 5001 && made.report.has_loss());
    let cases: String = (0..100).map(|n| format!("k{n} v{n};")).collect();
    let maps: String = (0..8).map(|n| format!("map $http_a{n} $v{n} {{ {cases} }} ")).collect();
    let text =
        format!("http {{ {maps} server {{ listen 80; location / {{ proxy_pass http://$v0$v1$v2$v3; }} }} }}");
    let made = import(&text, &NoFiles).expect("an import");
    assert!(answers_itself(&made.proxies[0]), "too many cases are not guessed");
    let cycle = "http { map $a $b { default $c; } map $b $c { default $b; } server { listen 80; location / { if ($c) { return 403; } proxy_pass http://10.0.0.1:1; } } }";
    assert!(answers_itself(&import(cycle, &NoFiles).expect("an import").proxies[0]));
    let jumps = "server { listen 80; location /a/ { rewrite ^/a/(.*)$ /b/$1 last; } location /b/ { rewrite ^/b/(.*)$ /a/$1 last; } }";
    assert!(import(jumps, &NoFiles).expect("an import").report.count(Conversion::Closed) > 0);
    let huge = "#".repeat(crate::MAX_FILE_BYTES + 1);
    assert!(import(&huge, &NoFiles).is_err());
}

#[test]
fn servers_are_on_their_ports_and_addresses_only() {
    let text = "http { server { listen 80; server_name a.test; location / { return 403; } } \
        server { listen 8081; location / { proxy_pass http://10.0.0.1:1; } } \
        server { listen 127.0.0.1:8081; location / { proxy_pass http://10.0.0.1:2; } } }";
    let made = import(text, &NoFiles).expect("an import");
    assert!(!made.report.has_loss());
    assert_eq!(
        (&made.gateway["http"], &made.gateway["additional_http"]),
        (&json!("0.0.0.0:80"), &json!(["0.0.0.0:8081"]))
    );
    for (port, wanted) in [
        (json!(null), json!({ "ports": [80] })),
        (json!(2), json!({ "ports": [8081], "addresses": ["127.0.0.1"] })),
    ] {
        let proxy = made.proxies.iter().find(|proxy| proxy["backend_port"] == port).expect("a proxy");
        for one in proxy["matches"].as_array().expect("matches") {
            for key in ["ports", "addresses"] {
                assert_eq!(one.get(key), wanted.get(key), "{proxy}");
            }
        }
    }
    let open = made.proxies.iter().find(|proxy| proxy["backend_port"] == 1).expect("a proxy");
    assert_eq!(open["matches"][0]["not"], json!({ "addresses": ["127.0.0.1"] }));
}

#[test]
fn backslashes_mean_what_they_mean_to_nginx() {
    let import = import(
        r#"http { server { location = /a { return 200 "one\n\ttwo \"three\" \d"; } location = /b { return 200 a\nb; } } }"#,
        &NoFiles,
    );
    let document = import.expect("it can be read").document().to_string();
    assert!(document.contains(r#""body":"one\n\ttwo \"three\" \\d""#), "{document}");
    assert!(document.contains(r#""body":"a\nb""#), "{document}");
}

#[test]
fn groups_of_a_map_are_not_those_of_a_location() {
    let text = "http { map $uri $moved { default \"\"; ~^/moved/(.+)$ /now/$1; } \
        server { listen 80; location ~ ^/(a) { if ($moved) { return 301 $moved; } proxy_pass http://10.0.0.1:1; } } }";
    let made = import(text, &NoFiles).expect("an import");
    let path = &made.proxies[0]["matches"][0]["path"]["regex"];
    assert_eq!(path, "(?:/moved/(.+))", "{:#}", made.document());
    assert!(made.document().to_string().contains("/now/${capture.1}"), "{:#}", made.document());
}

#[test]
fn a_break_of_the_server_before_others_is_closed() {
    let text = "server { listen 80; if ($http_x_a) { break; } if ($http_x_b) { return 403; } location / { proxy_pass http://10.0.0.1:1; } }";
    let made = import(text, &NoFiles).expect("an import");
    assert_eq!(made.report.count(Conversion::Closed), 1);
    assert_eq!(made.proxies.len(), 3);
}

#[test]
fn a_missing_semicolon_is_named() {
    let text =
        "server {\n listen 80;\n server_name a.test\n location / { proxy_pass http://127.0.0.1:1; }\n}\n";
    let said = import(text, &NoFiles).unwrap_err().to_string();
    assert!(said.contains(":3: `server_name` has no block: a semicolon is missing behind it"), "{said}");
}

/// Regexes with alternatives are converted; what can't be is closed for all that no name takes, on its ports.
#[test]
fn names_by_regexes() {
    let of = |names: &str, more: &str, open: bool| {
        let text = format!(
            "http {{ server {{ listen 80 default_server; server_name a.test; location / {{ proxy_pass http://10.0.0.1:1; }} }} \
             server {{ listen 80; server_name {names}; allow all; location / {{ proxy_pass http://10.0.0.1:2; }} }} \
             {more} }}"
        );
        let sources = [("nginx.conf".to_owned(), text)];
        crate::import(Format::Nginx, &sources, &NoFiles, Options { open }).expect("an import")
    };
    for (name, hosts, others) in [
        (r"~^admin\.|^internal\.", &["admin.x", "internal.x:80"][..], &["x.admin.y", "admin"][..]),
        (r"~^a\.test$|b\.test\z", &["a.test:80", "x.b.test.", "A.test"], &["a.test.x", "b.testx"]),
        (r"~^(a\.x$|b\.)", &["a.x:8080", "a.x", "b.y"], &["a.xy", "c"]),
        ("[::1]", &["[::1]", "[::1]:80"], &["[::1]x", "::1"]),
    ] {
        let made = of(&format!("'{name}'"), "", false);
        let found = made.proxies.iter().find_map(|it| it["matches"][0]["authority"]["regex"].as_str());
        let found = found.unwrap_or_else(|| panic!("{name}: {:#}", made.document()));
        let regex = regex::Regex::new(&format!("^(?:{found})$")).expect("a regex");
        assert!(hosts.iter().all(|host| regex.is_match(host)), "{name}: {found}");
        assert!(!others.iter().any(|host| regex.is_match(host)), "{name}: {found}");
    }
    let behind = "server { listen 80; server_name ~^c; location / { proxy_pass http://10.0.0.1:3; } } \
                  server { listen 81; location / { proxy_pass http://10.0.0.1:4; } }";
    let made = of(r"~^(?=admin) www.*", behind, false);
    let closed = made.proxies.iter().find(|it| it["id"] == "unknown-names");
    let closed = closed.unwrap_or_else(|| panic!("{:#}", made.document()));
    assert!(answers_itself(closed));
    assert_eq!(closed["matches"], json!([{ "path": "/", "ports": [80] }]));
    let of_port = |port: u16| made.proxies.iter().filter(move |it| it["backend_port"] == port);
    let priority = |it: &Value| it["priority"].as_i64().unwrap_or(0);
    assert!(
        of_port(3).all(|it| priority(it) < priority(closed)),
        "regexes behind it are not asked before it"
    );
    assert!(of_port(1).all(|it| priority(it) < priority(closed)), "nor is the default server");
    assert!(of_port(2).all(|it| priority(it) > priority(closed)), "texts before `.*` are");
    let mut named = of_port(1).flat_map(|it| it["matches"].as_array().into_iter().flatten());
    assert!(named.any(|it| it["hosts"] == json!(["a.test"])), "names are as well: {:#}", made.document());
    assert_eq!(made.report.count(Conversion::Closed), 1);
    let made = of(r"~^(?=admin)", "", true);
    assert!(made.proxies.iter().all(|it| it["id"] != "unknown-names"));
    assert_eq!(made.report.count(Conversion::Opened), 1);
    // The default server has what is left anyway.
    let text =
        "http { server { listen 80; server_name ~(?=x); location / { proxy_pass http://10.0.0.1:1; } } }";
    let made = import(text, &NoFiles).expect("an import");
    assert!(!made.report.has_loss() && made.proxies.len() == 1, "{:#}", made.document());
}

#[test]
fn one_file_of_authorities_and_one_of_lists_hold_for_all_clients() {
    let server = |port: u16, asks: &str| {
        format!(
            "server {{ listen {port} ssl; ssl_certificate c; ssl_certificate_key k; {asks} location / {{ proxy_pass http://127.0.0.1:9; }} }}\n"
        )
    };
    let made = |http: &str, servers: &[String]| {
        import(&format!("http {{ {http} {} }}", servers.concat()), &NoFiles).expect("an import")
    };
    let on = "ssl_verify_client on;";
    let files = "ssl_client_certificate ca.pem; ssl_crl crl.pem;";
    for (http, server_says) in [("", format!("{on} {files}")), (files, on.to_owned())] {
        let same = made(http, &[server(1, &server_says), server(2, &server_says)]);
        let tls = &same.gateway["tls"];
        assert_eq!(tls["client_ca_path"], "/etc/nginx/ca.pem");
        assert_eq!(tls["client_crl_path"], "/etc/nginx/crl.pem");
        assert_eq!(tls["client_cert_required"], true);
        assert_eq!(same.report.count(Conversion::Closed) + same.report.count(Conversion::NotConverted), 0);
    }
    // What differs opens neither.
    let without = "ssl_verify_client on; ssl_client_certificate ca.pem;";
    let different = made("", &[server(1, &format!("{on} {files}")), server(2, without)]);
    assert_eq!(different.gateway["tls"].get("client_ca_path"), None);
    assert_eq!(different.report.count(Conversion::Closed), 2, "{:#?}", different.report);
}

#[test]
fn caches_become_response_caches() {
    let of = |lines: &str| {
        let text = format!(
            "http {{ proxy_cache_path /var/cache keys_zone=z:10m; server {{ listen 80; location / {{ proxy_redirect off; proxy_cache z; {lines} \
             proxy_pass http://10.0.0.1:80; }} }} }}"
        );
        import(&text, &NoFiles).expect("an import")
    };
    let cache =
        |made: &Import| made.plugin_configs.iter().find(|it| it["plugin_name"] == "response_cache").cloned();
    let made = cache(&of(
        "proxy_cache_valid 200 302 10m; proxy_cache_valid 404 1m; proxy_cache_use_stale error updating; proxy_cache_bypass $cookie_session;",
    ))
    .expect("a cache");
    let config = &made["config"];
    assert_eq!((&config["default_ttl"], &config["statuses"]), (&json!("600s"), &json!([200, 302])));
    assert_eq!((&config["negative_ttl"], &config["negative_statuses"]), (&json!("60s"), &json!([404])));
    assert_eq!(
        (&config["stale_if_error"], &config["stale_while_revalidate"]),
        (&json!("600s"), &json!("600s"))
    );
    assert!(made["when"].to_string().contains("session"), "{made}");
    let keyed =
        cache(&of("proxy_cache_key $host$request_uri$cookie_lang$http_accept_language;")).expect("a cache");
    assert_eq!(keyed["config"]["key"], json!({ "headers": ["accept-language"], "cookies": ["lang"] }));
    // What tells responses apart, and for which requests, has to be known.
    for lines in [
        "proxy_cache_key $host;",
        "proxy_cache_key $request_uri$remote_user;",
        "proxy_no_cache $upstream_http_x;",
    ] {
        let made = of(lines);
        assert!(cache(&made).is_none() && made.report.has_loss(), "{lines}");
    }
}

#[test]
fn names_of_streams_with_a_dot_are_their_subdomains_too() {
    let text = "stream { map $ssl_preread_server_name $to { hostnames; .a.test 10.0.0.1:1; b.test 10.0.0.2:2; \
        default 10.0.0.3:3; } server { listen 443; ssl_preread on; proxy_pass $to; } }";
    let made = import(text, &NoFiles).expect("an import");
    let hosts: Vec<_> = made.proxies.iter().map(|proxy| proxy["hosts"].clone()).collect();
    assert_eq!(
        hosts,
        [json!(["a.test", "*.a.test"]), json!(["b.test"]), json!(null)],
        "{:#}",
        made.document()
    );
}

/// `$upstream_cache_status` is `X-Cache` of the cache, under the name that it is sent by.
#[test]
fn how_a_response_came_about_is_told() {
    let of = |lines: &str| {
        let text = format!(
            "events {{}}\nhttp {{ proxy_cache_path /tmp/c keys_zone=z:1m; server {{ listen 80; location / {{ {lines} \
             proxy_redirect off; proxy_pass http://10.0.0.1:80; }} }} }}"
        );
        let made = import(&text, &NoFiles).expect("an import");
        let config = |name: &str| {
            let found = made.plugin_configs.iter().find(|it| it["plugin_name"] == name);
            found.map(|it| it["config"].clone()).unwrap_or_default()
        };
        (config("response_cache"), config("response_transformer"), made.report)
    };
    let (cache, transformer, report) =
        of("proxy_cache z; add_header X-Proxy-Cache $upstream_cache_status always;");
    assert_eq!(cache["x_cache"], true);
    let rename =
        json!({ "operation": "rename", "target": "header", "key": "x-cache", "new_key": "X-Proxy-Cache" });
    assert_eq!(transformer, json!({ "rules": [rename] }));
    assert_eq!(report.count(Conversion::NotConverted), 0);
    // Errors don't get it without `always`.
    let (_, transformer, _) = of("proxy_cache z; add_header X-Proxy-Cache $upstream_cache_status;");
    assert_eq!((&transformer["rules"][0], transformer["statuses"][0].as_str()), (&rename, Some("200")));
    let (cache, transformer, _) = of("proxy_cache z; add_header X-Cache $upstream_cache_status;");
    assert_eq!((&cache["x_cache"], transformer), (&json!(true), Value::Null));
    let (cache, transformer, report) = of("add_header X-Cache-Status $upstream_cache_status;");
    assert_eq!((cache, transformer, report.count(Conversion::NotConverted)), (Value::Null, Value::Null, 0));
    let (cache, _, _) = of("proxy_cache z;");
    assert!(cache.get("x_cache").is_none());
}

/// What servers of an upstream say of failures holds for all of them, and the note says which value that is.
#[test]
fn servers_that_differ_in_failures_get_one_limit() {
    let text = "events {}\nhttp { upstream u { server 10.0.0.1:1 max_fails=10; server 10.0.0.2:1 max_fails=9; } \
                server { listen 80; location / { proxy_pass http://u; } } }";
    let made = import(text, &NoFiles).expect("an import");
    assert_eq!(made.upstreams[0]["health_checks"]["passive"]["unhealthy_threshold"], 9);
    let said = made.report.losses().find(|it| it.why.contains("`max_fails=9`, the least, is taken"));
    assert!(said.is_some(), "{:?}", made.report.losses().collect::<Vec<_>>());
}

/// Fields of CORS without `always` are sent with the same statuses as by nginx.
#[test]
fn fields_of_cors_go_by_status() {
    let text = "events {}\nhttp { server { listen 80; location / { add_header Access-Control-Allow-Origin *; \
                proxy_redirect off; proxy_pass http://10.0.0.1:1; } } }";
    let made = import(text, &NoFiles).expect("an import");
    let config = &made.plugin_configs[0];
    assert_eq!(config["plugin_name"], "response_transformer");
    let statuses = ["200", "201", "204", "206", "301", "302", "303", "304", "307", "308"];
    assert_eq!(config["config"]["statuses"], json!(statuses));
}
