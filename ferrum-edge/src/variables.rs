//! The environment variables that say where the configuration is and who may change it. Secrets come this way only:
//! never from a flag, never from a file of settings that somebody checks in.

use std::env::{self, VarError};
use std::fs;

use gateway_core::config::problem::{Problem, Problems};

/// One environment variable of the database mode. The same name with `_FILE` behind it names a file that holds the
/// value.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub doc: &'static str,
}

/// Every one of them.
#[rustfmt::skip]
pub const VARIABLES: &[Variable] = &[
    Variable { name: "FERRUM_MODE", doc: "Where the configuration comes from: `file`, `database`, `control-plane` (a database, for a fleet) or `edge` (a control plane). Default `file`." },
    Variable { name: "FERRUM_STATE", doc: "Folder for the state of a gateway: the default database, `admin.token`, and the list of running gateways. Default /var/lib/ferrum-edge if it is writable, else below ~/.local/share." },
    Variable { name: "FERRUM_DB_TYPE", doc: "`sqlite`, `postgres` or `mysql`. Default from FERRUM_DB_URL, else `sqlite`." },
    Variable { name: "FERRUM_DB_URL", doc: "`sqlite:FILE`, `postgres://USER:PASSWORD@HOST/DATABASE` or `mysql://…`, with parameters behind `?`: for PostgreSQL `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`; default `prefer`, which checks no certificate), `sslrootcert`, `sslcert`, `sslkey`, `options`, for MySQL `ssl-mode`, `ssl-ca`, `ssl-cert`, `ssl-key`; unknown ones are rejected. A relative `sqlite:g.db` is beside the default database; `sqlite:./g.db` is where the program was started. Default SQLite in ferrum.db in the folder of FERRUM_STATE." },
    Variable { name: "FERRUM_DB_ENCRYPTION_KEY", doc: "Keys for secrets at rest, 32 bytes each in base64 or hexadecimal, with commas between: the first encrypts, all decrypt. Default none: secrets that cannot be hashed are rejected." },
    Variable { name: "FERRUM_DB_REFERENCES", doc: "What objects in the database may refer to, separated by commas: `env:NAME` or `env:PREFIX_*` for `${env:NAME}`, `file:PATH` for `${file:PATH}` and for plugins' settings that name a file or folder, itself or below a folder. Default nothing: an object with a reference or such a setting is rejected." },
    Variable { name: "FERRUM_DB_KEEP_REVISIONS", doc: "Revisions of which the history is kept. Default 10000." },
    Variable { name: "FERRUM_DB_KEEP_AUDIT", doc: "Entries of the audit that are kept. Default 100000." },
    Variable { name: "FERRUM_DB_KEEP_AUDIT_DAYS", doc: "Days an entry of the audit is kept. Default 365." },
    Variable { name: "FERRUM_DB_POLL_INTERVAL_MS", doc: "Interval in milliseconds at which the gateway checks for other writers' changes. Default 250 for SQLite, 500 for MySQL; PostgreSQL notifies it." },
    Variable { name: "FERRUM_DB_LAST_GOOD", doc: "File of the last good configuration, from which the gateway starts if the database is unreachable; `off` disables it. Default a file for each database server, last-good-*.db beside the default database; off for SQLite." },
    Variable { name: "FERRUM_FLEET_LISTEN", doc: "Control plane: IP and port of the listener for edges. Default 0.0.0.0:9443." },
    Variable { name: "FERRUM_FLEET_ADDRESS", doc: "Control plane: HOST:PORT of this control plane, or of a load balancer before several, for invitations. Default the listener's." },
    Variable { name: "FERRUM_FLEET_DOMAIN", doc: "Control plane: the trust domain of SPIFFE ids, `spiffe://DOMAIN/edge/GROUP/ID`. Default `ferrum-fleet`." },
    Variable { name: "FERRUM_FLEET_CA_CERT", doc: "Control plane: certificate of your own authority, a root or an intermediate, for certificates of edges, in PEM. Edges also trust further authorities behind it, such as the next one. Default: the control plane creates one in the database." },
    Variable { name: "FERRUM_FLEET_CA_KEY", doc: "Control plane: key of the first of those certificates in PEM, not encrypted." },
    Variable { name: "FERRUM_EDGE_STATE", doc: "Edge: folder of its identity and of the last good configuration. Default `edge` beside the default database." },
    Variable { name: "FERRUM_EDGE_INVITATION", doc: "Edge: invitation to enrol with, `ferrum-fleet://…`; used once. A new one enrols an enrolled edge again." },
    Variable { name: "FERRUM_EDGE_CONTROL_PLANES", doc: "Edge: HOST:PORT of each control plane, separated by commas. Default the one in the invitation." },
    Variable { name: "FERRUM_EDGE_FIRST_CONFIGURATION", doc: "Edge: a configuration file, or an http:// or https:// URL of one, to start from without a last good configuration." },
    Variable { name: "FERRUM_EDGE_START_TIMEOUT", doc: "Edge: how long a new one waits for its first configuration before it exits, such as `5m`. Default 60s." },
    Variable { name: "FERRUM_ADMIN_TOKEN", doc: "Bearer token with the role admin, at least 16 characters. Without any token or JWT secret, the gateway creates one in the file admin.token: beside SQLite's file in database mode, in FERRUM_EDGE_STATE at an edge, else in FERRUM_STATE. Commands of the same user find it there." },
    Variable { name: "FERRUM_ADMIN_WRITE_TOKEN", doc: "Bearer token with the role write." },
    Variable { name: "FERRUM_ADMIN_READ_TOKEN", doc: "Bearer token with the role read." },
    Variable { name: "FERRUM_ADMIN_JWT_SECRET", doc: "Secret of HS256 tokens with the claims sub, exp and role (read, write or admin), at least 32 bytes." },
    Variable { name: "FERRUM_ADMIN_JWT_ISSUER", doc: "Required `iss` of those tokens. Default any." },
    Variable { name: "FERRUM_ADMIN_URL", doc: "For commands: the admin listener, as --admin. Default that of the configuration file in use, else of the gateway that runs here, else 127.0.0.1:9000." },
    Variable { name: "FERRUM_ADMIN_CA_CERT", doc: "For commands: PEM file of the roots that an admin API is checked against with `--admin https://…`. Default the public roots." },
    Variable { name: "FERRUM_ADMIN_CLIENT_CERT", doc: "For commands: PEM file of the certificate that is shown to an admin API." },
    Variable { name: "FERRUM_ADMIN_CLIENT_KEY", doc: "For commands: PEM file of that certificate's key." },
];

/// What is wrong with a value that is no text.
pub(crate) const NOT_UTF_8: &str = "its value is not UTF-8";

/// Reads a variable, or the file that the one with `_FILE` behind its name names.
///
/// # Errors
/// When that file can't be read, a value is not UTF-8, or both are set.
pub fn variable(name: &str) -> Result<Option<String>, Problem> {
    let set = |name: &str| match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Problem::new(name, NOT_UTF_8)),
    };
    let file = format!("{name}_FILE");
    let path = match (set(name)?, set(&file)?) {
        (Some(_), Some(_)) => {
            return Err(Problem::new(file, format!("{name} is set too")).remedy("set one of the two"));
        }
        (value, None) => return Ok(value),
        (None, Some(path)) => path,
    };
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) => Err(Problem::new(file, format!("{path} can't be read: {error}"))),
    }
}

/// The same, with what is wrong noted.
pub(crate) fn taken(problems: &mut Problems, name: &str) -> Option<String> {
    variable(name).unwrap_or_else(|problem| {
        problems.0.push(problem);
        None
    })
}
