//! `bulk`: bytes in one direction at an offered load, to a sink in this process, with every byte checked.

use std::net::SocketAddr;
use std::time::Duration;

use super::{CommandError, output};
use crate::bulk::{BulkOutcome, BulkPlan, Carrier, Sink};
use crate::command::ExitStatus;
use crate::load_args::parse_duration;

/// Arguments of `bulk`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What is carried.
    #[arg(short = 'c', long, value_enum, default_value = "tcp")]
    carrier: Carrier,
    /// Where the sink listens. What is measured must forward to it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    sink: SocketAddr,
    /// Where senders connect: the program under test. Without it they connect to the sink itself.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<SocketAddr>,
    /// Bits a second over all streams, such as 100M or 2.5G; as fast as it goes without it.
    #[arg(short = 'r', long, value_name = "BITS", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Connections, or flows of datagrams.
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    streams: u32,
    /// Bytes of a datagram's payload.
    #[arg(long, default_value_t = 1400, value_parser = clap::value_parser!(u16).range(8..=65_000))]
    datagram: u16,
    /// Measured time.
    #[arg(short = 'd', long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// Load before it that is not counted.
    #[arg(short = 'O', long, default_value = "2s", value_parser = parse_duration)]
    omit: Duration,
    /// The process whose CPU time is reported.
    #[arg(long, value_name = "PID")]
    subject: Option<u32>,
    /// Prints JSON in place of text.
    #[arg(long)]
    json: bool,
}

/// Runs one round.
///
/// # Errors
/// A port that is taken, or a connection that fails.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let sink = Sink::open(args.carrier, args.sink)?;
    let outcome = sink.round(&BulkPlan {
        carrier: args.carrier,
        to: args.to,
        rate: args.rate,
        streams: args.streams,
        datagram: usize::from(args.datagram),
        omit: args.omit,
        window: args.duration,
        subject: args.subject,
    })?;
    let text = match args.json {
        true => serde_json::to_string(&outcome).unwrap_or_default() + "\n",
        false => summary(args, &outcome),
    };
    output::print(&text)?;
    Ok(if outcome.void.is_empty() { ExitStatus::Valid } else { ExitStatus::Void })
}

fn summary(args: &Args, outcome: &BulkOutcome) -> String {
    let mut text = format!(
        "{:.2} Mbit/s in {:.2} s, {} bytes checked",
        outcome.megabits, outcome.window_seconds, outcome.received
    );
    if args.carrier == Carrier::Udp {
        text.push_str(&format!(
            ", {:.3} % of {} datagrams lost",
            outcome.lost_percent(),
            outcome.datagrams_sent
        ));
    } else {
        text.push_str(&format!(", {} segments sent again on this machine", outcome.retransmitted));
    }
    if let Some(cpu) = outcome.cpu_us_per_mib() {
        text.push_str(&format!(", {cpu:.0} us of the subject's CPU time a MiB"));
    }
    for why in &outcome.void {
        text.push_str(&format!("\nVOID: {why}"));
    }
    text.push('\n');
    text
}

/// Why a text is no rate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
enum RateError {
    #[error("`{0}` is no rate; write 100M or 2.5G")]
    Number(String),
    #[error("write 1K to 1000G")]
    Range,
}

/// Reads a rate in bits: a number with K, M or G behind it.
fn parse_rate(text: &str) -> Result<f64, RateError> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (text.len() - 1, 1e3),
        Some(b'm' | b'M') => (text.len() - 1, 1e6),
        Some(b'g' | b'G') => (text.len() - 1, 1e9),
        _ => (text.len(), 1.0),
    };
    let number: f64 = text
        .get(..digits)
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| RateError::Number(text.to_owned()))?;
    let rate = number * factor;
    if (1e3..=1e12).contains(&rate) { Ok(rate) } else { Err(RateError::Range) }
}

#[cfg(test)]
mod tests {
    use super::parse_rate;

    #[test]
    fn rates_have_decimal_units() {
        assert_eq!(parse_rate("2.5G"), Ok(2.5e9));
        assert_eq!(parse_rate("100m"), Ok(1e8));
        assert!(parse_rate("fast").is_err() && parse_rate("0").is_err());
    }
}
