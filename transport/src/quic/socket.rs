//! The UDP socket: buffers, and a bound on how much one send carries.

use std::{
    fmt, io,
    io::IoSliceMut,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Once},
    task::{Context, Poll},
};

use quinn::{
    AsyncUdpSocket, Endpoint, Runtime, ServerConfig, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use socket2::{Domain, Protocol, Socket, Type};

use super::profile::PathSettings;
use crate::awaited::Awaited;

/// Binds a socket and puts an endpoint on it, on the current tokio runtime.
///
/// # Errors
/// The system's, from binding.
pub(super) fn open_endpoint(
    address: SocketAddr,
    path: &PathSettings,
    server: Option<ServerConfig>,
    awaited: &Arc<Awaited>,
) -> io::Result<Endpoint> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    socket.bind(&address.into())?;
    enlarge_buffers(&socket);
    let runtime = Arc::new(TokioRuntime);
    let inner = runtime.wrap_udp_socket(socket.into())?;
    let socket = BoundedSocket::new(inner, path, Arc::clone(awaited));
    Endpoint::new_with_abstract_socket(path.endpoint_config(), server, Arc::new(socket), runtime)
}

/// Asks for the buffers, and says once if the system gives less.
///
/// A refusal is no error: smaller buffers work, but lose packets (2,700 in 0.8 s on loopback with the default).
fn enlarge_buffers(socket: &Socket) {
    static WARNED: Once = Once::new();
    let set = socket
        .set_recv_buffer_size(SOCKET_BUFFER)
        .and_then(|()| socket.set_send_buffer_size(SOCKET_BUFFER));
    let got = set.and_then(|()| {
        let recv = socket.recv_buffer_size()?;
        Ok((recv, socket.send_buffer_size()?))
    });
    let warning = match got {
        Ok((recv, send)) => shortfall(kept(recv), kept(send)),
        Err(error) => Some(format!("cannot set UDP socket buffers: {error}")),
    };
    if let Some(warning) = warning {
        WARNED.call_once(|| tracing::warn!("{warning}"));
    }
}

/// What the system keeps of the size that it reports: Linux doubles it for its own use.
fn kept(reported: usize) -> usize {
    if cfg!(target_os = "linux") {
        reported / 2
    } else {
        reported
    }
}

/// What is wrong with buffers of these sizes.
fn shortfall(recv: usize, send: usize) -> Option<String> {
    let buffers = [
        ("receive", recv, "net.core.rmem_max"),
        ("send", send, "net.core.wmem_max"),
    ];
    let short: Vec<_> = buffers
        .iter()
        .filter(|(_, bytes, _)| *bytes < SOCKET_BUFFER)
        .map(|(what, bytes, limit)| {
            format!("the {what} buffer has {bytes} bytes ({limit} limits it)")
        })
        .collect();
    (!short.is_empty()).then(|| {
        format!(
            "UDP socket buffers are small, {SOCKET_BUFFER} bytes are wanted: {}; packets are lost under load, which costs \
             speed: raise the limits with sysctl",
            short.join(", ")
        )
    })
}

/// A socket that tells quinn how many packets fit one send and one receive at this packet size.
///
/// quinn takes ten packets a send whatever their size. Above 64 KiB in total the system refuses the send, which is
/// taken for a lost probe, and the whole batch is gone.
///
/// It also says which dialled addresses something has come from.
struct BoundedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    awaited: Arc<Awaited>,
    send_segments: usize,
    receive_segments: usize,
}

impl BoundedSocket {
    fn new(inner: Arc<dyn AsyncUdpSocket>, path: &PathSettings, awaited: Arc<Awaited>) -> Self {
        static WARNED: Once = Once::new();
        if path.max_segments() > 1 && inner.max_transmit_segments() == 1 {
            WARNED.call_once(|| {
                tracing::warn!(
                    "this system has no UDP segmentation offload: expect a fifth to a third of the speed"
                );
            });
        }
        // A received batch has up to 64 KiB, whatever the peer's packet size; quinn's receive buffer is the product of
        // this number, the packet size and its batch of 32, so the stock 64 would take 133 MB on loopback.
        let whole_batch = usize::from(u16::MAX).div_ceil(usize::from(path.max_payload()));
        Self {
            send_segments: inner.max_transmit_segments().min(path.max_segments()),
            receive_segments: inner.max_receive_segments().min(whole_batch),
            awaited,
            inner,
        }
    }
}

impl fmt::Debug for BoundedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedSocket")
            .field("send_segments", &self.send_segments)
            .field("receive_segments", &self.receive_segments)
            .finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for BoundedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, bufs, meta);
        if let Poll::Ready(Ok(count)) = received {
            for packet in &meta[..count] {
                self.awaited.heard(packet.addr);
            }
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.send_segments
    }

    fn max_receive_segments(&self) -> usize {
        self.receive_segments
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// 4 MiB: no loss where the default of 208 KiB lost thousands of packets a second. Linux reports twice what it keeps.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clamped_buffers_are_named_with_what_limits_them() {
        assert_eq!(shortfall(SOCKET_BUFFER, SOCKET_BUFFER), None);
        let text = shortfall(212_992, SOCKET_BUFFER).unwrap();
        assert!(
            text.contains("the receive buffer has 212992 bytes (net.core.rmem_max"),
            "{text}"
        );
        assert!(
            text.contains("4194304 bytes are wanted") && !text.contains("wmem"),
            "{text}"
        );
        let text = shortfall(SOCKET_BUFFER, 1).unwrap();
        assert!(
            text.contains("wmem_max") && !text.contains("rmem"),
            "{text}"
        );
    }
}
