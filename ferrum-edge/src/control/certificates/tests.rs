//! Files change, and what clients are shown with them; or not, when they are of no use.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use gateway_core::config::model::BackendHttp;
use gateway_protocols::tls;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, CertifiedKey,
    IsCa, KeyIdMethod, KeyPair, date_time_ymd, generate_simple_self_signed,
};

use super::*;
use crate::{Gateway, source};

mod stand_in;

/// A folder with a certificate and its key.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ferrum-edge-certs-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let folder = Self(path);
        folder.renew();
        folder
    }

    /// Puts another certificate in the place of the one there is.
    fn renew(&self) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        self.put("cert.pem", &cert.pem());
        self.put("key.pem", &signing_key.serialize_pem());
    }

    fn put(&self, name: &str, text: &str) {
        // By renaming, as careful tools do; the new file is then told apart by its number, not by its time alone.
        fs::write(self.0.join("new"), text).unwrap();
        fs::rename(self.0.join("new"), self.0.join(name)).unwrap();
    }

    fn start(&self) -> Gateway {
        let (cert, key) = (shown(&self.0.join("cert.pem")), shown(&self.0.join("key.pem")));
        let text = format!(
            "
gateway:
  http: 127.0.0.1:0
  https: 127.0.0.1:0
  workers: 1
  tls: {{ certificates: [{{ cert_path: {cert}, key_path: {key} }}] }}
"
        );
        let registry = crate::plugins();
        let model = source::file::parse(&text, "test.yaml", &registry).unwrap();
        Gateway::start(model, registry).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The certificate a client is shown.
fn seen(gateway: &Gateway) -> Vec<u8> {
    seen_for(gateway, "localhost").unwrap()
}

/// The certificate a client is shown who asks for this name; `None` where the handshake is refused.
fn seen_for(gateway: &Gateway, name: &str) -> Option<Vec<u8>> {
    use std::io::Write;
    let address = gateway.addresses().https.unwrap();
    let rules = BackendTls { verify: false, ca_path: None, client_cert: None, server_name: None };
    let config = Arc::new(tls::client::build(&rules, Some(BackendHttp::Http1)).unwrap());
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = rustls::ClientConnection::new(config, name).unwrap();
    let mut tcp = std::net::TcpStream::connect(address).unwrap();
    let mut stream = rustls::Stream::new(&mut connection, &mut tcp);
    stream.flush().ok()?;
    Some(connection.peer_certificates()?.first()?.to_vec())
}

#[test]
fn a_renewed_certificate_is_shown_without_a_reload() {
    let folder = Folder::new();
    let gateway = folder.start();
    let mut watch = Watch::new(gateway.engine().clone(), true);
    let first = seen(&gateway);
    watch.look();
    assert_eq!(seen(&gateway), first);
    folder.renew();
    watch.look();
    assert_ne!(seen(&gateway), first);
    assert_eq!(gateway.telemetry().control.certificates_refused.load(Ordering::Relaxed), 0);
}

#[test]
fn a_bad_file_keeps_the_old_certificate_and_is_said_once() {
    let folder = Folder::new();
    let gateway = folder.start();
    let mut watch = Watch::new(gateway.engine().clone(), true);
    let first = seen(&gateway);
    folder.put("cert.pem", "-----BEGIN NONSENSE-----\n");
    watch.look();
    watch.look();
    assert_eq!(gateway.telemetry().control.certificates_refused.load(Ordering::Relaxed), 1);
    assert_eq!(seen(&gateway), first);
    fs::remove_file(folder.0.join("cert.pem")).unwrap();
    watch.look();
    assert_eq!(seen(&gateway), first);
    folder.renew();
    watch.look();
    assert_ne!(seen(&gateway), first);
}

#[test]
fn a_watch_that_is_restarted_misses_no_renewal() {
    let folder = Folder::new();
    let gateway = folder.start();
    let first = seen(&gateway);
    folder.renew();
    let mut watch = Watch::new(gateway.engine().clone(), false);
    watch.look();
    assert_ne!(seen(&gateway), first);
}

#[test]
fn changed_files_towards_targets_are_used_unless_they_are_of_no_use() {
    let folder = Folder::new();
    let ca = folder.0.join("cert.pem");
    let rules = BackendTls { verify: true, ca_path: Some(ca), client_cert: None, server_name: None };
    let configs = tls::client::ClientConfigs::default();
    let first = configs.of(&rules, None).unwrap();
    folder.renew();
    assert!(configs.refresh(|_| true).is_empty());
    let second = configs.of(&rules, None).unwrap();
    assert!(!Arc::ptr_eq(&first, &second), "what has changed is in use");
    folder.put("cert.pem", "-----BEGIN NONSENSE-----\n");
    assert_eq!(configs.refresh(|_| true).len(), 1);
    assert!(Arc::ptr_eq(&configs.of(&rules, None).unwrap(), &second), "what is of use stays");
    // Nobody has to hear of the files of rules that are gone.
    assert!(configs.refresh(|_| false).is_empty());
    assert!(configs.of(&rules, None).is_err());
}

#[test]
fn a_bad_file_keeps_no_other_certificate_from_being_renewed() {
    let folder = Folder::new();
    let other = generate_simple_self_signed(["other.test".to_owned()]).unwrap();
    folder.put("other.pem", &other.cert.pem());
    folder.put("other-key.pem", &other.signing_key.serialize_pem());
    folder.put("clients.pem", &other.cert.pem());
    let file = |name: &str| shown(&folder.0.join(name));
    let text = format!(
        "
gateway:
  http: 127.0.0.1:0
  https: 127.0.0.1:0
  workers: 1
  tls:
    client_ca_path: {}
    client_cert_required: false
    certificates: [{{ cert_path: {}, key_path: {} }}, {{ cert_path: {}, key_path: {} }}]
",
        file("clients.pem"),
        file("other.pem"),
        file("other-key.pem"),
        file("cert.pem"),
        file("key.pem")
    );
    let registry = crate::plugins();
    let model = source::file::parse(&text, "test.yaml", &registry).unwrap();
    let gateway = Gateway::start(model.clone(), registry).unwrap();
    let mut watch = Watch::new(gateway.engine().clone(), true);
    let refused = || gateway.telemetry().control.certificates_refused.load(Ordering::Relaxed);
    let files = || {
        let ends = gateway.telemetry().control.certificate_ends.lock().unwrap();
        ends.iter().map(|end| end.file.clone()).collect::<std::collections::BTreeSet<_>>()
    };
    let named = files();
    assert_eq!(named.len(), 2);
    for bad in ["other.pem", "clients.pem"] {
        let (first, before) = (seen(&gateway), refused());
        folder.put(bad, "-----BEGIN NONSENSE-----\n");
        folder.renew();
        watch.look();
        assert!(refused() > before, "{bad} is said");
        assert_ne!(seen(&gateway), first, "the renewed one is in use beside {bad}");
        assert_eq!(seen_for(&gateway, "other.test").as_deref(), Some(other.cert.der().as_ref()));
        assert_eq!(files(), named, "when they end is still known");
        // An operator hears of it.
        assert!(gateway.reload(&model).is_err(), "{bad}");
        folder.put(bad, &other.cert.pem());
        watch.look();
    }
}

/// A revocation list of a CA of its own.
fn revocation_list() -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2000, 1, 1),
        next_update: date_time_ymd(4000, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&issuer).unwrap().pem().unwrap()
}

#[test]
fn a_folder_of_revocation_lists_is_watched() {
    let folder = Folder::new();
    fs::create_dir(folder.0.join("lists")).unwrap();
    let list = revocation_list();
    folder.put("lists/a.crl", &list);
    let (cert, key) = (shown(&folder.0.join("cert.pem")), shown(&folder.0.join("key.pem")));
    let text = format!(
        "
gateway:
  http: 127.0.0.1:0
  https: 127.0.0.1:0
  workers: 1
  tls:
    client_ca_path: {cert}
    client_crl_path: {}
    certificates: [{{ cert_path: {cert}, key_path: {key} }}]
",
        shown(&folder.0.join("lists"))
    );
    let registry = crate::plugins();
    let model = source::file::parse(&text, "test.yaml", &registry).unwrap();
    let gateway = Gateway::start(model, registry).unwrap();
    let mut watch = Watch::new(gateway.engine().clone(), true);
    let mut lists = |change: &dyn Fn()| {
        change();
        watch.look();
        let control = &gateway.telemetry().control;
        let ends = control.certificate_ends.lock().unwrap();
        let lists = ends.iter().filter(|end| end.at == "gateway.tls.client_crl_path").count();
        (lists, control.certificates_refused.load(Ordering::Relaxed))
    };
    assert_eq!(lists(&|| {}), (1, 0));
    assert_eq!(lists(&|| folder.put("lists/b.crl", &list)), (2, 0));
    assert_eq!(lists(&|| folder.put("lists/b.crl", "nothing")), (2, 1));
    assert_eq!(lists(&|| fs::write(folder.0.join("lists/b.crl"), format!("{list}\n\n")).unwrap()), (2, 1));
    assert_eq!(lists(&|| fs::remove_file(folder.0.join("lists/b.crl")).unwrap()), (1, 1));
}

#[test]
fn changed_roots_of_a_ca_for_certificates_are_used_unless_they_are_of_no_use() {
    let folder = Folder::new();
    let storage = shown(&folder.0.join("acme"));
    let ca = folder.0.join("cert.pem");
    let text = format!(
        "
gateway:
  http: 127.0.0.1:0
  https: 127.0.0.1:0
  workers: 1
  acme: {{ accept_terms: true, storage: {storage}, directory_url: 'https://127.0.0.1:1/', root_ca_path: {} }}
  tls: {{ certificates: [{{ acme: [a.test] }}] }}
",
        shown(&ca)
    );
    let registry = crate::plugins();
    let model = source::file::parse(&text, "test.yaml", &registry).unwrap();
    let gateway = Gateway::start(model, registry).unwrap();
    let mut watch = Watch::new(gateway.engine().clone(), true);
    let rules = BackendTls { verify: true, ca_path: Some(ca), client_cert: None, server_name: None };
    let used = || gateway.engine().shared.client_tls.of(&rules, None).unwrap();
    let first = used();
    watch.look();
    assert!(Arc::ptr_eq(&first, &used()));
    folder.renew();
    watch.look();
    let second = used();
    assert!(!Arc::ptr_eq(&first, &second), "what has changed is in use");
    folder.put("cert.pem", "-----BEGIN NONSENSE-----\n");
    watch.look();
    assert!(Arc::ptr_eq(&second, &used()), "what is of use stays");
    assert!(gateway.telemetry().control.certificates_refused.load(Ordering::Relaxed) > 0);
}
