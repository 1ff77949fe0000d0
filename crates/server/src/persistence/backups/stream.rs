//! The way of a backup to a client that takes it as a stream: pieces in a short queue.

use std::io::{self, Write};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::Pace;

/// A piece, or why there are no more.
pub(super) type Piece = io::Result<Vec<u8>>;

/// The end at which a stream is written.
pub(super) struct StreamSender {
    pieces: Sender<Piece>,
    /// Ends when the stream has, whether or not the client has read it.
    _producer: Arc<()>,
}

/// The end at which a stream is read.
pub(crate) struct StreamReceiver {
    pub(crate) pieces: Receiver<Piece>,
    pub(crate) producer: Producer,
}

/// Whether a stream is still written.
#[derive(Clone, Debug)]
pub(crate) struct Producer(Weak<()>);

impl Producer {
    pub(crate) fn is_writing(&self) -> bool {
        self.0.strong_count() > 0
    }
}

pub(super) fn stream() -> (StreamSender, StreamReceiver) {
    let (sender, pieces) = channel(PIECES_MAX);
    let running = Arc::new(());
    let producer = Producer(Arc::downgrade(&running));
    (StreamSender { pieces: sender, _producer: running }, StreamReceiver { pieces, producer })
}

impl StreamSender {
    /// Tells the client that the stream is cut, if it still listens.
    pub(super) fn cut(&self, why: &str) {
        let _ = self.pieces.try_send(Err(io::Error::other(why.to_owned())));
    }

    /// Waits until all was taken.
    pub(super) fn drain(&self, pace: &Pace) -> io::Result<()> {
        let began = Instant::now();
        while self.pieces.capacity() < PIECES_MAX {
            if self.pieces.is_closed() {
                return Err(gone());
            }
            if began.elapsed() > STALL_MAX {
                return Err(stalled());
            }
            pace.pause(FULL_PAUSE)?;
        }
        Ok(())
    }
}

/// Writes at a pace.
pub(super) struct StreamWriter {
    sender: Arc<StreamSender>,
    pace: Arc<Pace>,
    piece: Vec<u8>,
}

impl StreamWriter {
    pub(super) fn new(sender: Arc<StreamSender>, pace: Arc<Pace>) -> Self {
        Self { sender, pace, piece: Vec::with_capacity(PIECE_BYTES) }
    }

    fn send(&mut self) -> io::Result<()> {
        let mut piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let bytes = piece.len() as u64;
        let began = Instant::now();
        loop {
            match self.sender.pieces.try_send(Ok(piece)) {
                Ok(()) => return self.pace.spend(bytes),
                Err(TrySendError::Closed(_)) => return Err(gone()),
                Err(TrySendError::Full(Ok(_) | Err(_))) if began.elapsed() > STALL_MAX => {
                    return Err(stalled());
                }
                Err(TrySendError::Full(back)) => piece = back?,
            }
            self.pace.pause(FULL_PAUSE)?;
        }
    }
}

impl Write for StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..count]);
        if self.piece.len() == PIECE_BYTES {
            self.send()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}

fn gone() -> io::Error {
    io::Error::other("the client has gone")
}

fn stalled() -> io::Error {
    io::Error::other("the client has stopped reading")
}

const PIECE_BYTES: usize = 256 << 10;
/// In the queue.
const PIECES_MAX: usize = 4;
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// A client that takes nothing for so long is given up: files that cleaning has removed keep their room meanwhile.
const STALL_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> (StreamWriter, StreamReceiver) {
        let (sender, receiver) = stream();
        (StreamWriter::new(Arc::new(sender), Arc::default()), receiver)
    }

    #[test]
    fn what_is_written_arrives_in_pieces() {
        let (mut writer, mut receiver) = writer();
        let bytes: Vec<u8> = (0..PIECE_BYTES + 1000).map(|nth| nth as u8).collect();
        writer.write_all(&bytes).expect("there is room");
        writer.flush().expect("there is room");
        assert!(receiver.producer.is_writing());
        drop(writer);
        assert!(!receiver.producer.is_writing());
        let mut arrived = Vec::new();
        while let Some(piece) = receiver.pieces.blocking_recv() {
            arrived.extend(piece.expect("no error"));
        }
        assert_eq!(arrived, bytes);
    }

    #[test]
    fn a_client_that_has_gone_ends_the_stream() {
        let (mut writer, receiver) = writer();
        drop(receiver);
        let error = writer.write_all(&vec![0; PIECE_BYTES]).expect_err("nobody reads");
        assert_eq!(error.to_string(), "the client has gone");
    }

    #[test]
    fn a_stop_ends_a_stream_that_nobody_reads() {
        let (mut writer, _receiver) = writer();
        let pace = Arc::clone(&writer.pace);
        std::thread::scope(|scope| {
            let stuck = scope.spawn(|| writer.write_all(&vec![0; PIECE_BYTES * (PIECES_MAX + 2)]));
            pace.is_stopping.store(true, std::sync::atomic::Ordering::SeqCst);
            let error = stuck.join().expect("no panic").expect_err("it stops");
            assert_eq!(error.to_string(), "the server stops");
        });
    }
}
