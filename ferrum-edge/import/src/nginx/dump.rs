//! The files a configuration is made of: those that a text includes, or all that `nginx -T` prints.

use std::path::{Path, PathBuf};

use super::blocks::{Directive, parse};
use crate::draft::Import;
use crate::error::Failure;
use crate::files::{IncludeReader, glob};
use crate::{MAX_INCLUDES, MAX_TOTAL_BYTES};

/// What stands before each file in a dump.
const MARK: &str = "# configuration file ";
/// Directives of one configuration, with all that is included.
const MAX_DIRECTIVES: usize = 500_000;

/// A text's directives, with those of the files it includes in their places.
pub(super) fn read(
    out: &mut Import,
    name: &str,
    text: &str,
    reader: &mut IncludeReader<'_>,
) -> Result<Vec<Directive>, Failure> {
    let files = split(text);
    let mut included =
        Included { reader, parsed: Vec::new(), folder: PathBuf::new(), count: 0, trail: Vec::new() };
    let mut main = match files.split_first() {
        None => {
            included.folder = Path::new(name).parent().unwrap_or_else(|| Path::new("")).to_owned();
            let file = out.report.file(name);
            parse(name, file, text)?
        }
        Some(((first, first_text), rest)) => {
            for (name, text) in rest {
                let file = out.report.file(name);
                included.parsed.push(((*name).to_owned(), parse(name, file, text)?));
            }
            let file = out.report.file(first);
            parse(first, file, first_text)?
        }
    };
    included.trail.push(name.to_owned());
    included.include(out, &mut main)?;
    Ok(main)
}

/// The files in a dump: each one's name and text. None when the text is no dump.
fn split(text: &str) -> Vec<(&str, &str)> {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some(name) = line.trim_end().strip_prefix(MARK).and_then(|name| name.strip_suffix(':')) {
            starts.push((name, at, at + line.len()));
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).map(|(_, start, _)| *start).chain([text.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|((name, _, from), to)| (*name, text.get(*from..to).unwrap_or_default()))
        .collect()
}

struct Included<'r, 'f> {
    reader: &'r mut IncludeReader<'f>,
    /// The files of a dump.
    parsed: Vec<(String, Vec<Directive>)>,
    /// Where relative names start.
    folder: PathBuf,
    count: usize,
    /// The files that include one another, down to this one.
    trail: Vec<String>,
}

impl Included<'_, '_> {
    /// Puts the directives of included files in the places of the includes.
    fn include(&mut self, out: &mut Import, directives: &mut Vec<Directive>) -> Result<(), Failure> {
        let before = std::mem::take(directives);
        for mut directive in before {
            self.count += 1;
            if self.count > MAX_DIRECTIVES {
                let what =
                    format!("more than {MAX_DIRECTIVES} directives, or {MAX_TOTAL_BYTES} bytes of includes");
                return Err(Failure::new("", directive.at.line, what));
            }
            let pattern = directive.arguments.first().filter(|_| directive.name == "include").cloned();
            let Some(pattern) = pattern else {
                self.include(out, &mut directive.block)?;
                directives.push(directive);
                continue;
            };
            if pattern.ends_with("mime.types") {
                out.not_needed(directive.at, &directive, "media types are built in");
                continue;
            }
            match self.found(out, &pattern) {
                Ok(files) if files.is_empty() => {
                    let why = "no file matches it here; what such files would say is not known";
                    out.partial(directive.at, &directive, why, "import what `nginx -T` prints");
                }
                Ok(files) => {
                    for (name, mut inner) in files {
                        if self.trail.contains(&name) || self.trail.len() > MAX_INCLUDES {
                            let why = format!(
                                "`{name}` includes itself, or more than {MAX_INCLUDES} files include one another"
                            );
                            include_not_converted(out, &directive, &why);
                            directives.push(unread(&directive));
                            continue;
                        }
                        self.trail.push(name);
                        self.include(out, &mut inner)?;
                        self.trail.pop();
                        directives.extend(inner);
                    }
                }
                Err(why) => match super::standard_includes::directives(&pattern, directive.at) {
                    Some(standard) => {
                        let why = format!("{why}; taken as the one that comes with nginx");
                        out.partial(directive.at, &directive, why, "import what `nginx -T` prints");
                        self.count += standard.len();
                        directives.extend(standard);
                    }
                    None => {
                        include_not_converted(out, &directive, &why);
                        directives.push(unread(&directive));
                    }
                },
            }
        }
        Ok(())
    }

    /// The files that an include means.
    fn found(&mut self, out: &mut Import, pattern: &str) -> Result<Vec<(String, Vec<Directive>)>, String> {
        if !self.parsed.is_empty() {
            let mut found: Vec<_> =
                self.parsed.iter().filter(|(name, _)| is_meant(pattern, name)).cloned().collect();
            found.sort_by(|a, b| a.0.cmp(&b.0));
            if found.is_empty() && !pattern.contains('*') {
                return Err("the dump does not have this file".to_owned());
            }
            return Ok(found);
        }
        let path =
            if Path::new(pattern).is_absolute() { PathBuf::from(pattern) } else { self.folder.join(pattern) };
        let mut found = Vec::new();
        for path in self.reader.matching(&path)? {
            let name = path.display().to_string();
            let text = self.reader.read(&path)?;
            let file = out.report.file(&name);
            found.push((name.clone(), parse(&name, file, &text).map_err(|error| error.to_string())?));
        }
        Ok(found)
    }
}

/// Reports an include that could not be read. What it is within is closed by the directive that [`unread`] leaves.
fn include_not_converted(out: &mut Import, directive: &Directive, why: &str) {
    out.not_converted(
        directive.at,
        directive,
        why,
        "import what `nginx -T` prints, which has all files in it",
    );
}

/// Stands for a file that could not be read: what was in it may have guarded.
fn unread(directive: &Directive) -> Directive {
    Directive { name: super::guard_names::UNREAD.to_owned(), ..directive.clone() }
}

/// Whether an include means a file. Relative patterns start in the folder of nginx.conf, which the dump does not say.
fn is_meant(pattern: &str, name: &str) -> bool {
    let fits = |pattern: &str, name: &str| {
        let slashes = |text: &str| text.bytes().filter(|b| *b == b'/').count();
        slashes(pattern) == slashes(name) && glob(pattern, name)
    };
    fits(pattern, name)
        || !pattern.starts_with('/')
            && name
                .match_indices('/')
                .any(|(at, _)| name.get(at + 1..).is_some_and(|name| fits(pattern, name)))
}
