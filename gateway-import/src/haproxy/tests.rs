//! Texts that no server would take.

use crate::{Conversion, Failure, Format, Import, NoFiles, Options};

fn import(text: &str) -> Result<Import, Failure> {
    crate::import(
        Format::Haproxy,
        &[("haproxy.cfg".to_owned(), text.to_owned())],
        &NoFiles,
        Options::default(),
    )
}

const WEB: &str = "backend web\n server a 10.0.0.1:1\n";

#[test]
fn what_is_no_configuration_is_refused() {
    for bad in [
        "",
        "server a 10.0.0.1:1",
        "global\n maxconn 1",
        "frontend a\n bind \":80",
        "frontend a\n.if 1\n.endif",
        "x {",
    ] {
        assert!(import(bad).is_err(), "{bad}");
    }
}

#[test]
fn conditions_that_multiply_are_closed() {
    let acls: String = (0..20)
        .flat_map(|n| [format!(" acl a{n} path /x{n}\n"), format!(" acl a{n} path /y{n}\n")])
        .collect();
    let names: String = (0..20).map(|n| format!("a{n} ")).collect();
    let made = import(&format!(
        "frontend f\n mode http\n bind :80\n{acls} http-request deny if {names}\n default_backend web\n{WEB}"
    ))
    .expect("an import");
    assert_eq!(made.proxies[0]["backend_port"], 9);
    assert_eq!(made.report.count(Conversion::Closed), 1);
}

#[test]
fn what_is_not_known_closes_what_follows() {
    for rule in [
        "http-request deny if { src -f /gone }",
        "http-request lua.check",
        "http-request auth",
        "http-request allow if { path /x }",
        "http-request deny unless { http_auth(gone) }",
        "http-request deny if { var(txn.x) -m found }",
        "use_backend other if { path_len 5 }",
        "tcp-request connection reject if { src_conn_rate gt 5 }",
    ] {
        let made =
            import(&format!("frontend f\n mode http\n bind :80\n {rule}\n default_backend web\n{WEB}"))
                .expect("an import");
        assert_eq!(made.report.count(Conversion::Closed), 1, "{rule}");
        assert_eq!(made.proxies[0]["backend_port"], 9, "{rule}");
    }
    let stream = "frontend f\n mode tcp\n bind :5432\n tcp-request connection reject if { src_conn_rate gt 5 }\n default_backend web\n";
    let made = import(&format!("{stream}{WEB}")).expect("an import");
    assert!(made.proxies.is_empty(), "the port is not opened");
}

#[test]
fn streams_by_name_and_address() {
    let text = "frontend tls\n mode tcp\n bind :443\n tcp-request connection reject if !{ src 10.0.0.0/8 }\n use_backend web if { req.ssl_sni -i a.test }\n default_backend web\n";
    let made = import(&format!("{text}{WEB}")).expect("an import");
    assert_eq!(made.proxies.len(), 2);
    assert_eq!(made.proxies[0]["hosts"][0], "a.test");
    assert!(made.plugin_configs.iter().all(|plugin| plugin["config"]["allow"][0] == "10.0.0.0/8"));
}

#[test]
fn what_haproxy_ignores_in_streams_is_named() {
    let text = "frontend f\n bind :5432\n http-request deny if { src 10.0.0.0/8 }\n default_backend b\n\
                backend b\n cookie SRV insert\n server a 10.0.0.1:1 cookie a\n";
    let made = import(text).expect("an import");
    assert_eq!(made.proxies[0]["backend_scheme"], "tcp");
    assert_eq!(made.upstreams.first().and_then(|upstream| upstream.get("sticky")), None);
    let lost: Vec<String> = made.report.losses().map(ToString::to_string).collect();
    assert!(lost.len() == 1 && lost[0].contains("http-request deny"), "{lost:?}");
}

#[test]
fn one_file_of_authorities_and_one_of_lists_hold_for_all_clients() {
    let front = |name: &str, port: u16, asks: &str| {
        format!("frontend {name}\n mode http\n bind :{port} ssl crt /c.pem {asks}\n default_backend web\n")
    };
    let made = |fronts: &[String]| import(&(fronts.concat() + WEB)).expect("an import");
    let both = "verify required ca-file /ca.pem crl-file /crl.pem";
    let same = made(&[front("a", 1, both), front("b", 2, both)]);
    assert_eq!(same.gateway["tls"]["client_ca_path"], "/ca.pem", "{:?}", same.gateway);
    assert_eq!(same.gateway["tls"]["client_crl_path"], "/crl.pem");
    assert_eq!(same.gateway["tls"]["client_cert_required"], true);
    assert_eq!(same.report.count(Conversion::Closed), 0);
    // Only one of them insists: its clients without a certificate get 403.
    let one = made(&[front("a", 1, both), front("b", 2, "")]);
    assert_eq!(one.gateway["tls"]["client_cert_required"], false);
    let guarded = one.proxies.iter().filter(|proxy| proxy.to_string().contains("client_certificate")).count();
    assert_eq!(guarded, 1, "{:?}", one.proxies);
    // What differs opens neither.
    for other in ["verify required ca-file /other.pem crl-file /crl.pem", "verify optional ca-file /ca.pem"] {
        let made = made(&[front("a", 1, both), front("b", 2, other)]);
        assert_eq!(made.gateway["tls"].get("client_ca_path"), None, "{other}");
        assert_eq!(made.report.count(Conversion::Closed), 2, "{other}");
    }
}
