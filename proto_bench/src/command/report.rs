//! `report`: pages from result files.

use std::path::PathBuf;

use super::{CommandError, output};
use crate::command::ExitStatus;
use crate::report::{Document, html, markdown, terminal};
use crate::text_files::write_file;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Result files of other commands, as `--json` writes them.
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Writes one web page of all of them.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes one Markdown page of all of them.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Writes the pages, or prints the tables where no page is asked for.
///
/// # Errors
/// A file that cannot be read or written.
pub fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let documents = args.results.iter().map(|path| Document::read(path)).collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &args.html {
        write_file(path, &html::render(&documents))?;
    }
    if let Some(path) = &args.markdown {
        let pages: Vec<String> = documents.iter().map(markdown::render).collect();
        write_file(path, &pages.join("\n"))?;
    }
    if args.html.is_none() && args.markdown.is_none() {
        for document in &documents {
            output::print(&terminal::render(document))?;
        }
    }
    Ok(if documents.iter().any(Document::has_void) { ExitStatus::Void } else { ExitStatus::Valid })
}
