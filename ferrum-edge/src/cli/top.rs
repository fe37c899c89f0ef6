//! What a running gateway does now: `top`.

mod board;
mod screen;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use gateway_core::config::units::Millis;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::{Value, json};

use super::admin::{Admin, AdminResponse, GatewayArgs};
use super::{FAILED, MISUSED, OutputFormat, print, tail};
use board::{Board, Look, OtherAnswer, View};
use screen::{KeyAction, Screen};

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    admin: GatewayArgs,
    /// Time between two looks, such as 500ms or 2s
    #[arg(long, default_value = "1s", value_name = "TIME")]
    interval: Millis,
    /// List requests that take at least so long, besides errors
    #[arg(long, default_value = "1s", value_name = "TIME")]
    slower: Millis,
    /// Print what happens within one interval, and end
    #[arg(long)]
    once: bool,
    /// Output format; json requires --once
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
    /// The same as --output json
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

impl TopArgs {
    fn is_json(&self) -> bool {
        self.json || matches!(self.output, OutputFormat::Json)
    }
}

/// Where counts are asked for.
const PATH: &str = "/v1/traffic";
/// The shortest interval: each look is a request.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The longest: after more than that the gateway stops counting.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// Errors and slow requests that wait to be shown; others are left out.
const MAX_WAITING: usize = 256;
/// Those that are printed once.
const MAX_PRINTED: usize = 100;
/// Before following again after that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Shows what a gateway does, until told to stop.
pub(super) fn top(args: &TopArgs) -> u8 {
    let interval = Duration::from_millis(args.interval.0);
    if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
        print::error("--interval is from 100ms to 10s");
        return MISUSED;
    }
    if args.is_json() && !args.once {
        print::error("--output json prints one interval: add --once");
        return MISUSED;
    }
    if !args.once && !io::stdout().is_terminal() {
        print::error("There is no terminal to draw on; print what happens once with --once");
        return MISUSED;
    }
    let admin = match args.admin.open() {
        Ok(admin) => admin,
        Err(code) => return code,
    };
    // The first look starts the counting; it also says whether there is anybody.
    let first = match admin.ask("GET", PATH, None).map(Look::read) {
        Ok(Ok(look)) => look,
        Ok(Err(error)) => {
            print::error(error);
            return FAILED;
        }
        Err(code) => return code,
    };
    let events = follow(&admin, args.slower.0);
    let shown = match args.once {
        true => once(args, &admin, first, &events, interval),
        false => ratatui::try_init().map_err(TopError::from).and_then(|terminal| {
            let shown = watch(terminal, &admin, first, &events, interval);
            ratatui::restore();
            shown
        }),
    };
    shown.map_or_else(
        |error| {
            print::error(error);
            FAILED
        },
        |()| 0,
    )
}

/// Why there is no further look.
#[derive(Debug, thiserror::Error)]
enum TopError {
    #[error("no gateway answers: {0}")]
    NoAnswer(#[source] io::Error),
    /// In its own words.
    #[error("{detail} ({status})")]
    Refused { detail: String, status: u16 },
    #[error(transparent)]
    Answer(#[from] OtherAnswer),
    #[error(transparent)]
    Terminal(#[from] io::Error),
    #[error(transparent)]
    Json(serde_json::Error),
}

/// Another look.
fn look(admin: &Admin) -> Result<Look, TopError> {
    match admin.exchange("GET", PATH, None) {
        Ok(AdminResponse { status: 200, body }) => Ok(Look::read(body)?),
        Ok(AdminResponse { status, body }) => {
            let detail = body["detail"].as_str().unwrap_or("the gateway refuses").to_owned();
            Err(TopError::Refused { detail, status })
        }
        Err(error) => Err(TopError::NoAnswer(error)),
    }
}

/// Prints what happens within one interval.
fn once(
    args: &TopArgs,
    admin: &Admin,
    first: Look,
    events: &Receiver<Value>,
    interval: Duration,
) -> Result<(), TopError> {
    let until = Instant::now() + interval;
    let mut seen = Vec::new();
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if let Ok(event) = events.recv_timeout(left)
            && seen.len() < MAX_PRINTED
        {
            seen.push(event);
        }
    }
    let board = Board::between(&first, &look(admin)?);
    if args.is_json() {
        let mut document = serde_json::to_value(&board).map_err(TopError::Json)?;
        document["events"] = json!(seen);
        print::line(&document);
        return Ok(());
    }
    let views = [
        (View::Proxies, "PROXY"),
        (View::Upstreams, "UPSTREAM"),
        (View::Targets, "TARGET"),
        (View::Callers, "CALLER"),
    ];
    for (view, what) in views {
        let mut lines: Vec<_> = board.lines(view).iter().collect();
        if lines.is_empty() && view == View::Callers {
            continue;
        }
        lines.sort_by(|one, other| {
            let busier = other.requests_per_second.total_cmp(&one.requests_per_second);
            busier.then_with(|| one.name.cmp(&other.name))
        });
        print::line(screen::plain(&lines, what));
        print::line("");
    }
    seen.iter().for_each(|event| print::line(tail::text(event)));
    Ok(())
}

/// Draws until somebody quits.
fn watch(
    mut terminal: DefaultTerminal,
    admin: &Admin,
    mut before: Look,
    events: &Receiver<Value>,
    interval: Duration,
) -> Result<(), TopError> {
    let mut screen = Screen::new(admin.shown());
    let mut next = Instant::now() + interval;
    loop {
        events.try_iter().for_each(|event| screen.event(tail::text(&event)));
        terminal.draw(|frame| screen.draw(frame))?;
        if event::poll(next.saturating_duration_since(Instant::now()))?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && screen.key(key) == KeyAction::Quit
        {
            return Ok(());
        }
        if Instant::now() >= next {
            next = Instant::now() + interval;
            match look(admin) {
                Ok(now) => {
                    if !screen.is_paused {
                        screen.board = Board::between(&before, &now);
                    }
                    (before, screen.trouble) = (now, None);
                }
                Err(error) => screen.trouble = Some(error.to_string()),
            }
        }
    }
}

/// Follows errors and slow requests, each on a thread that ends with the process.
fn follow(admin: &Admin, slower: u64) -> Receiver<Value> {
    let (sender, events) = mpsc::sync_channel(MAX_WAITING);
    for path in ["/v1/access-log?status=500-599".to_owned(), format!("/v1/access-log?slower_than={slower}")] {
        let (admin, sender) = (admin.again(), sender.clone());
        thread::spawn(move || {
            while follow_one(&admin, &path, &sender) {
                thread::sleep(RETRY);
            }
        });
    }
    events
}

/// False when nobody listens any more.
fn follow_one(admin: &Admin, path: &str, sender: &SyncSender<Value>) -> bool {
    let is_error = path.contains("status=");
    let mut is_heard = true;
    let followed = admin.try_follow(path, |line| {
        if let Ok(record) = serde_json::from_str::<Value>(line) {
            // A slow error is one of the errors.
            let is_both =
                !is_error && record["http.response.status_code"].as_u64().is_some_and(|code| code >= 500);
            if !is_both && record["kind"] != "lost" {
                is_heard = !matches!(sender.try_send(record), Err(mpsc::TrySendError::Disconnected(_)));
            }
        }
        is_heard
    });
    // Whether it failed or the gateway ended it, it is tried again.
    drop(followed);
    is_heard
}
