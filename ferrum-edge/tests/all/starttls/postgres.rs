//! PostgreSQL's own client and server.

use std::path::Path;
use std::process::Command;

use ferrum_edge::store::Engine;
use test_servers::ports::free_port;

use super::{Authority, gateway};
use crate::process::{Folder, Gateway, until};
use crate::servers::Server;

/// What the server says about the encryption of the connection that it sees: `t` or `f`.
const IS_ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// The answer to a query at a port, by a client that checks the certificate for this name, or the client's error.
fn ask(port: u16, name: &str, mode: &str, ca: &Path, query: &str) -> Result<String, String> {
    let to = format!(
        "host={name} hostaddr=127.0.0.1 port={port} user=ferrum dbname=postgres sslmode={mode} sslrootcert={} \
         connect_timeout=20",
        ca.display()
    );
    let output =
        Command::new(test_servers::program("psql")).args(["-X", "-A", "-t", "-c", query, &to]).output();
    let output = output.unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// A server that takes TLS, with a certificate for `db.test`.
fn server(authority: &Authority<'_>) -> Server {
    let server = Server::start(Engine::Postgres);
    let port = server.port;
    let place = ask(port, "localhost", "disable", &authority.path(), "SHOW data_directory").unwrap();
    let (certificate, key) = authority.issue("db.test");
    for (from, to) in [(certificate, "server.crt"), (key, "server.key")] {
        // It takes a key only that nobody else may read.
        let to = format!("{place}/{to}");
        let arguments = ["install".into(), "-m600".into(), from.into(), to.into()];
        assert!(server.as_user(arguments.to_vec()).status().unwrap().success());
    }
    let set = |query| ask(port, "localhost", "disable", &authority.path(), query).unwrap();
    set("ALTER SYSTEM SET ssl = on");
    set("SELECT pg_reload_conf()");
    until("the server takes TLS", || {
        ask(port, "db.test", "verify-full", &authority.path(), IS_ENCRYPTED).is_ok_and(|answer| answer == "t")
    });
    server
}

#[test]
fn psql_reaches_postgresql_by_every_way_of_tls() {
    let folder = Folder::new();
    let authority = Authority::new(&folder);
    let server = server(&authority);
    let [ended, both, passed] = [(); 3].map(|()| free_port());
    let (target, ca) = (server.port, authority.path());
    folder.write(
        "ferrum.yaml",
        &format!(
            "{}proxies:\n  \
             - {{id: ended, listen_port: {ended}, frontend_tls: true, frontend_starttls: postgres, backend_scheme: tcp, backend_host: 127.0.0.1, backend_port: {target}}}\n  \
             - {{id: both, listen_port: {both}, frontend_tls: true, frontend_starttls: postgres, backend_scheme: tcps, backend_starttls: postgres, \
                 backend_tls_ca_path: {ca:?}, backend_tls_server_name: db.test, backend_host: 127.0.0.1, backend_port: {target}}}\n  \
             - {{id: passed, listen_port: {passed}, passthrough: true, frontend_starttls: postgres, hosts: [db.test], backend_scheme: tcp, \
                 backend_host: 127.0.0.1, backend_port: {target}}}\n",
            gateway(&authority.issue("gateway.test"))
        ),
    );
    let _gateway = Gateway::start(&folder, |_| {});
    for (port, name, answer) in
        [(ended, "gateway.test", "f"), (both, "gateway.test", "t"), (passed, "db.test", "t")]
    {
        assert_eq!(
            ask(port, name, "verify-full", &ca, IS_ENCRYPTED).as_deref(),
            Ok(answer),
            "{name} at {port}"
        );
        // A result of some size comes whole.
        let long = ask(port, name, "verify-full", &ca, "SELECT repeat('x', 300000)").unwrap();
        assert_eq!((long.len(), long.trim_start_matches('x')), (300_000, ""));
        let refused = ask(port, name, "disable", &ca, IS_ENCRYPTED).unwrap_err();
        assert!(refused.contains("FATAL"), "{refused}");
    }
    let wrong = ask(passed, "gateway.test", "verify-full", &ca, IS_ENCRYPTED).unwrap_err();
    assert!(wrong.contains("SSL"), "no proxy has this name: {wrong}");
}
