//! What is shown for names whose own certificate is not there yet: whatever else is valid for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::certificate;
use gateway_core::config::model::CertificateFiles;
use rustls::sign::CertifiedKey;

use super::key_pair::{Keys, Pair, certified_key};
use super::names::names;

/// Files of a storage that are looked at.
const MAX_FILES: usize = 1000;

/// A certificate, and the names of those asked for that it is valid for.
pub(super) type StandIn = (Pair, Arc<CertifiedKey>, Vec<String>);

/// Certificates that may stand in for others. Nothing is read before the first is asked for.
pub(super) struct StandIns<'a> {
    used: &'a Keys,
    candidates: Option<Vec<Candidate>>,
    stored: BTreeMap<PathBuf, Vec<Candidate>>,
    now: i64,
}

#[derive(Clone)]
struct Candidate {
    pair: Pair,
    key: Arc<CertifiedKey>,
    names: Vec<String>,
    ends: i64,
}

impl<'a> StandIns<'a> {
    /// Those of what is in use, and of what is stored.
    pub(super) fn new(used: &'a Keys) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
        Self { used, candidates: None, stored: BTreeMap::new(), now }
    }

    /// What stands in for names of this certificate, which is not there: what is in use, else what is stored from the same CA,
    /// else from another; of several the one that ends last.
    pub(super) fn of<'n>(
        &mut self,
        file: &CertificateFiles,
        wanted: impl Iterator<Item = &'n Box<str>>,
    ) -> Vec<StandIn> {
        let now = self.now;
        let used = self.used;
        let used = self.candidates.get_or_insert_with(|| {
            used.iter().filter_map(|(pair, key)| Candidate::new(pair, key.clone(), now)).collect()
        });
        let folder = file.cert_path.parent().unwrap_or_else(|| Path::new(""));
        let stored = self.stored.entry(folder.to_owned()).or_insert_with(|| stored(folder, now));
        let mut found: BTreeMap<Pair, StandIn> = BTreeMap::new();
        for name in wanted {
            let of_stored = || {
                let others = stored.iter().filter(|one| one.pair.0 != file.cert_path);
                others
                    .filter(|one| one.covers(name))
                    .max_by_key(|one| (one.pair.0.starts_with(folder), one.ends))
            };
            let best = used.iter().filter(|one| one.covers(name)).max_by_key(|one| one.ends);
            let Some(best) = best.or_else(of_stored) else { continue };
            let shown = found
                .entry(best.pair.clone())
                .or_insert_with(|| (best.pair.clone(), best.key.clone(), Vec::new()));
            shown.2.push(name.to_string());
        }
        found.into_values().collect()
    }
}

impl Candidate {
    /// `None` where it is not valid now.
    fn new(pair: &Pair, key: Arc<CertifiedKey>, now: i64) -> Option<Self> {
        let leaf = key.cert.first()?;
        let (from, ends) = certificate::validity(leaf)?;
        let names = names(leaf);
        (from <= now && now < ends).then(|| Self { pair: pair.clone(), key, names, ends })
    }

    fn covers(&self, name: &str) -> bool {
        let parent = name.split_once('.').map_or("", |(_, parent)| parent);
        self.names.iter().any(|own| own == name || own.strip_prefix("*.").is_some_and(|own| own == parent))
    }
}

/// What is stored beside these certificates, and of other CAs in the same storage. What can't be read is passed over.
fn stored(folder: &Path, now: i64) -> Vec<Candidate> {
    let (Some(ca), Some(name)) = (folder.parent(), folder.file_name()) else { return Vec::new() };
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().take(MAX_FILES).flatten();
    let cas = ca.parent().into_iter().flat_map(entries).map(|entry| entry.path().join(name));
    let files = cas.flat_map(|folder| entries(&folder)).map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "pem"));
    let read = files.take(MAX_FILES).filter_map(|path| {
        let key = certified_key(&CertificateFiles::given(path.clone(), path.clone())).ok()?;
        Candidate::new(&(path.clone(), path), Arc::new(key), now)
    });
    read.collect()
}
