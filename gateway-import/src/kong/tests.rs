//! Routes that ask for what is not translated.

use serde_json::{Value, json};

use crate::{Conversion, Format, Import, NoFiles, Options};

/// What becomes of a service's routes, with `--open` as well.
fn routes(url: &str, routes: &str) -> [Import; 2] {
    let text =
        format!("_format_version: \"3.0\"\nservices: [{{name: s, url: \"{url}\", routes: [{routes}]}}]\n");
    let sources = [("kong.yml".to_owned(), text)];
    [false, true]
        .map(|open| crate::import(Format::Kong, &sources, &NoFiles, Options { open }).expect("an import"))
}

/// A condition that can't be kept never makes a route wider.
#[test]
fn narrower_routes_are_left_out() {
    for route in [
        r#"{name: r, expression: 'http.path ^= "/c" && http.method == "GET"'}"#,
        r#"{name: r, hosts: ["b.*"]}"#,
        r#"{name: r, hosts: ["b.*", "c.test:8080"], paths: [/x]}"#,
        r"{name: r, paths: [/x], sources: [{ip: 10.0.0.0/8}]}",
        r"{name: r, paths: ['~/x(?!y)']}",
        r"{name: r, paths: ['~/z/(a)\1$']}",
        r"{name: r, paths: [/x], headers: {x-a: ['~*^(?!a)']}}",
    ] {
        for made in routes("http://10.0.0.1:80", route) {
            assert_eq!(made.proxies, Vec::<Value>::new(), "{route}");
            assert_eq!(made.report.count(Conversion::Closed), 1, "{route}");
        }
    }
    let [made, _] = routes(
        "http://10.0.0.1:80",
        r"{name: r, hosts: ['b.*', a.test], paths: ['~/x(?!y)', /y], sources: null}",
    );
    assert_eq!((made.proxies.len(), &made.proxies[0]["hosts"]), (1, &json!(["a.test"])));
    assert_eq!(made.proxies[0]["listen_path"], "/y");
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
