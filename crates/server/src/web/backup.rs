//! `GET /api/backup`: a backup of the store as a stream, to who shows the token of `--backup-token-file`.
//!
//! The token is not that of the other paths: who may read figures may not read all items.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use larder_protocol::Error;

use super::state::State;
use crate::conn::client::Peer;
use crate::persistence::backups::StreamReceiver;

pub(super) const PATH: &str = "/api/backup";

/// What a response has: a text, or a stream.
pub(super) type Content = Either<Full<Bytes>, Stream>;

/// The bytes of a backup. A stream that cannot go on ends with an error, which ends the connection.
pub(super) struct Stream(StreamReceiver);

impl Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = ready!(self.0.poll_piece(cx));
        Poll::Ready(piece.map(|piece| piece.map(|bytes| Frame::data(bytes.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// Begins a backup for a client. Errors: there is no store, or another backup is taken.
pub(super) fn begin(client: Peer, state: &State) -> Result<StreamReceiver, Error> {
    let persistence = state.shared.persistence.as_ref().ok_or(Error::BackupNotAllowed)?;
    persistence.backups.begin_stream(client)
}

/// The body of a response.
pub(super) fn stream(receiver: StreamReceiver) -> Content {
    Either::Right(Stream(receiver))
}
