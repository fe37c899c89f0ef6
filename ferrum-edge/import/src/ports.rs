//! The ports that an original serves HTTP on: as the gateway's listeners, and as conditions of what each port serves.

use std::collections::{HashMap, HashSet};

use crate::draft::{Gateway, Match, Redirect, Route, Texts, To, draft};

/// A port of an address, and whether TLS is spoken on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Port {
    pub(crate) is_tls: bool,
    pub(crate) number: u16,
    /// `None` for every address.
    host: Option<String>,
}

impl Port {
    /// A port of this address; an empty one is every address.
    pub(crate) fn new(is_tls: bool, number: u16, host: &str) -> Self {
        let host = match host.trim_matches(['[', ']']) {
            "" | "*" | "0.0.0.0" | "::" => None,
            "localhost" => Some("127.0.0.1".to_owned()),
            host => Some(host.to_owned()),
        };
        Self { is_tls, number, host }
    }

    /// Its number, for each kind.
    fn number(&self) -> (bool, u16) {
        (self.is_tls, self.number)
    }
}

/// Every port that something is served on.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    /// In the order in which they came.
    served: Vec<Served>,
    /// Where each is in that list.
    places: HashMap<Port, usize>,
    /// Where those of one number are.
    numbers: HashMap<(bool, u16), Vec<usize>>,
    /// How many numbers there are without and with TLS.
    counts: (usize, usize),
}

#[derive(Debug)]
struct Served {
    port: Port,
    /// How often it is asked for.
    count: usize,
    /// Whether that is for IPv6 too.
    has_ipv6: bool,
}

impl Served {
    fn address(&self) -> String {
        let number = self.port.number;
        match self.port.host.as_deref() {
            None if self.has_ipv6 => format!("[::]:{number}"),
            None => format!("0.0.0.0:{number}"),
            Some(host) if host.contains(':') => format!("[{host}]:{number}"),
            Some(host) => format!("{host}:{number}"),
        }
    }
}

impl Ports {
    /// One more thing is served on this port of this address; an empty one is every address.
    pub(crate) fn add(&mut self, is_tls: bool, number: u16, host: &str) {
        let (port, has_ipv6) = (Port::new(is_tls, number, host), host.contains("::"));
        match self.places.get(&port).copied().and_then(|at| self.served.get_mut(at)) {
            Some(known) => {
                known.count += 1;
                known.has_ipv6 |= has_ipv6;
            }
            None => {
                self.places.insert(port.clone(), self.served.len());
                let beside = self.numbers.entry(port.number()).or_default();
                if beside.is_empty() {
                    let count = if is_tls { &mut self.counts.1 } else { &mut self.counts.0 };
                    *count += 1;
                }
                beside.push(self.served.len());
                self.served.push(Served { port, count: 1, has_ipv6 });
            }
        }
    }

    /// The ports, in the order in which they came.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Port> {
        self.served.iter().map(|served| &served.port)
    }

    /// The port at this place among all.
    pub(crate) fn at(&self, place: usize) -> Option<&Port> {
        self.served.get(place).map(|served| &served.port)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.served.len()
    }

    /// Where a port is among all.
    pub(crate) fn place(&self, port: &Port) -> Option<usize> {
        self.places.get(port).copied()
    }

    /// Those of this number.
    fn beside(&self, port: &Port) -> impl Iterator<Item = &Served> {
        self.numbers.get(&port.number()).into_iter().flatten().filter_map(|at| self.served.get(*at))
    }

    /// The main port: the usual one, else the one that serves most.
    fn main(&self, is_tls: bool) -> Option<u16> {
        let mut counts: HashMap<u16, usize> = HashMap::new();
        for served in self.served.iter().filter(|it| it.port.is_tls == is_tls) {
            *counts.entry(served.port.number).or_default() += served.count;
        }
        let numbers = || self.all().filter(move |port| port.is_tls == is_tls).map(|port| port.number);
        let served = |number: u16| counts.get(&number).copied().unwrap_or(0);
        let usual = if is_tls { 443 } else { 80 };
        let mut best = None;
        for number in numbers() {
            if number == usual {
                return Some(usual);
            }
            if best.is_none_or(|best| served(best) < served(number)) {
                best = Some(number);
            }
        }
        best
    }

    /// Gives the gateway its listeners.
    pub(crate) fn listen(&self, gateway: &mut Gateway) {
        for is_tls in [false, true] {
            let main = self.main(is_tls);
            // One listener for every address takes what comes to each of them.
            let every: HashSet<u16> = self
                .all()
                .filter(|it| it.is_tls == is_tls && it.host.is_none())
                .map(|it| it.number)
                .collect();
            let is_covered =
                |served: &Served| served.port.host.is_some() && every.contains(&served.port.number);
            let of = self.served.iter().filter(|it| it.port.is_tls == is_tls && !is_covered(it));
            let mut all: Vec<&Served> = of.collect();
            all.sort_by_key(|it| Some(it.port.number) != main);
            let mut addresses = all.into_iter().map(Served::address);
            let first = addresses.next().unwrap_or_else(|| "off".to_owned());
            let others: Vec<String> = addresses.collect();
            let others = (!others.is_empty()).then_some(others);
            if is_tls {
                gateway.https(first);
                gateway.additional_https(others);
            } else {
                gateway.http(first);
                gateway.additional_http(others);
            }
        }
    }

    /// What the requests that come to a port have and others don't.
    pub(crate) fn facet(&self, port: &Port) -> Match {
        let (plain, tls) = self.counts;
        let mut facet = Match::default();
        if plain > 0 && tls > 0 {
            facet.scheme(if port.is_tls { "https" } else { "http" });
        }
        if plain > 1 || tls > 1 {
            facet.ports([port.number]);
        }
        let mut beside = self.beside(port).map(|it| &it.port).filter(|it| it.host != port.host).peekable();
        match &port.host {
            Some(host) if beside.peek().is_some() => facet.addresses([host]),
            // What comes to an address that is named goes there.
            None if beside.peek().is_some() => {
                let named: Vec<&String> = beside.filter_map(|it| it.host.as_ref()).collect();
                facet.not(draft!(Match { addresses: named }));
            }
            _ => {}
        }
        facet
    }
}

impl Route {
    /// Plain requests for these names, sent to https.
    pub(crate) fn to_https(name: &str, hosts: impl Texts) -> Self {
        let location = "https://${request.host}${request.target}";
        let redirect = draft!(Redirect { status_code: 308, location, query: "drop" });
        let mut route = Self::new(format!("{name}-to-https"), To::Redirect(redirect));
        route.matches.push(draft!(Match { hosts, scheme: "http", path: "/" }));
        route
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ports(of: &[(bool, u16, &str)]) -> Ports {
        let mut ports = Ports::default();
        for (is_tls, number, host) in of {
            ports.add(*is_tls, *number, host);
        }
        ports
    }

    fn listening(of: &[(bool, u16, &str)]) -> Value {
        let mut gateway = Gateway::default();
        ports(of).listen(&mut gateway);
        gateway.into()
    }

    #[test]
    fn the_main_port_is_the_usual_one_or_that_which_serves_most() {
        assert_eq!(
            listening(&[(false, 8080, ""), (false, 80, "*"), (false, 8080, "")]),
            json!({ "http": "0.0.0.0:80", "additional_http": ["0.0.0.0:8080"], "https": "off" })
        );
        assert_eq!(
            listening(&[(true, 9443, "::1"), (true, 8443, "10.0.0.1"), (true, 8443, "10.0.0.2")]),
            json!({ "http": "off", "https": "10.0.0.1:8443", "additional_https": ["10.0.0.2:8443", "[::1]:9443"] })
        );
        // One listener for every address is enough.
        let all = listening(&[(false, 80, "10.0.0.1"), (false, 80, ""), (false, 80, "::")]);
        assert_eq!(all, json!({ "http": "[::]:80", "https": "off" }));
    }

    #[test]
    fn a_condition_says_no_more_than_tells_ports_apart() {
        let of = |all: &[(bool, u16, &str)], n: usize| {
            let ports = ports(all);
            let port = ports.all().nth(n).map(|port| ports.facet(port));
            Value::from(port.unwrap_or_default())
        };
        assert_eq!(of(&[(false, 80, "")], 0), json!({}));
        assert_eq!(of(&[(false, 80, "10.0.0.1")], 0), json!({}));
        assert_eq!(of(&[(false, 80, ""), (true, 443, "")], 1), json!({ "scheme": "https" }));
        assert_eq!(of(&[(false, 80, ""), (false, 81, "")], 0), json!({ "ports": [80] }));
        let all = [(false, 80, ""), (false, 81, ""), (true, 443, "")];
        assert_eq!(of(&all, 0), json!({ "scheme": "http", "ports": [80] }));
        let named = [(false, 80, ""), (false, 80, "10.0.0.1"), (false, 80, "127.0.0.1")];
        assert_eq!(of(&named, 0), json!({ "not": { "addresses": ["10.0.0.1", "127.0.0.1"] } }));
        assert_eq!(of(&named, 1), json!({ "addresses": ["10.0.0.1"] }));
    }
}
