//! What a rule does: `id:1,phase:2,deny,t:lowercase,setvar:'tx.score=+5'`.

use super::IdRange;
use super::macros::{self, MacroError, Template};
use super::targets::{self, TargetError, TargetSource};
use crate::transform::Transform;

/// The actions of one rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Actions {
    pub(crate) id: Option<u64>,
    pub(crate) phase: Option<u8>,
    pub(crate) disruptive: Option<Disruptive>,
    pub(crate) status: Option<u16>,
    pub(crate) chain: bool,
    pub(crate) capture: bool,
    pub(crate) multi_match: bool,
    pub(crate) skip: u32,
    pub(crate) skip_after: Option<String>,
    /// `None` in it is `t:none`: what stood before is dropped.
    pub(crate) transforms: Vec<Option<Transform>>,
    pub(crate) sets: Vec<SetSource>,
    pub(crate) ctls: Vec<Ctl>,
    pub(crate) msg: Option<Template>,
    pub(crate) tags: Vec<String>,
    pub(crate) severity: Option<u8>,
    pub(crate) log: Option<bool>,
    /// Actions that can't be carried out; a problem unless the rule can never run.
    pub(crate) unsupported: Vec<UnsupportedAction>,
}

/// An action that the gateway can't carry out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnsupportedAction {
    #[error("`{0}` needs persistent collections, which do not exist here")]
    Collection(String),
    #[error("the action `{0}` is not supported")]
    Action(String),
    /// `setvar` of another collection than TX, with what follows the colon.
    #[error("`setvar:{0}`: only TX can be set; there are no persistent collections")]
    SetOfCollection(String),
    #[error("`ctl:{0}` is not supported")]
    Ctl(String),
}

/// Why an action can't be read. Values are as they are written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ActionError {
    #[error("`{0}` is not a rule id")]
    Id(String),
    #[error("`{0}` is not a rule id or a range of ids")]
    Ids(String),
    #[error("`phase:{0}` is not a phase from 1 to 5")]
    Phase(String),
    #[error("`status:{0}` is not a status")]
    Status(String),
    #[error("`skip:{0}` is not a number")]
    Skip(String),
    #[error("the transformation `t:{0}` is not supported")]
    Transform(String),
    #[error("`{0}` is not a severity")]
    Severity(String),
    #[error("the action `{0}` is not supported")]
    Unknown(String),
    #[error("`setvar:{0}` needs a collection and a name, as in `tx.name=1`")]
    SetWithoutName(String),
    #[error("`ctl:{0}` needs a value")]
    CtlWithoutValue(String),
    #[error("`ctl:{0}` needs a target after `;`")]
    CtlWithoutTarget(String),
    #[error("`ctl:{0}` needs one target")]
    CtlTargets(String),
    #[error("`ctl:{0}` must be On, DetectionOnly or Off")]
    CtlEngine(String),
    #[error(transparent)]
    Macro(#[from] MacroError),
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// What becomes of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disruptive {
    Pass,
    /// What `SecDefaultAction` of the phase says.
    Block,
    Deny,
    /// The rest of the rules does not run.
    Allow,
    /// The rest of this phase does not run.
    AllowPhase,
    /// The rest of the request's rules does not run.
    AllowRequest,
}

/// `setvar:tx.name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetSource {
    pub(crate) name: Template,
    pub(crate) change: VariableChange,
    pub(crate) value: Template,
}

/// How `setvar` changes a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableChange {
    Set,
    Add,
    Subtract,
    Unset,
}

/// `ctl:…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ctl {
    RemoveById(IdRange),
    RemoveByTag(String),
    RemoveByMsg(String),
    RemoveTargetById(IdRange, TargetSource),
    RemoveTargetByTag(String, TargetSource),
    BodyProcessor(String),
    ForceBody(bool),
    /// `off`, or for this request only reported.
    Engine(EngineMode),
}

/// `ctl:ruleEngine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineMode {
    On,
    DetectionOnly,
    Off,
}

/// Reads a list of actions.
pub(crate) fn parse(text: &str) -> Result<Actions, Vec<ActionError>> {
    let mut actions = Actions::default();
    let mut problems = Vec::new();
    for item in split(text) {
        let (name, value) = match item.split_once(':') {
            Some((name, value)) => (name.trim(), unquoted(value.trim())),
            None => (item.trim(), ""),
        };
        if name.is_empty() {
            continue;
        }
        if let Err(error) = actions.take(&name.to_ascii_lowercase(), value) {
            problems.push(error);
        }
    }
    if problems.is_empty() { Ok(actions) } else { Err(problems) }
}

/// The items of a list; commas in single quotes do not separate.
fn split(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut item = String::new();
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            ',' if !quoted => found.push(std::mem::take(&mut item)),
            '\'' if !escaped => {
                quoted = !quoted;
                item.push(c);
            }
            _ => item.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    found.push(item);
    found
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value)
}

impl Actions {
    fn take(&mut self, name: &str, value: &str) -> Result<(), ActionError> {
        match name {
            "id" => self.id = Some(value.parse().map_err(|_| ActionError::Id(value.into()))?),
            "phase" => self.phase = Some(phase(value)?),
            "status" => self.status = Some(status(value)?),
            "chain" => self.chain = true,
            "capture" => self.capture = true,
            "multimatch" => self.multi_match = true,
            "skip" => self.skip = value.parse().map_err(|_| ActionError::Skip(value.into()))?,
            "skipafter" => self.skip_after = Some(value.to_owned()),
            "t" => self.transforms.push(transform(value)?),
            "setvar" => self.set(value)?,
            "ctl" => self.control(value)?,
            "msg" => self.msg = Some(macros::parse(&value.replace("\\'", "'"))?),
            "tag" => self.tags.push(value.to_owned()),
            "severity" => self.severity = Some(severity(value)?),
            "log" => self.log = Some(true),
            "nolog" => self.log = Some(false),
            // `logdata` would write whole values to logs; matches are reported with an excerpt instead.
            "logdata"
            | "auditlog"
            | "noauditlog"
            | "ver"
            | "rev"
            | "maturity"
            | "accuracy"
            | "sanitisearg"
            | "sanitisematched"
            | "sanitisematchedbytes"
            | "sanitiserequestheader"
            | "sanitiseresponseheader" => {}
            "initcol" | "setuid" | "setsid" | "setrsc" | "expirevar" | "deprecatevar" => {
                self.unsupported.push(UnsupportedAction::Collection(name.to_owned()));
            }
            "exec" | "proxy" | "redirect" | "pause" | "prepend" | "append" | "setenv" | "xmlns" => {
                self.unsupported.push(UnsupportedAction::Action(name.to_owned()));
            }
            _ => return self.decide(name, value),
        }
        Ok(())
    }

    fn decide(&mut self, name: &str, value: &str) -> Result<(), ActionError> {
        self.disruptive = Some(match (name, value.to_ascii_lowercase().as_str()) {
            ("pass", "") => Disruptive::Pass,
            ("block", "") => Disruptive::Block,
            // A connection that others' requests share is not cut off.
            ("deny" | "drop", "") => Disruptive::Deny,
            ("allow", "") => Disruptive::Allow,
            ("allow", "phase") => Disruptive::AllowPhase,
            ("allow", "request") => Disruptive::AllowRequest,
            _ => return Err(ActionError::Unknown(name.to_owned())),
        });
        Ok(())
    }

    fn set(&mut self, value: &str) -> Result<(), ActionError> {
        let (target, given) =
            value.split_once('=').map_or((value, None), |(name, given)| (name, Some(given)));
        let (target, unset) = target.strip_prefix('!').map_or((target, false), |target| (target, true));
        let Some((collection, name)) = target.split_once(['.', ':']) else {
            return Err(ActionError::SetWithoutName(value.to_owned()));
        };
        if !collection.trim().eq_ignore_ascii_case("tx") {
            self.unsupported.push(UnsupportedAction::SetOfCollection(value.to_owned()));
            return Ok(());
        }
        let (change, given) = match given {
            None if unset => (VariableChange::Unset, ""),
            // `setvar:tx.flag` sets it to 1.
            None => (VariableChange::Set, "1"),
            Some(given) => match (given.strip_prefix('+'), given.strip_prefix('-')) {
                (Some(more), _) => (VariableChange::Add, more),
                (_, Some(less)) => (VariableChange::Subtract, less),
                _ => (VariableChange::Set, given),
            },
        };
        let name = macros::parse(&name.to_ascii_lowercase())?;
        self.sets.push(SetSource { name, change, value: macros::parse(given)? });
        Ok(())
    }

    fn control(&mut self, value: &str) -> Result<(), ActionError> {
        let (name, given) =
            value.split_once('=').ok_or_else(|| ActionError::CtlWithoutValue(value.to_owned()))?;
        let given = unquoted(given.trim());
        let ids = || IdRange::read(given).ok_or_else(|| ActionError::Ids(given.to_owned()));
        let with_target = || {
            let halves = given.split_once(';');
            let (which, target) = halves.ok_or_else(|| ActionError::CtlWithoutTarget(value.to_owned()))?;
            let mut found = targets::parse(target)?;
            match (found.pop(), found.is_empty()) {
                (Some(target), true) => Ok((which.trim().to_owned(), target)),
                _ => Err(ActionError::CtlTargets(value.to_owned())),
            }
        };
        let ctl = match name.trim().to_ascii_lowercase().as_str() {
            "ruleremovebyid" => Ctl::RemoveById(ids()?),
            "ruleremovebytag" => Ctl::RemoveByTag(given.to_owned()),
            "ruleremovebymsg" => Ctl::RemoveByMsg(given.to_owned()),
            "ruleremovetargetbyid" => {
                let (which, target) = with_target()?;
                let ids = IdRange::read(&which).ok_or(ActionError::Id(which))?;
                Ctl::RemoveTargetById(ids, target)
            }
            "ruleremovetargetbytag" => {
                let (which, target) = with_target()?;
                Ctl::RemoveTargetByTag(which, target)
            }
            "requestbodyprocessor" => Ctl::BodyProcessor(given.to_ascii_uppercase()),
            "forcerequestbodyvariable" => Ctl::ForceBody(given.eq_ignore_ascii_case("on")),
            "ruleengine" => Ctl::Engine(match given.to_ascii_lowercase().as_str() {
                "on" => EngineMode::On,
                "detectiononly" => EngineMode::DetectionOnly,
                "off" => EngineMode::Off,
                _ => return Err(ActionError::CtlEngine(value.to_owned())),
            }),
            // The access log and the plugin's settings decide.
            "auditengine" | "auditlogparts" | "debugloglevel" => return Ok(()),
            _ => {
                self.unsupported.push(UnsupportedAction::Ctl(name.trim().to_owned()));
                return Ok(());
            }
        };
        self.ctls.push(ctl);
        Ok(())
    }
}

fn phase(value: &str) -> Result<u8, ActionError> {
    match value.to_ascii_lowercase().as_str() {
        "1" => Ok(1),
        "2" | "request" => Ok(2),
        "3" => Ok(3),
        "4" | "response" => Ok(4),
        "5" | "logging" => Ok(5),
        _ => Err(ActionError::Phase(value.to_owned())),
    }
}

fn status(value: &str) -> Result<u16, ActionError> {
    let status = value.parse().ok().filter(|status| (200..=599).contains(status));
    status.ok_or_else(|| ActionError::Status(value.to_owned()))
}

fn transform(value: &str) -> Result<Option<Transform>, ActionError> {
    if value.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    Transform::named(value).map(Some).ok_or_else(|| ActionError::Transform(value.to_owned()))
}

fn severity(value: &str) -> Result<u8, ActionError> {
    const WORDS: [&str; 8] =
        ["EMERGENCY", "ALERT", "CRITICAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"];
    let by_word = WORDS.iter().position(|word| word.eq_ignore_ascii_case(value));
    let number = by_word.or_else(|| value.parse().ok()).filter(|number| *number < 8);
    let number = number.and_then(|number| u8::try_from(number).ok());
    number.ok_or_else(|| ActionError::Severity(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read() {
        let got = parse(
            "id:'12',phase:request,deny,status:403,t:none,t:lowercase,msg:'a, \\'b\\'',tag:'x/y',\
             setvar:'tx.score=+%{tx.five}',setvar:!tx.old,setvar:tx.flag,ctl:ruleRemoveById=1-9,\
             skipAfter:END,severity:'CRITICAL',nolog,multiMatch,capture,chain",
        )
        .unwrap();
        assert_eq!((got.id, got.phase, got.status), (Some(12), Some(2), Some(403)));
        assert_eq!(got.disruptive, Some(Disruptive::Deny));
        assert_eq!(got.msg.unwrap().constant(), Some(&b"a, 'b'"[..]));
        assert_eq!(got.sets[0].change, VariableChange::Add);
        assert_eq!(got.sets[1].change, VariableChange::Unset);
        assert_eq!(got.sets[2].value.constant(), Some(&b"1"[..]));
        assert_eq!(got.ctls, [Ctl::RemoveById(IdRange::read("1-9").unwrap())]);
        assert_eq!((got.severity, got.log), (Some(2), Some(false)));
        assert!(got.chain && got.capture && got.multi_match);
    }

    #[test]
    fn every_wrong_action_is_reported() {
        let got = parse("phase:7,status:9,t:rot13,severity:'x',frobnicate,ctl:ruleEngine=maybe").unwrap_err();
        assert_eq!(
            got,
            [
                ActionError::Phase("7".into()),
                ActionError::Status("9".into()),
                ActionError::Transform("rot13".into()),
                ActionError::Severity("x".into()),
                ActionError::Unknown("frobnicate".into()),
                ActionError::CtlEngine("ruleEngine=maybe".into()),
            ]
        );
        assert!(parse("initcol:ip=%{REMOTE_ADDR},setvar:ip.x=1").unwrap().unsupported.len() == 2);
    }
}
