//! Bootstraps that no Envoy would take.

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
