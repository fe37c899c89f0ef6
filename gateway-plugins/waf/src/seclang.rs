//! Rule files to a syntax tree. Nothing is judged here but the syntax; [`compile`](mod@crate::compile) says what can be used.

pub(crate) mod actions;
pub(crate) mod lines;
pub(crate) mod macros;
pub(crate) mod targets;

use std::sync::Arc;

use crate::problem::{Problems, RuleLocation};
use actions::Actions;
use targets::TargetSource;

/// Ids of rules, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    first: u64,
    last: u64,
}

impl IdRange {
    /// Reads `941100` or `941100-941199`.
    pub fn read(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some(Self { first, last })
    }

    pub(crate) fn has(self, id: u64) -> bool {
        (self.first..=self.last).contains(&id)
    }
}

/// One directive of the rule files.
#[derive(Debug, Clone)]
pub(crate) enum Directive {
    Rule(RuleSource),
    Marker(String),
    DefaultAction(RuleLocation, Actions),
    RemoveById(Vec<IdRange>),
    RemoveByTag(String),
    RemoveByMsg(String),
    UpdateTargetById(Vec<IdRange>, Vec<TargetSource>),
    UpdateTargetByTag(RuleLocation, String, Vec<TargetSource>),
    UpdateActionById(RuleLocation, Vec<IdRange>, Actions),
}

/// `SecRule`, or `SecAction` where it has no targets.
#[derive(Debug, Clone)]
pub(crate) struct RuleSource {
    pub(crate) place: RuleLocation,
    pub(crate) targets: Vec<TargetSource>,
    pub(crate) operator: OperatorSource,
    pub(crate) actions: Actions,
}

/// An operator as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OperatorSource {
    pub(crate) negated: bool,
    pub(crate) name: String,
    pub(crate) argument: String,
}

/// Directives about what the gateway decides by its own settings, and by which.
const ELSEWHERE: &[(&str, &str)] = &[
    ("secruleengine", "`mode` of the plugin decides"),
    ("secrequestbodyaccess", "`body` of the plugin decides"),
    ("secrequestbodylimit", "`body.max_bytes` of the plugin decides"),
    ("secrequestbodyinmemorylimit", "`body.max_bytes` of the plugin decides"),
    ("secrequestbodynofileslimit", "`body.max_bytes` of the plugin decides"),
    ("secrequestbodylimitaction", "`body.over_limit` of the plugin decides"),
    ("secrequestbodyjsondepthlimit", "`limits.json_depth` of the plugin decides"),
    ("secargumentslimit", "`limits.arguments` of the plugin decides"),
    ("secresponsebodyaccess", "`response` of the plugin decides"),
    ("secresponsebodymimetype", "`response.content_types` of the plugin decides"),
    ("secresponsebodylimit", "`response.max_bytes` of the plugin decides"),
    ("secresponsebodylimitaction", "`response` of the plugin decides"),
    ("secpcrematchlimit", "patterns take time in proportion to the value"),
    ("secpcrematchlimitrecursion", "patterns take time in proportion to the value"),
    ("seccollectiontimeout", "there are no persistent collections"),
    ("secdatadir", "nothing is written to disk"),
    ("sectmpdir", "nothing is written to disk"),
    ("sectmpsaveuploadedfiles", "nothing is written to disk"),
    ("secuploaddir", "nothing is written to disk"),
    ("secuploadkeepfiles", "nothing is written to disk"),
    ("secuploadfilelimit", "`limits.parts` of the plugin decides"),
    ("secuploadfilemode", "nothing is written to disk"),
    ("secauditengine", "the access log and `audit` of the plugin decide"),
    ("secauditlog", "the access log and `audit` of the plugin decide"),
    ("secauditlog2", "the access log and `audit` of the plugin decide"),
    ("secauditlogdir", "the access log and `audit` of the plugin decide"),
    ("secauditlogstoragedir", "the access log and `audit` of the plugin decide"),
    ("secauditlogdirmode", "the access log and `audit` of the plugin decide"),
    ("secauditlogfilemode", "the access log and `audit` of the plugin decide"),
    ("secauditlogformat", "the access log and `audit` of the plugin decide"),
    ("secauditlogparts", "the access log and `audit` of the plugin decide"),
    ("secauditlogrelevantstatus", "the access log and `audit` of the plugin decide"),
    ("secauditlogtype", "the access log and `audit` of the plugin decide"),
    ("secdebuglog", "the gateway's program log is used"),
    ("secdebugloglevel", "the gateway's program log is used"),
    ("secstatusengine", "nothing is reported to others"),
    ("secsensorid", "the gateway's name is used"),
    ("seccookieformat", "cookies are read as RFC 6265 has them"),
    ("secargumentseparator", "`&` separates arguments"),
    ("secunicodemapfile", "half-width and full-width forms are mapped without a file"),
    ("secserversignature", "the gateway sets no `Server` header here"),
];

/// Reads one file.
pub(crate) fn parse(name: &str, text: &str, problems: &mut Problems) -> Vec<Directive> {
    let file: Arc<str> = Arc::from(name);
    let mut found = Vec::new();
    for line in lines::logical(text) {
        let place = RuleLocation { file: file.clone(), line: line.number };
        let words = match lines::words(&line.text) {
            Ok(words) => words,
            Err(error) => {
                problems.error(&place, error);
                continue;
            }
        };
        let Some((name, arguments)) = words.split_first() else { continue };
        if let Some(directive) = directive(&place, name, arguments, problems) {
            found.push(directive);
        }
    }
    found
}

fn directive(
    place: &RuleLocation,
    name: &str,
    words: &[String],
    problems: &mut Problems,
) -> Option<Directive> {
    let lower = name.to_ascii_lowercase();
    let needs = |count: usize, problems: &mut Problems| {
        if words.len() < count {
            problems.error(place, format!("`{name}` needs {count} arguments, and has {}", words.len()));
            return false;
        }
        true
    };
    let word = |n: usize| words.get(n).map(String::as_str).unwrap_or_default();
    match lower.as_str() {
        "secrule" if needs(2, problems) => rule(place, words, problems).map(Directive::Rule),
        "secaction" if needs(1, problems) => {
            let actions = parse_actions(place, word(0), problems)?;
            let operator =
                OperatorSource { negated: false, name: "unconditionalmatch".into(), argument: String::new() };
            Some(Directive::Rule(RuleSource { place: place.clone(), targets: Vec::new(), operator, actions }))
        }
        "secmarker" if needs(1, problems) => Some(Directive::Marker(word(0).to_owned())),
        "secdefaultaction" if needs(1, problems) => {
            Some(Directive::DefaultAction(place.clone(), parse_actions(place, word(0), problems)?))
        }
        "seccomponentsignature" | "secwebappid" => None,
        "secruleremovebyid" if needs(1, problems) => {
            Some(Directive::RemoveById(ranges(place, words, problems)?))
        }
        "secruleremovebytag" if needs(1, problems) => Some(Directive::RemoveByTag(word(0).to_owned())),
        "secruleremovebymsg" if needs(1, problems) => Some(Directive::RemoveByMsg(word(0).to_owned())),
        "secruleupdatetargetbyid" if needs(2, problems) => {
            let ids = ranges(place, words.get(..1).unwrap_or_default(), problems)?;
            Some(Directive::UpdateTargetById(ids, parse_targets(place, word(1), problems)?))
        }
        "secruleupdatetargetbytag" if needs(2, problems) => Some(Directive::UpdateTargetByTag(
            place.clone(),
            word(0).to_owned(),
            parse_targets(place, word(1), problems)?,
        )),
        "secruleupdateactionbyid" if needs(2, problems) => {
            let ids = ranges(place, words.get(..1).unwrap_or_default(), problems)?;
            Some(Directive::UpdateActionById(place.clone(), ids, parse_actions(place, word(1), problems)?))
        }
        "secrule"
        | "secaction"
        | "secmarker"
        | "secdefaultaction"
        | "secruleremovebyid"
        | "secruleremovebytag"
        | "secruleremovebymsg"
        | "secruleupdatetargetbyid"
        | "secruleupdatetargetbytag"
        | "secruleupdateactionbyid" => None,
        _ => {
            match ELSEWHERE.iter().find(|(known, _)| *known == lower) {
                Some((_, why)) => problems.note(place, format!("`{name}` has no effect here: {why}")),
                None => problems.error(place, format!("`{name}` is not supported")),
            }
            None
        }
    }
}

fn rule(place: &RuleLocation, words: &[String], problems: &mut Problems) -> Option<RuleSource> {
    let targets = parse_targets(place, words.first()?, problems)?;
    let operator = operator(words.get(1)?);
    let actions = match words.get(2) {
        Some(text) => parse_actions(place, text, problems)?,
        None => Actions::default(),
    };
    if words.len() > 3 {
        problems.error(place, "`SecRule` takes targets, an operator and actions; there is more on the line");
        return None;
    }
    Some(RuleSource { place: place.clone(), targets, operator, actions })
}

/// `!@rx pattern`; without a name it is a pattern.
fn operator(text: &str) -> OperatorSource {
    let text = text.trim_start();
    let (negated, rest) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    match rest.strip_prefix('@') {
        Some(named) => {
            let (name, argument) = named.split_once(char::is_whitespace).unwrap_or((named, ""));
            let argument = argument.trim_start();
            OperatorSource { negated, name: name.to_ascii_lowercase(), argument: argument.to_owned() }
        }
        None => OperatorSource { negated, name: "rx".into(), argument: rest.to_owned() },
    }
}

fn parse_targets(place: &RuleLocation, text: &str, problems: &mut Problems) -> Option<Vec<TargetSource>> {
    match targets::parse(text) {
        Ok(targets) => Some(targets),
        Err(error) => {
            problems.error(place, error);
            None
        }
    }
}

fn parse_actions(place: &RuleLocation, text: &str, problems: &mut Problems) -> Option<Actions> {
    match actions::parse(text) {
        Ok(actions) => Some(actions),
        Err(errors) => {
            for error in errors {
                problems.error(place, error);
            }
            None
        }
    }
}

fn ranges(place: &RuleLocation, words: &[String], problems: &mut Problems) -> Option<Vec<IdRange>> {
    let mut found = Vec::new();
    for word in words.iter().flat_map(|word| word.split([' ', ','])).filter(|word| !word.is_empty()) {
        match IdRange::read(word) {
            Some(range) => found.push(range),
            None => {
                problems.error(place, format!("`{word}` is not a rule id or a range of ids such as `1-9`"));
                return None;
            }
        }
    }
    Some(found)
}
