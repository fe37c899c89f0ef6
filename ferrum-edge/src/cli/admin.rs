//! Asking a gateway's admin API, or a store's as if a gateway ran on it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gateway_core::config::model::Settings;
use gateway_core::plugin::Registry;
use serde_json::Value;

use super::address::AdminAddress;
use super::database::DatabaseArgs;
use super::running::{self, FoundGateway, Wanted};
use super::{FAILED, MISUSED, print};
use crate::access::Access;
use crate::app::Gateway;
use crate::source::database::Database;
use crate::store::{Location, Options, Store};

/// Whom to ask.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct AdminArgs {
    /// The admin listener of a running gateway: HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH [env: FERRUM_ADMIN_URL] [default: that of ./ferrum.yaml, else of the gateway that runs here, else 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["db_url", "db_type"])]
    admin: Option<AdminAddress>,
    /// Works on this database itself, without a running gateway; those that run on it follow
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Which running gateway to ask; a database has no traffic.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct GatewayArgs {
    /// The admin listener of a running gateway: HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH [env: FERRUM_ADMIN_URL] [default: that of ./ferrum.yaml, else of the gateway that runs here, else 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<AdminAddress>,
}

/// Somebody who answers as the admin API does.
pub(super) struct Admin {
    address: AdminAddress,
    token: Option<String>,
    /// The file of a token that this user may not read.
    unreadable: Option<PathBuf>,
    /// What to say when nobody answers.
    elsewhere: &'static str,
    /// Answers for a store; ends with this.
    _gateway: Option<Gateway>,
}

/// An answer.
pub(super) struct AdminResponse {
    pub(super) status: u16,
    /// The document; `Null` when there is none.
    pub(super) body: Value,
}

/// Why nothing is followed.
pub(super) enum Unfollowed {
    Away(io::Error),
    Refused(AdminResponse),
}

/// The exit code for an answer that is an error: the gateway checks some arguments.
pub(super) fn exit_code(answer: &AdminResponse) -> u8 {
    if answer.status == 400 { MISUSED } else { FAILED }
}

const OTHER_GATEWAY: &str = "Specify its address: --admin ADDRESS";
const OTHER_GATEWAY_OR_DATABASE: &str =
    "Specify the address of a gateway: --admin ADDRESS, or a database: --db-url URL";

/// For one answer; a change of a large configuration takes its time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// For an answer of health.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// For the next line of an answer that goes on.
const QUIET_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a line that is read.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// Bytes of an answer that are read.
const MAX_ANSWER_BYTES: u64 = 4 << 30;

impl AdminArgs {
    /// As [`Self::open`], for those who only read or check: they don't make a database where there is none.
    pub(super) fn open_existing(&self, registry: Registry) -> Result<Admin, u8> {
        if self.database.is_given()
            && let Ok(location) = self.database.location()
        {
            if let Some(path) = location.path().filter(|path| !path.exists()) {
                let shown = path.display();
                print::error(format_args!(
                    "There is no database at {shown}; `ferrum-edge migrate` makes one"
                ));
                return Err(FAILED);
            }
            let shown = location.to_string();
            if let Some(step) = first_pending(location)? {
                print::error(format_args!(
                    "The database {shown} has an older schema ({step} is to be done), and this command changes nothing; \
                     `ferrum-edge migrate` brings it up to date"
                ));
                return Err(FAILED);
            }
        }
        self.open(registry)
    }

    /// Whoever answers; else the exit code, after telling why.
    pub(super) fn open(&self, registry: Registry) -> Result<Admin, u8> {
        if self.database.is_given() {
            return self.store(registry);
        }
        Admin::with_token(self.admin.as_ref(), OTHER_GATEWAY_OR_DATABASE)
    }

    /// Whether a database is asked rather than a running gateway.
    pub(super) fn is_database(&self) -> bool {
        self.database.is_given()
    }

    /// A gateway without listeners on the store, for as long as it is asked.
    fn store(&self, registry: Registry) -> Result<Admin, u8> {
        let failed = |error: &dyn std::fmt::Display| {
            print::error(error);
            FAILED
        };
        let mut token = [0_u8; 24];
        aws_lc_rs::rand::fill(&mut token).map_err(|error| failed(&error))?;
        let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut access = Access::default();
        access.add_command(&token, &super::user()).map_err(|error| failed(&error))?;
        let location = self.database.location().map_err(|problems| failed(&problems))?;
        let database = Database::for_tools(location, access).map_err(|problems| failed(&problems))?;
        // Which Redis servers the gateways know is not in the database.
        let settings = Settings {
            carries_traffic: false,
            http: None,
            https: None,
            workers: 1,
            access_log: None,
            redis: None,
            ..Settings::default()
        };
        let gateway = Gateway::start_closed(settings.into(), database, registry).map_err(|e| failed(&e))?;
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = gateway.serve_admin(loopback).map_err(|error| failed(&error))?;
        let elsewhere = OTHER_GATEWAY_OR_DATABASE;
        let gateway = Some(gateway);
        Ok(Admin {
            address: address.into(),
            token: Some(token),
            unreadable: None,
            elsewhere,
            _gateway: gateway,
        })
    }
}

/// The first migration that a database lacks. What keeps it from answering is told by whoever opens it.
fn first_pending(location: Location) -> Result<Option<&'static str>, u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        print::error(error);
        FAILED
    })?;
    let pending =
        runtime.block_on(async { Store::open(location, Options::default()).pending_migrations().await });
    Ok(pending.ok().and_then(|pending| pending.first().copied()))
}

impl GatewayArgs {
    /// The gateway; else the exit code, after telling why.
    pub(super) fn open(&self) -> Result<Admin, u8> {
        Admin::with_token(self.admin.as_ref(), OTHER_GATEWAY)
    }
}

impl Admin {
    fn with_token(address: Option<&AdminAddress>, elsewhere: &'static str) -> Result<Self, u8> {
        let found = running::find(&Wanted { admin: address, ..Wanted::default() })?;
        Ok(Self::of(found, elsewhere))
    }

    /// Asks; when the answer is not a good one, tells why and hands out the exit code.
    pub(super) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, u8> {
        match self.exchange(method, path, body) {
            Ok(AdminResponse { status: 200..300, body }) => Ok(body),
            Ok(answer) => {
                self.tell(&answer);
                Err(exit_code(&answer))
            }
            Err(error) => {
                print::error(format_args!("No gateway answers at {}: {error}", self.address));
                print::error(self.elsewhere);
                Err(FAILED)
            }
        }
    }

    fn of(found: FoundGateway, elsewhere: &'static str) -> Self {
        let FoundGateway { address, token, unreadable } = found;
        Self { address, token, unreadable, elsewhere, _gateway: None }
    }

    /// The gateway that a command means.
    ///
    /// # Errors
    /// The exit code, after telling why it isn't clear.
    pub(super) fn find(wanted: &Wanted<'_>) -> Result<Self, u8> {
        running::find(wanted).map(|found| Self::of(found, OTHER_GATEWAY))
    }

    /// Where it is.
    pub(super) fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// Tells a person what an error document says, and where a token is missing, where to find it.
    pub(super) fn tell(&self, answer: &AdminResponse) {
        tell(answer);
        if let (401, Some(file)) = (answer.status, &self.unreadable) {
            let file = file.display();
            print::error(format_args!("its token is in {file}, which only the gateway's user may read"));
        }
    }

    /// The same gateway, to be asked by another thread.
    #[cfg(feature = "top")]
    pub(super) fn again(&self) -> Self {
        Self {
            address: self.address.clone(),
            token: self.token.clone(),
            unreadable: self.unreadable.clone(),
            elsewhere: self.elsewhere,
            _gateway: None,
        }
    }

    /// Its address, for people.
    #[cfg(feature = "top")]
    pub(super) fn shown(&self) -> String {
        self.address.to_string()
    }

    /// Reads the lines of an answer as they come, for as long as `take` wants more.
    pub(super) fn follow(&self, path: &str, take: impl FnMut(&str) -> bool) -> Result<(), u8> {
        self.try_follow(path, take).map_err(|error| match error {
            Unfollowed::Refused(answer) => {
                self.tell(&answer);
                exit_code(&answer)
            }
            Unfollowed::Away(error) => {
                print::error(format_args!("No gateway answers at {}: {error}", self.address));
                print::error(self.elsewhere);
                FAILED
            }
        })
    }

    /// The same, and says nothing.
    pub(super) fn try_follow(
        &self,
        path: &str,
        mut take: impl FnMut(&str) -> bool,
    ) -> Result<(), Unfollowed> {
        let failed = Unfollowed::Away;
        // A gateway that has nothing to say sends an empty line from time to time.
        let mut stream = self.address.connect(QUIET_TIMEOUT).map_err(failed)?;
        stream.write_all(self.head("GET", path, 0).as_bytes()).map_err(failed)?;
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = lines.by_ref().take(MAX_LINE_BYTES).read_line(&mut head).map_err(failed)?;
            if read == 0 || head.len() as u64 > MAX_LINE_BYTES {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        if status != 200 {
            let mut body = Vec::new();
            lines.take(MAX_LINE_BYTES).read_to_end(&mut body).map_err(failed)?;
            let body = serde_json::from_slice(&body).unwrap_or_default();
            return Err(Unfollowed::Refused(AdminResponse { status, body }));
        }
        loop {
            let mut line = Vec::new();
            let read = lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            // The gateway ended it, or a part of it.
            if read.map_err(failed)? == 0 || !line.ends_with(b"\n") {
                return Ok(());
            }
            if !take(&String::from_utf8_lossy(&line)) {
                return Ok(());
            }
        }
    }

    /// HTTP/1.0, so that the document ends with the connection and comes in one piece.
    fn head(&self, method: &str, path: &str, length: usize) -> String {
        let token = self
            .token
            .as_ref()
            .map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{token}\r\n",
            self.address.host(),
        )
    }

    /// Asks for a path that answers with text, as health does: the status and the text.
    pub(super) fn text(&self, path: &str) -> io::Result<(u16, String)> {
        let mut stream = self.address.connect(CHECK_TIMEOUT)?;
        stream.write_all(self.head("GET", path, 0).as_bytes())?;
        let mut answer = String::new();
        stream.take(MAX_LINE_BYTES).read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        let not_admin = || io::Error::new(io::ErrorKind::InvalidData, NOT_ADMIN);
        status.zip(body).ok_or_else(not_admin)
    }

    /// Asks, whatever the answer is.
    pub(super) fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> io::Result<AdminResponse> {
        let mut stream = self.address.connect(ANSWER_TIMEOUT)?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = self.head(method, path, body.len());
        stream.write_all(head.as_bytes())?;
        // Who refuses early may not read it all, and may close before all of the answer is read; what came of it says why.
        let written = stream.write_all(body.as_bytes());
        let mut answer = Vec::new();
        let read = stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer);
        let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Err(written
                .err()
                .or_else(|| read.err())
                .unwrap_or_else(|| io::ErrorKind::InvalidData.into()));
        };
        let (head, body) = answer.split_at(end + 4);
        let head = String::from_utf8_lossy(head);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not an admin listener"))?;
        let not_admin = |_| io::Error::new(io::ErrorKind::InvalidData, NOT_ADMIN);
        let body =
            if body.is_empty() { Value::Null } else { serde_json::from_slice(body).map_err(not_admin)? };
        Ok(AdminResponse { status, body })
    }
}

/// Answers of admin listeners say what is wrong.
const NOT_ADMIN: &str = "this is not an answer of an admin listener; check the address of --admin";

/// Tells a person what an error document says.
pub(super) fn tell(AdminResponse { status, body }: &AdminResponse) {
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let detail = match text(body, "detail") {
        detail if detail.is_empty() => NOT_ADMIN.to_owned(),
        detail => detail,
    };
    print::error(format_args!("{detail} ({status})"));
    if *status == 401 {
        print::error("set FERRUM_ADMIN_TOKEN to a token of the gateway");
    }
    for error in body.get("errors").and_then(Value::as_array).into_iter().flatten() {
        let remedy = match text(error, "remedy") {
            remedy if remedy.is_empty() => remedy,
            remedy => format!(" ({remedy})"),
        };
        let place = match text(error, "pointer") {
            pointer if pointer.is_empty() => pointer,
            pointer => format!("{pointer}: "),
        };
        print::error(format_args!("{place}{}{remedy}", text(error, "detail")));
    }
}
