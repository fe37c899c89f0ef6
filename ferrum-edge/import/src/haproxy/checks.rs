//! Converts health checks of servers.

use super::sections::Section;
use crate::draft::{ActiveCheck, Matcher};
use crate::text;

/// The active health check of a section.
pub(super) fn checks(
    section: &Section,
    inter: Option<u64>,
    rise: Option<u32>,
    fall: Option<u32>,
) -> ActiveCheck {
    let mut active = ActiveCheck::default();
    match section.first(&["option", "httpchk"]) {
        Some(line) => {
            let sent = section.first(&["http-check", "send"]);
            let uri = sent.and_then(|it| {
                it.words.iter().position(|word| word == "uri").and_then(|n| it.words.get(n + 1))
            });
            let path = match line.arguments().get(1..).unwrap_or_default() {
                [] => "/",
                [one] => one.as_str(),
                [_, path, ..] => path.as_str(),
            };
            active.http_path(uri.map_or(path, String::as_str));
            let expected = section
                .first(&["http-check", "expect", "status"])
                .and_then(|it| it.word(3).parse::<u16>().ok());
            let codes: Vec<u16> = expected.map_or_else(
                || vec![200, 201, 202, 203, 204, 206, 301, 302, 303, 304, 307, 308],
                |it| vec![it],
            );
            active.healthy_status_codes(codes);
        }
        None => other_checks(section, &mut active),
    }
    active.interval(text::seconds(inter.unwrap_or(2000)).min(86_400));
    active.healthy_threshold(rise.unwrap_or(2).max(1));
    active.unhealthy_threshold(fall.unwrap_or(3).max(1));
    active
}

/// Options that check by a database protocol, and the probe that replaces each.
const DATABASES: [(&str, &str); 3] =
    [("pgsql-check", "postgres"), ("mysql-check", "mysql"), ("redis-check", "redis")];

/// Converts health checks that do not use HTTP.
fn other_checks(section: &Section, active: &mut ActiveCheck) {
    let database = DATABASES.iter().find(|(option, _)| section.first(&["option", option]).is_some());
    active.probe_type(database.map_or("tcp", |(_, probe)| *probe));
    if let Some((sent, expected)) = dialogue(section) {
        active.send(sent);
        active.expect(expected);
    }
}

/// The text that `tcp-check` sends, and the expected answer.
type Dialogue = (Option<String>, Option<Matcher>);

/// The dialogue of `option tcp-check`; `None` if a probe cannot express it. A probe sends one text and reads one answer.
pub(super) fn dialogue(section: &Section) -> Option<Dialogue> {
    section.first(&["option", "tcp-check"])?;
    let (mut sent, mut expected) = (String::new(), None);
    for line in section.rules(&["tcp-check"]) {
        match (line.word(1), line.word(2)) {
            ("comment", _) => {}
            ("connect", _) if line.words.len() == 2 => {}
            ("send", text) if expected.is_none() => sent.push_str(&decoded(text)),
            ("expect", way @ ("string" | "rstring")) if expected.is_none() => {
                // HAProxy searches the whole answer.
                expected = Some(match way {
                    "string" => Matcher::contains(decoded(line.word(3))),
                    _ => Matcher::regex(format!("(?s).*(?:{}).*", line.word(3))),
                });
            }
            _ => return None,
        }
    }
    Some(((!sent.is_empty()).then_some(sent), expected))
}

/// Decodes line ends and tabs; other escapes are decoded earlier.
fn decoded(text: &str) -> String {
    text.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t")
}

/// Whether an option checks by a database protocol.
pub(super) fn is_of_database(option: &str) -> bool {
    DATABASES.iter().any(|(of, _)| *of == option)
}
