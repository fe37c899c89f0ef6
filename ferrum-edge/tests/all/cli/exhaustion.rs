//! Clients that take what the admin listener needs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::process::{Folder, Gateway, get, spec, until};

/// Runs the gateway under other limits on file descriptors.
fn limited(folder: &Folder, limits: &str) -> Gateway {
    Gateway::start(folder, |command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!(r#"{limits}; exec "$@""#), "limited"]).arg(command.get_program());
        shell
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
            shell.env_remove(name);
        }
        shell.current_dir(folder.path(".")).stdin(std::process::Stdio::null());
        shell.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        *command = shell;
    })
}

fn silent(address: SocketAddr, connections: usize) -> Vec<TcpStream> {
    (0..connections).map_while(|_| TcpStream::connect(address).ok()).collect()
}

#[test]
fn silent_connections_do_not_keep_the_admin_listener_from_answering() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one"));
    let gateway = Gateway::start(&folder, |_| {});
    let held = silent(gateway.admin, 700);
    for path in ["/livez", "/readyz", "/metrics", "/v1/status"] {
        assert!(get(gateway.admin, path).starts_with("HTTP/1.1 200"), "{path}");
    }
    // The oldest went for the new ones.
    let mut first = &held[0];
    assert_eq!(first.read(&mut [0]).unwrap_or_default(), 0);
}

#[test]
fn the_soft_limit_on_descriptors_is_raised() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one"));
    let gateway = limited(&folder, "ulimit -S -n 100; ulimit -H -n 1000");
    assert!(get(gateway.admin, "/metrics").contains("\nprocess_max_fds 1000\n"));
    let warned = "the limit on file descriptors allows few connections";
    assert!(gateway.log().contains(warned), "{}", gateway.log());
}

/// Connections of clients that got their answer, or none, and stay.
fn kept(address: SocketAddr, connections: usize) -> Vec<TcpStream> {
    let clients = silent(address, connections);
    for mut client in &clients {
        // Those beyond the limit may be closed already.
        drop(client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"));
    }
    clients
}

/// Whether a new client is served; it may be reset instead.
fn serves(address: SocketAddr) -> bool {
    let mut answer = String::new();
    let asked = TcpStream::connect(address).and_then(|mut client| {
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
        client.read_to_string(&mut answer)
    });
    asked.is_ok() && answer.ends_with("one")
}

#[test]
fn health_is_answered_and_idle_clients_are_closed_when_descriptors_run_out() {
    let folder = Folder::new();
    let text = spec(2, "one").replace("gateway: {", "gateway: { not_ready_when: [],");
    folder.write("ferrum.yaml", &text);
    let gateway = limited(&folder, "ulimit -n 120");
    let held = kept(gateway.http, 400);
    for _ in 0..20 {
        assert!(get(gateway.admin, "/livez").starts_with("HTTP/1.1 200"));
        assert!(get(gateway.admin, "/readyz").starts_with("HTTP/1.1 200"));
        let status = get(gateway.admin, "/v1/status");
        assert!(status.starts_with("HTTP/1.1 200") && !status.contains("\"descriptors\":0"), "{status}");
    }
    assert!(gateway.log().contains("nearly all file descriptors are in use"), "{}", gateway.log());
    // The gateway sees it and makes room by itself, while the clients are still there.
    until("idle connections are closed", || gateway.log().contains("overloaded"));
    until("the gateway serves again", || serves(gateway.http));
    drop(held);
}
