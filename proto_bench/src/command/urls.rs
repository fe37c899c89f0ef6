//! Several URLs of one server, from arguments and from a file.

use std::path::Path;

use super::CommandError;
use crate::driver::VerifiedAnswer;
use crate::engine;
use crate::load_args::LoadArgs;
use crate::plan::{Expect, ExpectBody, Plan, Protocol, Target, TargetError, WeightedUrl};

/// URLs that one run may have.
const MAX_URLS: usize = 1_000;
/// Their weights together.
const MAX_WEIGHTS: u64 = 100_000;

/// The targets of a run with their weights: those of the arguments count 1 each.
///
/// # Errors
/// A URL that cannot be read, one of another server, or none at all.
pub fn targets(arguments: &[String], file: Option<&Path>) -> Result<Vec<(Target, u32)>, CommandError> {
    let mut written: Vec<(String, u32)> = arguments.iter().map(|url| (url.clone(), 1)).collect();
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| CommandError::Usage(format!("--urls {}: {error}", path.display())))?;
        for (number, line) in (1..).zip(text.lines()) {
            written.extend(line_of(line).map_err(|why| {
                CommandError::Usage(format!("--urls {}, line {number}: {why}", path.display()))
            })?);
        }
    }
    let total: u64 = written.iter().map(|(_, weight)| u64::from(*weight)).sum();
    if written.is_empty() || written.len() > MAX_URLS || total > MAX_WEIGHTS {
        let why = format!("give 1 to {MAX_URLS} URLs, with weights of {MAX_WEIGHTS} together at most");
        return Err(CommandError::Usage(why));
    }
    let parsed = written.into_iter().map(|(url, weight)| Ok((Target::parse(&url)?, weight)));
    let all = parsed.collect::<Result<Vec<_>, TargetError>>()?;
    let Some((first, _)) = all.first() else { return Ok(all) };
    let is_http = matches!(first.protocol, Protocol::Http1 | Protocol::Http2 | Protocol::Http3);
    let server = |it: &Target| (it.protocol, it.tls, it.host.clone(), it.address);
    if let Some((other, _)) = all.iter().find(|(it, _)| server(it) != server(first)) {
        let why = "all URLs of a run are of one server, with one scheme; run others beside it";
        return Err(CommandError::Usage(format!("{}: {why}", other.url())));
    }
    if all.len() > 1 && !is_http {
        return Err(CommandError::Usage("several URLs are for HTTP".to_owned()));
    }
    Ok(all)
}

/// A line that is no URL with its weight.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: write `URL` or `URL WEIGHT`, with a weight of 1 or more")]
struct BadLine(String);

/// `URL [WEIGHT]`, or nothing in an empty line and a comment.
fn line_of(line: &str) -> Result<Option<(String, u32)>, BadLine> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (url, weight, more) = (words.next().unwrap_or_default(), words.next(), words.next());
    let weight = weight.map_or(Ok(1), str::parse::<u32>).ok().filter(|weight| *weight > 0);
    match (weight, more) {
        (Some(weight), None) => Ok(Some((url.to_owned(), weight))),
        _ => Err(BadLine(line.to_owned())),
    }
}

/// Has a plan ask for all of these URLs.
pub fn ask_for_all(plan: &mut Plan, targets: &[(Target, u32)]) {
    if targets.len() > 1 {
        let one = |(target, weight): &(Target, u32)| WeightedUrl {
            path: target.path.clone(),
            weight: *weight,
            expect: plan.expect,
        };
        plan.urls = targets.iter().map(one).collect();
    }
}

/// Has answers be as the first one of each URL is, where nothing says what they must be; says so in words.
pub fn expect_first_answers(load: &LoadArgs, plan: &mut Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if !load.takes_first_answer()
        || !matches!(plan.target.protocol, Protocol::Http1 | Protocol::Http2 | Protocol::Http3)
    {
        return notes;
    }
    for (place, (one, _)) in plan.each().into_iter().enumerate() {
        // A server that does not answer shows in the round.
        let Some(expect) = expected(&one) else { continue };
        notes.push(format!(
            "{} had the status {} and {} at first; all other answers must be the same.",
            one.target.url(),
            expect.status,
            match expect.body {
                ExpectBody::Size(size) => format!("{size} bytes"),
                _ => "bodies of several sizes".to_owned(),
            }
        ));
        if place == 0 {
            plan.expect = expect;
        }
        if let Some(url) = plan.urls.get_mut(place) {
            url.expect = expect;
        }
    }
    notes
}

/// What two requests were answered; `None` where that is an error, which no test is to go by.
fn expected(plan: &Plan) -> Option<Expect> {
    let is_good = |answer: &VerifiedAnswer| answer.status < 400;
    let first = engine::first_answer(plan).ok().filter(is_good)?;
    let second = engine::first_answer(plan).ok().filter(is_good)?;
    let body = if first.body == second.body { ExpectBody::Size(first.body) } else { ExpectBody::Unverified };
    (first.status == second.status).then_some(Expect { status: first.status, body, refused: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_url_and_a_weight() {
        assert_eq!(line_of("http://a/ 3"), Ok(Some(("http://a/".to_owned(), 3))));
        assert_eq!(line_of("  http://a/"), Ok(Some(("http://a/".to_owned(), 1))));
        assert_eq!((line_of(""), line_of("# http://a/")), (Ok(None), Ok(None)));
        for bad in ["http://a/ 0", "http://a/ x", "http://a/ 1 2"] {
            assert!(line_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_urls_are_of_one_server() {
        let of = |urls: &[&str]| targets(&urls.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(), None);
        assert!(of(&["http://127.0.0.1:1/a", "http://127.0.0.1:1/b"]).is_ok_and(|all| all.len() == 2));
        for bad in [
            &["http://127.0.0.1:1/a", "http://127.0.0.1:2/b"][..],
            &["http://127.0.0.1:1/a", "h2c://127.0.0.1:1/b"],
            &["tcp://127.0.0.1:1", "tcp://127.0.0.1:1"],
            &[],
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
