//! Measures how soon simulated edges have what a control plane publishes: `cargo run --release -p ferrum-gateway-fleet --example storm
//! -- EDGES CHANGES_A_SECOND SECONDS DOCUMENTS`. Everything is real but the gateways: TLS, gRPC, deltas and hashes, in one process on
//! loopback.

#![allow(clippy::print_stdout, reason = "its figures are for whoever runs it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_fleet::{
    Acceptance, Answering, Authority, CertifiedEdge, DocumentKey, DocumentSet, EdgeCore, EdgeEffect,
    Findings, Hub, Link, Membership, NewIdentity, Refusal, Registrar, ServerCertificate, Welcome,
    client_config, clock, serve, server_config, signing_request,
};
use tokio::net::TcpListener;

/// Lets everybody in.
#[derive(Debug)]
struct Everybody;

impl Acceptance for Everybody {
    fn membership(&self, _: &str, _: &str) -> Membership {
        Membership::Enrolled
    }
}

impl Registrar for Everybody {
    fn enrol<'a>(&'a self, _: &'a str, _: &'a str) -> Answering<'a, NewIdentity> {
        Box::pin(async { Err(Refusal::Busy) })
    }

    fn renew<'a>(&'a self, _: &'a CertifiedEdge, _: &'a str) -> Answering<'a, NewIdentity> {
        Box::pin(async { Err(Refusal::Busy) })
    }

    fn welcome(&self, _: &CertifiedEdge) -> Result<(Welcome, Arc<str>), Refusal> {
        Ok((Welcome::default(), "all".into()))
    }
}

/// Applies whatever comes at once.
async fn edge(link: Link) -> Option<()> {
    let mut core = EdgeCore::new("storm", 1, Vec::new(), None);
    let (sender, mut receiver) = link.sync(&core.hello(clock())).await.ok()?;
    while let Ok(Some(message)) = receiver.next().await {
        let mut effects = core.receive(message);
        while !effects.is_empty() {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    EdgeEffect::Send(message) => drop(sender.send(&message)),
                    EdgeEffect::Apply { .. } => effects.extend(core.applied(Ok(Findings::default()))),
                    _ => {}
                }
            }
        }
    }
    Some(())
}

/// How far edges are: served the newest, and the oldest revision that any serves.
fn progress(hub: &Hub) -> (usize, u64) {
    hub.read(|core| {
        let served = core.edges().values().map(|edge| edge.served.as_ref().map_or(0, |at| at.revision));
        let newest = core.view("all").map_or(0, |view| view.position().revision);
        (served.clone().filter(|at| *at == newest).count(), served.min().unwrap_or(0))
    })
}

async fn until_all(hub: &Hub, edges: usize) -> Duration {
    let begun = Instant::now();
    while progress(hub).0 < edges {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    begun.elapsed()
}

fn document(n: u64, value: u64) -> (DocumentKey, Option<String>) {
    let port = value % 65_535 + 1;
    let text = format!(
        "{{\"id\":\"p{n}\",\"listen_path\":\"/p{n}\",\"backend_host\":\"10.0.0.7\",\"backend_port\":{port}}}"
    );
    (DocumentKey::new("proxies", format!("p{n}")), Some(text))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let number = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let (edges, rate, seconds, documents) = (number(0, 100), number(1, 100), number(2, 5), number(3, 1000));
    let (certificate, key) = Authority::generate("storm")?;
    let authority = Authority::from_pem(&certificate, &key, "storm")?;
    let tls = server_config(&authority, ServerCertificate::issue(&authority)?, Arc::new(Everybody))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let hub = Arc::new(Hub::default());
    tokio::spawn(serve(listener, tls, hub.clone(), Arc::new(Everybody), std::future::pending()));

    let (epoch, view): (Arc<str>, Arc<str>) = ("e".into(), "all".into());
    let mut set = DocumentSet::default();
    set.apply((0..documents).map(|n| document(n, n)));
    let mut revision = 1;
    hub.act(|core, now| core.advance(&view, &epoch, revision, set.clone(), now));
    let begun = Instant::now();
    for n in 0..edges {
        let (key, request) = signing_request()?;
        let issued = authority.issue_edge(&format!("e{n}"), "all", &request)?;
        let link = Link::connect(&address, client_config(&issued.certificate, &key, &certificate)?).await?;
        tokio::spawn(edge(link));
    }
    let edges = usize::try_from(edges)?;
    until_all(&hub, edges).await;
    println!("{edges} edges have {documents} documents after {:?}, one after the other", begun.elapsed());

    let mut single = Vec::new();
    for _ in 0..20 {
        revision += 1;
        set.apply([document(revision % documents, documents + revision)]);
        hub.act(|core, now| core.advance(&view, &epoch, revision, set.clone(), now));
        single.push(until_all(&hub, edges).await);
    }
    single.sort_unstable();
    println!("a change is served by all after {:?} (median), {:?} (slowest of 20)", single[10], single[19]);

    // How long ago was what the slowest edge serves the newest?
    let (mut published, mut worst) = (vec![(revision, Instant::now())], Duration::ZERO);
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate as f64));
    let mut next = begun;
    while begun.elapsed() < Duration::from_secs(seconds) {
        ticks.tick().await;
        revision += 1;
        set.apply([document(revision % documents, documents + revision)]);
        published.push((revision, Instant::now()));
        // As a control plane does.
        if Instant::now() >= next {
            hub.act(|core, now| core.advance(&view, &epoch, revision, set.clone(), now));
            next = Instant::now() + hub.pace();
            let oldest = progress(&hub).1;
            let from = published.partition_point(|(at, _)| *at <= oldest);
            worst = worst.max(published.get(from).map_or(Duration::ZERO, |(_, since)| since.elapsed()));
        }
    }
    hub.act(|core, now| core.advance(&view, &epoch, revision, set.clone(), now));
    let rest = until_all(&hub, edges).await;
    println!(
        "{rate} changes a second for {seconds} s: {} changes, no edge behind by more than {worst:?}, all equal after {rest:?}",
        published.len() - 1,
    );
    Ok(())
}
