//! `fleet`: the edges of a control plane.

use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::admin::{Admin, GatewayArgs};
use super::{FAILED, MISUSED, OutputFormat, print};

/// Arguments of `fleet`.
#[derive(Debug, Args)]
pub(super) struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Show the edges and what each of them serves; exit code 4 if a connected edge does not serve the newest configuration
    Status {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Only which edges serve this object as it is, such as proxies/shop, and why others do not; exit code 4 if an edge does not
        #[arg(long, value_name = "KIND/ID")]
        object: Option<String>,
        /// How it is printed
        #[arg(long, value_enum, default_value = "text")]
        output: OutputFormat,
    },
    /// Make a one-time invitation for an edge, valid for ten minutes
    Invite {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// A label for people [default: the edge's id]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The group that the edge belongs to [default: default]
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// The edge that enrols again, by id or name; its earlier certificates are revoked once it does
        #[arg(long, value_name = "EDGE")]
        again: Option<String>,
        /// Where the edge finds a control plane [default: FERRUM_FLEET_ADDRESS of the control plane]
        #[arg(long, value_name = "HOST:PORT")]
        address: Option<String>,
    },
    /// List the pending invitations, without their codes
    Invitations {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// How it is printed
        #[arg(long, value_enum, default_value = "text")]
        output: OutputFormat,
    },
    /// Withdraw a pending invitation, so that no edge can enrol with it
    Withdraw {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Id of the invitation, or the name that it gives the edge
        invitation: String,
    },
    /// Accept an edge's certificates no more, and end its connection
    Revoke {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Its id or name
        edge: String,
    },
    /// Give an edge another name
    Rename {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Its id or name
        edge: String,
        /// Its name from now on
        name: String,
    },
    /// Give an edge the configuration of another group
    Move {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Its id or name
        edge: String,
        /// Its group from now on
        group: String,
    },
    /// Send a group of edges only some proxies, with what these refer to
    Assign {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// The group
        group: String,
        /// Ids of proxies; `*` stands for any text, `shop-*` for all that begin so
        #[arg(required_unless_present_any = ["all", "workspaces"])]
        proxies: Vec<String>,
        /// A workspace, whose proxies the group gets as the workspace changes; may be repeated
        #[arg(long = "workspace", value_name = "WORKSPACE")]
        workspaces: Vec<String>,
        /// Everything, as for a group that was never assigned anything
        #[arg(long, conflicts_with_all = ["proxies", "workspaces"])]
        all: bool,
    },
    /// Forget an edge; its certificates are not accepted any more
    Remove {
        #[command(flatten)]
        gateway: GatewayArgs,
        /// Its id or name
        edge: String,
    },
}

const INVITATIONS: &str = "/v1/fleet/invitations";
/// A connected edge does not serve the newest configuration.
const BEHIND: u8 = 4;

/// Does what a subcommand says.
pub(super) fn fleet(args: &FleetArgs) -> u8 {
    exit_code(match &args.command {
        FleetCommand::Status { gateway, object: Some(object), output } => {
            object_status(gateway, object, *output)
        }
        FleetCommand::Status { gateway, object: None, output } => status(gateway, *output),
        FleetCommand::Invite { gateway, name, group, again, address } => {
            invite(gateway, name.as_deref(), group.as_deref(), again.as_deref(), address.as_deref())
        }
        FleetCommand::Invitations { gateway, output } => invitations(gateway, *output),
        FleetCommand::Withdraw { gateway, invitation } => withdraw(gateway, invitation),
        FleetCommand::Revoke { gateway, edge } => {
            change(gateway, edge, "POST", "/revoke", None, "is revoked")
        }
        FleetCommand::Rename { gateway, edge, name } => {
            change(gateway, edge, "PATCH", "", Some(json!({ "name": name })), "is renamed")
        }
        FleetCommand::Move { gateway, edge, group } => {
            change(gateway, edge, "PATCH", "", Some(json!({ "group": group })), "is moved")
        }
        FleetCommand::Assign { gateway, group, proxies, workspaces, all } => {
            assign(gateway, group, (!all).then_some((proxies, workspaces)))
        }
        FleetCommand::Remove { gateway, edge } => change(gateway, edge, "DELETE", "", None, "is removed"),
    })
}

fn exit_code(result: Result<u8, u8>) -> u8 {
    result.unwrap_or_else(|code| code)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or("–")
}

fn status(gateway: &GatewayArgs, output: OutputFormat) -> Result<u8, u8> {
    let fleet = gateway.open()?.ask("GET", "/v1/fleet", None)?;
    let edges = fleet["edges"].as_array().cloned().unwrap_or_default();
    if output == OutputFormat::Json {
        print::line(&fleet);
    } else {
        for group in fleet["groups"].as_array().into_iter().flatten() {
            let lists = ["proxies", "workspaces"]
                .into_iter()
                .filter(|key| group[*key].as_array().is_some_and(|list| !list.is_empty()));
            let assigned: String = lists.map(|key| format!(", {key} {}", group[key])).collect();
            print::line(format_args!(
                "group {}: revision {}, {} objects{assigned}",
                text(group, "name"),
                group["position"]["revision"],
                group["objects"],
            ));
        }
        if edges.is_empty() {
            print::line("There are no edges; `ferrum-edge fleet invite` invites one.");
        }
        edges.iter().for_each(show);
    }
    let is_behind = |edge: &Value| {
        edge["connected"].as_bool() == Some(true) && !matches!(text(edge, "standing"), "served")
    };
    Ok(if edges.iter().any(is_behind) { BEHIND } else { 0 })
}

/// Shows which edges serve an object, one a line.
fn object_status(gateway: &GatewayArgs, object: &str, output: OutputFormat) -> Result<u8, u8> {
    let Some((kind, id)) = object.split_once('/') else {
        print::error(format_args!("`{object}` is no object; write KIND/ID, such as proxies/shop"));
        return Err(MISUSED);
    };
    let encoded = utf8_percent_encode(id, NON_ALPHANUMERIC);
    let shown = gateway.open()?.ask("GET", &format!("/v1/fleet/objects/{kind}/{encoded}"), None)?;
    let edges = shown["edges"].as_array().map(Vec::as_slice).unwrap_or_default();
    if output == OutputFormat::Json {
        print::line(&shown);
    } else {
        print::line(format_args!("{object}: revision {}, {} edges get it", shown["revision"], edges.len()));
        for edge in edges {
            let why = edge["why"].as_str().map_or_else(|| "serves it".to_owned(), str::to_owned);
            print::line(format_args!(
                "{} ({}), group {}: {why}",
                text(edge, "name"),
                text(edge, "id"),
                text(edge, "group")
            ));
        }
    }
    Ok(if edges.iter().all(|edge| edge["serves"] == true) { 0 } else { BEHIND })
}

fn show(edge: &Value) {
    let version = match text(edge, "version") {
        "" => String::new(),
        version => format!(", version {version}"),
    };
    let is_connected = edge["connected"].as_bool() == Some(true);
    let served = match &edge["served"]["revision"] {
        Value::Null if text(edge, "standing") == "revoked" => "may still serve what it had".to_owned(),
        // Each control plane knows only what edges told it.
        Value::Null if !is_connected => "what it serves is not known here".to_owned(),
        Value::Null => "serves nothing yet".to_owned(),
        revision => format!("serves revision {revision}"),
    };
    let connection = if is_connected { "connected" } else { "not connected to this control plane" };
    print::line(format_args!(
        "{} ({}), group {}: {}, {connection}, {served}{version}",
        text(edge, "name"),
        text(edge, "id"),
        text(edge, "group"),
        text(edge, "standing"),
    ));
    if let Some(reason) = edge["refused"]["reason"].as_str() {
        let revision = &edge["refused"]["position"]["revision"];
        print::line(format_args!("  refused revision {revision}: {reason}"));
    }
    for object in edge["broken"]["objects"].as_array().into_iter().flatten() {
        let (kind, id) = (text(object, "kind"), text(object, "id"));
        print::line(format_args!("  can't use {kind}/{id}: {}", text(object, "reason").replace('\n', "; ")));
    }
    for plugin in edge["lacks_plugins"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print::line(format_args!("  lacks the plugin {plugin}: what it protects answers 503"));
    }
    for object in edge["left_out"]["objects"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print::line(format_args!("  its version gets the configuration without {object}"));
    }
    if let Some(skew) = edge["clock_skew_ms"].as_i64() {
        print::line(format_args!("  its clock differs by {skew} ms"));
    }
}

fn invite(
    gateway: &GatewayArgs,
    name: Option<&str>,
    group: Option<&str>,
    again: Option<&str>,
    address: Option<&str>,
) -> Result<u8, u8> {
    let admin = gateway.open()?;
    let edge = again.map(|edge| id_of(&admin, edge)).transpose()?;
    let body = json!({ "name": name, "group": group, "edge": edge, "address": address });
    let invited = admin.ask("POST", INVITATIONS, Some(&body))?;
    print::line(text(&invited, "invitation"));
    Ok(0)
}

fn invitations(gateway: &GatewayArgs, output: OutputFormat) -> Result<u8, u8> {
    let shown = gateway.open()?.ask("GET", INVITATIONS, None)?;
    if output == OutputFormat::Json {
        print::line(&shown);
        return Ok(0);
    }
    let pending = shown["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if pending.is_empty() {
        print::line("There is no pending invitation.");
    }
    for one in pending {
        let whom = match (&one["edge"], &one["name"]) {
            (Value::String(edge), _) => format!("for edge {edge} again"),
            (_, Value::String(name)) => format!("for a new edge {name}"),
            _ => "for a new edge".to_owned(),
        };
        print::line(format_args!(
            "{} {whom}, group {}, expires at {}",
            text(one, "id"),
            text(one, "group"),
            text(one, "expires_at"),
        ));
    }
    Ok(0)
}

fn withdraw(gateway: &GatewayArgs, invitation: &str) -> Result<u8, u8> {
    let admin = gateway.open()?;
    let shown = admin.ask("GET", INVITATIONS, None)?;
    let pending = shown["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |key: &str| pending.iter().filter(|one| text(one, key) == invitation).collect::<Vec<_>>();
    let found = Some(named("id")).filter(|found| !found.is_empty()).unwrap_or_else(|| named("name"));
    match found.as_slice() {
        [one] => {
            admin.ask("DELETE", &format!("{INVITATIONS}/{}", text(one, "id")), None)?;
            print::line(format_args!("The invitation {invitation} is withdrawn."));
            Ok(0)
        }
        [] => {
            print::error(format_args!(
                "There is no pending invitation `{invitation}`; `ferrum-edge fleet invitations` lists them."
            ));
            Err(FAILED)
        }
        several => {
            let count = several.len();
            print::error(format_args!("{count} invitations are for `{invitation}`; name one by its id."));
            Err(MISUSED)
        }
    }
}

fn change(
    gateway: &GatewayArgs,
    edge: &str,
    method: &str,
    action: &str,
    body: Option<Value>,
    what: &str,
) -> Result<u8, u8> {
    let admin = gateway.open()?;
    let id = id_of(&admin, edge)?;
    admin.ask(method, &format!("/v1/fleet/edges/{id}{action}"), body.as_ref())?;
    print::line(format_args!("{edge} {what}."));
    Ok(0)
}

/// Assigns proxies and workspaces to a group; `None` is everything.
fn assign(
    gateway: &GatewayArgs,
    group: &str,
    assigned: Option<(&Vec<String>, &Vec<String>)>,
) -> Result<u8, u8> {
    let admin = gateway.open()?;
    let body = assigned.map_or_else(
        || json!({ "proxies": null }),
        |(proxies, workspaces)| json!({ "proxies": proxies, "workspaces": workspaces }),
    );
    admin.ask("PUT", &format!("/v1/fleet/groups/{group}"), Some(&body))?;
    let names = assigned.map(|(proxies, workspaces)| {
        let workspaces = workspaces.iter().map(|name| format!("the workspace {name}"));
        proxies.iter().cloned().chain(workspaces).collect::<Vec<_>>().join(", ")
    });
    print::line(format_args!("Group {group} gets {}.", names.unwrap_or_else(|| "everything".to_owned())));
    Ok(0)
}

/// The id of an edge that is named by its id or its name.
fn id_of(admin: &Admin, edge: &str) -> Result<String, u8> {
    let fleet = admin.ask("GET", "/v1/fleet", None)?;
    let edges = fleet["edges"].as_array().cloned().unwrap_or_default();
    if edges.iter().any(|row| text(row, "id") == edge) {
        return Ok(edge.to_owned());
    }
    let named: Vec<&Value> = edges.iter().filter(|row| text(row, "name") == edge).collect();
    match named.as_slice() {
        [one] => Ok(text(one, "id").to_owned()),
        [] => {
            print::error(format_args!("There is no edge `{edge}`; `ferrum-edge fleet status` lists them."));
            Err(FAILED)
        }
        several => {
            print::error(format_args!("{} edges are named `{edge}`; name one by its id.", several.len()));
            Err(MISUSED)
        }
    }
}
