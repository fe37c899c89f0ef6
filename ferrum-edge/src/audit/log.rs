//! The audit log: a file with one entry a line, or standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{ChainBreak, ChainLine, Query, Tip, Verified};
use crate::line_file::LineFile;

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
    lines: LineFile,
}

impl Log {
    /// Opens a file, which only this user may read, or standard output for `-`. Says where the chain in it ends.
    ///
    /// # Errors
    /// When it can't be opened, or is not a file whose entries stay: a pipe or a device.
    pub(crate) fn open(path: &Path) -> Result<(Self, Tip), AuditLogError> {
        let failed = |source| AuditLogError { path: path.to_owned(), source };
        if path == Path::new("-") {
            let lines = LineFile::stdout().map_err(failed)?;
            return Ok((Self { path: path.to_owned(), lines }, Tip::default()));
        }
        // A pipe that is full would hold up whoever changes the configuration, for as long as nobody reads it.
        if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
            let what = "it is not a regular file (`-` is standard output)";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let mut options = OpenOptions::new();
        let mut file = options.append(true).read(true).create(true).mode(0o600).open(path).map_err(failed)?;
        let tip = last(&mut file).map_err(failed)?;
        Ok((Self { path: path.to_owned(), lines: LineFile::of(file) }, tip))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an entry and waits until the file has it.
    pub(crate) fn write(&mut self, line: &ChainLine) -> io::Result<()> {
        let text = format!("{}\n", line.with_hash());
        let is_file = self.lines.is_regular();
        // Others who write whole lines to standard output wait for this one.
        let _others = (!is_file).then(|| io::stdout().lock());
        self.lines.write(text.as_bytes()).map_err(|failed| failed.source)?;
        if is_file { self.lines.file().sync_data() } else { Ok(()) }
    }
}

/// The last whole line of a file that ends a chain. A line that was cut off by a crash is ended, so that the next one
/// stands alone.
fn last(file: &mut File) -> io::Result<Tip> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    Read::by_ref(file).take(TAIL).read_to_end(&mut tail)?;
    if !tail.is_empty() && !tail.ends_with(b"\n") {
        file.write_all(b"\n")?;
    }
    let lines = tail.split(|byte| *byte == b'\n').rev();
    let chained = |line: &[u8]| parse(std::str::from_utf8(line).ok()?).filter(|line| line.seq > 0);
    let found = lines.filter_map(chained).next();
    Ok(found.map(|line| line.tip()).unwrap_or_default())
}

/// A line as [`ChainLine::with_hash`] writes it.
fn parse(text: &str) -> Option<ChainLine> {
    let (body, hash) = text.trim_end().strip_suffix("\"}")?.rsplit_once(",\"hash\":\"")?;
    let mut line = ChainLine { seq: 0, at: 0, entry: format!("{body}}}"), hash: hash.to_owned() };
    let entry = line.read()?;
    line.seq = entry.seq;
    line.at = gateway_telemetry::json::millis_of(&entry.at)?;
    Some(line)
}

/// Hands each line of a file to `each`, oldest first; `None` is a line that is not an entry.
fn lines(path: &Path, mut each: impl FnMut(Option<ChainLine>)) -> Result<(), AuditLogError> {
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
pub(crate) fn page(path: &Path, query: &Query) -> Result<Vec<ChainLine>, AuditLogError> {
    let mut found = std::collections::VecDeque::new();
    lines(path, |line| {
        if let Some(line) = line.filter(|line| query.fits(line)) {
            found.push_front(line);
            found.truncate(query.limit);
        }
    })?;
    Ok(found.into())
}

/// What looking through the chain in files found. Gaps are counted apart: each of several gateways on one database logs what
/// went through it, and the chain is the database's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CheckedLog {
    #[serde(flatten)]
    pub(crate) verified: Verified,
    /// Entries between those that are there.
    pub(crate) missing: u64,
    /// Entries in no chain, because the database was away.
    pub(crate) unchained: u64,
    /// Lines that are not entries.
    pub(crate) foreign: u64,
    /// The entry behind the first gap.
    #[serde(skip)]
    gap: Option<u64>,
}

impl CheckedLog {
    /// For a chain of which all has to be there.
    pub(crate) fn whole(mut self) -> Verified {
        if let (None, Some(seq)) = (&self.verified.broken, self.gap) {
            self.verified.broken = Some(ChainBreak { seq, why: "entries before it are missing" });
            self.verified.valid = false;
        }
        self.verified
    }

    /// Looks at the next entry, in the order of their numbers.
    fn add(&mut self, link: ChainLink) {
        let (found, seq) = (&mut self.verified, link.seq);
        let is_first = found.entries == 0;
        // A file that was copied before it was rotated away has the same entries.
        if !is_first && (seq, &link.hash) == (found.last, &found.hash) {
            return;
        }
        let fault = if link.fault.is_some() {
            link.fault
        } else if is_first {
            (seq == 1 && !link.prev.is_empty()).then_some(FOLLOWS)
        } else if seq == found.last {
            Some("there are two entries of this number")
        } else if seq == found.last + 1 {
            (link.prev != found.hash).then_some(FOLLOWS)
        } else {
            self.missing += seq - found.last - 1;
            self.gap = self.gap.or(Some(seq));
            None
        };
        if let (None, Some(why)) = (&found.broken, fault) {
            found.broken = Some(ChainBreak { seq, why });
        }
        if is_first {
            found.first = seq;
        }
        found.entries += 1;
        (found.last, found.hash) = (seq, link.hash);
    }
}

const FOLLOWS: &str = "it does not follow the entry before it";

/// What of an entry makes it part of the chain.
struct ChainLink {
    seq: u64,
    hash: String,
    prev: String,
    fault: Option<&'static str>,
}

impl ChainLink {
    fn of(line: ChainLine) -> Self {
        let fault = line.own_fault();
        let prev = line.read().map(|entry| entry.prev).unwrap_or_default();
        Self { seq: line.seq, hash: line.hash, prev, fault }
    }
}

/// Looks through the chain in files: the parts that one gateway wrote, or what several on one database did.
///
/// # Errors
/// When a file can't be read.
pub(crate) fn verify<P: AsRef<Path>>(paths: &[P]) -> Result<CheckedLog, AuditLogError> {
    let (mut checked, mut links) = (CheckedLog::default(), Vec::new());
    let mut broken = None;
    for path in paths {
        lines(path.as_ref(), |line| match line {
            Some(line) if line.seq > 0 => links.push(ChainLink::of(line)),
            Some(line) => {
                checked.unchained += 1;
                broken = broken.take().or_else(|| line.own_fault().map(|why| ChainBreak { seq: 0, why }));
            }
            None => checked.foreign += 1,
        })?;
    }
    links.sort_by(|one, other| (one.seq, &one.hash).cmp(&(other.seq, &other.hash)));
    links.into_iter().for_each(|link| checked.add(link));
    checked.verified.broken = checked.verified.broken.take().or(broken);
    checked.verified.valid = checked.verified.broken.is_none();
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::super::{AuditOutcome, Draft, Who};
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
            AuditOutcome::Allowed,
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
        let found = verify(&[&path]).unwrap();
        assert_eq!((found.verified.valid, found.verified.entries, found.foreign), (true, 6, 3));
        let page = page(&path, &Query { before: Some(6), limit: 2, ..Query::default() }).unwrap();
        assert_eq!(page.iter().map(|line| line.seq).collect::<Vec<_>>(), [5, 4]);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("reload 1", "reload 7", 1)).unwrap();
        assert_eq!(verify(&[&path]).unwrap().verified.broken.unwrap().seq, 2);
    }

    /// Each of two gateways on one database has its own entries of the one chain; one has an entry that the database never got.
    #[test]
    fn files_of_several_gateways_make_one_chain() {
        let folder = folder("several");
        let paths = ["one", "two"].map(|name| folder.0.join(name));
        let mut logs = paths.clone().map(|path| Log::open(&path).unwrap().0);
        let mut tip = Tip::default();
        for n in 0..9 {
            let line = draft(&format!("reload {n}")).chained(&tip);
            logs[usize::from(n % 3 == 2)].write(&line).unwrap();
            tip = line.tip();
        }
        logs[1].write(&draft("away").unchained()).unwrap();
        assert_eq!(Log::open(&paths[1]).unwrap().1, tip, "an entry in no chain is no end of one");
        let all = verify(&paths).unwrap();
        assert_eq!((all.verified.entries, all.missing, all.unchained), (9, 0, 1));
        assert_eq!(
            (all.verified.valid, all.clone().whole().valid, all.verified.hash),
            (true, true, tip.hash)
        );
        let twice = verify(&[&paths[0], &paths[1], &paths[0]]).unwrap();
        assert_eq!((twice.verified.valid, twice.verified.entries, twice.missing), (true, 9, 0));
        let one = verify(&paths[..1]).unwrap();
        assert_eq!((one.verified.valid, one.verified.entries, one.missing), (true, 6, 2));
        let whole = one.whole();
        assert_eq!((whole.valid, whole.broken.map(|broken| broken.seq)), (false, Some(4)));
        let changed = |path: &Path, from: &str, to: &str| {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains(from), "{text}");
            std::fs::write(path, text.replacen(from, to, 1)).unwrap();
            verify(&paths).unwrap().verified.broken.unwrap().seq
        };
        assert_eq!(changed(&paths[1], "away", "here"), 0);
        assert_eq!(changed(&paths[1], "reload 5", "reload 7"), 6);
        // A whole chain of somebody else's.
        std::fs::remove_file(&paths[1]).unwrap();
        let mut log = Log::open(&paths[1]).unwrap().0;
        log.write(&draft("forged").chained(&Tip::default())).unwrap();
        let broken = verify(&paths).unwrap().verified.broken.unwrap();
        assert_eq!((broken.seq, broken.why), (1, "there are two entries of this number"));
    }
}
