//! The client's end of a connection.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use larder_client::Address;
use larder_client::async_client::{Connecting, Connector, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};

use crate::backing::lock;

/// What a connection has of the client's bytes, and for the client.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// Sent by the client, and not on its way yet.
    pub(super) sent: VecDeque<u8>,
    /// So much of it there may be.
    pub(super) window: usize,
    pub(super) arrived: VecDeque<u8>,
    /// What comes after that.
    pub(super) end: Option<End>,
    pub(super) is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    Reset,
}

impl Wire {
    pub(super) fn new(window: usize) -> Self {
        Self { window, ..Self::default() }
    }

    /// Whoever waits looks again.
    pub(super) fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// What clients have done since the network looked.
#[derive(Debug, Default)]
pub(super) struct Board {
    news: Mutex<News>,
    pub(super) notify: Notify,
}

#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) asked: Vec<Ask>,
    /// Connections on which something was sent, or which were closed.
    pub(super) touched: Vec<usize>,
}

/// Somebody wants a connection.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) address: Address,
    pub(super) answer: oneshot::Sender<io::Result<SimSocket>>,
}

impl Board {
    pub(super) fn take(&self) -> News {
        std::mem::take(&mut *lock(&self.news))
    }

    fn touch(&self, link: usize) {
        lock(&self.news).touched.push(link);
        self.notify.notify_one();
    }
}

/// Connects through the network.
#[derive(Debug)]
pub(super) struct SimConnector(pub(super) Arc<Board>);

impl Connector for SimConnector {
    fn connect(&self, address: &Address) -> Connecting {
        let (answer, opened) = oneshot::channel();
        lock(&self.0.news).asked.push(Ask { address: address.clone(), answer });
        self.0.notify.notify_one();
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let socket = opened.await.map_err(|_| refused())??;
            Ok(Box::new(socket) as Box<dyn Transport>)
        })
    }
}

#[derive(Debug)]
pub(super) struct SimSocket {
    pub(super) link: usize,
    pub(super) wire: Arc<Mutex<Wire>>,
    pub(super) board: Arc<Board>,
}

impl AsyncRead for SimSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = lock(&self.wire);
        let bytes = wire.arrived.len().min(buffer.remaining());
        if bytes > 0 {
            let taken: Vec<u8> = wire.arrived.drain(..bytes).collect();
            buffer.put_slice(&taken);
            return Poll::Ready(Ok(()));
        }
        match wire.end {
            Some(End::Closed) => Poll::Ready(Ok(())),
            Some(End::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => {
                wire.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for SimSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut wire = lock(&self.wire);
        if wire.end == Some(End::Reset) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = wire.window.saturating_sub(wire.sent.len()).min(bytes.len());
        if room == 0 {
            wire.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        wire.sent.extend(&bytes[..room]);
        drop(wire);
        self.board.touch(self.link);
        Poll::Ready(Ok(room))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        lock(&self.wire).is_closed = true;
        self.board.touch(self.link);
    }
}
