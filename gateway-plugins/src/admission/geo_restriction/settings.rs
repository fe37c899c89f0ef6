//! What users write, and what it is checked to mean.

use std::path::PathBuf;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use http::{HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `geo_restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Database of countries or cities, such as `GeoLite2-Country.mmdb`. Required for countries and continents.
    #[schemars(extend("format" = "path"))]
    database: Option<PathBuf>,
    /// Database of autonomous systems, such as `GeoLite2-ASN.mmdb`. Required for `allow_asns`, `deny_asns`,
    /// `asn_header`.
    #[schemars(extend("format" = "path"))]
    asn_database: Option<PathBuf>,
    /// Countries to admit, as two letters (ISO 3166-1): `DE`. Default none.
    allow_countries: Vec<String>,
    /// Countries to reject. Default none.
    deny_countries: Vec<String>,
    /// Continents to admit: `AF`, `AN`, `AS`, `EU`, `NA`, `OC`, `SA`. Default none.
    allow_continents: Vec<String>,
    /// Continents to reject. Default none.
    deny_continents: Vec<String>,
    /// Numbers of autonomous systems to admit. Default none.
    allow_asns: Vec<u32>,
    /// Numbers of autonomous systems to reject. Default none.
    deny_asns: Vec<u32>,
    /// What happens to addresses that the databases do not contain, such as private ones: `allow` or `deny`. Default
    /// `deny` if an `allow_` list is given, else `allow`.
    on_unknown: Option<Unknown>,
    /// Request header in which the target receives the country. The gateway removes it from client requests. Default
    /// none.
    country_header: Option<String>,
    /// The same for the continent. Default none.
    continent_header: Option<String>,
    /// The same for the number of the autonomous system. Default none.
    asn_header: Option<String>,
    /// How often the gateway checks the files for changes. At least 1 s. Default 60 s.
    #[schemars(range(min = 1))]
    refresh: Seconds,
    /// Status of rejections, 400 to 599; 451 means legal reasons. Default 403.
    #[schemars(range(min = 400, max = 599))]
    status_code: u16,
    /// Counts and logs `geo_restriction.would_deny`, but rejects nothing. Default false.
    dry_run: bool,
}

/// What happens to unknown addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unknown {
    /// They pass.
    Allow,
    /// They are rejected.
    Deny,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            database: None,
            asn_database: None,
            allow_countries: Vec::new(),
            deny_countries: Vec::new(),
            allow_continents: Vec::new(),
            deny_continents: Vec::new(),
            allow_asns: Vec::new(),
            deny_asns: Vec::new(),
            on_unknown: None,
            country_header: None,
            continent_header: None,
            asn_header: None,
            refresh: Seconds(60),
            status_code: 403,
            dry_run: false,
        }
    }
}

/// Settings, checked.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) database: Option<PathBuf>,
    pub(super) asn_database: Option<PathBuf>,
    allow: Lists,
    deny: Lists,
    unknown_passes: bool,
    /// For the country, the continent, the autonomous system.
    pub(super) headers: [Option<HeaderName>; 3],
    pub(super) refresh: Duration,
    pub(super) status: StatusCode,
    pub(super) dry_run: bool,
}

/// Where an address is.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct GeoLocation<'d> {
    pub(super) country: Option<&'d str>,
    pub(super) continent: Option<&'d str>,
    pub(super) asn: Option<u32>,
}

/// Who is meant; each sorted.
#[derive(Debug)]
struct Lists {
    countries: Vec<String>,
    continents: Vec<String>,
    asns: Vec<u32>,
}

impl Lists {
    fn is_empty(&self) -> bool {
        self.countries.is_empty() && self.continents.is_empty() && self.asns.is_empty()
    }

    fn has(&self, place: &GeoLocation<'_>) -> bool {
        let is_in = |list: &[String], code: Option<&str>| {
            code.is_some_and(|code| list.binary_search_by(|known| known.as_str().cmp(code)).is_ok())
        };
        is_in(&self.countries, place.country)
            || is_in(&self.continents, place.continent)
            || place.asn.is_some_and(|asn| self.asns.binary_search(&asn).is_ok())
    }

    fn by_place(&self) -> bool {
        !(self.countries.is_empty() && self.continents.is_empty())
    }
}

impl Rules {
    /// Whether something that is decided by is not known of this place.
    pub(super) fn is_unknown(&self, place: &GeoLocation<'_>) -> bool {
        let by_place = self.allow.by_place() || self.deny.by_place();
        let by_asn = !(self.allow.asns.is_empty() && self.deny.asns.is_empty());
        (by_place && place.country.is_none() && place.continent.is_none()) || (by_asn && place.asn.is_none())
    }

    pub(super) fn admit(&self, place: &GeoLocation<'_>) -> bool {
        if self.deny.has(place) {
            return false;
        }
        if self.allow.has(place) {
            return true;
        }
        if self.is_unknown(place) { self.unknown_passes } else { self.allow.is_empty() }
    }
}

const CONTINENTS: &[&str] = &["AF", "AN", "AS", "EU", "NA", "OC", "SA"];

/// Checks settings; all that is wrong with them goes to `problems`.
pub(super) fn read(config: Config, problems: &mut Problems) -> Rules {
    let allow = Lists {
        countries: countries("allow_countries", config.allow_countries, problems),
        continents: continents("allow_continents", config.allow_continents, problems),
        asns: sorted(config.allow_asns),
    };
    let deny = Lists {
        countries: countries("deny_countries", config.deny_countries, problems),
        continents: continents("deny_continents", config.deny_continents, problems),
        asns: sorted(config.deny_asns),
    };
    let mut header = |name: &str, text: Option<String>| {
        text.and_then(|text| {
            gateway_plugin_common::parse::header_name(&format!("config.{name}"), &text, problems)
        })
    };
    let headers = [
        header("country_header", config.country_header),
        header("continent_header", config.continent_header),
        header("asn_header", config.asn_header),
    ];
    let by_place = allow.by_place() || deny.by_place() || headers.iter().take(2).any(Option::is_some);
    let by_asn = !(allow.asns.is_empty() && deny.asns.is_empty() && headers[2].is_none());
    if !by_place && !by_asn {
        problems.add("config", "nobody is allowed or denied, and no header is set").remedy =
            Some("give a list such as `deny_countries`, or `country_header`".into());
    }
    for (name, given, needed) in [
        ("database", config.database.is_some(), by_place),
        ("asn_database", config.asn_database.is_some(), by_asn),
    ] {
        if needed && !given {
            problems.add(format!("config.{name}"), "this database is needed for what is asked for");
        } else if given && !needed {
            problems.add(format!("config.{name}"), "nothing is looked up in this database").remedy =
                Some("remove it, or give a list or header for it".into());
        }
    }
    Rules {
        database: config.database,
        asn_database: config.asn_database,
        unknown_passes: config.on_unknown.map_or(allow.is_empty(), |unknown| unknown == Unknown::Allow),
        allow,
        deny,
        headers,
        refresh: config.refresh.duration(),
        status: StatusCode::from_u16(config.status_code).unwrap_or(StatusCode::FORBIDDEN),
        dry_run: config.dry_run,
    }
}

fn countries(name: &str, codes: Vec<String>, problems: &mut Problems) -> Vec<String> {
    for (n, code) in codes.iter().enumerate() {
        if code.len() != 2 || !code.bytes().all(|c| c.is_ascii_uppercase()) {
            problems.add(format!("config.{name}[{n}]"), format!("`{code}` is not a country")).remedy =
                Some("write two capital letters, such as `DE`".into());
        }
    }
    sorted(codes)
}

fn continents(name: &str, codes: Vec<String>, problems: &mut Problems) -> Vec<String> {
    for (n, code) in codes.iter().enumerate() {
        if !CONTINENTS.contains(&code.as_str()) {
            problems.add(format!("config.{name}[{n}]"), format!("`{code}` is not a continent")).remedy =
                Some(format!("one of {}", CONTINENTS.join(", ")));
        }
    }
    sorted(codes)
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}
