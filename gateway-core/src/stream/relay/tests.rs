//! Bytes carried both ways, and how a session ends.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;

use super::*;

const NO_LIMIT: RelayTimeouts = RelayTimeouts { idle: Duration::ZERO, lifetime: Duration::ZERO };

/// The outer ends of a relay that runs in a task.
fn relayed(
    timeouts: RelayTimeouts,
) -> (DuplexStream, DuplexStream, tokio::task::JoinHandle<(RelayOutcome, Carried)>) {
    let (client, mut near) = duplex(64);
    let (target, mut far) = duplex(64);
    let task = tokio::spawn(async move {
        let mut carried = Carried::default();
        let end = relay(&mut near, &mut far, timeouts, &mut carried).await;
        (end, carried)
    });
    (client, target, task)
}

#[tokio::test]
async fn bytes_flow_both_ways_and_a_half_close_passes_through() {
    let (mut client, mut target, task) = relayed(NO_LIMIT);
    let writing = async {
        client.write_all(&[7; 1000]).await.unwrap();
        client.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let ((), read) = tokio::join!(writing, target.read_to_end(&mut got));
    assert_eq!(read.unwrap(), 1000);
    // The other direction is still open.
    target.write_all(b"answer").await.unwrap();
    target.shutdown().await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"answer");
    assert_eq!(task.await.unwrap(), (RelayOutcome::Closed, Carried { up: 1000, down: 6 }));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_relay_but_traffic_does_not() {
    let timeouts = RelayTimeouts { idle: Duration::from_secs(10), lifetime: Duration::ZERO };
    let (mut client, mut target, task) = relayed(timeouts);
    let begin = Instant::now();
    for _ in 0..4 {
        tokio::time::advance(Duration::from_secs(7)).await;
        client.write_all(b"x").await.unwrap();
        target.read_u8().await.unwrap();
    }
    let (end, _) = task.await.unwrap();
    assert_eq!(end, RelayOutcome::Idle);
    let lasted = begin.elapsed();
    // The last byte moved after 28 s.
    assert!(lasted >= Duration::from_secs(38) && lasted < Duration::from_secs(40), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lifetime_ends_a_busy_relay() {
    let timeouts = RelayTimeouts { idle: Duration::from_secs(10), lifetime: Duration::from_secs(60) };
    let (mut client, mut target, task) = relayed(timeouts);
    while !task.is_finished() {
        tokio::time::advance(Duration::from_secs(3)).await;
        if client.write_all(b"x").await.is_err() || target.read_u8().await.is_err() {
            break;
        }
    }
    assert_eq!(task.await.unwrap().0, RelayOutcome::Lifetime);
}

#[tokio::test]
async fn a_dead_end_is_named() {
    let (mut client, target, task) = relayed(NO_LIMIT);
    drop(target);
    // The relay learns of it when it writes.
    while client.write_all(b"x").await.is_ok() && !task.is_finished() {}
    assert_eq!(task.await.unwrap().0, RelayOutcome::TargetReset);
}
