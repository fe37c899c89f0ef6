//! What runs on the Redis server, and how its answers are read.

use std::sync::LazyLock;

use bytes::Bytes;
use http::HeaderName;
use redis::{Script, Value};

use super::super::key::Variant;
use super::super::purge::Purge;

/// A place's state lasts a day longer than any response of it.
const STATE_MS: u64 = 8 * 24 * 3600 * 1000;

/// A response of a place, where it belongs to the place's state of now. Without a state nothing is known: Redis may have
/// evicted the one that an invalidation left.
pub(super) static FIND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local state = redis.call('GET', KEYS[2]) or ''
local known = redis.call('HMGET', KEYS[1], 'e', 'n', ARGV[1])
if state == '' or known[1] ~= state then return { state, '', false } end
return { state, known[2] or '', known[3] }
",
    )
});

/// Stores a response, unless the place was invalidated since it was asked for. A place without a state gets one, which
/// begins with `p` and has nothing to say to those that found none: other responses of the place were stored meanwhile.
pub(super) static PUT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&format!(
        r"
local state = redis.call('GET', KEYS[2]) or ''
local is_first = ARGV[2] == '' and string.sub(state, 1, 1) == 'p'
if ARGV[1] == '1' and ARGV[2] ~= state and not is_first then return 0 end
if state == '' then state = ARGV[8] end
redis.call('SET', KEYS[2], state, 'PX', {STATE_MS})
if redis.call('HGET', KEYS[1], 'e') ~= state or redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[7]) + 2 then
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'e', state, 'n', ARGV[3], ARGV[4], ARGV[5])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[6]) then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
return 1
",
    ))
});

/// Forgets a place.
pub(super) static INVALIDATE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&format!("redis.call('SET', KEYS[1], ARGV[1], 'PX', {STATE_MS}) return 1")));

/// The purges since the last known one, with one more where it is given.
pub(super) static PURGES: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local keep = tonumber(ARGV[5])
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then
  epoch = ARGV[1]
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'number', 0)
end
local number = tonumber(redis.call('HGET', KEYS[1], 'number') or '0')
if ARGV[4] ~= '' then
  number = number + 1
  redis.call('HSET', KEYS[1], 'number', number, 'p' .. number, ARGV[4])
  redis.call('HDEL', KEYS[1], 'p' .. (number - keep))
end
local from = 0
if ARGV[2] == epoch then from = tonumber(ARGV[3]) end
if from < number - keep then from = number - keep end
local answer = { epoch, number }
for n = from + 1, number do
  answer[#answer + 1] = n
  answer[#answer + 1] = redis.call('HGET', KEYS[1], 'p' .. n) or ''
end
return answer
",
    )
});

/// What was found of a place.
pub(super) struct RemoteEntry {
    /// The place's state.
    pub(super) place: Bytes,
    /// The names in `Vary`, each ended by a line feed.
    pub(super) names: Bytes,
    pub(super) value: Option<Bytes>,
}

/// Reads the answer of [`FIND`].
pub(super) fn found(answer: Value) -> Option<RemoteEntry> {
    let Value::Array(parts) = answer else { return None };
    let [place, names, value] = <[Value; 3]>::try_from(parts).ok()?;
    Some(RemoteEntry { place: bytes(place)?, names: bytes(names)?, value: bytes(value) })
}

fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        _ => None,
    }
}

/// The names of what a response was chosen by.
pub(super) fn names(variant: &Variant) -> String {
    variant.iter().map(|(name, _)| format!("{name}\n")).collect()
}

/// Reads [`names`].
pub(super) fn names_of(text: &[u8]) -> Option<Vec<HeaderName>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| HeaderName::from_bytes(line).ok()).collect()
}

/// What Redis says about purges.
pub(super) struct History {
    pub(super) epoch: u64,
    pub(super) number: u64,
    /// Number, id and purge.
    pub(super) purges: Vec<(u64, u64, Purge)>,
}

/// Reads the answer of [`PURGES`].
pub(super) fn history(answer: Value) -> Option<History> {
    let Value::Array(parts) = answer else { return None };
    let mut parts = parts.into_iter();
    let text = |value: Value| String::from_utf8(bytes(value)?.to_vec()).ok();
    let number = |value: Value| match value {
        Value::Int(number) => u64::try_from(number).ok(),
        _ => None,
    };
    let epoch = text(parts.next()?)?.parse().ok()?;
    let latest = number(parts.next()?)?;
    let mut purges = Vec::new();
    while let (Some(n), Some(written)) = (parts.next(), parts.next()) {
        // One that can't be read may be about anything.
        let (id, purge) =
            text(written).and_then(|text| Purge::of_written(&text)).unwrap_or_else(|| (0, Purge::of_all()));
        purges.push((number(n)?, id, purge));
    }
    Some(History { epoch, number: latest, purges })
}
