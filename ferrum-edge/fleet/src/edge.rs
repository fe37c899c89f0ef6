//! The edge's side of the protocol: takes messages, returns messages and effects. It does no I/O and reads no clock.

use std::sync::Arc;
use std::time::Duration;

use crate::documents::{DocumentSet, Position};
use crate::message::{Findings, Hello, ToControl, ToEdge, Transfer, Verdict, Welcome};

/// A configuration with its position.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Where it is.
    pub position: Position,
    /// What it contains; the position has its hash.
    pub documents: DocumentSet,
}

/// What the edge has to do.
#[derive(Debug)]
pub enum EdgeEffect {
    /// Send this to the control plane, if it is connected.
    Send(ToControl),
    /// Take over who the control plane says the edge is.
    Welcomed(Welcome),
    /// Compile and serve `to`, and report by [`EdgeCore::applied`]. `from` is what is served now.
    Apply {
        /// What is served; `None` before the first.
        from: Option<DocumentSet>,
        /// What is to be served.
        to: Configuration,
    },
    /// Keep this as the last good configuration.
    Keep(Configuration),
    /// The control plane accepts this edge no more: end the connection, keep serving, don't reconnect by this identity.
    Revoked(String),
    /// Connect again after a random part of this time.
    Reconnect(Duration),
}

/// One edge.
#[derive(Debug, Default)]
pub struct EdgeCore {
    version: String,
    schema: u32,
    capabilities: Vec<String>,
    /// The newest that came whole, which deltas lead from.
    held: Option<Configuration>,
    served: Option<Configuration>,
    findings: Findings,
    applying: Option<Configuration>,
    /// Comes after `applying`; only the newest.
    pending: Option<Configuration>,
    refused: Option<(Position, String)>,
}

impl EdgeCore {
    /// An edge that serves nothing yet, or what it has on its disk.
    pub fn new(
        version: impl Into<String>,
        schema: u32,
        capabilities: Vec<String>,
        served: Option<Configuration>,
    ) -> Self {
        let (version, held) = (version.into(), served.clone());
        Self { version, schema, capabilities, held, served, ..Self::default() }
    }

    /// The same edge, which serves this from its start on.
    #[must_use]
    pub fn begun_with(&self, served: Configuration) -> Self {
        Self::new(self.version.clone(), self.schema, self.capabilities.clone(), Some(served))
    }

    /// What can't be used of what is served from the start on.
    pub fn note_findings(&mut self, findings: Findings) {
        self.findings = findings;
    }

    /// The first message of a connection.
    pub fn hello(&self, clock: u64) -> ToControl {
        let position = |of: &Option<Configuration>| of.as_ref().map(|of| of.position.clone());
        ToControl::Hello(Hello {
            version: self.version.clone(),
            schema: self.schema,
            capabilities: self.capabilities.clone(),
            held: position(&self.held),
            served: position(&self.served),
            refused: self.refused.clone(),
            clock,
            findings: self.findings.clone(),
        })
    }

    /// What is served.
    pub const fn served(&self) -> Option<&Configuration> {
        self.served.as_ref()
    }

    /// What is being applied.
    pub fn target_documents(&self) -> Option<&DocumentSet> {
        self.applying.as_ref().map(|applying| &applying.documents)
    }

    /// The newest configuration that was refused, and why.
    pub const fn refused(&self) -> Option<&(Position, String)> {
        self.refused.as_ref()
    }

    /// What could not be used of what is served.
    pub const fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Takes a message of the control plane.
    pub fn receive(&mut self, message: ToEdge) -> Vec<EdgeEffect> {
        match message {
            ToEdge::Welcome(welcome) => vec![EdgeEffect::Welcomed(*welcome)],
            ToEdge::Transfer(transfer) => self.take(&transfer),
            ToEdge::Unchanged(position) => self.unchanged(position),
            ToEdge::Revoked(reason) => vec![EdgeEffect::Revoked(reason)],
            ToEdge::Drain(within) => vec![EdgeEffect::Reconnect(within)],
        }
    }

    fn take(&mut self, transfer: &Arc<Transfer>) -> Vec<EdgeEffect> {
        let to = transfer.to.clone();
        if let Some(held) = self.held.as_ref().filter(|held| !held.position.may_be_followed_by(&to)) {
            let reason = format!("revision {} is older than {}", to.revision, held.position.revision);
            return vec![refusal(to, reason)];
        }
        let mut documents = match (transfer.from, &self.held) {
            (None, _) => DocumentSet::default(),
            (Some(from), Some(held)) if held.position.hash == from => held.documents.clone(),
            (Some(from), _) => {
                return vec![EdgeEffect::Send(ToControl::Resync(format!("{from:?} is not held")))];
            }
        };
        let changed = transfer.changed.iter().map(|(key, text)| (key.clone(), Some(text.clone())));
        documents.apply(changed.chain(transfer.deleted.iter().map(|key| (key.clone(), None))));
        let hash = documents.hash();
        if hash != to.hash {
            let reason = format!("the hash of revision {} is {hash:?}, not {:?}", to.revision, to.hash);
            return match transfer.from {
                Some(_) => vec![EdgeEffect::Send(ToControl::Resync(reason))],
                None => vec![refusal(to, reason)],
            };
        }
        let configuration = Configuration { position: to.clone(), documents };
        self.held = Some(configuration.clone());
        let mut effects = vec![EdgeEffect::Send(ToControl::Verdict(to, Verdict::Received))];
        self.target(configuration, &mut effects);
        effects
    }

    /// Serves this next.
    fn target(&mut self, configuration: Configuration, effects: &mut Vec<EdgeEffect>) {
        if self.applying.is_some() {
            self.pending = Some(configuration);
            return;
        }
        let served = self.served.as_ref();
        if served.is_some_and(|served| served.position.hash == configuration.position.hash) {
            // The same configuration by another number: nothing has to change for it to be served.
            let verdict = Verdict::Served(self.findings.clone());
            effects.push(EdgeEffect::Send(ToControl::Verdict(configuration.position.clone(), verdict)));
            self.served = Some(configuration.clone());
            effects.push(EdgeEffect::Keep(configuration));
            return;
        }
        self.applying = Some(configuration.clone());
        let from = served.map(|served| served.documents.clone());
        effects.push(EdgeEffect::Apply { from, to: configuration });
    }

    /// The edge has looked again at which served objects it can't use; a change goes to the control plane.
    pub fn findings_changed(&mut self, findings: Findings) -> Vec<EdgeEffect> {
        if self.findings == findings {
            return Vec::new();
        }
        self.findings = findings.clone();
        let position = self.served.as_ref().map(|served| served.position.clone());
        let verdict = position.map(|position| ToControl::Verdict(position, Verdict::Served(findings)));
        verdict.into_iter().map(EdgeEffect::Send).collect()
    }

    /// What is being applied is compiled.
    pub fn compiled(&self, findings: Findings) -> Vec<EdgeEffect> {
        let position = self.applying.as_ref().map(|applying| applying.position.clone());
        let verdict = position.map(|position| ToControl::Verdict(position, Verdict::Compiled(findings)));
        verdict.into_iter().map(EdgeEffect::Send).collect()
    }

    /// What was to be applied is served by every worker, or refused with a reason.
    pub fn applied(&mut self, result: Result<Findings, String>) -> Vec<EdgeEffect> {
        let Some(applied) = self.applying.take() else { return Vec::new() };
        let position = applied.position.clone();
        let mut effects = Vec::new();
        match result {
            Ok(findings) => {
                self.findings = findings.clone();
                self.served = Some(applied.clone());
                self.refused = None;
                effects.push(EdgeEffect::Send(ToControl::Verdict(position, Verdict::Served(findings))));
                effects.push(EdgeEffect::Keep(applied));
            }
            Err(reason) => {
                self.refused = Some((position.clone(), reason.clone()));
                effects.push(refusal(position, reason));
            }
        }
        if let Some(next) = self.pending.take() {
            self.target(next, &mut effects);
        }
        effects
    }

    /// Tries what was refused once more: what kept it from being served, such as a port in use, may be gone.
    pub fn retry(&mut self) -> Vec<EdgeEffect> {
        let refused = self.refused.as_ref().map(|(position, _)| position.hash);
        let held = self.held.clone().filter(|held| Some(held.position.hash) == refused);
        let mut effects = Vec::new();
        if let Some(held) = held.filter(|_| self.applying.is_none()) {
            self.target(held, &mut effects);
        }
        effects
    }

    /// The newest configuration is the one that is held, at this position.
    fn unchanged(&mut self, position: Position) -> Vec<EdgeEffect> {
        let Some(held) = self.held.as_mut().filter(|held| held.position.hash == position.hash) else {
            return vec![EdgeEffect::Send(ToControl::Resync(format!("{:?} is not held", position.hash)))];
        };
        if !held.position.may_be_followed_by(&position) {
            return Vec::new();
        }
        held.position = position.clone();
        for other in [&mut self.applying, &mut self.pending].into_iter().flatten() {
            if other.position.hash == position.hash {
                other.position = position.clone();
            }
        }
        let served = self.served.as_mut().filter(|served| served.position.hash == position.hash);
        let Some(served) = served.filter(|served| served.position != position) else { return Vec::new() };
        served.position = position;
        vec![EdgeEffect::Keep(served.clone())]
    }
}

fn refusal(position: Position, reason: String) -> EdgeEffect {
    EdgeEffect::Send(ToControl::Verdict(position, Verdict::Refused(reason)))
}
