//! `errorfile`, `errorloc` and `http-error`: what HAProxy answers instead of its own errors.

use std::path::Path;

use super::Haproxy;
use super::sections::{HaproxyLine, Section};
use crate::draft::{ErrorPages, Page, Plug, draft};

/// The lines.
pub(super) const NAMES: &[&str] = &["errorfile", "errorloc", "errorloc302", "errorloc303", "http-error"];

const TODO: &str = "use the plugin `error_pages`";

impl Haproxy<'_, '_> {
    /// The plugin for the error pages of a section, where it has any. Those of a backend precede those of the frontend.
    pub(super) fn error_pages(&mut self, section: &Section) -> Option<Plug> {
        let lines: Vec<HaproxyLine> = section.rules(NAMES).cloned().collect();
        let mut pages: Vec<Page> = Vec::new();
        // What is said last holds.
        for line in lines.iter().rev() {
            match self.error_page(line) {
                Ok(page) if pages.iter().any(|known| known["status"] == page["status"]) => {}
                Ok(page) => {
                    pages.push(page);
                    self.out.converted(line.at, line.text());
                }
                Err(why) => self.out.not_converted(line.at, line.text(), why, TODO),
            }
        }
        // Where no server can be reached, HAProxy answers 503 and the gateway 502.
        if !pages.iter().any(|page| page["status"] == 502)
            && let Some(page) = pages.iter_mut().find(|page| page["status"] == 503)
        {
            page.status("502, 503");
            if !page.contains_key("redirect") && !page.contains_key("response_status") {
                page.response_status(503);
            }
        }
        (!pages.is_empty()).then(|| Plug::of(draft!(ErrorPages { of: "gateway", pages })))
    }

    /// A page of `error_pages`.
    fn error_page(&mut self, line: &HaproxyLine) -> Result<Page, String> {
        if let Some(why) = line.lacks() {
            return Err(why.to_string());
        }
        let words: Vec<&str> = line.arguments().iter().map(String::as_str).collect();
        let after =
            |word: &str| words.iter().position(|it| *it == word).and_then(|at| words.get(at + 1)).copied();
        let code = if line.name() == "http-error" { after("status") } else { words.first().copied() };
        let code = code.and_then(|code| code.parse::<u16>().ok()).filter(|code| (400..=599).contains(code));
        let code = code.ok_or("its status is not that of an error")?;
        let mut page = draft!(Page { status: code });
        let file = match (line.name(), words.get(1)) {
            ("errorfile", Some(file)) => Some(*file),
            ("errorfile", None) => return Err("it names no file".to_owned()),
            ("http-error", _) => after("errorfile"),
            (_, Some(url))
                if !(url.starts_with("http") || url.starts_with('/') && !url.starts_with("//")) =>
            {
                return Err("it is no URL that begins with a scheme or a slash".to_owned());
            }
            (name, Some(url)) => {
                page.redirect(url.replace('$', "$$"));
                if name == "errorloc303" {
                    page.response_status(303);
                }
                return Ok(page);
            }
            (_, None) => return Err("it names no URL".to_owned()),
        };
        if let Some(file) = file {
            let text = self.reader.read(Path::new(file)).map_err(|why| format!("{file}: {why}"))?;
            raw_page(&text, code, &mut page).ok_or_else(|| format!("{file} is not an HTTP response"))?;
            return Ok(page);
        }
        let kind = after("content-type").unwrap_or("text/plain");
        let body = match (after("string"), after("file")) {
            (Some(text), _) => text.to_owned(),
            (None, Some(file)) => {
                self.reader.read(Path::new(file)).map_err(|why| format!("{file}: {why}"))?
            }
            (None, None) => return Err("what it answers can't be said here".to_owned()),
        };
        page.content_type(kind);
        page.body(body.replace('$', "$$"));
        Ok(page)
    }
}

/// A whole response of HTTP/1, as `errorfile` has it.
fn raw_page(text: &str, code: u16, page: &mut Page) -> Option<()> {
    let text = text.replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n")?;
    let mut lines = head.lines();
    let line = lines.next().filter(|line| line.starts_with("HTTP/"))?;
    let status: u16 = line.split_whitespace().nth(1)?.parse().ok()?;
    let mut kind = "text/html";
    for field in lines {
        let (name, value) = field.split_once(':')?;
        if name.eq_ignore_ascii_case("content-type") {
            kind = value.trim();
        }
    }
    if status != code {
        page.response_status(status);
    }
    page.content_type(kind);
    page.body(body.replace('$', "$$"));
    Some(())
}
