//! Why a gateway has no configuration from its database.

use super::StoreError;

/// Why a gateway could not get its configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store did not answer, and there is no last good configuration.
    #[error("{source} ({})", source.remedy())]
    Store {
        /// What the store said.
        #[from]
        source: StoreError,
    },
}
