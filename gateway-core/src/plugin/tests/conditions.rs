//! Plugins that run on conditions.

use super::*;

/// One proxy with these plugins.
fn with_plugins(plugins: &str) -> String {
    format!(
        "proxies: [{{id: a, listen_path: /, backend_scheme: http, backend_host: t, backend_port: 80}}]\n\
         plugin_configs: [{plugins}]\n"
    )
}

#[test]
fn a_plugin_runs_when_its_condition_holds() {
    run(async {
        let spec = with_plugins(
            "{id: p, plugin_name: first, proxy_id: a, config: {name: x, request: keep, response: mark}, when: {methods: [POST]}}",
        );
        let trial = Trial::of_spec(PROBES, &spec, &World::default());
        assert_eq!(all(&trial.get("/", &[]).await, "x-seen"), Vec::<&str>::new());
        assert_eq!(all(&trial.request("POST", "/", &[], "").await, "x-seen"), ["x"]);
    });
}

#[test]
fn authentication_with_a_condition_guards_what_it_holds_for() {
    run(async {
        let spec = with_plugins(
            "{id: p, plugin_name: first, proxy_id: a, config: {authenticate: refuse, name: n}, when: {methods: [POST]}}",
        );
        let trial = Trial::of_spec(PROBES, &spec, &World::default());
        assert_eq!(trial.get("/", &[]).await.status, 200);
        assert_eq!(trial.request("POST", "/", &[], "").await.status, 401);
    });
}

#[test]
fn a_condition_about_the_caller_needs_one() {
    run(async {
        let by_caller =
            "{id: p, plugin_name: second, proxy_id: a, config: {request: reply}, when: {consumers: [bob]}}";
        let early =
            "{id: q, plugin_name: first, proxy_id: a, config: {request: reply}, when: {consumers: [bob]}}";
        let who = |name: &str| {
            format!("{{id: w, plugin_name: first, proxy_id: a, config: {{authenticate: {name}}}}}")
        };
        for (plugins, status) in [
            (by_caller.to_owned(), 503),
            (format!("{by_caller}, {}", who("bob")), 418),
            (format!("{by_caller}, {}", who("alice")), 200),
            (format!("{early}, {}", who("bob")), 503),
        ] {
            let trial = Trial::of_spec(PROBES, &with_plugins(&plugins), &World::default());
            assert_eq!(trial.get("/", &[]).await.status, status, "{plugins}");
        }
    });
}
