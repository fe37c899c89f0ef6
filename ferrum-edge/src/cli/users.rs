//! Users of the console: `users`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gateway_core::plugin::Registry;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::admin::{Admin, AdminArgs};
use super::{OutputFormat, grants_file, print};

/// Arguments of `users`.
#[derive(Debug, Args)]
pub(super) struct UsersArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the users
    List(Common),
    /// Add a user; prints a password once, which the user has to change at the first login
    Add(AddArgs),
    /// Change the role of a user
    Role(AddArgs),
    /// Limit the role of a user to some objects
    Grants(GrantsArgs),
    /// Give a user a new password; prints it once
    ResetPassword(NamedArgs),
    /// Require a second factor of a user. The user enrols an authenticator app at the next login
    RequireTotp(RequireArgs),
    /// Remove the second factor of a user, such as after the loss of a phone
    ResetTotp(NamedArgs),
    /// Remove a user
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
struct NamedArgs {
    /// The user
    name: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct RequireArgs {
    /// The user
    name: String,
    /// Requires none again, unless the role needs one by gateway.admin_totp_roles
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct GrantsArgs {
    /// The user
    name: String,
    /// The file with the grants, in YAML or JSON: a list with `objects` or `workspace`, and perhaps `role`, `hosts`, `paths`, `ports` and
    /// `protocols`
    #[arg(required_unless_present = "none")]
    file: Option<PathBuf>,
    /// Takes the grants away: the role is for everything again
    #[arg(long, conflicts_with = "file")]
    none: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The user
    name: String,
    /// What the user may do
    #[arg(long, value_enum)]
    role: UserRole,
    /// The file with the grants that limit the role to some objects, in YAML or JSON
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UserRole {
    /// See everything but secrets
    Read,
    /// Change objects
    Write,
    /// Import, roll back, and administer users
    Admin,
}

impl UserRole {
    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

/// Lists or changes users.
pub(super) fn users(args: &UsersArgs, registry: Registry) -> u8 {
    let common = match &args.what {
        What::List(common) => common,
        What::Add(args) | What::Role(args) => &args.common,
        What::Grants(args) => &args.common,
        What::RequireTotp(args) => &args.common,
        What::ResetPassword(args) | What::ResetTotp(args) | What::Remove(args) => &args.common,
    };
    let done = common.admin.open_existing(registry).and_then(|admin| run(&args.what, &admin));
    match done {
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
    let one = |name: &str| format!("/v1/users/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
    match what {
        What::List(_) => admin.ask("GET", "/v1/users", None),
        What::Add(args) => {
            let mut user = json!({ "name": args.name, "role": args.role.as_str() });
            if let Some(file) = &args.grants {
                user["grants"] = grants_file::read(file)?;
            }
            admin.ask("POST", "/v1/users", Some(&user))
        }
        What::Role(args) => {
            let mut user = json!({ "role": args.role.as_str() });
            if let Some(file) = &args.grants {
                user["grants"] = grants_file::read(file)?;
            }
            admin.ask("PATCH", &one(&args.name), Some(&user))
        }
        What::Grants(args) => {
            let grants = args.file.as_deref().map_or(Ok(Value::Null), grants_file::read)?;
            admin.ask("PATCH", &one(&args.name), Some(&json!({ "grants": grants })))
        }
        What::ResetPassword(args) => {
            admin.ask("PATCH", &one(&args.name), Some(&json!({ "reset_password": true })))
        }
        What::RequireTotp(args) => {
            admin.ask("PATCH", &one(&args.name), Some(&json!({ "totp_required": !args.off })))
        }
        What::ResetTotp(args) => admin.ask("DELETE", &format!("{}/totp", one(&args.name)), None),
        What::Remove(args) => admin.ask("DELETE", &one(&args.name), None),
    }
}

fn text(what: &What, document: &Value) {
    let field = |value: &Value, name: &str| value[name].as_str().unwrap_or("-").to_owned();
    match what {
        What::List(_) => {
            let users = document["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            if users.is_empty() {
                return print::line("There is no user; `ferrum-edge users add NAME --role admin` adds one.");
            }
            print::line(format_args!(
                "{:<24} {:<6} {:<28} {:<14} {:<14} grants",
                "name", "role", "last login", "password", "second factor"
            ));
            for user in users {
                let (name, role, login) =
                    (field(user, "name"), field(user, "role"), field(user, "last_login_at"));
                let password = if user["must_change_password"] == true { "to be changed" } else { "chosen" };
                let factor = match (user["totp"].as_str(), &user["totp_required"]) {
                    (Some("enrolled"), _) => "enrolled",
                    (_, Value::Bool(true)) => "to be enrolled",
                    _ => "none",
                };
                let grants = match &user["grants"] {
                    Value::Array(grants) => grants.iter().map(objects).collect::<Vec<_>>().join(" "),
                    _ => "everything".to_owned(),
                };
                print::line(format_args!(
                    "{name:<24} {role:<6} {login:<28} {password:<14} {factor:<14} {grants}"
                ));
            }
        }
        What::Add(_) | What::ResetPassword(_) => print::line(field(document, "password")),
        What::Grants(args) => {
            let grants = if args.none { "is for everything" } else { "is limited to the grants" };
            print::line(format_args!("The role of {} {grants}", args.name));
        }
        What::Role(args) => print::line(format_args!("{} has the role {}", args.name, args.role.as_str())),
        What::RequireTotp(args) => {
            let needs = if args.off { "needs no second factor" } else { "needs a second factor" };
            print::line(format_args!("{} {needs}", args.name));
        }
        What::ResetTotp(args) => {
            print::line(format_args!("The second factor of {} is removed", args.name));
        }
        What::Remove(args) => print::line(format_args!("{} is removed", args.name)),
    }
}

/// The ids or the workspace that a grant names.
fn objects(grant: &Value) -> String {
    let all = grant["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
    grant["workspace"].as_str().map_or(ids, |name| format!("workspace:{name}"))
}
