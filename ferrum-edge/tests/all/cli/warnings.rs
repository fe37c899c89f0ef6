//! What `check` warns of.

use serde_json::Value;

use crate::process::{Folder, Gateway, ferrum_edge, get};

const DOUBTFUL: &str = "
proxies:
  - { id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9,
      plugins: [{ plugin_config_id: acl }] }
consumers:
  - { id: c, username: c }
plugin_configs:
  - { id: acl, plugin_name: access_control, scope: proxy_group, config: { allowed_consumers: [nobody] } }
  - { id: spare, plugin_name: cors, scope: proxy_group, config: { allowed_origins: ['https://a.example'] } }
";

#[test]
fn certificates_that_nobody_asks_for_are_warned_of() {
    let folder = Folder::new();
    let trusting = "gateway: {trusted_proxies: [10.0.0.0/8]}\n";
    for (gateway, config, is_warned) in [
        ("", "{}", true),
        ("", "{trust_forwarded: true}", true),
        (trusting, "{trust_forwarded: true}", false),
    ] {
        let plugin = format!("plugin_name: mtls_auth, proxy_id: a, config: {config}");
        folder.write(
            "ferrum.yaml",
            &format!(
                "{gateway}proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}}\n\
                 plugin_configs:\n  - {{id: m, {plugin}}}\n"
            ),
        );
        let output = ferrum_edge(&folder).arg("check").output().unwrap();
        let said = format!("{output:?}");
        assert_eq!(said.contains("[certificate_not_asked]"), is_warned, "{said}");
    }
}

#[test]
fn what_is_probably_not_meant_is_warned_of() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", DOUBTFUL);
    let codes = |arguments: &[&str]| {
        let output =
            ferrum_edge(&folder).arg("check").args(arguments).args(["--output", "json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let listed = document["warnings"].as_array().unwrap().clone();
        let codes: Vec<_> =
            listed.iter().map(|warning| warning["code"].as_str().unwrap().to_owned()).collect();
        (output.status.code(), codes)
    };
    let all = ["plugin_unused", "access_without_identity", "unknown_consumer", "consumer_unusable"];
    assert_eq!(codes(&[]), (Some(0), all.map(str::to_owned).to_vec()));
    assert_eq!(codes(&["--deny-warnings"]).0, Some(3));
    let output = ferrum_edge(&folder).args(["run", "--deny-warnings"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("[access_without_identity]"));
    let silenced = format!("gateway: {{ silence_warnings: [{}] }}\n{DOUBTFUL}", all.join(", "));
    folder.write("ferrum.yaml", &silenced);
    assert_eq!(codes(&["--deny-warnings"]), (Some(0), Vec::new()));
    folder.write("ferrum.yaml", &silenced.replace("plugin_unused", "plugin_unusd"));
    let output = ferrum_edge(&folder).arg("check").output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("did you mean `plugin_unused`?"));
}

#[test]
fn a_narrow_config_in_the_place_of_a_global_one_is_warned_of() {
    let folder = Folder::new();
    let config = |id: &str, more: &str| {
        format!("  - {{id: {id}, plugin_name: ip_restriction, {more}, config: {{deny: [192.0.2.1]}}}}\n")
    };
    let global = config("g", "scope: global");
    let narrow = config("n", "proxy_id: a, when: {path: /x}");
    for (configs, is_warned) in [
        ([&*global, &narrow].concat(), true),
        ([&*global, &config("n", "proxy_id: a")].concat(), false),
        ([&*global, &narrow, &config("m", "proxy_id: a")].concat(), false),
        (
            [&*global.replace("ip_restriction", "bot_detection").replace("192.0.2.1", "evil"), &narrow]
                .concat(),
            false,
        ),
    ] {
        let proxy = "{id: a, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9}";
        folder.write("ferrum.yaml", &format!("proxies:\n  - {proxy}\nplugin_configs:\n{configs}"));
        let output = ferrum_edge(&folder).arg("check").output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said.contains("[global_displaced]"), is_warned, "{configs}: {said}");
    }
}

#[test]
fn unknown_variables_are_warned_of() {
    let folder = Folder::new();
    let check = |settings: &str| {
        let proxy = "proxies: [{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}]";
        folder.write("ferrum.yaml", &format!("gateway: {{{settings}}}\n{proxy}\n"));
        let mut check = ferrum_edge(&folder);
        let output = check.args(["check", "--deny-warnings"]).env("FERRUM_PROXI_HTTP_PORT", "1").output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = check("");
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("did you mean FERRUM_PROXY_HTTP_PORT?"), "{said}");
    assert_eq!(check("silence_warnings: [unknown_variable]").0, Some(0));
    // What a database holds changes later: nothing could be denied.
    let refused =
        ferrum_edge(&folder).args(["run", "--mode", "database", "--deny-warnings"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// What is closed when it runs is told by `check`.
#[test]
fn proxies_that_would_be_closed_are_warned_of() {
    let folder = Folder::new();
    for (when, order, is_closed) in [
        ("consumers: [ann]", "", true),
        ("groups: [staff]", ", after: key_auth", false),
        ("methods: [GET]", "", false),
    ] {
        folder.write(
            "ferrum.yaml",
            &format!(
                "proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}}\n\
                 consumers:\n  - {{id: c, username: ann, acl_groups: [staff], credentials: {{key_auth: k}}}}\n\
                 plugin_configs:\n  - {{id: k, plugin_name: key_auth, proxy_id: a}}\n  \
                 - {{id: p, proxy_id: a, plugin_name: bot_detection, when: {{{when}}}{order}}}\n"
            ),
        );
        let output = ferrum_edge(&folder).arg("check").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.contains("[proxy_closed]"), is_closed, "{said}");
        assert_eq!(said.contains("before the caller is known"), is_closed, "{said}");
        let denied = ferrum_edge(&folder).args(["check", "--deny-warnings"]).output().unwrap();
        assert_eq!(denied.status.code(), Some(if is_closed { 3 } else { 0 }), "{said}");
    }
}

/// `run` and `/v1/status` say what `check` says.
#[test]
fn a_gateway_warns_of_proxies_that_are_closed_and_of_plugins_that_run_nowhere() {
    let folder = Folder::new();
    let stream = "proxies:\n  - {id: t, listen_port: 1, backend_scheme: udp, backend_host: 127.0.0.1, backend_port: 9}\n";
    for (plugin, code) in [("key_auth", "proxy_closed"), ("cors", "plugin_unused")] {
        let plugin = format!("plugin_configs:\n  - {{id: p, scope: global, plugin_name: {plugin}}}\n");
        folder.write("ferrum.yaml", &format!("{stream}{plugin}"));
        for command in ["check", "run"] {
            let output = ferrum_edge(&folder).args([command, "--deny-warnings"]).output().unwrap();
            assert_eq!(output.status.code(), Some(3), "{command} {code}: {output:?}");
            assert!(format!("{output:?}").contains(code), "{command} {code}: {output:?}");
        }
        // Another proxy takes requests, for which the plugin runs.
        let both =
            stream.to_owned() + "  - {id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}\n";
        folder.write("ferrum.yaml", &format!("{both}{plugin}"));
        let output = ferrum_edge(&folder).arg("check").output().unwrap();
        assert!(!format!("{output:?}").contains("plugin_unused"), "{output:?}");
    }
    folder.write(
        "ferrum.yaml",
        "gateway: {http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off}\n\
         proxies:\n  - {id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}\n\
         consumers:\n  - {id: c, username: ann, credentials: {key_auth: k}}\n\
         plugin_configs:\n  - {id: k, plugin_name: key_auth, proxy_id: a}\n  \
         - {id: p, proxy_id: a, plugin_name: bot_detection, when: {consumers: [ann]}}\n",
    );
    let gateway = Gateway::start(&folder, |_| {});
    let status = get(gateway.admin, "/v1/status");
    assert!(status.contains("\"code\":\"proxy_closed\""), "{status}");
}

#[test]
fn callers_that_do_not_exist_are_warned_of() {
    let folder = Folder::new();
    let told = |plugin: &str| {
        folder.write(
            "ferrum.yaml",
            &format!(
                "proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}}\n\
                 consumers:\n  - {{id: c, username: ann, acl_groups: [staff], credentials: {{key_auth: k}}}}\n\
                 plugin_configs:\n  - {{id: k, plugin_name: key_auth, proxy_id: a}}\n  - {{id: p, proxy_id: a, {plugin}}}\n"
            ),
        );
        let output = ferrum_edge(&folder).arg("check").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        format!("{output:?}").matches("[unknown_consumer]").count()
    };
    for (plugin, expected) in [
        ("plugin_name: key_auth, config: {anonymous: ann}", 0),
        ("plugin_name: key_auth, config: {anonymous: nobody}", 1),
        ("plugin_name: cors, when: {consumers: [ann], groups: [staff]}", 0),
        ("plugin_name: cors, when: {not: {any: [{consumers: [bob]}, {groups: [stuff]}]}}", 2),
    ] {
        assert_eq!(told(plugin), expected, "{plugin}");
    }
}

#[test]
fn consumers_that_callers_are_taken_for_need_no_credential() {
    let folder = Folder::new();
    let public_key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----";
    let signer =
        format!("public_keys: [{{key_id: k, public_key: {public_key:?}, algorithm: EdDSA, consumer: ann}}]");
    for (plugin, config, is_warned) in [
        ("key_auth", "anonymous: ann", false),
        ("key_auth", "anonymous: bob", true),
        ("hmac_auth", &*signer, false),
    ] {
        folder.write(
            "ferrum.yaml",
            &format!(
                "proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}}\n\
                 consumers:\n  - {{id: c, username: ann}}\n  \
                 - {{id: d, username: bob, credentials: {{key_auth: k}}}}\n\
                 plugin_configs:\n  - {{id: p, plugin_name: {plugin}, proxy_id: a, config: {{{config}}}}}\n  \
                 - {{id: k, plugin_name: key_auth, scope: global}}\n"
            ),
        );
        let output = ferrum_edge(&folder).args(["check", "--output", "json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let warnings = document["warnings"].as_array().unwrap();
        let found = warnings.iter().any(|warning| warning["code"] == "consumer_unusable");
        assert_eq!(found, is_warned, "{plugin} {config}: {document}");
    }
}

#[test]
fn plugins_that_answer_before_a_guard_are_warned_of() {
    let folder = Folder::new();
    for (plugin, config) in
        [("static_files", "{root: files}"), ("response_mock", "{rules: [{path: /x, body: x}]}")]
    {
        for (order, is_warned) in [("before: key_auth", true), ("enabled: true", false)] {
            folder.write(
                "ferrum.yaml",
                &format!(
                    "proxies:\n  - {{id: a, listen_path: /, backend_host: 127.0.0.1, backend_port: 9}}\n\
                     plugin_configs:\n  - {{id: k, plugin_name: key_auth, proxy_id: a}}\n  \
                     - {{id: p, plugin_name: {plugin}, proxy_id: a, {order}, config: {config}}}\n"
                ),
            );
            std::fs::create_dir_all(folder.path("files")).unwrap();
            let said = format!("{:?}", ferrum_edge(&folder).arg("check").output().unwrap());
            assert_eq!(said.contains("[answers_before_guard]"), is_warned, "{plugin}: {said}");
        }
    }
}

#[test]
fn names_that_no_path_has_are_refused() {
    let folder = Folder::new();
    for (plugin, config) in [
        ("rewrite", "{path: '/x/${capture.tem}'}"),
        ("rewrite", "{query: {set: [{name: t, value: '${capture.tem}'}]}}"),
        ("redirect", "{location: '/x/${capture.tem}'}"),
        (
            "request_transformer",
            "{rules: [{operation: set, target: header, key: x-t, value: '${capture.tem}'}]}",
        ),
        (
            "response_transformer",
            "{rules: [{operation: set, target: header, key: x-t, value: '${capture.tem}'}]}",
        ),
        ("rate_limiting", "{limits: [{rate: 1, per: 1m}], limit_by: 'template:${capture.tem}'}"),
        ("error_pages", "{pages: [{status: '404', content_type: text/html, body: '${capture.tem}'}]}"),
    ] {
        for (path, is_refused) in [("/teams/{team}", true), ("/teams/{tem}", false)] {
            folder.write(
                "ferrum.yaml",
                &format!(
                    "proxies:\n  - {{id: a, matches: [{{path: {{template: '{path}'}}}}], backend_host: 127.0.0.1, backend_port: 9}}\n\
                     plugin_configs:\n  - {{id: p, plugin_name: {plugin}, proxy_id: a, config: {config}}}\n"
                ),
            );
            let output = ferrum_edge(&folder).arg("check").output().unwrap();
            let said = format!("{output:?}");
            let named = said.contains("no path of the proxy has the name `tem`")
                && said.contains("did you mean `${capture.team}`?");
            assert_eq!(named, is_refused, "{plugin}: {said}");
            assert!(is_refused || output.status.code() == Some(0), "{plugin}: {said}");
        }
    }
}

#[test]
fn a_plugin_that_answers_some_requests_leaves_the_others_without_a_target() {
    let folder = Folder::new();
    for (when, is_warned) in [("", false), (", when: {methods: [GET]}", true)] {
        let plugin =
            format!("plugin_name: redirect, proxy_id: a, config: {{location: 'https://a.example/'}}{when}");
        let spec =
            format!("proxies:\n  - {{id: a, listen_path: /}}\nplugin_configs:\n  - {{id: r, {plugin}}}\n");
        folder.write("ferrum.yaml", &spec);
        let output = ferrum_edge(&folder).arg("check").output().unwrap();
        let said = format!("{output:?}");
        assert_eq!(said.contains("[target_missing]"), is_warned, "{said}");
    }
}

#[test]
fn a_plugin_that_answers_no_request_does_not_stand_for_a_target() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "proxies:\n  - {id: a, listen_path: /}\nplugin_configs:\n  - {id: m, plugin_name: mtls_auth, proxy_id: a}\n",
    );
    let output = ferrum_edge(&folder).arg("check").output().unwrap();
    let said = format!("{output:?}");
    assert!(output.status.code() == Some(3) && said.contains("`backend_host` is missing"), "{said}");
}

#[test]
fn old_names_of_settings_are_read_and_warned_of() {
    let folder = Folder::new();
    folder.write(
        "ferrum.yaml",
        "gateway: {client_timeouts: {header_ms: 2500}}
proxies:
  - {id: a, namespace: ferrum, listen_path: /, backend_host: 127.0.0.1, backend_port: 9, backend_read_timeout_ms: 1s}
plugin_configs:
  - {id: s, plugin_name: request_mirror, proxy_id: a, config: {url: 'http://127.0.0.1:9', timeout_ms: 700}}
",
    );
    let output = ferrum_edge(&folder).arg("check").output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    for line in [
        "gateway.client_timeouts.header_ms: it is called `header: 2500ms` now (write that) [old_spelling]",
        "proxies[0].namespace: it says nothing any more (remove it) [old_spelling]",
        "proxies[0].backend_read_timeout_ms: it is called `backend_first_byte_timeout: 1s` and \
         `backend_idle_timeout: 1s` now (write that) [old_spelling]",
        "plugin_configs.s.config.timeout_ms: it is called `timeout: 700ms` now (write that) [old_spelling]",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    assert_eq!(said.matches("[old_spelling]").count(), 4, "{said}");
}

/// A name that no path of the proxy has is a mistake, and not a proxy that answers 503.
#[test]
fn unknown_captures_reject_a_file() {
    let folder = Folder::new();
    let write = |name: &str| {
        let rule = format!("{{operation: set, target: header, key: x-team, value: '${{capture.{name}}}'}}");
        folder.write(
            "ferrum.yaml",
            &format!(
                "gateway: {{http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off}}\n\
                 proxies:\n  - {{id: a, listen_path: '/teams/{{team}}', backend_host: 127.0.0.1, backend_port: 9}}\n\
                 plugin_configs:\n  - {{id: p, proxy_id: a, plugin_name: request_transformer, config: {{rules: [{rule}]}}}}\n"
            ),
        );
    };
    let expected = "plugin_configs.p.config.rules: no path of the proxy has the name `taem` of `${capture.taem}`: \
                    did you mean `${capture.team}`?";
    write("taem");
    for (command, code) in [(&["check"][..], 3), (&["run"], 1), (&["run", "--deny-warnings"], 3)] {
        let output = ferrum_edge(&folder).args(command).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command:?}: {output:?}");
        assert!(format!("{output:?}").contains(expected), "{command:?}: {output:?}");
    }
    write("team");
    assert_eq!(ferrum_edge(&folder).arg("check").output().unwrap().status.code(), Some(0));
}
