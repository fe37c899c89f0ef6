//! Texts that no server would take.

use serde_json::{Value, json};

use crate::draft::answers_itself;
use crate::{Conversion, Failure, Format, Import, NoFiles, Options};

fn import(text: &str) -> Result<Import, Failure> {
    crate::import(
        Format::Haproxy,
        &[("haproxy.cfg".to_owned(), text.to_owned())],
        &NoFiles,
        Options::default(),
    )
}

const WEB: &str = "backend web\n server a 10.0.0.1:1\n";

#[test]
fn servers_are_checked_as_the_options_say() {
    for (options, active) in [
        ("option redis-check", json!({"probe_type": "redis"})),
        ("option pgsql-check user x", json!({"probe_type": "postgres"})),
        ("option mysql-check", json!({"probe_type": "mysql"})),
        ("option tcp-check", json!({"probe_type": "tcp"})),
        (
            "option tcp-check\n tcp-check connect\n tcp-check send PING\\r\\n\n tcp-check expect string +PONG",
            json!({"probe_type": "tcp", "send": "PING\r\n", "expect": {"contains": "+PONG"}}),
        ),
        // Two questions are more than a probe has.
        (
            "option tcp-check\n tcp-check send a\n tcp-check expect string b\n tcp-check send c",
            json!({"probe_type": "tcp"}),
        ),
    ] {
        let made =
            import(&format!("listen db\n mode tcp\n bind :5432\n {options}\n server a 10.0.0.1:1 check\n"))
                .unwrap();
        let mut wanted = active;
        for (key, value) in
            [("interval", json!(2)), ("healthy_threshold", json!(2)), ("unhealthy_threshold", json!(3))]
        {
            wanted[key] = value;
        }
        assert_eq!(made.upstreams[0]["health_checks"]["active"], wanted, "{options}");
        let is_whole = !format!("{:?}", made.report).contains("tcp-check send c");
        assert_eq!(is_whole, !options.ends_with("send c"), "{options}");
    }
}

#[test]
fn what_is_no_configuration_is_refused() {
    for bad in [
        "",
        "server a 10.0.0.1:1",
        "global\n maxconn 1",
        "frontend a\n bind \":80",
        "frontend a\n.if 1\n.endif",
        "x {",
    ] {
        assert!(import(bad).is_err(), "{bad}");
    }
}

#[test]
fn conditions_that_multiply_are_closed() {
    let acls: String = (0..20)
        .flat_map(|n| [format!(" acl a{n} path /x{n}\n"), format!(" acl a{n} path /y{n}\n")])
        .collect();
    let names: String = (0..20).map(|n| format!("a{n} ")).collect();
    let made = import(&format!(
        "frontend f\n mode http\n bind :80\n{acls} http-request deny if {names}\n default_backend web\n{WEB}"
    ))
    .expect("an import");
    assert!(answers_itself(&made.proxies[0]));
    assert_eq!(made.report.count(Conversion::Closed), 1);
}

#[test]
fn what_is_not_known_closes_what_follows() {
    for rule in [
        "http-request deny if { src -f /gone }",
        "http-request lua.check",
        "http-request auth",
        "http-request allow if { var(txn.x) -m found }",
        "http-request deny unless { http_auth(gone) }",
        "http-request deny if { var(txn.x) -m found }",
        "use_backend other if { path_len 5 }",
        "tcp-request connection reject if { src_conn_rate gt 5 }",
    ] {
        let made =
            import(&format!("frontend f\n mode http\n bind :80\n {rule}\n default_backend web\n{WEB}"))
                .expect("an import");
        assert_eq!(made.report.count(Conversion::Closed), 1, "{rule}");
        assert!(answers_itself(&made.proxies[0]), "{rule}");
    }
    let stream = "frontend f\n mode tcp\n bind :5432\n tcp-request connection reject if { src_conn_rate gt 5 }\n default_backend web\n";
    let made = import(&format!("{stream}{WEB}")).expect("an import");
    assert!(made.proxies.is_empty(), "the port is not opened");
}

#[test]
fn streams_by_name_and_address() {
    let text = "frontend tls\n mode tcp\n bind :443\n tcp-request connection reject if !{ src 10.0.0.0/8 }\n use_backend web if { req.ssl_sni -i a.test }\n default_backend web\n";
    let made = import(&format!("{text}{WEB}")).expect("an import");
    assert_eq!(made.proxies.len(), 2);
    assert_eq!(made.proxies[0]["hosts"][0], "a.test");
    assert!(made.plugin_configs.iter().all(|plugin| plugin["config"]["allow"][0] == "10.0.0.0/8"));
}

#[test]
fn what_haproxy_ignores_in_streams_is_named() {
    let text = "frontend f\n bind :5432\n http-request deny if { src 10.0.0.0/8 }\n default_backend b\n\
                backend b\n cookie SRV insert\n server a 10.0.0.1:1 cookie a\n";
    let made = import(text).expect("an import");
    assert_eq!(made.proxies[0]["backend_scheme"], "tcp");
    assert_eq!(made.upstreams.first().and_then(|upstream| upstream.get("sticky")), None);
    let lost: Vec<String> = made.report.losses().map(ToString::to_string).collect();
    assert!(lost.len() == 1 && lost[0].contains("http-request deny"), "{lost:?}");
}

#[test]
fn one_file_of_authorities_and_one_of_lists_hold_for_all_clients() {
    let front = |name: &str, port: u16, asks: &str| {
        format!("frontend {name}\n mode http\n bind :{port} ssl crt /c.pem {asks}\n default_backend web\n")
    };
    let made = |fronts: &[String]| import(&(fronts.concat() + WEB)).expect("an import");
    let both = "verify required ca-file /ca.pem crl-file /crl.pem";
    let same = made(&[front("a", 1, both), front("b", 2, both)]);
    assert_eq!(same.gateway["tls"]["client_ca_path"], "/ca.pem", "{:?}", same.gateway);
    assert_eq!(same.gateway["tls"]["client_crl_path"], "/crl.pem");
    assert_eq!(same.gateway["tls"]["client_cert_required"], true);
    assert_eq!(same.report.count(Conversion::Closed), 0);
    // Only one of them insists: its clients without a certificate get 403.
    let one = made(&[front("a", 1, both), front("b", 2, "")]);
    assert_eq!(one.gateway["tls"]["client_cert_required"], false);
    let guarded = one.proxies.iter().filter(|proxy| proxy.to_string().contains("client_certificate")).count();
    assert_eq!(guarded, 1, "{:?}", one.proxies);
    // What differs opens neither.
    for other in ["verify required ca-file /other.pem crl-file /crl.pem", "verify optional ca-file /ca.pem"] {
        let made = made(&[front("a", 1, both), front("b", 2, other)]);
        assert_eq!(made.gateway["tls"].get("client_ca_path"), None, "{other}");
        assert_eq!(made.report.count(Conversion::Closed), 2, "{other}");
    }
}

/// A frontend with these lines, and what `global` says.
fn front(global: &str, lines: &str) -> Import {
    let global = if global.is_empty() { String::new() } else { format!("global\n{global}\n") };
    import(&format!("{global}frontend f\n mode http\n bind :80\n{lines}\n default_backend web\n{WEB}"))
        .expect("an import")
}

fn losses(made: &Import) -> Vec<String> {
    made.report.losses().map(ToString::to_string).collect()
}

#[test]
fn variables_are_filled_in() {
    let globals = " setenv D /x\n setenv L \"/p1 /p2\"\n setenv GONE y\n unsetenv GONE\n presetenv GONE /now";
    for (written, expected) in [
        (r#""$D""#, "/x"),
        (r#""${D}""#, "/x"),
        (r#"a"${D}b""#, "a/xb"),
        (r#""$D.a""#, ""),
        (r#""\$D""#, "$D"),
        ("'$D'", "$D"),
        ("$D", "$D"),
        (r#""${GONE-/other}""#, "/now"),
        (r#""'$D'""#, "'/x'"),
    ] {
        let line = format!(" http-request return string {written} if {{ path /a }}");
        let made = front(globals, &line);
        let body = made.plugin_configs.first().map(|it| it["config"]["body"].clone());
        match expected {
            // `D.a` is another variable.
            "" => assert_eq!(made.report.count(Conversion::Closed), 1, "{written}"),
            expected => assert_eq!(body, Some(json!(expected)), "{written}: {:?}", losses(&made)),
        }
    }
    let denied = front(globals, " http-request deny if { path_beg \"${L[*]}\" }");
    let asked = denied.proxies[0]["matches"][0].to_string();
    assert!(asked.contains("/p1") && asked.contains("/p2"), "{asked}");
    assert_eq!(losses(&denied), Vec::<String>::new());
    // All but those that are named are taken away.
    let reset = front(" resetenv PATH", " http-request return string \"[${X-none}]\" if { path /a }");
    assert_eq!(reset.plugin_configs[0]["config"]["body"], "[none]");
}

#[test]
fn what_needs_a_variable_that_is_not_known_is_closed() {
    for lines in [
        " http-request deny if { path_beg \"$D\" }",
        " acl a path_beg \"${D}\"\n http-request deny if a",
        " acl a path_beg \"${D-/x}\"\n http-request deny unless a",
        " http-request set-header \"$D\" x",
        " http-request \"$D\"",
        " http-request auth realm \"$D\" unless { http_auth(u) }",
        " http-request redirect location \"$D\"",
        " redirect prefix \"$D\"",
        " use_backend \"$D\" if { path /x }",
        " tcp-request content reject if { src \"$D\" }",
    ] {
        let made = front("", lines);
        assert_eq!(made.report.count(Conversion::Closed), 1, "{lines}");
        assert!(answers_itself(&made.proxies[0]), "{lines}");
        assert!(losses(&made)[0].contains("the environment variable `D`"), "{lines}: {:?}", losses(&made));
    }
    // Others may have it, whatever the file says of it.
    let maybe = front(" presetenv D /x", " http-request deny if { path \"$D\" }");
    assert_eq!(maybe.report.count(Conversion::Closed), 1);
    // What the client sends does not pass for it.
    let header = front("", " http-request set-header X-Home \"$HOME\"");
    let rule = &header.plugin_configs[0]["config"]["rules"][0];
    assert_eq!((&rule["operation"], &rule["key"]), (&json!("remove"), &json!("X-Home")));
    assert!(losses(&header)[0].contains("`HOME`"), "{:?}", losses(&header));
    // Neither a port nor a server is guessed.
    let port = front("", " bind \":$P\"\n timeout client \"$T\"");
    assert_eq!(losses(&port).len(), 2, "{:?}", losses(&port));
    let server = import(
        "frontend f\n mode http\n bind :80\n default_backend b\nbackend b\n server a \"$H\":80\n server b 10.0.0.1:80\n",
    );
    assert_eq!(server.expect("an import").upstreams[0]["targets"].as_array().map(Vec::len), Some(1));
    let backend = import(&format!("frontend f\n mode http\n bind :80\n default_backend \"$B\"\n{WEB}"));
    assert_eq!(backend.expect("an import").report.count(Conversion::Closed), 1);
    for bad in [
        "frontend \"$F\"\n mode http",
        "frontend f\n mode \"$M\"",
        "frontend f\n \"$X\" y",
        "frontend f\n acl \"$A\" path /x",
        "frontend f\n bind \"$1\"",
        "frontend f\n bind \"${A\"",
    ] {
        assert!(import(bad).is_err(), "{bad}");
    }
}

#[test]
fn limits_count_what_is_tracked() {
    const TABLE: &str = " stick-table type string size 1k expire 1m store http_req_rate(10s)\n";
    let limit = |track: &str, deny: &str| {
        let made = front(
            "",
            &format!("{TABLE} http-request track-sc0 {track}\n http-request deny deny_status 429 if {deny}"),
        );
        let found = made.plugin_configs.iter().find(|it| it["plugin_name"] == "rate_limiting").cloned();
        (found.unwrap_or_default(), losses(&made))
    };
    for (key, by) in [
        ("src", "address"),
        ("url_param(k)", "template:${request.query.k}"),
        ("hdr(X-Key)", "header:x-key"),
        ("cook(s)", "cookie:s"),
        ("path", "template:${request.path}"),
    ] {
        let (made, lost) = limit(&format!("{key} if {{ path_beg /t }}"), "{ sc_http_req_rate(0) gt 5 }");
        assert_eq!(made["config"]["limit_by"], by, "{key}: {lost:?}");
        assert_eq!(made["config"]["limits"], json!([{ "rate": 5, "per": "10s" }]));
        assert_eq!(made["when"]["path"]["regex"], "/t.*", "{key}");
        let missing = made["config"].get("on_missing");
        assert_eq!(missing, (by != "address").then_some(&json!("allow")), "what has no key is not counted");
        assert_eq!(lost, Vec::<String>::new(), "{key}");
    }
    assert_eq!(limit("src", "{ sc0_http_req_rate ge 5 }").0["config"]["limits"][0]["rate"], 4);
    let (made, lost) = limit("src", "{ sc_http_req_rate(0) gt 5 } { path /l }");
    assert!(made["when"]["path"]["regex"] == "/l" && lost[0].contains("are counted"), "{made} {lost:?}");
    for (track, deny, why) in [
        ("base32+src", "{ sc_http_req_rate(0) gt 5 }", "can't be counted"),
        ("hdr(x),lower", "{ sc_http_req_rate(0) gt 5 }", "can't be counted"),
        ("src if { var(txn.a) -m found }", "{ sc_http_req_rate(0) gt 5 }", "condition"),
        ("src", "{ sc_http_req_rate(1) gt 5 }", "no `track-sc`"),
        ("src table gone", "{ sc_http_req_rate(0) gt 5 }", "counts no requests"),
        ("src\n http-request track-sc0 path", "{ sc_http_req_rate(0) gt 5 }", "several"),
        ("hdr(x)", "{ src_http_req_rate gt 5 }", "no `track-sc`"),
    ] {
        let (made, lost) = limit(track, deny);
        assert_eq!(made, Value::Null, "{track}");
        assert!(
            lost.iter().any(|it| it.contains("the limit is not converted") && it.contains(why)),
            "{track}: {lost:?}"
        );
    }
    // A rule that guards as well is closed.
    let made =
        front("", &format!("{TABLE} http-request deny if {{ sc_http_req_rate(0) gt 5 }} or {{ path /x }}"));
    assert_eq!(made.report.count(Conversion::Closed), 1);
}

/// The import converts `conn_cur` of tracked requests. It reports the one of connections, and closes nothing.
#[test]
fn requests_under_way_are_limited() {
    let made = |rules: &str| {
        let made =
            front("", &format!(" stick-table type ip size 1k store conn_cur,http_req_rate(10s)\n {rules}"));
        let found = made.plugin_configs.iter().find(|it| it["plugin_name"] == "concurrency_limiting");
        let config = found.map(|it| it["config"].clone()).unwrap_or_default();
        (config, losses(&made).join("\n"), made.report.count(Conversion::Closed))
    };
    let limit = |status: u64, most: u64| json!({ "max_concurrent": most, "limit_by": "address", "status_code": status });
    const TRACK: &str = "http-request track-sc0 src\n";
    for (rules, config, lost) in [
        ("http-request deny deny_status 429 if { sc_conn_cur(0) gt 10 }", limit(429, 10), ""),
        ("http-request deny deny_status 503 if { sc0_conn_cur ge 10 }", limit(503, 9), ""),
        ("http-request deny if { src_conn_cur gt 10 }", limit(429, 10), "answered with 429"),
        ("tcp-request connection reject if { src_conn_cur gt 10 }", Value::Null, "are not limited here"),
        ("http-request deny if { sc_conn_cur(1) gt 10 }", Value::Null, "no `track-sc`"),
    ] {
        let (found, said, closed) = made(&format!("{TRACK} {rules}"));
        assert_eq!((&found, closed), (&config, 0), "{rules}: {said}");
        assert!(said.contains(lost) && lost.is_empty() == said.is_empty(), "{rules}: {said}");
    }
    let (found, said, _) =
        made("tcp-request connection track-sc0 src\n http-request deny if { sc_conn_cur(0) gt 10 }");
    assert!(found.is_null() && said.contains("concurrent requests"), "{said}");
}

#[test]
fn cookies_without_a_value() {
    let made =
        front("", " http-request deny if { cook(s) -m found }\n http-request deny if { cook(t) -m reg .* }");
    let regex = |n: usize| {
        let asked = made.proxies[n]["matches"][0].to_string();
        let value: Value = serde_json::from_str(&asked).expect("a condition");
        value["headers"]["cookie"]["regex"]
            .as_str()
            .or_else(|| value["all"][0]["headers"]["cookie"]["regex"].as_str())
            .expect("a regex")
            .to_owned()
    };
    let found = regex::Regex::new(&format!("^(?:{})$", regex(0))).expect("a regex");
    for (cookie, expected) in [
        ("s=", false),
        ("s= ", false),
        ("a=1;s=", false),
        ("s=,a=b", false),
        ("a;s=", false),
        ("xs=1", false),
        ("s=1", true),
        ("s=;", true),
        ("s=; a=b", true),
        ("a=1; s=", true),
        ("s =", true),
        ("s=\"\"", true),
        ("s= x", true),
    ] {
        assert_eq!(found.is_match(cookie), expected, "{cookie}");
    }
    assert!(!regex::Regex::new(&format!("^(?:{})$", regex(1))).expect("a regex").is_match("t="));
}

#[test]
fn what_a_rule_before_changes_is_named() {
    let made = front("", " http-request replace-path (.*) /x\\1\n http-request deny if { path_beg /x }");
    let lost = losses(&made);
    assert!(
        lost.iter().any(|it| it.contains("what `http-request replace-path` before it changes")),
        "{lost:?}"
    );
}

#[test]
fn the_proxy_protocol_of_everybody_opens_no_port() {
    for mode in ["http", "tcp"] {
        let text = format!("frontend f\n mode {mode}\n bind :80 accept-proxy\n default_backend web\n{WEB}");
        let made = import(&text).expect("an import");
        assert_eq!(made.proxies, Vec::<Value>::new(), "{mode}");
        assert!(made.gateway.get("accept_proxy_protocol").is_none());
        assert!(
            losses(&made).iter().any(|it| it.contains("trusted_proxies") && it.contains("closed")),
            "{:?}",
            losses(&made)
        );
    }
}

/// Hosts with guards and headers of their own.
fn many(count: usize, acl: &str) -> Result<Import, Failure> {
    use std::fmt::Write as _;
    let mut text = String::from(
        "userlist u\n user a insecure-password b\nfrontend f\n mode http\n bind :80\n acl au http_auth(u)\n",
    );
    for n in 0..count {
        writeln!(text, " acl a{n} {acl}{n}.test\n http-request auth if a{n} !au\n http-request set-header X-N {n} if a{n}").expect("a line");
    }
    for n in 0..count {
        writeln!(text, " use_backend web if a{n}").expect("a line");
    }
    import(&(text + WEB))
}

#[test]
fn a_host_has_no_plugins_of_others() {
    for acl in ["hdr(host) -i h", "hdr(host),field(1,:) -i h"] {
        let made = many(100, acl).expect("an import");
        // What each host has, once for it and once for the answer to what no backend takes.
        assert_eq!(made.plugin_configs.len(), 100 * 3 * 2 + 1, "{acl}");
        let own = made.plugin_configs.iter().filter(|it| it["proxy_id"] == "f-7");
        assert_eq!(own.filter(|it| it["when"].to_string().contains("h6.test")).count(), 3, "{acl}");
    }
    // Where more than one may be meant, the import says where it ends.
    let failure = many(200, "hdr_sub(host) -i h").expect_err("too many plugins");
    assert!(failure.to_string().contains("more than 100000 plugins"), "{failure}");
}
