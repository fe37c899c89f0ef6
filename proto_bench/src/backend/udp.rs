//! A datagram echo: drains the socket each time it is readable.

use std::io;

use tokio::net::UdpSocket;

/// Serves one socket for ever.
pub(super) async fn run(socket: UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        match socket.try_recv_from(&mut buffer) {
            Ok((count, from)) => reply(&socket, &buffer[..count], from).await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.readable().await?,
            // ICMP errors of earlier replies are reported here and concern nobody any more.
            Err(_) => {}
        }
    }
}

async fn reply(socket: &UdpSocket, datagram: &[u8], to: std::net::SocketAddr) {
    if socket.try_send_to(datagram, to).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        // A reply that still cannot be sent is lost, and the generator will say so.
        drop(socket.send_to(datagram, to).await);
    }
}
