//! Edits one by one, against the same configuration from scratch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::config::catalog::*;
use crate::config::credential::{CredentialType, samples};
use crate::config::file::{Format, NoReferences, Origin, parse_item};
use crate::config::model::Transport;
use crate::config::problem::Problems;
use crate::plugin::{Hooks, OnClose, OnEnd, Plugin, Registry, Seat, World, entry};
use crate::record::{ExchangeRecord, SessionRecord};
use crate::snapshot::Snapshot;
use crate::snapshot::compile::Compiler;
use crate::snapshot::streams::StreamPort;
use std::path::Path;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Level {
    #[serde(default)]
    #[allow(dead_code, reason = "it is compared as it was written")]
    level: u8,
}

macro_rules! plugin {
    ($type:ident, $name:literal, $credential:expr) => {
        struct $type;

        impl Plugin for $type {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "Does nothing.";
            const CREDENTIAL: Option<&'static CredentialType> = $credential;
            type Config = Level;

            fn build(_: Level, _: &World) -> Result<Self, Problems> {
                Ok(Self)
            }

            fn attend(self: Arc<Self>, hooks: &mut Hooks) {
                hooks.on_end(self.clone());
                hooks.on_close(self);
            }
        }

        impl OnEnd for $type {
            fn on_end(&self, _: &ExchangeRecord<'_>, _: Seat<'_>) {}
        }

        impl OnClose for $type {
            fn on_close(&self, _: &SessionRecord<'_>, _: Seat<'_>) {}
        }
    };
}

plugin!(Guard, "guard", Some(&samples::KEY));
plugin!(Count, "count", None);

fn registry() -> Registry {
    Registry::new(&[entry::<Guard>(), entry::<Count>()])
}

/// What becomes of objects: each with its document, or gone.
type Steps = BTreeMap<(ObjectKind, String), Option<Value>>;

/// A configuration that is edited.
struct Live {
    registry: Registry,
    compiler: Compiler,
    catalog: Catalog,
    snapshot: Snapshot,
    stored: BTreeMap<(ObjectKind, String), Value>,
}

impl Live {
    fn new() -> Self {
        let (compiler, snapshot) = (Compiler::new(registry()), Snapshot::empty(Arc::default()));
        let (catalog, stored) = (Catalog::default(), BTreeMap::new());
        Self { registry: registry(), compiler, catalog, snapshot, stored }
    }

    /// The same from nothing, in one piece.
    fn from_scratch(stored: &BTreeMap<(ObjectKind, String), Value>) -> Self {
        let mut live = Self::new();
        let steps = stored.iter().map(|(key, document)| (key.clone(), Some(document.clone()))).collect();
        live.edit(&steps, OnRefusal::Object).unwrap();
        live
    }

    fn edit(&mut self, steps: &Steps, refusal: OnRefusal) -> Result<(), Problems> {
        let edit = edit(steps);
        let affected = match self.catalog.affected(&edit) {
            Affected::Some(ids) => ids.iter().map(ToString::to_string).collect(),
            Affected::All => self.catalog.ids(ObjectKind::Proxies, &self.snapshot),
        };
        let others = affected.into_iter().filter_map(|id| {
            let key = (ObjectKind::Proxies, id);
            let document = self.stored.get(&key).filter(|_| !steps.contains_key(&key))?;
            Some(put(&key.1, document))
        });
        let (others, mut catalog) = (others.collect(), self.catalog.clone());
        let against = Against { previous: &self.snapshot, folder: Path::new("") };
        let edit = ResolvedEdit::new(edit, &self.registry, None);
        let changes = catalog.apply(edit, others, against, refusal)?;
        let compiled = self.compiler.apply(changes, &self.snapshot, Instant::now());
        self.compiler.adopt(&compiled);
        self.snapshot = compiled.snapshot;
        self.catalog = catalog;
        for (key, document) in steps {
            match document {
                Some(document) => drop(self.stored.insert(key.clone(), document.clone())),
                None => drop(self.stored.remove(key)),
            }
        }
        Ok(())
    }

    /// Everything that traffic could notice.
    fn served(&self) -> Value {
        let snapshot = &self.snapshot;
        let mut proxies: BTreeMap<&str, Value> = BTreeMap::new();
        for (id, route) in snapshot.by_id.iter() {
            let plugins: BTreeMap<_, _> = route
                .chain
                .members()
                .map(|(config, _)| (config.id.as_str(), config.config.value()))
                .collect();
            let targets: Vec<_> = route.targets.list().iter().map(|target| &**target.authority()).collect();
            let closed = route.quarantine.is_some();
            proxies.insert(id.as_str(), json!({ "plugins": plugins, "targets": targets, "closed": closed }));
        }
        let mut requests = BTreeMap::new();
        for host in ["h.example", "i.example", "other"] {
            for path in PATHS {
                let found = snapshot.routes.find(Some(host), path, |_| true);
                let id = found.map(|found| found.route.proxy.id.to_string());
                requests.insert(format!("{host}{path}"), id);
            }
        }
        let keys: BTreeMap<_, _> = KEYS
            .map(|key| {
                let owner = snapshot.consumers.by_credential(&samples::KEY, key.as_bytes());
                (key, owner.map(|owner| owner.name.to_string()))
            })
            .into();
        let ports: Vec<BTreeSet<String>> = PORTS
            .map(|port| {
                let on = snapshot.streams.on(Transport::Tcp, port);
                on.into_iter().flat_map(StreamPort::routes).map(|route| route.proxy.id.to_string()).collect()
            })
            .into();
        let upstreams: BTreeSet<&str> = snapshot.upstreams.iter().map(|(id, _)| id.as_str()).collect();
        let consumers: BTreeSet<&str> = snapshot.consumers.iter().map(|(id, _)| id.as_str()).collect();
        json!({
            "proxies": proxies, "requests": requests, "keys": keys, "ports": ports, "upstreams": upstreams,
            "consumers": consumers, "quarantined": snapshot.quarantined.len(),
        })
    }

    /// Whether anything can't be used.
    fn is_whole(&self) -> bool {
        self.catalog.broken().is_empty() && self.snapshot.quarantined.is_empty()
    }

    fn slots_are_unique(&self) {
        let slots: BTreeSet<u32> = self.snapshot.by_id.iter().map(|(_, route)| route.slot).collect();
        assert_eq!(slots.len(), self.snapshot.by_id.len());
        assert!(slots.iter().all(|slot| *slot < 64), "given back slots are given out again: {slots:?}");
    }
}

fn edit(steps: &Steps) -> Edit {
    let mut edit = Edit::default();
    for ((kind, id), document) in steps {
        match (document, kind) {
            (None, _) => edit.gone.push((*kind, id.parse().unwrap())),
            (Some(document), ObjectKind::Upstreams) => edit.upstreams.push(put(id, document)),
            (Some(document), ObjectKind::PluginConfigs) => edit.plugin_configs.push(put(id, document)),
            (Some(document), ObjectKind::Proxies) => edit.proxies.push(put(id, document)),
            (Some(document), ObjectKind::Consumers) => edit.consumers.push(put(id, document)),
        }
    }
    edit
}

fn put<T: DeserializeOwned + JsonSchema>(id: &str, document: &Value) -> Put<T> {
    let origin = Origin { format: Some(Format::Json), ..Origin::default() };
    Put::new(
        id,
        parse_item(&document.to_string(), &origin, id, &NoReferences)
            .unwrap_or_else(|problems| panic!("{problems}")),
    )
}

const PATHS: [&str; 4] = ["/x", "/y", "/x/y", "/z"];
const KEYS: [&str; 4] = ["k1", "k2", "k3", "k4"];
const PORTS: [u16; 2] = [7001, 7002];

/// One object at random, of few, so that they meet often.
fn object(random: &mut fastrand::Rng) -> ((ObjectKind, String), Option<Value>) {
    let number = random.u8(0..4);
    let one = |random: &mut fastrand::Rng, of: &[&str]| (*random.choice(of).unwrap()).to_owned();
    let (kind, mut document) = match random.u8(0..10) {
        0 | 1 => {
            let port = random.u16(1..3);
            let name = random.bool().then(|| one(random, &["first", "second"]));
            let targets = json!([{ "host": "127.0.0.1", "port": port }]);
            (ObjectKind::Upstreams, json!({ "targets": targets, "name": name }))
        }
        2..=4 => {
            let scope = one(random, &["global", "proxy_group", "owner", "proxy", "proxy"]);
            let level = random.u8(0..3);
            let mut config = json!({
                "plugin_name": one(random, &["guard", "count"]), "scope": scope,
                "enabled": random.u8(0..4) > 0, "config": { "level": level },
            });
            if scope == "proxy" {
                config["proxy_id"] = json!(format!("p{}", random.u8(0..4)));
            }
            if scope == "owner" {
                config["owner"] = json!(one(random, &["ann", "bob"]));
            }
            (ObjectKind::PluginConfigs, config)
        }
        5..=7 => (ObjectKind::Proxies, proxy(random)),
        _ => {
            let keys: Vec<Value> =
                (0..random.u8(0..3)).map(|_| json!({ "key": random.choice(KEYS) })).collect();
            let names = json!({ "username": one(random, &["ann", "bob", "eve", "dan"]) });
            let mut consumer = names;
            consumer["credentials"] = json!({ "key_auth": keys });
            (ObjectKind::Consumers, consumer)
        }
    };
    let letter = match kind {
        ObjectKind::Upstreams => "u",
        ObjectKind::PluginConfigs => "c",
        ObjectKind::Proxies => "p",
        ObjectKind::Consumers => "k",
    };
    let id = format!("{letter}{number}");
    document["id"] = json!(id);
    document.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    ((kind, id), Some(document))
}

fn proxy(random: &mut fastrand::Rng) -> Value {
    let mut proxy = json!({});
    if random.u8(0..4) == 0 {
        proxy["backend_scheme"] = json!("tcp");
        proxy["listen_port"] = json!(random.choice(PORTS));
    } else {
        proxy["backend_scheme"] = json!("http");
        proxy["listen_path"] = json!(random.choice(PATHS));
        let hosts =
            [json!(null), json!(["h.example"]), json!(["h.example", "i.example"]), json!(["*.example"])];
        proxy["hosts"] = random.choice(hosts).unwrap();
    }
    if random.bool() {
        proxy["upstream_id"] = json!(format!("u{}", random.u8(0..4)));
    } else {
        proxy["backend_host"] = json!("127.0.0.1");
        proxy["backend_port"] = json!(random.u16(10..12));
    }
    if random.bool() {
        proxy["owner"] = json!(random.choice(["ann", "bob"]));
    }
    let plugins: BTreeSet<u8> = (0..random.u8(0..3)).map(|_| random.u8(0..4)).collect();
    let plugins = plugins.iter().map(|n| json!({ "plugin_config_id": format!("c{n}") }));
    proxy["plugins"] = plugins.collect();
    if random.u8(0..3) == 0 {
        proxy["name"] = json!(random.choice(["one", "two"]));
    }
    proxy
}

/// A few objects put, changed or deleted at once.
fn steps(seed: u64) -> Steps {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..random.u8(1..5))
        .map(|_| {
            let (key, document) = object(&mut random);
            (key, document.filter(|_| random.u8(0..4) > 0))
        })
        .collect()
}

/// A plugin config that is put for a proxy there isn't is refused as an edit, and no mistake in a database.
fn has_homeless(steps: &Steps, stored: &BTreeMap<(ObjectKind, String), Value>) -> bool {
    steps.iter().any(|((kind, _), document)| {
        let proxy = document.as_ref().and_then(|document| document.get("proxy_id")?.as_str());
        *kind == ObjectKind::PluginConfigs
            && proxy.is_some_and(|id| !stored.contains_key(&(ObjectKind::Proxies, id.to_owned())))
    })
}

/// A proxy of an owner that is no consumer is refused as an edit, and serves in a database. So is a plugin config for the proxies of such
/// an owner, except where its consumer goes later: then it is for no proxy.
fn has_unknown_owner(steps: &Steps, stored: &BTreeMap<(ObjectKind, String), Value>) -> bool {
    let of = |kind| stored.iter().filter(move |((of, _), _)| *of == kind).map(|(_, document)| document);
    let names: BTreeSet<&str> = of(ObjectKind::Consumers)
        .flat_map(|consumer| [consumer["id"].as_str(), consumer["username"].as_str()])
        .flatten()
        .collect();
    let put = steps.iter().filter(|((kind, _), _)| *kind == ObjectKind::PluginConfigs);
    let configs =
        put.filter_map(|(_, document)| document.as_ref()).filter(|config| config["scope"] == "owner");
    of(ObjectKind::Proxies)
        .chain(configs)
        .filter_map(|owned| owned.get("owner")?.as_str())
        .any(|owner| !names.contains(owner))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn edits_one_by_one_come_to_the_same_as_everything_at_once(seeds in vec(any::<u64>(), 1..80)) {
        let mut live = Live::new();
        for seed in seeds {
            let steps = steps(seed);
            let mut wanted = live.stored.clone();
            for (key, document) in &steps {
                match document {
                    Some(document) => drop(wanted.insert(key.clone(), document.clone())),
                    None => drop(wanted.remove(key)),
                }
            }
            let scratch = Live::from_scratch(&wanted);
            let is_good =
                scratch.is_whole() && !has_homeless(&steps, &wanted) && !has_unknown_owner(&steps, &wanted);
            let before = live.served();
            let edited = live.edit(&steps, OnRefusal::Edit);
            prop_assert_eq!(edited.is_ok(), is_good, "{:?}: {:?} against {:?}", steps, edited, scratch.catalog.broken());
            if edited.is_ok() {
                prop_assert_eq!(live.served(), scratch.served(), "after {:?}", steps);
            } else {
                prop_assert_eq!(live.served(), before, "a refused edit changes nothing");
            }
            live.slots_are_unique();
        }
    }

    #[test]
    fn whatever_is_found_in_a_database_stays_closed_until_it_is_whole(seeds in vec(any::<u64>(), 1..60)) {
        let mut live = Live::new();
        for seed in seeds {
            let steps = steps(seed);
            live.edit(&steps, OnRefusal::Object).unwrap();
            live.slots_are_unique();
            let scratch = Live::from_scratch(&live.stored);
            // Where nothing is wrong and nothing was, both ways lead to the same.
            if scratch.is_whole() && live.is_whole() {
                prop_assert_eq!(live.served(), scratch.served(), "after {:?}", steps);
            }
            // What serves has every plugin that is written for it, as long as those can be used.
            for (id, route) in live.snapshot.by_id.iter().filter(|(_, route)| route.quarantine.is_none()) {
                for ((kind, config), document) in &live.stored {
                    let is_own = *kind == ObjectKind::PluginConfigs
                        && document["proxy_id"] == json!(id.as_str())
                        && document["enabled"] == json!(true);
                    let has = route.chain.members().any(|(member, _)| member.id.as_str() == config);
                    let is_last_good = live.catalog.broken().iter().any(|(kind, broken, _)| {
                        kind == ObjectKind::Proxies && broken == id.as_str()
                    });
                    prop_assert!(!is_own || has || is_last_good, "{} lacks {} after {:?}", id, config, steps);
                }
            }
        }
    }
}

#[test]
fn a_proxy_belongs_to_a_consumer_that_is_there() {
    let mut live = Live::new();
    let proxy = |owner: &str| {
        let document = json!({ "id": "p", "listen_port": 7001, "backend_scheme": "tcp", "backend_host": "127.0.0.1",
            "backend_port": 9, "owner": owner });
        ((ObjectKind::Proxies, "p".to_owned()), Some(document))
    };
    let consumer = |id: &str, username: &str| {
        ((ObjectKind::Consumers, id.to_owned()), Some(json!({ "id": id, "username": username })))
    };
    let gone = |id: &str| ((ObjectKind::Consumers, id.to_owned()), None);
    let refused = |live: &mut Live, steps: Steps, expected: &str| {
        let problems = live.edit(&steps, OnRefusal::Edit).unwrap_err();
        assert_eq!(problems.to_string().trim(), expected);
    };
    refused(
        &mut live,
        [proxy("ann")].into(),
        "p.owner: there is no consumer `ann` (create it before, or in the same batch)",
    );
    live.edit(&[proxy("ann"), consumer("k", "ann")].into(), OnRefusal::Edit).unwrap();
    let owns = "the consumer `ann` is the owner of the proxy `p` (give the proxy another `owner`, or delete it first)";
    refused(&mut live, [gone("k")].into(), owns);
    refused(&mut live, [consumer("k", "eve")].into(), owns);
    // Another consumer may take the name over, and the proxy may change its owner in the same edit.
    live.edit(&[consumer("k", "eve"), consumer("l", "ann")].into(), OnRefusal::Edit).unwrap();
    live.edit(&[gone("l"), proxy("k")].into(), OnRefusal::Edit).unwrap();
    live.edit(&[gone("k"), ((ObjectKind::Proxies, "p".to_owned()), None)].into(), OnRefusal::Edit).unwrap();
    // A row of a database serves.
    live.edit(&[proxy("ann")].into(), OnRefusal::Object).unwrap();
    assert!(live.is_whole());
}

#[test]
fn two_may_exchange_what_each_has() {
    let mut live = Live::new();
    let at = |id: &str, path: &str| {
        let document = json!({ "id": id, "listen_path": path, "backend_scheme": "http",
            "backend_host": "127.0.0.1", "backend_port": 9, "name": format!("on {path}") });
        ((ObjectKind::Proxies, id.to_owned()), Some(document))
    };
    let with = |id: &str, key: &str| {
        let document = json!({ "id": id, "username": format!("of {key}"), "credentials": { "key_auth": [{ "key": key }] } });
        ((ObjectKind::Consumers, id.to_owned()), Some(document))
    };
    live.edit(&[at("a", "/x"), at("b", "/y"), with("ann", "k1"), with("bob", "k2")].into(), OnRefusal::Edit)
        .unwrap();
    live.edit(&[at("a", "/y"), at("b", "/x"), with("ann", "k2"), with("bob", "k1")].into(), OnRefusal::Edit)
        .unwrap();
    let served = live.served();
    assert_eq!((&served["requests"]["other/x"], &served["requests"]["other/y"]), (&json!("b"), &json!("a")));
    assert_eq!((&served["keys"]["k1"], &served["keys"]["k2"]), (&json!("of k1"), &json!("of k2")));
    // One of the two alone meets the other.
    let problems = live.edit(&[at("a", "/x")].into(), OnRefusal::Edit).unwrap_err();
    assert!(problems.0.iter().any(|problem| problem.path == "a.listen_path"), "{problems}");
    assert!(live.edit(&[with("ann", "k1")].into(), OnRefusal::Edit).is_err());
    // In a database the second of the two is broken, and nothing that the first has is lost when it goes.
    live.edit(&[with("ann", "k1")].into(), OnRefusal::Object).unwrap();
    assert_eq!(live.catalog.broken().len(), 1);
    live.edit(&[((ObjectKind::Consumers, "ann".to_owned()), None)].into(), OnRefusal::Object).unwrap();
    assert_eq!(live.served()["keys"]["k1"], json!("of k1"));
}

#[test]
fn who_lost_a_key_takes_it_from_nobody_when_gone() {
    let mut live = Live::new();
    let with = |id: &str, keys: &[&str]| {
        let keys: Vec<Value> = keys.iter().map(|key| json!({ "key": key })).collect();
        let document = json!({ "id": id, "username": id, "credentials": { "key_auth": keys } });
        ((ObjectKind::Consumers, id.to_owned()), Some(document))
    };
    live.edit(&[with("b", &["k1"]), with("c", &["k2"])].into(), OnRefusal::Object).unwrap();
    // `a` takes over b's key, and `b` asks for one that is c's.
    live.edit(&[with("a", &["k1"]), with("b", &["k2"])].into(), OnRefusal::Object).unwrap();
    assert_eq!(live.served()["keys"]["k1"], json!("a"));
    live.edit(&[((ObjectKind::Consumers, "b".to_owned()), None)].into(), OnRefusal::Object).unwrap();
    assert_eq!(live.served()["keys"], json!({ "k1": "a", "k2": "c", "k3": null, "k4": null }));
    assert!(live.is_whole());
}
