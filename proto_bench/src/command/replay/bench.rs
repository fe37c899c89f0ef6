//! Runs the rows of a replay: subjects up at once, in turns.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use super::{missing, show};
use crate::command::CommandError;
use crate::command::measure::{Console, row as empty_row};
use crate::command::run::note_limits;
use crate::command::stand::{Stand, StandError, probe};
use crate::measure::{Role, Watched, process};
use crate::plan::{ExpectBody, Message, Method, Pace, Plan, Protocol, Target};
use crate::process::{BackendProcess, Server};
use crate::replay::template::Values;
use crate::replay::tokens::Tokens;
use crate::replay::{Program, Row, Setup, Subject, Table, content};
use crate::report::Document;
use crate::report::model::{self, ReplayRow, Start, Verdict};
use crate::text_files::write_file;

/// How long an answer may take: as long as the published tests waited.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long all clients of a row may take to connect.
const CONNECT: Duration = Duration::from_secs(30);

/// Connections to one address that a machine has ports for, with some to spare.
const PORTS: u32 = 25_000;

/// What the command line says of all rows.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    pub(super) seconds: Option<f64>,
    pub(super) clients: Option<u32>,
    pub(super) rounds: u32,
    pub(super) warm_up: Duration,
    pub(super) scale_down: bool,
    /// Files that a process may have open.
    pub(super) descriptors: u64,
}

/// Everything that rows need.
pub(super) struct Bench<'a> {
    pub(super) table: &'a Table,
    pub(super) programs: Vec<(&'a Subject, Option<PathBuf>)>,
    pub(super) sizes: Sizes,
    pub(super) stand: Stand,
    pub(super) backend: BackendProcess,
    pub(super) mirror: Option<BackendProcess>,
    pub(super) tokens: Tokens,
    pub(super) server_cores: Vec<usize>,
}

/// A subject that is up for a row.
struct Ready<'a> {
    subject: &'a Subject,
    server: Server,
    plan: Plan,
}

/// More clients than a process may have files open for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{clients} clients need {needed} open files in one process, and the limit here is {limit} (ulimit -n)"
)]
struct FileShortage {
    clients: u32,
    needed: u64,
    limit: u64,
}

/// Why a row cannot be run with its clients, and with how many it could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{shortage}; --scale-down takes {fewer} clients")]
pub(super) struct TooFewFiles {
    shortage: FileShortage,
    fewer: u32,
}

impl Sizes {
    /// The clients of a row, and what is to be said of them; or why it cannot be run.
    pub(super) fn clients(&self, row: &Row, setup: &Setup) -> Result<(u32, Option<String>), TooFewFiles> {
        let asked = self.clients.unwrap_or(row.clients);
        let needed = row.descriptors(setup, asked);
        if needed <= self.descriptors {
            return Ok((asked, None));
        }
        let fewer = row.most_clients(setup, self.descriptors);
        let shortage = FileShortage { clients: asked, needed, limit: self.descriptors };
        if self.scale_down && fewer > 0 {
            return Ok((fewer, Some(format!("{shortage}: measured with {fewer} clients (--scale-down)"))));
        }
        Err(TooFewFiles { shortage, fewer })
    }

    /// Rounds of a row: no more than there are ports for, since those of closed connections are not free again at once.
    fn rounds(&self, clients: u32) -> u32 {
        self.rounds.min((PORTS / clients.max(1)).max(1))
    }

    /// Measured time of each of them.
    fn round(&self, row: &Row, clients: u32) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(row.seconds) / f64::from(self.rounds(clients)))
    }
}

impl<'a> Bench<'a> {
    /// All rounds of a row.
    pub(super) fn row(
        &self,
        row: &Row,
        document: &mut Document,
        console: &mut Console,
    ) -> Result<(), CommandError> {
        let Some(setup) = self.table.setups.get(&row.setup) else { return Ok(()) };
        let mut published = ReplayRow {
            id: row.id.clone(),
            label: row.label.clone(),
            published_clients: row.clients,
            clients: row.clients,
            published_seconds: row.seconds,
            seconds: self.sizes.seconds.unwrap_or(row.seconds),
            published: row.published.clone(),
            differs: row.differs.clone(),
            skipped: row.skip.clone(),
        };
        match self.sizes.clients(row, setup) {
            Ok((clients, said)) => {
                published.clients = clients;
                document.notes.extend(said.map(|said| format!("{}: {said}.", row.id)));
            }
            Err(reason) => published.skipped = published.skipped.or_else(|| Some(reason.to_string())),
        }
        let (clients, skipped) = (published.clients, published.skipped.is_some());
        if let Some(replay) = &mut document.replay {
            replay.rows.push(published);
        }
        if skipped {
            return Ok(());
        }
        let mut ready = Vec::new();
        for number in 0..self.programs.len() {
            console.label(format!("{}: starting", row.id));
            ready.extend(self.start(number, row, setup, clients, document));
        }
        for round in 0..self.sizes.rounds(clients) as usize {
            // Nobody is always the one behind the same other.
            for at in 0..ready.len() {
                let one = &ready[(round + at) % ready.len()];
                self.round(row, one, document, console)?;
            }
        }
        Ok(())
    }

    /// Starts a subject, unless it can't do this.
    fn start(
        &self,
        number: usize,
        row: &Row,
        setup: &Setup,
        clients: u32,
        document: &mut Document,
    ) -> Option<Ready<'a>> {
        let (subject, program) = self.programs.get(number)?;
        let plan = |listen| self.plan(row, clients, listen);
        let Some(own) = setup.with.get(&subject.name) else {
            let reason = setup.without.get(&subject.name).cloned().unwrap_or_default();
            return refuse(document, row, subject, &plan(SocketAddr::from(([127, 0, 0, 1], 0))), reason);
        };
        let Some(program) = program else {
            let plan = plan(SocketAddr::from(([127, 0, 0, 1], 0)));
            return refuse(document, row, subject, &plan, missing(subject.program));
        };
        let directory = self.stand.directory.join(format!("{}-{}", row.id, subject.name));
        let started =
            self.serve(subject, program, own, setup, &directory).and_then(|(server, listen, start, text)| {
                let plan = plan(listen);
                probe(&plan)?;
                Ok((Ready { subject, server, plan }, start, text))
            });
        match started {
            Ok((ready, start, text)) => {
                document.configurations.insert(format!("{} {}", subject.name, row.setup), text);
                note_limits(document, &ready.plan);
                if let Some(replay) = &mut document.replay
                    && !replay.starts.iter().any(|known| known.subject == start.subject)
                {
                    replay.starts.push(start);
                }
                Some(ready)
            }
            Err(reason) => {
                let plan = plan(SocketAddr::from(([127, 0, 0, 1], 0)));
                refuse(document, row, subject, &plan, format!("failed: {reason}"))
            }
        }
    }

    /// Starts a program with its configuration and waits until it accepts.
    fn serve(
        &self,
        subject: &Subject,
        program: &Path,
        own: &str,
        setup: &Setup,
        directory: &Path,
    ) -> Result<(Server, SocketAddr, Start, String), StandError> {
        let fail = |source| StandError::File { path: directory.to_owned(), source };
        fs::create_dir_all(directory).map_err(fail)?;
        let listen = self.stand.port()?;
        let values = self.values(listen, self.stand.port()?, setup, directory);
        let text = show::configuration(subject, own, &values);
        let file = directory.join(show::file_name(subject.program));
        write_file(&file, &text).map_err(|error| StandError::Probe(error.to_string()))?;
        let command = command(subject.program, program, &file, directory, self.server_cores.len());
        let mut server = Server::start(&subject.name, &command, directory, &self.server_cores)?;
        let took = server.wait_listening(listen)?;
        let start = Start {
            subject: subject.name.clone(),
            program_bytes: fs::metadata(program).map_or(0, |program| program.len()),
            milliseconds: took.as_secs_f64() * 1e3,
            resident_bytes: process::usage(server.pid()).unwrap_or_default().resident_bytes,
        };
        Ok((server, listen, start, text))
    }

    fn values(&self, listen: SocketAddr, admin: SocketAddr, setup: &Setup, directory: &Path) -> Values {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let http = |backend: Option<&BackendProcess>| backend.and_then(|it| it.ports.http).unwrap_or(nowhere);
        let backend = if setup.backend { http(Some(&self.backend)) } else { nowhere };
        let file = |name: &str| self.stand.directory.join(name).to_string_lossy().into_owned();
        let mut values = Values::default();
        values.set("listen", listen);
        values.set("port", listen.port());
        values.set("admin", admin);
        values.set("backend", backend);
        values.set("backend_host", backend.ip());
        values.set("backend_port", backend.port());
        values.set("mirror", http(self.mirror.as_ref()));
        values.set("directory", directory.to_string_lossy());
        values.set("site", file("site"));
        values.set("scripts", file("scripts"));
        values.set("certificate", file("cert.pem"));
        values.set("key", file("key.pem"));
        values.set("both", file("both.pem"));
        values.set("workers", self.server_cores.len().max(1));
        // HAProxy refuses to start with more than its open files allow, two for each connection.
        values.set("connections", (self.sizes.descriptors.saturating_sub(500) / 2).min(32_768));
        values.set("jwks", format!("http://{}/.well-known/jwks.json", self.tokens.jwks));
        self.tokens(&mut values);
        values
    }

    fn tokens(&self, values: &mut Values) {
        values.set("hs256", &self.tokens.hs256);
        values.set("rs256", &self.tokens.rs256);
        values.set("es256", &self.tokens.es256);
    }

    /// The plan of one round.
    fn plan(&self, row: &Row, clients: u32, listen: SocketAddr) -> Plan {
        let mut values = Values::default();
        self.tokens(&mut values);
        let mut plan =
            Plan::new(Target::at(Protocol::Http1, row.tls, listen).with_path(&values.fill(&row.path)));
        plan.load.connections = clients;
        plan.load.pace = row.rate.map_or(Pace::Closed, |rate| Pace::Open { rate });
        plan.timing.warm_up = self.sizes.warm_up;
        plan.timing.duration = self.sizes.round(row, clients);
        plan.timing.timeout = TIMEOUT;
        plan.timing.connect = CONNECT;
        let body = row.send.as_ref().map(|body| Bytes::copy_from_slice(values.fill(body).as_bytes()));
        plan.message = Message {
            method: if body.is_some() { Method::Post } else { Method::Get },
            payload: body.as_ref().map_or(0, Bytes::len),
            headers: row.headers.iter().map(|(name, value)| (name.clone(), values.fill(value))).collect(),
            fresh: false,
            body,
            varied: false,
        };
        plan.expect.status = row.answer.status;
        plan.expect.refused = row.answer.refused;
        plan.coding = row.answer.coding;
        match content::expected(self.table, row) {
            Some(content) => plan.expect_content(content),
            None => plan.expect.body = ExpectBody::Unverified,
        }
        plan
    }

    fn round(
        &self,
        row: &Row,
        Ready { subject, server, plan }: &Ready<'_>,
        document: &mut Document,
        console: &mut Console,
    ) -> Result<(), CommandError> {
        console.label(format!("{} {}", row.id, subject.name));
        #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
        let cores = (self.server_cores.len() as f64, plan.threads as f64);
        let backend =
            |name: &str, pid| Watched { role: Role::Backend, name: name.to_owned(), pid, cores: cores.1 };
        let mut watched = vec![
            Watched { role: Role::Subject, name: subject.name.clone(), pid: server.pid(), cores: cores.0 },
            backend("backend", self.backend.pid()),
        ];
        watched.extend(self.mirror.as_ref().map(|mirror| backend("mirror", mirror.pid())));
        let round = console.round(plan, &watched)?;
        entry(document, row, subject, plan).rounds.push(round);
        Ok(())
    }
}

/// Says in the document why a subject is not measured in a row.
fn refuse<'a>(
    document: &mut Document,
    row: &Row,
    subject: &Subject,
    plan: &Plan,
    reason: String,
) -> Option<Ready<'a>> {
    entry(document, row, subject, plan).verdict = Verdict::Unavailable(reason);
    None
}

/// The document's row of a replayed row and subject, made when it is first asked for.
fn entry<'d>(document: &'d mut Document, row: &Row, subject: &Subject, plan: &Plan) -> &'d mut model::Row {
    let found = document.rows.iter().position(|known| known.id == row.id && known.subject == subject.name);
    let at = found.unwrap_or_else(|| {
        let mut made = empty_row(&row.id, &row.label, &subject.name, plan);
        let tls = if row.tls { " over TLS" } else { "" };
        made.path = format!("HTTP/1.1{tls} → {} {}", subject.name, plan.target.path);
        document.rows.push(made);
        document.rows.len() - 1
    });
    &mut document.rows[at]
}

/// How a program is started with a configuration.
fn command(program: Program, path: &Path, file: &Path, directory: &Path, cores: usize) -> Vec<String> {
    let (path, file) = (path.to_string_lossy().into_owned(), file.to_string_lossy().into_owned());
    match program {
        Program::Gateway => vec![path, "run".to_owned(), "--spec".to_owned(), file],
        Program::Nginx => vec![path, "-c".to_owned(), file],
        Program::Haproxy => vec![path, "-db".to_owned(), "-f".to_owned(), file],
        // Caddy takes its number of threads and its folder from the environment alone.
        Program::Caddy => vec![
            "env".to_owned(),
            format!("GOMAXPROCS={}", cores.max(1)),
            format!("HOME={}", directory.to_string_lossy()),
            path,
            "run".to_owned(),
            "--adapter".to_owned(),
            "caddyfile".to_owned(),
            "--config".to_owned(),
            file,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Seed;

    fn sizes(descriptors: u64, scale_down: bool) -> Sizes {
        Sizes { seconds: None, clients: None, rounds: 3, warm_up: Duration::ZERO, scale_down, descriptors }
    }

    #[test]
    fn rows_beyond_the_open_files_are_left_out_or_scaled_down_and_say_so() {
        let table = Seed::Hotdogs.table().expect("a table");
        let row = table.rows.iter().find(|row| row.id == "10000-proxy").expect("a row");
        let setup = &table.setups[&row.setup];
        assert_eq!(sizes(100_000, false).clients(row, setup), Ok((10_000, None)));
        let reason = sizes(20_000, false).clients(row, setup).expect_err("too few").to_string();
        assert!(reason.contains("20512") && reason.contains("--scale-down takes 9744"), "{reason}");
        let (clients, said) = sizes(20_000, true).clients(row, setup).expect("fewer clients");
        assert!(clients == 9_744 && said.is_some_and(|said| said.contains("9744 clients")));
        assert!(sizes(100, true).clients(row, setup).is_err(), "not even one client");
        let few = Sizes { clients: Some(10), ..sizes(1_024, false) };
        assert_eq!(few.clients(row, setup), Ok((10, None)));
    }

    #[test]
    fn rounds_share_the_seconds() {
        let table = Seed::Hotdogs.table().expect("a table");
        assert_eq!(sizes(0, false).round(&table.rows[0], 200), Duration::from_secs(10));
        assert_eq!(sizes(0, false).rounds(10_000), 2, "ports are not free again at once");
        assert_eq!(sizes(0, false).round(&table.rows[0], 10_000), Duration::from_secs(15));
        let short = Sizes { seconds: Some(1.5), ..sizes(0, false) };
        assert_eq!(short.round(&table.rows[0], 200), Duration::from_millis(500));
    }
}
