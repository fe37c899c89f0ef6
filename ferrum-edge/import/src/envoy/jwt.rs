//! Envoy's `jwt_authn`: issuers whose tokens are asked for, by rules of which the first that fits counts.

use serde_json::{Map, Value};

use super::matching::matched;
use super::{Envoy, Listener};
use crate::cond::Cond;
use crate::draft::{JwksAuth, Plug, Provider, draft};
use crate::tree::Node;

/// Conditions in one another.
const MAX_DEPTH: usize = 12;

impl Envoy<'_> {
    pub(super) fn jwt(&mut self, what: &str, filter: &Node, settings: &Node, made: &mut Listener) {
        let Some(plugs) = plugs(settings) else {
            let why = "of its rules, those that ask for tokens of one or any of several issuers, with `remote_jwks` and in \
                       `Authorization`, can be converted";
            made.is_closed |=
                self.out.guard_not_converted(filter.at, what, why, "use the plugin `jwks_auth` with `when`");
            return;
        };
        made.plugins.extend(plugs);
        self.out.converted(filter.at, what);
    }
}

/// A plugin for each rule that asks for a token; `None` where one can't be said here.
fn plugs(settings: &Node) -> Option<Vec<Plug>> {
    for key in ["filter_state_rules", "requirement_map"] {
        settings.get(key).is_none_or(Node::is_empty).then_some(())?;
    }
    let providers = settings.get("providers").map_or(&[][..], Node::entries);
    let (mut made, mut before) = (Vec::new(), Cond::Never);
    let rules = settings.each("rules");
    // Routes may name requirements then.
    (!rules.is_empty()).then_some(())?;
    for rule in rules {
        let (path, cond) = matched(rule.get("match")?)?;
        let asked = match path.get("prefix").and_then(Value::as_str) {
            Some("/") => cond,
            _ => Cond::path_is(path).and(cond),
        };
        let mine = before.clone().negate().and(asked.clone());
        before = before.or(asked);
        let Some(requires) = rule.get("requires").filter(|it| !it.is_empty()) else { continue };
        let config = config(providers, &required(requires)?)?;
        (mine.depth() <= MAX_DEPTH).then_some(())?;
        if mine != Cond::Never {
            made.push(Plug::of(config).when(mine.when()));
        }
    }
    Some(made)
}

/// The issuers of which any is enough, by name, with audiences of the rule's own.
fn required(requires: &Node) -> Option<Vec<(String, Vec<String>)>> {
    let [(kind, value)] = requires.entries() else { return None };
    match kind.as_str() {
        "provider_name" => Some(vec![(value.str()?.to_owned(), Vec::new())]),
        "provider_and_audiences" => {
            Some(vec![(value.text_of("provider_name")?.to_owned(), value.texts("audiences"))])
        }
        "requires_any" => {
            let all: Vec<_> = value.each("requirements").iter().map(required).collect::<Option<_>>()?;
            Some(all.into_iter().flatten().collect())
        }
        _ => None,
    }
}

fn config(providers: &[(String, Node)], required: &[(String, Vec<String>)]) -> Option<JwksAuth> {
    let (mut made, mut claims, mut hides) = (Vec::new(), Map::new(), true);
    for (name, audiences) in required {
        let (_, provider) = providers.iter().find(|(known, _)| known == name)?;
        let elsewhere = ["from_headers", "from_params", "from_cookies", "local_jwks", "subjects"];
        elsewhere.iter().all(|key| provider.get(key).is_none_or(Node::is_empty)).then_some(())?;
        let uri = provider.path(&["remote_jwks", "http_uri", "uri"]).and_then(Node::str)?;
        let mut one = draft!(Provider { issuer: provider.text_of("issuer")?, jwks_uri: uri });
        let own = provider.texts("audiences");
        let audiences = if audiences.is_empty() { &own } else { audiences };
        if !audiences.is_empty() {
            one.audience(audiences);
        }
        for claim in provider.each("claim_to_headers") {
            if let (Some(name), Some(header)) = (claim.text_of("claim_name"), claim.text_of("header_name")) {
                claims.insert(name.to_owned(), header.into());
            }
        }
        hides &= provider.get("forward").and_then(Node::bool) != Some(true);
        // Its keys are fetched from there, by no cluster.
        provider.path(&["remote_jwks", "http_uri"]).into_iter().for_each(Node::see_all);
        made.push(one);
    }
    if made.is_empty() {
        return None;
    }
    let mut config = draft!(JwksAuth { providers: made, require_exp: false, hide_credentials: hides });
    if !claims.is_empty() {
        config.claims_to_headers(claims);
    }
    Some(config)
}
