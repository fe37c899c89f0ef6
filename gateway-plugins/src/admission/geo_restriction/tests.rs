//! Who comes in from where, and how databases change.

use gateway_core::http::exchange::Client;
use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::{Machine, metric};
use serde_json::{Value, json};

use super::*;

/// Writes databases in MaxMind's format: IPv6, records of 32 bits.
mod writer {
    use super::*;

    #[derive(Clone, Copy)]
    enum Record {
        None,
        Node(usize),
        Data(usize),
    }

    fn control(kind: u8, size: usize) -> Vec<u8> {
        assert!(size < 29);
        let size = u8::try_from(size).unwrap();
        if kind < 8 { vec![kind << 5 | size] } else { vec![size, kind - 7] }
    }

    fn value(value: &Value) -> Vec<u8> {
        match value {
            Value::String(text) => [control(2, text.len()), text.clone().into_bytes()].concat(),
            // The types that metadata must have: its small numbers are of 16 bits, its time of 64.
            Value::Number(number) => match number.as_u64().unwrap() {
                small @ ..100 => {
                    [control(5, 2), u16::try_from(small).unwrap().to_be_bytes().to_vec()].concat()
                }
                time @ 1_000_000_000.. => [control(9, 8), time.to_be_bytes().to_vec()].concat(),
                other => [control(6, 4), u32::try_from(other).unwrap().to_be_bytes().to_vec()].concat(),
            },
            Value::Object(map) => {
                let pairs = map.iter().map(|(key, it)| [self::value(&json!(key)), self::value(it)].concat());
                [control(7, map.len()), pairs.collect::<Vec<_>>().concat()].concat()
            }
            Value::Array(list) => {
                [control(11, list.len()), list.iter().flat_map(self::value).collect()].concat()
            }
            _ => panic!("{value}"),
        }
    }

    /// A database with these networks, as `address/bits` of IPv6.
    pub(super) fn database(kind: &str, networks: &[(&str, Value)]) -> Vec<u8> {
        let mut nodes = vec![[Record::None; 2]];
        let mut data = Vec::new();
        for (network, found) in networks {
            let network: ipnet::Ipv6Net = network.parse().unwrap();
            let address = u128::from(network.network());
            let mut at = 0;
            for bit in 0..network.prefix_len() {
                let side = usize::from(address >> (127 - bit) & 1 == 1);
                if bit + 1 == network.prefix_len() {
                    nodes[at][side] = Record::Data(data.len());
                } else if let Record::Node(next) = nodes[at][side] {
                    at = next;
                } else {
                    nodes.push([Record::None; 2]);
                    nodes[at][side] = Record::Node(nodes.len() - 1);
                    at = nodes.len() - 1;
                }
            }
            data.extend(value(found));
        }
        let count = nodes.len();
        let mut file = Vec::new();
        for record in nodes.iter().flatten() {
            let number = match record {
                Record::None => count,
                Record::Node(n) => *n,
                Record::Data(offset) => count + 16 + offset,
            };
            file.extend(u32::try_from(number).unwrap().to_be_bytes());
        }
        file.extend([0; 16]);
        file.extend(data);
        file.extend(b"\xab\xcd\xefMaxMind.com");
        file.extend(value(&json!({
            "binary_format_major_version": 2, "binary_format_minor_version": 0, "build_epoch": 1_700_000_000,
            "database_type": kind, "description": { "en": "test" }, "ip_version": 6, "languages": ["en"],
            "node_count": count, "record_size": 32,
        })));
        file
    }
}

fn country(code: &str, continent: &str) -> Value {
    json!({ "continent": { "code": continent }, "country": { "iso_code": code, "names": { "en": "x" } } })
}

/// 192.0.2.0/24 is in DE, 198.51.100.0/24 in US, 2001:db8::/32 in FR, 203.0.113.0/24 is somewhere in Asia.
fn countries() -> Vec<u8> {
    writer::database(
        "Test-Country",
        &[
            ("::c000:0200/120", country("DE", "EU")),
            ("::c633:6400/120", country("US", "NA")),
            ("2001:db8::/32", country("FR", "EU")),
            ("::cb00:7100/120", json!({ "continent": { "code": "AS" } })),
        ],
    )
}

fn machine() -> Machine {
    let machine = Machine::default();
    machine.files.put_bytes("c.mmdb", countries());
    let asn = json!({ "autonomous_system_number": 64500, "autonomous_system_name": "x" });
    machine.files.put_bytes("a.mmdb", writer::database("Test-ASN", &[("::c000:0200/120", asn)]));
    machine
}

fn trial(config: &Value, machine: &Machine, address: &str) -> Trial {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "g", "plugin_name": "geo_restriction", "proxy_id": "a", "config": config }],
    });
    Trial::of_spec(&[entry::<GeoRestriction>()], &spec.to_string(), &machine.world())
        .from_client(address.parse().unwrap(), None)
}

async fn status(config: &Value, address: &str) -> u16 {
    let mut config = config.clone();
    let by_asn = config.as_object().unwrap().keys().any(|key| key.contains("asn"));
    if by_asn {
        config["asn_database"] = "a.mmdb".into();
    }
    if config.as_object().unwrap().keys().any(|key| key.contains("countr") || key.contains("continent")) {
        config["database"] = "c.mmdb".into();
    }
    trial(&config, &machine(), address).get("/", &[]).await.status
}

const ADDRESSES: [&str; 5] = ["192.0.2.1", "198.51.100.1", "2001:db8::1", "203.0.113.1", "10.0.0.1"];

#[tokio::test]
async fn who_comes_in_from_where() {
    for (config, may) in [
        (json!({ "allow_countries": ["DE", "FR"] }), [true, false, true, false, false]),
        (json!({ "deny_countries": ["US"] }), [true, false, true, true, true]),
        (json!({ "allow_continents": ["EU"], "deny_countries": ["FR"] }), [true, false, false, false, false]),
        (json!({ "deny_continents": ["AS"] }), [true, true, true, false, true]),
        (json!({ "allow_countries": ["US"], "on_unknown": "allow" }), [false, true, false, false, true]),
        (json!({ "deny_countries": ["US"], "on_unknown": "deny" }), [true, false, true, true, false]),
        (json!({ "allow_asns": [64500] }), [true, false, false, false, false]),
        (json!({ "deny_asns": [64500] }), [false, true, true, true, true]),
        (json!({ "allow_countries": ["US"], "allow_asns": [64500] }), [true, true, false, false, false]),
    ] {
        for (address, may) in ADDRESSES.into_iter().zip(may) {
            assert_eq!(status(&config, address).await, if may { 200 } else { 403 }, "{config} {address}");
        }
    }
    assert_eq!(status(&json!({ "deny_countries": ["DE"], "status_code": 451 }), "192.0.2.1").await, 451);
}

#[tokio::test]
async fn targets_are_told_and_clients_are_not_believed() {
    let config = json!({ "database": "c.mmdb", "asn_database": "a.mmdb", "country_header": "x-country",
        "continent_header": "x-continent", "asn_header": "x-asn" });
    let forged = [("x-country", "US"), ("x-continent", "NA"), ("x-asn", "1")];
    for (address, expected) in [("192.0.2.1", ["DE", "EU", "64500"]), ("10.0.0.1", ["", "", ""])] {
        let trial = trial(&config, &machine(), address);
        assert_eq!(trial.get("/", &forged).await.status, 200);
        let asked = trial.asked().pop().unwrap();
        assert_eq!(["x-country", "x-continent", "x-asn"].map(|name| asked.field(name).to_owned()), expected);
    }
}

#[tokio::test]
async fn a_dry_run_notes_and_counts() {
    let machine = machine();
    let world = machine.world();
    let config = json!({ "database": "c.mmdb", "deny_countries": ["DE"], "dry_run": true });
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "g", "plugin_name": "geo_restriction", "proxy_id": "a", "config": config }],
    });
    let trial = Trial::of_spec(&[entry::<GeoRestriction>()], &spec.to_string(), &world);
    assert_eq!(trial.get("/", &[]).await.status, 200);
    let expected = [("geo_restriction.country", "DE".into()), ("geo_restriction.would_deny", true.into())];
    assert_eq!(trial.records()[0].fields, expected);
    assert_eq!(metric(&world, REQUESTS.name, &["would_deny"]), 1);
    let trial = trial.from_client([10, 0, 0, 1].into(), None);
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert_eq!(metric(&world, REQUESTS.name, &["unknown"]), 1);
}

fn build(config: Value, machine: &Machine) -> Result<Arc<GeoRestriction>, Problems> {
    GeoRestriction::build(serde_json::from_value(config).unwrap(), &machine.world()).map(Arc::new)
}

#[test]
fn streams_are_refused_as_well() {
    let config = json!({ "database": "c.mmdb", "deny_countries": ["DE"] });
    let session = |address: [u8; 4]| {
        let client = Client::new((address, 1).into(), ([127, 0, 0, 1], 1).into(), false, None);
        Session::new(Arc::new(client))
    };
    let plugin = build(config, &machine()).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(plugin.connect(&mut session([192, 0, 2, 1])), Some(Refusal::new("location_denied")));
    assert_eq!(plugin.connect(&mut session([198, 51, 100, 1])), None);
    let dry = json!({ "database": "c.mmdb", "deny_countries": ["DE"], "dry_run": true });
    let dry = build(dry, &machine()).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(dry.connect(&mut session([192, 0, 2, 1])), None);
}

#[tokio::test(start_paused = true)]
async fn databases_are_read_again_when_they_change_and_bad_ones_change_nothing() {
    let machine = machine();
    let config = json!({ "database": "c.mmdb", "allow_countries": ["DE"], "refresh": "5s" });
    let plugin = build(config, &machine).unwrap_or_else(|problems| panic!("{problems}"));
    let admits = |address: &str| plugin.admits_address(address.parse().unwrap());
    let settle = || async {
        for _ in 0..100 {
            tokio::task::yield_now().await
        }
    };
    assert!(admits("192.0.2.1") && !admits("198.51.100.1"));
    let (_handle, control) = TaskControl::new();
    let run = tokio::spawn(plugin.clone().keep_fresh(control));
    settle().await;
    let moved = [("::c633:6400/120", country("DE", "EU"))];
    machine.files.put_bytes("c.mmdb", writer::database("Test-Country", &moved));
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    settle().await;
    assert!(!admits("192.0.2.1") && admits("198.51.100.1"));
    machine.files.put_bytes("c.mmdb", b"nonsense".to_vec());
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    let error = run.await.unwrap().expect_err("the file is bad");
    assert!(error.to_string().contains("c.mmdb"), "{error}");
    assert!(admits("198.51.100.1"), "what was in use stays in use");
}

/// Whatever is in a database, a lookup says something and ends.
#[test]
fn broken_databases_are_refused_or_know_nothing() {
    let whole = countries();
    for n in 0..whole.len() {
        for byte in [0, 0xff, whole[n] ^ 0x55] {
            let mut broken = whole.clone();
            broken[n] = byte;
            let machine = Machine::default();
            machine.files.put_bytes("c.mmdb", broken);
            let config = json!({ "database": "c.mmdb", "allow_countries": ["XX"] });
            let Ok(plugin) = build(config, &machine) else { continue };
            assert!(!plugin.admits_address([192, 0, 2, 1].into()), "byte {n}");
        }
    }
    for length in 0..whole.len() {
        let machine = Machine::default();
        machine.files.put_bytes("c.mmdb", whole[..length].to_vec());
        assert!(build(json!({ "database": "c.mmdb", "deny_countries": ["DE"] }), &machine).is_err());
    }
}

#[test]
fn bad_settings_are_refused() {
    let machine = machine();
    for (config, paths) in [
        (json!({}), vec!["config"]),
        (json!({ "deny_countries": ["DE"] }), vec!["config.database"]),
        (json!({ "deny_asns": [1] }), vec!["config.asn_database"]),
        (json!({ "database": "none.mmdb", "deny_countries": ["DE"] }), vec!["config.database"]),
        (
            json!({ "database": "c.mmdb", "asn_database": "a.mmdb", "deny_countries": ["DE"] }),
            vec!["config.asn_database"],
        ),
        (
            json!({ "database": "c.mmdb", "deny_countries": ["de", "DEU"], "deny_continents": ["XX"] }),
            vec!["config.deny_countries[0]", "config.deny_countries[1]", "config.deny_continents[0]"],
        ),
        (json!({ "database": "c.mmdb", "country_header": "a b" }), vec!["config.country_header"]),
    ] {
        let Err(problems) = build(config.clone(), &machine) else { panic!("took {config}") };
        let found: Vec<_> = problems.0.iter().map(|problem| problem.path.as_str()).collect();
        assert!(paths.iter().all(|path| found.contains(path)), "{config} {problems}");
    }
    for (config, path) in [
        (json!({ "refresh": 0 }), "config.refresh"),
        (json!({ "status_code": 200 }), "config.status_code"),
        (json!({ "on_unknown": "x" }), "config.on_unknown"),
    ] {
        assert_eq!(Trial::refused(&[entry::<GeoRestriction>()], "geo_restriction", &config).0[0].path, path);
    }
}
