//! How an edge finds its control plane, as the environment says.

use std::path::PathBuf;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Unit;
use gateway_fleet::{Invitation, is_address};

use crate::source::database::Permitted;
use crate::store::default_path;
use crate::variables::taken;

/// How long a new edge waits for its first configuration.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How an edge finds its control plane.
#[derive(Debug, Clone)]
pub(crate) struct EdgeOptions {
    /// The folder of its identity and of the last good configuration.
    pub(crate) state: PathBuf,
    /// Used once, while there is no identity.
    pub(crate) invitation: Option<Invitation>,
    /// `HOST:PORT` each; empty: the one of the invitation.
    pub(crate) control_planes: Vec<String>,
    /// A file or URL to start from without a last good configuration.
    pub(crate) first: Option<String>,
    /// How long to wait for the first configuration.
    pub(crate) start_timeout: Duration,
    /// What objects may refer to.
    pub(crate) references: Permitted,
}

impl EdgeOptions {
    /// As the environment says.
    ///
    /// # Errors
    /// Every problem there is; none repeats a code.
    pub(crate) fn from_environment() -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let state = taken(&mut problems, "FERRUM_EDGE_STATE").map(PathBuf::from);
        let state = state.unwrap_or_else(|| default_path().with_file_name("edge"));
        let invitation = taken(&mut problems, "FERRUM_EDGE_INVITATION").and_then(|text| {
            let parsed = text.parse::<Invitation>();
            parsed.map_err(|error| problems.add("FERRUM_EDGE_INVITATION", error.to_string())).ok()
        });
        let listed = taken(&mut problems, "FERRUM_EDGE_CONTROL_PLANES").unwrap_or_default();
        let listed = listed.split(',').map(str::trim).filter(|address| !address.is_empty());
        let control_planes: Vec<String> = listed.map(str::to_owned).collect();
        for address in control_planes.iter().filter(|address| !is_address(address)) {
            problems.add("FERRUM_EDGE_CONTROL_PLANES", format!("`{address}` is not HOST:PORT"));
        }
        let first = taken(&mut problems, "FERRUM_EDGE_FIRST_CONFIGURATION");
        let timeout =
            taken(&mut problems, "FERRUM_EDGE_START_TIMEOUT").map(|text| Unit::Milliseconds.read(&text));
        let start_timeout = match timeout {
            None => START_TIMEOUT,
            Some(Ok(millis)) if millis > 0 => Duration::from_millis(millis),
            Some(_) => {
                problems.add("FERRUM_EDGE_START_TIMEOUT", "this is not a duration above 0").remedy =
                    Some("such as 30s or 5m".to_owned());
                START_TIMEOUT
            }
        };
        let references = taken(&mut problems, "FERRUM_DB_REFERENCES").unwrap_or_default();
        let references = references.parse().unwrap_or_else(|problem| {
            let problem: gateway_core::config::problem::Problem = problem;
            problems.0.push(gateway_core::config::problem::Problem {
                path: "FERRUM_DB_REFERENCES".to_owned(),
                ..problem
            });
            Permitted::default()
        });
        problems.into_result(Self { state, invitation, control_planes, first, start_timeout, references })
    }
}
