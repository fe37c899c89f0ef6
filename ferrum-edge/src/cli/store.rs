//! Looking after databases: `migrate`.

use clap::Args;

use super::database::DatabaseArgs;
use super::{FAILED, MISUSED, print};
use crate::audit::{AuditOutcome, Draft, Who};
use crate::store::{Options, Store, StoreError};

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Only list the pending migrations
    #[arg(long)]
    dry_run: bool,
}

/// Brings a database's schema to this program's.
pub(super) fn migrate(args: &MigrateArgs) -> u8 {
    let location = match args.database.location() {
        Ok(location) => location,
        Err(problems) => {
            print::error(problems);
            return MISUSED;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let migrated = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let told = |error: StoreError| format!("{error} ({})", error.remedy());
        runtime.block_on(async {
            let store = Store::open(location, Options::default());
            let pending = match store.pending_migrations().await {
                Ok(pending) => pending,
                // There is no file yet: everything is to be done.
                Err(StoreError::NoFile(_)) => Vec::new(),
                Err(error) => return Err(told(error)),
            };
            if args.dry_run {
                return Ok((store.location().to_string(), pending));
            }
            let migrated = store.migrate().await.map_err(told)?;
            if !pending.is_empty() || migrated.from != migrated.to {
                let who = Who { actor: super::user(), source: "command-line", ..Who::default() };
                let mut draft = Draft::new(who, "migrate", AuditOutcome::Allowed);
                draft.note = format!("schema {} to {}", migrated.from, migrated.to);
                store.audit(&[draft]).await.map_err(told)?;
            }
            Ok((store.location().to_string(), pending))
        })
    });
    match migrated {
        Ok((at, pending)) if pending.is_empty() => {
            print::line(format_args!("{at} is as this program needs it."));
            0
        }
        Ok((at, pending)) => {
            let done = if args.dry_run { "to be done" } else { "done" };
            pending.iter().for_each(|step| print::line(format_args!("{at}: {step}: {done}")));
            0
        }
        Err(error) => {
            print::error(error);
            FAILED
        }
    }
}
