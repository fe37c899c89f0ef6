//! Which known name a mistaken one most likely stands for.

/// Names a mistaken one is compared with, so that a document full of mistakes is still told about soon.
const MAX_COMPARED: usize = 1000;

/// The one of `words` that `word` most likely stands for; `None` when none is near.
pub fn nearest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let words = words.take(MAX_COMPARED);
    let likeness = |known: &str| strsim::jaro_winkler(&word.to_lowercase(), &known.to_lowercase());
    words
        .map(|known| (likeness(known), known))
        .filter(|(likeness, _)| *likeness > 0.84)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}
