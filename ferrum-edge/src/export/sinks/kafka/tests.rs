//! The sender against a broker of a few lines, and by hand against a real one: see CONTRIBUTING.md.

use std::sync::Mutex as StdMutex;

use gateway_core::config::model::KafkaMechanism;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls, Client, Endpoint};
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::{Reach, Variables, blocking, files};
use http::{Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Answers requests, by key and body; `None` closes the connection.
type Answering = dyn Fn(i16, &[u8]) -> Option<Vec<u8>> + Send + Sync;

/// What the broker was asked: keys and bodies.
type BrokerRequests = Arc<StdMutex<Vec<(i16, Vec<u8>)>>>;

#[derive(Clone)]
struct Cluster {
    answer: Arc<Answering>,
    asked: BrokerRequests,
}

impl Calls for Cluster {
    fn client(&self, _endpoint: Endpoint) -> Result<Client, Problems> {
        Ok(Client::new(Arc::new(self.clone())))
    }
}

impl Caller for Cluster {
    fn send<'a>(&'a self, _request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(std::future::ready(Err(CallError::new(Cause::Internal))))
    }

    fn open(&self) -> Call<'_, Tunnel> {
        let (near, far) = tokio::io::duplex(1 << 20);
        tokio::spawn(self.clone().serve(far));
        Box::pin(std::future::ready(Ok(Box::new(near) as Tunnel)))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn max_response(&self) -> u64 {
        0
    }
}

impl Cluster {
    async fn serve(self, mut stream: tokio::io::DuplexStream) {
        while let Ok(length) = stream.read_u32().await {
            let mut request = vec![0; length as usize];
            stream.read_exact(&mut request).await.unwrap();
            let key = i16::from_be_bytes([request[0], request[1]]);
            let client = usize::from(u16::from_be_bytes([request[8], request[9]]));
            let (id, body) = (request[4..8].to_vec(), request[10 + client..].to_vec());
            self.asked.lock().unwrap().push((key, body.clone()));
            let Some(answer) = (self.answer)(key, &body) else { return };
            let answer = [&((answer.len() + 4) as u32).to_be_bytes()[..], &id, &answer].concat();
            stream.write_all(&answer).await.unwrap();
        }
    }
}

/// A topic of two partitions, both led by this broker.
fn metadata() -> Vec<u8> {
    let partition = |index: i32| {
        [&[0, 0][..], &index.to_be_bytes(), &1_i32.to_be_bytes(), &0_i32.to_be_bytes(), &0_i32.to_be_bytes()]
            .concat()
    };
    [
        &0_i32.to_be_bytes()[..],
        &1_i32.to_be_bytes(),
        &1_i32.to_be_bytes(),
        &wire::text("broker.test"),
        &9092_i32.to_be_bytes(),
        &(-1_i16).to_be_bytes(),
        &(-1_i16).to_be_bytes(),
        &1_i32.to_be_bytes(),
        &1_i32.to_be_bytes(),
        &[0, 0],
        &wire::text("edge"),
        &[0],
        &2_i32.to_be_bytes(),
        &partition(0),
        &partition(1),
    ]
    .concat()
}

fn produced(error: i16) -> Vec<u8> {
    [
        &1_i32.to_be_bytes()[..],
        &wire::text("edge"),
        &1_i32.to_be_bytes(),
        &0_i32.to_be_bytes(),
        &error.to_be_bytes(),
        &[0; 28],
    ]
    .concat()
}

fn rules() -> LogKafka {
    LogKafka {
        brokers: vec![(Arc::from("first.test"), 9092)],
        topic: "edge".into(),
        tls: false,
        ca_path: None,
        sasl: None,
        acks: KafkaAcks::All,
        gzip: false,
    }
}

fn sender(
    rules: &LogKafka,
    answer: impl Fn(i16, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> (KafkaSender, BrokerRequests) {
    let cluster = Cluster { answer: Arc::new(answer), asked: BrokerRequests::default() };
    let asked = cluster.asked.clone();
    let world = World::new(Reach {
        gateway: Arc::from("ferrum-edge"),
        calls: Arc::new(cluster),
        files: Arc::new(files::NoFiles),
        blocking: Arc::new(blocking::Inline),
        meters: Meters::default(),
        variables: Variables::default(),
    });
    (KafkaSender::new(rules, &world).unwrap(), asked)
}

fn chunk(lines: &str) -> Chunk {
    Chunk { bytes: lines.as_bytes().to_vec(), items: lines.lines().count() }
}

/// Partition and lines of a request to produce.
fn lines(body: &[u8]) -> (i32, Vec<String>) {
    let mut at = 2 + 2 + 4 + 4 + 2 + "edge".len() + 4;
    let mut next = |length: usize| {
        at += length;
        &body[at - length..at]
    };
    let partition = i32::from_be_bytes(next(4).try_into().unwrap());
    let size = u32::from_be_bytes(next(4).try_into().unwrap()) as usize;
    let batch = next(size);
    assert_eq!(
        u32::from_be_bytes(batch[8..12].try_into().unwrap()) as usize,
        size - 12,
        "the batch's length"
    );
    let sum = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(&batch[21..]);
    assert_eq!((batch[16], batch[17..21].to_vec()), (2, sum.to_be_bytes().to_vec()));
    let count = i32::from_be_bytes(batch[57..61].try_into().unwrap());
    let (mut rest, mut found) = (&batch[61..], Vec::new());
    for n in 0..count {
        // Short lines: every number is one byte.
        let length = usize::from(rest[0] / 2);
        let record = &rest[1..=length];
        assert_eq!((record[2], record[3]), (n as u8 * 2, 1));
        found.push(String::from_utf8(record[5..5 + usize::from(record[4] / 2)].to_vec()).unwrap());
        rest = &rest[length + 1..];
    }
    assert!(rest.is_empty());
    (partition, found)
}

fn answers(key: i16, error: i16) -> Option<Vec<u8>> {
    Some(if key == wire::METADATA.0 { metadata() } else { produced(error) })
}

#[tokio::test]
async fn lines_become_records_of_the_partitions_in_turn() {
    let (sender, asked) = sender(&rules(), |key, _| answers(key, 0));
    for lines in ["a\nb", "c", "d"] {
        assert_eq!(sender.deliver(&chunk(lines)).await, Ok(Delivered::default()));
    }
    let asked = asked.lock().unwrap();
    assert_eq!(asked.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [3, 0, 0, 0]);
    let sent: Vec<_> = asked[1..].iter().map(|(_, body)| lines(body)).collect();
    assert_eq!(sent[0].1, ["a", "b"]);
    assert_eq!((&sent[1].1, &sent[2].1), (&vec!["c".to_owned()], &vec!["d".to_owned()]));
    assert_eq!((sent[0].0 + sent[1].0, sent[0].0), (1, sent[2].0));
    // All replicas are asked for.
    assert_eq!(asked[1].1[2..4], (-1_i16).to_be_bytes());
}

#[tokio::test]
async fn what_the_broker_says_decides() {
    for (error, expected) in [
        (10, Ok(3)),
        (18, Ok(3)),
        (87, Ok(3)),
        (6, Err(true)),
        (7, Err(true)),
        (20, Err(true)),
        (29, Err(false)),
        (17, Err(false)),
    ] {
        let (sender, _) = sender(&rules(), move |key, _| answers(key, error));
        let got = sender.deliver(&chunk("a\nb\nc")).await;
        let got = got.map(|delivered| delivered.refused).map_err(|failed| failed.may_pass);
        assert_eq!(got, expected, "{error}");
    }
}

#[tokio::test]
async fn after_a_failure_it_begins_with_what_the_cluster_says_then() {
    let turn = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (sender, asked) = sender(&rules(), move |key, _| match key {
        3 => answers(key, 0),
        // The first closes, the second is not the leader any more, the third is cut off.
        _ => match turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => None,
            1 => Some(produced(6)),
            2 => Some(produced(0)[..5].to_vec()),
            _ => Some(produced(0)),
        },
    });
    for _ in 0..3 {
        assert!(sender.deliver(&chunk("a")).await.unwrap_err().may_pass);
    }
    assert_eq!(sender.deliver(&chunk("a")).await, Ok(Delivered::default()));
    let keys: Vec<i16> = asked.lock().unwrap().iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [3, 0, 3, 0, 3, 0, 3, 0]);
}

#[tokio::test]
async fn the_password_goes_over_once_a_connection() {
    let with = |mechanism| LogKafka { sasl: Some((mechanism, "me".into(), "secret".into())), ..rules() };
    let answer = |key: i16, _: &[u8]| match key {
        17 => Some([&[0, 0][..], &0_i32.to_be_bytes()].concat()),
        36 => Some([&[0, 0][..], &(-1_i16).to_be_bytes(), &0_i32.to_be_bytes()].concat()),
        key => answers(key, 0),
    };
    let (plain, asked) = sender(&with(KafkaMechanism::Plain), answer);
    assert_eq!(plain.deliver(&chunk("a")).await, Ok(Delivered::default()));
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked[0], (17, wire::text("PLAIN")));
    assert_eq!(asked[1], (36, wire::bytes(b"\0me\0secret")));
    // A broker that does not know the password is not taken for one.
    let (scram, _) = sender(&with(KafkaMechanism::ScramSha256), answer);
    assert!(scram.deliver(&chunk("a")).await.unwrap_err().message.contains("challenge"));
    assert!(!format!("{:?}", with(KafkaMechanism::Plain)).contains("secret"));
}

#[tokio::test]
async fn a_batch_that_is_too_large_for_the_topic_is_sent_in_parts() {
    // Takes requests without the long record and with two records at most.
    let (sender, asked) = sender(&rules(), |key, body| {
        if key == 3 {
            return Some(metadata());
        }
        let text = String::from_utf8_lossy(body);
        let is_too_large = text.contains("long") || text.matches("short").count() > 2;
        Some(produced(if is_too_large { wire::MESSAGE_TOO_LARGE } else { 0 }))
    });
    let lines = "short1\nshort2\nshort3\nlong\nshort4\nshort5\nshort6";
    let delivered = sender.deliver(&chunk(lines)).await.unwrap();
    assert_eq!(delivered.refused, 1, "{delivered:?}");
    assert!(delivered.why.contains("MESSAGE_TOO_LARGE"), "{delivered:?}");
    let asked = asked.lock().unwrap();
    let taken = asked
        .iter()
        .map(|(_, body)| String::from_utf8_lossy(body).into_owned())
        .filter(|text| !text.contains("long") && (1..=2).contains(&text.matches("short").count()));
    let taken: String = taken.collect();
    for n in 1..=6 {
        assert_eq!(taken.matches(&format!("short{n}")).count(), 1, "{n}");
    }
}

#[tokio::test]
async fn records_that_are_invalid_are_not_sent_again() {
    let (sender, asked) = sender(&rules(), |key, _| answers(key, wire::INVALID_RECORD));
    let delivered = sender.deliver(&chunk("a\nb\nc\nd")).await.unwrap();
    assert_eq!(delivered.refused, 4, "{delivered:?}");
    assert_eq!(asked.lock().unwrap().iter().filter(|(key, _)| *key == 0).count(), 1);
}
