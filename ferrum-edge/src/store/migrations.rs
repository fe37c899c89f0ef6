//! The steps of the schema.

/// The schema this program works with.
pub(super) const KNOWN: u32 = MIGRATIONS.len() as u32;

/// One step of the schema, for each engine.
pub(super) struct Migration {
    pub(super) name: &'static str,
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
    pub(super) mysql: &'static str,
}

/// Every step, the first being version 1. What is released is never changed here, only added to.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "store",
        sqlite: include_str!("migrations/sqlite/0001_store.sql"),
        postgres: include_str!("migrations/postgres/0001_store.sql"),
        mysql: include_str!("migrations/mysql/0001_store.sql"),
    },
    Migration {
        name: "audit",
        sqlite: include_str!("migrations/sqlite/0002_audit.sql"),
        postgres: include_str!("migrations/postgres/0002_audit.sql"),
        mysql: include_str!("migrations/mysql/0002_audit.sql"),
    },
    Migration {
        name: "fleet",
        sqlite: include_str!("migrations/sqlite/0003_fleet.sql"),
        postgres: include_str!("migrations/postgres/0003_fleet.sql"),
        mysql: include_str!("migrations/mysql/0003_fleet.sql"),
    },
    Migration {
        name: "users",
        sqlite: include_str!("migrations/sqlite/0004_users.sql"),
        postgres: include_str!("migrations/postgres/0004_users.sql"),
        mysql: include_str!("migrations/mysql/0004_users.sql"),
    },
    Migration {
        name: "grants",
        sqlite: include_str!("migrations/sqlite/0005_grants.sql"),
        postgres: include_str!("migrations/postgres/0005_grants.sql"),
        mysql: include_str!("migrations/mysql/0005_grants.sql"),
    },
    Migration {
        name: "usage",
        sqlite: include_str!("migrations/sqlite/0006_usage.sql"),
        postgres: include_str!("migrations/postgres/0006_usage.sql"),
        mysql: include_str!("migrations/mysql/0006_usage.sql"),
    },
    Migration {
        name: "totp",
        sqlite: include_str!("migrations/sqlite/0007_totp.sql"),
        postgres: include_str!("migrations/postgres/0007_totp.sql"),
        mysql: include_str!("migrations/mysql/0007_totp.sql"),
    },
    Migration {
        name: "pending",
        sqlite: include_str!("migrations/sqlite/0008_pending.sql"),
        postgres: include_str!("migrations/postgres/0008_pending.sql"),
        mysql: include_str!("migrations/mysql/0008_pending.sql"),
    },
    Migration {
        name: "workspaces",
        sqlite: include_str!("migrations/sqlite/0009_workspaces.sql"),
        postgres: include_str!("migrations/postgres/0009_workspaces.sql"),
        mysql: include_str!("migrations/mysql/0009_workspaces.sql"),
    },
    Migration {
        name: "passkeys",
        sqlite: include_str!("migrations/sqlite/0010_passkeys.sql"),
        postgres: include_str!("migrations/postgres/0010_passkeys.sql"),
        mysql: include_str!("migrations/mysql/0010_passkeys.sql"),
    },
    Migration {
        name: "fleet_changes",
        sqlite: include_str!("migrations/sqlite/0011_fleet_changes.sql"),
        postgres: include_str!("migrations/postgres/0011_fleet_changes.sql"),
        mysql: include_str!("migrations/mysql/0011_fleet_changes.sql"),
    },
];
