//! DTLS 1.2: webrtc-dtls, which the gateway does not use, shakes hands; records are then ours, because its channels
//! between tasks would cost more than the server under test.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use webrtc_dtls::cipher_suite::CipherSuiteId;
use webrtc_dtls::config::{Config, ExtendedMasterSecretType};
use webrtc_dtls::conn::DTLSConn;

use super::udp::connected_socket;
use super::{Driver, Fault, Lane, NewConnection, Pattern, Stamp, VerifiedAnswer};
use crate::plan::Plan;
use crate::tls;

pub mod gate;
pub mod record;

use gate::Gate;
use record::{Content, Records};

/// Opens DTLS associations.
pub struct Dtls {
    address: SocketAddr,
    host: String,
    pattern: Rc<Pattern>,
}

/// One association on a socket of its own.
pub struct Association {
    socket: Arc<UdpSocket>,
    records: Records,
    pattern: Rc<Pattern>,
    payload: Vec<u8>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// A record holds this much at most (RFC 6347 §4.1.1).
pub const LARGEST: usize = 16 * 1024;

impl Dtls {
    /// Prepares what all connections of a thread share.
    ///
    /// # Errors
    /// What makes every connection impossible, such as an unreadable root certificate.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        tls::install_process_provider();
        if plan.message.payload > LARGEST {
            return Err(Fault::protocol(format!("a DTLS record holds {LARGEST} bytes at most")));
        }
        Ok(Self {
            address: plan.address(),
            host: plan.target.host.clone(),
            pattern: Rc::new(Pattern::new(plan.message.payload.max(1))),
        })
    }
}

impl Driver for Dtls {
    type Lane = Association;

    async fn connect(&self) -> Result<NewConnection<Association>, Fault> {
        let socket = Arc::new(connected_socket(self.address).await?);
        let gate = Arc::new(Gate::new(Arc::clone(&socket), Vec::new()));
        let config = Config { insecure_skip_verify: true, server_name: self.host.clone(), ..common_config() };
        let connection =
            DTLSConn::new(Arc::clone(&gate) as _, config, true, None).await.map_err(Fault::handshake)?;
        gate.close();
        let records = Records::take_over(&connection, true).await?;
        let size = self.pattern.size();
        let lane = Association {
            socket,
            records,
            pattern: Rc::clone(&self.pattern),
            payload: vec![0; size],
            sent: Vec::with_capacity(size + record::OVERHEAD),
            received: vec![0; LARGEST + record::OVERHEAD],
        };
        Ok(NewConnection { lanes: vec![lane], negotiated: Some(record::NEGOTIATED.to_owned()) })
    }
}

/// What both ends ask for: the one suite whose records are implemented here.
#[must_use]
pub fn common_config() -> Config {
    Config {
        cipher_suites: vec![CipherSuiteId::Tls_Ecdhe_Ecdsa_With_Aes_128_Gcm_Sha256],
        extended_master_secret: ExtendedMasterSecretType::Require,
        // The second that is usual between flights would make opening many associations wait for single losses.
        flight_interval: Duration::from_millis(250),
        ..Config::default()
    }
}

impl Lane for Association {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        self.pattern.write(stamp, &mut self.payload);
        self.records.seal(Content::Application, &self.payload, &mut self.sent)?;
        self.socket.send(&self.sent).await?;
        loop {
            let count = self.socket.recv(&mut self.received).await?;
            match self.records.open(&mut self.received[..count])? {
                Some((Content::Application, payload)) => {
                    self.pattern.check(stamp, payload)?;
                    return Ok(VerifiedAnswer::message(payload.len()));
                }
                Some((Content::Alert, _)) => return Err(Fault::Closed),
                // A flight of the handshake that was sent twice.
                None => {}
            }
        }
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        // Sends close_notify, so that the server can forget the association; if it does not fit, the server's timeout must.
        if self.records.seal(Content::Alert, &record::CLOSE_NOTIFY, &mut self.sent).is_ok() {
            drop(self.socket.try_send(&self.sent));
        }
    }
}
