//! The results of tests as text, TAP 14, or JUnit XML.

use std::time::Duration;

use super::TestedFile;
use crate::cli::print;

/// The result of one test.
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) took: Duration,
    /// The failed expectations. The test passes if there are none.
    pub(super) failures: Vec<String>,
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.failures.is_empty()
    }
}

fn all(tested: &[TestedFile]) -> impl Iterator<Item = (&TestedFile, &Outcome)> {
    tested.iter().flat_map(|file| file.outcomes.iter().map(move |outcome| (file, outcome)))
}

/// Prints failures and a summary.
pub(super) fn text(tested: &[TestedFile]) {
    for (file, outcome) in all(tested).filter(|(_, outcome)| !outcome.is_good()) {
        print::line(format_args!("FAILED {}: {}", file.name, outcome.name));
        outcome.failures.iter().for_each(|failure| print::line(format_args!("  {failure}")));
    }
    let (count, failed) =
        (all(tested).count(), all(tested).filter(|(_, outcome)| !outcome.is_good()).count());
    print::line(format_args!("{} tests passed, {failed} failed", count - failed));
}

/// Test Anything Protocol, version 14: one test point per test, with a YAML block below each failed one.
pub(super) fn tap(tested: &[TestedFile]) {
    print::line("TAP version 14");
    print::line(format_args!("1..{}", all(tested).count()));
    for (n, (_, outcome)) in all(tested).enumerate() {
        let sign = if outcome.is_good() { "ok" } else { "not ok" };
        // `#` would start a directive.
        let name = outcome.name.replace('\\', "\\\\").replace('#', "\\#").replace('\n', " ");
        print::line(format_args!("{sign} {} - {name}", n + 1));
        if !outcome.is_good() {
            print::line("  ---\n  failures:");
            for failure in &outcome.failures {
                let quoted = serde_json::Value::from(failure.as_str());
                print::line(format_args!("    - {quoted}"));
            }
            print::line("  ...");
        }
    }
}

/// One test suite per file, one test case per test.
pub(super) fn junit(tested: &[TestedFile]) {
    print::line("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>");
    for file in tested {
        let failed = file.outcomes.iter().filter(|outcome| !outcome.is_good()).count();
        let (name, count) = (escaped(&file.name), file.outcomes.len());
        print::line(format_args!("  <testsuite name=\"{name}\" tests=\"{count}\" failures=\"{failed}\">"));
        for outcome in &file.outcomes {
            let (test, took) = (escaped(&outcome.name), outcome.took.as_secs_f64());
            let head = format!("    <testcase classname=\"{name}\" name=\"{test}\" time=\"{took:.3}\"");
            if outcome.is_good() {
                print::line(format_args!("{head}/>"));
                continue;
            }
            let failures = escaped(&outcome.failures.join("\n"));
            let first = escaped(outcome.failures.first().map_or("", String::as_str));
            print::line(format_args!(
                "{head}>\n      <failure message=\"{first}\">{failures}</failure>\n    </testcase>"
            ));
        }
        print::line("  </testsuite>");
    }
    print::line("</testsuites>");
}

/// Escapes text for XML 1.0 and replaces characters that XML does not permit.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push_str(&format!("&#{};", u32::from(c))),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
