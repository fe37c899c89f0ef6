//! A syslog server for one test: rsyslog, which takes messages over UDP, TCP and TLS and writes them to a file.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stream::free_port;
use super::{soon, tls};

/// An rsyslog that can be stopped and started again on the same ports; ended, and its folder removed, when dropped.
pub(crate) struct Rsyslog {
    child: Option<Child>,
    folder: PathBuf,
    /// UDP and TCP.
    pub(crate) plain: u16,
    pub(crate) encrypted: u16,
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl Rsyslog {
    /// Starts a server and waits until it takes messages.
    pub(crate) async fn start() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Which it loads for its encrypted port.
        test_servers::file(
            "rsyslog's module for TLS",
            &[
                "/usr/lib/x86_64-linux-gnu/rsyslog/lmnsd_gtls.so",
                "/usr/lib/aarch64-linux-gnu/rsyslog/lmnsd_gtls.so",
            ],
        );
        let name = format!("ferrum-rsyslog-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut server = Self { child: None, folder, plain: free_port(), encrypted: free_port() };
        server.write_settings();
        server.start_again().await;
        server
    }

    /// Each message becomes a line: the way it came, each part of its head as rsyslog understood it, and what it says.
    fn write_settings(&self) {
        let (identity, ca) = (tls::localhost(), tls::authority().ca());
        let (folder, plain, encrypted) = (self.folder.display(), self.plain, self.encrypted);
        let parts = [
            "inputname",
            "pri",
            "protocol-version",
            "hostname",
            "app-name",
            "procid",
            "msgid",
            "structured-data",
            "msg",
        ];
        let parts = parts.map(|name| format!("property(name=\"{name}\")")).join(" constant(value=\" \") ");
        let text = format!(
            "global(workDirectory=\"{folder}\" maxMessageSize=\"64k\" \
                defaultNetstreamDriverCAFile=\"{ca}\" defaultNetstreamDriverCertFile=\"{cert}\" \
                defaultNetstreamDriverKeyFile=\"{key}\")\n\
             module(load=\"imudp\")\nmodule(load=\"imtcp\")\n\
             template(name=\"all\" type=\"list\") {{ {parts} constant(value=\"\\n\") }}\n\
             ruleset(name=\"all\") {{ action(type=\"omfile\" file=\"{folder}/messages\" template=\"all\") }}\n\
             input(type=\"imudp\" address=\"127.0.0.1\" port=\"{plain}\" ruleset=\"all\")\n\
             input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{plain}\" ruleset=\"all\")\n\
             input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{encrypted}\" ruleset=\"all\" \
                streamDriver.Name=\"gtls\" streamDriver.Mode=\"1\" streamDriver.AuthMode=\"anon\")\n",
            ca = ca.display(),
            cert = identity.cert.display(),
            key = identity.key.display(),
        );
        std::fs::write(self.folder.join("rsyslog.conf"), text).expect("a file");
    }

    /// Starts it, and waits until each of its ports takes messages.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let child = Command::new(test_servers::program("rsyslogd"))
            .args(["-n", "-f"])
            .arg(self.folder.join("rsyslog.conf"))
            .arg("-i")
            .arg(self.folder.join("pid"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("rsyslogd");
        self.child = Some(child);
        let udp = format!(":{:04X} ", self.plain);
        let listening = async {
            let is_open = |port| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            let is_bound = || std::fs::read_to_string("/proc/net/udp").expect("sockets").contains(&udp);
            while !(is_open(self.plain) && is_open(self.encrypted) && is_bound()) {
                let child = self.child.as_mut().expect("a process");
                assert!(child.try_wait().expect("its state").is_none(), "rsyslog does not start");
                tokio::task::yield_now().await;
            }
        };
        soon(listening).await;
    }

    /// Asks it to end, and waits until it has: what it took is in its file.
    pub(crate) async fn stop(&mut self) {
        let mut child = self.child.take().expect("it runs");
        let asked = Command::new("kill").arg(child.id().to_string()).status().expect("kill");
        assert!(asked.success(), "it runs");
        let ended = async {
            while child.try_wait().expect("its state").is_none() {
                tokio::task::yield_now().await;
            }
        };
        soon(ended).await;
    }

    /// The messages so far.
    pub(crate) fn messages(&self) -> Vec<String> {
        let text = std::fs::read(self.folder.join("messages")).unwrap_or_default();
        let text = String::from_utf8(text).expect("UTF-8");
        // The last line may be half written.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        text.get(..whole).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until there are so many messages.
    pub(crate) async fn until(&self, count: usize) -> Vec<String> {
        let waiting = async {
            loop {
                let messages = self.messages();
                if messages.len() >= count {
                    return messages;
                }
                tokio::task::yield_now().await;
            }
        };
        soon(waiting).await
    }
}
