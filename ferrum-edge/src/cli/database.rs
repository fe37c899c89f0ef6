//! Which database is meant.

use clap::Args;
use gateway_core::config::problem::Problems;

use crate::source::database::{self, Database};
use crate::store::Location;

/// Which database is meant. Its password may stand in the variable, which other users can't see.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct DatabaseArgs {
    /// The database in database mode: sqlite:FILE, postgres://… or mysql://…; sqlite:g.db is beside the default database,
    /// sqlite:./g.db is in the current directory [env: FERRUM_DB_URL]
    #[arg(long, value_name = "URL")]
    db_url: Option<String>,
    /// Kind of database, if there is no URL: sqlite, postgres or mysql [env: FERRUM_DB_TYPE]
    #[arg(long, value_name = "TYPE")]
    db_type: Option<String>,
}

impl DatabaseArgs {
    /// Whether a flag names one.
    pub(super) fn is_given(&self) -> bool {
        self.db_url.is_some() || self.db_type.is_some()
    }

    /// Where it is.
    ///
    /// # Errors
    /// When that is no address.
    pub(super) fn location(&self) -> Result<Location, Problems> {
        database::location(self.db_url.as_deref(), self.db_type.as_deref())
    }

    /// How it is used.
    ///
    /// # Errors
    /// Every problem of the environment.
    pub(super) fn database(&self) -> Result<Database, Problems> {
        Database::from_environment(self.location()?)
    }
}
