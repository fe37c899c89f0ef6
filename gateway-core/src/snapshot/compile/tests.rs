//! What survives from one snapshot to the next, and what doesn't.

use schemars::JsonSchema;
use serde::Deserialize;

use super::*;
use crate::config::file::{NoReferences, Origin};
use crate::config::resolve;
use crate::plugin::{Hooks, OnEnd, Plugin, Seat, World, entry};
use crate::record::ExchangeRecord;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(default)]
    fails: bool,
    #[serde(default)]
    #[allow(dead_code, reason = "it is compared as it was written")]
    level: u8,
}

struct Plain;

impl Plugin for Plain {
    const NAME: &'static str = "plain";
    const SUMMARY: &'static str = "Does nothing.";
    type Config = Rules;

    fn build(rules: Rules, _: &World) -> Result<Self, Problems> {
        if rules.fails { Err(Problems::one("fails", "it was told to")) } else { Ok(Self) }
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_end(self);
    }
}

impl OnEnd for Plain {
    fn on_end(&self, _: &ExchangeRecord<'_>, _: Seat<'_>) {}
}

fn model(text: &str) -> Model {
    let accepts = |_: &str, _: &serde_json::Value| Ok(());
    let origin = Origin { name: "test.yaml".to_owned(), ..Origin::default() };
    resolve::load(text, &origin, &NoReferences, &accepts, |_| Problems::default()).unwrap()
}

/// A compiler and what it published.
struct Bench(Compiler, Snapshot);

impl Bench {
    fn new(text: &str) -> Self {
        let compiler = Compiler::new(Registry::new(&[entry::<Plain>()]));
        let mut bench = Self(compiler, Snapshot::empty(Arc::default()));
        bench.publish(text);
        bench
    }

    fn publish(&mut self, text: &str) {
        let compiled = self.0.compile(&model(text), &self.1, Instant::now());
        self.0.adopt(&compiled);
        self.1 = compiled.snapshot;
    }

    fn route(&self, id: &str) -> &Arc<Route> {
        self.1.by_id.get(id).unwrap()
    }

    fn plugin(&self, proxy: &str) -> Arc<dyn entry::Built> {
        self.route(proxy).chain.members().next().unwrap().1.clone()
    }
}

fn proxy(id: &str, more: &str) -> String {
    format!(
        "  - {{ id: {id}, listen_path: /{id}, backend_scheme: http, backend_host: h, backend_port: 1{more} }}\n"
    )
}

fn config(id: &str, scope: &str, config: &str) -> String {
    format!("  - {{ id: {id}, plugin_name: plain, {scope}, config: {{ {config} }} }}\n")
}

fn spec(proxies: &[String], configs: &[String]) -> String {
    format!("proxies:\n{}plugin_configs:\n{}", proxies.concat(), configs.concat())
}

#[test]
fn a_plugin_whose_settings_stay_goes_on_and_another_is_built_anew() {
    let own = |level: &str| spec(&[proxy("a", "")], &[config("own", "proxy_id: a", level)]);
    let mut bench = Bench::new(&own("level: 1"));
    let first = bench.plugin("a");
    bench.publish(&own("level: 1"));
    assert!(Arc::ptr_eq(&first, &bench.plugin("a")));
    bench.publish(&own("level: 2"));
    assert!(!Arc::ptr_eq(&first, &bench.plugin("a")));
}

#[test]
fn a_group_shares_one_plugin_and_global_ones_are_shared_by_all() {
    let named = ", plugins: [{ plugin_config_id: group }]";
    let group = |level: &str| {
        spec(
            &[proxy("a", named), proxy("b", named), proxy("c", "")],
            &[config("group", "scope: proxy_group", level)],
        )
    };
    let mut bench = Bench::new(&group("level: 1"));
    let first = bench.plugin("a");
    assert!(Arc::ptr_eq(&first, &bench.plugin("b")));
    assert_eq!(bench.route("c").chain.members().len(), 0);
    bench.publish(&group("level: 2"));
    assert!(Arc::ptr_eq(&bench.plugin("a"), &bench.plugin("b")));
    assert!(!Arc::ptr_eq(&first, &bench.plugin("a")));
    bench.publish(&spec(&[proxy("a", ""), proxy("b", "")], &[config("group", "scope: global", "level: 2")]));
    assert!(Arc::ptr_eq(&bench.plugin("a"), &bench.plugin("b")));
}

#[test]
fn a_proxy_whose_plugin_can_t_be_built_is_closed_with_the_reason() {
    let broken = spec(
        &[proxy("a", ""), proxy("b", "")],
        &[config("own", "proxy_id: a", "fails: true"), config("other", "proxy_id: b", "")],
    );
    let mut bench = Bench::new(&broken);
    let closed = bench.route("a").quarantine.as_ref().unwrap().to_string();
    assert!(closed.contains("plugin_configs.own.fails"), "{closed}");
    assert!(bench.route("b").quarantine.is_none());
    assert_eq!(bench.1.quarantined.len(), 1);
    // It keeps its place, so that nobody else answers for it.
    let found = bench.1.routes.find(None, "/a", |_| true).unwrap();
    assert_eq!(found.route.proxy.id.as_str(), "a");
    bench.publish(&broken.replace("fails: true", ""));
    assert!(bench.route("a").quarantine.is_none() && bench.1.quarantined.is_empty());
    assert_eq!(bench.route("a").chain.members().len(), 1);
}

#[test]
fn what_a_change_does_not_touch_is_the_same_object() {
    let bench = Bench::new(&spec(&[proxy("a", ""), proxy("b", "")], &[]));
    let Bench(mut compiler, before) = bench;
    let put = Edits { put: vec![before.by_id.get("a").unwrap().proxy.clone()], gone: Vec::new() };
    let compiled = compiler.apply(Changes { proxies: put, ..Changes::default() }, &before, Instant::now());
    let next = &compiled.snapshot;
    assert!(Arc::ptr_eq(before.by_id.get("b").unwrap(), next.by_id.get("b").unwrap()));
    let slots = |snapshot: &Snapshot| snapshot.by_id.get("a").unwrap().slot;
    assert_eq!((slots(&before), before.revision + 1), (slots(next), next.revision));
    assert!(!compiled.streams_changed && compiled.gone.is_empty() && compiled.put.len() == 1);
    compiler.discard(compiled);
}

#[test]
fn slots_are_given_back_by_what_is_gone_and_by_what_was_thrown_away() {
    let Bench(mut compiler, before) = Bench::new(&spec(&[proxy("a", ""), proxy("b", "")], &[]));
    let three = model(&spec(&[proxy("c", "")], &[]));
    let put = || Edits { put: three.proxies.clone(), gone: Vec::new() };
    for _ in 0..3 {
        let tried = compiler.apply(Changes { proxies: put(), ..Changes::default() }, &before, Instant::now());
        assert_eq!(tried.snapshot.by_id.get("c").unwrap().slot, 2, "a trial keeps no number");
        compiler.discard(tried);
    }
    let gone = Edits { put: Vec::new(), gone: vec!["a".parse().unwrap()] };
    let without = compiler.apply(Changes { proxies: gone, ..Changes::default() }, &before, Instant::now());
    let free = before.by_id.get("a").unwrap().slot;
    compiler.adopt(&without);
    let with =
        compiler.apply(Changes { proxies: put(), ..Changes::default() }, &without.snapshot, Instant::now());
    assert_eq!(with.snapshot.by_id.get("c").unwrap().slot, free);
    compiler.adopt(&with);
    // Changes that build on each other are published as one.
    let gone = Edits { put: Vec::new(), gone: vec!["c".parse().unwrap(), "b".parse().unwrap()] };
    let mut both =
        compiler.apply(Changes { proxies: gone, ..Changes::default() }, &with.snapshot, Instant::now());
    let again =
        compiler.apply(Changes { proxies: put(), ..Changes::default() }, &both.snapshot, Instant::now());
    both.absorb(again);
    compiler.adopt(&both);
    assert_eq!(both.snapshot.by_id.len(), 1);
}

#[test]
fn what_a_proxy_takes_is_bounded() {
    // There may be a million of each. An allocator gives them sizes such as 128 and 256 with the 16 bytes of an `Arc`.
    assert!(size_of::<Route>() <= 240, "{}", size_of::<Route>());
    assert!(size_of::<Proxy>() <= 240, "{}", size_of::<Proxy>());
    assert!(size_of::<PluginConfig>() <= 112, "{}", size_of::<PluginConfig>());
    assert!(size_of::<Target>() <= 48, "{}", size_of::<Target>());
    assert!(size_of::<Targets>() <= 144, "{}", size_of::<Targets>());
}
