//! Texts that no server would take.

use serde_json::json;

use crate::draft::answers_itself;
use crate::{Conversion, Failure, Format, Import, NoFiles, Options};

fn import(format: Format, text: &str) -> Result<Import, Failure> {
    crate::import(format, &[("Caddyfile".to_owned(), text.to_owned())], &NoFiles, Options::default())
}

#[test]
fn what_is_no_caddyfile_is_refused() {
    for bad in [
        "a.test {",
        "}",
        "a.test {\n respond \"x\n}",
        "",
        "# nothing",
        "a.test {\n respond <<END\n x\n}",
        &"a {\n".repeat(100),
    ] {
        assert!(import(Format::Caddyfile, bad).is_err(), "{bad}");
    }
    for bad in ["{}", "[", "{\"apps\": {}}", &format!("{}1{}", "{\"a\": ".repeat(200), "}".repeat(200))] {
        assert!(import(Format::CaddyJson, bad).is_err(), "{bad}");
    }
}

#[test]
fn snippets_that_import_themselves_end() {
    assert!(import(Format::Caddyfile, "(a) {\n import a\n}\na.test {\n import a\n}\n").is_err());
    let doubled: String =
        (1..40).map(|n| format!("(s{n}) {{\n import s{}\n import s{}\n}}\n", n - 1, n - 1)).collect();
    assert!(
        import(
            Format::Caddyfile,
            &format!("(s0) {{\n header x y\n}}\n{doubled}a.test {{\n import s39\n}}\n")
        )
        .is_err()
    );
}

#[test]
fn what_can_not_be_read_closes_the_site() {
    let made =
        import(Format::Caddyfile, "http://a.test {\n import gone.caddy\n reverse_proxy 10.0.0.1:1\n}\n")
            .expect("an import");
    assert!(answers_itself(&made.proxies[0]));
    assert_eq!(made.report.count(Conversion::Closed), 1);
}

#[test]
fn ways_that_multiply_are_cut_off() {
    let routes: String = (0..14)
        .map(|n| {
            format!(" @m{n} header X-{n} 1\n route @m{n} {{\n  header X y\n  respond /stop{n} 403\n }}\n")
        })
        .collect();
    let made =
        import(Format::Caddyfile, &format!("http://a.test {{\n{routes} reverse_proxy 10.0.0.1:1\n}}\n"))
            .expect("an import");
    assert!(made.proxies.len() < 10_000);
}

#[test]
fn pages_for_errors_close_nothing() {
    let site = |errors: &str| {
        format!(
            "http://a.test {{\n handle_errors {{\n{errors}\n }}\n respond /no 403\n respond /own \"own\" 404\n reverse_proxy 10.0.0.1:1\n}}\n"
        )
    };
    let made = import(Format::Caddyfile, &site("respond \"error {err.status_code}\"")).expect("an import");
    let pages: Vec<_> = made.plugin_configs.iter().filter(|it| it["plugin_name"] == "error_pages").collect();
    assert_eq!(pages.len(), 2, "not for what has a body of its own: {:#}", made.document());
    assert_eq!(pages[0]["config"]["pages"][0]["body"], "error ${response.status}");
    for errors in ["file_server", "respond @a \"x\"", "respond 404", "reverse_proxy /x 10.0.0.1:1"] {
        let made = import(Format::Caddyfile, &site(errors)).expect("an import");
        assert_eq!(made.report.count(Conversion::Closed), 0, "{errors}");
        assert_eq!(made.report.count(Conversion::NotConverted), 1, "{errors}");
        assert!(
            made.proxies.iter().any(|proxy| proxy.get("upstream_id").is_some() || proxy["backend_port"] == 1)
        );
    }
}

#[test]
fn paths_that_depend_on_files_are_not_passed_on() {
    let site = "http://a.test {\n root * /www\n try_files {path} /x\n reverse_proxy 10.0.0.1:1\n}\n";
    let made = import(Format::Caddyfile, site).expect("an import");
    assert_eq!(made.report.count(Conversion::Closed), 1);
    assert!(answers_itself(&made.proxies[0]));
}

#[test]
fn fields_of_the_connection_are_left_out() {
    let site = "http://a.test {\n header -Connection\n request_header -Upgrade\n reverse_proxy 10.0.0.1:1 {\n\
                header_up Connection close\n header_up TE trailers\n header_down -Transfer-Encoding\n }\n}\n";
    let made = import(Format::Caddyfile, site).expect("an import");
    assert_eq!(made.plugin_configs, Vec::<serde_json::Value>::new());
    assert_eq!(made.report.losses().count(), 0, "the gateway writes them itself");
    assert_eq!(made.report.count(Conversion::NotNeeded), 4);
}

#[test]
fn what_caddy_gets_from_a_ca_is_got_from_it() {
    let text = "{\n email ops@shop.example\n}\n\
        shop.example, www.shop.example, http://plain.example {\n reverse_proxy 10.0.0.1:1\n}\n\
        *.apps.example, localhost, 10.0.0.9 {\n reverse_proxy 10.0.0.1:2\n}\n\
        files.example {\n tls a.pem a.key\n reverse_proxy 10.0.0.1:3\n}\n\
        own.example {\n tls internal\n reverse_proxy 10.0.0.1:4\n}\n";
    let made = import(Format::Caddyfile, text).unwrap();
    let settings =
        json!({ "accept_terms": true, "email": "ops@shop.example", "storage": "/var/lib/ferrum-edge/acme" });
    assert_eq!(made.gateway["acme"], settings);
    let certificates = json!({ "certificates": [
        { "cert_path": "a.pem", "key_path": "a.key" }, { "acme": ["shop.example"] }, { "acme": ["www.shop.example"] },
    ] });
    assert_eq!(made.gateway["tls"], certificates);
    let said = made.report.to_json().to_string();
    for name in ["*.apps.example", "localhost", "10.0.0.9"] {
        assert!(said.contains(&format!("the certificate for {name}")), "{name} in {said}");
    }
    assert!(said.contains("no CA of its own") && said.contains("accept_terms"), "{said}");

    let private = "{\n acme_ca https://ca.internal/dir\n acme_ca_root ca.pem\n auto_https disable_redirects\n\
        acme_eab {\n key_id k\n mac_key m\n }\n}\nhttps://app.internal {\n respond 200\n}\n";
    let made = import(Format::Caddyfile, private).unwrap();
    let settings = json!({
        "accept_terms": true, "directory_url": "https://ca.internal/dir", "root_ca_path": "ca.pem",
        "external_account": { "key_id": "k", "hmac_key": "m" },
        // Nothing listens for plain requests.
        "challenge": "tls-alpn-01", "storage": "/var/lib/ferrum-edge/acme",
    });
    assert_eq!(made.gateway["acme"], settings);
    // Never another CA than the one that is named; `check` refuses the second.
    for (written, url) in
        [("ca.example/dir", "https://ca.example/dir"), ("http://ca.example/dir", "http://ca.example/dir")]
    {
        let made = import(
            Format::Caddyfile,
            &format!("{{\n acme_ca {written}\n}}\na.example {{\n respond 200\n}}\n"),
        );
        assert_eq!(made.unwrap().gateway["acme"]["directory_url"], url);
    }
    for none in ["auto_https off", "auto_https disable_certs", "local_certs"] {
        let made = import(Format::Caddyfile, &format!("{{\n {none}\n}}\na.example {{\n respond 200\n}}\n"));
        assert_eq!(made.unwrap().gateway.get("acme"), None, "{none}");
    }
}

#[test]
fn what_caddys_json_gets_from_a_ca_is_got_from_it() {
    let document = |automatic: &str| {
        format!(
            r#"{{ "apps": {{
            "http": {{ "servers": {{ "a": {{ "listen": [":443"], "automatic_https": {{ {automatic} }}, "routes": [
                {{ "match": [{{ "host": ["shop.example", "no.example"] }}],
                   "handle": [{{ "handler": "static_response", "status_code": 200 }}] }}] }} }} }},
            "tls": {{ "automation": {{ "policies": [
                {{ "subjects": ["no.example"], "issuers": [{{ "module": "internal" }}] }},
                {{ "issuers": [{{ "module": "acme", "email": "ops@shop.example" }}] }}] }} }} }} }}"#
        )
    };
    let made = import(Format::CaddyJson, &document("")).unwrap();
    assert_eq!(made.gateway["acme"]["email"], "ops@shop.example");
    assert_eq!(made.gateway["tls"], json!({ "certificates": [{ "acme": ["shop.example"] }] }));
    assert_eq!(
        (&made.gateway["http"], &made.gateway["https"]),
        (&json!("0.0.0.0:80"), &json!("0.0.0.0:443"))
    );
    assert!(made.proxies.iter().any(|proxy| proxy["id"] == "a-to-https"));
    let made = import(
        Format::CaddyJson,
        &document(r#""disable_redirects": true, "skip_certificates": ["shop.example"]"#),
    );
    let made = made.unwrap();
    assert_eq!((made.gateway.get("acme"), &made.gateway["http"]), (None, &json!("off")));
}

#[test]
fn the_header_host_is_the_authority() {
    for (asked, how) in [
        ("header Host b.test", "regex"),
        ("header Host *b.test*", "contains"),
        ("header host *", "present"),
        ("header !Host", "present"),
        ("header_regexp Host ^b", "regex"),
    ] {
        let text = format!("http://a.test {{\n @m {asked}\n respond @m 403\n reverse_proxy 10.0.0.1:1\n}}\n");
        let made = import(Format::Caddyfile, &text).expect("an import").document().to_string();
        assert!(
            made.contains(&format!("\"authority\":{{\"{how}\"")) && !made.contains("\"headers\""),
            "{asked}: {made}"
        );
    }
}

#[test]
fn a_site_without_braces_may_follow_global_options() {
    for options in ["", "{\n email a@b.test\n}\n"] {
        let text = format!("{options}http://a.test\n\nreverse_proxy 10.0.0.1:81\n");
        let made = import(Format::Caddyfile, &text).expect("an import").document();
        let proxies = made["proxies"].as_array().expect("proxies");
        assert_eq!(proxies.len(), 1, "{made:#}");
        assert_eq!(
            (&proxies[0]["backend_port"], &proxies[0]["matches"][0]["hosts"]),
            (&json!(81), &json!(["a.test"]))
        );
    }
}

#[test]
fn an_auth_server_is_asked_with_the_clients_host() {
    for (line, keeps) in [
        ("", Some(true)),
        ("header_up Host {host}", Some(true)),
        ("header_up Host {upstream_hostport}", Some(false)),
        ("header_up Host auth.internal", Some(true)),
        ("header_up Host {unknown}", None),
    ] {
        let text = format!(
            "http://a.test {{\n forward_auth auth:9091 {{\n uri /api/verify\n {line}\n }}\n reverse_proxy 10.0.0.1:1\n}}\n"
        );
        let made = import(Format::Caddyfile, &text).expect("an import");
        let plugin = made.plugin_configs.iter().find(|it| it["plugin_name"] == "forward_auth");
        assert_eq!(plugin.map(|it| it["config"]["preserve_host"] == json!(true)), keeps, "{line}");
        assert!(keeps.is_some() || made.report.count(Conversion::Closed) > 0, "{line}");
    }
}
