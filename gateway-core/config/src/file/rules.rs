//! A JSON Schema, read once into what a check asks of it: there may be millions of objects to check, and looking a keyword up
//! in a document takes longer than most checks.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde_json::Value as Json;

use crate::units::Unit;

/// The rules of a whole schema, with its definitions.
#[derive(Debug)]
pub struct Rules {
    root: Rule,
    definitions: HashMap<Box<str>, Rule, RandomState>,
}

/// What holds for one value.
#[derive(Debug, Default)]
pub(super) struct Rule {
    refers_to: Option<Reference>,
    pub(super) unit: Option<Unit>,
    /// It is one of these.
    pub(super) choices: Option<Box<[Self]>>,
    /// Names of JSON types; empty takes every one.
    pub(super) types: Box<[&'static str]>,
    /// The texts it may be, where they are listed.
    pub(super) words: Box<[Box<str>]>,
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_minimum: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    /// The text may have several lines: its `contentMediaType` is `text/plain`.
    pub(super) is_document: bool,
    pub(super) max_items: Option<u64>,
    pub(super) items: Option<Box<Self>>,
    pub(super) properties: Option<Properties>,
    pub(super) others: Others,
    pub(super) required: Box<[Box<str>]>,
    /// The only key of a map that stands for one variant of several.
    pub(super) tag: Option<Box<str>>,
}

#[derive(Debug)]
enum Reference {
    Root,
    Definition(Box<str>),
}

/// The keys that a map may have.
#[derive(Debug)]
pub(super) struct Properties {
    /// In the order of the schema.
    names: Box<[Box<str>]>,
    rules: HashMap<Box<str>, Rule, RandomState>,
}

/// What holds for keys that are not among the properties.
#[derive(Debug, Default)]
pub(super) enum Others {
    #[default]
    Anything,
    Nothing,
    Rule(Box<Rule>),
}

impl Rules {
    /// The rules of a schema.
    pub fn new(schema: &Json) -> Self {
        let definitions = schema.get("$defs").and_then(Json::as_object);
        let definitions = definitions.into_iter().flatten();
        let definitions = definitions.map(|(name, schema)| (name.as_str().into(), Rule::new(schema)));
        Self { root: Rule::new(schema), definitions: definitions.collect() }
    }

    /// What holds for a whole document.
    pub(super) fn root(&self) -> &Rule {
        &self.root
    }

    /// What holds for a type that the schema defines.
    pub(super) fn definition(&self, name: &str) -> Option<&Rule> {
        self.definitions.get(name)
    }

    /// The rule itself, or the one it refers to.
    pub(super) fn follow<'r>(&'r self, rule: &'r Rule) -> &'r Rule {
        match &rule.refers_to {
            None => rule,
            Some(Reference::Root) => &self.root,
            Some(Reference::Definition(name)) => self.definition(name).unwrap_or(rule),
        }
    }
}

impl Rule {
    fn new(schema: &Json) -> Self {
        let text = |key| schema.get(key).and_then(Json::as_str);
        let number = |key| schema.get(key).and_then(Json::as_f64);
        let count = |key| schema.get(key).and_then(Json::as_u64);
        let choices = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Json::as_array);
        let words =
            schema.get("enum").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        Self {
            refers_to: text("$ref").and_then(|to| to.strip_prefix('#')).map(|to| match to {
                "" => Reference::Root,
                to => Reference::Definition(to.strip_prefix("/$defs/").unwrap_or(to).into()),
            }),
            unit: Unit::of_schema(schema),
            choices: choices.map(|choices| choices.iter().map(Self::new).collect()),
            types: types(schema),
            words: text("const").into_iter().chain(words).map(Into::into).collect(),
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: number("exclusiveMinimum"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            is_document: schema.get("contentMediaType").is_some(),
            max_items: count("maxItems"),
            items: schema.get("items").map(|items| Box::new(Self::new(items))),
            properties: schema.get("properties").and_then(Json::as_object).map(Properties::new),
            others: match schema.get("additionalProperties") {
                None => Others::Anything,
                Some(Json::Bool(false)) => Others::Nothing,
                Some(schema) => Others::Rule(Box::new(Self::new(schema))),
            },
            required: required(schema).map(Into::into).collect(),
            tag: tag(schema).map(Into::into),
        }
    }
}

impl Properties {
    fn new(properties: &serde_json::Map<String, Json>) -> Self {
        Self {
            names: properties.keys().map(|name| name.as_str().into()).collect(),
            rules: properties
                .iter()
                .map(|(name, schema)| (name.as_str().into(), Rule::new(schema)))
                .collect(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Rule> {
        self.rules.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

fn types(schema: &Json) -> Box<[&'static str]> {
    const KNOWN: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
    let written = match schema.get("type") {
        Some(Json::Array(several)) => several.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    let named = written.iter().filter_map(Json::as_str);
    named.filter_map(|name| KNOWN.into_iter().find(|known| *known == name)).collect()
}

fn required(schema: &Json) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str)
}

fn tag(schema: &Json) -> Option<&str> {
    let properties = schema.get("properties")?.as_object()?;
    let mut required = required(schema);
    let only = required.next()?;
    (properties.len() == 1 && required.next().is_none()).then_some(only)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::File;

    #[test]
    fn every_reference_leads_to_a_definition() {
        fn look(rules: &Rules, rule: &Rule, found: &mut usize) {
            if let Some(reference) = &rule.refers_to {
                *found += 1;
                assert!(!std::ptr::eq(rules.follow(rule), rule), "{reference:?} leads nowhere");
            }
            let others = match &rule.others {
                Others::Rule(rule) => Some(&**rule),
                Others::Anything | Others::Nothing => None,
            };
            let properties = rule.properties.iter().flat_map(|known| known.rules.values());
            let choices = rule.choices.iter().flatten();
            for inner in properties.chain(choices).chain(rule.items.as_deref()).chain(others) {
                look(rules, inner, found);
            }
        }
        let (rules, mut found) = (File::rules(), 0);
        for rule in rules.definitions.values().chain([&rules.root]) {
            look(rules, rule, &mut found);
        }
        assert!(found > 20, "{found}");
    }
}
