//! A directory for one test: OpenLDAP's slapd with some people and groups.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stream::free_port;
use super::tls;

/// A running directory; ended, and its folder removed, when dropped.
pub(crate) struct Slapd {
    child: Child,
    folder: PathBuf,
    pub(crate) plain: u16,
    pub(crate) encrypted: u16,
}

impl Drop for Slapd {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

const PEOPLE: &str = "
dn: dc=example,dc=org
objectClass: domain
dc: example

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: ou=groups,dc=example,dc=org
objectClass: organizationalUnit
ou: groups

dn: uid=ann,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: A
mail: ann@example.org
departmentNumber: cn=staff,ou=groups,dc=example,dc=org
userPassword: sesame

dn: uid=bob,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
mail: shared@example.org
userPassword: hunter2

dn: uid=carl,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: carl
cn: Carl
sn: C
mail: shared@example.org
userPassword: hunter2

dn: uid=reader,ou=people,dc=example,dc=org
objectClass: inetOrgPerson
uid: reader
cn: Reader
sn: R
userPassword: readme

dn: cn=staff,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: staff
member: uid=ann,ou=people,dc=example,dc=org
member: uid=bob,ou=people,dc=example,dc=org

dn: cn=admins,ou=groups,dc=example,dc=org
objectClass: groupOfNames
cn: admins
member: uid=ann,ou=people,dc=example,dc=org
";

impl Slapd {
    /// Starts a directory and waits until it takes connections.
    pub(crate) fn start() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ferrum-slapd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(folder.join("db")).expect("a folder");
        let identity = tls::localhost();
        let (config, people) = (folder.join("slapd.conf"), folder.join("people.ldif"));
        let text = format!(
            "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n\
             include /etc/ldap/schema/inetorgperson.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             TLSCertificateFile {cert}\nTLSCertificateKeyFile {key}\nTLSVerifyClient never\n\
             database mdb\nsuffix dc=example,dc=org\ndirectory {db}\n\
             rootdn cn=root,dc=example,dc=org\nrootpw rootpw\n\
             access to attrs=userPassword by anonymous auth by * none\n\
             access to * by dn.exact=\"uid=reader,ou=people,dc=example,dc=org\" read by self read by * none\n",
            cert = identity.cert.display(),
            key = identity.key.display(),
            db = folder.join("db").display(),
        );
        std::fs::write(&config, text).expect("a file");
        std::fs::write(&people, PEOPLE).expect("a file");
        let loaded = Command::new(test_servers::program("slapadd"))
            .arg("-f")
            .arg(&config)
            .arg("-l")
            .arg(&people)
            .output();
        let loaded = loaded.expect("slapadd");
        assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
        let (plain, encrypted) = (free_port(), free_port());
        let child = Command::new(test_servers::program("slapd"))
            .args([
                "-d",
                "0",
                "-h",
                &format!("ldap://127.0.0.1:{plain}/ ldaps://127.0.0.1:{encrypted}/"),
                "-f",
            ])
            .arg(&config)
            .stderr(Stdio::null())
            .spawn()
            .expect("slapd");
        let mut slapd = Self { child, folder, plain, encrypted };
        while std::net::TcpStream::connect(("127.0.0.1", encrypted)).is_err() {
            assert!(slapd.child.try_wait().expect("its state").is_none(), "slapd does not start");
            std::thread::yield_now();
        }
        slapd
    }
}
