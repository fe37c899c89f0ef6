//! Workspaces, which grants name: `workspaces`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gateway_core::plugin::Registry;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::admin::{Admin, AdminArgs};
use super::{OutputFormat, print};

/// Arguments of `workspaces`.
#[derive(Debug, Args)]
pub(super) struct WorkspacesArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the workspaces
    List(Common),
    /// Make a workspace, or have it cover other objects
    Set(SetArgs),
    /// Give a workspace another name. Grants of users and groups of edges that name it follow; sessions of these users end
    Rename(RenameArgs),
    /// Remove a workspace. Grants that name it cover nothing
    Remove(NamedArgs),
}

/// What all of them take.
#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

#[derive(Debug, Args)]
struct SetArgs {
    /// The workspace
    name: String,
    /// The file with what it covers, in YAML or JSON: `objects`, and perhaps `hosts`, `paths`, `ports` and `protocols`
    file: PathBuf,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct RenameArgs {
    /// The workspace
    name: String,
    /// Its name from now on
    to: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct NamedArgs {
    /// The workspace
    name: String,
    #[command(flatten)]
    common: Common,
}

/// Lists or changes workspaces.
pub(super) fn workspaces(args: &WorkspacesArgs, registry: Registry) -> u8 {
    let common = match &args.what {
        What::List(common) => common,
        What::Set(args) => &args.common,
        What::Rename(args) => &args.common,
        What::Remove(args) => &args.common,
    };
    match common.admin.open_existing(registry).and_then(|admin| run(&args.what, &admin)) {
        Err(code) => code,
        Ok(document) => {
            match common.output {
                OutputFormat::Json => print::line(&document),
                OutputFormat::Text => text(&args.what, &document),
            }
            0
        }
    }
}

fn run(what: &What, admin: &Admin) -> Result<Value, u8> {
    let one = |name: &str| format!("/v1/workspaces/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
    match what {
        What::List(_) => admin.ask("GET", "/v1/workspaces", None),
        What::Set(args) => {
            let covers = super::grants_file::read(&args.file)?;
            admin.ask("PUT", &one(&args.name), Some(&covers))
        }
        What::Rename(args) => {
            admin.ask("PATCH", &one(&args.name), Some(&serde_json::json!({ "name": args.to })))
        }
        What::Remove(args) => admin.ask("DELETE", &one(&args.name), None),
    }
}

fn text(what: &What, document: &Value) {
    match what {
        What::List(_) => {
            let all = document["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            if all.is_empty() {
                print::line("There is no workspace.");
            }
            for one in all {
                let name = one["name"].as_str().unwrap_or_default();
                let lists = ["objects", "hosts", "paths", "ports", "protocols"].into_iter();
                let lists = lists.filter(|key| one[*key].is_array()).map(|key| format!("{key}={}", one[key]));
                print::line(format_args!("{name:<24} {}", lists.collect::<Vec<_>>().join(" ")));
                references(&one["used_by"]);
            }
        }
        What::Set(args) => print::line(format_args!("The workspace {} is set", args.name)),
        What::Rename(args) => {
            print::line(format_args!("The workspace {} is named {}", args.name, args.to));
        }
        What::Remove(args) => print::line(format_args!("The workspace {} is removed", args.name)),
    }
}

/// Who names a workspace, a line for each kind.
fn references(used_by: &Value) {
    for (key, field, what) in
        [("users", "name", "users"), ("provider_groups", "group", "groups of the OpenID provider")]
    {
        let all = used_by[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let named: Vec<String> =
            all.iter().map(|one| format!("{} ({})", text(&one[field]), text(&one["role"]))).collect();
        if !named.is_empty() {
            print::line(format_args!("  {what}: {}", named.join(", ")));
        }
    }
    let groups = used_by["edge_groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    let groups: Vec<&str> = groups.iter().filter_map(Value::as_str).collect();
    if !groups.is_empty() {
        print::line(format_args!("  groups of edges: {}", groups.join(", ")));
    }
}
