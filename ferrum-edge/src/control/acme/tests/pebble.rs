//! A CA for tests: Pebble, with a DNS server that says of every name that it is here.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Doors, Folder, free_port, until};

/// A running CA.
pub(super) struct Ca {
    folder: Folder,
    pebble: Option<Child>,
    dns: Child,
    dns_port: u16,
    port: u16,
}

impl Drop for Ca {
    fn drop(&mut self) {
        self.stop();
        drop(self.dns.kill());
        drop(self.dns.wait());
    }
}

impl Ca {
    /// A CA that is not there yet, and looks for names at these doors once it is.
    pub(super) fn new(doors: Doors) -> Self {
        Self::with(doors, "")
    }

    /// The same with more settings, as JSON with a comma before them.
    pub(super) fn with(doors: Doors, more: &str) -> Self {
        let folder = Folder::new();
        let (cert, key) = folder.identity("localhost");
        let (port, dns_port, management) = (free_port(), free_port(), free_port());
        let settings = format!(
            r#"{{"pebble": {{"listenAddress": "127.0.0.1:{port}", "managementListenAddress": "127.0.0.1:{management}",
            "certificate": {cert:?}, "privateKey": {key:?}, "httpPort": {}, "tlsPort": {}, "ocspResponderURL": "",
            "domainBlocklist": ["blocked.test"], "retryAfter": {{"authz": 1, "order": 1}}{more}}}}}"#,
            doors.http, doors.tls
        );
        folder.put("pebble.json", &settings);
        let dns = Command::new(test_servers::program("pebble-challtestsrv"))
            .args(["-dns01", &format!("127.0.0.1:{dns_port}"), "-http01", "", "-https01", ""])
            .args([
                "-management",
                &format!("127.0.0.1:{}", free_port()),
                "-tlsalpn01",
                "",
                "-defaultIPv4",
                "127.0.0.1",
                "-defaultIPv6",
                "",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pebble-challtestsrv");
        Self { folder, pebble: None, dns, dns_port, port }
    }

    /// Starts it, and waits until it answers. It refuses some nonces on purpose.
    pub(super) fn start(&mut self) {
        until("there is DNS", || self.resolves());
        let mut pebble = Command::new(test_servers::program("pebble"))
            .arg("-config")
            .arg(self.folder.path("pebble.json"))
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.dns_port), "-strict"])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("pebble");
        let mut lines = BufReader::new(pebble.stdout.take().expect("its output")).lines();
        let is_ready = |line: String| line.contains("ACME directory available");
        assert!(lines.by_ref().map_while(Result::ok).any(is_ready), "pebble does not start");
        // What it says further must not fill the pipe up.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        self.pebble = Some(pebble);
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        until("pebble listens", || TcpStream::connect(address).is_ok());
    }

    /// Ends it: it does not answer any more, and forgets everything.
    pub(super) fn stop(&mut self) {
        if let Some(mut pebble) = self.pebble.take() {
            drop(pebble.kill());
            drop(pebble.wait());
        }
    }

    /// The settings by which a gateway finds it, with a storage of this CA's folder.
    pub(super) fn settings(&self, challenge: &str) -> String {
        let (ca, storage) = (self.folder.path("localhost.pem"), self.folder.path("storage"));
        format!(
            "directory_url: 'https://localhost:{}/dir', email: ops@shop.test, challenge: {challenge}, \
             root_ca_path: {ca:?}, storage: {storage:?}",
            self.port
        )
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    fn resolves(&self) -> bool {
        // Asks for the address of `a.test`.
        const QUESTION: &[u8] =
            b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01";
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let is_sent = socket.send_to(QUESTION, ("127.0.0.1", self.dns_port)).is_ok();
        is_sent && socket.recv(&mut [0; 512]).is_ok()
    }
}
