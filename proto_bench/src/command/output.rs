//! Writes a finished document to wherever the user asked.

use std::io::Write;
use std::path::Path;

use super::CommandError;
use crate::command::ExitStatus;
use crate::load_args::OutputArgs;
use crate::report::{Document, Row, html, markdown, terminal};
use crate::text_files::write_file;

/// Writes everything and says how the program should end.
///
/// # Errors
/// A file that cannot be written.
pub fn deliver(mut document: Document, output: &OutputArgs) -> Result<ExitStatus, CommandError> {
    document.finish();
    let to_stdout = output.json.as_deref() == Some(Path::new("-"));
    if to_stdout {
        print(&document.to_json())?;
    } else {
        print(&terminal::render(&document))?;
        if let Some(path) = &output.json {
            document.write(path)?;
        }
    }
    write_pages(&document, output)?;
    Ok(if document.has_void() { ExitStatus::Void } else { ExitStatus::Valid })
}

/// Writes the files of a document that is not finished, so that what was measured is there if the rest is not.
///
/// # Errors
/// A file that cannot be written.
pub fn save(document: &Document, output: &OutputArgs) -> Result<(), CommandError> {
    let mut document = document.clone();
    document.rows.iter_mut().for_each(Row::conclude);
    document.finish();
    document.notes.insert(0, "Not finished: rows are missing.".to_owned());
    if let Some(path) = output.json.as_deref().filter(|path| *path != Path::new("-")) {
        document.write(path)?;
    }
    write_pages(&document, output)
}

fn write_pages(document: &Document, output: &OutputArgs) -> Result<(), CommandError> {
    if let Some(path) = &output.html {
        write_file(path, &html::render(std::slice::from_ref(document)))?;
    }
    if let Some(path) = &output.markdown {
        write_file(path, &markdown::render(document))?;
    }
    Ok(())
}

/// Writes text to standard output.
///
/// # Errors
/// Standard output is closed.
pub fn print(text: &str) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CommandError::Output)
}
