//! Stream proxies and their owners.

use super::*;

#[test]
fn stream_proxies_and_their_ports() {
    let model = good(&proxy_with("backend_scheme: tcp\nlisten_port_range: 5000-5010"));
    let Traffic::Stream(rules) = &model.proxies[0].traffic else {
        panic!("a stream proxy");
    };
    assert_eq!(rules.listen_ports, (5000, 5010));
    assert_eq!(rules.idle_timeout, Some(Duration::from_secs(300)));
    refused(
        &proxy_with("listen_path: /\nlisten_port: 5000"),
        "f:6: proxies[0].listen_port: only a stream proxy has this (an HTTP proxy takes the gateway's ports: remove \
         it, or write `backend_scheme: tcp`)",
    );
    refused(
        &proxy_with("backend_scheme: tcp\nlisten_port: 9000"),
        "f:6: proxies[0].listen_port: the gateway's own admin listener has this port (another port)",
    );
    good(&proxy_with("backend_scheme: udp\nlisten_port: 9000"));
    let two = |a: &str, b: &str| {
        format!(
            "proxies:\n  - {{id: a, backend_scheme: tcp, backend_host: h, backend_port: 1, {a}}}\n  \
             - {{id: b, backend_scheme: tcp, backend_host: h, backend_port: 1, {b}}}\n"
        )
    };
    refused(
        &two("listen_port_range: 5000-5010", "listen_port: 5005"),
        "f:3: proxies[1].listen_port: proxies[0] listens there already (another port, or `passthrough: true` and \
         different `hosts` or `alpn` on both)",
    );
    good(&two(
        "listen_port: 5000, passthrough: true, hosts: [a.b]",
        "listen_port: 5000, passthrough: true, hosts: [c.b]",
    ));
    let shared = |a: &str, b: &str| {
        let on_port = |rest: &str| format!("listen_port: 5000, passthrough: true, {rest}");
        two(&on_port(a), &on_port(b))
    };
    // The more specific name goes first, as among HTTP proxies.
    good(&shared("hosts: ['*.b']", "hosts: [a.b, '*.c.b']"));
    good(&shared("hosts: [a.b], alpn: [h2]", "hosts: [a.b], alpn: [h3]"));
    good(&shared("hosts: [a.b]", "alpn: [h2]"));
    let conflict = "f:3: proxies[1].listen_port: proxies[0] listens there already (another port, or \
                    `passthrough: true` and different `hosts` or `alpn` on both)";
    refused(&shared("hosts: [a.b, '*.c']", "hosts: ['*.c']"), conflict);
    refused(&shared("hosts: [a.b], alpn: [h2, h3]", "hosts: [c, a.b], alpn: [h3]"), conflict);
    refused(&shared("alpn: [h2]", "alpn: [h2]"), conflict);
    refused(&shared("hosts: [a]", "hosts: [b], frontend_starttls: smtp"), conflict);
    refused(&two("listen_port: 5000, passthrough: true", "listen_port: 5000"), conflict);
}

#[test]
fn owners_are_consumers() {
    let with = |owner: &str| {
        format!(
            "proxies:\n  - {{id: p, owner: {owner}, listen_path: /p, backend_host: h, backend_port: 1}}\n\
             consumers:\n  - {{id: k1, username: anna, custom_id: c1}}\n"
        )
    };
    ["k1", "anna", "c1"].iter().for_each(|owner| drop(good(&with(owner))));
    refused(&with("ana"), "f:2: proxies[0].owner: there is no consumer `ana` (did you mean `anna`?)");
    let config = "plugin_configs: [{id: c, plugin_name: cors, scope: owner, owner: bob}]";
    refused(
        &format!("{}{config}", with("anna")),
        "f:5: plugin_configs[0].owner: there is no consumer `bob` (add it to `consumers`)",
    );
    refused(
        &with("somebody"),
        "f:2: proxies[0].owner: there is no consumer `somebody` (add it to `consumers`)",
    );
}

#[test]
fn plugins_of_an_owner_run_beside_the_others_and_before_them() {
    let text = "
proxies:
  - {id: p, owner: ann, listen_path: /p, backend_host: h, backend_port: 1}
  - {id: q, owner: bob, listen_path: /q, backend_host: h, backend_port: 1}
consumers: [{id: ann, username: Ann}, {id: k, username: bob}]
plugin_configs:
  - {id: all, plugin_name: rate_limiting, scope: global, config: {limit: 5}}
  - {id: own, plugin_name: rate_limiting, proxy_id: p}
  - {id: envelope, plugin_name: rate_limiting, scope: owner, owner: ann}
  - {id: off, plugin_name: cors, scope: owner, owner: ann, enabled: false}
  - {id: other, plugin_name: rate_limiting, scope: owner, owner: bob}
";
    let model = good(text);
    let names = |n: usize| model.proxies[n].plugins.iter().map(|c| c.id.as_str()).collect::<Vec<_>>();
    assert_eq!(names(0), ["envelope", "own"]);
    assert_eq!(names(1), ["other", "all"]);
    refused(
        "
proxies:
  - {id: p, owner: 'a b', listen_path: /p, backend_host: h, backend_port: 1, plugins: [{plugin_config_id: a}]}
plugin_configs:
  - {id: a, plugin_name: cors, scope: owner, owner: ann}
  - {id: b, plugin_name: cors, scope: owner}
  - {id: c, plugin_name: cors, scope: global, owner: ann}
consumers: [{id: ann, username: ann}]
",
        "f:3: proxies[0].owner: `a b` can't be an id (1 to 254 letters, digits, `.`, `_` and `-`, beginning with a letter \
         or digit)\n\
         f:3: proxies[0].plugins[0].plugin_config_id: `a` runs for all proxies of the owner `ann` (write `owner` instead, \
         or give it scope `proxy_group`)\n\
         f:6: plugin_configs[1]: `owner` is missing (name the owner for whose proxies it runs)\n\
         f:7: plugin_configs[2].owner: only scope `owner` has an `owner` (remove it, or write `scope: owner`)",
    );
}
