//! The admin API over TLS, on a Unix socket, and behind a token.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};

use crate::process::{Folder, Gateway, ferrum_edge, get, until};

const TOKEN: &str = "a-token-of-enough-bytes";

fn spec(admin: &str) -> String {
    format!(
        "gateway: {{ http: '127.0.0.1:0', https: off, admin: '127.0.0.1:0', workers: 1, {admin} }}\nproxies: []\n"
    )
}

/// A CA in `NAME.ca`, and a certificate for 127.0.0.1 in `NAME.pem` with its key in `NAME.key`.
fn certificate(folder: &Folder, name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(1));
    let leaf = params.signed_by(&key, &ca).unwrap();
    folder.write(&format!("{name}.ca"), &ca.pem());
    folder.write(&format!("{name}.pem"), &leaf.pem());
    folder.write(&format!("{name}.key"), &key.serialize_pem());
    ca
}

/// A list of the certificates that a CA has revoked.
fn revocation_list(ca: &Issuer<'_, KeyPair>, serials: &[u64]) -> String {
    let revoked = serials.iter().map(|serial| RevokedCertParams {
        serial_number: (*serial).into(),
        revocation_time: date_time_ymd(2000, 1, 1),
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2000, 1, 1),
        next_update: date_time_ymd(4000, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(ca).unwrap().pem().unwrap()
}

fn status(folder: &Folder, address: &str, adjust: impl FnOnce(&mut Command)) -> Output {
    let mut command = ferrum_edge(folder);
    command.args(["status", "--admin", address]);
    adjust(&mut command);
    command.output().unwrap()
}

fn succeeds(output: &Output) -> bool {
    output.status.code() == Some(0)
}

#[test]
fn the_admin_api_is_asked_by_tls() {
    let folder = Folder::new();
    certificate(&folder, "one");
    certificate(&folder, "two");
    folder.write("ferrum.yaml", &spec("admin_tls: {cert_path: one.pem, key_path: one.key}"));
    let gateway = Gateway::start(&folder, |_| {});
    let address = format!("https://{}", gateway.admin);
    let trusting = |name: &'static str| {
        move |command: &mut Command| {
            command.env("FERRUM_ADMIN_CA_CERT", name);
        }
    };
    assert!(succeeds(&status(&folder, &address, trusting("one.ca"))));
    for name in ["two.ca", "nothing.ca"] {
        assert!(!succeeds(&status(&folder, &address, trusting(name))), "{name}");
    }
    assert!(!succeeds(&status(&folder, &address, |_| {})), "a private CA is not a public one");
    // In the clear, nothing is answered but that.
    let plain = status(&folder, &gateway.admin.to_string(), |_| {});
    let told = String::from_utf8(plain.stderr.clone()).unwrap();
    assert!(!succeeds(&plain) && told.contains("plain HTTP request was sent to HTTPS port"), "{told}");
    // Another certificate is taken up without a restart.
    for end in ["pem", "key"] {
        folder.rename(&format!("two.{end}"), &format!("one.{end}"));
    }
    until("the new certificate is shown", || succeeds(&status(&folder, &address, trusting("two.ca"))));
}

#[test]
fn clients_of_the_admin_api_show_a_certificate_where_it_is_asked_for() {
    let folder = Folder::new();
    certificate(&folder, "server");
    certificate(&folder, "client");
    let tls = "admin_tls: {cert_path: server.pem, key_path: server.key, client_ca_path: client.ca}";
    folder.write("ferrum.yaml", &spec(tls));
    let gateway = Gateway::start(&folder, |_| {});
    let address = format!("https://{}", gateway.admin);
    let show = |name: &str| {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        status(&folder, &address, |command| {
            command.env("FERRUM_ADMIN_CA_CERT", "server.ca");
            command.env("FERRUM_ADMIN_CLIENT_CERT", cert).env("FERRUM_ADMIN_CLIENT_KEY", key);
        })
    };
    assert!(succeeds(&show("client")));
    assert!(!succeeds(&show("server")), "of another CA");
    let without = status(&folder, &address, |command| {
        command.env("FERRUM_ADMIN_CA_CERT", "server.ca");
    });
    assert!(!succeeds(&without));
}

#[test]
fn a_revoked_certificate_opens_no_admin_api() {
    let folder = Folder::new();
    certificate(&folder, "server");
    let ca = certificate(&folder, "client");
    let lists = "client_crl_path: lists";
    let tls =
        |more: &str| spec(&format!("admin_tls: {{cert_path: server.pem, key_path: server.key, {more}}}"));
    std::fs::create_dir(folder.path("lists")).unwrap();
    folder.write("lists/a.crl", &revocation_list(&ca, &[]));
    let refused = |more: &str| {
        folder.write("ferrum.yaml", &tls(more));
        let refused = ferrum_edge(&folder).arg("check").output().unwrap();
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        String::from_utf8_lossy(&refused.stdout).contains("admin_tls.client_crl_path")
    };
    assert!(refused(lists));
    assert!(refused("client_ca_path: client.ca, client_crl_path: nothing"));
    folder.write("ferrum.yaml", &tls(&format!("client_ca_path: client.ca, {lists}")));
    let gateway = Gateway::start(&folder, |_| {});
    let address = format!("https://{}", gateway.admin);
    let is_let_in = || {
        succeeds(&status(&folder, &address, |command| {
            command.env("FERRUM_ADMIN_CA_CERT", "server.ca");
            command
                .env("FERRUM_ADMIN_CLIENT_CERT", "client.pem")
                .env("FERRUM_ADMIN_CLIENT_KEY", "client.key");
        }))
    };
    assert!(is_let_in());
    // Without a restart, also for a list that was not there.
    folder.write("lists/b.crl", &revocation_list(&ca, &[]));
    std::fs::remove_file(folder.path("lists/a.crl")).unwrap();
    folder.write("lists/b.crl", &revocation_list(&ca, &[1]));
    until("the certificate is revoked", || !is_let_in());
}

#[test]
fn a_unix_socket_is_for_the_gateways_user_and_goes_with_it() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec("admin_socket: admin.sock"));
    // Left behind by one that was killed.
    drop(std::os::unix::net::UnixListener::bind(folder.path("admin.sock")).unwrap());
    let gateway = Gateway::start(&folder, |_| {});
    let mode = std::fs::metadata(folder.path("admin.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(succeeds(&status(&folder, "unix:admin.sock", |_| {})));
    // A second gateway does not take it away.
    let second = ferrum_edge(&folder).args(["run"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("admin.sock"), "{second:?}");
    assert!(succeeds(&status(&folder, "unix:admin.sock", |_| {})));
    assert!(succeeds(&ferrum_edge(&folder).arg("reload").output().unwrap()));
    drop(gateway);
}

#[test]
fn a_token_that_cannot_be_used_is_refused_at_the_start() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(""));
    let refused = ferrum_edge(&folder).arg("run").env("FERRUM_ADMIN_TOKEN", "short").output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("FERRUM_ADMIN_TOKEN"), "{refused:?}");
}

#[test]
fn status_and_metrics_may_need_a_token() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec("admin_require_token: true"));
    // Where no token can be kept, one has to be set.
    let refused = ferrum_edge(&folder).arg("run").env("FERRUM_STATE", "/proc/nowhere").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("FERRUM_ADMIN_TOKEN"), "{refused:?}");
    let gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ADMIN_READ_TOKEN", TOKEN);
    });
    for path in ["/metrics", "/v1/status", "/v1/openapi.json"] {
        assert!(get(gateway.admin, path).starts_with("HTTP/1.1 401"), "{path}");
    }
    for path in ["/livez", "/readyz", "/healthz", "/startupz"] {
        assert!(get(gateway.admin, path).starts_with("HTTP/1.1 200"), "{path}");
    }
    let address = gateway.admin.to_string();
    assert!(!succeeds(&status(&folder, &address, |_| {})));
    let with_token = |command: &mut Command| {
        command.env("FERRUM_ADMIN_TOKEN", TOKEN);
    };
    assert!(succeeds(&status(&folder, &address, with_token)));
}
