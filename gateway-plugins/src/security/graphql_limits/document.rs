//! What a document asks for, counted with its fragments where they are spread.

use std::collections::HashMap;

use apollo_parser::Parser;
use apollo_parser::cst::{self, CstNode, Definition, Selection, Value};

use super::request::Operation;
use super::settings::{Limits, OperationType};
use super::{GraphqlRefusal, scan};

/// Selections and values within each other that are parsed.
const MAX_NESTING: usize = 200;

/// What a set of selections comes to.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    depth: u64,
    fields: u64,
    aliases: u64,
    cost: u64,
    introspects: bool,
}

/// Checks a document against every limit.
/// Checks the operations of a request.
pub(super) fn check(limits: &Limits, operations: &[Operation], by_get: bool) -> Result<(), GraphqlRefusal> {
    operations.iter().try_for_each(|operation| match &operation.query {
        Some(query) => check_one(limits, query, operation, by_get),
        None if limits.persisted => Ok(()),
        None => Err(GraphqlRefusal::denied("graphql_persisted", "persisted queries are not allowed")),
    })
}

fn check_one(
    limits: &Limits,
    query: &str,
    operation: &Operation,
    by_get: bool,
) -> Result<(), GraphqlRefusal> {
    scan::check(query, limits.max_tokens)?;
    let tree = Parser::new(query).recursion_limit(MAX_NESTING).token_limit(limits.max_tokens).parse();
    if tree.token_limit().high > limits.max_tokens {
        return Err(GraphqlRefusal::bad(
            "graphql_tokens",
            format!("a document may have {} tokens", limits.max_tokens),
        ));
    }
    if tree.recursion_limit().high > MAX_NESTING {
        return Err(GraphqlRefusal::bad("graphql_depth", "the document is nested too deeply"));
    }
    if let Some(error) = tree.errors().next() {
        return Err(GraphqlRefusal::bad("graphql_syntax", format!("syntax error at byte {}", error.index())));
    }
    let mut fragments = HashMap::new();
    let mut operations = Vec::new();
    for definition in tree.document().definitions() {
        match definition {
            Definition::OperationDefinition(operation) => operations.push(operation),
            Definition::FragmentDefinition(fragment) => {
                let name = fragment.fragment_name().and_then(|name| name.name());
                let name = name.map(|name| name.text().to_string()).unwrap_or_default();
                if fragments.insert(name, fragment).is_some() {
                    return Err(GraphqlRefusal::bad("graphql_syntax", "a fragment is defined twice"));
                }
            }
            _ => return Err(GraphqlRefusal::bad("graphql_syntax", "a request may not define types")),
        }
    }
    if operations.is_empty() {
        return Err(GraphqlRefusal::bad("graphql_syntax", "there is no operation"));
    }
    let directives =
        tree.document().syntax().descendants().filter(|node| cst::Directive::can_cast(node.kind()));
    if directives.count() as u64 > limits.max_directives {
        let most = limits.max_directives;
        return Err(GraphqlRefusal::bad(
            "graphql_directives",
            format!("a document may have {most} directives"),
        ));
    }
    operations.iter().try_for_each(|definition| {
        let defaults = defaults(definition);
        let count = Count { limits, operation, fragments: &fragments, known: HashMap::new(), defaults };
        count.check(definition, by_get)
    })
}

/// The defaults of an operation's variables, as far as they are numbers.
fn defaults(definition: &cst::OperationDefinition) -> HashMap<String, u64> {
    let variables = definition.variable_definitions();
    let one = |variable: cst::VariableDefinition| {
        let name = variable.variable()?.text().to_string();
        let Value::IntValue(number) = variable.default_value()?.value()? else { return None };
        Some((name, whole(&number)))
    };
    variables.iter().flat_map(cst::VariableDefinitions::variable_definitions).filter_map(one).collect()
}

/// A number; what is too large counts as the largest, and less than nothing as one.
fn whole(number: &cst::IntValue) -> u64 {
    let text = number.source_string();
    match text.trim() {
        negative if negative.starts_with('-') => 1,
        text => text.parse().unwrap_or(u64::MAX),
    }
}

/// One operation while it is counted.
struct Count<'l> {
    limits: &'l Limits,
    operation: &'l Operation,
    fragments: &'l HashMap<String, cst::FragmentDefinition>,
    /// Fragments that were counted already; `None` while one is being counted.
    known: HashMap<String, Option<Sum>>,
    defaults: HashMap<String, u64>,
}

impl Count<'_> {
    fn check(mut self, definition: &cst::OperationDefinition, by_get: bool) -> Result<(), GraphqlRefusal> {
        let limits = self.limits;
        let kind = match definition.operation_type() {
            Some(kind) if kind.mutation_token().is_some() => OperationType::Mutation,
            Some(kind) if kind.subscription_token().is_some() => OperationType::Subscription,
            _ => OperationType::Query,
        };
        if by_get && kind == OperationType::Mutation {
            // As GraphQL over HTTP has it.
            return Err(GraphqlRefusal {
                status: http::StatusCode::METHOD_NOT_ALLOWED,
                reason: "graphql_operation_type",
                message: "mutations need POST".into(),
            });
        }
        if !limits.types.contains(&kind) {
            return Err(GraphqlRefusal::denied(
                "graphql_operation_type",
                "operations of this type are not allowed here",
            ));
        }
        let name = definition.name().map(|name| name.text().to_string());
        if !limits.names.is_empty() && !name.is_some_and(|name| limits.names.contains(&name)) {
            return Err(GraphqlRefusal::denied("graphql_operation_name", "this operation is not allowed"));
        }
        let sum = self.set(definition.selection_set().as_ref(), 0)?;
        let counts = [
            ("graphql_depth", "fields within fields", sum.depth, limits.max_depth),
            ("graphql_root_fields", "fields at the top", sum.fields, limits.max_root_fields),
            ("graphql_aliases", "aliases", sum.aliases, limits.max_aliases),
            ("graphql_cost", "as its cost", sum.cost, limits.max_cost),
        ];
        for (reason, what, count, most) in counts {
            if count > most {
                let message = format!("an operation may have {most} {what}, this has {count}");
                return Err(GraphqlRefusal::bad(reason, message));
            }
        }
        if sum.introspects && !limits.introspection {
            return Err(GraphqlRefusal::denied("graphql_introspection", "introspection is not allowed"));
        }
        Ok(())
    }

    /// What a set of selections comes to, fragments included. `within` fragments and fields around it.
    fn set(&mut self, set: Option<&cst::SelectionSet>, within: usize) -> Result<Sum, GraphqlRefusal> {
        let mut sum = Sum::default();
        if within > MAX_NESTING {
            return Err(GraphqlRefusal::bad("graphql_depth", "the document is nested too deeply"));
        }
        for selection in set.into_iter().flat_map(cst::SelectionSet::selections) {
            let one = match selection {
                Selection::Field(field) => self.field(&field, within)?,
                Selection::InlineFragment(fragment) => {
                    self.set(fragment.selection_set().as_ref(), within + 1)?
                }
                Selection::FragmentSpread(spread) => self.spread(&spread, within)?,
            };
            sum.depth = sum.depth.max(one.depth);
            sum.fields = sum.fields.saturating_add(one.fields);
            sum.aliases = sum.aliases.saturating_add(one.aliases);
            sum.cost = sum.cost.saturating_add(one.cost);
            sum.introspects |= one.introspects;
        }
        Ok(sum)
    }

    fn field(&mut self, field: &cst::Field, within: usize) -> Result<Sum, GraphqlRefusal> {
        let name = field.name().map(|name| name.text().to_string()).unwrap_or_default();
        let inner = self.set(field.selection_set().as_ref(), within + 1)?;
        let own = self.limits.field_costs.get(&name).copied().unwrap_or(1);
        let cost = own.saturating_add(inner.cost).saturating_mul(self.times(field));
        let introspects = matches!(name.as_str(), "__schema" | "__type");
        Ok(Sum {
            // What is within says how deep the schema's types are, and that is no deeper for another query.
            depth: if introspects && self.limits.introspection { 1 } else { inner.depth + 1 },
            fields: 1,
            aliases: inner.aliases.saturating_add(field.alias().is_some().into()),
            cost,
            introspects: inner.introspects || introspects,
        })
    }

    fn spread(&mut self, spread: &cst::FragmentSpread, within: usize) -> Result<Sum, GraphqlRefusal> {
        let name = spread.fragment_name().and_then(|name| name.name());
        let name = name.map(|name| name.text().to_string()).unwrap_or_default();
        match self.known.get(&name) {
            Some(Some(sum)) => return Ok(*sum),
            Some(None) => return Err(GraphqlRefusal::bad("graphql_syntax", "a fragment is within itself")),
            None => {}
        }
        let Some(fragment) = self.fragments.get(&name) else {
            return Err(GraphqlRefusal::bad("graphql_syntax", "a fragment is not defined"));
        };
        self.known.insert(name.clone(), None);
        let sum = self.set(fragment.selection_set().as_ref(), within + 1)?;
        self.known.insert(name, Some(sum));
        Ok(sum)
    }

    /// How many of a field its arguments ask for; 1 where they don't say.
    fn times(&self, field: &cst::Field) -> u64 {
        let arguments = field.arguments();
        let asked = arguments.iter().flat_map(cst::Arguments::arguments).filter_map(|argument| {
            let name = argument.name()?.text().to_string();
            self.limits.list_arguments.contains(&name).then(|| self.number(argument.value()?)).flatten()
        });
        asked.max().unwrap_or(1).max(1)
    }

    fn number(&self, value: Value) -> Option<u64> {
        match value {
            Value::IntValue(number) => Some(whole(&number)),
            Value::Variable(variable) => {
                let name = variable.text().to_string();
                match self.operation.variables.as_ref().and_then(|variables| variables.get(&name)) {
                    Some(value) => sent(value),
                    None => self.defaults.get(&name).copied(),
                }
            }
            _ => None,
        }
    }
}

/// The number that a server may take a variable for.
fn sent(value: &serde_json::Value) -> Option<u64> {
    if let serde_json::Value::String(text) = value {
        return text.trim().parse().ok();
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    value
        .as_u64()
        .or_else(|| value.as_f64().filter(|number| *number > 0.0).map(|number| number.ceil() as u64))
}
