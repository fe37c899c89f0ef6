//! Limits of the system that traffic meets first.

use std::path::Path;

use gateway_core::config::model::{Model, Scheme, Settings};
use rustix::process::{Resource, getrlimit};

use super::Findings;
use crate::control::overload::cgroup_limit;

/// Descriptors below which a gateway soon refuses connections: each exchange may need two.
const FEW_DESCRIPTORS: u64 = 16_384;
/// Bytes of a socket's buffer that QUIC and UDP proxies need on fast networks.
const DATAGRAM_BUFFER: u64 = 2 << 20;
/// What listeners ask for.
const BACKLOG: u64 = 4096;
/// Local ports below which connections to one target soon run out.
const FEW_PORTS: u64 = 20_000;
/// Memory a gateway needs to begin with.
const LITTLE_MEMORY: u64 = 128 << 20;

/// Whether datagrams are served.
pub(super) fn has_datagrams(model: &Model) -> bool {
    model.proxies.iter().any(|proxy| matches!(proxy.backend.scheme, Scheme::Udp | Scheme::Dtls))
}

/// Looks at everything below `root`, which is `/` but for tests.
pub(super) fn look(findings: &mut Findings, settings: &Settings, root: &Path, has_datagrams: bool) {
    descriptors(findings, root, getrlimit(Resource::Nofile).maximum);
    if has_datagrams {
        buffers(findings, root);
    }
    backlog(findings, root);
    ports(findings, root);
    congestion(findings, root);
    cores(findings, settings);
    memory(findings, settings, root);
}

fn text(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn number(root: &Path, path: &str) -> Option<u64> {
    text(root, path).split_whitespace().next()?.parse().ok()
}

fn descriptors(findings: &mut Findings, root: &Path, limit: Option<u64>) {
    const CHECK: &str = "descriptors";
    match limit {
        Some(limit) if limit < FEW_DESCRIPTORS => {
            let message = format!("at most {limit} files and connections can be open");
            let remedy = "raise it: `LimitNOFILE=1048576` in the systemd unit, or `ulimit -Hn 1048576`";
            findings.warning(CHECK, "", message, remedy);
        }
        limit => {
            let limit = limit.map_or_else(|| "any number of".to_owned(), |limit| limit.to_string());
            findings.ok(CHECK, "", format!("{limit} files and connections can be open"));
        }
    }
    // Allocated, free, and the most for all processes together.
    let all: Vec<u64> =
        text(root, "proc/sys/fs/file-nr").split_whitespace().filter_map(|n| n.parse().ok()).collect();
    if let [used, _, most] = all[..]
        && used > most / 10 * 9
    {
        let message = format!("all processes together have {used} of {most} files open");
        findings.error(CHECK, "fs.file-max", message, "raise it with `sysctl -w fs.file-max=…`");
    }
}

fn buffers(findings: &mut Findings, root: &Path) {
    for name in ["rmem_max", "wmem_max"] {
        let Some(bytes) = number(root, &format!("proc/sys/net/core/{name}")) else { continue };
        let about = format!("net.core.{name}");
        if bytes < DATAGRAM_BUFFER {
            let message =
                format!("a socket's buffer has {bytes} bytes at most; datagrams are lost in bursts");
            let remedy = format!("`sysctl -w {about}=7500000`, and keep it in /etc/sysctl.d");
            findings.warning("buffers", about, message, remedy);
        } else {
            findings.ok("buffers", about, format!("{bytes} bytes"));
        }
    }
}

fn backlog(findings: &mut Findings, root: &Path) {
    let Some(most) = number(root, "proc/sys/net/core/somaxconn") else { return };
    let about = "net.core.somaxconn";
    if most < BACKLOG {
        let message = format!("{most} connections can wait to be accepted; listeners ask for {BACKLOG}");
        findings.warning("backlog", about, message, format!("`sysctl -w {about}={BACKLOG}`"));
    } else {
        findings.ok("backlog", about, format!("{most} connections can wait to be accepted"));
    }
}

fn ports(findings: &mut Findings, root: &Path) {
    let path = "proc/sys/net/ipv4/ip_local_port_range";
    let range: Vec<u64> = text(root, path).split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [low, high] = range[..] else { return };
    let count = high.saturating_sub(low) + 1;
    let about = "net.ipv4.ip_local_port_range";
    if count < FEW_PORTS {
        let message = format!("{count} local ports, which is as many connections as one target can have");
        findings.warning("ports", about, message, format!("`sysctl -w {about}=\"10240 65535\"`"));
    } else {
        findings.ok("ports", about, format!("{count} local ports for connections to a target"));
    }
}

fn congestion(findings: &mut Findings, root: &Path) {
    let used = text(root, "proc/sys/net/ipv4/tcp_congestion_control");
    let used = used.trim();
    if used.is_empty() {
        return;
    }
    let about = "net.ipv4.tcp_congestion_control";
    match used {
        "cubic" | "bbr" | "dctcp" => findings.ok("congestion", about, used),
        _ => findings.warning(
            "congestion",
            about,
            format!("`{used}` is slow over long or lossy ways"),
            format!("`sysctl -w {about}=cubic`, or bbr where it is available"),
        ),
    }
}

fn cores(findings: &mut Findings, settings: &Settings) {
    // Respects CPU affinity and the cgroup's quota.
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = settings.workers;
    if workers > usable {
        let message = format!("{workers} workers on {usable} cores that the process may use");
        findings.warning(
            "cores",
            "gateway.workers",
            message,
            "set it to 0, which is one for each core, or raise the CPU quota",
        );
    } else {
        let workers = if workers == 0 { usable } else { workers };
        findings.ok("cores", "", format!("{workers} workers on {usable} cores that the process may use"));
    }
}

fn memory(findings: &mut Findings, settings: &Settings, root: &Path) {
    const CHECK: &str = "memory";
    let cgroup = cgroup_limit(&root.join("sys/fs/cgroup"), &text(root, "proc/self/cgroup"));
    let available = text(root, "proc/meminfo").lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
            .map(|kib| kib << 10)
    });
    let about = "gateway.overload.max_memory";
    match (settings.overload.max_memory, cgroup) {
        (Some(0), Some(limit)) => findings.warning(
            CHECK,
            about,
            format!("nothing is shed, and the cgroup ends the process at {limit} bytes"),
            "remove the setting: then load is shed before that",
        ),
        (Some(own @ 1..), Some(limit)) if own > limit => findings.error(
            CHECK,
            about,
            format!("load is shed at {own} bytes, and the cgroup ends the process at {limit}"),
            "lower it, or raise the cgroup's limit",
        ),
        (None, None) => findings.warning(
            CHECK,
            about,
            "there is no limit of memory at which load would be shed",
            "set it to what the gateway may use, or run it in a cgroup with a limit",
        ),
        (own, cgroup) => {
            let limit = own.filter(|own| *own > 0).or(cgroup).unwrap_or(0);
            findings.ok(CHECK, "", format!("load is shed before {limit} bytes of memory"));
        }
    }
    if let Some(available) = available.filter(|available| *available < LITTLE_MEMORY) {
        let message = format!("{available} bytes of memory are available");
        findings.warning(CHECK, "", message, "free memory, or use a larger machine");
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::config::model::OverloadRules;

    use super::super::Level;
    use super::*;

    struct Root(std::path::PathBuf);

    impl Drop for Root {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn root(name: &str, files: &[(&str, &str)]) -> Root {
        let root = std::env::temp_dir().join(format!("ferrum-doctor-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Root(root)
    }

    fn found(root: &Root, settings: &Settings) -> Vec<(&'static str, Level)> {
        let mut findings = Findings::default();
        look(&mut findings, settings, &root.0, true);
        for finding in &findings.0 {
            assert_eq!(finding.level == Level::Ok, finding.remedy.is_empty(), "{finding:?}");
        }
        // Those that hang on the machine that runs the test are looked at by themselves.
        findings
            .0
            .iter()
            .map(|it| (it.check, it.level))
            .filter(|(check, _)| !matches!(*check, "cores"))
            .collect()
    }

    #[test]
    fn a_machine_as_it_comes_and_one_that_is_prepared() {
        let poor = root(
            "poor",
            &[
                ("proc/sys/fs/file-nr", "95000\t0\t100000\n"),
                ("proc/sys/net/core/rmem_max", "212992\n"),
                ("proc/sys/net/core/wmem_max", "212992\n"),
                ("proc/sys/net/core/somaxconn", "128\n"),
                ("proc/sys/net/ipv4/ip_local_port_range", "32768\t40000\n"),
                ("proc/sys/net/ipv4/tcp_congestion_control", "reno\n"),
                ("proc/meminfo", "MemTotal: 1 kB\nMemAvailable:     1024 kB\n"),
            ],
        );
        let bad: Vec<_> = found(&poor, &Settings::default());
        let levels = |of: &str| {
            bad.iter().filter(|(check, _)| *check == of).map(|(_, level)| *level).collect::<Vec<_>>()
        };
        assert_eq!(levels("descriptors").last(), Some(&Level::Error));
        assert_eq!(levels("buffers"), [Level::Warning; 2]);
        for check in ["backlog", "ports", "congestion"] {
            assert_eq!(levels(check), [Level::Warning], "{check}");
        }
        assert_eq!(levels("memory"), [Level::Warning; 2]);
        let good = root(
            "good",
            &[
                ("proc/sys/net/core/rmem_max", "7500000\n"),
                ("proc/sys/net/core/wmem_max", "7500000\n"),
                ("proc/sys/net/core/somaxconn", "4096\n"),
                ("proc/sys/net/ipv4/ip_local_port_range", "10240\t65535\n"),
                ("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n"),
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", "1000000000\n"),
                ("proc/meminfo", "MemAvailable:     9999999 kB\n"),
            ],
        );
        let all = found(&good, &Settings::default());
        assert!(all.iter().all(|(check, level)| *check == "descriptors" || *level == Level::Ok), "{all:?}");
        let with = |max_memory| {
            let overload = OverloadRules { max_memory, ..OverloadRules::default() };
            let settings = Settings { overload, ..Settings::default() };
            found(&good, &settings).into_iter().find(|(check, _)| *check == "memory").unwrap().1
        };
        assert_eq!(with(Some(2_000_000_000)), Level::Error);
        assert_eq!(with(Some(0)), Level::Warning);
        assert_eq!(with(Some(500_000_000)), Level::Ok);
    }

    #[test]
    fn descriptors_and_workers() {
        let nothing = root("nothing", &[("x", "")]);
        let level = |limit| {
            let mut findings = Findings::default();
            descriptors(&mut findings, &nothing.0, limit);
            findings.0[0].level
        };
        assert_eq!(
            [level(Some(1024)), level(Some(1 << 20)), level(None)],
            [Level::Warning, Level::Ok, Level::Ok]
        );
        let level = |workers| {
            let mut findings = Findings::default();
            cores(&mut findings, &Settings { workers, ..Settings::default() });
            findings.0[0].level
        };
        assert_eq!([level(0), level(1000)], [Level::Ok, Level::Warning]);
    }
}
