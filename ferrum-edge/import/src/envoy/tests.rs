//! Bootstraps that no Envoy would take.

use crate::draft::answers_itself;
use crate::{Failure, Format, Import, NoFiles, Options};

fn import(text: &str) -> Result<Import, Failure> {
    crate::import(Format::Envoy, &[("envoy.yaml".to_owned(), text.to_owned())], &NoFiles, Options::default())
}

#[test]
fn what_is_no_bootstrap_is_refused() {
    for bad in [
        "",
        "a: 1",
        "static_resources: {}",
        "static_resources: {listeners: [}",
        &format!("static_resources: {}", "{a: ".repeat(500)),
    ] {
        assert!(import(bad).is_err(), "{bad}");
    }
}

#[test]
fn odd_values_open_nothing() {
    let made = import(
        "static_resources:\n  listeners: [{name: l, address: {socket_address: {port_value: 99999999999}}, filter_chains: [1, {filters: [x, {name: 7}]}]}, {address: 3}]\n  clusters: [{name: c}, 5, {name: [x]}]\n",
    )
    .expect("an import");
    assert!(made.proxies.is_empty() && made.report.has_loss());
}

#[test]
fn a_filter_before_a_stream_keeps_its_port_closed() {
    let text = "static_resources:\n  listeners: [{name: l, address: {socket_address: {address: 0.0.0.0, port_value: 5432}}, filter_chains: [{filters: [{name: envoy.filters.network.rbac}, {name: envoy.filters.network.tcp_proxy, typed_config: {'@type': x.TcpProxy, cluster: c}}]}]}]\n  clusters: [{name: c, load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 1}}}}]}]}}]\n";
    assert!(import(text).expect("an import").proxies.is_empty());
}

#[test]
fn headers_of_all_levels() {
    let config =
        "request_headers_to_remove: [x-role], response_headers_to_add: [{header: {key: x-all, value: '1'}}]";
    let host = "request_headers_to_add: [{header: {key: x-role, value: host}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]";
    let route = "request_headers_to_remove: [x-other], request_headers_to_add: [{header: {key: x-user, value: '%REQ(x)%'}, append: false}]";
    let text = format!(
        "static_resources:\n  listeners: [{{name: l, address: {{socket_address: {{address: 0.0.0.0, port_value: 80}}}}, filter_chains: [{{filters: \
         [{{name: envoy.filters.network.http_connection_manager, typed_config: {{'@type': x.HttpConnectionManager, route_config: {{{config}, \
         virtual_hosts: [{{name: h, domains: ['*'], {host}, routes: [{{match: {{prefix: /}}, route: {{cluster: c}}, {route}}}]}}]}}}}}}]}}]}}]\n  \
         clusters: [{{name: c, load_assignment: {{endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 10.0.0.1, port_value: 1}}}}}}}}]}}]}}}}]\n"
    );
    let made = import(&text).expect("an import");
    let rules: Vec<String> = made
        .plugin_configs
        .iter()
        .filter(|config| config["plugin_name"] == "request_transformer")
        .flat_map(|config| config["config"]["rules"].as_array().cloned().unwrap_or_default())
        .map(|rule| format!("{} {}", rule["operation"], rule["key"]).replace('"', ""))
        .collect();
    assert_eq!(
        rules,
        ["remove x-other", "remove x-user", "remove x-role", "set x-role", "remove x-role"],
        "{:#}",
        made.document()
    );
    assert!(made.plugin_configs.iter().any(|config| config["plugin_name"] == "response_transformer"));
    assert_eq!(made.report.losses().count(), 1, "the value of x-user");
}

#[test]
fn domains_that_no_name_means_are_closed() {
    let text = "static_resources:\n  listeners: [{name: l, address: {socket_address: {address: 0.0.0.0, port_value: 80}}, filter_chains: [{filters: [{name: h, typed_config: {'@type': x.HttpConnectionManager, http_filters: [{name: r, typed_config: {'@type': x.Router}}], route_config: {virtual_hosts: [{name: closed, domains: ['shop.*'], routes: [{match: {prefix: /}, direct_response: {status: 403}}]}, {name: all, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: c}}]}]}}}]}]}]\n  clusters: [{name: c, load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 1}}}}]}]}}]\n";
    let made = import(text).expect("an import");
    let closed = made.proxies.iter().find(|it| it["matches"][0].get("authority").is_some());
    let closed = closed.unwrap_or_else(|| panic!("{:#}", made.document()));
    assert_eq!(closed["matches"][0]["authority"]["regex"], r"(?i)shop\.[^:]+(?::[0-9]+)?");
    assert!(answers_itself(closed));
    assert_eq!(closed["priority"], 2_000_000);
    assert_eq!(made.report.count(crate::Conversion::Closed), 1);
    assert!(made.proxies.iter().any(|it| !answers_itself(it)), "the virtual host for all others stays");
}

/// A listener for plain HTTP with these virtual hosts.
fn listener(port: u16, chain: &str, hosts: &str) -> String {
    format!(
        "{{name: l{port}, address: {{socket_address: {{address: 0.0.0.0, port_value: {port}}}}}, filter_chains: [{{{chain} filters: [{{name: h, \
         typed_config: {{'@type': x.HttpConnectionManager, http_filters: [{{name: r, typed_config: {{'@type': x.Router}}}}], route_config: \
         {{virtual_hosts: [{hosts}]}}}}}}]}}]}}"
    )
}

#[test]
fn domains_are_closed_where_they_are_only() {
    let all = "{name: all, domains: ['*'], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}";
    let shop =
        "{name: shop, domains: ['shop.*'], routes: [{match: {prefix: /}, direct_response: {status: 403}}]}";
    let tls = "{name: tls, require_tls: ALL, domains: [a.test], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}";
    let of = |first: &str| {
        let listeners = [first.to_owned(), listener(8080, "", all)].join(", ");
        import(&format!("static_resources:\n  listeners: [{listeners}]\n  clusters: []\n"))
            .expect("an import")
    };
    let made = of(&listener(80, "", &format!("{shop}, {all}, {tls}")));
    let find = |id: &str| {
        let found = made.proxies.iter().find(|it| it["id"].as_str().is_some_and(|it| it.starts_with(id)));
        found.unwrap_or_else(|| panic!("{:#}", made.document()))
    };
    assert_eq!(find("closed-shop")["matches"][0]["ports"], serde_json::json!([80]));
    assert_eq!(find("tls-to-https")["matches"][0]["ports"], serde_json::json!([80]));
    // Of names and all others both are sent on.
    let made = of(&listener(80, "", &tls.replace("a.test", "a.test, '*'")));
    let sent = made.proxies.iter().filter(|it| it["matches"][0]["scheme"] == "http");
    assert_eq!(sent.filter(|it| it["priority"] == 1_000_000).count(), 2, "{:#}", made.document());
    // The same virtual host takes them anyway.
    let made = of(&listener(80, "", &all.replace("['*']", "['shop.*', '*']")));
    assert!(
        made.proxies.iter().all(|it| it["matches"][0].get("authority").is_none()),
        "{:#}",
        made.document()
    );
    assert_eq!(made.report.count(crate::Conversion::Closed), 0);
    // A filter chain for names of TLS closes them for those.
    let chain = "filter_chain_match: {server_names: [shop.test]},";
    let made = of(&listener(443, chain, shop));
    let closed = made.proxies.iter().find(|it| it["matches"][0].get("authority").is_some());
    let closed = closed.unwrap_or_else(|| panic!("{:#}", made.document()));
    assert_eq!(closed["matches"][0]["tls"], serde_json::json!({ "server_names": ["shop.test"] }));
}

/// The proxies whose ids begin so.
fn found<'m>(made: &'m Import, id: &str) -> Vec<&'m serde_json::Value> {
    let is_it = |it: &&serde_json::Value| it["id"].as_str().is_some_and(|it| it.starts_with(id));
    made.proxies.iter().filter(is_it).collect()
}

fn of_hosts(hosts: &str) -> Import {
    let text = format!("static_resources:\n  listeners: [{}]\n  clusters: []\n", listener(8080, "", hosts));
    import(&text).expect("an import")
}

/// A virtual host that answers by itself.
fn answering(name: &str, domains: &str) -> String {
    format!(
        "{{name: {name}, domains: [{domains}], routes: [{{match: {{prefix: /}}, direct_response: {{status: 200}}}}]}}"
    )
}

#[test]
fn patterns_are_closed_on_the_names_that_would_take_them() {
    let int = answering("int", "'*-int.foo.com'");
    let made = of_hosts(&format!(
        "{int}, {}, {}",
        answering("below", "'*.foo.com', foo.com, a-int.foo.com, '*.x-int.foo.com'"),
        answering("com", "'*.com', 'shop.*'")
    ));
    let closed = found(&made, "closed-int");
    assert_eq!(closed.len(), 2, "{:#}", made.document());
    // Names and longer patterns go first in Envoy, too.
    assert_eq!(closed[0]["hosts"], serde_json::json!(["*.foo.com", "*.com"]));
    assert!(closed[1].get("hosts").is_none());
    assert!(closed.iter().all(|it| answers_itself(it) && it["priority"].as_i64() >= Some(2_000_000)));
    assert_ne!(found(&made, "closed-shop")[0]["priority"], closed[1]["priority"]);
    // The virtual host takes all others, but not those of another one's name.
    let any = answering("int", "'*-int.foo.com', '*'");
    let made = of_hosts(&format!("{any}, {}", answering("below", "'*.foo.com'")));
    let closed = found(&made, "closed-int");
    assert_eq!(closed.len(), 1, "{:#}", made.document());
    assert_eq!(closed[0]["hosts"], serde_json::json!(["*.foo.com"]));
    // Its own name takes them.
    let made = of_hosts(&answering("int", "'*-int.foo.com', '*.foo.com'"));
    assert!(found(&made, "closed-int").is_empty(), "{:#}", made.document());
}

#[test]
fn a_port_of_all_hosts_goes_before_all_hosts() {
    let made = of_hosts(&format!(
        "{}, {}, {}",
        answering("int", "'*:8080'"),
        answering("pub", "'*', a.test"),
        answering("own", "'b.test:80', 'b.test:8080'")
    ));
    let int = found(&made, "int");
    assert_eq!(int.len(), 2, "{:#}", made.document());
    for (proxy, hosts) in int.iter().zip([serde_json::json!(["a.test", "b.test"]), serde_json::Value::Null]) {
        assert_eq!(proxy["hosts"], hosts);
        assert_eq!(proxy["matches"][0]["authority"]["regex"], "(?i).*:8080");
    }
    let priority = |id: &str| found(&made, id)[0]["priority"].as_i64().unwrap_or_default();
    assert!(priority("own") > priority("int") && priority("int") > priority("pub"), "{:#}", made.document());
    // Another virtual host's name without a port is not the one with the usual port.
    let made = of_hosts(&format!(
        "{}, {}",
        answering("one", "'a.test:80', 'b.test:80'"),
        answering("two", "a.test")
    ));
    let regexes: Vec<_> =
        found(&made, "one").iter().map(|it| it["matches"][0]["authority"]["regex"].clone()).collect();
    assert_eq!(regexes, [r"(?i)a\.test:80", r"(?i)b\.test(?::80)?"]);
}

#[test]
fn a_filter_before_the_connection_manager_closes_its_chain() {
    let all = answering("all", "'*'");
    let text = |guard: &str| {
        let listener =
            listener(8080, "", &all).replace("filters: [{name: h", &format!("filters: [{guard}{{name: h"));
        format!("static_resources:\n  listeners: [{listener}]\n  clusters: []\n")
    };
    let rbac =
        "{name: envoy.filters.network.rbac, typed_config: {'@type': x.RBAC, rules: {action: ALLOW}}}, ";
    let answer = |made: &Import| made.plugin_configs[0]["config"]["status_code"].clone();
    let made = import(&text(rbac)).expect("an import");
    assert_eq!(answer(&made), 503, "{:#}", made.document());
    let closed = made.report.losses().filter(|it| it.outcome == crate::Conversion::Closed);
    let said: Vec<String> = closed.map(ToString::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("RBAC") && said[0].contains("what its filter chain serves is closed"),
        "{said:?}"
    );
    assert_eq!(answer(&import(&text("")).expect("an import")), 200);
    let open = Options { open: true };
    let files = [("envoy.yaml".to_owned(), text(rbac))];
    let made = crate::import(Format::Envoy, &files, &NoFiles, open).expect("an import");
    assert_eq!(answer(&made), 200, "{:#}", made.document());
}
