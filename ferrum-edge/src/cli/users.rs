//! Users of the console: `users`.

use clap::{Args, Subcommand, ValueEnum};
use gateway_core::plugin::Registry;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::admin::{Admin, AdminArgs};
use super::{OutputFormat, print};

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
    /// Give a user a new password; prints it once
    ResetPassword(NamedArgs),
    /// Remove a user
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
struct NamedArgs {
    /// The user
    name: String,
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
        What::ResetPassword(args) | What::Remove(args) => &args.common,
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
            let user = json!({ "name": args.name, "role": args.role.as_str() });
            admin.ask("POST", "/v1/users", Some(&user))
        }
        What::Role(args) => {
            admin.ask("PATCH", &one(&args.name), Some(&json!({ "role": args.role.as_str() })))
        }
        What::ResetPassword(args) => {
            admin.ask("PATCH", &one(&args.name), Some(&json!({ "reset_password": true })))
        }
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
            print::line(format_args!("{:<24} {:<6} {:<28} password", "name", "role", "last login"));
            for user in users {
                let (name, role, login) =
                    (field(user, "name"), field(user, "role"), field(user, "last_login_at"));
                let password = if user["must_change_password"] == true { "to be changed" } else { "chosen" };
                print::line(format_args!("{name:<24} {role:<6} {login:<28} {password}"));
            }
        }
        What::Add(_) | What::ResetPassword(_) => print::line(field(document, "password")),
        What::Role(args) => print::line(format_args!("{} has the role {}", args.name, args.role.as_str())),
        What::Remove(args) => print::line(format_args!("{} is removed", args.name)),
    }
}
