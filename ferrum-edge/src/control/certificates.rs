//! Notices changed certificate files and puts them in use without a reload.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_core::config::model::{BackendTls, FrontendTls};
use gateway_core::config::warning::Expiry;
use gateway_core::snapshot::Snapshot;
use gateway_protocols::tls::pem;
use tokio::task::JoinError;

use super::certificate_files;
use crate::engine::Engine;
use crate::export::CertificateEnd;

/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(5);

/// Looks until the gateway ends.
///
/// # Errors
/// When a look panicked.
pub(super) async fn run(mut watch: Watch) -> Result<(), JoinError> {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    let engine = watch.engine.clone();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = engine.certificate_stored.notified() => {}
        }
        // A file system may hang; only this thread then hangs with it.
        let look = tokio::task::spawn_blocking(move || {
            watch.look();
            watch
        });
        watch = look.await?;
    }
}

/// What tells one state of a file from another without reading it; `None` is a file that isn't there.
type Stamp = Option<(i64, i64, u64, u64)>;

/// The files and how they were when last looked at.
pub(super) struct Watch {
    engine: Arc<Engine>,
    revision: u64,
    frontend: BTreeMap<PathBuf, Stamp>,
    admin: BTreeMap<PathBuf, Stamp>,
    backend: BTreeMap<PathBuf, Stamp>,
}

impl Watch {
    /// A watch. One that is not the first takes every file for changed: the one before it may have missed changes.
    pub(super) fn new(engine: Arc<Engine>, is_first: bool) -> Self {
        let none = BTreeMap::new;
        let mut watch = Self { engine, revision: 0, frontend: none(), admin: none(), backend: none() };
        watch.follow(&watch.engine.snapshot());
        if !is_first {
            let files = [&mut watch.frontend, &mut watch.admin, &mut watch.backend];
            files.into_iter().flat_map(BTreeMap::values_mut).for_each(|stamp| *stamp = None);
        }
        watch
    }

    /// Takes over the files of a configuration, which were read when it was applied.
    fn follow(&mut self, snapshot: &Snapshot) {
        let mut frontend = stamps(files(&snapshot.settings.tls));
        // A certificate that the gateway gets by itself may have come between the configuration's start and now.
        for files in snapshot.settings.tls.certificates.iter().filter(|files| files.acme.is_some()) {
            let known = self.frontend.get(&files.cert_path).copied().flatten();
            frontend.insert(files.cert_path.clone(), known);
        }
        self.frontend = frontend;
        self.admin = stamps(snapshot.settings.admin_tls.iter().flat_map(files));
        let targets = backend_rules(snapshot).flat_map(|rules| {
            let pair = rules.client_cert.iter().flat_map(|(cert, key)| [cert, key]);
            pair.chain(&rules.ca_path).cloned().collect::<Vec<_>>()
        });
        self.backend = stamps(targets.chain(acme_rules(snapshot).and_then(|rules| rules.ca_path)));
        self.revision = snapshot.revision;
        // They were read when the configuration was applied.
        let unusable = &self.engine.telemetry.control.certificates_unusable;
        unusable.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.note_expiries(snapshot);
        self.note_unusable(snapshot);
    }

    /// Keeps which proxies can't reach their targets for want of files, for the warnings.
    fn note_unusable(&self, snapshot: &Snapshot) {
        let proxies = snapshot.tended.iter().map(|(_, route)| &*route.proxy);
        let unusable = certificate_files::unusable(proxies);
        let unusable = unusable.into_iter().map(|(proxy, why)| (proxy.id.clone(), why)).collect();
        let kept = &self.engine.telemetry.control.target_tls_unusable;
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = unusable;
    }

    /// Keeps when the certificates end, for the metrics.
    fn note_expiries(&self, snapshot: &Snapshot) {
        let mut model = snapshot.settings_model();
        model.proxies.extend(snapshot.tended.iter().map(|(_, route)| route.proxy.clone()));
        let ends = certificate_files::expiries(&model).into_iter();
        let shown = &snapshot.settings.tls.certificates;
        let renewed: HashSet<_> =
            shown.iter().filter(|files| files.acme.is_some()).map(|files| &files.cert_path).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
        let ends = ends.map(|(at, Expiry { file, seconds, warned })| {
            let is_renewed = renewed.contains(&&file);
            CertificateEnd { at, file, ends: now + seconds, warned, is_renewed }
        });
        let mut ends: Vec<_> = ends.collect();
        let control = &self.engine.telemetry.control;
        let mut kept = control.certificate_ends.lock().unwrap_or_else(PoisonError::into_inner);
        // What can't be read now goes on being used as it was.
        let is_watched = |file: &PathBuf| {
            [&self.frontend, &self.admin, &self.backend].iter().any(|all| all.contains_key(file))
        };
        let before = std::mem::take(&mut *kept).into_iter();
        let unread: Vec<_> = before
            .filter(|one| is_watched(&one.file) && ends.iter().all(|end| end.file != one.file))
            .collect();
        ends.extend(unread);
        *kept = ends;
    }

    /// Puts changed files in use. A bad one is said once, and what is in use stays.
    fn look(&mut self) {
        let snapshot = self.engine.snapshot();
        if snapshot.revision != self.revision {
            self.follow(&snapshot);
        }
        if refresh(&mut self.frontend) {
            follow_folders(&mut self.frontend, stamps(files(&snapshot.settings.tls)));
            let errors = self.engine.frontend.refresh(&snapshot.settings);
            self.refused("gateway.tls", &errors);
            self.note_expiries(&snapshot);
            if errors.is_empty() {
                tracing::info!("changed certificates are in use");
            }
        }
        if refresh(&mut self.admin) {
            follow_folders(&mut self.admin, stamps(snapshot.settings.admin_tls.iter().flat_map(files)));
            let error = self.engine.admin_tls.reload(snapshot.settings.admin_tls.as_ref()).err();
            self.refused("gateway.admin_tls", error.as_slice());
            if error.is_none() {
                self.note_expiries(&snapshot);
                tracing::info!("the admin API's changed certificate is in use");
            }
        }
        if refresh(&mut self.backend) {
            let of_ca = acme_rules(&snapshot);
            let used: HashSet<_> = backend_rules(&snapshot).chain(&of_ca).collect();
            let errors = self.engine.shared.client_tls.refresh(|rules| used.contains(rules));
            self.refused("proxies", &errors);
            self.note_expiries(&snapshot);
            self.note_unusable(&snapshot);
            if errors.is_empty() {
                tracing::info!("changed certificates towards targets are in use for new connections");
            }
        }
    }

    /// Logs why changed files of a setting can't be used, and keeps it for the status, until they can.
    fn refused(&self, setting: &'static str, errors: &[impl std::fmt::Display]) {
        let control = &self.engine.telemetry.control;
        for error in errors {
            control.certificates_refused.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, "changed certificate files can't be used; those before them go on serving");
        }
        let mut kept = control.certificates_unusable.lock().unwrap_or_else(PoisonError::into_inner);
        match errors {
            [] => kept.remove(setting),
            errors => kept.insert(setting, errors.iter().map(ToString::to_string).collect()),
        };
    }
}

/// The files of a server's side of TLS. Of a folder of revocation lists the files in it, and the folder itself, which changes when
/// there are others.
fn files(rules: &FrontendTls) -> impl Iterator<Item = PathBuf> {
    let pairs = rules.certificates.iter().flat_map(|files| [&files.cert_path, &files.key_path]);
    let lists = rules.client_crl_path.iter().flat_map(|path| {
        let files = pem::revocation_files(path).unwrap_or_default();
        files.into_iter().chain([path.clone()])
    });
    pairs.chain(&rules.client_ca_path).cloned().chain(lists)
}

/// Adds files that have come into a folder meanwhile, and forgets those that have gone.
fn follow_folders(known: &mut BTreeMap<PathBuf, Stamp>, now: BTreeMap<PathBuf, Stamp>) {
    known.retain(|file, _| now.contains_key(file));
    now.into_iter().for_each(|(file, stamp)| _ = known.entry(file).or_insert(stamp));
}

/// The different TLS rules towards targets that name files.
fn backend_rules(snapshot: &Snapshot) -> impl Iterator<Item = &BackendTls> {
    let rules = snapshot.tended.iter().filter_map(|(_, route)| route.proxy.backend.tls.as_deref());
    let with_files = rules.filter(|rules| rules.ca_path.is_some() || rules.client_cert.is_some());
    with_files.collect::<HashSet<_>>().into_iter()
}

/// The rules towards a CA whose roots are in a file.
fn acme_rules(snapshot: &Snapshot) -> Option<BackendTls> {
    let ca_path = snapshot.settings.acme.as_ref()?.root_ca_path.clone()?;
    Some(BackendTls { verify: true, ca_path: Some(ca_path), client_cert: None, server_name: None })
}

fn stamps(paths: impl Iterator<Item = PathBuf>) -> BTreeMap<PathBuf, Stamp> {
    paths
        .map(|path| {
            let stamp = stamp(&path);
            (path, stamp)
        })
        .collect()
}

fn stamp(path: &PathBuf) -> Stamp {
    // Follows links: mounted secrets change by a link that comes to point elsewhere.
    let data = fs::metadata(path).ok()?;
    Some((data.mtime(), data.mtime_nsec(), data.size(), data.ino()))
}

/// Whether any file changed since the last look.
fn refresh(files: &mut BTreeMap<PathBuf, Stamp>) -> bool {
    let mut changed = false;
    for (path, before) in files {
        let now = stamp(path);
        changed |= now != *before;
        *before = now;
    }
    changed
}

#[cfg(test)]
mod tests;
