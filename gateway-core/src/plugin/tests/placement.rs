//! Where plugins stand in the chain, and what is refused before it is made.

use super::*;

#[test]
fn before_and_after_move_a_plugin_and_cycles_close_the_proxy() {
    run(async {
        let spec = |orders: [&str; 2]| {
            format!(
                "proxies: [{{id: a, listen_path: /, backend_scheme: http, backend_host: t, backend_port: 80}}]\n\
                 plugin_configs:\n\
                 - {{id: p, plugin_name: first, proxy_id: a, config: {{name: one, response: mark}}{}}}\n\
                 - {{id: q, plugin_name: second, proxy_id: a, config: {{name: two, response: mark}}{}}}\n",
                orders[0], orders[1]
            )
        };
        for (orders, expected) in [
            (["", ""], &["two", "one"][..]),
            (["", ", before: first"], &["one", "two"]),
            ([", after: second", ""], &["one", "two"]),
            ([", after: second", ", before: first"], &[]),
        ] {
            let trial = Trial::of_spec(PROBES, &spec(orders), &World::default());
            let got = trial.get("/", &[]).await;
            assert_eq!(all(&got, "x-seen"), expected, "{orders:?}");
            assert_eq!(got.status, if expected.is_empty() { 503 } else { 200 });
        }
    });
}

#[test]
fn a_plugin_that_can_do_nothing_is_refused() {
    let spec = |scope: &str| {
        format!(
            "proxies: [{{id: a, listen_port: 9999, backend_scheme: tcp, backend_host: t, backend_port: 80}}]\n\
             plugin_configs: [{{id: p, plugin_name: first, {scope}, config: {{request: reply}}}}]\n"
        )
    };
    let Err(problems) = Trial::try_of_spec(PROBES, &spec("proxy_id: a"), &World::default()) else {
        panic!("accepted")
    };
    assert!(problems.to_string().contains("does nothing for TCP and TLS traffic"), "{problems}");
    // A global one is put on no proxy in particular: the proxy that it can't guard is closed.
    let trial = Trial::of_spec(PROBES, &spec("scope: global"), &World::default());
    assert_eq!(trial.closed(), ["a"]);
}

#[test]
fn settings_are_checked_all_at_once_with_suggestions() {
    let problems = Trial::refused(PROBES, "first", &json!({ "nam": "x", "request": 1 }));
    let text = problems.to_string();
    assert!(text.contains("config.nam") && text.contains("did you mean `name`?"), "{text}");
    assert!(text.contains("config.request") && text.contains("put it in quotes"), "{text}");
}
