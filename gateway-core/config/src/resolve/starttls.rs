//! The plain text before TLS.

use super::Notes;
use crate::file;
use crate::model::{Scheme, Starttls, StarttlsRules};

/// The plain text around TLS of a stream proxy; what would have no effect is a problem.
pub(super) fn starttls(notes: &mut Notes<'_>, written: &file::Proxy, scheme: Scheme) -> StarttlsRules {
    let frontend = written.frontend_starttls.map(protocol);
    let backend = written.backend_starttls.map(protocol);
    let passthrough = written.passthrough == Some(true);
    if frontend.is_some() && !passthrough && written.frontend_tls != Some(true) {
        notes.add("frontend_starttls", "has no effect on plain traffic").remedy =
            Some("write `frontend_tls: true` or `passthrough: true`, or remove it".to_owned());
    }
    if backend.is_some() && scheme != Scheme::Tcps {
        let (why, remedy) = match passthrough {
            true => ("with `passthrough`, the gateway asks the target as the client asks it", "remove it"),
            false => {
                ("has no effect without TLS to the target", "write `backend_scheme: tcps`, or remove it")
            }
        };
        notes.add("backend_starttls", why).remedy = Some(remedy.to_owned());
    }
    // The gateway reads the target's greeting before TLS, so nobody else could send one to the client.
    if let Some(backend) = backend.filter(|backend| backend.has_greeting() && frontend != Some(*backend)) {
        let name = format!("{backend:?}").to_lowercase();
        notes.add("backend_starttls", "the client would get no greeting").remedy =
            Some(format!("write `frontend_starttls: {name}` and `frontend_tls: true`"));
    }
    StarttlsRules { frontend, backend: backend.or_else(|| frontend.filter(|_| passthrough)) }
}

fn protocol(written: file::Starttls) -> Starttls {
    match written {
        file::Starttls::Postgres => Starttls::Postgres,
        file::Starttls::Smtp => Starttls::Smtp,
        file::Starttls::Imap => Starttls::Imap,
        file::Starttls::Pop3 => Starttls::Pop3,
    }
}
