//! Manifests that nobody would apply.

use crate::draft::answers_itself;
use crate::{Failure, Format, Import, NoFiles, Options};

fn import(text: &str) -> Result<Import, Failure> {
    crate::import(
        Format::Ingress,
        &[("ingress.yaml".to_owned(), text.to_owned())],
        &NoFiles,
        Options::default(),
    )
}

#[test]
fn manifests_without_an_ingress_are_refused() {
    for bad in [
        "",
        "kind: Service",
        "apiVersion: extensions/v1beta1\nkind: Ingress",
        "[",
        "a: &a [*a]",
        &"---\na: 1\n".repeat(30_000),
    ] {
        assert!(import(bad).is_err(), "{}", bad.chars().take(80).collect::<String>());
    }
}

#[test]
fn odd_values_open_nothing() {
    let text = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: 7, annotations: [x]}\nspec: {rules: [1, {host: '*.*.a'}, {http: {paths: [x, {path: 3}, {path: /a, backend: {service: {name: s, port: {number: 999999}}}}]}}]}\n";
    let made = import(text).expect("an import");
    assert!(made.proxies.iter().all(answers_itself));
}

#[test]
fn lists_of_objects_and_two_of_one_path() {
    let one = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: NAME}, spec: {rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: NAME, port: {number: 80}}}}]}}]}}";
    let text = format!("kind: List\nitems: [{}, {}]\n", one.replace("NAME", "x"), one.replace("NAME", "y"));
    let made = import(&text).expect("an import");
    assert_eq!(made.proxies.len(), 1, "the first has it");
    assert_eq!(made.proxies[0]["backend_host"], "x.default.svc.cluster.local");
    assert!(made.report.has_loss());
}

/// An Ingress for `c.test` with these annotations, and its backend.
fn manifest(name: &str, annotations: &str) -> String {
    let paths = format!(
        "[{{path: /, pathType: Prefix, backend: {{service: {{name: {name}, port: {{number: 80}}}}}}}}]"
    );
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         spec: {{rules: [{{host: c.test, http: {{paths: {paths}}}}}]}}\n"
    )
}

fn said(name: &str, value: &str) -> String {
    format!("nginx.ingress.kubernetes.io/{name}: \"{value}\"")
}

/// The plugins of a proxy that leads to a backend, or to none where the name is empty, by name.
fn plugins<'m>(made: &'m Import, backend: &str) -> Vec<(&'m str, &'m serde_json::Value)> {
    let leads = |it: &serde_json::Value| match it["backend_host"].as_str() {
        Some(host) => !backend.is_empty() && host.starts_with(backend),
        None => backend.is_empty() && answers_itself(it),
    };
    let proxy = made.proxies.iter().find(|it| leads(it));
    let proxy = proxy.unwrap_or_else(|| panic!("no proxy to {backend}: {:#}", made.document()));
    let of = made.plugin_configs.iter().filter(|it| it["proxy_id"] == proxy["id"]);
    of.map(|it| (it["plugin_name"].as_str().unwrap_or_default(), it)).collect()
}

#[test]
fn a_canary_has_the_guards_of_its_main_ingress() {
    let canary =
        [said("canary", "true"), said("canary-by-header", "X-Can"), said("enable-cors", "true")].join(", ");
    let guards =
        [said("whitelist-source-range", "10.0.0.0/8"), said("auth-url", "http://auth.test/x")].join(", ");
    // Whichever comes first in the files.
    for text in [
        manifest("canary", &canary) + &manifest("main", &guards),
        manifest("main", &guards) + &manifest("canary", &canary),
    ] {
        let made = import(&text).expect("an import");
        let names = |backend| plugins(&made, backend).iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names("canary."), ["ip_restriction", "forward_auth"]);
        assert_eq!(names("canary."), names("main."));
    }
    // Without its main Ingress, or where that is closed, the guards of a canary are not known.
    let lone = import(&manifest("canary", &canary)).expect("an import");
    assert_eq!(plugins(&lone, "")[0].1["config"]["status_code"], 503);
    assert!(lone.report.losses().any(|it| it.outcome == crate::Conversion::Closed));
    let odd = said("auth-type", "digest");
    let closed = import(&(manifest("main", &odd) + &manifest("canary", &canary))).expect("an import");
    assert!(closed.proxies.iter().all(answers_itself), "{:#}", closed.document());
}

#[test]
fn the_controllers_own_guards_hold_for_all() {
    let map = |data: &str| format!("---\nkind: ConfigMap\nmetadata: {{name: any}}\ndata: {{{data}}}\n");
    let data = "global-auth-url: \"http://auth.test/x\", whitelist-source-range: \"10.0.0.0/8\", block-cidrs: 192.0.2.0/24, \
                block-user-agents: \"~*Bad\\\\.bot, curl\", force-ssl-redirect: \"true\", proxy-body-size: 2m";
    let text = manifest("a", "") + &manifest("b", "").replace("c.test", "b.test") + &map(data);
    let own =
        [said("enable-global-auth", "false"), said("whitelist-source-range", "192.0.2.0/24")].join(", ");
    let made = import(&(text + &manifest("own", &own).replace("c.test", "own.test"))).expect("an import");
    for backend in ["a.", "b."] {
        let names: Vec<&str> = plugins(&made, backend).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["redirect", "ip_restriction", "ip_restriction", "forward_auth"]);
    }
    let own = plugins(&made, "own.");
    assert_eq!(
        own.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["redirect", "ip_restriction", "ip_restriction"]
    );
    assert_eq!(own[1].1["config"]["allow"][0], "192.0.2.0/24");
    assert_eq!(own[2].1["config"]["deny"][0], "192.0.2.0/24");
    assert_eq!(made.proxies[0]["max_request_body"], 2 << 20);
    let global: Vec<&serde_json::Value> =
        made.plugin_configs.iter().filter(|config| config["scope"] == "global").collect();
    assert_eq!(global.len(), 1, "{:#}", made.document());
    let agents = &global[0]["when"]["any"];
    assert_eq!(
        agents[0]["headers"]["user-agent"],
        serde_json::json!({ "contains": "Bad.bot", "ignore_case": true })
    );
    assert_eq!(agents[1]["headers"]["user-agent"]["exact"], "curl");
    for data in [
        "global-auth-url: \"http://$host/x\"",
        "enable-modsecurity: \"true\"",
        "block-user-agents: \"~(?=x)\"",
        "whitelist-source-range: here",
        "location-snippet: \"deny all;\"",
        "global-auth-new: x, ssl-redirect: \"true\"",
    ] {
        let made = import(&(manifest("a", "") + &map(data))).expect("an import");
        assert!(answers_itself(&made.proxies[0]), "{data}");
        assert_eq!(made.report.count(crate::Conversion::Closed), 1, "{data}");
    }
    // The ConfigMap is not in the files.
    let made = import(&manifest("a", &said("enable-global-auth", "true"))).expect("an import");
    assert!(answers_itself(&made.proxies[0]));
}

/// An Ingress for one path of a host.
fn one_path(name: &str, host: &str, annotations: &str, path: &str, kind: &str) -> String {
    let text = manifest(name, annotations).replace("c.test", host);
    text.replace("path: /, pathType: Prefix", &format!("path: {path}, pathType: {kind}"))
}

#[test]
fn exact_paths_of_a_host_of_regexes_are_regexes() {
    let guard = said("whitelist-source-range", "10.0.0.0/8");
    let admin = one_path("admin", "a.test", &guard, "/admin", "Exact");
    // The host is written in another case.
    let regex = one_path("all", "A.test", &said("use-regex", "true"), "/", "Prefix");
    let under = one_path("under", "a.test", "", "/admin", "Prefix");
    let longer = one_path("longer", "a.test", "", "/admin/x", "Prefix");
    let made = import(&(admin.clone() + &regex + &longer)).expect("an import");
    let path = |made: &Import, name: &str| {
        let backend = format!("{name}.default.svc.cluster.local");
        let found = made.proxies.iter().find(|it| it["backend_host"] == *backend);
        let found = found.unwrap_or_else(|| panic!("no {name}: {:#}", made.document()));
        let priority = found["priority"].as_i64().unwrap_or_default();
        (found["matches"][0]["path"]["regex"].as_str().unwrap_or_default().to_owned(), priority)
    };
    assert_eq!(path(&made, "admin").0, "(?i)(?:/admin).*", "{:#}", made.document());
    assert!(
        path(&made, "longer").1 > path(&made, "admin").1 && path(&made, "admin").1 > path(&made, "all").1
    );
    // A prefix beside it is for what is below: the first of both goes first, as in nginx.
    let made = import(&(admin.clone() + &regex + &under)).expect("an import");
    assert_eq!(path(&made, "under").0, "(?i)(?:/admin/).*");
    assert!(path(&made, "admin").1 > path(&made, "under").1);
    let made = import(&(under + &regex + &admin)).expect("an import");
    assert!(path(&made, "admin").1 == path(&made, "under").1, "the longer regex goes first");
    // Without regexes it stays exact.
    let made = import(&admin).expect("an import");
    assert_eq!(made.proxies[0]["matches"][0]["path"]["exact"], "/admin");
}

#[test]
fn a_host_with_other_names_is_not_one_host_to_auth_url() {
    let asks = said("auth-url", "http://auth.test/$host");
    let alias = said("server-alias", "x.test, d.test");
    let url = |text: &str| {
        let made = import(text).expect("an import");
        let asked = plugins(&made, if answers_itself(&made.proxies[0]) { "" } else { "main." });
        asked[0].1["config"]["url"].as_str().map(str::to_owned)
    };
    let asked = Some("http://auth.test/c.test".to_owned());
    assert_eq!(url(&manifest("main", &asks)), asked);
    assert_eq!(url(&manifest("main", &[asks.clone(), alias.clone()].join(", "))), None, "closed");
    // Another Ingress of the host says so.
    assert_eq!(url(&(manifest("main", &asks) + &one_path("other", "c.test", &alias, "/o", "Prefix"))), None);
    // An alias that is a host of its own is none.
    let own = said("server-alias", "d.test");
    let two = manifest("main", &[asks, own].join(", ")) + &one_path("other", "d.test", "", "/o", "Prefix");
    assert_eq!(url(&two), asked);
}
