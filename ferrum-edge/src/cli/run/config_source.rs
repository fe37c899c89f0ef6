//! Where the configuration of `run` comes from.

use std::path::PathBuf;

use clap::ValueEnum;
use gateway_core::config::problem::Problems;

use crate::access::kept_token::TOKEN_FILE;
use crate::cli::database::DatabaseArgs;
#[cfg(feature = "fleet")]
use crate::fleet::FleetOptions;
#[cfg(feature = "fleet")]
use crate::source::control_plane::EdgeOptions;
use crate::source::database::{Database, token_file};
use crate::store::state_folder;

/// Where the configuration comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Mode {
    /// A file, read again with each reload
    #[default]
    File,
    /// A database that the admin API changes at run time; a file contains only the settings under `gateway`
    Database,
    /// A database whose configuration is served by the edges of a fleet; this process carries no traffic
    #[cfg(feature = "fleet")]
    ControlPlane,
    /// A control plane
    #[cfg(feature = "fleet")]
    Edge,
}

/// Where the configuration comes from, opened.
pub(in crate::cli) enum ConfigSource {
    File,
    Database(Box<Database>),
    #[cfg(feature = "fleet")]
    ControlPlane(Box<Database>, Box<FleetOptions>),
    #[cfg(feature = "fleet")]
    Edge(Box<EdgeOptions>),
}

impl Mode {
    /// Whether there is a database.
    pub(super) fn has_database(self) -> bool {
        match self {
            Self::File => false,
            Self::Database => true,
            #[cfg(feature = "fleet")]
            Self::ControlPlane => true,
            #[cfg(feature = "fleet")]
            Self::Edge => false,
        }
    }
}

impl ConfigSource {
    /// As flags and environment say.
    ///
    /// # Errors
    /// Every problem of the environment.
    pub(super) fn open(mode: Mode, database: &DatabaseArgs) -> Result<Self, Problems> {
        match mode {
            Mode::File => Ok(Self::File),
            Mode::Database => Ok(Self::Database(Box::new(database.database()?))),
            #[cfg(feature = "fleet")]
            Mode::ControlPlane => {
                let (database, options) = (database.database()?, FleetOptions::from_environment()?);
                Ok(Self::ControlPlane(Box::new(database), Box::new(options)))
            }
            #[cfg(feature = "fleet")]
            Mode::Edge => Ok(Self::Edge(Box::new(EdgeOptions::from_environment()?))),
        }
    }

    /// The file of the token of the admin API where the environment sets none.
    pub(super) fn token_file(&self) -> PathBuf {
        match self {
            Self::File => state_folder().join(TOKEN_FILE),
            Self::Database(database) => token_file(&database.location),
            #[cfg(feature = "fleet")]
            Self::ControlPlane(database, _) => token_file(&database.location),
            #[cfg(feature = "fleet")]
            Self::Edge(options) => options.state.join(TOKEN_FILE),
        }
    }

    /// Whether the tokens of the admin API come with it, rather than from the environment alone.
    pub(super) fn has_own_tokens(&self) -> bool {
        match self {
            Self::File => false,
            Self::Database(_) => true,
            #[cfg(feature = "fleet")]
            Self::ControlPlane(..) => true,
            #[cfg(feature = "fleet")]
            Self::Edge(_) => false,
        }
    }
}
