//! proto_bench's tests from outside: all protocols, wrong servers, firewalls, the growing configuration, replays, the command line.

#[path = "all/cli.rs"]
mod cli;
#[path = "all/closing.rs"]
mod closing;
#[path = "all/firewall.rs"]
mod firewall;
#[path = "all/protocols.rs"]
mod protocols;
#[path = "all/replay.rs"]
mod replay;
#[path = "all/reports.rs"]
mod reports;
#[path = "all/scale.rs"]
mod scale;
#[path = "all/support.rs"]
mod support;
#[path = "all/wrong_servers.rs"]
mod wrong_servers;
