//! The few messages of Kafka's protocol that a producer needs, in versions without tagged fields.

use std::collections::HashMap;
use std::time::Duration;

use gateway_telemetry::otlp::gzip;

/// A request: its key and version.
pub(super) type Api = (i16, i16);

pub(super) const PRODUCE: Api = (0, 7);
pub(super) const METADATA: Api = (3, 4);
pub(super) const SASL_HANDSHAKE: Api = (17, 1);
pub(super) const SASL_AUTHENTICATE: Api = (36, 0);

pub(super) const MESSAGE_TOO_LARGE: i16 = 10;
pub(super) const RECORD_LIST_TOO_LARGE: i16 = 18;
pub(super) const INVALID_RECORD: i16 = 87;

/// Errors that stay until somebody changes something.
const LASTING: [i16; 5] = [17, 29, 31, 35, 76];
/// Names of errors that operators meet.
const NAMES: &[(i16, &str)] = &[
    (-1, "UNKNOWN_SERVER_ERROR"),
    (2, "CORRUPT_MESSAGE"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION"),
    (5, "LEADER_NOT_AVAILABLE"),
    (6, "NOT_LEADER_OR_FOLLOWER"),
    (7, "REQUEST_TIMED_OUT"),
    (MESSAGE_TOO_LARGE, "MESSAGE_TOO_LARGE"),
    (13, "NETWORK_EXCEPTION"),
    (17, "INVALID_TOPIC_EXCEPTION"),
    (RECORD_LIST_TOO_LARGE, "RECORD_LIST_TOO_LARGE"),
    (19, "NOT_ENOUGH_REPLICAS"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    (29, "TOPIC_AUTHORIZATION_FAILED"),
    (31, "CLUSTER_AUTHORIZATION_FAILED"),
    (33, "UNSUPPORTED_SASL_MECHANISM"),
    (34, "ILLEGAL_SASL_STATE"),
    (35, "UNSUPPORTED_VERSION"),
    (56, "KAFKA_STORAGE_ERROR"),
    (58, "SASL_AUTHENTICATION_FAILED"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE"),
    (INVALID_RECORD, "INVALID_RECORD"),
    (89, "THROTTLING_QUOTA_EXCEEDED"),
];

/// Kafka's name of an error.
pub(super) fn error_name(error: i16) -> &'static str {
    NAMES.iter().find(|(code, _)| *code == error).map_or("an error", |(_, name)| name)
}

/// Whether trying again changes nothing.
pub(super) fn is_lasting(error: i16) -> bool {
    LASTING.contains(&error)
}

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Broker {
    pub(super) host: String,
    pub(super) port: u16,
}

/// A partition and the broker that leads it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) index: i32,
    pub(super) leader: i32,
}

/// What is known of the topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Topic {
    pub(super) error: i16,
    pub(super) partitions: Vec<Partition>,
}

/// A text with its length.
pub(super) fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap_or(0).min(i16::MAX as u16);
    [&length.to_be_bytes()[..], &text.as_bytes()[..usize::from(length)]].concat()
}

/// Bytes with their length.
pub(super) fn bytes(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// A request with length and head.
pub(super) fn frame((key, version): Api, id: i32, body: &[u8]) -> Vec<u8> {
    let client = text("ferrum-edge");
    let mut out = Vec::with_capacity(body.len() + client.len() + 12);
    out.extend_from_slice(&((8 + client.len() + body.len()) as u32).to_be_bytes());
    out.extend_from_slice(&key.to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&client);
    out.extend_from_slice(body);
    out
}

/// Asks for the partitions of a topic, which is not created where there is none.
pub(super) fn ask_metadata(topic: &str) -> Vec<u8> {
    [&1_i32.to_be_bytes()[..], &text(topic), &[0]].concat()
}

/// Has a batch written to a partition.
pub(super) fn ask_produce(
    topic: &str,
    partition: i32,
    acks: i16,
    timeout: Duration,
    batch: &[u8],
) -> Vec<u8> {
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    [
        // No transaction.
        &(-1_i16).to_be_bytes()[..],
        &acks.to_be_bytes(),
        &timeout.to_be_bytes(),
        &1_i32.to_be_bytes(),
        &text(topic),
        &1_i32.to_be_bytes(),
        &partition.to_be_bytes(),
        &bytes(batch),
    ]
    .concat()
}

/// A batch of records (magic 2): one for each line, written at this time in milliseconds.
pub(super) fn batch(lines: &[u8], now: i64, compressed: bool) -> Vec<u8> {
    let mut records = Vec::with_capacity(lines.len() + 64);
    let (mut count, mut record) = (0_i32, Vec::new());
    for line in lines.split(|byte| *byte == b'\n') {
        record.clear();
        // Attributes, the time beside the batch's, place in the batch, no key, the line, no headers.
        record.extend_from_slice(&[0, 0]);
        varint(&mut record, i64::from(count));
        varint(&mut record, -1);
        varint(&mut record, line.len() as i64);
        record.extend_from_slice(line);
        record.push(0);
        varint(&mut records, record.len() as i64);
        records.extend_from_slice(&record);
        count += 1;
    }
    let records = if compressed { gzip(&records) } else { records };
    let mut body = Vec::with_capacity(records.len() + 64);
    body.extend_from_slice(&i16::from(compressed).to_be_bytes());
    body.extend_from_slice(&(count - 1).to_be_bytes());
    body.extend_from_slice(&now.to_be_bytes());
    body.extend_from_slice(&now.to_be_bytes());
    // No producer that is told apart from others.
    body.extend_from_slice(&(-1_i64).to_be_bytes());
    body.extend_from_slice(&(-1_i16).to_be_bytes());
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.extend_from_slice(&count.to_be_bytes());
    body.extend_from_slice(&records);
    let sum = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(&body);
    let mut out = Vec::with_capacity(body.len() + 21);
    out.extend_from_slice(&0_i64.to_be_bytes());
    out.extend_from_slice(&((body.len() + 9) as u32).to_be_bytes());
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    out.push(2);
    out.extend_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&body);
    out
}

/// A number in zigzag, seven bits a byte.
fn varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7f {
        out.push((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads an answer from its beginning.
pub(super) struct WireReader<'a>(pub(super) &'a [u8]);

impl<'a> WireReader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn piece(&mut self, length: usize) -> Option<&'a [u8]> {
        let (piece, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(piece)
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.i32()?).ok()?;
        self.piece(length)
    }

    /// A text that may not be there.
    pub(super) fn nullable_text(&mut self) -> Option<Option<String>> {
        let length = self.i16()?;
        let Ok(length) = usize::try_from(length) else { return Some(None) };
        Some(Some(String::from_utf8_lossy(self.piece(length)?).into_owned()))
    }

    /// How many there are; each takes a byte at least.
    fn count(&mut self) -> Option<usize> {
        let count = self.i32()?;
        if count < 0 { Some(0) } else { usize::try_from(count).ok().filter(|count| *count <= self.0.len()) }
    }
}

/// The brokers of a cluster by number, and the topic that was asked for.
pub(super) fn read_metadata(answer: &[u8]) -> Option<(HashMap<i32, Broker>, Topic)> {
    let mut reader = WireReader(answer);
    let _throttled = reader.i32()?;
    let mut brokers = HashMap::new();
    for _ in 0..reader.count()? {
        let (id, host, port, _rack) =
            (reader.i32()?, reader.nullable_text()??, reader.i32()?, reader.nullable_text()?);
        brokers.insert(id, Broker { host, port: u16::try_from(port).ok()? });
    }
    let (_cluster, _controller) = (reader.nullable_text()?, reader.i32()?);
    if reader.count()? != 1 {
        return None;
    }
    let (error, _name, _internal) = (reader.i16()?, reader.nullable_text()?, reader.take::<1>()?);
    let mut partitions = Vec::new();
    for _ in 0..reader.count()? {
        let (_error, index, leader) = (reader.i16()?, reader.i32()?, reader.i32()?);
        // Replicas, and those in step.
        for _ in 0..2 {
            let count = reader.count()?;
            reader.piece(count.checked_mul(4)?)?;
        }
        partitions.push(Partition { index, leader });
    }
    Some((brokers, Topic { error, partitions }))
}

/// The error of the only partition that a batch was for; 0 is none.
pub(super) fn read_produce(answer: &[u8]) -> Option<i16> {
    let mut reader = WireReader(answer);
    if reader.count()? != 1 {
        return None;
    }
    reader.nullable_text()?;
    if reader.count()? != 1 {
        return None;
    }
    let _partition = reader.i32()?;
    reader.i16()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_zigzag() {
        for (value, expected) in
            [(0, &[0][..]), (-1, &[1]), (1, &[2]), (63, &[126]), (64, &[128, 1]), (-65, &[129, 1])]
        {
            let mut out = Vec::new();
            varint(&mut out, value);
            assert_eq!(out, expected, "{value}");
        }
    }

    #[test]
    fn answers_that_are_cut_off_are_none() {
        let answer = [
            &0_i32.to_be_bytes()[..],
            &1_i32.to_be_bytes(),
            &7_i32.to_be_bytes(),
            &text("b.test"),
            &9092_i32.to_be_bytes(),
            &(-1_i16).to_be_bytes(),
            &text("cluster"),
            &7_i32.to_be_bytes(),
            &1_i32.to_be_bytes(),
            &0_i16.to_be_bytes(),
            &text("t"),
            &[0],
            &1_i32.to_be_bytes(),
            &0_i16.to_be_bytes(),
            &3_i32.to_be_bytes(),
            &7_i32.to_be_bytes(),
            &1_i32.to_be_bytes(),
            &7_i32.to_be_bytes(),
            &0_i32.to_be_bytes(),
        ]
        .concat();
        let (brokers, topic) = read_metadata(&answer).unwrap();
        assert_eq!(brokers[&7], Broker { host: "b.test".to_owned(), port: 9092 });
        assert_eq!(topic, Topic { error: 0, partitions: vec![Partition { index: 3, leader: 7 }] });
        for length in 0..answer.len() {
            assert!(read_metadata(&answer[..length]).is_none(), "{length}");
        }
    }
}
