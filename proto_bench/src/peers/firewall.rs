//! What the firewall tests ask, and the rules that the firewalls are given. Each request has values of its own, so that no
//! firewall answers from memory; each test has a counterpart that must be judged the other way, so that none is measured
//! which lets everything pass or nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::Test;
use crate::backend::answer;
use crate::driver::Stamp;
use crate::plan::{Expect, ExpectBody, Method, Plan, STAMP_MARK};

#[cfg(test)]
mod tests;

/// The status of refusals: what the Core Rule Set's own rules say, and what the gateway is told.
pub const REFUSED: u16 = 403;
/// Bytes of a body that every firewall inspects; larger ones are refused.
pub const BODY_LIMIT: u32 = 131_072;
/// Requests in flight: inspecting one takes some firewalls tens of milliseconds, so that more would only wait.
pub const CONNECTIONS: u32 = 8;
/// Bytes of the form.
const FORM: usize = 1024;
/// Records of the JSON document, of four values each.
const RECORDS: u32 = 25;
/// Bytes of the answers to a GET.
const ANSWER: usize = 1024;

/// With `host` and the stamp's header they are eight.
const BROWSER: [(&str, &str); 6] = [
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en-GB,en;q=0.7,de;q=0.3"),
    ("accept-encoding", "gzip, deflate, br"),
    ("referer", "https://www.example.org/articles"),
    ("cookie", "theme=dark; session=s{stamp}"),
];

const PROSE: &str = "Hello+and+thank+you+for+the+quick+answer.+The+parcel+came+on+Tuesday,+well+packed+and+complete,+and+the+\
    lamp+looks+just+as+it+does+in+the+pictures.+One+of+the+two+bulbs+was+loose,+but+that+was+easy+to+mend.+I+would+like+\
    to+order+a+second+one+for+the+hall,+in+the+same+colour+if+you+still+have+it,+and+pay+by+invoice+as+before.+Could+you+\
    tell+me+how+long+it+takes+at+the+moment,+and+whether+it+can+be+left+with+the+neighbours+if+nobody+is+at+home+in+the+\
    morning.+We+are+back+from+five+in+the+evening+on+all+working+days.+Many+greetings+from+the+coast,+where+it+has+been+\
    raining+since+the+weekend+and+the+evenings+are+long+enough+to+need+a+good+lamp+beside+the+chair.+The+old+one+goes+to+\
    my+brother,+who+has+asked+for+it+for+years+and+will+be+glad.+Please+send+the+invoice+to+the+same+address+as+\
    the+last+time,+and+the+parcel+to+the+one+above,+which+is+new+since+March.+It+is+the+white+house+behind+the+mill.";

/// What is in place of a harmless value where a request is an attack.
const INJECTION: &str = "1' UNION SELECT name,password FROM users-- ";
const INJECTION_ENCODED: &str = "1%27+UNION+SELECT+name%2Cpassword+FROM+users--+";

/// Makes a plan this test's requests, as the test means them or as its counterpart.
pub(super) fn shape(test: Test, plan: &mut Plan, counterpart: bool) {
    plan.load.connections = plan.load.connections.min(CONNECTIONS);
    plan.message.varied = true;
    plan.expect = Expect { status: 200, body: ExpectBody::Echo, refused: None };
    let is_attack = counterpart != (test == Test::WafAttack);
    match test {
        Test::WafForm => post(plan, "application/x-www-form-urlencoded", form(is_attack)),
        Test::WafJson => post(plan, "application/json", json(is_attack)),
        _ => get(plan, is_attack),
    }
    if is_attack {
        plan.expect = Expect { status: REFUSED, body: ExpectBody::Unverified, refused: None };
    }
}

fn get(plan: &mut Plan, is_attack: bool) {
    let words = if is_attack { INJECTION_ENCODED } else { "table+lamp+" };
    plan.target.path = format!("/size/{ANSWER}/articles?q={words}{STAMP_MARK}&page=2&list=l{STAMP_MARK}");
    plan.message.method = Method::Get;
    add_headers(plan, &BROWSER);
    plan.expect_content(answer::sized(ANSWER).into());
}

fn post(plan: &mut Plan, media_type: &str, body: String) {
    "/orders".clone_into(&mut plan.target.path);
    plan.message.method = Method::Post;
    add_headers(plan, &BROWSER);
    add_headers(plan, &[("content-type", media_type)]);
    plan.message.payload = expanded(&body);
    plan.message.body = Some(Bytes::from(body));
}

/// Adds headers that are not there yet: those that the user gave stay.
fn add_headers(plan: &mut Plan, headers: &[(&str, &str)]) {
    let own = &mut plan.message.headers;
    for (name, value) in headers {
        if !own.iter().any(|(known, _)| known == name) {
            own.push(((*name).to_owned(), (*value).to_owned()));
        }
    }
}

/// Ten fields, one of them prose, [`FORM`] bytes when it is sent.
fn form(is_attack: bool) -> String {
    let email = if is_attack { INJECTION_ENCODED } else { "ada%40example.org" };
    let mut form = format!(
        "name=Ada+Byron&email={email}&street=Long+Lane+12&city=London&postcode=EC1A+9HF&country=GB&order=o{STAMP_MARK}&\
         token=t{STAMP_MARK}&agree=on&comment={PROSE}"
    );
    // Nothing in the prose is percent-encoded, so it can end anywhere.
    let long = expanded(&form).saturating_sub(FORM);
    form.truncate(form.len() - long);
    form
}

/// Records of four values, one of them new.
fn json(is_attack: bool) -> String {
    let record = |number: u32| {
        let name = if is_attack && number == 0 { INJECTION } else { "Table lamp" };
        let (price, stock) = (1_999 + number * 250, 3 + number);
        format!(r#"{{"sku":"s{number}-{STAMP_MARK}","name":"{name}","price":{price},"stock":{stock}}}"#)
    };
    let records: Vec<String> = (0..RECORDS).map(record).collect();
    format!(r#"{{"articles":[{}]}}"#, records.join(","))
}

/// Bytes of a body when it is sent.
fn expanded(body: &str) -> usize {
    let marks = body.matches(STAMP_MARK).count();
    body.len() + marks * (Stamp::LENGTH * 2 - STAMP_MARK.len())
}

/// The rules of a folder, as the gateway's `crs` takes them.
#[derive(Debug, Clone)]
pub struct Rules {
    pub directory: PathBuf,
    /// In the order in which they are loaded, without those for responses.
    pub files: Vec<PathBuf>,
    /// The Core Rule Set's version, where the files have one.
    pub version: Option<String>,
    has_setup: bool,
}

/// Why a folder is no set of rules.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("cannot read the rules in {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{0} has no rules: no file of it, or of its folders `rules` and `plugins`, ends in .conf")]
    None(PathBuf),
}

/// A folder and the ones below it that are looked into, as the gateway does.
const FOLDERS: [&str; 3] = ["", "rules", "plugins"];
/// The set-up, and the set-up as it is delivered, which counts where there is no other.
const SETUP: [&str; 2] = ["crs-setup.conf", "crs-setup.conf.example"];

impl Rules {
    /// Reads a folder.
    ///
    /// # Errors
    /// It can't be read or has no rules.
    pub fn read(directory: &Path) -> Result<Self, RulesError> {
        let fail = |source| RulesError::Read { path: directory.to_owned(), source };
        let directory = directory.canonicalize().map_err(fail)?;
        let mut found: Vec<(u8, PathBuf)> = Vec::new();
        for folder in FOLDERS.map(|below| directory.join(below)).iter().filter(|folder| folder.is_dir()) {
            for entry in fs::read_dir(folder).map_err(fail)? {
                let path = entry.map_err(fail)?.path();
                found.extend(place(&path).map(|place| (place, path)));
            }
        }
        let has_own_setup = found.iter().any(|(place, path)| *place == 0 && path.ends_with(SETUP[0]));
        found.retain(|(_, path)| !(has_own_setup && path.ends_with(SETUP[1])));
        found.sort();
        let has_setup = found.first().is_some_and(|(place, _)| *place == 0);
        let files: Vec<PathBuf> = found.into_iter().map(|(_, path)| path).collect();
        if files.is_empty() {
            return Err(RulesError::None(directory));
        }
        Ok(Self { version: version(&files), directory, files, has_setup })
    }

    /// The rules in words, for reports.
    #[must_use]
    pub fn text(&self) -> String {
        let version = self.version.as_deref().unwrap_or("rules of no version");
        format!("{version} in {}; requests are inspected, answers are not", self.directory.to_string_lossy())
    }

    /// Directives for `ModSecurity` and Coraza: an engine that refuses, the bodies that the gateway inspects too, and the rules.
    #[must_use]
    pub fn directives(&self) -> String {
        let mut text = format!(
            "SecRuleEngine On\nSecAuditEngine Off\nSecRequestBodyAccess On\nSecRequestBodyLimit {BODY_LIMIT}\n\
             SecRequestBodyNoFilesLimit {BODY_LIMIT}\nSecRequestBodyLimitAction Reject\nSecResponseBodyAccess Off\n\
             SecRule REQUEST_HEADERS:Content-Type \"@beginsWith application/json\" \
             \"id:1,phase:1,pass,nolog,t:none,t:lowercase,ctl:requestBodyProcessor=JSON\"\n\
             SecRule REQBODY_ERROR \"!@eq 0\" \"id:2,phase:2,deny,status:{REFUSED},nolog,t:none\"\n"
        );
        if !self.has_setup {
            // The rules refuse to work without it; the gateway says so by itself.
            text.push_str("SecAction \"id:3,phase:1,pass,nolog,t:none,setvar:tx.crs_setup_version=4000\"\n");
        }
        for file in &self.files {
            text.push_str(&format!("Include {}\n", file.to_string_lossy()));
        }
        text
    }
}

/// Where a file stands in the order, if it is one of rules for requests.
fn place(path: &Path) -> Option<u8> {
    let name = path.file_name()?.to_string_lossy();
    if SETUP.iter().any(|setup| name.ends_with(setup)) {
        return Some(0);
    }
    if !name.ends_with(".conf") || name.starts_with("RESPONSE-") {
        return None;
    }
    Some(match &*name {
        name if name.ends_with("-config.conf") => 1,
        name if name.ends_with("-before.conf") => 2,
        name if name.ends_with("-after.conf") => 4,
        _ => 3,
    })
}

/// What the rules say of themselves: `OWASP_CRS/4.25.0`.
fn version(files: &[PathBuf]) -> Option<String> {
    const NAME: &str = "OWASP_CRS/";
    files.iter().find_map(|file| {
        let text = fs::read(file).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let (_, rest) = text.split_once(NAME)?;
        let number = rest.split(['\'', '"', ' ', ',', '\n']).next()?;
        Some(format!("{NAME}{number}"))
    })
}
