//! The ports that an original serves HTTP on: as the gateway's listeners, and as conditions of what each port serves.

use serde_json::{Map, Value, json};

use crate::draft::{Route, To, set};

/// A port of an address, and whether TLS is spoken on it.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// Whether both are the same number of the same kind.
    fn is_beside(&self, other: &Self) -> bool {
        (self.is_tls, self.number) == (other.is_tls, other.number)
    }
}

/// Every port that something is served on.
#[derive(Debug, Default)]
pub(crate) struct Ports(Vec<Served>);

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
        match self.0.iter_mut().find(|known| known.port == port) {
            Some(known) => {
                known.count += 1;
                known.has_ipv6 |= has_ipv6;
            }
            None => self.0.push(Served { port, count: 1, has_ipv6 }),
        }
    }

    /// The ports, in the order in which they came.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Port> {
        self.0.iter().map(|served| &served.port)
    }

    /// The main port: the usual one, else the one that serves most.
    fn main(&self, is_tls: bool) -> Option<u16> {
        let numbers = || self.all().filter(move |port| port.is_tls == is_tls).map(|port| port.number);
        let served = |number: u16| {
            let on = self.0.iter().filter(|it| it.port.is_tls == is_tls && it.port.number == number);
            on.map(|it| it.count).sum::<usize>()
        };
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
    pub(crate) fn listen(&self, gateway: &mut Map<String, Value>) {
        for (is_tls, key, more) in [(false, "http", "additional_http"), (true, "https", "additional_https")] {
            let main = self.main(is_tls);
            // One listener for every address takes what comes to each of them.
            let is_covered = |served: &Served| {
                let every = |it: &Port| it.host.is_none() && it.is_beside(&served.port);
                served.port.host.is_some() && self.all().any(every)
            };
            let of = self.0.iter().filter(|it| it.port.is_tls == is_tls && !is_covered(it));
            let mut all: Vec<&Served> = of.collect();
            all.sort_by_key(|it| Some(it.port.number) != main);
            let mut addresses = all.into_iter().map(Served::address);
            set(gateway, key, addresses.next().unwrap_or_else(|| "off".to_owned()));
            let others: Vec<String> = addresses.collect();
            if !others.is_empty() {
                set(gateway, more, others);
            }
        }
    }

    /// What the requests that come to a port have and others don't, as keys of a match.
    pub(crate) fn facet(&self, port: &Port) -> Value {
        let numbers = |is_tls: bool| {
            let mut numbers: Vec<u16> =
                self.all().filter(|it| it.is_tls == is_tls).map(|it| it.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len()
        };
        let (plain, tls) = (numbers(false), numbers(true));
        let mut facet = json!({});
        if plain > 0 && tls > 0 {
            facet["scheme"] = json!(if port.is_tls { "https" } else { "http" });
        }
        if plain > 1 || tls > 1 {
            facet["ports"] = json!([port.number]);
        }
        let mut beside = self.all().filter(|it| it.is_beside(port) && it.host != port.host).peekable();
        match &port.host {
            Some(host) if beside.peek().is_some() => facet["addresses"] = json!([host]),
            // What comes to an address that is named goes there.
            None if beside.peek().is_some() => {
                let named: Vec<&String> = beside.filter_map(|it| it.host.as_ref()).collect();
                facet["not"] = json!({ "addresses": named });
            }
            _ => {}
        }
        facet
    }
}

impl Route {
    /// Plain requests for these names, sent to https.
    pub(crate) fn to_https(name: &str, hosts: Value) -> Self {
        let location = "https://${request.host}${request.target}";
        let config = json!({ "status_code": 308, "location": location, "query": "drop" });
        let mut route = Self::new(format!("{name}-to-https"), To::Redirect(config));
        route.matches.push(json!({ "hosts": hosts, "scheme": "http", "path": "/" }));
        route
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(of: &[(bool, u16, &str)]) -> Ports {
        let mut ports = Ports::default();
        for (is_tls, number, host) in of {
            ports.add(*is_tls, *number, host);
        }
        ports
    }

    fn listening(of: &[(bool, u16, &str)]) -> Value {
        let mut gateway = Map::new();
        ports(of).listen(&mut gateway);
        Value::Object(gateway)
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
            port.unwrap_or_default()
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
