//! Two gateways in one process, with a link between them.

use super::*;

fn at() -> SocketAddr {
    "127.0.0.1:4433".parse().unwrap()
}

fn packet(client: u16, bytes: &[u8]) -> Forwarded {
    let client = SocketAddr::from(([192, 0, 2, 1], client));
    Forwarded {
        listener: at(),
        place: 0,
        client,
        local: None,
        ecn: None,
        stride: bytes.len(),
        bytes: bytes.into(),
    }
}

fn session(client: u16) -> SessionAddress {
    packet(client, b"").session()
}

/// A gateway that reads its sockets, and its successor.
fn pair() -> (Arc<DatagramHandover>, Successor, Arc<DatagramHandover>) {
    let old = Arc::new(DatagramHandover::default());
    let (successor, end) = Successor::new(old.clone()).unwrap();
    (old, successor, Arc::new(DatagramHandover::after(end, [at()]).unwrap()))
}

/// A port with these sessions.
async fn answer(port: &mut mpsc::Receiver<Handed>, clients: &[u16]) {
    match port.recv().await {
        Some(Handed::Paused(answer)) => answer.send(clients.iter().map(|it| session(*it)).collect()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sessions_stay_where_they_are_and_one_reads_at_a_time() {
    let (old, mut successor, new) = pair();
    let (hand, mut old_port) = mpsc::channel(8);
    let (old_gate, _) = old.add_port(at(), hand);
    let (hand, mut new_port) = mpsc::channel(8);
    let (new_gate, place) = new.add_port(at(), hand);
    assert_eq!((old_gate.is_open(), new_gate.is_open(), place), (true, false, 0));

    let taking = tokio::task::spawn_blocking({
        let new = new.clone();
        move || new.take_over()
    });
    assert!(successor.serves().await);
    assert!(!old_gate.is_open() && !new_gate.is_open());
    let handing = tokio::spawn(successor.hand_over(|| true));
    answer(&mut old_port, &[1, 2]).await;
    taking.await.unwrap().unwrap();
    new_gate.opens().await;
    assert!(!old_gate.is_open(), "one reads at a time");

    let following = tokio::spawn({
        let new = new.clone();
        async move { new.follow().await }
    });
    assert!(new.forward_session(&session(2), || packet(2, b"hi")));
    assert!(!new.forward_session(&session(3), || packet(3, b"hi")), "a new one");
    match old_port.recv().await {
        Some(Handed::Datagram(got)) => assert_eq!((got.session(), &*got.bytes), (session(2), &b"hi"[..])),
        other => panic!("{other:?}"),
    }
    // A datagram of an ended session comes back. From then on, its client belongs to the successor.
    assert!(old.bounce(packet(2, b"late")).is_none());
    assert!(matches!(new_port.recv().await, Some(Handed::Datagram(got)) if &*got.bytes == b"late"));
    assert!(!new.forward_session(&session(2), || packet(2, b"hi")));

    // When the successor has ended, the predecessor reads again.
    following.abort();
    drop(following.await);
    drop(new);
    handing.await.unwrap();
    old_gate.opens().await;
    assert!(matches!(old_port.recv().await, Some(Handed::Resumed)));
}

#[tokio::test]
async fn a_successor_that_gives_up_changes_nothing() {
    let (old, mut successor, new) = pair();
    let (hand, _port) = mpsc::channel(8);
    let (gate, _) = old.add_port(at(), hand);
    drop(new);
    assert!(!successor.serves().await);
    assert!(gate.is_open());
}

#[tokio::test]
async fn a_gateway_that_has_ended_is_not_waited_for() {
    let (old, successor, new) = pair();
    let (hand, _port) = mpsc::channel(8);
    let (gate, _) = new.add_port(at(), hand);
    drop((old, successor));
    assert!(new.take_over().is_err());
    gate.opens().await;
    assert!(!new.forward_of_generation(|| packet(1, b"x")), "nobody is there");
}

#[tokio::test]
async fn handshakes_under_way_and_other_generations_are_forwarded() {
    let (old, mut successor, new) = pair();
    let (way, mut arrived) = mpsc::channel(8);
    let recent: Box<[_]> = [Mutex::new(Recent::default())].into();
    let ids = Ids::new(0);
    let hello = [&[0xc0, 0, 0, 0, 1, 20][..], &[9; 20]].concat();
    let first = packet(7, &hello);
    let Owner::Opening(opening) = ids.owner(first.client, &first.bytes) else { panic!("an opening") };
    recent[0].lock().unwrap().note(opening, Instant::now());
    old.add_quic(at(), Arc::new(QuicPlaces { ways: [way].into(), recent }));
    let taking = tokio::task::spawn_blocking({
        let new = new.clone();
        move || new.take_over()
    });
    assert!(successor.serves().await);
    let handing = tokio::spawn(successor.hand_over(|| true));
    taking.await.unwrap().unwrap();
    let following = tokio::spawn({
        let new = new.clone();
        async move { new.follow().await }
    });
    assert!(new.forward_opening(opening, || first.clone()));
    assert_eq!(arrived.recv().await.unwrap().bytes, first.bytes);
    let Owner::Opening(other) = ids.owner(packet(8, b"").client, &hello) else { panic!("an opening") };
    assert!(!new.forward_opening(other, || packet(8, &hello)));
    // Both gateways have the generation of this process. The ID identifies the socket.
    let id = quinn_proto::ConnectionIdGenerator::generate_cid(&mut Ids::new(0));
    let short = [&[0x40][..], &id].concat();
    assert!(new.forward_of_generation(|| packet(9, &short)));
    assert_eq!(*arrived.recv().await.unwrap().bytes, *short);
    following.abort();
    drop(following.await);
    drop(new);
    handing.await.unwrap();
}
