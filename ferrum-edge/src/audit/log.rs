//! The audit log: a file with one entry a line, or standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{Line, Query, Tip, Verified, Verifier};

/// Bytes of a line that is read.
const MAX_LINE: u64 = 16 << 20;
/// Bytes at the end of a file in which its last line is looked for.
const TAIL: u64 = MAX_LINE;

/// The audit log can't be opened or read.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {} can't be used: {source}", path.display())]
pub struct AuditLogError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Where entries are written.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    /// `None` is standard output.
    file: Option<File>,
}

impl Log {
    /// Opens a file, which only this user may read, or standard output for `-`. Says where the chain in it ends.
    pub(crate) fn open(path: &Path) -> Result<(Self, Tip), AuditLogError> {
        let failed = |source| AuditLogError { path: path.to_owned(), source };
        if path == Path::new("-") {
            return Ok((Self { path: path.to_owned(), file: None }, Tip::default()));
        }
        let mut options = OpenOptions::new();
        let mut file = options.append(true).read(true).create(true).mode(0o600).open(path).map_err(failed)?;
        let tip = last(&mut file).map_err(failed)?;
        Ok((Self { path: path.to_owned(), file: Some(file) }, tip))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an entry and waits until the file has it.
    pub(crate) fn write(&mut self, line: &Line) -> io::Result<()> {
        let text = format!("{}\n", line.with_hash());
        match &mut self.file {
            Some(file) => {
                file.write_all(text.as_bytes())?;
                file.sync_data()
            }
            None => io::stdout().lock().write_all(text.as_bytes()),
        }
    }
}

/// The last whole line of a file that ends a chain. A line that was cut off by a crash is ended, so that the next one
/// stands alone.
fn last(file: &mut File) -> io::Result<Tip> {
    if !file.metadata()?.is_file() {
        return Ok(Tip::default());
    }
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    Read::by_ref(file).take(TAIL).read_to_end(&mut tail)?;
    if !tail.is_empty() && !tail.ends_with(b"\n") {
        file.write_all(b"\n")?;
    }
    let lines = tail.split(|byte| *byte == b'\n').rev();
    let found = lines.filter_map(|line| parse(std::str::from_utf8(line).ok()?)).next();
    Ok(found.map(|line| line.tip()).unwrap_or_default())
}

/// A line as [`Line::with_hash`] writes it.
fn parse(text: &str) -> Option<Line> {
    let (body, hash) = text.trim_end().strip_suffix("\"}")?.rsplit_once(",\"hash\":\"")?;
    let mut line = Line { seq: 0, at: 0, entry: format!("{body}}}"), hash: hash.to_owned() };
    let entry = line.read()?;
    line.seq = entry.seq;
    line.at = gateway_telemetry::json::millis_of(&entry.at)?;
    Some(line)
}

/// Hands each line of a file to `each`, oldest first; `None` is a line that is not an entry.
fn lines(path: &Path, mut each: impl FnMut(Option<Line>)) -> Result<(), AuditLogError> {
    let failed = |source| AuditLogError { path: path.to_owned(), source };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    loop {
        let mut bytes = Vec::new();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
            return Ok(());
        }
        each(std::str::from_utf8(&bytes).ok().and_then(parse));
    }
}

/// The newest entries of a file that fit, the newest first.
///
/// # Errors
/// When the file can't be read.
pub(crate) fn page(path: &Path, query: &Query) -> Result<Vec<Line>, AuditLogError> {
    let mut found = std::collections::VecDeque::new();
    lines(path, |line| {
        if let Some(line) = line.filter(|line| query.fits(line)) {
            found.push_front(line);
            found.truncate(query.limit);
        }
    })?;
    Ok(found.into())
}

/// Looks through the chain in a file; says also how many lines are not entries.
///
/// # Errors
/// When the file can't be read.
pub(crate) fn verify(path: &Path) -> Result<(Verified, u64), AuditLogError> {
    let (mut verifier, mut foreign) = (Verifier::default(), 0);
    lines(path, |line| match line {
        Some(line) => verifier.add(&line),
        None => foreign += 1,
    })?;
    Ok((verifier.finish(), foreign))
}

#[cfg(test)]
mod tests {
    use super::super::{Draft, Outcome, Who};
    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn folder(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ferrum-audit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn draft(action: &str) -> Draft {
        Draft::new(
            Who { actor: "ann".to_owned(), source: "file", ..Who::default() },
            action,
            Outcome::Allowed,
        )
    }

    #[test]
    fn a_file_goes_on_where_it_ended_even_after_a_line_was_cut_off() {
        let folder = folder("goes-on");
        let path = folder.0.join("audit.log");
        for round in 0..3 {
            let (mut log, mut tip) = Log::open(&path).unwrap();
            assert_eq!(tip.seq, round * 2);
            for n in 0..2 {
                let line = draft(&format!("reload {n}")).chained(&tip);
                log.write(&line).unwrap();
                tip = line.tip();
            }
            // As a crash would leave it.
            OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"seq\":").unwrap();
        }
        let (verified, foreign) = verify(&path).unwrap();
        assert_eq!((verified.valid, verified.entries, foreign), (true, 6, 3));
        let page = page(&path, &Query { before: Some(6), limit: 2, ..Query::default() }).unwrap();
        assert_eq!(page.iter().map(|line| line.seq).collect::<Vec<_>>(), [5, 4]);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("reload 1", "reload 7", 1)).unwrap();
        assert_eq!(verify(&path).unwrap().0.broken.unwrap().seq, 2);
    }
}
