//! Texts that no server would take.

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
    assert_eq!(made.proxies[0]["backend_port"], 9);
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
    for errors in ["rewrite * /{err.status_code}.html\nfile_server", "respond @a \"x\"", "respond \"x\" 404"]
    {
        let made = import(Format::Caddyfile, &site(errors)).expect("an import");
        assert_eq!(made.report.count(Conversion::Closed), 0, "{errors}");
        assert_eq!(made.report.count(Conversion::Lost), 1, "{errors}");
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
    assert_eq!(made.proxies[0]["backend_port"], 9);
}

#[test]
fn fields_of_the_connection_are_left_out() {
    let site = "http://a.test {\n header -Connection\n request_header -Upgrade\n reverse_proxy 10.0.0.1:1 {\n\
                header_up Connection close\n header_up TE trailers\n header_down -Transfer-Encoding\n }\n}\n";
    let made = import(Format::Caddyfile, site).expect("an import");
    assert_eq!(made.plugin_configs, Vec::<serde_json::Value>::new());
    assert_eq!(made.report.losses().count(), 0, "the gateway writes them itself");
    assert_eq!(made.report.count(Conversion::Needless), 4);
}
