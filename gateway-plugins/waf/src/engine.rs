//! Runs a request through the rules.

mod chain;
mod state;
mod verdict;

use std::sync::Arc;

use crate::bits;
use crate::body::{ItemKind, Processor, Sink, Unreadable, form, json, multipart, protobuf, text, xml};
use crate::cache::Cache;
use crate::compile::tail::Exclusion;
use crate::limits::Limits;
use crate::request::{RequestHead, ResponseHead};
use crate::rules::{Allowed, Control, Decision, Member, PhaseRules, Ruleset, Selected};
use crate::seclang::actions::EngineMode;
use crate::texts::{Fact, TextId, Texts};
use crate::values::{Intake, Values};
use crate::variable::Variable;
use state::{Hit, Tx};
pub use verdict::{Denial, Match, Report};

/// Memory that is used again, and what is known of values from earlier requests. One for each thread.
#[derive(Default)]
pub struct Buffers {
    texts: Texts,
    values: Values,
    tx: Tx,
    run: Vec<u64>,
    removed: [Vec<u64>; 2],
    hits: Vec<Hit>,
    caches: [Cache; 2],
    scratch: Vec<u8>,
}

/// A body that two readers could take for different things.
const CONTENT_TYPES: Unreadable = Unreadable("the request has more than one content type");

/// Memory that is kept from one request to the next, at most.
const KEPT_BYTES: usize = 1 << 20;

impl Buffers {
    /// Buffers that keep nothing of earlier requests' values.
    pub fn without_cache() -> Self {
        let mut buffers = Self::default();
        buffers.caches.iter_mut().for_each(Cache::turn_off);
        buffers
    }
}

/// One request, and its response, on its way through the rules.
pub struct Transaction {
    ruleset: Arc<Ruleset>,
    limits: Limits,
    buffers: Buffers,
    processor: Option<Processor>,
    force_body: bool,
    mode: EngineMode,
    excluded: Vec<(Selected, Member)>,
    outcome: Findings,
    /// Which half's facts the texts have.
    half: usize,
    /// For which half, and after how many changes of the values, the rules to run were found.
    gathered: Option<(usize, u64)>,
}

/// What has come of it so far.
#[derive(Default)]
struct Findings {
    denied: Option<Denial>,
    allowed: Option<Allowed>,
    matches: Vec<verdict::KeptMatch>,
    matched_rules: u32,
    body_error: Option<&'static str>,
    over_budget: bool,
}

impl Transaction {
    /// Begins with a request.
    pub fn new(ruleset: Arc<Ruleset>, limits: Limits, mut buffers: Buffers) -> Self {
        buffers.texts.clear();
        // The first text is the empty one.
        buffers.texts.keep(b"");
        buffers.values.clear();
        buffers.tx.begin(&ruleset.slots, &mut buffers.texts);
        for (removed, half) in buffers.removed.iter_mut().zip(&ruleset.halves) {
            removed.clear();
            removed.resize(half.width, 0);
        }
        for cache in &mut buffers.caches {
            cache.belong_to(ruleset.serial);
        }
        Self {
            ruleset,
            limits,
            buffers,
            processor: None,
            force_body: false,
            mode: EngineMode::On,
            excluded: Vec::new(),
            outcome: Findings::default(),
            half: 0,
            gathered: None,
        }
    }

    /// Leaves out rules or targets for this request.
    pub fn exclude(&mut self, exclusion: &Exclusion) {
        for control in &exclusion.0 {
            self.control(control);
        }
    }

    /// Goes on where a rule refuses the request, as if nothing had happened; [`Self::denied`] says that one has.
    pub fn only_detect(&mut self) {
        self.mode = EngineMode::DetectionOnly;
    }

    fn intake(&self) -> Intake {
        Intake {
            arguments: self.limits.arguments,
            value_size: self.limits.value_size,
            arena_bytes: self.limits.arena_bytes,
            nested_json: self.limits.nested_json,
            graphql: self.limits.graphql,
            json_depth: self.limits.json_depth,
        }
    }

    /// Takes the head of the request, and runs phase 1.
    pub fn request_head(&mut self, head: &RequestHead<'_>) {
        let (intake, limit) = (self.intake(), self.limits.value_size);
        let Buffers { values, texts, .. } = &mut self.buffers;
        values.take_head(head, texts, intake);
        let kind = head.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"content-type"));
        self.processor = kind.and_then(|(_, value)| Processor::for_content_type(value));
        let name = self.processor.map_or("", Processor::name);
        values.set(Variable::BodyProcessor, texts, name.as_bytes(), limit);
        for variable in [Variable::BodyError, Variable::MultipartStrictError, Variable::BodyLength] {
            values.set(variable, texts, b"0", limit);
        }
        self.phase(0, false);
    }

    /// How the body will be read; `None`: it is looked at as it is.
    pub fn processor(&self) -> Option<Processor> {
        self.processor
    }

    /// Takes the body of the request, as much of it as is inspected, and runs phase 2.
    pub fn request_body(&mut self, body: &[u8]) {
        let is_refused = self.outcome.denied.is_some() && self.mode == EngineMode::On;
        if !is_refused && !body.is_empty() {
            self.take_body(body);
        }
        if self.ruleset.halves[0].lookers[Variable::ArgsJoined as usize].iter().any(|word| *word != 0) {
            let Buffers { values, texts, .. } = &mut self.buffers;
            values.join_repeated(texts, self.limits.value_size);
        }
        self.phase(0, true);
    }

    fn take_body(&mut self, body: &[u8]) {
        let (intake, limit) = (self.intake(), self.limits.value_size);
        let Buffers { values, texts, .. } = &mut self.buffers;
        values.set(Variable::BodyLength, texts, body.len().to_string().as_bytes(), limit);
        let content_types: Vec<_> = values
            .of(Variable::Headers)
            .filter(|it| texts.get(it.name).eq_ignore_ascii_case(b"content-type"))
            .map(|it| it.text)
            .collect();
        let content_type = content_types.first().map(|it| texts.get(*it).to_vec()).unwrap_or_default();
        let mut sink = values.body_sink(texts, intake);
        let read = match self.processor {
            _ if content_types.len() > 1 => Err(CONTENT_TYPES),
            None => Ok(()),
            Some(Processor::Form) => form::read(body, &mut sink),
            Some(Processor::Json) => json::read(body, self.limits.json_depth, &mut sink),
            Some(Processor::Xml) => xml::read(body, self.limits.xml_depth, &mut sink),
            Some(Processor::Multipart) => multipart::boundary(&content_type)
                .and_then(|boundary| multipart::read(body, &boundary, self.limits.parts, &mut sink)),
            Some(Processor::GrpcWeb) => {
                let is_text = memchr::memmem::find(&content_type, b"-text").is_some();
                protobuf::web(body, is_text, self.limits.json_depth, &mut sink)
            }
            Some(Processor::Text) => text::read(body, self.limits.json_depth, &mut sink),
            Some(Processor::Guess) => text::guess(body, self.limits.json_depth, &mut sink),
        };
        if read.is_err() {
            // What was not understood is looked at as one argument, besides what was.
            values.body_sink(texts, intake).take(ItemKind::Argument, b"", body);
        }
        values.body_taken(texts, limit);
        if let Err(Unreadable(why)) = read {
            self.outcome.body_error = Some(why);
            values.set(Variable::BodyError, texts, b"1", limit);
            values.set(Variable::BodyErrorMsg, texts, why.as_bytes(), limit);
            if self.processor == Some(Processor::Multipart) {
                values.set(Variable::MultipartStrictError, texts, b"1", limit);
            }
        }
        if self.force_body || read.is_err() || self.processor == Some(Processor::Form) {
            values.set(Variable::Body, texts, body, limit);
        }
    }

    /// Takes a message of a WebSocket, and runs phase 2 over it: JSON by its leaves, all else as one argument.
    pub fn message(&mut self, payload: &[u8]) {
        let (intake, depth) = (self.intake(), self.limits.json_depth);
        let Buffers { values, texts, .. } = &mut self.buffers;
        let mut sink = values.body_sink(texts, intake);
        // What is beyond the limit is counted by the sink; what was not understood is looked at as one argument, too.
        if text::read(payload, depth, &mut sink).is_err() {
            sink.take(ItemKind::Argument, b"message", payload);
        }
        self.phase(0, true);
    }

    /// Takes a message of a gRPC call, decompressed, and runs phase 2 over it: the texts of its fields, named by their numbers.
    pub fn grpc_message(&mut self, payload: &[u8]) {
        let (intake, depth) = (self.intake(), self.limits.json_depth);
        let Buffers { values, texts, .. } = &mut self.buffers;
        let mut sink = values.body_sink(texts, intake);
        // What is beyond the limit is counted by the sink; what was not understood is looked at as one argument, too.
        if protobuf::read(payload, depth, &mut sink).is_err() {
            sink.take(ItemKind::Argument, b"grpc", payload);
        }
        self.phase(0, true);
    }

    /// Takes the head of the response, and runs phase 3.
    pub fn response_head(&mut self, head: &ResponseHead<'_>) {
        self.remember();
        (self.half, self.outcome.allowed) = (1, None);
        let Buffers { values, texts, .. } = &mut self.buffers;
        texts.forget();
        values.take_response(head, texts, self.limits.value_size);
        self.phase(1, false);
    }

    /// Takes the body of the response, as much of it as is inspected, and runs phase 4.
    pub fn response_body(&mut self, body: &[u8]) {
        let Buffers { values, texts, .. } = &mut self.buffers;
        values.set(Variable::ResponseBody, texts, body, self.limits.value_size);
        self.phase(1, true);
    }

    /// How many values there are to look at.
    pub fn values(&self) -> usize {
        self.buffers.values.count()
    }

    fn remember(&mut self) {
        let width = self.ruleset.halves[self.half].width;
        self.buffers.texts.remember(width, &mut self.buffers.caches[self.half]);
    }

    /// Runs one phase of a half.
    fn phase(&mut self, which: usize, second: bool) {
        let is_over = match self.outcome.allowed {
            Some(Allowed::All) => true,
            Some(Allowed::Request) => which == 0,
            Some(Allowed::Phase) | None => false,
        };
        let is_refused = self.outcome.denied.is_some() && self.mode == EngineMode::On;
        if is_over || is_refused || self.mode == EngineMode::Off {
            return;
        }
        let ruleset = self.ruleset.clone();
        let half = &ruleset.halves[which];
        let range = if second { half.second..half.rules.len() } else { 0..half.second };
        if range.is_empty() {
            return;
        }
        self.gather(&ruleset, half, which);
        let run = std::mem::take(&mut self.buffers.run);
        let mut at = range.start;
        while let Some(n) = bits::next(&run, at).filter(|n| *n < range.end) {
            at = n + 1;
            if bits::has(&self.buffers.removed[which], n) || !self.rule(&ruleset, half, n) {
                if self.is_over_budget() {
                    break;
                }
                continue;
            }
            let flow = half.rules[n].flow;
            at = flow.skip_to.unwrap_or(at).max(at);
            match flow.decision {
                _ if self.mode == EngineMode::Off => break,
                Decision::Pass => {}
                Decision::Deny(status) => {
                    self.outcome.denied.get_or_insert(Denial { rule: half.rules[n].id, status });
                    if self.mode == EngineMode::On {
                        break;
                    }
                }
                Decision::Allow(what) => {
                    self.outcome.allowed = Some(what).filter(|what| *what != Allowed::Phase);
                    break;
                }
            }
        }
        self.buffers.run = run;
    }

    fn is_over_budget(&mut self) -> bool {
        let is = self.buffers.texts.read > self.limits.budget_bytes
            || self.buffers.texts.size() > self.limits.arena_bytes;
        self.outcome.over_budget |= is;
        is
    }

    /// Finds the rules that could match any of the values.
    fn gather(&mut self, ruleset: &Ruleset, half: &PhaseRules, which: usize) {
        let Buffers { run, values, texts, caches, .. } = &mut self.buffers;
        let now = Some((which, values.changes()));
        if self.gathered == now {
            return;
        }
        self.gathered = None;
        run.clear();
        run.extend_from_slice(&half.always);
        for variable in &half.looked {
            let lookers = &half.lookers[*variable as usize];
            for value in values.of(*variable) {
                texts.prepare(value.text, half, &ruleset.nodes, &mut caches[which]);
                add_open(run, texts, value.text, half, lookers);
            }
            if texts.read > self.limits.budget_bytes || texts.size() > self.limits.arena_bytes {
                self.outcome.over_budget = true;
                return;
            }
        }
        self.gathered = now;
    }

    fn control(&mut self, control: &Control) {
        match control {
            Control::Remove(rules) => {
                for (removed, rules) in self.buffers.removed.iter_mut().zip(rules.iter()) {
                    bits::or(removed, rules);
                }
            }
            Control::RemoveTarget(rules, member) => self.excluded.push((rules.clone(), member.clone())),
            Control::BodyProcessor(processor) => {
                self.processor = *processor;
                let name = processor.map_or("", Processor::name);
                let Buffers { values, texts, .. } = &mut self.buffers;
                values.set(Variable::BodyProcessor, texts, name.as_bytes(), self.limits.value_size);
            }
            Control::ForceBody(on) => self.force_body = *on,
            Control::Engine(mode) => self.mode = *mode,
        }
    }
}

/// Adds the rules about a variable that could match this value and are not known not to.
fn add_open(run: &mut [u64], texts: &Texts, text: TextId, half: &PhaseRules, lookers: &[u64]) {
    let width = half.width;
    let candidates = texts.fact(text, Fact::Candidate, width);
    let (asked, matched) = (texts.fact(text, Fact::Asked, width), texts.fact(text, Fact::Matched, width));
    for n in 0..width {
        let (Some(candidate), Some(asked), Some(matched)) = (candidates.get(n), asked.get(n), matched.get(n))
        else {
            return;
        };
        run[n] |= (candidate | half.asked[n]) & !(asked & !matched) & lookers[n];
    }
}

#[cfg(test)]
mod tests;
