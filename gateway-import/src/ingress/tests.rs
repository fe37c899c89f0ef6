//! Manifests that nobody would apply.

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
    assert!(made.proxies.iter().all(|proxy| proxy["backend_port"] == 9));
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
