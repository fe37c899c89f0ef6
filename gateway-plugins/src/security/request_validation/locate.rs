//! Finds where a value does not fit its schema, at a cost that neither the value nor the schema can raise.
//!
//! The library says whether a value fits in time that grows with the value. What is wrong with it, it says by collecting all
//! errors of all alternatives within each other, which doubles with each level of a recursive `oneOf`. So the places are looked for
//! here: by steps that are counted, with what is known of an alternative kept, and no further than to the first few.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gateway_plugin_common::flat_json::JsonKind;
use jsonschema::Validator;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::dialect::SchemaDialect;
use super::instance::{Flat, Instance};

/// Pairs of a schema and a value that are looked at for one request.
const MAX_STEPS: usize = 50_000;
/// Schemas within each other; values are at most 128 deep.
const MAX_DEPTH: usize = 300;
/// What is kept of alternatives that were tried; more begins anew.
const MAX_KNOWN: usize = 4096;

/// Keywords about the value itself, without a schema for a part of it. The library decides on these.
const PLAIN: [&str; 20] = [
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "format",
    "contentEncoding",
];

/// A place that does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LocatedFault {
    /// Its JSON pointer; empty is the whole value.
    pub(super) place: String,
    /// What is wrong, without the value.
    pub(super) message: String,
}

/// A schema as it is written, with the parts of it that were compiled for the values that did not fit.
pub(super) struct Locator {
    schema: Value,
    components: Option<Arc<Value>>,
    written: SchemaDialect,
    /// By the address of a schema, which stays where it is.
    plain: Mutex<HashMap<usize, Option<Arc<Validator<Flat>>>>>,
    patterns: Mutex<HashMap<String, Option<Arc<Validator<Flat>>>>>,
}

impl Locator {
    pub(super) fn new(schema: Value, components: Option<Arc<Value>>, written: SchemaDialect) -> Self {
        Self { schema, components, written, plain: Mutex::default(), patterns: Mutex::default() }
    }

    /// Up to `most` places where the value does not fit. None where the steps did not lead to one.
    pub(super) fn faults(&self, value: Instance<'_>, most: usize) -> Vec<LocatedFault> {
        let mut search = Search {
            locator: self,
            steps: MAX_STEPS,
            most,
            within: 0,
            known: HashMap::new(),
            faults: Vec::new(),
        };
        search.fits(&self.schema, value, InstancePath { parent: None, token: Token::Root, depth: 0 });
        search.faults
    }

    /// What a reference is to.
    fn target(&self, reference: &str) -> Option<&Value> {
        let pointer = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
        match (pointer.strip_prefix("/components"), &self.components) {
            (Some(rest), Some(components)) => components.pointer(rest),
            _ => self.schema.pointer(&pointer),
        }
    }

    /// What decides on the plain keywords of a schema, where it has any.
    fn plain(&self, schema: &Map<String, Value>) -> Option<Arc<Validator<Flat>>> {
        let address = std::ptr::from_ref(schema).addr();
        let mut all = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        let compile = || {
            let plain = schema.iter().filter(|(name, _)| PLAIN.contains(&name.as_str()));
            let plain: Map<String, Value> = plain.map(|(name, it)| (name.clone(), it.clone())).collect();
            if plain.is_empty() {
                return None;
            }
            self.written.options().build(&Value::Object(plain)).ok().map(Arc::new)
        };
        all.entry(address).or_insert_with(compile).clone()
    }

    fn pattern(&self, pattern: &str) -> Option<Arc<Validator<Flat>>> {
        let mut all = self.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(pattern) {
            return known.clone();
        }
        let compiled =
            self.written.options().build(&serde_json::json!({ "pattern": pattern })).ok().map(Arc::new);
        all.insert(pattern.to_owned(), compiled.clone());
        compiled
    }
}

/// Where in the value a step is, as a list from there to the root.
#[derive(Clone, Copy)]
struct InstancePath<'p> {
    parent: Option<&'p Self>,
    token: Token<'p>,
    /// How many schemas are within each other here.
    depth: usize,
}

#[derive(Clone, Copy)]
enum Token<'p> {
    Root,
    /// The same value, in another schema.
    Same,
    Key(&'p str),
    Index(usize),
}

impl<'p> InstancePath<'p> {
    fn then(&'p self, token: Token<'p>) -> Self {
        Self { parent: Some(self), token, depth: self.depth + 1 }
    }

    fn pointer(&self) -> String {
        let mut text = self.parent.map(InstancePath::pointer).unwrap_or_default();
        match self.token {
            Token::Root | Token::Same => {}
            Token::Key(key) => {
                text.push('/');
                text.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Token::Index(n) => text.push_str(&format!("/{n}")),
        }
        text
    }
}

struct Search<'s> {
    locator: &'s Locator,
    steps: usize,
    most: usize,
    /// Alternatives within each other; what does not fit in one of them is no fault.
    within: usize,
    /// Of alternatives: whether the value at a place fits the schema at an address.
    known: HashMap<(usize, usize), bool>,
    faults: Vec<LocatedFault>,
}

impl<'s> Search<'s> {
    fn fault(&mut self, place: InstancePath<'_>, message: impl Into<String>) -> bool {
        if self.within == 0 && self.faults.len() < self.most {
            self.faults.push(LocatedFault { place: place.pointer(), message: message.into() });
        }
        false
    }

    /// Whether a value fits a schema; without steps left it counts as fitting.
    fn fits(&mut self, schema: &'s Value, value: Instance<'_>, place: InstancePath<'_>) -> bool {
        if self.steps == 0 || place.depth > MAX_DEPTH || self.faults.len() >= self.most {
            return true;
        }
        self.steps -= 1;
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(false) => return self.fault(place, "it is not allowed (`false`)"),
            _ => return true,
        };
        if self.within == 0 {
            return self.fits_each(map, value, place);
        }
        let pair = (std::ptr::from_ref(schema).addr(), value.place());
        if let Some(known) = self.known.get(&pair) {
            return *known;
        }
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        // A schema that is about itself says nothing.
        self.known.insert(pair, true);
        let fits = self.fits_each(map, value, place);
        self.known.insert(pair, fits);
        fits
    }

    /// The same for an alternative, in which faults are not looked for.
    fn is_alternative(&mut self, schema: &'s Value, value: Instance<'_>, place: InstancePath<'_>) -> bool {
        self.within += 1;
        let fits = self.fits(schema, value, place.then(Token::Same));
        self.within -= 1;
        fits
    }

    fn fits_each(
        &mut self,
        map: &'s Map<String, Value>,
        value: Instance<'_>,
        place: InstancePath<'_>,
    ) -> bool {
        let plain = self.fits_plain(map, value, place);
        if !plain && self.within > 0 {
            return false;
        }
        let parts = match value.kind() {
            JsonKind::Object => self.fits_members(map, value, place),
            JsonKind::List => self.fits_items(map, value, place),
            _ => true,
        };
        plain && parts && self.fits_same(map, value, place)
    }

    fn fits_plain(
        &mut self,
        map: &'s Map<String, Value>,
        value: Instance<'_>,
        place: InstancePath<'_>,
    ) -> bool {
        let Some(plain) = self.locator.plain(map) else { return true };
        if plain.is_valid(value) {
            return true;
        }
        if self.within == 0 {
            for error in plain.iter_errors(value).take(self.most) {
                self.fault(place, format!("{} (`{}`)", error.masked(), error.kind().keyword()));
            }
        }
        false
    }

    /// Other schemas for the same value.
    fn fits_same(
        &mut self,
        map: &'s Map<String, Value>,
        value: Instance<'_>,
        place: InstancePath<'_>,
    ) -> bool {
        let list = |name: &str| map.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut fits = true;
        let reference = map.get("$ref").and_then(Value::as_str);
        if let Some(target) = reference.and_then(|reference| self.locator.target(reference)) {
            fits &= self.fits(target, value, place.then(Token::Same));
        }
        for schema in list("allOf") {
            fits &= self.fits(schema, value, place.then(Token::Same));
        }
        let some = list("anyOf");
        if !some.is_empty() && !some.iter().any(|schema| self.is_alternative(schema, value, place)) {
            fits = self.fault(place, "it fits none of the schemas (`anyOf`)");
        }
        let one = list("oneOf");
        let count = one.iter().filter(|schema| self.is_alternative(schema, value, place)).take(2).count();
        match count {
            _ if one.is_empty() => {}
            0 => fits = self.fault(place, "it fits none of the schemas (`oneOf`)"),
            1 => {}
            _ => fits = self.fault(place, "it fits more than one of the schemas (`oneOf`)"),
        }
        if let Some(schema) = map.get("not")
            && self.is_alternative(schema, value, place)
        {
            fits = self.fault(place, "it fits a schema that it may not fit (`not`)");
        }
        if let Some(schema) = map.get("if") {
            let name = if self.is_alternative(schema, value, place) { "then" } else { "else" };
            if let Some(schema) = map.get(name) {
                fits &= self.fits(schema, value, place.then(Token::Same));
            }
        }
        fits
    }

    fn fits_members(
        &mut self,
        map: &'s Map<String, Value>,
        object: Instance<'_>,
        place: InstancePath<'_>,
    ) -> bool {
        let keyword = |name: &str| map.get(name).and_then(Value::as_object);
        let (properties, patterns) = (keyword("properties"), keyword("patternProperties"));
        let mut fits = true;
        for (name, value) in object.members() {
            let name = &*name;
            let place = place.then(Token::Key(name));
            let schema = properties.and_then(|all| all.get(name));
            let mut is_known = schema.is_some();
            if let Some(schema) = schema {
                fits &= self.fits(schema, value, place);
            }
            for (pattern, schema) in patterns.into_iter().flatten() {
                let compiled = self.locator.pattern(pattern);
                if compiled.is_some_and(|pattern| pattern.is_valid(Instance::Text(name))) {
                    is_known = true;
                    fits &= self.fits(schema, value, place);
                }
            }
            match map.get("additionalProperties") {
                Some(Value::Bool(false)) if !is_known => {
                    fits = self.fault(place, "it is not among the properties (`additionalProperties`)");
                }
                Some(schema) if !is_known => fits &= self.fits(schema, value, place),
                _ => {}
            }
            if self.is_over(fits) {
                return fits;
            }
        }
        fits
    }

    fn fits_items(
        &mut self,
        map: &'s Map<String, Value>,
        list: Instance<'_>,
        place: InstancePath<'_>,
    ) -> bool {
        let (first, others) = match (map.get("prefixItems"), map.get("items")) {
            (Some(Value::Array(first)), others) => (first.as_slice(), others),
            (_, Some(Value::Array(first))) => (first.as_slice(), map.get("additionalItems")),
            (_, others) => (&[][..], others),
        };
        let mut fits = true;
        for (n, item) in list.items().enumerate() {
            let Some(schema) = first.get(n).or(others) else { break };
            fits &= self.fits(schema, item, place.then(Token::Index(n)));
            if self.is_over(fits) {
                return fits;
            }
        }
        if let Some(schema) = map.get("contains")
            && map.get("minContains") != Some(&Value::from(0))
            && !list.items().any(|item| self.is_alternative(schema, item, place))
        {
            fits = self.fault(place, "no item is such as one has to be (`contains`)");
        }
        fits
    }

    /// Whether the rest of a value needs no look.
    fn is_over(&self, fits: bool) -> bool {
        self.steps == 0 || self.faults.len() >= self.most || (!fits && self.within > 0)
    }
}
