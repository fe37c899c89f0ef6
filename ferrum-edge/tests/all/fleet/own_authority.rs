//! A fleet whose certificates an authority of the operator's issues.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::Value;

use crate::fleet::place::{Edge, Plane, answering};
use crate::process::{Folder, ferrum_edge, until};

const HOUR: Duration = Duration::from_secs(3600);
/// An authority that ends so soon issues certificates of which a third is over at once, so that edges renew them.
const SOON: Duration = Duration::from_secs(500);

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// What an authority's certificate contains that begins an hour ago.
fn authority(name: &str, ends_in: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + (since_1970() - HOUR);
    params.not_after = epoch + (since_1970() + ends_in);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A certificate in PEM of itself, with its key.
fn self_signed(params: &CertificateParams) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// An intermediate below a root of the same key type, and that root, in PEM; and the intermediate's key.
fn intermediate(ends_in: Duration) -> (String, String) {
    let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let root = authority("Example root", 24 * HOUR);
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let mut params = authority("Example fleet", ends_in);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let below = params.signed_by(&key, &Issuer::new(root, root_key)).unwrap();
    (below.pem() + root_pem.as_str(), key.serialize_pem())
}

/// Enrols, renews and revokes below this authority.
fn lives_below(certificates: &str, key: &str) {
    let plane = Plane::with_authority(certificates, key);
    plane.write(&answering("all", "/", "one"));
    let mut edge = Edge::start(&plane.invite("ann", "default"));
    plane.until_served("ann");
    assert_eq!(edge.get("/").text, "one");
    until("the edge has renewed its certificate", || edge.gateway.log().contains("certificate was renewed"));
    let renewed = std::fs::read_to_string(edge.folder.path("state/identity.json")).unwrap();
    let renewed: Value = serde_json::from_str(&renewed).unwrap();
    let first = certificates.split_inclusive("-----END CERTIFICATE-----").next().unwrap();
    assert_eq!(
        renewed["roots"].as_str().unwrap().trim(),
        first.trim(),
        "the root above is not trusted by itself"
    );
    // The new certificate is accepted.
    edge.restart();
    let revision = plane.write(&answering("all", "/", "two"));
    plane.until_served("ann");
    edge.until_answers("/", "two");
    until("it is kept", || edge.standing()["last_good"]["revision"] == revision);
    assert!(plane.gateway.log().contains("the fleet's authority ends soon"), "{}", plane.gateway.log());
    assert!(plane.command(&["revoke", "ann"]).status.success());
    until("the edge knows", || edge.standing()["revoked"] != Value::Null);
    edge.restart();
    until("the handshake is refused", || edge.standing()["revoked"].is_string());
    assert_eq!(edge.get("/").text, "two");
}

#[test]
fn edges_enrol_renew_and_are_revoked_below_an_own_authority() {
    let (certificate, key) = self_signed(&authority("Example fleet", SOON));
    lives_below(&certificate, &key);
}

#[test]
fn edges_enrol_renew_and_are_revoked_below_an_own_intermediate() {
    let (certificates, key) = intermediate(SOON);
    lives_below(&certificates, &key);
}

/// A file with both, then the new one first, then the new one alone: no edge is invited again.
#[test]
fn another_authority_takes_the_place_of_one() {
    let (old, old_key) = self_signed(&authority("Old fleet", SOON));
    let (new, new_key) = self_signed(&authority("New fleet", SOON));
    let mut plane = Plane::with_authority(&[old.as_str(), &new].concat(), &old_key);
    let listening = plane.listening();
    let edge = Edge::start(&plane.invite("ann", "default"));
    for (text, certificates) in [("both", [new.as_str(), &old].concat()), ("new", new.clone())] {
        let renewals = || edge.gateway.log().matches("certificate was renewed").count();
        let before = renewals();
        plane.folder.write("ca.pem", &certificates);
        plane.folder.write("ca.key", &new_key);
        plane.gateway.signal("KILL");
        plane.gateway.wait();
        plane.restart(&listening);
        plane.write(&answering("all", "/", text));
        edge.until_answers("/", text);
        // It renews when it connects, by the authority of now.
        until("the edge has renewed its certificate", || renewals() > before);
    }
    let identity = std::fs::read_to_string(edge.folder.path("state/identity.json")).unwrap();
    let identity: Value = serde_json::from_str(&identity).unwrap();
    assert_eq!(identity["roots"].as_str().unwrap().trim(), new.trim());
}

/// What a control plane says that can't use these.
fn refused(certificates: Option<&str>, key: Option<&str>) -> String {
    let folder = Folder::new();
    folder.write("ferrum.yaml", "gateway: { admin: '127.0.0.1:0' }\n");
    let mut command = ferrum_edge(&folder);
    command.args(["run", "--mode", "control-plane", "--db-url"]);
    command.arg(format!("sqlite:{}", folder.path("fleet.db").display()));
    command.env("FERRUM_DB_ENCRYPTION_KEY", "00".repeat(32)).env("FERRUM_FLEET_LISTEN", "127.0.0.1:0");
    for (name, text) in [("ca.pem", certificates), ("ca.key", key)] {
        let variable =
            if name == "ca.pem" { "FERRUM_FLEET_CA_CERT_FILE" } else { "FERRUM_FLEET_CA_KEY_FILE" };
        match text {
            // Names a file that is not there.
            Some("") => drop(command.env(variable, folder.path(name))),
            Some(text) => {
                folder.write(name, text);
                command.env(variable, folder.path(name));
            }
            None => {}
        }
    }
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn files_that_are_no_authority_are_refused_with_the_reason() {
    let params = authority("Example fleet", 24 * HOUR);
    let (good, key) = self_signed(&params);
    let (_, other_key) = self_signed(&params);
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = params.clone();
        change(&mut params);
        self_signed(&params)
    };
    let leaf = with(&|params| params.is_ca = IsCa::NoCa);
    let signs_nothing = with(&|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    let ended = with(&|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let of_others = with(&|params| {
        let permitted_subtrees = vec![rcgen::GeneralSubtree::DnsName("example.org".to_owned())];
        params.name_constraints =
            Some(rcgen::NameConstraints { permitted_subtrees, excluded_subtrees: vec![] });
    });
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let beside = [good.as_str(), &leaf.0].concat();
    let rows: [(Option<&str>, Option<&str>, &str); 12] = [
        (Some(&good), None, "belong together"),
        (None, Some(&key), "belong together"),
        (Some(""), Some(&key), "can't be read: No such file"),
        (Some("no PEM"), Some(&key), "there is no certificate in PEM"),
        (Some(&good), Some("no PEM"), "its key can't be read"),
        (Some(&good), Some(encrypted), "its key is encrypted"),
        (Some(&good), Some(&other_key), "its key is not that of the first certificate"),
        (Some(&leaf.0), Some(&leaf.1), "is not one of an authority"),
        (Some(&beside), Some(&key), "is not one of an authority"),
        (Some(&signs_nothing.0), Some(&signs_nothing.1), "lacks keyCertSign"),
        (Some(&ended.0), Some(&ended.1), "not now"),
        (Some(&of_others.0), Some(&of_others.1), "certificates that it issues for"),
    ];
    for (certificates, key, reason) in rows {
        let log = refused(certificates, key);
        assert!(log.contains(reason) && log.contains("FERRUM_FLEET_CA_"), "{reason}: {log}");
        assert!(!log.contains("PRIVATE KEY"), "{log}");
    }
}

#[test]
fn an_edge_whose_certificate_has_ended_tells_what_to_do() {
    // Certificates of edges end no later than their authority.
    let short = Duration::from_secs(20);
    let (certificate, key) = self_signed(&authority("Example fleet", short));
    // Times in certificates are whole seconds.
    let ends = since_1970() + short + Duration::from_secs(1);
    let plane = Plane::with_authority(&certificate, &key);
    plane.write(&answering("all", "/", "one"));
    let mut edge = Edge::start(&plane.invite("ann", "default"));
    until("it is kept", || edge.standing()["last_good"]["revision"] == 1);
    until("the certificate has ended", || since_1970() > ends);
    edge.restart();
    let problem = |edge: &Edge| edge.standing()["problem"].as_str().unwrap_or_default().to_owned();
    until("it is told", || problem(&edge).starts_with("the certificate of this edge ended at "));
    assert!(problem(&edge).contains("fleet invite --again e"), "{}", problem(&edge));
    let problems = edge.gateway.status()["problems"]["list"].to_string();
    assert!(problems.contains("no control plane since its start: the certificate"), "{problems}");
    assert_eq!(edge.get("/").text, "one", "it serves what it has");
}
