//! Which file answers a request: the candidates of its path, the index of a folder, the encoded file beside it.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use gateway_plugin_common::coding::Coding;
use http::HeaderMap;

use super::content::{self, Content};
use super::listing;
use super::root::{self, DirectoryEntry, Node, Root, Stamp, Wait};

/// How often a file is read anew that is changed while it is read.
const TRIES: usize = 3;

/// How requests lead to files.
#[derive(Debug, Default)]
pub(super) struct FileFinder {
    pub(super) index: Vec<String>,
    pub(super) candidates: Vec<Candidate>,
    pub(super) fallback: Option<String>,
    pub(super) not_found: Option<String>,
    pub(super) lists: bool,
    /// Whether a folder without an index is refused.
    pub(super) refuses_folders: bool,
    /// Whether lists name what begins with a dot.
    pub(super) hidden: bool,
    /// Files up to this size are read whole.
    pub(super) whole: u64,
}

/// What is looked for beneath the root.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// The request's path between a beginning and an ending.
    OfPath(String, String),
    /// A file, whatever the path.
    Fixed(String),
}

/// A file that answers.
#[derive(Debug, Clone)]
pub(super) struct File {
    /// Beneath the root, without the ending of its coding.
    pub(super) path: Arc<str>,
    pub(super) stamp: Stamp,
    pub(super) coding: Option<Coding>,
    pub(super) content: Content,
    /// It is the page that says that nothing was found.
    pub(super) is_not_found: bool,
    /// What is said of it, once it was asked for.
    pub(super) headers: OnceLock<HeaderMap>,
}

/// What a request comes to.
#[derive(Debug)]
pub(super) enum Resolved {
    File(File),
    /// It is a folder's, whose path ends with a slash.
    Folder,
    /// What is in a folder that is listed.
    Listing(Vec<DirectoryEntry>),
    Nothing,
    /// It is there, and the system does not let it be read.
    Forbidden,
}

/// What is looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    /// Beneath the root; `None` is what is never there.
    pub(super) path: Option<String>,
    pub(super) has_slash: bool,
    /// The codings the client takes, the one it likes best first.
    pub(super) codings: Vec<Coding>,
    /// The client takes a page in the place of what is not there.
    pub(super) takes_page: bool,
}

impl FileFinder {
    /// Looks for what answers. `known` is what was found before, whose bytes are not read again if nothing has changed.
    ///
    /// # Errors
    /// What the system says; [`ErrorKind::WouldBlock`] where the disk would have to be waited for and may not be.
    pub(super) fn find(
        &self,
        root: &Root,
        wanted: &Wanted,
        known: Option<&File>,
        wait: Wait,
    ) -> io::Result<Resolved> {
        let looking = Looking { places: self, root, codings: &wanted.codings, known, wait };
        match looking.wanted(wanted) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(Resolved::Forbidden),
            other => other,
        }
    }
}

struct Looking<'a> {
    places: &'a FileFinder,
    root: &'a Root,
    codings: &'a [Coding],
    known: Option<&'a File>,
    wait: Wait,
}

impl Looking<'_> {
    fn wanted(&self, wanted: &Wanted) -> io::Result<Resolved> {
        for candidate in &self.places.candidates {
            let found = match (candidate, &wanted.path) {
                (Candidate::Fixed(path), _) => self.file(path)?.map(Resolved::File),
                (Candidate::OfPath(before, behind), Some(path)) => {
                    // A name behind a folder's slash, `/a/` with `{path}/x.html`, has one slash before it.
                    let is_within = wanted.has_slash && !behind.is_empty() && !behind.starts_with('/');
                    let slash = if is_within && !path.is_empty() { "/" } else { "" };
                    let has_slash = if behind.is_empty() { wanted.has_slash } else { behind.ends_with('/') };
                    let path = format!("{before}{path}{slash}{behind}");
                    self.candidate(path.trim_matches('/'), has_slash)?
                }
                (Candidate::OfPath(..), None) => None,
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
        if let Some(page) = self.places.fallback.as_deref().filter(|_| wanted.takes_page)
            && let Some(file) = self.file(page)?
        {
            return Ok(Resolved::File(file));
        }
        if let Some(page) = &self.places.not_found
            && let Some(file) = self.file(page)?
        {
            return Ok(Resolved::File(File { is_not_found: true, ..file }));
        }
        Ok(Resolved::Nothing)
    }

    /// A file, or a folder with its index.
    fn candidate(&self, path: &str, has_slash: bool) -> io::Result<Option<Resolved>> {
        match self.node(path)? {
            None => Ok(None),
            // A file has nothing beneath it.
            Some(Node::File(..)) if has_slash && !path.is_empty() => Ok(None),
            Some(Node::File(file, stamp)) => Ok(Some(Resolved::File(self.loaded(path, file, stamp)?))),
            Some(Node::Folder(folder)) => {
                let mut index = None;
                for name in &self.places.index {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    index = self.file(&path)?;
                    if index.is_some() {
                        break;
                    }
                }
                Ok(match index {
                    Some(_) if !has_slash => Some(Resolved::Folder),
                    Some(file) => Some(Resolved::File(file)),
                    None if self.places.refuses_folders && !has_slash => Some(Resolved::Folder),
                    None if self.places.refuses_folders => Some(Resolved::Forbidden),
                    None if !self.places.lists => None,
                    None if !has_slash => Some(Resolved::Folder),
                    // Thousands of files are looked at: no work for a worker.
                    None if self.wait == Wait::Never => return Err(ErrorKind::WouldBlock.into()),
                    None => Some(Resolved::Listing(root::list(
                        &folder,
                        self.places.hidden,
                        listing::MAX_ENTRIES,
                    )?)),
                })
            }
        }
    }

    fn node(&self, path: &str) -> io::Result<Option<Node>> {
        match self.root.find(path, self.wait) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn file(&self, path: &str) -> io::Result<Option<File>> {
        match self.node(path)? {
            Some(Node::File(file, stamp)) => self.loaded(path, file, stamp).map(Some),
            Some(Node::Folder(_)) | None => Ok(None),
        }
    }

    /// The file, or the encoded one beside it that the client likes better.
    fn loaded(&self, path: &str, plain: Arc<OwnedFd>, stamp: Stamp) -> io::Result<File> {
        let (mut chosen, mut coding) = ((plain, stamp), None);
        for candidate in self.codings {
            let beside = format!("{path}.{}", ending(*candidate));
            // One that is older was made of another file.
            if let Some(Node::File(file, stamp)) = self.node(&beside)?
                && stamp.modified >= chosen.1.modified
            {
                (chosen, coding) = ((file, stamp), Some(*candidate));
                break;
            }
        }
        let (file, stamp) = chosen;
        let content = self.content(&file, stamp)?;
        Ok(File { path: path.into(), stamp, coding, content, is_not_found: false, headers: OnceLock::new() })
    }

    fn content(&self, file: &Arc<OwnedFd>, stamp: Stamp) -> io::Result<Content> {
        if stamp.size > self.places.whole {
            return Ok(Content::File(file.clone()));
        }
        if let Some(known) = self.known.filter(|known| known.stamp == stamp)
            && let Content::Memory(bytes) = &known.content
        {
            return Ok(Content::Memory(bytes.clone()));
        }
        for _ in 0..TRIES {
            match content::read_whole(file, stamp, self.wait) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.map(Content::Memory),
            }
        }
        // It is being written to; what is there is sent as it comes.
        Ok(Content::File(file.clone()))
    }
}

/// How the file of a coding is named.
fn ending(coding: Coding) -> &'static str {
    match coding {
        Coding::Gzip => "gz",
        Coding::Br => "br",
        Coding::Zstd => "zst",
    }
}
