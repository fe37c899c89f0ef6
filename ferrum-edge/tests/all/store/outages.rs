//! Servers that stop, and networks that fail at the worst moment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrum_edge::store::{Engine, Location, ObjectKind, Options, Store, StoreError};
use sqlx::{Connection, Executor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::servers::{Server, shared};
use crate::store::place::{Place, ann, options, put, refused, write};

const TIMEOUT: Duration = Duration::from_secs(60);

async fn a_server_that_is_killed_and_started_again(engine: Engine) {
    let mut server = Server::start(engine);
    let place = Place::within(&server).await;
    let store = place.open(Options { poll_interval: Some(Duration::from_millis(50)), ..options() });
    store.migrate().await.unwrap();
    assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "p", "1")]).await, 1);
    let mut signal = store.watch();
    timeout(TIMEOUT, signal.wait_for(|it| it.revision == Some(1))).await.unwrap().unwrap();
    for round in 2..=3 {
        let mut change = store.begin(ann()).await.unwrap();
        change.put(vec![put(ObjectKind::Proxies, "lost", "x")]).await.unwrap();
        server.kill();
        // In the middle of a change, before one, and while reading.
        let error = change.put(vec![put(ObjectKind::Proxies, "lost", "y")]).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert!(matches!(change.commit("").await, Err(StoreError::Broken)));
        for error in [refused(store.begin(ann()).await), store.revision().await.unwrap_err()] {
            assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
            assert!(error.is_passing() && !error.to_string().contains("hush"), "{error}");
        }
        let away = timeout(TIMEOUT, signal.wait_for(|it| it.away.is_some())).await.unwrap().unwrap().clone();
        assert_eq!(away.revision, Some(round - 1));
        assert!(!away.away.unwrap().cause.contains("hush"));
        assert!(server.run());
        timeout(TIMEOUT, signal.wait_for(|it| it.away.is_none())).await.unwrap().unwrap();
        // The same store works on, and what was acknowledged is there.
        assert_eq!(store.revision().await.unwrap(), round - 1);
        assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "p", round.to_string())]).await, round);
        assert_eq!(store.get(ObjectKind::Proxies, "lost").await.unwrap(), None);
        timeout(TIMEOUT, signal.wait_for(|it| it.revision == Some(round))).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn postgres_is_killed_and_started_again() {
    a_server_that_is_killed_and_started_again(Engine::Postgres).await;
}

#[tokio::test]
async fn mariadb_is_killed_and_started_again() {
    a_server_that_is_killed_and_started_again(Engine::MySql).await;
}

/// A commit that notifies waits for the one before it, of whatever database on the server; that is no other writer on
/// this database, and nothing the writers' timeout is for.
#[tokio::test]
async fn a_commit_waits_for_other_databases_commits_on_the_server() {
    let server = Server::start(Engine::Postgres);
    let place = Place::within(&server).await;
    let mut admin = Session::new(&server).await;
    // From here on a commit waits for a standby that never comes, unless its session asks for less.
    admin.sql("ALTER ROLE ferrum SET synchronous_commit = 'local'").await.unwrap();
    let busy_timeout = Duration::from_millis(200);
    let store = place.open(Options { busy_timeout, ..options() });
    store.migrate().await.unwrap();
    admin.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await.unwrap();
    admin.sql("SELECT pg_reload_conf()").await.unwrap();
    let held = timeout(TIMEOUT, admin.held(&server)).await.unwrap();
    let writing = tokio::spawn(async move { write(&store, vec![put(ObjectKind::Proxies, "p", "1")]).await });
    timeout(TIMEOUT, admin.waits("Lock")).await.unwrap();
    // Long past the writers' timeout.
    timeout(TIMEOUT, admin.waits_for("Lock", busy_timeout * 3)).await.unwrap();
    assert!(!writing.is_finished());
    admin.sql("ALTER SYSTEM RESET synchronous_standby_names").await.unwrap();
    admin.sql("SELECT pg_reload_conf()").await.unwrap();
    assert_eq!(timeout(TIMEOUT, writing).await.unwrap().unwrap(), 1);
    held.await.unwrap().unwrap();
}

/// A connection beside the store.
struct Session(sqlx::PgConnection);

impl Session {
    async fn new(server: &Server) -> Self {
        Self(sqlx::PgConnection::connect(&server.url("postgres")).await.unwrap())
    }

    async fn sql(&mut self, sql: &'static str) -> sqlx::Result<sqlx::postgres::PgQueryResult> {
        self.0.execute(sqlx::raw_sql(sql)).await
    }

    /// A commit elsewhere on the server that waits for its standby. The server applies a reloaded setting with a delay, so a
    /// commit may go through before; then another one is tried.
    async fn held(
        &mut self,
        server: &Server,
    ) -> tokio::task::JoinHandle<sqlx::Result<sqlx::postgres::PgQueryResult>> {
        loop {
            let mut other = Self::new(server).await;
            other.sql("SET synchronous_commit = 'on'").await.unwrap();
            let again = "DROP TABLE IF EXISTS elsewhere; CREATE TABLE elsewhere (); NOTIFY elsewhere";
            let commit = tokio::spawn(async move { other.sql(again).await });
            while !commit.is_finished() {
                if self.sessions_waiting("IPC", Duration::ZERO).await > 0 {
                    return commit;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Until another session waits for something of this kind.
    async fn waits(&mut self, what: &str) {
        self.waits_for(what, Duration::ZERO).await;
    }

    /// Until another session has waited so long for something of this kind.
    async fn waits_for(&mut self, what: &str, time: Duration) {
        while self.sessions_waiting(what, time).await == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Other sessions that have waited so long for something of this kind.
    async fn sessions_waiting(&mut self, what: &str, time: Duration) -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE wait_event_type = $1 AND backend_type = 'client backend' AND pid <> pg_backend_pid() \
                   AND extract(epoch FROM clock_timestamp() - query_start)::float8 >= $2";
        let counted = sqlx::query_scalar::<_, i64>(sql).bind(what).bind(time.as_secs_f64());
        counted.fetch_one(&mut self.0).await.unwrap()
    }
}

/// What a network does to what goes through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fine,
    /// Nothing gets through, and nobody says so.
    Silent,
    /// Connections end at once.
    Cut,
    /// Ends all before the next commit gets to the server; then it is fine.
    BeforeCommit,
    /// Ends all when the server has answered the next commit; then it is as said.
    AfterCommit(&'static Self),
}

/// A network between a store and its server.
#[derive(Clone)]
struct Network {
    weather: Arc<Mutex<Weather>>,
    port: u16,
}

impl Network {
    async fn new(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let network = Self { weather: Arc::new(Mutex::new(Weather::Fine)), port };
        let (of, target) = (network.clone(), server.port);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let of = of.clone();
                tokio::spawn(async move { of.carry(client, target).await });
            }
        });
        network
    }

    fn is(&self) -> Weather {
        *self.weather.lock().unwrap()
    }

    fn becomes(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    /// Until one of the two, or the weather, ends it.
    async fn carry(&self, mut client: TcpStream, port: u16) {
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let mut committing = false;
        loop {
            let up_came = tokio::select! {
                came = client.read(&mut up) => Some(came.unwrap_or(0)),
                came = server.read(&mut down) => {
                    let came = came.unwrap_or(0);
                    if let (true, Weather::AfterCommit(then)) = (committing, self.is()) {
                        self.becomes(*then);
                        return;
                    }
                    if came == 0 || client.write_all(&down[..came]).await.is_err() {
                        return;
                    }
                    None
                }
            };
            let Some(came) = up_came else { continue };
            let commit = up[..came].windows(6).any(|word| word == b"COMMIT");
            match self.is() {
                Weather::BeforeCommit if commit => return self.becomes(Weather::Fine),
                Weather::AfterCommit(_) => committing |= commit,
                Weather::Silent if came > 0 => continue,
                Weather::Cut => return,
                _ => {}
            }
            if came == 0 || server.write_all(&up[..came]).await.is_err() {
                return;
            }
        }
    }
}

/// A store whose way to the server is `Network`.
async fn far(engine: Engine, options: Options) -> (Place, Store, Network) {
    let server = shared(engine);
    let (place, _) = Place::new(engine).await;
    let network = Network::new(server).await;
    let name = place.url.rsplit('/').next().unwrap();
    let url = server.url_by(network.port, name);
    (place, Store::open(Location::parse(Some(&url), None).unwrap(), options), network)
}

async fn a_commit_that_did_not_arrive(engine: Engine) {
    let (_place, store, network) = far(engine, options()).await;
    write(&store, vec![put(ObjectKind::Proxies, "p", "1")]).await;
    let mut change = store.begin(ann()).await.unwrap();
    change.put(vec![put(ObjectKind::Proxies, "p", "2")]).await.unwrap();
    network.becomes(Weather::BeforeCommit);
    let error = change.commit("").await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert_eq!(store.revision().await.unwrap(), 1);
    assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "p", "3")]).await, 2);
}

async fn a_commit_whose_answer_did_not_arrive(engine: Engine) {
    let (_place, store, network) = far(engine, options()).await;
    let mut change = store.begin(ann()).await.unwrap();
    change.put(vec![put(ObjectKind::Proxies, "p", "1")]).await.unwrap();
    network.becomes(Weather::AfterCommit(&Weather::Fine));
    assert_eq!(change.commit("").await.unwrap(), 1);
    assert_eq!(network.is(), Weather::Fine);
    assert_eq!(store.get(ObjectKind::Proxies, "p").await.unwrap().unwrap().document, "1");
}

async fn a_commit_nobody_knows_about(engine: Engine) {
    let short = Options { settle_timeout: Duration::from_millis(300), ..options() };
    let (place, store, network) = far(engine, short).await;
    let mut change = store.begin(ann()).await.unwrap();
    change.put(vec![put(ObjectKind::Proxies, "p", "1")]).await.unwrap();
    network.becomes(Weather::AfterCommit(&Weather::Cut));
    let error = change.commit("").await.unwrap_err();
    assert!(matches!(error, StoreError::Unknown { revision: 1, .. }), "{error}");
    assert!(!error.is_passing());
    // It is there, in truth.
    assert_eq!(place.open(options()).revision().await.unwrap(), 1);
    network.becomes(Weather::Fine);
    assert_eq!(store.revision().await.unwrap(), 1);
}

async fn a_network_that_swallows_everything(engine: Engine) {
    let short = Duration::from_millis(300);
    let short =
        Options { statement_timeout: short, connect_timeout: short, busy_timeout: short, ..options() };
    let (_place, store, network) = far(engine, short).await;
    write(&store, vec![put(ObjectKind::Proxies, "p", "1")]).await;
    let mut change = store.begin(ann()).await.unwrap();
    network.becomes(Weather::Silent);
    let mut errors = vec![change.put(vec![put(ObjectKind::Proxies, "p", "2")]).await.unwrap_err()];
    drop(change);
    for _ in 0..2 {
        errors.push(store.revision().await.unwrap_err());
        errors.push(store.load(|_| ()).await.unwrap_err());
    }
    for error in &errors {
        assert!(matches!(error, StoreError::Timeout { .. }), "{error}");
    }
    network.becomes(Weather::Fine);
    assert_eq!(store.revision().await.unwrap(), 1);
}

macro_rules! on_both_servers {
    ($($case:ident,)*) => {
        mod postgres {
            $(#[tokio::test] async fn $case() { super::$case(ferrum_edge::store::Engine::Postgres).await; })*
        }
        mod mariadb {
            $(#[tokio::test] async fn $case() { super::$case(ferrum_edge::store::Engine::MySql).await; })*
        }
    };
}

on_both_servers! {
    a_commit_that_did_not_arrive,
    a_commit_whose_answer_did_not_arrive,
    a_commit_nobody_knows_about,
    a_network_that_swallows_everything,
}

#[tokio::test]
async fn wrong_addresses_say_what_is_wrong_and_no_password() {
    for engine in [Engine::Postgres, Engine::MySql] {
        let server = shared(engine);
        let nobody = server
            .url("nowhere")
            .replace("ferrum:hush-hush", "nobody:hush-hush")
            .replace("root@", "nobody:hush-hush@");
        let cases = [
            (server.url("nowhere"), "no database"),
            (server.url_by(1, "any"), "can't be reached"),
            (nobody, "refuses"),
        ];
        for (url, expected) in cases {
            let store = Store::open(Location::parse(Some(&url), None).unwrap(), options());
            let error = store.revision().await.unwrap_err();
            let said = format!("{error} {error:?} {:?}", store.location());
            assert!(said.contains(expected), "{url}: {said}");
            assert!(!said.contains("hush"), "{said}");
        }
    }
    let wrong = [
        (Some("oracle://ann:hush@h/d"), None),
        (Some("postgres://ann:hush@h/d"), Some("mysql")),
        (Some("postgres://ann:hush@h:port/d"), None),
        (Some("hush"), None),
        (Some("sqlite::memory:"), None),
        (None, Some("postgres")),
        (None, Some("hush")),
        (Some("postgres://ann@h/d?sslmod=verify-full"), None),
        (Some("postgres://ann@h/d?SSLMODE=verify-full&port=1"), None),
        (Some("mysql://ann@h/d?ssl_mode=REQUIRED"), None),
    ];
    for (url, kind) in wrong {
        let error = Location::parse(url, kind).unwrap_err();
        assert!(
            matches!(error, StoreError::Location(_)) && !format!("{error:?}").contains("hush"),
            "{error:?}"
        );
    }
    let shown = Location::parse(
        Some("postgresql://ann:hu%40sh@db:5433/edge?sslmode=require&password=hush"),
        Some("postgres"),
    );
    assert_eq!(shown.unwrap().to_string(), "postgres://ann@db:5433/edge");
}

#[tokio::test]
async fn a_writer_that_gets_no_answer_tells_everybody_that_the_database_is_away() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://edge@{}/edge", silent.local_addr().unwrap());
    let location = Location::parse(Some(&url), None).unwrap();
    let store = Store::open(location, Options { connect_timeout: Duration::from_millis(100), ..options() });
    assert_eq!(store.away(), None);
    let error = refused(store.begin(ann()).await);
    assert_eq!(store.away().map(|away| away.cause), Some(error.to_string()));
}
