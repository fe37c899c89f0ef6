//! Texts that no server would take.

use crate::{Failure, Format, Import, NoFiles, Options, Outcome};

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
    assert_eq!(made.report.count(Outcome::Closed), 1);
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
