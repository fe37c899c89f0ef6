//! PostgreSQL behind a pooler.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use ferrum_edge::store::{Engine, Location, ObjectKind, Store, StoreError};

use crate::servers::{Server, program, shared};
use crate::store::place::{Place, options, put, refused, write};

/// PgBouncer before a server, ended with the test.
struct Pooler {
    child: Child,
    port: u16,
    folder: std::path::PathBuf,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

impl Pooler {
    fn start(server: &Server, mode: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ferrum-pooler-{}-{mode}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = {mode}\nignore_startup_parameters = extra_float_digits\n",
            server.port
        );
        // Any user there is: with `auth_type=any` all come as the one that the database names.
        fs::write(&file, text.replace("* = ", "* = user=ferrum ")).unwrap();
        let mut command = server.as_user(vec![program("pgbouncer"), file.into()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pooler = Self { child, port, folder };
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            thread::yield_now();
        }
        pooler
    }
}

async fn by_way_of(mode: &str) -> (Place, Store, Pooler) {
    let server = shared(Engine::Postgres);
    let place = Place::within(server).await;
    place.open(options()).migrate().await.unwrap();
    let pooler = Pooler::start(server, mode);
    let url = place.url.replace(&format!(":{}/", server.port), &format!(":{}/", pooler.port));
    let options = ferrum_edge::store::Options { connect_timeout: Duration::from_secs(60), ..options() };
    let store = Store::open(Location::parse(Some(&url), None).unwrap(), options);
    (place, store, pooler)
}

#[tokio::test]
async fn a_pooler_that_hands_out_transactions_is_refused() {
    let (_place, store, _pooler) = by_way_of("transaction").await;
    for error in [store.revision().await.unwrap_err(), refused(store.begin(crate::store::place::ann()).await)]
    {
        assert!(matches!(error, StoreError::SharedSessions { .. }), "{error}");
        assert!(error.remedy().contains("pool_mode=session"));
    }
}

#[tokio::test]
async fn a_pooler_that_keeps_sessions_is_as_good_as_the_server() {
    let (_place, store, _pooler) = by_way_of("session").await;
    assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "p", "1")]).await, 1);
    assert_eq!(store.revision().await.unwrap(), 1);
}
