//! Rules and files that nobody would write.

use super::rule;
use crate::{Failure, Format, Import, NoFiles, Options};

fn import(text: &str) -> Result<Import, Failure> {
    crate::import(
        Format::Traefik,
        &[("traefik.yml".to_owned(), text.to_owned())],
        &NoFiles,
        Options::default(),
    )
}

#[test]
fn rules_that_are_none() {
    for good in
        ["Host(`a`)", "Path(`/a`) || Path(`/b`) && !Method(`GET`)", "((Host(`a`)))", "ClientIP(`10.0.0.0/8`)"]
    {
        assert!(rule::parse(good).is_some(), "{good}");
    }
    for bad in [
        "",
        "Host(",
        "Host(`a`",
        "Host(`a`) &&",
        "Host(`a`) Host(`b`)",
        "What(`a`)",
        "Host(`a b`)",
        "PathRegexp(`(?=a)`)",
        "ClientIP(`x`)",
        &"(".repeat(5000),
        &format!("{}Host(`a`)", "!(".repeat(100)),
        &"Host(`a`) || ".repeat(2000),
    ] {
        assert!(rule::parse(bad).is_none(), "{bad}");
    }
}

#[test]
fn files_that_are_none() {
    for bad in ["", "entryPoints: {}", "[", "http: {routers: x", &format!("a: {}", "[".repeat(1000))] {
        assert!(import(bad).is_err(), "{bad}");
    }
    let toml = crate::import(
        Format::Traefik,
        &[("traefik.toml".to_owned(), "[http]".to_owned())],
        &NoFiles,
        Options::default(),
    );
    assert!(toml.is_err());
}

#[test]
fn a_rule_that_is_not_known_is_closed() {
    let text = "http: {routers: {r: {rule: 'What(`x`)', service: s}}, services: {s: {loadBalancer: {servers: [{url: 'http://10.0.0.1:1'}]}}}}";
    let made = import(text).expect("an import");
    assert_eq!(made.proxies[0]["backend_port"], 9);
}
