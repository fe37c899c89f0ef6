//! An upstream.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::backend::{self, Tls};
use super::known::Group;
use super::{Notes, ObjectPlace, words};
use crate::condition::Text;
use crate::condition::text::WAYS_TO_MATCH;
use crate::file;
use crate::model::{
    ActiveHealth, Affinity, Algorithm, CookieAttributes, HashOn, PassiveHealth, Probe, SameSite, Sharing,
    TargetRules, Upstream, service_name, socket_path,
};
use crate::problem::{Problems, ValueProblem};

/// Tags of one target, and characters of each.
const MAX_TAGS: usize = 50;

/// Resolves an upstream.
///
/// # Errors
/// Every problem in it.
pub fn upstream(written: &file::Upstream, place: ObjectPlace<'_>) -> Result<Group, Problems> {
    let mut notes = Notes::new(place.at);
    let id = words::id(&mut notes, written.id.as_deref());
    let targets = targets(&mut notes, &written.targets);
    let is_found = targets.iter().any(|target| service_name(&target.host).is_some());
    let hash_on = hash_on(&mut notes, written);
    let affinity = affinity(&mut notes, written, &hash_on);
    let sharing = sharing(&mut notes, written);
    let checks = written.health_checks.as_ref();
    let active_health =
        checks.and_then(|c| c.active.as_ref()).and_then(|active| self::active(&mut notes, active));
    let passive_health = match checks.and_then(|c| c.passive.as_ref()) {
        Some(written) => passive(written),
        None => (targets.len() > 1 || is_found).then(implied),
    };
    let tls = Tls::of_upstream(written);
    let tls = tls.is_given().then(|| backend::tls(&mut notes, &tls, place.folder)).flatten();
    let sockets = backend::sockets::of_upstream(&mut notes, written);
    let (Some(id), true) = (id, notes.problems.is_empty()) else {
        return Err(notes.problems);
    };
    let upstream = Upstream {
        id,
        name: words::label(written.name.as_ref()),
        targets: targets.into_iter().map(Arc::new).collect(),
        algorithm: algorithm(written.algorithm, is_found),
        hash_on,
        affinity: affinity.map(Box::new),
        sharing: sharing.map(Box::new),
        active_health: active_health.map(Box::new),
        passive_health: passive_health.map(Box::new),
    };
    Ok(Group { upstream: Arc::new(upstream), tls, sockets: sockets.map(Arc::new) })
}

fn targets(notes: &mut Notes<'_>, written: &[file::Target]) -> Vec<TargetRules> {
    if written.is_empty() {
        notes.add("targets", "there are none").remedy =
            Some("write at least one: `{host: …, port: …}`".to_owned());
    }
    let mut targets: Vec<TargetRules> = Vec::with_capacity(written.len());
    for (n, target) in written.iter().enumerate() {
        let at = |key: &str| format!("targets[{n}].{key}");
        let host = notes.value(&at("host"), words::target_place(&target.host));
        let path = target.path.as_deref().and_then(|path| notes.value(&at("path"), words::base_path(path)));
        if target.tags.len() > MAX_TAGS {
            notes.add(&at("tags"), format!("there are more than {MAX_TAGS}"));
        }
        let Some(host) = host else {
            continue;
        };
        let Some(port) = notes.value(&at("port"), words::target_port(&host, target.port)) else {
            continue;
        };
        if let Some(first) = targets.iter().position(|t| t.host == host && t.port == port) {
            notes
                .add(
                    &format!("targets[{n}]"),
                    format!("{} is a duplicate of targets[{first}]", shown(&host, port)),
                )
                .remedy = Some("give one of them more `weight` instead".to_owned());
        }
        targets.push(TargetRules {
            host,
            port,
            weight: target.weight.map_or(1, |weight| u16::try_from(weight).unwrap_or(u16::MAX)),
            priority: target.priority.unwrap_or(0),
            max_requests: target.max_requests.and_then(NonZeroU32::new),
            max_connections: target.max_connections.and_then(NonZeroU32::new),
            path: path.flatten(),
            tags: target.tags.clone(),
        });
    }
    if !targets.is_empty() && targets.iter().all(|target| target.weight == 0) {
        notes.add("targets", "every target has weight 0, so none gets new clients").remedy =
            Some("give at least one of them a `weight` of 1 or more".to_owned());
    }
    targets
}

fn shown(host: &str, port: u16) -> String {
    if socket_path(host).is_some() || service_name(host).is_some() {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    }
}

fn algorithm(written: Option<file::Algorithm>, is_found: bool) -> Algorithm {
    // Weights of SRV records are to be obeyed (RFC 2782).
    let usual = if is_found { file::Algorithm::WeightedRoundRobin } else { file::Algorithm::RoundRobin };
    match written.unwrap_or(usual) {
        file::Algorithm::RoundRobin => Algorithm::RoundRobin,
        file::Algorithm::WeightedRoundRobin => Algorithm::WeightedRoundRobin,
        file::Algorithm::LeastConnections => Algorithm::LeastConnections,
        file::Algorithm::LeastLatency => Algorithm::LeastLatency,
        file::Algorithm::ConsistentHashing => Algorithm::ConsistentHashing,
        file::Algorithm::Maglev => Algorithm::Maglev,
        file::Algorithm::Random => Algorithm::Random,
        file::Algorithm::PowerOfTwo => Algorithm::PowerOfTwo,
    }
}

/// The name of the algorithm, if it picks by a hash.
fn hashing(written: &file::Upstream) -> Option<&'static str> {
    match written.algorithm? {
        file::Algorithm::ConsistentHashing => Some("consistent_hashing"),
        file::Algorithm::Maglev => Some("maglev"),
        _ => None,
    }
}

fn hash_on(notes: &mut Notes<'_>, written: &file::Upstream) -> HashOn {
    let Some(text) = written.hash_on.as_deref() else {
        return HashOn::Ip;
    };
    if hashing(written).is_none() {
        notes.add("hash_on", "only `consistent_hashing` and `maglev` hash").remedy =
            Some("write `algorithm: consistent_hashing`, or remove it".to_owned());
    }
    notes.value("hash_on", hashed(text)).unwrap_or_default()
}

fn hashed(text: &str) -> Result<HashOn, ValueProblem> {
    let bad = || {
        ValueProblem::new(format!("`{text}` can't be hashed"))
            .remedy("`ip`, `header:<name>` or `cookie:<name>`")
    };
    match text.split_once(':') {
        None if text == "ip" => Ok(HashOn::Ip),
        Some(("header", name)) => name.trim().parse().map(HashOn::Header).map_err(|_| bad()),
        Some(("cookie", name)) if is_token(name.trim()) => Ok(HashOn::Cookie(Arc::from(name.trim()))),
        _ => Err(bad()),
    }
}

/// RFC 9110 §5.6.2; a cookie's name has the same characters as a header's.
fn is_token(name: &str) -> bool {
    http::HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// The cookie that keeps a client at its target, in either form.
fn affinity(notes: &mut Notes<'_>, written: &file::Upstream, hash_on: &HashOn) -> Option<Affinity> {
    const HASHED: &str = "hash_on_cookie_config";
    if let Some(sticky) = &written.sticky {
        if let Some(algorithm) = hashing(written) {
            notes.add("sticky", format!("`{algorithm}` chooses the target by its key")).remedy =
                Some("remove one of the two; `hash_on_cookie_config` gives clients a cookie".to_owned());
        }
        if !is_token(&sticky.cookie) {
            notes.add("sticky.cookie", format!("`{}` is not a valid cookie name", sticky.cookie));
        }
        let attributes = cookie(notes, &sticky.cookie_config, "sticky.cookie_config");
        return Some(Affinity { cookie: Arc::from(&*sticky.cookie), names_target: true, attributes });
    }
    let config = written.hash_on_cookie_config.as_ref()?;
    let HashOn::Cookie(name) = hash_on else {
        notes.add(HASHED, "no cookie is hashed").remedy =
            Some("write `hash_on: cookie:<name>`, or remove it".to_owned());
        return None;
    };
    let attributes = cookie(notes, config, HASHED);
    Some(Affinity { cookie: name.clone(), names_target: false, attributes })
}

/// `None` when nothing of it is written.
fn sharing(notes: &mut Notes<'_>, written: &file::Upstream) -> Option<Sharing> {
    let slow_start = words::seconds(written.slow_start, 0);
    if let Some(algorithm) = hashing(written).filter(|_| !slow_start.is_zero()) {
        notes.add("slow_start", format!("`{algorithm}` gives each key its target at once")).remedy =
            Some("remove it, or choose another `algorithm`".to_owned());
    }
    let is_limited =
        |target: &file::Target| target.max_requests.is_some() || target.max_connections.is_some();
    if written.queue.is_some() && !written.targets.iter().any(is_limited) {
        notes.add("queue", "no target has a limit to wait for").remedy =
            Some("write `max_requests` or `max_connections` at the targets".to_owned());
    }
    let sharing = Sharing {
        slow_start,
        panic_threshold_percent: written.panic_threshold_percent.unwrap_or(0),
        max_waiting: written.queue.as_ref().map_or(0, |queue| queue.max_waiting),
        wait: words::millis(written.queue.as_ref().and_then(|queue| queue.timeout), Duration::from_secs(1)),
    };
    let is_default = slow_start.is_zero() && sharing.panic_threshold_percent == 0 && sharing.max_waiting == 0;
    (!is_default).then_some(sharing)
}

fn cookie(notes: &mut Notes<'_>, written: &file::CookieConfig, at: &str) -> CookieAttributes {
    let secure = written.secure;
    if written.same_site == Some(file::SameSite::None) && secure == Some(false) {
        notes
            .add(&format!("{at}.same_site"), "browsers drop a cookie with `None` that is not `secure`")
            .remedy = Some("write `secure: true`".to_owned());
    }
    let path = written.path.as_deref().unwrap_or("/");
    for (key, text) in [("path", Some(path)), ("domain", written.domain.as_deref())] {
        if text.is_some_and(|text| text.contains(|c: char| c == ';' || c.is_control() || !c.is_ascii())) {
            notes.add(&format!("{at}.{key}"), "this can't stand in a cookie").remedy =
                Some("ASCII without `;`".to_owned());
        }
    }
    CookieAttributes {
        path: Arc::from(path),
        ttl: words::seconds(written.ttl, 3600),
        domain: words::label(written.domain.as_ref()),
        http_only: written.http_only.unwrap_or(true),
        secure,
        same_site: written.same_site.map(|same_site| match same_site {
            file::SameSite::Strict => SameSite::Strict,
            file::SameSite::Lax => SameSite::Lax,
            file::SameSite::None => SameSite::None,
        }),
    }
}

fn active(notes: &mut Notes<'_>, written: &file::ActiveHealth) -> Option<ActiveHealth> {
    let tls = written.use_tls.unwrap_or(false);
    of_another_probe(notes, written);
    let probe = match written.probe_type.unwrap_or(file::ProbeType::Http) {
        file::ProbeType::Http => {
            let path = probe_path(notes, written.http_path.as_deref().unwrap_or("/health"));
            let healthy_status_codes = written.healthy_status_codes.clone().unwrap_or_else(|| vec![200, 302]);
            Probe::Http { path, healthy_status_codes, tls }
        }
        file::ProbeType::FastCgi => {
            let path = probe_path(notes, written.http_path.as_deref().unwrap_or("/ping"));
            let healthy_status_codes = written.healthy_status_codes.clone().unwrap_or_else(|| vec![200]);
            Probe::FastCgi { path, healthy_status_codes }
        }
        file::ProbeType::Tcp => {
            if written.send.is_some() && written.expect.is_none() {
                let message =
                    "has no effect without `expect`: the probe is good as soon as the connection is made";
                notes.add("health_checks.active.send", message).remedy =
                    Some("say what the target answers with `expect`, or remove it".to_owned());
            }
            let send = written.send.as_deref().unwrap_or("").as_bytes().into();
            Probe::Tcp { tls, send, expect: expected(notes, written) }
        }
        file::ProbeType::Udp => {
            Probe::Udp { payload: payload(notes, written)?, expect: expected(notes, written) }
        }
        file::ProbeType::Postgres => Probe::Postgres,
        file::ProbeType::Mysql => Probe::Mysql,
        file::ProbeType::Redis => Probe::Redis { tls },
        file::ProbeType::Grpc => {
            Probe::Grpc { service: Arc::from(written.grpc_service_name.as_deref().unwrap_or("")), tls }
        }
    };
    Some(ActiveHealth {
        probe,
        interval: words::seconds(written.interval, 10),
        timeout: words::millis(written.timeout, Duration::from_secs(5)),
        healthy_threshold: written.healthy_threshold.unwrap_or(3),
        unhealthy_threshold: written.unhealthy_threshold.unwrap_or(3),
    })
}

/// What `udp` sends.
fn payload(notes: &mut Notes<'_>, written: &file::ActiveHealth) -> Option<Vec<u8>> {
    const AT: &str = "health_checks.active.udp_probe_payload";
    match (&written.udp_probe_payload, &written.send) {
        (Some(_), Some(_)) => {
            notes.add(AT, "`send` says already what to send").remedy = Some("remove one of them".to_owned());
            None
        }
        (Some(digits), None) => notes.value(AT, hex(digits)),
        (None, text) => Some(text.as_deref().unwrap_or("").into()),
    }
}

/// What the answer to `tcp` and `udp` has to be, if anything is asked of it.
fn expected(notes: &mut Notes<'_>, written: &file::ActiveHealth) -> Option<Text> {
    const AT: &str = "health_checks.active.expect";
    match Text::compile(written.expect.as_ref()?) {
        Ok(text) if text.fits(None) => {
            notes.add(AT, "no answer at all would be good").remedy = Some(WAYS_TO_MATCH.to_owned());
            None
        }
        Ok(text) => Some(text),
        Err(error) => {
            let dot = if error.key().is_empty() { "" } else { "." };
            notes.add(&format!("{AT}{dot}{}", error.key()), &error).remedy = Some(error.remedy().to_owned());
            None
        }
    }
}

fn probe_path(notes: &mut Notes<'_>, path: &str) -> Arc<str> {
    if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || !c.is_ascii()) {
        notes.add("health_checks.active.http_path", format!("`{path}` can't be asked for")).remedy =
            Some("a path that begins with `/`, in ASCII".to_owned());
    }
    Arc::from(path)
}

/// Settings that a probe of this type does nothing with.
fn of_another_probe(notes: &mut Notes<'_>, written: &file::ActiveHealth) {
    use file::ProbeType::{FastCgi, Grpc, Http, Redis, Tcp, Udp};
    let probe = written.probe_type.unwrap_or(Http);
    let keys: [(&str, bool, &[file::ProbeType]); 7] = [
        ("http_path", written.http_path.is_some(), &[Http, FastCgi]),
        ("healthy_status_codes", written.healthy_status_codes.is_some(), &[Http, FastCgi]),
        ("use_tls", written.use_tls == Some(true), &[Http, Grpc, Tcp, Redis]),
        ("send", written.send.is_some(), &[Tcp, Udp]),
        ("expect", written.expect.is_some(), &[Tcp, Udp]),
        ("udp_probe_payload", written.udp_probe_payload.is_some(), &[Udp]),
        ("grpc_service_name", written.grpc_service_name.is_some(), &[Grpc]),
    ];
    for (key, _, of) in keys.into_iter().filter(|(_, is_given, of)| *is_given && !of.contains(&probe)) {
        let name = match of {
            [Udp] => "udp",
            [Grpc] => "grpc",
            [Tcp, ..] => "tcp",
            _ => "http",
        };
        notes.add(&format!("health_checks.active.{key}"), "a probe of this type does not have it").remedy =
            Some(format!("write `probe_type: {name}`, or remove it"));
    }
}

fn hex(text: &str) -> Result<Vec<u8>, ValueProblem> {
    let bad = || ValueProblem::new("this is not hexadecimal").remedy("two digits a byte, such as `70696e67`");
    if !text.len().is_multiple_of(2) {
        return Err(bad());
    }
    let byte =
        |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    text.as_bytes().chunks(2).map(byte).collect::<Option<_>>().ok_or_else(bad)
}

/// What holds where nothing is written: a target that can't be reached costs a few connections, not one in two requests.
fn implied() -> PassiveHealth {
    PassiveHealth {
        unhealthy_status_codes: Vec::new(),
        unhealthy_threshold: 3,
        window: Duration::from_secs(10),
        healthy_after: Duration::from_secs(10),
        healthy_after_max: Duration::from_secs(60),
        max_ejected_percent: 100,
    }
}

/// `None` when it is switched off.
fn passive(written: &file::PassiveHealth) -> Option<PassiveHealth> {
    let unhealthy_threshold = written.unhealthy_threshold.unwrap_or(3);
    (unhealthy_threshold > 0).then(|| PassiveHealth {
        unhealthy_status_codes: written
            .unhealthy_status_codes
            .clone()
            .unwrap_or_else(|| vec![500, 502, 503, 504]),
        unhealthy_threshold,
        window: words::seconds(written.unhealthy_window, 30),
        healthy_after: words::seconds(written.healthy_after, 30),
        healthy_after_max: words::seconds(written.healthy_after_max, 300),
        max_ejected_percent: written.max_ejected_percent.unwrap_or(100),
    })
}
