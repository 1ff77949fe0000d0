//! What a session says to whoever feeds it.

use larder_protocol::admin::Streams;

use crate::exec::{CloseReason, Done};

/// What [`crate::conn::session::Session::feed`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes of input that are done with. The rest is to be kept and given again, with what follows it.
    pub consumed: usize,
    /// Requests answered.
    pub requests: u32,
    /// What to do next.
    pub status: FeedStatus,
}

/// What to do after [`crate::conn::session::Session::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedStatus {
    /// Everything answerable is answered: read more.
    NeedInput,
    /// Enough for now: write the output, let others have their turn, and feed the rest (even if that is nothing).
    Yield,
    /// Something other than the client makes it wait, for milliseconds: feed the rest again later.
    Later,
    /// The engine needs a new turn: leave this one, enter another, feed the rest (even if that is nothing).
    TryAgain,
    /// Write the output; from then on the client is told what happens, and nothing else.
    Watch(Streams),
    /// Write the output and close.
    Close(CloseReason),
}

/// Where the next bytes from the socket belong.
pub enum Window<'u> {
    /// Nowhere in particular: read into a buffer and feed.
    None,
    /// Here; then call [`crate::conn::session::Session::filled`], and ask again.
    Fill(&'u mut [u8]),
    /// Ask again in a new turn.
    TryAgain,
}

/// What a piece of [`crate::conn::session::Session::feed`]'s work did.
pub(crate) struct Step {
    pub(crate) consumed: usize,
    pub(crate) requests: u32,
    /// `None`: go on.
    pub(crate) status: Option<FeedStatus>,
}

impl Step {
    pub(crate) fn go_on(consumed: usize) -> Self {
        Self { consumed, requests: 0, status: None }
    }

    pub(crate) fn stop(consumed: usize, status: FeedStatus) -> Self {
        Self { consumed, requests: 0, status: Some(status) }
    }

    pub(crate) fn close_if(&mut self, done: Done) {
        if let Done::Close(reason) = done {
            self.status = Some(FeedStatus::Close(reason));
        }
    }
}
