//! The published rows, and ours beside them. Megabits a second.

use crate::bulk::Carrier;

/// What lies between sender and sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Nothing.
    Direct,
    /// The kernel's own redirect, in a network namespace.
    Redirect,
    Gateway,
    /// The gateway with its fast path off.
    GatewayCopying,
    Haproxy,
    Nginx,
}

impl Subject {
    pub(super) const ALL: [Self; 6] =
        [Self::Direct, Self::Redirect, Self::Gateway, Self::GatewayCopying, Self::Haproxy, Self::Nginx];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Redirect => "redirect",
            Self::Gateway => "gateway",
            Self::GatewayCopying => "gateway-copying",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }
}

/// A row.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) label: &'static str,
    pub(super) carrier: Carrier,
    /// Megabits a second; none is as fast as it goes.
    pub(super) offered: Option<f64>,
    /// Bytes a second that the gateway lets through.
    pub(super) cap: Option<u64>,
    pub(super) streams: u32,
    /// Measured time of each subject, as published where it is.
    pub(super) seconds: f64,
    pub(super) published: &'static [(&'static str, f64)],
}

impl Row {
    /// Whether a part of its id or label is the pattern, or its id begins with what stands before a `*`.
    pub(super) fn matches(&self, pattern: &str) -> bool {
        let pattern = pattern.to_lowercase();
        match pattern.strip_suffix('*') {
            Some(beginning) => self.id.starts_with(beginning),
            None => self.id.contains(&pattern) || self.label.to_lowercase().contains(&pattern),
        }
    }

    /// Whether a subject can do it.
    pub(super) fn has(&self, subject: Subject) -> bool {
        if self.cap.is_some() {
            return matches!(subject, Subject::Gateway | Subject::GatewayCopying);
        }
        // HAProxy forwards no datagrams, and there is no fast path for them that could be off.
        self.carrier == Carrier::Tcp || !matches!(subject, Subject::Haproxy | Subject::GatewayCopying)
    }
}

const fn offered(id: &'static str, megabits: f64, published: &'static [(&'static str, f64)]) -> Row {
    Row {
        id,
        label: "offered load, one TCP connection",
        carrier: Carrier::Tcp,
        offered: Some(megabits),
        cap: None,
        streams: 1,
        seconds: 5.0,
        published,
    }
}

const fn cap(id: &'static str, bytes: u64, streams: u32, published: &'static [(&'static str, f64)]) -> Row {
    Row {
        id,
        label: "bandwidth cap",
        carrier: Carrier::Tcp,
        offered: None,
        cap: Some(bytes),
        streams,
        seconds: 30.0,
        published,
    }
}

const fn udp(id: &'static str, megabits: f64) -> Row {
    Row {
        id,
        label: "offered load, one UDP flow of 1400-byte datagrams",
        carrier: Carrier::Udp,
        offered: Some(megabits),
        cap: None,
        streams: 1,
        seconds: 5.0,
        published: &[],
    }
}

macro_rules! published {
    ($direct:literal, $redirect:literal, $standalone:literal, $client:literal) => {
        &[
            ("direct", $direct),
            ("iptables REDIRECT", $redirect),
            ("Portunus standalone", $standalone),
            ("Portunus client", $client),
        ]
    };
}

/// Published on 4 vCPUs of an EPYC 7B13, Debian 13, over loopback, with iperf3 3.18.
pub(super) static ROWS: [Row; 18] = [
    Row {
        id: "headline",
        label: "as fast as it goes, one TCP connection",
        carrier: Carrier::Tcp,
        offered: None,
        cap: None,
        streams: 1,
        seconds: 30.0,
        published: published!(30_890.0, 26_987.0, 31_936.0, 26_644.0),
    },
    cap("cap-1-mib", 1_048_576, 1, &[("Portunus standalone", 8.388)]),
    cap("cap-10-mb", 10_000_000, 1, &[]),
    cap("cap-10-mb-8-connections", 10_000_000, 8, &[]),
    cap("cap-1-gbit", 125_000_000, 1, &[]),
    offered("offered-100m", 100.0, published!(100.02, 100.02, 100.02, 100.02)),
    offered("offered-500m", 500.0, published!(499.82, 499.92, 499.90, 500.05)),
    offered("offered-1g", 1_000.0, published!(999.94, 999.83, 999.82, 999.78)),
    offered("offered-2.5g", 2_500.0, published!(2_499.94, 2_499.75, 2_499.89, 2_499.75)),
    offered("offered-5g", 5_000.0, published!(4_999.57, 4_999.71, 4_999.48, 4_999.68)),
    offered("offered-7.5g", 7_500.0, published!(7_499.46, 7_499.55, 7_499.48, 7_499.30)),
    offered("offered-10g", 10_000.0, published!(9_998.99, 9_999.29, 9_999.61, 9_999.33)),
    offered("offered-12.5g", 12_500.0, published!(12_499.27, 12_499.22, 12_499.17, 12_501.03)),
    offered("offered-15g", 15_000.0, published!(14_999.09, 14_997.84, 14_999.13, 14_999.24)),
    offered("offered-18g", 18_000.0, published!(17_846.25, 18_001.85, 18_013.34, 18_030.70)),
    offered("offered-20g", 20_000.0, published!(19_998.82, 19_924.28, 19_481.14, 20_180.43)),
    udp("udp-100m", 100.0),
    udp("udp-1g", 1_000.0),
];
