//! Takes what readers of bodies and queries find, as much of it as may be.

use super::Values;
use crate::body::{ItemKind, Sink, graphql, json};
use crate::texts::Texts;
use crate::variable::Variable;

/// What limits the intake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intake {
    pub(crate) arguments: usize,
    pub(crate) value_size: usize,
    pub(crate) arena_bytes: usize,
    pub(crate) nested_json: usize,
    pub(crate) json_depth: usize,
    pub(crate) graphql: bool,
}

/// Puts values where rules look for them.
pub(crate) struct Intaker<'s> {
    values: &'s mut Values,
    texts: &'s mut Texts,
    intake: Intake,
    /// Arguments and their names.
    names: [Variable; 2],
}

impl<'s> Intaker<'s> {
    pub(super) fn new(
        values: &'s mut Values,
        texts: &'s mut Texts,
        intake: Intake,
        names: [Variable; 2],
    ) -> Self {
        Self { values, texts, intake, names }
    }

    /// Takes the strings of a GraphQL document, where the argument can be one.
    fn take_graphql(&mut self, name: &[u8], value: &[u8]) -> bool {
        let is_one = self.intake.graphql
            && (name == b"message" || name.ends_with(b"query"))
            && graphql::may_have_strings(value);
        if !is_one {
            return true;
        }
        // No document within a document.
        self.intake.graphql = false;
        let taken = graphql::strings(value, self);
        self.intake.graphql = true;
        taken
    }

    /// Takes the leaves of an argument that is itself JSON; a target that reads it undoes its escapes.
    fn take_nested(&mut self, name: &[u8], value: &[u8]) -> bool {
        let nested = self.intake.nested_json;
        let is_json = nested > 0
            && matches!(value.trim_ascii_start().first(), Some(b'{' | b'['))
            && matches!(value.trim_ascii_end().last(), Some(b'}' | b']'));
        if !is_json {
            return true;
        }
        let (depth, name) = (self.intake.json_depth, name.to_vec());
        self.intake.nested_json -= 1;
        let mut inner = Nested { intaker: self, name, is_full: false };
        // What is not JSON after all has been taken as a text.
        let _read = json::read(value, depth, &mut inner);
        let is_full = inner.is_full;
        self.intake.nested_json = nested;
        !is_full
    }
}

impl Sink for Intaker<'_> {
    fn take(&mut self, kind: ItemKind, name: &[u8], value: &[u8]) -> bool {
        if self.values.arguments >= self.intake.arguments || self.texts.size() > self.intake.arena_bytes {
            self.values.not_inspected += 1;
            return false;
        }
        self.values.arguments += 1;
        let size = value.len();
        let limit = self.intake.value_size;
        let (kept_name, kept) = (self.values.cut(name, limit), self.values.cut(value, limit));
        let bytes = kept_name.len() + size;
        let (id, text) = (self.texts.keep(kept_name), self.texts.keep(kept));
        match kind {
            ItemKind::Argument => {
                self.values.argument_bytes += bytes;
                self.values.push(self.names[0], id, text);
                self.values.push(self.names[1], id, id);
                return self.take_nested(name, value) && self.take_graphql(name, value);
            }
            ItemKind::File => {
                self.values.push(Variable::Files, id, text);
                self.values.push(Variable::FilesNames, id, id);
            }
            ItemKind::PartHeader => self.values.push(Variable::PartHeaders, id, text),
            ItemKind::Text => self.values.push(Variable::Xml, id, text),
            ItemKind::Attribute => self.values.push(Variable::XmlAttributes, id, text),
        }
        true
    }

    fn file_size(&mut self, bytes: usize) {
        self.values.file_bytes += bytes;
    }
}

/// Takes the leaves of JSON within an argument, under the argument's name.
struct Nested<'i, 's> {
    intaker: &'i mut Intaker<'s>,
    name: Vec<u8>,
    is_full: bool,
}

impl Sink for Nested<'_, '_> {
    fn take(&mut self, kind: ItemKind, name: &[u8], value: &[u8]) -> bool {
        let length = self.name.len();
        self.name.push(b'.');
        self.name.extend_from_slice(name);
        let taken = self.intaker.take(kind, &self.name, value);
        self.name.truncate(length);
        self.is_full |= !taken;
        taken
    }
}
