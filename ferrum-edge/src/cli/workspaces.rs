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
    /// Remove a workspace. Grants that name it cover nothing
    Remove(NamedArgs),
}

/// What all of them take.
#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    admin: AdminArgs,
    /// How the result is printed
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
            }
        }
        What::Set(args) => print::line(format_args!("The workspace {} is set", args.name)),
        What::Remove(args) => print::line(format_args!("The workspace {} is removed", args.name)),
    }
}
