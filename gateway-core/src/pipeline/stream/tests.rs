//! How long a client waits for a target.

use std::net::SocketAddr;
use std::sync::Mutex;

use super::*;
use crate::http::exchange::Client;
use crate::plugin::World;
use crate::testing::Trial;

/// Targets that refuse at once, by their ports; others do not answer.
struct Refusing(&'static [u16], Mutex<Vec<u16>>);

impl Opener for Refusing {
    type Target = ();

    async fn open(&self, route: &Route, target: &Target, _session: &Session) -> Result<(), OpenFailure> {
        self.1.lock().expect("is not poisoned").push(target.rules.port);
        if !self.0.contains(&target.rules.port) {
            let answer = std::future::pending::<()>();
            assert!(tokio::time::timeout(route.proxy.timeouts.connect, answer).await.is_err());
        }
        Err(Cause::ConnectFailed.into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_for_two_targets_that_do_not_answer_at_the_most() {
    let targets: Vec<String> = (1..=5).map(|port| format!("{{host: 127.0.0.1, port: {port}}}")).collect();
    let spec = format!(
        "upstreams: [{{id: u, targets: [{}]}}]\nproxies: [{{id: t, backend_scheme: tcp, listen_port: 7000, upstream_id: u, \
         backend_connect_timeout: 1000ms}}]\n",
        targets.join(", ")
    );
    let trial = Trial::of_spec(&[], &spec, &World::default());
    let (_, route) = trial.snapshot.by_id.iter().next().expect("there is a proxy");
    let local = SocketAddr::from(([127, 0, 0, 1], 7000));
    for (refusing, expected_tries, seconds) in
        [(&[][..], 2, 2), (&[1, 2, 3, 4, 5], 5, 0), (&[2, 3, 4, 5], 5, 1)]
    {
        let session = Session::new(Arc::new(Client::new(local, local, false, None)));
        let (opener, begun) = (Refusing(refusing, Mutex::default()), Instant::now());
        assert!(open(&opener, route, &session).await.is_err());
        let tried = opener.1.lock().expect("is not poisoned").len();
        assert!(tried <= expected_tries && begun.elapsed().as_secs() <= seconds, "{refusing:?}: {tried}");
    }
}
