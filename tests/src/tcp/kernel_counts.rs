//! The bytes of records are those that the kernel counted (`TCP_INFO`), however sessions end.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::stream::{LOOPBACK, at, free_ports, tcp_backend};

/// Sessions of each kind in a round.
const SESSIONS: usize = 40;
/// How many rounds run: one, or as many as this variable says. 42 are more than 10,000 sessions, and take some minutes.
const ROUNDS: &str = "FERRUM_KERNEL_ROUNDS";
/// Bytes after which the quota of a client ends its session.
const QUOTA: usize = 300_000;

/// How sessions end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    ClientFirst,
    TargetFirst,
    ClientReset,
    TargetReset,
    Idle,
    Quota,
}

const ENDS: [(End, &str); 6] = [
    (End::ClientFirst, "closed"),
    (End::TargetFirst, "closed"),
    (End::ClientReset, "client_reset"),
    (End::TargetReset, "target_reset"),
    (End::Idle, "idle"),
    (End::Quota, "quota_exceeded"),
];

/// Both ends of a session, which the gateway joins.
struct Ends {
    client: TcpStream,
    target: TcpStream,
}

/// Bytes that the kernel has received in order, by the address of the socket, of all sockets that have one of these ports at the other end.
fn received(peers: &[u16]) -> HashMap<String, u64> {
    let filter = peers.iter().map(|port| format!("dport = :{port}")).collect::<Vec<_>>().join(" or ");
    let output = Command::new("ss").args(["-tinHO", &filter]).output().expect("ss of iproute2");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let mut columns = line.split_whitespace();
        let is_ended = columns.next()? == "CLOSE-WAIT";
        let address = columns.nth(2)?.to_owned();
        let bytes: u64 = columns
            .find_map(|column| column.strip_prefix("bytes_received:"))
            .map_or(0, |n| n.parse().unwrap());
        // The kernel counts the end of the stream as one.
        Some((address, bytes - u64::from(is_ended)))
    };
    text.lines().filter_map(row).collect()
}

fn rounds() -> u8 {
    std::env::var(ROUNDS).map_or(1, |text| text.parse().expect("1 to 200"))
}

async fn open(round: u8, n: usize, port: u16, origin: &TcpListener) -> Ends {
    let socket = TcpSocket::new_v4().unwrap();
    // An address of its own for each, since quotas are by address.
    let address = Ipv4Addr::new(127, 0, 1 + round, u8::try_from(n + 1).unwrap());
    socket.bind(SocketAddr::new(IpAddr::V4(address), 0)).unwrap();
    let mut client = soon(socket.connect(at(port))).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (mut target, _) = soon(origin.accept()).await.unwrap();
    assert_eq!(soon(target.read_u8()).await.unwrap(), b'x');
    Ends { client, target }
}

/// Sends so many bytes each way, until all have arrived.
async fn exchange(Ends { client, target }: &mut Ends, up: usize, down: usize) {
    let ((mut client_in, mut client_out), (mut target_in, mut target_out)) = (client.split(), target.split());
    let (sent_up, sent_down) = (vec![1; up], vec![2; down]);
    let (mut got_up, mut got_down) = (vec![0; up], vec![0; down]);
    let all = futures_util::future::join4(
        client_out.write_all(&sent_up),
        target_out.write_all(&sent_down),
        target_in.read_exact(&mut got_up),
        client_in.read_exact(&mut got_down),
    );
    let (a, b, c, d) = soon(all).await;
    a.and(b).unwrap();
    c.and(d).unwrap();
    assert!(got_up == sent_up && got_down == sent_down, "other bytes arrived");
}

/// Sends until the gateway ends the session; returns how many bytes more arrived.
async fn exhaust(Ends { client, target }: &mut Ends) -> u64 {
    let sent = vec![1; QUOTA * 2];
    let mut got = Vec::new();
    // What was cut off does not look whole: both ends are reset.
    let all = futures_util::future::join(client.write_all(&sent), target.read_to_end(&mut got));
    let (_, read) = soon(all).await;
    let error = read.expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    got.len() as u64
}

async fn end(mut ends: Ends, how: End) {
    let Ends { client, target } = &mut ends;
    match how {
        End::ClientFirst => {
            client.shutdown().await.unwrap();
            assert_eq!(soon(target.read(&mut [0])).await.unwrap(), 0);
            target.shutdown().await.unwrap();
        }
        End::TargetFirst => {
            target.shutdown().await.unwrap();
            assert_eq!(soon(client.read(&mut [0])).await.unwrap(), 0);
            client.shutdown().await.unwrap();
        }
        End::ClientReset => client.set_zero_linger().unwrap(),
        End::TargetReset => target.set_zero_linger().unwrap(),
        // The gateway ends these.
        End::Idle | End::Quota => _ = soon(client.read(&mut [0])).await,
    }
}

#[tokio::test]
async fn records_have_the_kernels_counts() {
    let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = origin.local_addr().unwrap();
    let first = free_ports(3);
    let (port, with_quota, with_idle_timeout) = (first, first + 1, first + 2);
    let backend = tcp_backend(address);
    let folder = crate::support::tls::authority().folder().join("kernel-counts");
    let spec = format!(
        "proxies:
  - {{id: a, listen_port: {port}, {backend}}}
  - {{id: i, listen_port: {with_idle_timeout}, tcp_idle_timeout: 5s, {backend}}}
  - {{id: q, listen_port: {with_quota}, {backend}}}
plugin_configs:
  - id: quota
    plugin_name: traffic_quota
    proxy_id: q
    config: {{limit: {QUOTA}, limit_by: address, max_keys: 10000, path: {folder:?}}}
"
    );
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    let mut lengths = (1_usize..).map(|n| n.wrapping_mul(0x9E37_79B9) >> 7);
    for (round, (how, reason)) in (0..rounds()).flat_map(|round| ENDS.map(|end| (round, end))) {
        let through = match how {
            End::Quota => with_quota,
            End::Idle => with_idle_timeout,
            _ => port,
        };
        let mut sessions = Vec::new();
        for n in 0..SESSIONS {
            let mut session = open(round, n, through, &origin).await;
            // Some are long enough for splice(2).
            let most = if how == End::Quota {
                QUOTA / 4
            } else if n % 8 == 0 {
                1 << 20
            } else {
                50_000
            };
            let (up, down) = (lengths.next().unwrap() % most, lengths.next().unwrap() % most);
            exchange(&mut session, up, down).await;
            if how == End::Quota {
                // The kernel forgets what it counted of a connection that was reset.
                let arrived = 1 + up as u64 + exhaust(&mut session).await;
                let record = edge.session().await;
                let (all_up, all_down) = record.carried();
                assert_eq!((record.end(), all_down), (reason, down as u64));
                assert_eq!(all_up + all_down, QUOTA as u64, "to the last byte of the quota");
                assert!(arrived <= all_up, "{arrived} arrived of {all_up}");
                continue;
            }
            sessions.push(session);
        }
        // What clients received came from the gateway's port. What targets received came from any port of the gateway's.
        let peers: Vec<u16> = sessions.iter().map(|ends| ends.target.peer_addr().unwrap().port()).collect();
        let by_client = received(&[through]);
        let mut by_target = HashMap::new();
        for (n, peer) in peers.iter().enumerate() {
            // Targets share a port, so that each is found by its peer.
            by_target.insert(n, received(&[*peer]).get(&address.to_string()).copied());
        }
        let counted = sessions.iter().enumerate().map(|(n, ends)| {
            let client = ends.client.local_addr().unwrap();
            (client.ip().to_string(), (by_target[&n], by_client.get(&client.to_string()).copied()))
        });
        let counted: HashMap<String, _> = counted.collect();
        join_all(sessions.into_iter().map(|session| end(session, how))).await;
        for _ in 0..counted.len() {
            let record = edge.session().await;
            assert_eq!(record.end(), reason);
            let client = record.0["client.address"].as_str().unwrap();
            let (up, down) = counted[client];
            let (up, down) = (up.expect("of the target"), down.expect("of the client"));
            assert_eq!(record.carried(), (up, down), "{how:?}");
        }
    }
}
