//! `/v1/access-log/recent`: the newest records in the access log file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gateway_core::config::model::{LogDestination, LogLayout, Settings};
use serde_json::Value;

use super::problem::{Refused, problem};
use super::query::{nothing_else, page_size, pairs, value};
use super::records::Wanted;
use super::resources::answer;
use crate::engine::Engine;

/// The path of the endpoint.
pub(super) const PATH: &str = "/v1/access-log/recent";
/// Maximum number of records in one answer.
const MAX_RECORDS: usize = 1_000;
/// Default number of records.
const DEFAULT_RECORDS: usize = 10;
/// Maximum number of bytes read from the end of the file.
const MAX_SCANNED: u64 = 64 << 20;
/// Bytes per read.
const CHUNK: u64 = 256 << 10;

/// `GET`: the last records that match the query's filters, oldest first, as one JSON object per line.
pub(super) async fn recent(State(engine): State<Arc<Engine>>, RawQuery(query): RawQuery) -> Response {
    let found = async {
        let mut pairs = pairs(query.as_deref());
        let limit = page_size(&mut pairs, DEFAULT_RECORDS, MAX_RECORDS)?;
        let request_id = value(&mut pairs, "request_id")?;
        let wanted = Wanted::take(&mut pairs)?;
        nothing_else(&pairs)?;
        let path = file(&engine.snapshot().settings).ok_or_else(no_file)?;
        let is_wanted = move |record: &Value| {
            let id = record["http.request.id"].as_str();
            request_id.as_deref().is_none_or(|wanted| id == Some(wanted)) && wanted.passes(record)
        };
        let read = tokio::task::spawn_blocking(move || last_lines(&path, limit, is_wanted)).await;
        let lines = read.unwrap_or_else(|error| Err(io::Error::other(error)));
        let lines = lines.map_err(|error| {
            let detail = format!("The access log can't be read: {error}");
            Box::new(problem(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", &detail))
        })?;
        Ok::<_, Refused>(([(CONTENT_TYPE, "application/x-ndjson")], lines.concat()).into_response())
    };
    answer(found.await)
}

/// The file that contains access records as JSON.
fn file(settings: &Settings) -> Option<PathBuf> {
    let main = settings.access_log.as_ref().map(|log| log.path.clone()).filter(|path| path != Path::new("-"));
    let of_sinks = || {
        settings.log_sinks.iter().find_map(|sink| match &sink.destination {
            LogDestination::File(file) if matches!(sink.layout, LogLayout::Json) => Some(file.path.clone()),
            _ => None,
        })
    };
    main.or_else(of_sinks)
}

fn no_file() -> Refused {
    let detail =
        "There is no access log in JSON: set `gateway.access_log.path`, or follow new records with `logs -f`";
    Box::new(problem(StatusCode::NOT_FOUND, "no_access_log", detail))
}

/// The last lines of a file that match, oldest first, each with its line feed.
fn last_lines(path: &Path, limit: usize, is_wanted: impl Fn(&Value) -> bool) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let mut start = file.seek(SeekFrom::End(0))?;
    let end = start;
    let mut found = Vec::new();
    // The beginning of a line whose rest is in the chunk read before.
    let mut rest: Vec<u8> = Vec::new();
    while start > 0 && found.len() < limit && end - start < MAX_SCANNED {
        let size = CHUNK.min(start);
        start -= size;
        file.seek(SeekFrom::Start(start))?;
        let mut chunk = Vec::new();
        file.by_ref().take(size).read_to_end(&mut chunk)?;
        chunk.append(&mut rest);
        let mut lines: Vec<&[u8]> = chunk.split(|byte| *byte == b'\n').collect();
        // The first line may begin in an earlier chunk.
        let first = lines.remove(0);
        take(&lines, limit, &is_wanted, &mut found);
        rest = first.to_vec();
    }
    if start == 0 {
        take(&[&rest], limit, &is_wanted, &mut found);
    }
    found.reverse();
    Ok(found)
}

fn take(lines: &[&[u8]], limit: usize, is_wanted: &impl Fn(&Value) -> bool, found: &mut Vec<String>) {
    for line in lines.iter().rev().filter(|line| !line.is_empty()) {
        if found.len() >= limit {
            return;
        }
        let record = serde_json::from_slice::<Value>(line).ok().filter(Value::is_object);
        if record.is_some_and(|record| is_wanted(&record)) {
            found.push(format!("{}\n", String::from_utf8_lossy(line)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_wherever_chunks_end() {
        let path = std::env::temp_dir().join(format!("ferrum-recent-{}", std::process::id()));
        let line = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}\n", "x".repeat(n % 7_000));
        let text: String = (0..300).map(line).collect();
        std::fs::write(&path, format!("{text}no json\n{{\"half\":")).unwrap();
        let last = |limit| last_lines(&path, limit, |_| true).unwrap();
        assert_eq!(last(2), [line(298), line(299)]);
        assert_eq!(last(1_000).concat(), text);
        let even = last_lines(&path, 1, |record| record["n"] == 4).unwrap();
        assert_eq!(even, [line(4)]);
        std::fs::write(&path, "").unwrap();
        assert!(last(5).is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}
