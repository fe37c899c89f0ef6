//! Which content codings a target may answer in.

use http::header::{ACCEPT_ENCODING, Entry};

use super::Exchange;

impl Exchange {
    /// Has the target answer without a content coding, for a plugin that reads the body. For request hooks; the plugin's response
    /// hook calls [`Exchange::accept_codings`], so that a plugin that compresses knows what the client accepts.
    pub fn ask_for_plain(&mut self) {
        if let Entry::Occupied(field) = self.request.headers.entry(ACCEPT_ENCODING) {
            let accepted = field.remove_entry_mult().1.collect();
            self.rare().accepted = accepted;
        }
    }

    /// Puts back what the client accepts.
    pub fn accept_codings(&mut self) {
        let accepted = self.rare.as_mut().map(|rare| std::mem::take(&mut rare.accepted)).unwrap_or_default();
        let headers = &mut self.request.headers;
        if !accepted.is_empty() && !headers.contains_key(ACCEPT_ENCODING) {
            accepted.into_iter().for_each(|value| _ = headers.append(ACCEPT_ENCODING, value));
        }
    }
}
