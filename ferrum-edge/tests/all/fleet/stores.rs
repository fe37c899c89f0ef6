//! Several control planes on one database, and databases that are restored.

use ferrum_edge::store::{Engine, Location, Options, Store};
use serde_json::Value;
use sqlx::{Connection, Executor, MySqlConnection, PgConnection};

use crate::fleet::place::{Edge, Plane, answering};
use crate::process::{Folder, until};
use crate::servers::shared;

#[test]
fn edges_go_to_another_control_plane_and_a_write_through_one_reaches_the_edges_of_all() {
    several_control_planes(Plane::new());
}

#[test]
fn several_control_planes_share_a_postgresql() {
    several_control_planes(Plane::on(&database(Engine::Postgres)));
}

#[test]
fn several_control_planes_share_a_mariadb() {
    several_control_planes(Plane::on(&database(Engine::MySql)));
}

/// A migrated database on a server.
fn database(engine: Engine) -> String {
    let server = shared(engine);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let create = "CREATE DATABASE fleet";
        match engine {
            Engine::Postgres => {
                let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
                connection.execute(create).await.unwrap();
            }
            _ => {
                let mut connection = MySqlConnection::connect(&server.url("mysql")).await.unwrap();
                connection.execute(create).await.unwrap();
            }
        }
        let location = Location::parse(Some(&server.url("fleet")), None).unwrap();
        Store::open(location, Options::default()).migrate().await.unwrap();
    });
    server.url("fleet")
}

fn several_control_planes(mut one: Plane) {
    let two = one.beside();
    one.write(&answering("all", "/", "first"));
    let both = format!("{},{}", one.listening(), two.listening());
    let start = |name: &str| {
        let invitation = one.invite(name, "default");
        Edge::start_with(Folder::new(), |command| {
            command.env("FERRUM_EDGE_INVITATION", &invitation).env("FERRUM_EDGE_CONTROL_PLANES", &both);
        })
    };
    let edges = ["a", "b", "c", "d"].map(start);
    for edge in &edges {
        edge.until_answers("/", "first");
    }
    two.write(&answering("all", "/", "second"));
    for edge in &edges {
        edge.until_answers("/", "second");
    }
    // A revocation through one control plane ends connections of the other.
    assert!(two.command(&["revoke", "d"]).status.success());
    until("the revoked edge knows", || edges[3].standing()["revoked"] != Value::Null);
    // Drained, it sends its edges to the other one.
    one.gateway.signal("TERM");
    one.gateway.wait();
    two.write(&answering("all", "/", "third"));
    for edge in &edges[..3] {
        edge.until_answers("/", "third");
        assert_eq!(edge.standing()["control_plane"], two.listening().as_str());
    }
    assert_eq!(edges[3].get("/").text, "second");
}

#[test]
fn edges_follow_a_restored_backup() {
    let mut plane = Plane::new();
    let listening = plane.listening();
    plane.write(&answering("all", "/", "old"));
    let edge = Edge::start(&plane.invite("ann", "default"));
    plane.until_served("ann");
    let stop = |plane: &mut Plane| {
        plane.gateway.signal("TERM");
        plane.gateway.wait();
    };
    stop(&mut plane);
    let copy = |plane: &Plane, from: &str, to: &str| {
        for end in ["", "-wal"] {
            let (from, to) = (format!("{from}{end}"), format!("{to}{end}"));
            drop(std::fs::remove_file(plane.folder.path(&to)));
            // Without a log everything is in the database's file.
            drop(std::fs::copy(plane.folder.path(&from), plane.folder.path(&to)));
        }
        drop(std::fs::remove_file(plane.folder.path(&format!("{to}-shm"))));
    };
    copy(&plane, "fleet.db", "backup.db");
    plane.restart(&listening);
    let epoch = plane.fleet()["epoch"].clone();
    plane.write(&answering("all", "/", "new"));
    plane.write(&answering("more", "/more", "more"));
    edge.until_answers("/", "new");
    stop(&mut plane);
    copy(&plane, "backup.db", "fleet.db");
    plane.restart(&listening);
    edge.until_answers("/", "old");
    plane.forget();
    until("another epoch has begun", || plane.fleet()["epoch"] != epoch);
    plane.until_served("ann");
    // Revisions that the edge has seen with another content are taken up.
    plane.write(&answering("all", "/", "after the restore"));
    edge.until_answers("/", "after the restore");
}
