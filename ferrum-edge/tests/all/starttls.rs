//! TLS that begins after plain text, with the clients and servers that people run: PostgreSQL's own, Dovecot and curl.

mod mail;
mod postgres;

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::process::Folder;

/// A CA, whose certificate is `ca.pem` in the folder.
struct Authority<'f> {
    folder: &'f Folder,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl<'f> Authority<'f> {
    fn new(folder: &'f Folder) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate whose issuer has its own name for self-signed.
        params.distinguished_name.push(DnType::CommonName, "CA of a test");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        folder.write("ca.pem", &issuer.pem());
        Self { folder, issuer }
    }

    fn path(&self) -> PathBuf {
        self.folder.path("ca.pem")
    }

    /// The files of a certificate and its key.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (file, key_file) = (format!("{name}.pem"), format!("{name}.key"));
        self.folder.write(&file, &certificate.pem());
        self.folder.write(&key_file, &key.serialize_pem());
        (self.folder.path(&file), self.folder.path(&key_file))
    }
}

/// `gateway` with one certificate; stream proxies listen on loopback.
fn gateway((certificate, key): &(PathBuf, PathBuf)) -> String {
    format!(
        "gateway:\n  http: 127.0.0.1:0\n  https: off\n  admin: 127.0.0.1:0\n  stream_address: 127.0.0.1\n  workers: 1\n  \
         tls: {{certificates: [{{cert_path: {certificate:?}, key_path: {key:?}}}]}}\n"
    )
}
