//! A gateway that is killed while it writes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use ferrum_edge::store::{Engine, Location, ObjectKind, Store};

use crate::store::place::{Place, all, ann, options, put};

/// Set for the process that is to be killed: the address of the database.
const VICTIM: &str = "FERRUM_TEST_VICTIM";
const BATCH: u64 = 400;

/// The test that is this process's second life; does nothing in its first.
#[tokio::test]
async fn victim() {
    let Ok(url) = std::env::var(VICTIM) else { return };
    let store = Store::open(Location::parse(Some(&url), None).unwrap(), options());
    loop {
        let mut change = store.begin(ann()).await.unwrap();
        let next = change.base() + 1;
        let steps = (0..BATCH).map(|n| put(ObjectKind::Proxies, &n.to_string(), next.to_string()));
        let added = put(ObjectKind::Consumers, &format!("{next:08}"), "{}");
        change.put(steps.chain([added]).collect()).await.unwrap();
        eprintln!("acknowledged {}", change.commit("").await.unwrap());
    }
}

pub(crate) async fn a_killed_writer_leaves_whole_batches(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    for round in 1..=5 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::crash::victim", "--nocapture"])
            .env(VICTIM, &place.url)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(victim.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut acknowledged =
            said.filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<u64>().ok());
        let mut last = acknowledged.by_ref().nth(round).unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        last = acknowledged.last().unwrap_or(last);
        // The lock of the dead is gone, and what it had acknowledged is there.
        let change = store.begin(ann()).await.unwrap();
        let revision = change.base();
        assert!(revision == last || revision == last + 1, "{revision} after {last}");
        change.rollback().await;
        let objects = all(&store).await;
        let (proxies, consumers): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|it| it.kind == ObjectKind::Proxies);
        assert_eq!((proxies.len() as u64, consumers.len() as u64), (BATCH, revision));
        assert!(proxies.iter().all(|it| it.document == revision.to_string() && it.revision == revision));
        assert_eq!(store.revisions(None, 1000).await.unwrap().len() as u64, revision);
    }
}
