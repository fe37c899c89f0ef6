//! Routes that ask for what is not converted.

use serde_json::{Value, json};

use crate::draft::answers_itself;
use crate::{Conversion, Format, Import, NoFiles, Options};

/// What becomes of a service's routes, with `--open` as well.
fn routes(url: &str, routes: &str) -> [Import; 2] {
    let text =
        format!("_format_version: \"3.0\"\nservices: [{{name: s, url: \"{url}\", routes: [{routes}]}}]\n");
    let sources = [("kong.yml".to_owned(), text)];
    [false, true]
        .map(|open| crate::import(Format::Kong, &sources, &NoFiles, Options { open }).expect("an import"))
}

fn whole(text: &str) -> Import {
    let sources = [("kong.yml".to_owned(), text.to_owned())];
    crate::import(Format::Kong, &sources, &NoFiles, Options::default()).expect("an import")
}

#[test]
fn prefixes_end_anywhere() {
    let text = "_format_version: '3.0'\nservices:\n- name: s\n  url: http://10.0.0.1:80/base\n  routes:\n  \
        - {name: all, paths: [/], strip_path: false}\n  \
        - {name: admin, paths: [/admin], plugins: [{name: key-auth}]}\n  \
        - {name: below, paths: [/below/], methods: [GET]}\n";
    let made = whole(text);
    let of = |id: &str| {
        made.proxies.iter().find(|proxy| proxy["id"] == id).unwrap_or_else(|| panic!("{:#}", made.document()))
    };
    let within = of("admin-within");
    assert_eq!(within["matches"][0]["path"]["regex"], "/admin[^/].*");
    assert_eq!(within["plugins"], of("admin")["plugins"], "it is guarded as the other one is");
    assert!(within["priority"].as_i64() > of("all")["priority"].as_i64());
    let rewrite = made.plugin_configs.iter().find(|it| it["proxy_id"] == "admin-within").expect("a plugin");
    assert_eq!(
        rewrite["config"]["regex"][0],
        serde_json::json!({ "from": "^/admin(.*)$", "to": "/base/${1}" })
    );
    assert_eq!(of("below")["matches"][0]["not"]["path"]["exact"], "/below");
    // A prefix that ends with a slash does not go on within a segment: `/belowx` is another route's.
    assert!(made.proxies.iter().all(|proxy| proxy["id"] != "below-within"), "{:#}", made.document());
    // Alone, nothing else takes what goes on within a segment.
    let alone = text.replace("  - {name: all, paths: [/], strip_path: false}\n", "");
    assert_eq!(whole(&alone).proxies.len(), 2);
}

/// What a guarded route has in Kong is not opened by one for what is below a path.
#[test]
fn prefixes_with_a_slash_end_with_it() {
    let text = "_format_version: '3.0'\nservices:\n- name: s\n  url: http://10.0.0.1:80\n  routes:\n  \
        - {name: all, paths: [/], plugins: [{name: key-auth}]}\n  - {name: pub, paths: [/public/]}\n";
    let made = whole(text);
    let ids: Vec<&str> = made.proxies.iter().filter_map(|proxy| proxy["id"].as_str()).collect();
    assert_eq!(ids, ["all", "pub"], "{:#}", made.document());
}

/// A condition that can't be kept never makes a route wider, and what it may take goes to no wider route.
#[test]
fn what_narrower_routes_may_take_is_closed() {
    for (route, path) in [
        (r#"{name: r, expression: 'http.path ^= "/c" && http.path.segments.len == 2'}"#, "/"),
        (r#"{name: r, hosts: ["b.*.c"]}"#, "/"),
        (r#"{name: r, hosts: ["b*c", "c.test:x"], paths: [/x]}"#, "/x"),
        (r"{name: r, paths: [/x], sources: [{ip: 10.0.0.0/8}]}", "/x"),
        (r"{name: r, paths: ['~/x(?!y)']}", "/x"),
        (r"{name: r, paths: ['~/xy?(?!y)']}", "/x"),
        (r"{name: r, paths: ['~/z/(a)\1$']}", "/z/"),
        (r"{name: r, paths: ['~/z|/a(?!b)']}", "/"),
        (r"{name: r, paths: [/x], headers: {x-a: ['~*^(?!a)']}}", "/x"),
    ] {
        let [closed, open] = routes("http://10.0.0.1:80", route);
        assert_eq!(open.proxies, Vec::<Value>::new(), "{route}");
        assert!(open.report.count(Conversion::Opened) > 0, "{route}");
        assert!(closed.report.count(Conversion::Closed) > 0, "{route}");
        let proxy = &closed.proxies[0];
        let said = proxy["listen_path"].as_str().or_else(|| proxy["matches"][0]["path"]["prefix"].as_str());
        assert_eq!(said.map(|it| it.trim_end_matches('/')), Some(path.trim_end_matches('/')), "{proxy:#}");
        assert_eq!(proxy.get("hosts"), None, "{route}");
        let guard = &closed.plugin_configs[0];
        assert_eq!((&guard["proxy_id"], &guard["config"]["status_code"]), (&proxy["id"], &json!(503)));
    }
    let [made, _] =
        routes("http://10.0.0.1:80", r"{name: r, hosts: ['b.*.c', a.test], paths: [/y], sources: null}");
    assert_eq!((made.proxies.len(), &made.proxies[0]["hosts"]), (2, &json!(["a.test"])));
    let closed: Vec<_> = made.plugin_configs.iter().map(|it| &it["proxy_id"]).collect();
    assert_eq!(closed, [&made.proxies[1]["id"]], "a host that is known is served");
}

/// The usual way to block a path.
#[test]
fn a_route_without_a_service_has_its_plugins() {
    let made = whole(
        "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [{name: all, paths: [/]}]}]\n\
         routes: [{name: no, paths: [/no], plugins: [{name: request-termination, config: {status_code: 403}}]}]\n",
    );
    let no = made.proxies.iter().find(|proxy| proxy["id"] == "no").expect("a proxy");
    assert_eq!(no["listen_path"], "/no");
    assert!(answers_itself(no));
    let guard = made.plugin_configs.iter().find(|it| it["plugin_name"] == "request_termination");
    assert_eq!(guard.expect("a plugin")["config"]["status_code"], 403);
}

#[test]
fn the_order_of_routes_is_kongs() {
    let priority = |made: &Import, id: &str| {
        let found = made.proxies.iter().find(|proxy| proxy["id"] == id);
        found.unwrap_or_else(|| panic!("{:#}", made.document()))["priority"].as_i64().unwrap_or(0)
    };
    let of = |routes_of: &str| routes("http://10.0.0.1:80", routes_of)[0].clone();
    for regexes in [(3000, 10_000), (-5, 0)] {
        let text = format!(
            "{{name: a, paths: ['~/a.*'], regex_priority: {}}}, {{name: b, paths: ['~/b.*'], regex_priority: {}}}",
            regexes.0, regexes.1
        );
        let made = of(&text);
        assert!(priority(&made, "b") > priority(&made, "a"), "{regexes:?}");
    }
    let made =
        of("{name: plain, hosts: [a.test], paths: [/]}, {name: wild, hosts: ['*.test'], headers: {x: [y]}}");
    assert!(priority(&made, "plain") > priority(&made, "wild"));
    // Of two equally specific routes, the one whose host names a port has precedence.
    let made = of(
        "{name: port, hosts: ['p.test:8443'], paths: [/admin]}, {name: host, hosts: [p.test], paths: [/]}",
    );
    let lifted = made.proxies.iter().find(|proxy| proxy["id"] == "port-hosts");
    let lifted = lifted.unwrap_or_else(|| panic!("{:#}", made.document()));
    assert_eq!((&lifted["hosts"], &lifted["listen_path"]), (&json!(["p.test"]), &json!("/admin")));
}

#[test]
fn streams_are_for_their_sources() {
    let stream = |more: &str| {
        let route = format!("{{name: t, protocols: [tcp], destinations: [{{port: 23400}}], {more}}}");
        let [made, _] = routes("tcp://10.0.0.1:5432", &route);
        made
    };
    let made = stream("sources: [{ip: 10.0.0.0/8}, {ip: 192.168.1.1}]");
    assert_eq!(made.proxies[0]["listen_port"], 23400);
    assert_eq!(made.plugin_configs[0]["plugin_name"], "ip_restriction");
    assert_eq!(made.plugin_configs[0]["proxy_id"], made.proxies[0]["id"]);
    assert_eq!(made.plugin_configs[0]["config"], json!({ "allow": ["10.0.0.0/8", "192.168.1.1"] }));
    for more in [
        "sources: [{port: 1}]",
        "sources: [{ip: 10.0.0.0/8, port: 1}]",
        "sources: [{ip: x}]",
        "snis: [a.test]",
    ] {
        let made = stream(more);
        assert_eq!(made.proxies, Vec::<Value>::new(), "{more}");
        assert_eq!(made.report.count(Conversion::Closed), 1, "{more}");
    }
    assert_eq!(stream("sources: []").plugin_configs, Vec::<Value>::new());
}

/// What becomes of a service's plugin.
fn plugin(text: &str) -> Import {
    whole(&format!(
        "_format_version: '3.0'\nconsumers: [{{username: guest}}]\nservices:\n- name: s\n  url: http://10.0.0.1:80\n  \
         routes: [{{name: r, paths: [/]}}]\n  plugins: [{text}]\n"
    ))
}

fn config<'i>(made: &'i Import, name: &str) -> Vec<&'i Value> {
    made.plugin_configs.iter().filter(|it| it["plugin_name"] == name).collect()
}

fn said(made: &Import, piece: &str) -> bool {
    made.report.losses().any(|it| it.to_string().contains(piece))
}

#[test]
fn bots_are_named_by_regexes() {
    let made = plugin("{name: bot-detection, config: {deny: ['evil.*', curl], allow: ['^Good']}}");
    let bots = &config(&made, "bot_detection")[0]["config"];
    assert_eq!(bots["deny"], json!(["~(?-i:evil.*)", "~(?-i:curl)"]));
    assert_eq!(bots["allow"], json!(["~(?-i:^Good)"]));
    for key in ["allow", "deny"] {
        let made = plugin(&format!("{{name: bot-detection, config: {{{key}: ['a(?!b)']}}}}"));
        assert_eq!(made.report.count(Conversion::Closed), 1, "{key}");
        assert!(said(&made, "the regex `a(?!b)`"));
        assert_eq!(config(&made, "bot_detection"), Vec::<&Value>::new());
    }
}

#[test]
fn a_field_that_clients_send_does_not_replace_a_value_that_is_not_converted() {
    let rules = |text: &str| {
        let made = plugin(&format!("{{name: request-transformer, config: {{{text}}}}}"));
        assert!(said(&made, "expressions"), "{text}");
        config(&made, "request_transformer").first().map(|made| made["config"]["rules"].clone())
    };
    for (text, target, key) in [
        ("replace: {headers: ['X-User:$(consumer.username)']}", "header", "X-User"),
        ("replace: {querystring: ['user:$(headers.x)']}", "query", "user"),
        ("rename: {headers: ['X-User:$(headers.x)']}", "header", "X-User"),
    ] {
        let removed = json!([{ "operation": "remove", "target": target, "key": key }]);
        assert_eq!(rules(text), Some(removed), "{text}");
    }
    // Kong keeps what the client sends, too.
    assert_eq!(rules("add: {headers: ['X-User:$(headers.x)']}"), None);
}

#[test]
fn anonymous_callers_are_told_of() {
    let removed = json!([{ "operation": "remove", "target": "header", "key": "X-Anonymous-Consumer" }]);
    let made = plugin("{name: key-auth}");
    let rules = config(&made, "request_transformer");
    assert_eq!((rules.len(), &rules[0]["config"]["rules"]), (1, &removed));
    assert_eq!(rules[0].get("when"), None);
    assert!(made.proxies[0]["plugins"].to_string().contains("x-anonymous-consumer"));
    let made = plugin("{name: key-auth, config: {anonymous: guest}}");
    let rules = config(&made, "request_transformer");
    assert_eq!(
        (&rules[0]["config"]["rules"], &rules[0]["when"]["not"]["consumers"]),
        (&removed, &json!(["guest"]))
    );
    assert_eq!(
        (&rules[1]["config"]["rules"][0]["value"], &rules[1]["when"]["consumers"]),
        (&json!("true"), &json!(["guest"]))
    );
    assert_eq!(config(&plugin("{name: cors}"), "request_transformer"), Vec::<&Value>::new());
    // The same of one that stands for all.
    let text = "_format_version: '3.0'\nservices: [{name: s, url: 'http://10.0.0.1:80', routes: [{name: r, paths: [/]}]}]\nplugins: [{name: key-auth}]\n";
    assert!(whole(text).proxies[0]["plugins"].to_string().contains("x-anonymous-consumer"));
}

#[test]
fn what_of_a_plugin_has_no_counterpart_is_named() {
    for (text, why) in [
        (
            "{name: cors, config: {origins: ['https://.*[.]a[.]test']}}",
            "`origins`: `https://.*[.]a[.]test` is a regex",
        ),
        ("{name: jwt, config: {secret_is_base64: true}}", "`secret_is_base64`"),
        ("{name: jwt, config: {maximum_expiration: 60}}", "`maximum_expiration`"),
        ("{name: hmac-auth, config: {algorithms: [hmac-sha1]}}", "`algorithms`"),
        (
            "{name: openid-connect, config: {issuer: 'https://i.test', auth_methods: [session]}}",
            "`auth_methods: [bearer]`",
        ),
        ("{name: rate-limiting, config: {minute: 5, limit_by: x}}", "`limit_by: x`"),
        ("{name: what}", "there is no such plugin here"),
    ] {
        let made = plugin(text);
        assert!(
            said(&made, why),
            "{text}: {:?}",
            made.report.losses().map(ToString::to_string).collect::<Vec<_>>()
        );
        assert_eq!(said(&made, "no such plugin"), text.contains("what"), "{text}");
    }
}

#[test]
fn consumer_groups_have_limits() {
    let text = "_format_version: '3.0'
services: [{name: a, url: 'http://10.0.0.1:1', routes: [{name: r, paths: [/]}]}]
plugins: [{name: key-auth}]
consumer_groups:
- name: gold
  plugins: [{name: rate-limiting-advanced, config: {limit: [100, 1000], window_size: [60, 3600]}}]
- name: silver
  consumers: [{username: bob}]
  plugins: [{name: rate-limiting, config: {minute: 5}}]
consumers:
- {username: ada, groups: [{name: gold}], acls: [{group: staff}], keyauth_credentials: [{key: 0123456789abcdef}]}
- {username: bob, keyauth_credentials: [{key: fedcba9876543210}]}
";
    let made = whole(text);
    let groups = |n: usize| made.consumers[n]["acl_groups"].clone();
    assert_eq!(groups(0), serde_json::json!(["staff", "consumer-group-gold"]));
    assert_eq!(groups(1), serde_json::json!(["consumer-group-silver"]));
    let limits: Vec<_> =
        made.plugin_configs.iter().filter(|it| it["plugin_name"] == "rate_limiting").collect();
    assert_eq!(limits[0]["config"]["limits"][1], serde_json::json!({ "rate": 1000, "per": "3600s" }));
    assert_eq!(limits[1]["when"]["groups"], serde_json::json!(["consumer-group-silver"]));
    assert_eq!(made.report.count(Conversion::Closed), 0, "{:?}", made.report.findings());
}

/// What a consumer or a group has of its own takes the place of what routes and all have, for those callers alone.
#[test]
fn plugins_of_callers_run_for_them_alone() {
    let text = "_format_version: '3.0'
services:
- name: a
  url: 'http://10.0.0.1:1'
  routes:
  - {name: r, paths: [/r], plugins: [{name: key-auth}, {name: rate-limiting, config: {minute: 5}}]}
  - {name: open, paths: [/open]}
plugins:
- {name: request-transformer, config: {add: {headers: ['x-all:1']}}}
- {name: request-transformer, consumer_group: gold, config: {add: {headers: ['x-gold:1']}}}
- {name: rate-limiting, consumer: ann, config: {minute: 50}}
consumer_groups:
- name: gold
  plugins: [{name: ip-restriction, config: {allow: [10.0.0.0/8]}}, {name: request-termination, config: {status_code: 410}}]
consumers:
- {username: ann, groups: [{name: gold}], keyauth_credentials: [{key: 0123456789abcdef}]}
- {username: bob, keyauth_credentials: [{key: fedcba9876543210}], plugins: [{name: mocking}]}
";
    let made = whole(text);
    let document = made.document();
    let usernames: Vec<_> = made.consumers.iter().map(|it| it["username"].clone()).collect();
    assert_eq!(usernames, ["ann"], "bob has a guard that has no counterpart");
    let of = |route: &str| -> Vec<Value> {
        let proxy = made.proxies.iter().find(|it| it["id"] == route).expect("a proxy");
        let ids = proxy["plugins"].as_array().cloned().unwrap_or_default();
        let ids = ids.iter().map(|it| it["plugin_config_id"].clone());
        ids.map(|id| made.plugin_configs.iter().find(|it| it["id"] == id).expect("a config").clone())
            .collect()
    };
    let when = |route: &str, plugin: &str| -> Vec<Value> {
        of(route).iter().filter(|it| it["plugin_name"] == plugin).map(|it| it["when"].clone()).collect()
    };
    let gold = serde_json::json!({ "groups": ["consumer-group-gold"] });
    let ann = serde_json::json!({ "consumers": ["ann"] });
    let not = |one: &Value| serde_json::json!({ "not": one });
    assert_eq!(when("r", "rate_limiting"), [not(&ann), ann.clone()], "{document:#}");
    let transformers = when("r", "request_transformer");
    assert!(transformers.contains(&not(&gold)) && transformers.contains(&gold), "{transformers:?}");
    let null = Value::Null;
    assert_eq!(when("open", "request_transformer"), [null], "the route has no authentication");
    assert!(when("open", "rate_limiting").is_empty());
    for plugin in ["ip_restriction", "request_termination"] {
        let config = of("r").into_iter().find(|it| it["plugin_name"] == plugin).expect("a config");
        assert_eq!((&config["when"], &config["after"]), (&gold, &serde_json::json!("key_auth")), "{plugin}");
    }
}

/// What holds for a route leaves out all consumers that have a plugin of their own in one condition, however many they are.
#[test]
fn plugins_of_many_consumers_leave_conditions_flat() {
    let names: Vec<String> = (0..40).map(|n| format!("c{n:02}")).collect();
    let consumer = |name: &String| {
        format!("- {{username: {name}, plugins: [{{name: rate-limiting, config: {{minute: 5}}}}]}}\n")
    };
    let consumers: String = names.iter().map(consumer).collect();
    let text = format!(
        "_format_version: '3.0'\nservices: [{{name: s, url: 'http://10.0.0.1:1', routes: [{{name: r, paths: [/]}}]}}]\n\
         plugins: [{{name: key-auth}}, {{name: rate-limiting, config: {{minute: 9}}}}]\nconsumers:\n{consumers}"
    );
    let made = whole(&text);
    let limits: Vec<&Value> =
        made.plugin_configs.iter().filter(|it| it["plugin_name"] == "rate_limiting").collect();
    assert_eq!(limits.len(), 41);
    assert_eq!(limits[0]["when"], json!({ "not": { "consumers": names } }));
    assert_eq!(limits[40]["when"], json!({ "consumers": ["c39"] }));
}

/// Each consumer's plugin is named by each route: what would be too many references is refused.
#[test]
fn plugins_of_many_consumers_on_many_routes_are_refused() {
    let routes: String = (0..1500).map(|n| format!("{{name: r{n}, paths: [/{n}]}},")).collect();
    let plugin = "plugins: [{name: rate-limiting, config: {minute: 5}}]";
    let consumers: String = (0..1000).map(|n| format!("- {{username: c{n}, {plugin}}}\n")).collect();
    let text = format!(
        "_format_version: '3.0'\nservices: [{{name: s, url: 'http://10.0.0.1:1', routes: [{routes}]}}]\n\
         plugins: [{{name: key-auth}}]\nconsumers:\n{consumers}"
    );
    let sources = [("kong.yml".to_owned(), text)];
    let error = crate::import(Format::Kong, &sources, &NoFiles, Options::default()).err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("run for more than 1000000 routes in all"), "{error}");
}

/// Each credential finds its owner, also where many stand apart.
#[test]
fn credentials_that_stand_apart_are_their_owners() {
    let text = "_format_version: '3.0'
services: [{name: s, url: 'http://10.0.0.1:1', routes: [{name: r, paths: [/]}]}]
plugins: [{name: key-auth}]
consumers: [{username: ann}, {username: bob, custom_id: b2}, {username: b2}]
keyauth_credentials:
- {consumer: b2, key: 0123456789abcdef}
- {consumer: {username: ann}, key: fedcba9876543210}
- {consumer: nobody, key: 0000000000000000}
";
    let made = whole(text);
    let keys: Vec<Value> =
        made.consumers.iter().map(|it| it["credentials"]["key_auth"][0]["key"].clone()).collect();
    assert_eq!(keys, [json!("fedcba9876543210"), json!("0123456789abcdef"), Value::Null]);
    assert!(made.report.losses().any(|it| it.what.contains("keyauth_credentials")));
}
