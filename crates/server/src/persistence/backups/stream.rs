//! The way of a backup to a client that takes it as a stream: pieces in a short queue.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::Pace;

/// Why a client did not get the stream to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientLoss {
    /// It has closed the connection.
    Gone,
    /// It took too little for too long.
    Slow,
}

impl fmt::Display for ClientLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the client has gone",
            Self::Slow => "the client has read too slowly",
        })
    }
}

/// How long a client is waited for: at most `max`, which it has at first. What it takes adds as much to it as the
/// slowest accepted client needs for that. Time in which the server has nothing to send does not count.
struct StallBudget {
    left: Duration,
    max: Duration,
}

impl StallBudget {
    fn new(max: Duration) -> Self {
        Self { left: max, max }
    }

    /// The client has taken bytes.
    fn refill(&mut self, bytes: u64) {
        let refilled = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SEC_MIN as f64);
        self.left = self.left.saturating_add(refilled).min(self.max);
    }

    /// The client was waited for. False: no longer.
    fn spend(&mut self, waited: Duration) -> bool {
        self.left = self.left.saturating_sub(waited);
        !self.left.is_zero()
    }
}

/// The end at which a stream is written.
pub(super) struct StreamSender {
    pieces: Sender<Vec<u8>>,
    is_complete: Arc<AtomicBool>,
    loss: OnceLock<ClientLoss>,
    /// How long a client may take nothing.
    stall_max: Duration,
    /// Ends when the stream has, whether or not the client has read it.
    _producer: Arc<()>,
}

/// The end at which a stream is read.
pub(crate) struct StreamReceiver {
    pieces: Receiver<Vec<u8>>,
    is_complete: Arc<AtomicBool>,
    pub(crate) producer: Producer,
}

impl StreamReceiver {
    /// The next piece. A stream that was cut has an error at its end, which no queue is too full for.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        Poll::Ready(match ready!(self.pieces.poll_recv(cx)) {
            Some(piece) => Some(Ok(piece)),
            None if self.is_complete.swap(true, SeqCst) => None,
            None => Some(Err(io::Error::other("the backup was cut"))),
        })
    }
}

/// Whether a stream is still written.
#[derive(Clone, Debug)]
pub(crate) struct Producer(Weak<()>);

impl Producer {
    pub(crate) fn is_writing(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// A stream to a client that may take nothing for so long.
pub(super) fn stream(stall_max: Duration) -> (StreamSender, StreamReceiver) {
    let (sender, pieces) = channel(PIECES_MAX);
    let running = Arc::new(());
    let producer = Producer(Arc::downgrade(&running));
    let is_complete = Arc::new(AtomicBool::new(false));
    let receiver = StreamReceiver { pieces, is_complete: Arc::clone(&is_complete), producer };
    let loss = OnceLock::new();
    (StreamSender { pieces: sender, is_complete, loss, stall_max, _producer: running }, receiver)
}

impl StreamSender {
    /// Why the client did not get all, if that is why the stream has ended.
    pub(super) fn loss(&self) -> Option<ClientLoss> {
        self.loss.get().copied()
    }

    fn lose(&self, loss: ClientLoss) -> io::Error {
        io::Error::other(self.loss.get_or_init(|| loss).to_string())
    }

    /// Waits until all was taken. Without this the stream is cut.
    pub(super) fn drain(&self, pace: &Pace) -> io::Result<()> {
        let began = Instant::now();
        while self.pieces.capacity() < PIECES_MAX {
            if self.pieces.is_closed() {
                return Err(self.lose(ClientLoss::Gone));
            }
            if began.elapsed() > self.stall_max {
                return Err(self.lose(ClientLoss::Slow));
            }
            pace.pause(FULL_PAUSE)?;
        }
        self.is_complete.store(true, SeqCst);
        Ok(())
    }
}

/// Writes at a pace.
pub(super) struct StreamWriter {
    sender: Arc<StreamSender>,
    pace: Arc<Pace>,
    stall_budget: StallBudget,
    piece: Vec<u8>,
}

impl StreamWriter {
    pub(super) fn new(sender: Arc<StreamSender>, pace: Arc<Pace>) -> Self {
        let stall_budget = StallBudget::new(sender.stall_max);
        Self { sender, pace, stall_budget, piece: Vec::with_capacity(PIECE_BYTES) }
    }

    fn send(&mut self) -> io::Result<()> {
        let mut piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let bytes = piece.len() as u64;
        let mut began = Instant::now();
        loop {
            match self.sender.pieces.try_send(piece) {
                Ok(()) => {
                    // There is room for it since the client has taken one, or has not had to yet.
                    self.stall_budget.refill(bytes);
                    return self.pace.spend(bytes);
                }
                Err(TrySendError::Closed(_)) => return Err(self.sender.lose(ClientLoss::Gone)),
                Err(TrySendError::Full(back)) => piece = back,
            }
            self.pace.pause(FULL_PAUSE)?;
            let now = Instant::now();
            if !self.stall_budget.spend(now - began) {
                return Err(self.sender.lose(ClientLoss::Slow));
            }
            began = now;
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

const PIECE_BYTES: usize = 256 << 10;
/// In the queue.
const PIECES_MAX: usize = 4;
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// A client that takes nothing for so long is given up: files that cleaning has removed keep their room meanwhile, and
/// nobody else can take a backup.
pub(super) const STALL_MAX: Duration = Duration::from_secs(60);
/// So is one that takes less than this: it would do both for days.
const BYTES_PER_SEC_MIN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> (StreamWriter, StreamReceiver) {
        let (sender, receiver) = stream(STALL_MAX);
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
            arrived.extend(piece);
        }
        assert_eq!(arrived, bytes);
    }

    #[test]
    fn a_client_is_waited_for_as_long_as_it_takes_enough() {
        // A piece of 256 KiB each four seconds is the least.
        let mut stall_budget = StallBudget::new(STALL_MAX);
        for _ in 0..100_000 {
            assert!(stall_budget.spend(Duration::from_secs(4)));
            stall_budget.refill(PIECE_BYTES as u64);
        }
        // One a minute, with which a gigabyte would take three days.
        let mut stall_budget = StallBudget::new(STALL_MAX);
        let taken = (0..4_096).take_while(|_| {
            let waits = stall_budget.spend(Duration::from_secs(50));
            stall_budget.refill(PIECE_BYTES as u64);
            waits
        });
        assert_eq!(taken.count(), 1);
        // Nothing.
        assert!(!StallBudget::new(STALL_MAX).spend(Duration::from_secs(60)));
    }

    /// Who sees the end of the connection alone takes it for the end of a backup.
    #[test]
    fn a_stream_that_is_cut_ends_with_an_error_however_full_its_queue_is() {
        let pieces_of = |receiver: &mut StreamReceiver| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let next = || match receiver.poll_piece(&mut cx) {
                Poll::Ready(piece) => piece.map(|piece| piece.is_ok()),
                Poll::Pending => panic!("its writer has ended"),
            };
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        let (mut writer, mut receiver) = writer();
        writer.write_all(&vec![0; PIECE_BYTES * PIECES_MAX]).expect("there is room");
        drop(writer);
        assert_eq!(pieces_of(&mut receiver), [true, true, true, true, false]);

        let (sender, mut receiver) = stream(STALL_MAX);
        sender.drain(&Pace::default()).expect("nothing is left");
        drop(sender);
        assert!(pieces_of(&mut receiver).is_empty());
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
