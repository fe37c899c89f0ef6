//! The collections of one request: which values each variable has, by name.

mod intake;

use crate::body::form;
use crate::bytes::is_space;
use crate::request::{RequestHead, ResponseHead};
use crate::texts::{EMPTY, TextId, Texts};
use crate::transform::Transform;
use crate::variable::Variable;
pub(crate) use intake::{Intake, Intaker};

/// One value of a variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value {
    /// Its name in the collection; the empty text where it has none.
    pub(crate) name: TextId,
    pub(crate) text: TextId,
}

/// The values of every variable.
pub(crate) struct Values {
    by_variable: Vec<Vec<Value>>,
    /// Values that were cut off, and arguments that were left out.
    pub(crate) not_inspected: u32,
    argument_bytes: usize,
    file_bytes: usize,
    arguments: usize,
    /// How often values have come.
    changes: u64,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            by_variable: vec![Vec::new(); Variable::COUNT],
            not_inspected: 0,
            argument_bytes: 0,
            file_bytes: 0,
            arguments: 0,
            changes: 0,
        }
    }
}

impl Values {
    pub(crate) fn clear(&mut self) {
        self.by_variable.iter_mut().for_each(Vec::clear);
        (self.not_inspected, self.argument_bytes, self.file_bytes, self.arguments) = (0, 0, 0, 0);
    }

    /// Another number whenever there are other values.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The values of a variable.
    pub(crate) fn of(&self, variable: Variable) -> impl Iterator<Item = Value> + Clone + use<'_> {
        let (first, second) = Self::parts(variable);
        let second = second.map_or(&[][..], |it| self.list(it));
        self.list(first).iter().chain(second).copied()
    }

    /// The values as the engine walks them, by place; `None` behind the last.
    pub(crate) fn nth(&self, variable: Variable, n: usize) -> Option<Value> {
        let (first, second) = Self::parts(variable);
        let list = self.list(first);
        list.get(n).copied().or_else(|| self.list(second?).get(n - list.len()).copied())
    }

    fn list(&self, variable: Variable) -> &[Value] {
        self.by_variable.get(variable as usize).map_or(&[], Vec::as_slice)
    }

    /// The collections that a variable stands for.
    pub(crate) fn parts(variable: Variable) -> (Variable, Option<Variable>) {
        match variable {
            Variable::Args => (Variable::ArgsGet, Some(Variable::ArgsPost)),
            Variable::ArgsNames => (Variable::ArgsGetNames, Some(Variable::ArgsPostNames)),
            other => (other, None),
        }
    }

    fn push(&mut self, variable: Variable, name: TextId, text: TextId) {
        self.changes += 1;
        if let Some(list) = self.by_variable.get_mut(variable as usize) {
            list.push(Value { name, text });
        }
    }

    /// Gives a variable without members its value.
    pub(crate) fn set(&mut self, variable: Variable, texts: &mut Texts, value: &[u8], limit: usize) {
        let value = self.cut(value, limit);
        let text = texts.keep(value);
        self.changes += 1;
        if let Some(list) = self.by_variable.get_mut(variable as usize) {
            list.clear();
            list.push(Value { name: EMPTY, text });
        }
    }

    fn cut<'v>(&mut self, value: &'v [u8], limit: usize) -> &'v [u8] {
        match value.get(..limit) {
            Some(cut) if cut.len() < value.len() => {
                self.not_inspected += 1;
                cut
            }
            _ => value,
        }
    }

    /// Takes the head of a request.
    pub(crate) fn take_head(&mut self, head: &RequestHead<'_>, texts: &mut Texts, intake: Intake) {
        let limit = intake.value_size;
        let (path, query) = match memchr::memchr(b'?', head.target) {
            Some(at) => (&head.target[..at], &head.target[at + 1..]),
            None => (head.target, &b""[..]),
        };
        let mut decoded = Vec::new();
        Transform::UrlDecodeUni.apply_path(path, &mut decoded);
        let basename = decoded.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or_default();
        let line = [head.method, b" ", head.target, b" ", head.version.as_bytes()].concat();
        for (variable, value) in [
            (Variable::Method, head.method),
            (Variable::Uri, head.target),
            (Variable::UriRaw, head.target),
            (Variable::Filename, decoded.as_slice()),
            (Variable::Basename, basename),
            (Variable::Line, line.as_slice()),
            (Variable::Protocol, head.version.as_bytes()),
            (Variable::QueryString, query),
            (Variable::RemoteAddr, head.client.to_string().as_bytes()),
            (Variable::UniqueId, head.unique_id),
        ] {
            self.set(variable, texts, value, limit);
        }
        self.take_headers(head.headers, texts, limit, [Variable::Headers, Variable::HeadersNames]);
        for (name, value) in head.headers {
            if name.eq_ignore_ascii_case(b"cookie") {
                self.take_cookies(value, texts, limit);
            } else if name.eq_ignore_ascii_case(b"host") {
                let host = value.rsplitn(2, |byte| *byte == b':').last().unwrap_or_default();
                self.set(Variable::ServerName, texts, host, limit);
            }
        }
        let mut sink = Intaker::new(self, texts, intake, [Variable::ArgsGet, Variable::ArgsGetNames]);
        // What is beyond the limit is counted by the sink.
        let _read = form::read(query, &mut sink);
        self.note_sizes(texts, limit);
    }

    fn take_headers(
        &mut self,
        headers: &[(&[u8], &[u8])],
        texts: &mut Texts,
        limit: usize,
        [values, names]: [Variable; 2],
    ) {
        for (name, value) in headers {
            let value = self.cut(value, limit);
            let (name, text) = (texts.keep(name), texts.keep(value));
            self.push(values, name, text);
            self.push(names, name, name);
        }
    }

    fn take_cookies(&mut self, line: &[u8], texts: &mut Texts, limit: usize) {
        for pair in line.split(|byte| *byte == b';') {
            let from = pair.iter().position(|byte| !is_space(*byte)).unwrap_or(pair.len());
            let pair = &pair[from..];
            if pair.is_empty() {
                continue;
            }
            let at = memchr::memchr(b'=', pair);
            let (name, value) = at.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]));
            let value = self.cut(value, limit);
            let (name, text) = (texts.keep(name), texts.keep(value));
            self.push(Variable::Cookies, name, text);
            self.push(Variable::CookiesNames, name, name);
        }
    }

    fn note_sizes(&mut self, texts: &mut Texts, limit: usize) {
        let (arguments, files) = (self.argument_bytes.to_string(), self.file_bytes.to_string());
        self.set(Variable::ArgsCombinedSize, texts, arguments.as_bytes(), limit);
        self.set(Variable::FilesCombinedSize, texts, files.as_bytes(), limit);
    }

    /// Where a body's reader puts what it finds.
    pub(crate) fn body_sink<'s>(&'s mut self, texts: &'s mut Texts, intake: Intake) -> Intaker<'s> {
        Intaker::new(self, texts, intake, [Variable::ArgsPost, Variable::ArgsPostNames])
    }

    /// Counts what a body has brought.
    pub(crate) fn body_taken(&mut self, texts: &mut Texts, limit: usize) {
        self.note_sizes(texts, limit);
    }

    /// Joins the values of arguments with the same name by a comma, as ASP and ASP.NET do, into `ARGS_JOINED`.
    pub(crate) fn join_repeated(&mut self, texts: &mut Texts, limit: usize) {
        let mut named: Vec<(TextId, TextId)> = self.of(Variable::Args).map(|it| (it.name, it.text)).collect();
        // Stable: values stay in their order.
        named.sort_by_key(|(name, _)| *name);
        let mut joined = Vec::new();
        for values in named.chunk_by(|(a, _), (b, _)| a == b).filter(|values| values.len() > 1) {
            joined.clear();
            for (n, (_, text)) in values.iter().enumerate() {
                if n > 0 {
                    joined.push(b',');
                }
                joined.extend_from_slice(texts.get(*text));
                if joined.len() > limit {
                    break;
                }
            }
            let text = texts.keep(self.cut(&joined, limit));
            self.push(Variable::ArgsJoined, values[0].0, text);
        }
    }

    /// Takes the head of a response.
    pub(crate) fn take_response(&mut self, head: &ResponseHead<'_>, texts: &mut Texts, limit: usize) {
        let status = head.status.to_string();
        self.set(Variable::ResponseStatus, texts, status.as_bytes(), limit);
        self.set(Variable::ResponseProtocol, texts, head.version.as_bytes(), limit);
        let names = [Variable::ResponseHeaders, Variable::ResponseHeadersNames];
        self.take_headers(head.headers, texts, limit, names);
        for (name, value) in head.headers {
            if name.eq_ignore_ascii_case(b"content-type") {
                self.set(Variable::ResponseContentType, texts, value, limit);
            } else if name.eq_ignore_ascii_case(b"content-length") {
                self.set(Variable::ResponseContentLength, texts, value, limit);
            }
        }
    }

    /// How many values there are that rules look at one by one.
    pub(crate) fn count(&self) -> usize {
        self.by_variable.iter().map(Vec::len).sum()
    }
}
