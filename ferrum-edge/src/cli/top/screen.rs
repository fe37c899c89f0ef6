//! The screen of `top`: what is sorted and filtered how, and how it is drawn.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::board::{Board, TableLine, View};

/// Errors and slow requests that are kept.
const MAX_EVENTS: usize = 200;
/// Letters of a filter.
const MAX_FILTER: usize = 100;

/// A column.
#[derive(Debug, Clone, Copy)]
struct Column {
    name: &'static str,
    width: u16,
    /// What it is sorted by; the name is sorted as text.
    value: fn(&TableLine) -> f64,
    shown: fn(&TableLine) -> String,
}

/// All of them; the first is the name.
const COLUMNS: [Column; 10] = [
    Column { name: "NAME", width: 0, value: |_| 0.0, shown: |line| line.name.clone() },
    Column {
        name: "REQ/S",
        width: 9,
        value: |l| l.requests_per_second,
        shown: |l| number(l.requests_per_second),
    },
    Column {
        name: "4XX/S",
        width: 8,
        value: |l| l.client_errors_per_second,
        shown: |l| number(l.client_errors_per_second),
    },
    Column {
        name: "ERR/S",
        width: 8,
        value: |l| l.errors_per_second,
        shown: |l| number(l.errors_per_second),
    },
    Column { name: "P50", width: 8, value: |l| l.p50.unwrap_or(-1.0), shown: |l| time(l.p50) },
    Column { name: "P90", width: 8, value: |l| l.p90.unwrap_or(-1.0), shown: |l| time(l.p90) },
    Column { name: "P99", width: 8, value: |l| l.p99.unwrap_or(-1.0), shown: |l| time(l.p99) },
    Column { name: "INFL", width: 8, value: |l| l.in_flight, shown: |l| number(l.in_flight) },
    Column {
        name: "RETRY/S",
        width: 8,
        value: |l| l.retries_per_second,
        shown: |l| number(l.retries_per_second),
    },
    Column {
        name: "OUT/S",
        width: 9,
        value: |l| l.bytes_out_per_second,
        shown: |l| bytes(l.bytes_out_per_second),
    },
];

/// What the screen shows.
pub(super) struct Screen {
    pub(super) board: Board,
    /// Why there is nothing newer.
    pub(super) trouble: Option<String>,
    events: VecDeque<String>,
    view: View,
    sorted_by: usize,
    ascending: bool,
    filter: String,
    is_filtering: bool,
    pub(super) is_paused: bool,
    table: TableState,
    address: String,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAction {
    Nothing,
    Quit,
}

impl Screen {
    pub(super) fn new(address: String) -> Self {
        Self {
            board: Board::default(),
            trouble: None,
            events: VecDeque::new(),
            view: View::Proxies,
            sorted_by: 1,
            ascending: false,
            filter: String::new(),
            is_filtering: false,
            is_paused: false,
            table: TableState::default(),
            address,
        }
    }

    /// An error or a slow request.
    pub(super) fn event(&mut self, text: String) {
        if self.is_paused {
            return;
        }
        self.events.push_front(text);
        self.events.truncate(MAX_EVENTS);
    }

    /// Carries out a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> KeyAction {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return KeyAction::Quit,
            KeyCode::Esc if self.is_filtering || !self.filter.is_empty() => {
                self.is_filtering = false;
                self.filter.clear();
            }
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Backspace if self.is_filtering => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.is_filtering && self.filter.len() < MAX_FILTER => {
                self.filter.push(letter);
            }
            KeyCode::Char(_) if self.is_filtering => {}
            KeyCode::Char('q') | KeyCode::Esc => return KeyAction::Quit,
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => self.ascending = !self.ascending,
            KeyCode::Char('1') => self.view = View::Proxies,
            KeyCode::Char('2') => self.view = View::Upstreams,
            KeyCode::Char('3') => self.view = View::Targets,
            KeyCode::Char('4') => self.view = View::Callers,
            KeyCode::Tab => {
                self.view = match self.view {
                    View::Proxies => View::Upstreams,
                    View::Upstreams => View::Targets,
                    View::Targets => View::Callers,
                    View::Callers => View::Proxies,
                }
            }
            KeyCode::Right | KeyCode::Char('>') => self.sorted_by = (self.sorted_by + 1) % COLUMNS.len(),
            KeyCode::Left | KeyCode::Char('<') => {
                self.sorted_by = (self.sorted_by + COLUMNS.len() - 1) % COLUMNS.len();
            }
            KeyCode::Down | KeyCode::Char('j') => self.table.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.table.select_previous(),
            KeyCode::PageDown => self.table.scroll_down_by(20),
            KeyCode::PageUp => self.table.scroll_up_by(20),
            KeyCode::Home => self.table.select_first(),
            _ => {}
        }
        KeyAction::Nothing
    }

    /// The lines of the view in their order.
    pub(super) fn lines(&self) -> Vec<&TableLine> {
        let filter = self.filter.to_lowercase();
        let lines = self.board.lines(self.view).iter();
        let mut lines: Vec<_> = lines.filter(|line| line.name.to_lowercase().contains(&filter)).collect();
        let value = COLUMNS[self.sorted_by].value;
        lines.sort_by(|one, other| {
            // Names go from a to z, numbers from the largest.
            let by_value = value(other).total_cmp(&value(one));
            let order = if self.sorted_by == 0 { one.name.cmp(&other.name) } else { by_value };
            let order = if self.ascending { order.reverse() } else { order };
            order.then_with(|| one.name.cmp(&other.name))
        });
        lines
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let events = if frame.area().height > 24 { 10 } else { 6 };
        let parts =
            [Constraint::Length(2), Constraint::Min(3), Constraint::Length(events), Constraint::Length(1)];
        let [head, table, below, keys] = Layout::vertical(parts).areas(frame.area());
        self.draw_head(frame, head);
        self.draw_table(frame, table);
        let list: Vec<Text<'_>> = self.events.iter().map(|event| Text::raw(event.as_str())).collect();
        let block = Block::default().borders(Borders::TOP).title("Errors and slow requests");
        frame.render_widget(Paragraph::new(list).block(block), below);
        let hint = match self.is_filtering {
            true => format!("filter: {}_   Enter keeps it, Esc clears it", self.filter),
            false => {
                "q quit  1 2 3 4 views  < > sort  r reverse  / filter  p pause  arrows scroll".to_owned()
            }
        };
        frame.render_widget(Paragraph::new(hint).style(Style::default().add_modifier(Modifier::DIM)), keys);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let Board { version, revision, connections, active_requests, total, .. } = &self.board;
        let first = format!(
            "ferrum-edge {version} at {}   revision {revision}   connections {connections}   in flight {active_requests}{}",
            self.address,
            if self.is_paused { "   PAUSED" } else { "" },
        );
        let second = format!(
            "{} req/s   {} err/s   p50 {}   p99 {}   in {}/s   out {}/s",
            number(total.requests_per_second),
            number(total.errors_per_second),
            time(total.p50),
            time(total.p99),
            bytes(total.bytes_in_per_second),
            bytes(total.bytes_out_per_second),
        );
        let second = match &self.trouble {
            Some(trouble) => Span::styled(trouble.clone(), Style::default().fg(Color::Red)),
            None => Span::raw(second),
        };
        frame.render_widget(Paragraph::new(vec![Text::raw(first), Text::from(second)]), area);
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let what = match self.view {
            View::Proxies => "PROXY",
            View::Upstreams => "UPSTREAM",
            View::Targets => "TARGET",
            View::Callers => "CALLER",
        };
        let head = COLUMNS.iter().enumerate().map(|(n, column)| {
            let name = if n == 0 { what } else { column.name };
            let mark = if n != self.sorted_by {
                ""
            } else if self.ascending {
                "^"
            } else {
                "v"
            };
            Cell::from(format!("{name}{mark}"))
        });
        let head = Row::new(head).style(Style::default().add_modifier(Modifier::REVERSED));
        let rows: Vec<Row<'_>> = self.lines().into_iter().map(row).collect();
        let widths = COLUMNS.map(|column| match column.width {
            0 => Constraint::Min(16),
            width => Constraint::Length(width),
        });
        let table = Table::new(rows, widths)
            .header(head)
            .row_highlight_style(Style::default().add_modifier(Modifier::BOLD));
        frame.render_stateful_widget(table, area, &mut self.table);
    }
}

fn row(line: &TableLine) -> Row<'static> {
    let cells = COLUMNS.iter().map(|column| Cell::from((column.shown)(line)));
    let color = match line.healthy {
        Some(false) => Some(Color::Red),
        _ if line.errors_per_second > 0.0 => Some(Color::Yellow),
        _ => None,
    };
    Row::new(cells).style(color.map_or_else(Style::default, |color| Style::default().fg(color)))
}

/// The columns of a line as plain text, for a screen that is printed once.
pub(super) fn plain(lines: &[&TableLine], what: &str) -> String {
    let width = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0).max(what.len());
    let row = |cells: [String; COLUMNS.len()]| {
        let cells = cells.iter().zip(&COLUMNS).enumerate().map(|(n, (cell, column))| match n {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>0$}", usize::from(column.width)),
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    let head = COLUMNS.map(|column| if column.width == 0 { what } else { column.name }.to_owned());
    let lines = lines.iter().map(|line| row(COLUMNS.map(|column| (column.shown)(line))));
    std::iter::once(row(head)).chain(lines).collect::<Vec<_>>().join("\n")
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// With three digits.
fn time(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "–".to_owned() };
    let (value, unit) = if seconds < 1.0 { (seconds * 1e3, "ms") } else { (seconds, "s") };
    match value {
        ..9.995 => format!("{value:.2}{unit}"),
        ..99.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

fn bytes(value: f64) -> String {
    match value {
        ..1024.0 => format!("{value:.0}B"),
        ..1_048_576.0 => format!("{:.1}K", value / 1024.0),
        ..1_073_741_824.0 => format!("{:.1}M", value / 1_048_576.0),
        _ => format!("{:.1}G", value / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests;
