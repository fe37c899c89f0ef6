//! Databases of where addresses are, in memory.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use maxminddb::Reader;
use serde::Deserialize;
use thiserror::Error;

use super::settings::{GeoLocation, Rules};

/// Bytes one database may have.
const MAX_DATABASE: u64 = 1 << 30;

/// The databases, and how their files were when they were read.
#[derive(Default)]
pub(super) struct Databases {
    countries: Option<Reader<Bytes>>,
    asns: Option<Reader<Bytes>>,
    modified: [u128; 2],
}

#[derive(Deserialize)]
struct Located<'d> {
    #[serde(borrow)]
    country: Option<Country<'d>>,
    #[serde(borrow)]
    continent: Option<Continent<'d>>,
}

#[derive(Deserialize)]
struct Country<'d> {
    iso_code: Option<&'d str>,
}

#[derive(Deserialize)]
struct Continent<'d> {
    code: Option<&'d str>,
}

#[derive(Deserialize)]
struct System {
    autonomous_system_number: Option<u32>,
}

impl Databases {
    /// Reads those that the settings name; says everything that is wrong with them.
    pub(super) fn read(rules: &Rules, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        // Asked before they are read: a change while they are read is seen the next time.
        let modified = modified(rules, world);
        let mut one = |name: &str, path: Option<&Path>| {
            let path = path?;
            match open(path, world) {
                Ok(reader) => Some(reader),
                Err(why) => {
                    let message = format!("{} can't be used: {why}", path.display());
                    problems.add(format!("config.{name}"), message);
                    None
                }
            }
        };
        let countries = one("database", rules.database.as_deref());
        let asns = one("asn_database", rules.asn_database.as_deref());
        problems.into_result(Self { countries, asns, modified })
    }

    /// Whether the files are still as they were.
    pub(super) fn is_current(&self, rules: &Rules, world: &World) -> bool {
        self.modified == modified(rules, world)
    }

    /// Where an address is. What a database does not know, or can't say because it is broken, is unknown.
    pub(super) fn place(&self, address: IpAddr) -> GeoLocation<'_> {
        let located =
            self.countries.as_ref().and_then(|it| it.lookup(address).ok()?.decode::<Located<'_>>().ok()?);
        let system = self.asns.as_ref().and_then(|it| it.lookup(address).ok()?.decode::<System>().ok()?);
        let located = located.unwrap_or(Located { country: None, continent: None });
        GeoLocation {
            country: located.country.and_then(|country| country.iso_code),
            continent: located.continent.and_then(|continent| continent.code),
            asn: system.and_then(|system| system.autonomous_system_number),
        }
    }
}

fn modified(rules: &Rules, world: &World) -> [u128; 2] {
    [&rules.database, &rules.asn_database]
        .map(|path| path.as_ref().map_or(0, |path| world.files().modified(path).unwrap_or(0)))
}

/// Why a database can't be used.
#[derive(Debug, Error)]
enum DatabaseError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("this is not a MaxMind database: {0}")]
    Format(#[from] maxminddb::MaxMindDbError),
}

fn open(path: &Path, world: &World) -> Result<Reader<Bytes>, DatabaseError> {
    Ok(Reader::from_source(world.settings_file(path, MAX_DATABASE)?)?)
}
