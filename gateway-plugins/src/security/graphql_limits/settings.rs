//! What users write, and what it is checked to mean.

use std::collections::{BTreeMap, BTreeSet};

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `graphql_limits`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Nesting depth of fields, 1 to 100. Default 10.
    #[schemars(range(min = 1, max = 100))]
    max_depth: u64,
    /// Aliases of an operation, with its fragments. Default 15.
    max_aliases: u64,
    /// Root fields of an operation, at least 1. Default 20.
    #[schemars(range(min = 1))]
    max_root_fields: u64,
    /// Directives of a document. Default 50.
    max_directives: u64,
    /// Cost of an operation: each field costs 1, or its entry in `field_costs`, multiplied by the `list_arguments` of
    /// the fields around it. Default 1000.
    #[schemars(range(min = 1))]
    max_cost: u64,
    /// Costs by field name. Default none: each costs 1.
    field_costs: BTreeMap<String, u64>,
    /// Arguments that specify the length of a list. Default `first`, `last` and `limit`.
    list_arguments: Vec<String>,
    /// Tokens of a document, 1 to 100,000. Default 5,000.
    #[schemars(range(min = 1, max = 100_000))]
    max_tokens: u64,
    /// Size of a request or message, 1 byte to 16 MiB. Default 1 MiB.
    #[schemars(range(min = 1, max = 16_777_216))]
    max_body: Bytes,
    /// Bytes of a request with files (a form by the GraphQL multipart request specification), 0 to 64 MiB. It is held as a whole; its
    /// operations count for `max_body`. Pages of other sites can send forms without asking first: demand a field of your own, or add
    /// `csrf`. Default 0: forms are refused.
    #[schemars(range(max = 67_108_864))]
    max_upload: Bytes,
    /// Operations of a batch, 1 to 1,000; 1 rejects batches. Default 10.
    #[schemars(range(min = 1, max = 1000))]
    max_batch: u64,
    /// Allows introspection (`__schema`, `__type`); its inner fields then do not count for `max_depth`. Default false.
    allow_introspection: bool,
    /// Allows persisted queries, which the plugin cannot check. Default false.
    allow_persisted: bool,
    /// Allowed types of operations: `query`, `mutation`, `subscription`. Default all. A mutation by GET is always
    /// rejected (405).
    operation_types: Vec<OperationType>,
    /// Allowed names of operations. If any is given, other operations, and those without a name, are rejected. Default
    /// none.
    operation_names: BTreeSet<String>,
    /// Counts violations and logs `graphql_limits.would_refuse`, but rejects nothing. Default false.
    dry_run: bool,
}

/// Type of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OperationType {
    /// Reads data.
    Query,
    /// Changes data.
    Mutation,
    /// Subscribes to events.
    Subscription,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_depth: 10,
            max_aliases: 15,
            max_root_fields: 20,
            max_directives: 50,
            max_cost: 1000,
            field_costs: BTreeMap::new(),
            list_arguments: ["first", "last", "limit"].map(str::to_owned).into(),
            max_tokens: 5000,
            max_body: Bytes(1 << 20),
            max_upload: Bytes(0),
            max_batch: 10,
            allow_introspection: false,
            allow_persisted: false,
            operation_types: vec![OperationType::Query, OperationType::Mutation, OperationType::Subscription],
            operation_names: BTreeSet::new(),
            dry_run: false,
        }
    }
}

/// Settings, checked.
pub(super) struct Limits {
    pub(super) max_depth: u64,
    pub(super) max_aliases: u64,
    pub(super) max_root_fields: u64,
    pub(super) max_directives: u64,
    pub(super) max_cost: u64,
    pub(super) field_costs: BTreeMap<String, u64>,
    pub(super) list_arguments: Vec<String>,
    pub(super) max_tokens: usize,
    pub(super) max_body: u64,
    pub(super) max_upload: u64,
    pub(super) max_batch: usize,
    pub(super) introspection: bool,
    pub(super) persisted: bool,
    pub(super) types: Vec<OperationType>,
    pub(super) names: BTreeSet<String>,
    pub(super) dry_run: bool,
}

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: Config, problems: &mut Problems) -> Limits {
    let is_name = |text: &str| {
        text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
            && text.bytes().next().is_some_and(|c| !c.is_ascii_digit())
    };
    let mut check = |path: String, name: &str| {
        if !is_name(name) {
            problems.add(path, format!("`{name}` is not a name in GraphQL"));
        }
    };
    config.field_costs.keys().for_each(|name| check(format!("config.field_costs.{name}"), name));
    for (n, name) in config.list_arguments.iter().enumerate() {
        check(format!("config.list_arguments[{n}]"), name);
    }
    for (n, name) in config.operation_names.iter().enumerate() {
        check(format!("config.operation_names[{n}]"), name);
    }
    if config.operation_types.is_empty() {
        problems.add("config.operation_types", "no operation may be");
    }
    Limits {
        max_depth: config.max_depth,
        max_aliases: config.max_aliases,
        max_root_fields: config.max_root_fields,
        max_directives: config.max_directives,
        max_cost: config.max_cost,
        field_costs: config.field_costs,
        list_arguments: config.list_arguments,
        max_tokens: usize::try_from(config.max_tokens).unwrap_or(usize::MAX),
        max_body: config.max_body.0,
        max_upload: config.max_upload.0,
        max_batch: usize::try_from(config.max_batch).unwrap_or(usize::MAX),
        introspection: config.allow_introspection,
        persisted: config.allow_persisted,
        types: config.operation_types,
        names: config.operation_names,
        dry_run: config.dry_run,
    }
}
