//! The usage of traffic quotas: what all gateways have used of each key, what each has claimed, and the history. No part of the
//! revisions: a rollback of the configuration leaves it.
//!
//! A gateway adds its bytes, and claims as many as may pass until its next change. What a dead gateway had claimed is added to the usage
//! by the next gateway that looks, once the claim is 10 s old by the database's clock.

use std::collections::HashMap;

use gateway_core::plugin::world::usage::{HistoryEntry, HistoryStep, KeyUsage, UsageChange};

use super::change::Transaction;
use super::link::failure::Failure;
use super::link::{Cells, StoreConnection, Value, tuples};
use super::location::Engine;
use super::{Author, END, Store, StoreError};

/// Rows of one statement.
const ROWS: usize = 100;
/// Seconds after which a claim that was not renewed is a dead gateway's.
const CLAIM_SECONDS: u64 = 10;
/// Claims of dead gateways that are added with one change.
const MAX_DEAD: u64 = 1000;
/// Seconds that the usage of an ended period stays.
const KEPT_PERIOD: u64 = 24 * 3600;
/// Characters of a label that are kept.
const MAX_LABEL: usize = 1024;

const COLUMNS: &str = "usage_key, period_end, label, used";

impl Store {
    /// The usage of every plugin config, of periods that end after `now`, in seconds since 1970.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn usage(&self, now: u64) -> Result<HashMap<String, Vec<KeyUsage>>, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => all(link, now).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// Makes the changes of the run `gateway`, and returns the usage of the plugin config in periods that end after `now`.
    ///
    /// # Errors
    /// When the database does not answer. If the connection was lost while committing, the changes may have been made.
    pub(crate) async fn exchange_usage(
        &self,
        config: &str,
        gateway: &str,
        changes: &[UsageChange],
        now: u64,
    ) -> Result<Vec<KeyUsage>, StoreError> {
        if changes.is_empty() {
            let (usage, has_dead) = self.read_usage(config, now).await?;
            if !has_dead {
                return Ok(usage);
            }
        }
        let mut transaction = self.begin(Author::default()).await?;
        let usage = transaction.change_usage(config, gateway, changes, now).await?;
        transaction.commit_audit().await?;
        Ok(usage)
    }

    /// Adds to the history of a plugin config; removes what is older than is kept.
    ///
    /// # Errors
    /// As [`Store::exchange_usage`].
    pub(crate) async fn add_usage_history(
        &self,
        config: &str,
        entries: &[HistoryEntry],
        prune: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin(Author::default()).await?;
        transaction.add_history(config, entries, prune).await?;
        transaction.commit_audit().await
    }

    /// The newest entries of the history of a plugin config, at most `limit`.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn usage_history(
        &self,
        config: &str,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>, StoreError> {
        let mut lease = self.core.reading().await?;
        let found = match lease.link() {
            Ok(link) => history(link, config, limit).await,
            Err(failure) => Err(failure),
        };
        lease.end(found, END).await
    }

    /// The usage, and whether dead gateways have left claims.
    async fn read_usage(&self, config: &str, now: u64) -> Result<(Vec<KeyUsage>, bool), StoreError> {
        let mut lease = self.core.reading().await?;
        let found = async {
            let link = lease.link()?;
            let sql = format!(
                "SELECT COUNT(*) FROM ferrum_usage_claims WHERE config = ? AND claimed_at < {} - {CLAIM_SECONDS}",
                clock(link.engine())
            );
            let dead = link.row(&sql, vec![config.into()]).await?;
            let dead = dead.map_or(Ok(0), |row| row.int(0))?;
            Ok::<_, Failure>((of_config(link, config, now).await?, dead > 0))
        };
        let found = found.await;
        lease.end(found, END).await
    }
}

impl Transaction {
    async fn change_usage(
        &mut self,
        config: &str,
        gateway: &str,
        changes: &[UsageChange],
        now: u64,
    ) -> Result<Vec<KeyUsage>, StoreError> {
        let mut lease = self.take()?;
        let changed = match lease.link() {
            Ok(link) => change(link, config, gateway, changes, now).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, changed)
    }

    async fn add_history(
        &mut self,
        config: &str,
        entries: &[HistoryEntry],
        prune: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut lease = self.take()?;
        let added = match lease.link() {
            Ok(link) => add_history(link, config, entries, prune).await,
            Err(failure) => Err(failure),
        };
        self.keep(lease, added)
    }
}

async fn all(link: &mut StoreConnection, now: u64) -> Result<HashMap<String, Vec<KeyUsage>>, Failure> {
    let mut usage: HashMap<String, Vec<KeyUsage>> = HashMap::new();
    let sql = format!("SELECT {COLUMNS}, config FROM ferrum_usage WHERE period_end > ?");
    link.rows(&sql, vec![now.into()], |row| {
        usage.entry(row.text(4)?).or_default().push(key_usage(&row)?);
        Ok(())
    })
    .await?;
    Ok(usage)
}

async fn of_config(link: &mut StoreConnection, config: &str, now: u64) -> Result<Vec<KeyUsage>, Failure> {
    let mut usage = Vec::new();
    let sql = format!("SELECT {COLUMNS} FROM ferrum_usage WHERE config = ? AND period_end > ?");
    link.rows(&sql, vec![config.into(), now.into()], |row| {
        usage.push(key_usage(&row)?);
        Ok(())
    })
    .await?;
    Ok(usage)
}

fn key_usage(row: &Cells) -> Result<KeyUsage, Failure> {
    Ok(KeyUsage {
        key: key(&row.text(0)?)?,
        period_end: row.int(1)?,
        label: row.text(2)?.into(),
        used: row.int(3)?,
    })
}

async fn change(
    link: &mut StoreConnection,
    config: &str,
    gateway: &str,
    changes: &[UsageChange],
    now: u64,
) -> Result<Vec<KeyUsage>, Failure> {
    for change in changes.iter().filter(|change| change.resets) {
        let place = || vec![config.into(), digits(change.added.key).into(), change.added.period_end.into()];
        let of_key = "config = ? AND usage_key = ? AND period_end = ?";
        link.run(&format!("UPDATE ferrum_usage SET used = 0 WHERE {of_key}"), place()).await?;
        link.run(&format!("DELETE FROM ferrum_usage_claims WHERE {of_key}"), place()).await?;
    }
    for rows in changes.chunks(ROWS) {
        add_used(link, config, rows.iter().map(|change| &change.added)).await?;
        claim(link, config, gateway, rows).await?;
    }
    let released = "DELETE FROM ferrum_usage_claims WHERE config = ? AND gateway = ? AND bytes = 0";
    link.run(released, vec![config.into(), gateway.into()]).await?;
    add_dead_claims(link, config).await?;
    of_config(link, config, now).await
}

/// Adds bytes to what was used.
async fn add_used(
    link: &mut StoreConnection,
    config: &str,
    rows: impl ExactSizeIterator<Item = &KeyUsage>,
) -> Result<(), Failure> {
    let insert = format!(
        "INSERT INTO ferrum_usage (config, usage_key, period_end, label, used) VALUES {}",
        tuples(rows.len(), 5)
    );
    let conflict = match link.engine() {
        Engine::MySql => " ON DUPLICATE KEY UPDATE used = used + VALUES(used)",
        Engine::Sqlite | Engine::Postgres => {
            " ON CONFLICT (config, usage_key, period_end) DO UPDATE SET used = ferrum_usage.used + excluded.used"
        }
    };
    let values = rows.flat_map(|row| -> [Value; 5] {
        [
            config.into(),
            digits(row.key).into(),
            row.period_end.into(),
            label(&row.label).into(),
            row.used.into(),
        ]
    });
    let values = values.collect();
    link.run(&(insert + conflict), values).await.map(drop)
}

/// Replaces what this run has claimed.
async fn claim(
    link: &mut StoreConnection,
    config: &str,
    gateway: &str,
    rows: &[UsageChange],
) -> Result<(), Failure> {
    let row = format!("(?, ?, ?, ?, ?, {})", clock(link.engine()));
    let insert = format!(
        "INSERT INTO ferrum_usage_claims (config, usage_key, period_end, gateway, bytes, claimed_at) VALUES {}",
        vec![row; rows.len()].join(", ")
    );
    let conflict = match link.engine() {
        Engine::MySql => " ON DUPLICATE KEY UPDATE bytes = VALUES(bytes), claimed_at = VALUES(claimed_at)",
        Engine::Sqlite | Engine::Postgres => {
            " ON CONFLICT (config, usage_key, period_end, gateway) \
             DO UPDATE SET bytes = excluded.bytes, claimed_at = excluded.claimed_at"
        }
    };
    let values = rows.iter().flat_map(|change| -> [Value; 5] {
        let UsageChange { added, claim, .. } = change;
        [config.into(), digits(added.key).into(), added.period_end.into(), gateway.into(), (*claim).into()]
    });
    let values = values.collect();
    link.run(&(insert + conflict), values).await.map(drop)
}

/// Adds what dead gateways had claimed to what was used.
async fn add_dead_claims(link: &mut StoreConnection, config: &str) -> Result<(), Failure> {
    let mut dead: Vec<(String, u64, String, u64)> = Vec::new();
    let sql = format!(
        "SELECT usage_key, period_end, gateway, bytes FROM ferrum_usage_claims \
         WHERE config = ? AND claimed_at < {} - {CLAIM_SECONDS} LIMIT ?",
        clock(link.engine())
    );
    link.rows(&sql, vec![config.into(), MAX_DEAD.into()], |row| {
        dead.push((row.text(0)?, row.int(1)?, row.text(2)?, row.int(3)?));
        Ok(())
    })
    .await?;
    for (key, period_end, gateway, bytes) in dead {
        let add =
            "UPDATE ferrum_usage SET used = used + ? WHERE config = ? AND usage_key = ? AND period_end = ?";
        let values = vec![bytes.into(), config.into(), key.as_str().into(), period_end.into()];
        link.run(add, values).await?;
        let remove = "DELETE FROM ferrum_usage_claims \
                      WHERE config = ? AND usage_key = ? AND period_end = ? AND gateway = ?";
        link.run(remove, vec![config.into(), key.into(), period_end.into(), gateway.into()]).await?;
    }
    Ok(())
}

async fn add_history(
    link: &mut StoreConnection,
    config: &str,
    entries: &[HistoryEntry],
    prune: Option<u64>,
) -> Result<(), Failure> {
    for rows in entries.chunks(ROWS) {
        let insert = format!(
            "INSERT INTO ferrum_usage_history (config, step, step_number, usage_key, label, bytes) VALUES {}",
            tuples(rows.len(), 6)
        );
        let conflict = match link.engine() {
            Engine::MySql => " ON DUPLICATE KEY UPDATE bytes = bytes + VALUES(bytes)",
            Engine::Sqlite | Engine::Postgres => {
                " ON CONFLICT (config, step, step_number, usage_key) \
                 DO UPDATE SET bytes = ferrum_usage_history.bytes + excluded.bytes"
            }
        };
        let values = rows.iter().flat_map(|entry| -> [Value; 6] {
            [
                config.into(),
                entry.step.seconds().into(),
                entry.at.into(),
                digits(entry.key).into(),
                label(&entry.label).into(),
                entry.bytes.into(),
            ]
        });
        let values = values.collect();
        link.run(&(insert + conflict), values).await?;
    }
    let Some(now) = prune else { return Ok(()) };
    for step in [HistoryStep::Minute, HistoryStep::Hour] {
        let oldest = (now / step.seconds()).saturating_sub(step.steps_kept());
        let sql = "DELETE FROM ferrum_usage_history WHERE step = ? AND step_number <= ?";
        link.run(sql, vec![step.seconds().into(), oldest.into()]).await?;
    }
    for table in ["ferrum_usage", "ferrum_usage_claims"] {
        let sql = format!("DELETE FROM {table} WHERE period_end < ?");
        link.run(&sql, vec![now.saturating_sub(KEPT_PERIOD).into()]).await?;
    }
    Ok(())
}

async fn history(
    link: &mut StoreConnection,
    config: &str,
    limit: usize,
) -> Result<Vec<HistoryEntry>, Failure> {
    let mut entries = Vec::new();
    let sql = "SELECT usage_key, label, step, step_number, bytes FROM ferrum_usage_history \
               WHERE config = ? ORDER BY step DESC, step_number DESC LIMIT ?";
    link.rows(sql, vec![config.into(), (limit as u64).into()], |row| {
        let is_minute = row.int(2)? == HistoryStep::Minute.seconds();
        let step = if is_minute { HistoryStep::Minute } else { HistoryStep::Hour };
        let (key, label) = (key(&row.text(0)?)?, row.text(1)?.into());
        entries.push(HistoryEntry { key, label, step, at: row.int(3)?, bytes: row.int(4)? });
        Ok(())
    })
    .await?;
    Ok(entries)
}

/// The database's clock, in seconds since 1970: clocks of gateways differ.
fn clock(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "CAST(strftime('%s', 'now') AS INTEGER)",
        Engine::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS BIGINT)",
        Engine::MySql => "UNIX_TIMESTAMP()",
    }
}

fn digits(key: u64) -> String {
    format!("{key:016x}")
}

fn key(digits: &str) -> Result<u64, Failure> {
    u64::from_str_radix(digits, 16).map_err(|_| Failure::Row("a key of usage".to_owned()))
}

fn label(label: &str) -> String {
    label.chars().take(MAX_LABEL).collect()
}
