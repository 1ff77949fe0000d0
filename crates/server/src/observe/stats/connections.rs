//! `stats conns`.

use super::Lines;
use crate::conn::client::Peer;
use crate::shared::Shared;

pub(super) fn report(shared: &Shared, lines: &mut Lines) {
    let now_secs = shared.clock.now().secs;
    let sockets = shared.connection_table.sockets();
    for socket in &sockets {
        let fd = socket.fd;
        if socket.is_udp {
            lines.add(format_args!("{fd}:UDP"), "UDP");
        }
        lines.add(format_args!("{fd}:addr"), &socket.address);
        lines.add(format_args!("{fd}:state"), if socket.is_udp { "conn_read" } else { "conn_listening" });
        // Since the start: listeners run no commands.
        lines.add(format_args!("{fd}:secs_since_last_cmd"), now_secs);
    }
    for client in shared.connection_table.clients() {
        let fd = client.fd;
        match client.peer {
            // A client of a Unix socket has no address, and the server's says nothing about the client.
            Peer::Unix => lines.add(format_args!("{fd}:addr"), "unix:"),
            peer => lines.add(format_args!("{fd}:addr"), peer),
        }
        if let Some(listener) = sockets.get(usize::from(client.listener)) {
            lines.add(format_args!("{fd}:listen_addr"), &listener.address);
        }
        lines.add(format_args!("{fd}:state"), client.state().name());
        let idle_secs = now_secs.saturating_sub(client.input_secs());
        lines.add(format_args!("{fd}:secs_since_last_cmd"), idle_secs);
    }
}
