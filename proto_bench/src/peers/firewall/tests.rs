//! Tests of the firewalls' requests and of what each firewall is configured with.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;

use super::*;
use crate::backend::Ports;
use crate::peers::{Peer, Setup, Site};
use crate::plan::{Protocol, Target};

const FIREWALL_TESTS: [Test; 5] = [Test::WafGet, Test::WafForm, Test::WafJson, Test::WafAttack, Test::WafOwn];

fn shaped(test: Test) -> Plan {
    let target = Target::at(Protocol::Http1, false, SocketAddr::from(([127, 0, 0, 1], 80)));
    let mut plan = Plan::new(target);
    test.shape(&mut plan, 20, 10);
    plan
}

fn body(plan: &Plan) -> String {
    let body = plan.message.body.as_ref().expect("a body");
    let stamp = Stamp { connection: 1, lane: 0, sequence: 7 }.hex();
    String::from_utf8_lossy(body).replace(STAMP_MARK, &String::from_utf8_lossy(&stamp))
}

#[test]
fn requests_are_what_the_tests_say() {
    let get = shaped(Test::WafGet);
    let cookies =
        get.message.headers.iter().find(|(name, _)| name == "cookie").map(|(_, value)| value.as_str());
    assert_eq!(get.message.headers.len() + 2, 8, "with host and the stamp's header");
    assert_eq!(cookies.map(|cookies| cookies.split("; ").count()), Some(2));
    assert_eq!(get.target.path.split_once('?').map(|(_, query)| query.split('&').count()), Some(3));
    let form = shaped(Test::WafForm);
    assert_eq!((body(&form).len(), form.message.payload), (1024, 1024));
    assert_eq!(body(&form).split('&').filter(|field| field.contains('=')).count(), 10);
    let json: Value = serde_json::from_str(&body(&shaped(Test::WafJson))).expect("JSON");
    let records = json["articles"].as_array().expect("records");
    assert_eq!(
        records.iter().map(|record| record.as_object().map_or(0, serde_json::Map::len)).sum::<usize>(),
        100
    );
    for test in FIREWALL_TESTS {
        let plan = shaped(test);
        let text = format!("{} {}", plan.target.path, plan.message.body.as_ref().map_or("", |_| STAMP_MARK));
        assert!(plan.message.varied && text.contains(STAMP_MARK), "{test:?} has new values");
        assert_eq!(plan.load.connections, CONNECTIONS);
    }
}

#[test]
fn each_counterpart_is_judged_the_other_way() {
    for test in FIREWALL_TESTS {
        let plan = shaped(test);
        let other = test.counterpart(&plan).expect("a counterpart");
        let statuses = BTreeSet::from([plan.expect.status, other.expect.status]);
        assert_eq!(statuses, BTreeSet::from([200, REFUSED]), "{test:?}");
        let attack = if plan.expect.status == REFUSED { &plan } else { &other };
        let words = if attack.message.body.is_some() { body(attack) } else { attack.target.path.clone() };
        assert!(words.contains("UNION"), "{test:?}: {words}");
        assert_eq!(plan.message.headers, other.message.headers, "{test:?} differs in one value alone");
        assert_eq!(plan.message.method, other.message.method);
        let back = test.counterpart(&other).expect("the same again");
        assert_eq!((back.target.path, back.expect), (other.target.path.clone(), other.expect), "{test:?}");
    }
    assert!(Test::WafOff.counterpart(&shaped(Test::WafOff)).is_none());
    assert!(Test::H1.counterpart(&shaped(Test::H1)).is_none());
}

#[test]
fn headers_of_the_user_stay() {
    let target = Target::at(Protocol::Http1, false, SocketAddr::from(([127, 0, 0, 1], 80)));
    let mut plan = Plan::new(target);
    plan.message.headers.push(("user-agent".to_owned(), "mine".to_owned()));
    Test::WafGet.shape(&mut plan, 20, 10);
    let agents: Vec<_> = plan.message.headers.iter().filter(|(name, _)| name == "user-agent").collect();
    assert_eq!(agents, [&("user-agent".to_owned(), "mine".to_owned())]);
}

/// A folder of rules that vanishes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(files: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("proto_bench-rules-{:08x}", fastrand::u32(..)));
        for name in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            let text = if name.contains("901") { "SecAction \"id:9,ver:'OWASP_CRS/4.25.0'\"" } else { "" };
            fs::write(path, text).expect("written");
        }
        Self(folder.canonicalize().expect("a folder"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn names(rules: &Rules, folder: &Folder) -> Vec<String> {
    let name = |path: &PathBuf| path.strip_prefix(&folder.0).expect("below").to_string_lossy().into_owned();
    rules.files.iter().map(name).collect()
}

#[test]
fn rules_are_loaded_in_the_order_of_the_gateway() {
    let folder = Folder::new(&[
        "rules/REQUEST-949-BLOCKING.conf",
        "rules/REQUEST-901-INITIALIZATION.conf",
        "rules/RESPONSE-950-LEAKS.conf",
        "rules/words.data",
        "plugins/own-after.conf",
        "plugins/own-before.conf",
        "plugins/own-config.conf",
        "crs-setup.conf",
        "crs-setup.conf.example",
    ]);
    let rules = Rules::read(&folder.0).expect("rules");
    let right = [
        "crs-setup.conf",
        "plugins/own-config.conf",
        "plugins/own-before.conf",
        "rules/REQUEST-901-INITIALIZATION.conf",
        "rules/REQUEST-949-BLOCKING.conf",
        "plugins/own-after.conf",
    ];
    assert_eq!(names(&rules, &folder), right);
    assert_eq!(rules.version.as_deref(), Some("OWASP_CRS/4.25.0"));
    assert!(!rules.directives().contains("crs_setup_version"));
}

#[test]
fn a_folder_without_a_set_up_gets_one_and_one_without_rules_is_refused() {
    let folder = Folder::new(&["own.conf"]);
    let rules = Rules::read(&folder.0).expect("rules");
    assert!(rules.directives().contains("setvar:tx.crs_setup_version=4000"));
    assert!(rules.text().starts_with("rules of no version in "));
    let delivered = Folder::new(&["crs-setup.conf.example", "own.conf"]);
    let rules = Rules::read(&delivered.0).expect("rules");
    assert_eq!(names(&rules, &delivered), ["crs-setup.conf.example", "own.conf"]);
    let empty = Folder::new(&["words.data"]);
    let refused = Rules::read(&empty.0).expect_err("no rules").to_string();
    assert!(refused.contains("has no rules"), "{refused}");
    assert!(matches!(Rules::read(Path::new("/nonexistent")), Err(RulesError::Read { .. })));
}

fn setup(peer: Peer, test: Test, rules: Option<&Rules>) -> Option<Setup> {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let backend = Ports { http: Some(address(3000)), ..Ports::default() };
    let directory = Path::new("/stand");
    let site =
        Site { listen: address(8000), backend: &backend, directory, workers: 1, admin: address(9000), rules };
    peer.setup(test, Path::new("/program"), &site)
}

#[test]
fn each_firewall_is_configured_with_the_folder_and_refuses() {
    let folder = Folder::new(&["crs-setup.conf", "REQUEST-901-INITIALIZATION.conf"]);
    let rules = Rules::read(&folder.0).expect("rules");
    let directory = folder.0.to_string_lossy();
    for test in FIREWALL_TESTS.into_iter().filter(|test| test.needs_rules()) {
        let spec = setup(Peer::Gateway, test, Some(&rules)).expect("the gateway").text();
        assert!(
            spec.contains("\"plugin_name\": \"waf\"") && spec.contains(&format!("\"crs\": \"{directory}\""))
        );
        assert!(
            spec.contains("\"deny_status\": 403") && spec.contains("\"plugin_config_id\": \"waf\""),
            "{spec}"
        );
        let coraza = setup(Peer::Coraza, test, Some(&rules)).expect("Coraza");
        assert_eq!(coraza.command[2..7], ["/program", "-listen", "127.0.0.1:8000", "-to", "127.0.0.1:3000"]);
        assert_eq!(coraza.command[7..], ["-rules", "/stand/coraza.conf"]);
        assert!(coraza.text().contains(&format!("Include {directory}/REQUEST-901-INITIALIZATION.conf\n")));
        assert!(
            coraza.text().contains("SecRuleEngine On\n")
                && coraza.text().contains("SecRequestBodyAccess On\n")
        );
        if let Some(nginx) = setup(Peer::NginxModsecurity, test, Some(&rules)) {
            let text = nginx.text();
            assert!(
                text.contains("modsecurity on;\nmodsecurity_rules_file /stand/modsecurity.conf;\n"),
                "{text}"
            );
            assert!(text.contains("load_module /") && text.contains(&rules.directives()), "{text}");
        }
        for peer in Peer::ALL {
            let has_rules = [Peer::Gateway, Peer::Coraza, Peer::NginxModsecurity].contains(&peer);
            assert!(has_rules || setup(peer, test, Some(&rules)).is_none(), "{peer:?} has no firewall");
            assert!(setup(peer, test, None).is_none(), "{peer:?} without rules");
        }
    }
}

#[test]
fn the_gateways_own_rules_need_no_folder_and_no_firewall_is_none() {
    let own = setup(Peer::Gateway, Test::WafOwn, None).expect("the gateway").text();
    assert!(own.contains("\"plugin_name\": \"waf\"") && !own.contains("crs"), "{own}");
    let others = Peer::ALL.into_iter().filter(|peer| setup(*peer, Test::WafOwn, None).is_some());
    assert_eq!(others.collect::<Vec<_>>(), [Peer::Gateway]);
    let none = setup(Peer::Gateway, Test::WafOff, None).expect("the gateway").text();
    assert!(!none.contains("waf") && !none.contains("plugin"), "{none}");
    assert!(setup(Peer::Coraza, Test::WafOff, None).is_some_and(|coraza| coraza.files.is_empty()));
    assert!(
        setup(Peer::Nginx, Test::WafOff, None).is_some_and(|nginx| !nginx.text().contains("modsecurity"))
    );
    assert!(setup(Peer::Coraza, Test::H1, None).is_none());
    assert!(setup(Peer::NginxModsecurity, Test::WafOff, None).is_none());
}
