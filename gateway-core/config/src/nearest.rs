//! Suggestions for misspelled names.

/// Names that are compared with a misspelled one. The limit bounds the time for a document with many mistakes.
const MAX_COMPARED: usize = 1000;

/// The name in `words` that is most similar to `word`; `None` if none is similar enough.
pub fn nearest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let words = words.take(MAX_COMPARED);
    let likeness = |known: &str| strsim::jaro_winkler(&word.to_lowercase(), &known.to_lowercase());
    words
        .map(|known| (likeness(known), known))
        .filter(|(likeness, _)| *likeness > 0.84)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}
