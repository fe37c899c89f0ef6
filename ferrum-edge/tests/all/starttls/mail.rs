//! Dovecot as a server of IMAP, POP3 and SMTP, and curl as their client.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use test_servers::ports::free_port;

use super::{Authority, gateway};
use crate::process::{Folder, Gateway};

/// A mail server, which ends with the test.
struct Dovecot {
    running: Child,
    /// Ports of IMAP, POP3 and SMTP.
    ports: [u16; 3],
}

impl Dovecot {
    /// A server that takes passwords after STARTTLS alone, or that has no TLS.
    fn start(folder: &Folder, name: &str, tls: &str) -> Self {
        let ports = [(); 3].map(|()| free_port());
        let place = folder.path(name);
        for part in ["mail", "home"] {
            fs::create_dir_all(place.join(part)).unwrap();
            // Mail is written by another user where the test is root.
            fs::set_permissions(place.join(part), fs::Permissions::from_mode(0o777)).unwrap();
        }
        let listeners: String = [("imap", "imaps"), ("pop3", "pop3s"), ("submission", "submissions")]
            .iter()
            .zip(ports)
            .map(|((plain, over_tls), port)| {
                format!(
                    "service {plain}-login {{\n  inet_listener {plain} {{\n    port = {port}\n  }}\n  \
                     inet_listener {over_tls} {{\n    port = 0\n  }}\n}}\n"
                )
            })
            .collect();
        let id = |flag| String::from_utf8(Command::new("id").arg(flag).output().unwrap().stdout).unwrap();
        let (user, group) = (id("-un"), id("-gn"));
        let (user, group) = (user.trim(), group.trim());
        let own = match user {
            "root" => {
                "userdb {\n  driver = static\n  args = uid=nobody gid=nogroup home=/tmp\n}\n".to_owned()
            }
            _ => format!(
                "default_internal_user = {user}\ndefault_login_user = {user}\ndefault_internal_group = {group}\n\
                 userdb {{\n  driver = static\n  args = uid={user} gid={group} home=/tmp\n}}\n"
            ),
        };
        let place = place.display().to_string();
        let config = format!(
            "base_dir = {place}/run\nstate_dir = {place}/state\nlog_path = /dev/stderr\nlisten = 127.0.0.1\n\
             protocols = imap pop3 submission\nmail_location = maildir:{place}/mail\nfirst_valid_uid = 1\n\
             submission_relay_host = 127.0.0.1\npassdb {{\n  driver = static\n  args = password=hush\n}}\n{own}{listeners}{tls}"
        );
        let file = format!("{name}.conf");
        folder.write(&file, &config);
        let mut command = Command::new(test_servers::program("dovecot"));
        command.arg("-F").arg("-c").arg(folder.path(&file)).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut said = BufReader::new(running.stderr.take().unwrap()).lines().map_while(Result::ok);
        let ready = said.by_ref().find(|line| line.contains("Dovecot v") || line.contains("Fatal"));
        assert!(ready.as_ref().is_some_and(|line| line.contains("starting up")), "{ready:?}");
        std::thread::spawn(move || said.for_each(drop));
        Self { running, ports }
    }
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        // Its own processes end with it when it is asked to.
        let _asked = Command::new("kill").arg(self.running.id().to_string()).status();
        let _ended = self.running.wait();
    }
}

/// What curl says and gets.
fn curl(scheme: &str, port: u16, more: &[&str]) -> (bool, String) {
    let mut command = Command::new("curl");
    command.args(["-sSv", "--max-time", "30", "--resolve", &format!("mail.test:{port}:127.0.0.1")]);
    let output = command.args(more).arg(format!("{scheme}://mail.test:{port}/")).output().unwrap();
    let said = [output.stderr, output.stdout].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn curl_reads_and_sends_mail_by_dovecot() {
    let folder = Folder::new();
    let authority = Authority::new(&folder);
    let (certificate, key) = authority.issue("dovecot.test");
    let tls =
        format!("ssl = required\nssl_cert = <{}\nssl_key = <{}\n", certificate.display(), key.display());
    let sealed = Dovecot::start(&folder, "sealed", &tls);
    let plain = Dovecot::start(&folder, "plain", "ssl = no\ndisable_plaintext_auth = no\n");
    let ca = authority.path();
    let mut proxies = String::from("proxies:\n");
    let mut ways = Vec::new();
    for (n, (protocol, scheme)) in
        [("imap", "imap"), ("pop3", "pop3"), ("smtp", "smtp")].into_iter().enumerate()
    {
        let to_sealed = format!(
            "backend_scheme: tcps, backend_starttls: {protocol}, backend_tls_ca_path: {ca:?}, \
             backend_tls_server_name: dovecot.test, backend_port: {}",
            sealed.ports[n]
        );
        let to_plain = format!("backend_scheme: tcp, backend_port: {}", plain.ports[n]);
        for (target, backend) in [("sealed", to_sealed), ("plain", to_plain)] {
            let port = free_port();
            proxies.push_str(&format!(
                "  - {{id: {protocol}-{target}, listen_port: {port}, frontend_tls: true, frontend_starttls: {protocol}, \
                 backend_host: 127.0.0.1, {backend}}}\n"
            ));
            ways.push((scheme, port));
        }
    }
    folder.write("ferrum.yaml", &format!("{}{proxies}", gateway(&authority.issue("mail.test"))));
    let _gateway = Gateway::start(&folder, |_| {});
    let ca = ca.display().to_string();
    for (scheme, port) in ways {
        let mut more = vec!["--ssl-reqd", "--cacert", &ca];
        let done = match scheme {
            "imap" => {
                more.extend(["-X", "NOOP", "-u", "ann:hush"]);
                "NOOP completed"
            }
            "pop3" => {
                more.extend(["-u", "ann:hush"]);
                "+OK 0 messages"
            }
            _ => {
                more.extend(["-X", "NOOP"]);
                "250 2.0.0 OK"
            }
        };
        let (is_good, said) = curl(scheme, port, &more);
        assert!(is_good && said.contains(done), "{scheme} at {port}: {said}");
        assert!(said.contains("SSL certificate verify ok"), "{said}");
    }
}
