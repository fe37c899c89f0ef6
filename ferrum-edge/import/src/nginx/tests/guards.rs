//! What keeps requests out: nothing of it opens, and what can't be said closes.

use serde_json::{Value, json};

use super::{Memory, import};
use crate::draft::answers_itself;
use crate::{Conversion, Import};

/// What is made of a server with these directives.
fn server(directives: &str) -> Import {
    let users = "ann:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n".to_owned();
    let files = Memory([("/etc/nginx/users".to_owned(), users)].into());
    let text = format!("http {{ server {{ listen 80;\n{directives} }} }}");
    import(&text, &files).unwrap_or_else(|error| panic!("{directives}: {error}"))
}

/// The configs of a plugin.
fn plugins<'i>(made: &'i Import, name: &str) -> Vec<&'i Value> {
    made.plugin_configs.iter().filter(|it| it["plugin_name"] == name).collect()
}

/// Whether nothing is passed on, and the report says why.
fn is_closed(made: &Import, why: &str) -> bool {
    made.proxies.iter().all(answers_itself)
        && made.report.losses().any(|one| one.outcome == Conversion::Closed && one.to_string().contains(why))
}

#[test]
fn an_address_that_no_rule_names_is_asked_for_a_password() {
    let ask = "auth_basic x; auth_basic_user_file users; location / { proxy_pass http://10.0.0.1:1; }";
    let one = |network: &str| json!({ "clients": [network] });
    for (rules, asked) in [
        ("deny 10.0.0.1;", Some(None)),
        ("", Some(None)),
        ("deny all;", Some(None)),
        ("allow 127.0.0.1;", Some(Some(json!({ "not": one("127.0.0.1") })))),
        ("allow 127.0.0.1; deny all;", Some(Some(json!({ "not": one("127.0.0.1") })))),
        (
            "deny 10.0.0.1; allow 10.0.0.0/8;",
            Some(Some(json!({ "any": [one("10.0.0.1"), { "not": one("10.0.0.0/8") }] }))),
        ),
        ("allow all;", None),
    ] {
        let made = server(&format!("satisfy any; {rules} {ask}"));
        let found = plugins(&made, "basic_auth").first().map(|it| it.get("when").cloned());
        assert_eq!(found, asked, "{rules}");
        assert!(
            plugins(&made, "request_termination").is_empty(),
            "{rules}: nobody is refused by address alone"
        );
    }
    // Without a question, addresses decide as ever.
    let made = server("satisfy any; deny 10.0.0.1; location / { proxy_pass http://10.0.0.1:1; }");
    assert_eq!(made.proxies.len(), 2);
    assert!(made.proxies[0]["matches"].to_string().contains("10.0.0.1"));
    let limited = ask.replace("proxy_pass", "limit_except GET { allow 10.1.0.0/16; } proxy_pass");
    assert!(is_closed(&server(&format!("satisfy any; allow 10.0.0.0/8; {limited}")), "limit_except"));
}

#[test]
fn what_changes_a_question_closes() {
    let usual = "internal; proxy_pass http://10.0.0.2:2/check; proxy_pass_request_body off; proxy_set_header Content-Length \"\"; \
                 proxy_set_header X-Original-URI $request_uri;";
    let asked = |before: &str, inner: &str| {
        server(&format!(
            "{before} location = /au {{ {inner} }} location / {{ auth_request /au; proxy_pass http://10.0.0.1:1; }}"
        ))
    };
    let config = |made: &Import| plugins(made, "forward_auth").first().map(|it| it["config"].clone());
    let good = config(&asked("", usual)).expect("a question");
    assert_eq!(
        good,
        json!({ "url": "http://10.0.0.2:2/check", "convention": "nginx", "response_headers": [],
                "status_on_error": 500, "timeout": "60s" })
    );
    for (more, key, wanted) in [
        ("proxy_read_timeout 3s;", "timeout", json!("3s")),
        ("proxy_pass_request_headers off;", "request_headers", json!([])),
        (
            "proxy_pass_request_headers off; proxy_set_header X-Token $http_x_token;",
            "request_headers",
            json!(["x-token"]),
        ),
        ("proxy_method $request_method;", "preserve_method", json!(true)),
        ("proxy_method GET;", "preserve_method", Value::Null),
        ("proxy_set_header Host $host;", "preserve_host", json!(true)),
        ("proxy_set_header Host $http_host;", "preserve_host", json!(true)),
        ("proxy_set_header Host $proxy_host;", "preserve_host", Value::Null),
        ("proxy_ssl_trusted_certificate ca.pem;", "ca_path", json!("/etc/nginx/ca.pem")),
        ("proxy_set_header X-Real-IP $remote_addr;", "convention", json!("nginx")),
    ] {
        let made = asked("", &format!("{usual} {more}"));
        let found = config(&made).unwrap_or_default();
        assert_eq!(found[key], wanted, "{more}");
    }
    for bad in [
        "if ($http_x_admin != 1) { return 403; }",
        "proxy_set_header X-Token $uri;",
        "proxy_set_header X-Token $arg_t;",
        "proxy_set_header Host \"\";",
        "rewrite ^ /other break;",
        "return 403;",
        "proxy_method POST;",
        "proxy_set_body x;",
        "set $http_x_token y;",
        "limit_req zone=a;",
        "some_module on;",
    ] {
        let made = asked("", &format!("{usual}\n{bad}"));
        let named = bad.split([';', '{']).next().unwrap_or_default().trim().replace('"', "");
        assert!(is_closed(&made, &format!("`{}", named.trim())), "{bad}: {:#?}", made.report);
    }
    for before in ["rewrite ^/au /x;", "if ($uri = /au) { return 200; }"] {
        let made = asked(before, "internal; proxy_pass http://10.0.0.2:2/check;");
        assert!(plugins(&made, "forward_auth").is_empty(), "{before}");
    }
    // A regex goes before a location of this very path.
    let made = server(
        "location /au { proxy_pass http://10.0.0.2:2; } location ~ u$ { return 204; } \
         location / { auth_request /au; proxy_pass http://10.0.0.1:1; }",
    );
    assert!(plugins(&made, "forward_auth").is_empty());
}

#[test]
fn a_server_that_is_asked_has_to_be_the_same_for_all_requests() {
    for (before, is_known) in [
        ("set $auth 10.0.0.2:2;", true),
        ("set $auth 10.0.0.2:2; if ($http_x_a) { set $auth 10.0.0.3:2; }", false),
        ("set $auth $http_x_a;", false),
        ("", false),
    ] {
        let made = server(&format!(
            "{before} location = /au {{ proxy_pass http://$auth; }} \
             location / {{ auth_request /au; proxy_pass http://10.0.0.1:1; }}"
        ));
        assert_eq!(plugins(&made, "forward_auth").len() == 1, is_known, "{before}");
        assert!(is_known || made.closed_proxies > 0, "{before}");
    }
}

#[test]
fn fields_of_a_question_become_templates() {
    let config = |inner: &str| {
        let made = server(&format!(
            "location = /au {{ {inner} }} location / {{ auth_request /au; proxy_pass http://10.0.0.1:1; }}"
        ));
        plugins(&made, "forward_auth").first().map(|it| it["config"].clone())
    };
    let usual = "proxy_pass http://10.0.0.2:2/check;";
    let made =
        config(&format!("{usual} proxy_set_header X-Forwarded-Uri $request_uri;")).expect("a question");
    assert_eq!(made["set_request_headers"]["x-forwarded-uri"], "${request.target}");
    for (field, name, wanted) in [
        ("X-Token \"\"", "x-token", ""),
        ("X-Token $cookie_t", "x-token", "${request.cookie.t}"),
        ("X-Token secret", "x-token", "secret"),
        ("Host other.test", "host", "other.test"),
        ("X-Original-URI /", "x-original-uri", "/"),
    ] {
        let made = config(&format!("{usual} proxy_set_header {field};")).expect("a question");
        assert_eq!(made["set_request_headers"][name], wanted, "{field}");
    }
}

#[test]
fn modules_that_guard_close() {
    for guard in [
        "shib_request /shibauthorizer;",
        "SecRulesEnabled;",
        "ModSecurityEnabled on;",
        "wallarm_mode block;",
        "server_rewrite_by_lua_block { return ngx.exit(403) }",
        "hmac_secure_link_secret x;",
        "spnego on;",
        "auth_gss on;",
    ] {
        let made = server(&format!("{guard} location / {{ proxy_pass http://10.0.0.1:1; }}"));
        assert!(is_closed(&made, guard.split([' ', ';']).next().unwrap_or_default()), "{guard}");
    }
    let made = server("auth_gss off; ModSecurityEnabled off; location / { proxy_pass http://10.0.0.1:1; }");
    assert_eq!(made.report.count(Conversion::Closed), 0);
}

#[test]
fn a_file_of_passwords_that_is_not_there_closes() {
    let made =
        server("location / { auth_basic x; auth_basic_user_file gone; proxy_pass http://10.0.0.1:1; }");
    assert!(is_closed(&made, "gone could not be read here"), "{:#?}", made.report);
    assert!(plugins(&made, "basic_auth").is_empty());
}

/// Paths of locations are decoded, those of proxies are as requests have them.
#[test]
fn what_no_path_has_is_encoded() {
    let made = server(
        "location \"/a b/\" { deny all; } location = /\u{e9} { deny all; } location ~ \"^/c d$\" { deny all; } \
         location / { proxy_pass http://10.0.0.1:1; }",
    );
    let document = made.document().to_string();
    for path in ["/a%20b", "/%C3%A9", "^?(?:/c(?:%20)d)"] {
        assert!(document.contains(path.trim_start_matches("^?")), "{path}: {document}");
    }
}

/// Beside the folder of `alias`, there is nothing.
#[test]
fn what_only_begins_like_a_folder_is_not_in_it() {
    let made =
        server("location /static { alias /www; } location /dir/ { alias /www; } location / { return 204; }");
    let of = |wanted: &str| {
        made.proxies.iter().filter(move |it| it["matches"].to_string().contains(wanted)).collect::<Vec<_>>()
    };
    let answers = |proxy: &Value| {
        let own = made.plugin_configs.iter().filter(|it| it["proxy_id"] == proxy["id"]);
        own.map(|it| it["config"]["status_code"].as_u64().unwrap_or(200)).collect::<Vec<_>>()
    };
    let beside = of("/static[^/].*");
    assert_eq!(beside.len(), 1, "{:#}", made.document());
    assert_eq!(answers(beside[0]), [404]);
    let folder = of("{\"prefix\":\"/static\"}");
    assert_eq!(answers(folder[0]), [200]);
    // nginx joins the names of folder and file: `/wwwx`.
    assert_eq!(answers(of("{\"prefix\":\"/dir\"}")[0]), [503]);
}

/// One zone is one counter, wherever it limits.
#[test]
fn places_share_the_counters_of_a_zone() {
    let of = |second: &str| {
        let text = format!(
            "http {{ limit_req_zone $binary_remote_addr zone=one:1m rate=5r/s; limit_conn_zone $binary_remote_addr zone=conn:1m; \
             server {{ listen 80; limit_conn conn 3; \
             location /a {{ limit_req zone=one burst=2 nodelay; proxy_pass http://10.0.0.1:1; }} \
             location /b {{ limit_req zone=one {second}; proxy_pass http://10.0.0.1:1; }} }} }}"
        );
        import(&text, &crate::NoFiles).expect("an import")
    };
    let same = of("burst=2 nodelay");
    for name in ["rate_limiting", "concurrency_limiting"] {
        let configs = plugins(&same, name);
        assert_eq!(configs.len(), 1, "{:#}", same.document());
        assert_eq!(configs[0]["scope"], "proxy_group");
        assert_eq!(configs[0].get("proxy_id"), None);
        let with = |it: &&Value| it["plugins"].to_string().contains(&format!("{}}}", configs[0]["id"]));
        assert_eq!(same.proxies.iter().filter(with).count(), 2, "{:#}", same.document());
    }
    assert!(!same.report.has_loss());
    let other = of("burst=4 nodelay");
    assert_eq!(plugins(&other, "rate_limiting").len(), 2);
    assert!(plugins(&other, "rate_limiting").iter().all(|it| it["proxy_id"].is_string()));
    assert!(other.report.losses().any(|one| one.to_string().contains("counts for itself")));
}

#[test]
fn parameters_in_headers_are_said_to_be_decoded() {
    for directive in [
        "proxy_set_header X-U $arg_u;",
        "add_header X-U $arg_u always;",
        "if ($arg_u) { return 302 /x?u=$arg_u; }",
    ] {
        let made = server(&format!("location / {{ {directive} proxy_pass http://10.0.0.1:1; }}"));
        let is_named = made.report.losses().any(|one| one.to_string().contains("as they were sent"));
        assert!(is_named, "{directive}: {:#?}", made.report);
    }
}

#[test]
fn internal_locations_serve_what_targets_name() {
    let text = "server {
        location / { proxy_pass http://127.0.0.1:3000; }
        location /protected/ { internal; alias /srv/files/; }
        location /stored/ { internal; proxy_pass http://127.0.0.1:9000; }
        location /guarded/ { internal; root /srv; allow 10.0.0.0/8; deny all; }
    }";
    let sources = [("nginx.conf".to_owned(), text.to_owned())];
    let out = crate::import(crate::Format::Nginx, &sources, &crate::NoFiles, crate::Options::default());
    let out = out.expect("it is nginx's");
    let made: Vec<_> =
        out.plugin_configs.iter().filter(|it| it["plugin_name"] == "internal_redirect").collect();
    assert_eq!(made.len(), 1);
    let expected = serde_json::json!([
        { "prefix": "/protected/", "root": "/srv/files/" },
        { "prefix": "/stored/", "url": "http://127.0.0.1:9000", "strip_prefix": false },
    ]);
    assert_eq!(made[0]["config"]["locations"], expected);
}

/// nginx obeys `X-Accel-Redirect` on the way to every location, so that none may reach the client as the target wrote it.
#[test]
fn internal_locations_that_cannot_be_converted_hide_what_targets_name() {
    for location in [
        "location = /file { internal; alias /srv/file; }",
        "location ~ ^/stored/ { internal; root /srv; }",
        "location /guarded/ { internal; root /srv; allow 10.0.0.0/8; deny all; }",
        "location /chosen/ { internal; alias /srv/$folder/; }",
    ] {
        let text = format!("server {{ location / {{ proxy_pass http://127.0.0.1:3000; }} {location} }}");
        let sources = [("nginx.conf".to_owned(), text)];
        let out = crate::import(crate::Format::Nginx, &sources, &crate::NoFiles, crate::Options::default())
            .unwrap();
        let made: Vec<_> =
            out.plugin_configs.iter().filter(|it| it["plugin_name"] == "internal_redirect").collect();
        assert_eq!(made.len(), 1, "{location}");
        assert_eq!(made[0]["config"]["locations"], serde_json::json!([]), "{location}");
        let is_named = out.report.losses().any(|it| it.to_string().contains("X-Accel-Redirect"));
        assert!(is_named, "{location}: {:#?}", out.report);
    }
}
