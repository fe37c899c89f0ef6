//! Limits that several gateways share, against Redis servers that each test starts for itself.

use gateway_core::plugin::World;
use gateway_core::plugin::world::tasks::TaskHandle;
use gateway_plugin_common::redis_link::testing::{
    READY, at, folder, free_port, main_connection, redis, redis_at, servers, start,
};
use gateway_plugin_common::redis_link::{MAX_LATE, MAX_QUEUED};
use gateway_plugin_common::testing::{Machine, metric};
use serde_json::{Value, json};

use super::*;

fn shared_in(config: &Value, world: &World) -> Arc<SharedLimits> {
    world.use_redis(Some(&servers(config)));
    Arc::new(SharedLimits::new(&main_connection(), world))
}

/// One gateway's side, running.
async fn gateway(config: &Value) -> (Arc<SharedLimits>, TaskHandle) {
    let shared = shared_in(config, &World::default());
    let handle = running(&shared);
    shared.becomes(true).await;
    (shared, handle)
}

fn running(shared: &Arc<SharedLimits>) -> TaskHandle {
    let (handle, control) = TaskControl::new();
    tokio::spawn(shared.clone().run(control));
    handle
}

/// Whether this can't be connected to.
async fn fails(config: &Value, world: &World) -> bool {
    let shared = shared_in(config, world);
    let _task = running(&shared);
    let up = tokio::time::timeout(Duration::from_millis(500), shared.becomes(true));
    up.await.is_err()
}

fn rule(rate: u64, per: u64, burst: u64) -> Rule {
    Rule::new(rate, Duration::from_secs(per), burst).unwrap()
}

const TAKE: Mode = Mode::Take;

#[tokio::test]
async fn gateways_share_what_is_allowed() {
    let redis = redis(&[]);
    let (one, _first) = gateway(&at(redis.port)).await;
    let (two, _second) = gateway(&at(redis.port)).await;
    let rules = [rule(1, 86_400, 50)];
    let asked = (0..200).map(|n| if n % 2 == 0 { &one } else { &two }.ask(7, &rules, TAKE, 1));
    let answers = futures_util::future::join_all(asked).await;
    let passed = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|it| it.refused.is_none())).count();
    assert_eq!(passed, 50);
    assert!(one.ask(8, &rules, TAKE, 1).await.unwrap().refused.is_none(), "another key has its own");
}

#[tokio::test]
async fn all_limits_or_none_by_the_clock_of_the_server() {
    let redis = redis(&[]);
    let (shared, _task) = gateway(&at(redis.port)).await;
    let rules = [rule(1, 3600, 10), rule(1, 3600, 2)];
    for _ in 0..2 {
        assert_eq!(shared.ask(1, &rules, TAKE, 1).await.unwrap().refused, None);
    }
    let refused = shared.ask(1, &rules, TAKE, 1).await.unwrap();
    assert_eq!(refused.refused, Some(1));
    let hours = |owed: Duration| owed.as_secs_f64() / 3600.0;
    assert!(refused.owed.iter().all(|owed| (1.9..=2.0).contains(&hours(*owed))), "{refused:?}");
    let looked = shared.ask(1, &rules[..1], Mode::Look, 8).await.unwrap();
    assert_eq!(looked.refused, None, "looking takes nothing");
    assert_eq!(shared.ask(1, &rules[..1], Mode::Look, 9).await.unwrap().refused, Some(0));
    for _ in 0..5 {
        shared.ask(2, &rules, Mode::Charge, 4).await.unwrap();
    }
    let charged = shared.ask(2, &rules, Mode::Look, 1).await.unwrap();
    assert_eq!(charged.refused, Some(0));
    assert!(
        hours(charged.owed[0]) <= 10.0 && hours(charged.owed[1]) <= 2.0,
        "never more than a burst: {charged:?}"
    );
    // A millisecond's worth comes back while the next round trips are made.
    let fast = [rule(1_000_000, 1, 1)];
    assert!(shared.ask(3, &fast, TAKE, 1).await.unwrap().refused.is_none());
    while shared.ask(3, &fast, TAKE, 1).await.unwrap().refused.is_some() {}
}

#[tokio::test]
async fn a_lost_server_is_noticed_and_found_again() {
    let redis = redis(&[]);
    let port = redis.port;
    let world = World::default();
    let shared = shared_in(&at(port), &world);
    let task = running(&shared);
    shared.becomes(true).await;
    assert!(shared.is_up());
    assert_eq!(metric(&world, "ferrum_redis_up", &["connection=\"main\""]), 1);
    drop(redis);
    // The loss shows with the next question.
    assert_eq!(shared.ask(1, &[rule(1, 1, 1)], TAKE, 1).await, Err(Away));
    shared.becomes(false).await;
    assert_eq!(metric(&world, "ferrum_redis_up", &[]), 0);
    let _again = redis_at(port, &[]);
    shared.becomes(true).await;
    assert!(shared.ask(1, &[rule(1, 1, 1)], TAKE, 1).await.is_ok());
    assert_eq!(metric(&world, "ferrum_redis_commands_total", &["answered"]), 1);
    assert_eq!(metric(&world, "ferrum_redis_commands_total", &["failed"]), 1);
    drop(task);
    shared.becomes(false).await;
}

#[tokio::test]
async fn plugin_configs_share_one_connection_and_hand_it_over() {
    let redis = redis(&[]);
    let world = World::default();
    let one = shared_in(&at(redis.port), &world);
    let two = shared_in(&at(redis.port), &world);
    let (first, _second) = (running(&one), running(&two));
    one.becomes(true).await;
    assert!(two.is_up(), "there is one connection");
    let clients = |redis: u16| async move {
        let client = redis::Client::open(format!("redis://127.0.0.1:{redis}")).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
        list.lines().count() - 1
    };
    assert_eq!(clients(redis.port).await, 1);
    drop(first);
    while two.ask(1, &[rule(1, 1, 9)], TAKE, 1).await.is_err() {}
    assert_eq!(clients(redis.port).await, 1, "the same connection goes on");
}

#[tokio::test]
async fn a_reload_moves_to_other_servers() {
    let (old, new) = (redis(&[]), redis(&[]));
    let world = World::default();
    let shared = shared_in(&at(old.port), &world);
    let _task = running(&shared);
    shared.becomes(true).await;
    let rules = [rule(1, 3600, 1)];
    assert!(shared.ask(1, &rules, TAKE, 1).await.unwrap().refused.is_none());
    assert!(shared.ask(1, &rules, TAKE, 1).await.unwrap().refused.is_some());
    world.use_redis(Some(&servers(&at(new.port))));
    shared.becomes(false).await;
    shared.becomes(true).await;
    assert!(
        shared.ask(1, &rules, TAKE, 1).await.unwrap().refused.is_none(),
        "the other server knows nothing"
    );
    world.use_redis(None);
    shared.becomes(false).await;
    world.use_redis(Some(&servers(&at(old.port))));
    shared.becomes(true).await;
    assert!(shared.ask(1, &rules, TAKE, 1).await.unwrap().refused.is_some());
}

#[tokio::test]
async fn leases_take_what_fits_and_no_more() {
    let redis = redis(&[]);
    let (shared, _task) = gateway(&at(redis.port)).await;
    let rules = [rule(1, 86_400, 10), rule(1, 3600, 25)];
    let lease = |many, most| shared.lease(1, &rules, many, most);
    let (answer, granted) = lease(1, 8).await.unwrap();
    assert_eq!((answer.refused, granted), (None, 8));
    assert_eq!(lease(3, 8).await.unwrap().0.refused, Some(0), "less than what is asked for is nothing");
    assert_eq!(lease(1, 8).await.unwrap().1, 2, "what is left");
    assert_eq!(lease(1, 8).await.unwrap().0.refused, Some(0));
    // Two gateways with leases take as much as one.
    let (other, _second) = gateway(&at(redis.port)).await;
    let rules = [rule(1, 86_400, 1000)];
    let asked = (0..100).map(|n| if n % 2 == 0 { &shared } else { &other }.lease(2, &rules, 1, 30));
    let answers = futures_util::future::join_all(asked).await;
    let granted = answers.into_iter().map(Result::unwrap).filter(|(answer, _)| answer.refused.is_none());
    assert_eq!(granted.map(|(_, granted)| granted).sum::<u64>(), 1000);
}

#[tokio::test]
async fn late_answers_open_the_breaker() {
    // Connected as far as anybody knows, and nobody serves the queue.
    let mut config = at(1);
    config["timeout"] = json!("1ms");
    let world = World::default();
    let shared = shared_in(&config, &world);
    shared.set_up(true);
    for n in 1..=MAX_LATE {
        assert!(shared.is_up(), "{n}");
        assert_eq!(shared.ask(1, &[rule(1, 1, 1)], TAKE, 1).await, Err(Away));
    }
    assert!(!shared.is_up());
    assert_eq!(metric(&world, "ferrum_redis_breaker_opened_total", &[]), 1);
    assert_eq!(metric(&world, "ferrum_redis_commands_total", &["late"]), i64::try_from(MAX_LATE).unwrap());
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let shared = shared_in(&at(1), &World::default());
    shared.set_up(true);
    let told = (0..MAX_QUEUED + 10).filter(|_| shared.tell(1, &[rule(1, 1, 1)], TAKE, 1)).count();
    assert_eq!(told, MAX_QUEUED);
    assert_eq!(shared.ask(1, &[rule(1, 1, 1)], TAKE, 1).await, Err(Away));
}

#[tokio::test]
async fn passwords_and_databases() {
    let redis = redis(&["--requirepass", "open sesame"]);
    let mut config = at(redis.port);
    config["password"] = "open sesame".into();
    config["database"] = json!(3);
    let (shared, _task) = gateway(&config).await;
    assert!(shared.ask(1, &[rule(1, 1, 1)], TAKE, 1).await.is_ok());
    config["password"] = "wrong".into();
    assert!(fails(&config, &World::default()).await);
}

#[tokio::test]
async fn servers_over_tls_are_judged_by_their_roots() {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let [(certificate, key), (client, client_key)] = ["127.0.0.1", "edge"].map(|name| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        // Another name than its issuer has.
        leaf.distinguished_name.push(rcgen::DnType::CommonName, name);
        (leaf.signed_by(&key, &issuer).unwrap(), key)
    });
    let files = folder();
    let [cert, private, ca] =
        ["cert.pem", "key.pem", "ca.pem"].map(|name| files.join(name).display().to_string());
    std::fs::write(&cert, certificate.pem()).unwrap();
    std::fs::write(&private, key.serialize_pem()).unwrap();
    std::fs::write(&ca, root.pem()).unwrap();
    let port = free_port().to_string();
    let place = folder();
    let arguments = [
        "--port",
        "0",
        "--tls-port",
        &port,
        "--bind",
        "127.0.0.1",
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &private,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "yes",
        "--save",
        "",
        "--dir",
        &place.display().to_string(),
    ]
    .map(str::to_owned);
    let redis = start(place, port.parse().unwrap(), &arguments, READY);
    let machine = Machine::default();
    machine.files.put("ca.pem", &root.pem());
    machine.files.put("client.pem", &client.pem());
    machine.files.put("client.key", &client_key.serialize_pem());
    let url = format!("rediss://127.0.0.1:{}", redis.port);
    let mut config = json!({ "urls": [&url], "ca_path": "ca.pem", "timeout": "10s",
        "client_cert_path": "client.pem", "client_key_path": "client.key" });
    let shared = shared_in(&config, &machine.world());
    let _task = running(&shared);
    shared.becomes(true).await;
    assert!(shared.ask(1, &[rule(1, 1, 1)], TAKE, 1).await.is_ok());
    config.as_object_mut().unwrap().remove("ca_path");
    assert!(fails(&config, &machine.world()).await, "a certificate that nobody vouches for");
    let anonymous = json!({ "urls": [&url], "ca_path": "ca.pem", "timeout": "10s" });
    assert!(fails(&anonymous, &machine.world()).await, "the server asks for a certificate");
    config["ca_path"] = "none.pem".into();
    assert!(fails(&config, &machine.world()).await, "a file that is not there");
    drop(std::fs::remove_dir_all(files));
}

#[test]
fn keys_are_the_same_on_every_gateway() {
    let shared = shared_in(&at(1), &World::default());
    let mut hasher = shared.hasher();
    hasher.write(b"a caller");
    assert_eq!(hasher.finish(), 0x6bff_477c_7050_245f, "gateways of another version count with this one");
}
