//! Certificates of a CA of our own, made once a run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The CA and the folder its files are in.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate in files.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// The CA of this run.
pub(crate) fn authority() -> &'static Authority {
    static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);
    &AUTHORITY
}

/// The certificate that gateways and origins of tests show.
pub(crate) fn localhost() -> &'static Identity {
    static LOCALHOST: LazyLock<Identity> =
        LazyLock::new(|| authority().issue("localhost", &["localhost", "127.0.0.1", "gateway.test"]));
    &LOCALHOST
}

impl Authority {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("ferrum-edge-tests-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for certificates");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        std::fs::write(folder.join("ca.pem"), issuer.pem()).expect("a file");
        Self { issuer, folder }
    }

    /// What signs for it.
    pub(crate) fn issuer(&self) -> &CertifiedIssuer<'static, KeyPair> {
        &self.issuer
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A folder of this run.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A certificate for `names`, in files called `file`.
    pub(crate) fn issue(&self, file: &str, names: &[&str]) -> Identity {
        self.issue_for(file, names, &KeyPair::generate().expect("a key"))
    }

    /// As [`Authority::issue`], for a key of the test's own.
    pub(crate) fn issue_for(&self, file: &str, names: &[&str], key: &KeyPair) -> Identity {
        let identity = Identity {
            cert: self.folder.join(format!("{file}.pem")),
            key: self.folder.join(format!("{file}.key")),
        };
        self.write(&identity, names, key);
        identity
    }

    /// As [`Authority::issue`], with this serial number.
    pub(crate) fn issue_numbered(&self, file: &str, names: &[&str], serial: u64) -> Identity {
        let (identity, key) = (self.issue(file, names), KeyPair::generate().expect("a key"));
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.serial_number = Some(serial.into());
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(&identity.cert, cert.pem()).expect("a file");
        std::fs::write(&identity.key, key.serialize_pem()).expect("a file");
        identity
    }

    /// Writes the list of the certificates that are revoked, which ends in this year.
    pub(crate) fn revoke(&self, file: &Path, serials: &[u64], ends: i32) {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: date_time_ymd(2000, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2000, 1, 1),
            next_update: date_time_ymd(ends, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("a list");
        std::fs::write(file, list.pem().expect("a text")).expect("a file");
    }

    /// Replaces a certificate's files.
    pub(crate) fn reissue(&self, identity: &Identity, names: &[&str]) {
        self.write(identity, names, &KeyPair::generate().expect("a key"));
    }

    fn write(&self, identity: &Identity, names: &[&str], key: &KeyPair) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let cert = CertificateParams::new(names)
            .expect("names")
            .signed_by(key, &self.issuer)
            .expect("a certificate");
        std::fs::write(&identity.cert, cert.pem()).expect("a file");
        std::fs::write(&identity.key, key.serialize_pem()).expect("a file");
    }

    /// A client that trusts this CA only.
    pub(crate) fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        self.client_preferring(alpn, "")
    }

    /// The same, with the cipher suite first whose name ends like this.
    pub(crate) fn client_preferring(&self, alpn: &[&str], suite: &str) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        let mut provider = default_provider();
        provider.cipher_suites.sort_by_key(|known| !format!("{:?}", known.suite()).ends_with(suite));
        let mut config = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// The same client, which shows `identity` when it is asked for a certificate.
pub(crate) fn showing(client: &ClientConfig, identity: &Identity) -> Arc<ClientConfig> {
    let chain = CertificateDer::pem_file_iter(&identity.cert).expect("a file");
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&identity.key).expect("a key");
    let certified =
        CertifiedKey::from_der(chain, key, &default_provider()).expect("a certificate and its key");
    let mut client = client.clone();
    client.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    Arc::new(client)
}

/// A server that shows `identity`.
pub(crate) fn server(identity: &Identity, alpn: &[&str]) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(&identity.cert).expect("a file");
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&identity.key).expect("a key");
    let mut config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate and its key");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}
