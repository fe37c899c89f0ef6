//! Calls by a proxy that listens, to a server that only the proxy finds.

use std::path::PathBuf;
use std::sync::Mutex;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A name that no resolver knows.
const NAME: &str = "idp.of-the-test.invalid";

/// A server for [`NAME`], and the file of the authority that it is verified by.
async fn server(folder: &std::path::Path) -> (u16, PathBuf) {
    let authority = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&authority).unwrap();
    let ca_path = folder.join("ca.pem");
    std::fs::write(&ca_path, ca.pem()).unwrap();
    let issuer = Issuer::new(params, authority);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec![NAME.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], key)
        .unwrap();
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let mut lines = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).await.unwrap() > 0 {}
                let body = head.lines().take(2).collect::<Vec<_>>().join(" ");
                let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                lines.get_mut().write_all(text.as_bytes()).await.unwrap();
            });
        }
    });
    (port, ca_path)
}

/// A proxy that connects every name to this machine, if it is asked with this authorization; and what it was asked for.
async fn proxy(authorization: Option<&'static str>) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let noted = noted.clone();
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && client.read_line(&mut head).await.unwrap() > 0 {}
                let first = head.lines().next().unwrap().to_owned();
                noted.lock().unwrap().push(first.clone());
                if authorization.is_some_and(|wanted| !head.contains(wanted)) {
                    let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
                    return client.get_mut().write_all(refusal).await.unwrap();
                }
                let target: u16 = first.split([' ', ':']).nth(2).unwrap().parse().unwrap();
                let mut server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                client.get_mut().write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.unwrap();
                drop(tokio::io::copy_bidirectional(client.get_mut(), &mut server).await);
            });
        }
    });
    (port, asked)
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ferrum-proxy-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn endpoint(port: u16, ca_path: Option<PathBuf>) -> Endpoint {
    let (endpoint, _) = Endpoint::of_url(&format!("https://{NAME}:{port}/")).unwrap();
    endpoint.trusting(ca_path).within(Duration::from_secs(30))
}

async fn answer_through(proxy: &ForwardProxy, endpoint: Endpoint) -> Result<(u16, String), CallError> {
    let request = Request::get(format!("https://{NAME}/keys?a=b")).body(Body::empty()).unwrap();
    let response = proxy.client(endpoint).unwrap().fetch(request).await?;
    Ok((response.status().as_u16(), String::from_utf8(response.into_body().to_vec()).unwrap()))
}

#[tokio::test]
async fn calls_go_by_the_proxy_and_verify_the_server() {
    let folder = Folder::new("by");
    let (server, ca) = server(&folder.0).await;
    let basic = base64::engine::general_purpose::STANDARD.encode("ann:open sesame");
    let wanted: &'static str = Box::leak(format!("Basic {basic}").into_boxed_str());
    let (port, seen) = proxy(Some(wanted)).await;
    let by = ForwardProxy::of(&format!("http://ann:open%20sesame@127.0.0.1:{port}"), "other.test,10.0.0.0/8");
    for _ in 0..2 {
        let (status, text) = answer_through(&by, endpoint(server, Some(ca.clone()))).await.unwrap();
        assert_eq!((status, text), (200, format!("GET /keys?a=b HTTP/1.1 host: {NAME}:{server}")));
    }
    assert_eq!(*seen.lock().unwrap(), vec![format!("CONNECT {NAME}:{server} HTTP/1.1"); 2]);
    // Without its own roots the server is not trusted, by whatever way it is reached.
    let error = answer_through(&by, endpoint(server, None)).await.unwrap_err();
    assert_eq!(error.cause, Cause::TlsFailed, "{error}");
    let without = ForwardProxy::of(&format!("http://127.0.0.1:{port}"), "");
    let error = answer_through(&without, endpoint(server, Some(ca))).await.unwrap_err().to_string();
    assert!(error.contains("407") && error.contains("HTTPS_PROXY"), "{error}");
}

#[tokio::test]
async fn exceptions_and_calls_without_tls_go_straight() {
    let (port, seen) = proxy(None).await;
    let url = format!("http://127.0.0.1:{port}");
    let is_straight = |exceptions: &str, target: &str| {
        let (endpoint, _) = Endpoint::of_url(target).unwrap();
        let client = ForwardProxy::of(&url, exceptions).client(endpoint).unwrap();
        async move {
            // Straight calls have no way out of this test.
            let request = Request::get("/").body(Body::empty()).unwrap();
            client.send(request).await.is_err_and(|error| error.to_string().contains("outside"))
        }
    };
    for (exceptions, target) in [
        ("idp.test", "https://idp.test/"),
        (".test, other", "https://idp.test/"),
        ("10.0.0.0/8", "https://10.1.2.3/"),
        ("*", "https://idp.test/"),
        ("", "http://idp.test/"),
    ] {
        assert!(is_straight(exceptions, target).await, "{exceptions} {target}");
    }
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_proxy_that_can_not_be_used_refuses_calls() {
    let target = || Endpoint::of_url("https://idp.test/").unwrap().0;
    for bad in ["https://proxy.test:3128", "socks5://proxy.test:1080", "http://", "::", "ftp://proxy.test"] {
        let problems = ForwardProxy::of(bad, "").client(target()).unwrap_err().to_string();
        assert!(problems.contains("HTTPS_PROXY"), "{bad}: {problems}");
    }
    for none in ["", " "] {
        assert!(ForwardProxy::of(none, "").client(target()).is_ok());
    }
    let shown = format!("{:?}", ForwardProxy::of("http://ann:secret@proxy.test:3128", ""));
    assert!(!shown.contains("secret"), "{shown}");
    // A proxy that is away, and one that says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let soon = Endpoint { timeout: Duration::from_millis(50), ..target() };
    let call =
        |proxy: ForwardProxy, endpoint| async move { answer_through(&proxy, endpoint).await.unwrap_err() };
    let error = call(ForwardProxy::of(&format!("http://127.0.0.1:{port}"), ""), soon).await;
    assert!(matches!(error.cause, Cause::ConnectTimeout | Cause::UpstreamTimeout), "{error}");
    drop(silent);
    let error = call(ForwardProxy::of(&format!("http://127.0.0.1:{port}"), ""), target()).await;
    assert_eq!(error.cause, Cause::ConnectFailed, "{error}");
}
