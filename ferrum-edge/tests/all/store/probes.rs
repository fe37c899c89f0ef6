//! Health checks of real databases in their own protocols.

use ferrum_edge::store::Engine;

use crate::process::{Folder, Gateway, get, until};
use crate::servers::Server;

/// Whether the gateway considers its only target healthy.
fn is_healthy(gateway: &Gateway) -> Option<bool> {
    let page = get(gateway.admin, "/metrics");
    let line = page.lines().find(|line| line.starts_with("ferrum_target_healthy{"))?;
    Some(line.ends_with(" 1"))
}

fn a_server_that_stops_is_unhealthy_until_it_is_back(engine: Engine, probe: &str) {
    let mut server = Server::start(engine);
    let url = server.url("x");
    let port = url.rsplit_once(':').unwrap().1.split_once('/').unwrap().0.to_owned();
    let folder = Folder::new();
    // At first a target is healthy without a probe. After a failure, a successful probe makes it healthy again.
    folder.write(
        "ferrum.yaml",
        &format!(
            "gateway: {{http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off}}\nproxies: [{{id: db, listen_path: /, upstream_id: db}}]\nupstreams:\n  - id: db\n    targets: [{{host: 127.0.0.1, port: {port}}}]\n    health_checks:\n      active: {{probe_type: {probe}, interval: 1s, healthy_threshold: 1, unhealthy_threshold: 1}}\n"
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    server.kill();
    until("the stopped server is unhealthy", || is_healthy(&gateway) == Some(false));
    assert!(server.run());
    until("the server is healthy again", || is_healthy(&gateway) == Some(true));
}

#[test]
fn postgres_is_asked_for_a_session() {
    a_server_that_stops_is_unhealthy_until_it_is_back(Engine::Postgres, "postgres");
}

#[test]
fn mariadb_is_asked_for_its_greeting() {
    a_server_that_stops_is_unhealthy_until_it_is_back(Engine::MySql, "mysql");
}
