//! PROXY protocol headers of stream proxies, received and sent.

use super::Notes;
use crate::file;
use crate::model::{HeaderDatagrams, ProxyExtensions, ProxyHeaders, Scheme};

pub(super) fn headers(notes: &mut Notes<'_>, written: &file::Proxy, scheme: Scheme) -> ProxyHeaders {
    if matches!(scheme, Scheme::Udp | Scheme::Dtls) {
        of_datagrams(notes, written, scheme);
    }
    ProxyHeaders {
        accepted: datagrams(written.accept_proxy_protocol_datagrams),
        sent: datagrams(written.send_proxy_protocol_datagrams),
        extensions: extensions(notes, written),
    }
}

fn datagrams(written: Option<file::HeaderDatagrams>) -> HeaderDatagrams {
    match written {
        None | Some(file::HeaderDatagrams::Every) => HeaderDatagrams::Every,
        Some(file::HeaderDatagrams::First) => HeaderDatagrams::First,
    }
}

fn of_datagrams(notes: &mut Notes<'_>, written: &file::Proxy, scheme: Scheme) {
    let accepts = written.accept_proxy_protocol == Some(true);
    let mut refuse = |key: &str, message: &str, remedy: &str| {
        notes.add(key, message).remedy = Some(remedy.to_owned());
    };
    if accepts && written.frontend_tls == Some(true) {
        let message = "clients of DTLS prove their own address, and a header says another one";
        refuse("accept_proxy_protocol", message, "remove it, or `frontend_tls`");
    }
    if accepts && written.passthrough == Some(true) {
        let message = "sessions of QUIC and DTLS are found by what the clients' datagrams begin with";
        refuse("accept_proxy_protocol", message, "remove it, or `passthrough`");
    }
    if written.send_proxy_protocol == Some(1) {
        let remedy = "write `send_proxy_protocol: 2`, or remove it";
        refuse("send_proxy_protocol", "version 1 is for connections only", remedy);
    }
    if written.send_proxy_protocol.is_some() && scheme == Scheme::Dtls {
        let message = "a DTLS target takes a header for a broken record";
        refuse("send_proxy_protocol", message, "remove it, or write `backend_scheme: udp`");
    }
    let keys = [
        ("accept_proxy_protocol_datagrams", written.accept_proxy_protocol_datagrams.is_some(), accepts),
        (
            "send_proxy_protocol_datagrams",
            written.send_proxy_protocol_datagrams.is_some(),
            written.send_proxy_protocol.is_some(),
        ),
    ];
    for (key, _, _) in keys.into_iter().filter(|(_, is_given, is_used)| *is_given && !is_used) {
        let used = key.trim_end_matches("_datagrams");
        refuse(
            key,
            &format!("there is no header without `{used}`"),
            &format!("write `{used}`, or remove it"),
        );
    }
    for (tlv, name) in [(file::ProxyTlv::Alpn, "alpn"), (file::ProxyTlv::Tls, "tls")] {
        if written.send_proxy_protocol_tlvs.contains(&tlv) {
            let message = format!("`{name}` is for connections only");
            refuse("send_proxy_protocol_tlvs", &message, "remove it");
        }
    }
}

fn extensions(notes: &mut Notes<'_>, written: &file::Proxy) -> ProxyExtensions {
    const KEY: &str = "send_proxy_protocol_tlvs";
    let tlvs = &written.send_proxy_protocol_tlvs;
    let extensions = ProxyExtensions {
        alpn: tlvs.contains(&file::ProxyTlv::Alpn),
        unique_id: tlvs.contains(&file::ProxyTlv::UniqueId),
        authority: tlvs.contains(&file::ProxyTlv::Authority),
        tls: tlvs.contains(&file::ProxyTlv::Tls),
        checksum: tlvs.contains(&file::ProxyTlv::Crc32c),
    };
    let frontend_tls = written.frontend_tls == Some(true);
    let has_name =
        frontend_tls || written.passthrough == Some(true) || written.accept_proxy_protocol == Some(true);
    if !tlvs.is_empty() && written.send_proxy_protocol != Some(2) {
        notes.add(KEY, "only a PROXY header of version 2 has extensions").remedy =
            Some("write `send_proxy_protocol: 2`, or remove it".to_owned());
    } else if extensions.tls && !frontend_tls {
        notes.add(KEY, "`tls` has nothing to say of connections that the gateway does not decrypt").remedy =
            Some("write `frontend_tls: true`, or remove it".to_owned());
    } else if extensions.authority && !has_name {
        notes.add(KEY, "`authority` needs a server name, which plain traffic does not have").remedy =
            Some("write `frontend_tls`, `passthrough` or `accept_proxy_protocol`, or remove it".to_owned());
    } else if extensions.alpn && written.alpn.is_empty() && written.accept_proxy_protocol != Some(true) {
        notes
            .add(
                KEY,
                "`alpn` needs a protocol, which neither a PROXY header nor the proxy's own `alpn` gives",
            )
            .remedy =
            Some("write `accept_proxy_protocol`, or `passthrough` with `alpn`, or remove it".to_owned());
    }
    extensions
}
