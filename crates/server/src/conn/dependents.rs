//! Replies that depend on changes which may still be lost: maps parts of the output to requests.
//!
//! In a namespace with the durability `sync`, a reply to a change is sent once the change is durable, and so is any
//! reply that shows the change. When a change is lost, each request that depends on it gets an error in place of its
//! own reply; the replies of all others stay as they are.

use larder_engine::Position;
use larder_protocol::{Form, Reply};
use larder_store::commit::Outcome;

use crate::conn::output::Output;
use crate::persistence::Persistence;

/// The parts of an output that depend on changes, in order.
#[derive(Debug, Default)]
pub(crate) struct Dependents {
    parts: Vec<Dependent>,
    /// The highest position that a reply waits for, including those whose client is not told of a loss; 0: none.
    position: Position,
}

/// The reply to a request, or the part of it that exists so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dependent {
    begin: usize,
    /// `None`: the rest of the reply follows.
    end: Option<usize>,
    position: Position,
    only_removes: bool,
    form: Form<'static>,
}

impl Dependents {
    /// Notes that the reply beginning at byte `begin` depends on this position. `learns`: its client learns of an
    /// error.
    pub(crate) fn push(
        &mut self,
        begin: usize,
        position: Position,
        only_removes: bool,
        form: &Form<'_>,
        learns: bool,
    ) {
        self.position = self.position.max(position);
        if learns {
            let form = form.without_request();
            self.parts.push(Dependent { begin, end: None, position, only_removes, form });
        }
    }

    /// Notes that the reply to a request ends at byte `end`.
    #[inline]
    pub(crate) fn end_request(&mut self, end: usize) {
        self.parts
            .iter_mut()
            .rev()
            .take_while(|part| part.end.is_none())
            .for_each(|part| part.end = Some(end));
    }

    /// The highest position that a reply waits for; 0: none.
    #[inline]
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Number of clients to be told of a loss.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if every change that the replies depend on is durable.
    pub(crate) fn are_durable(&self, persistence: &Persistence) -> bool {
        persistence.outcome(self.position) != Outcome::Pending
            && self.parts.iter().all(|part| part.outcome(persistence) == Outcome::Done)
    }

    /// The parts whose changes are lost. If several belong to one reply, only the first is returned.
    pub(crate) fn into_lost(self, persistence: &Persistence) -> Vec<Dependent> {
        let mut lost = self.parts;
        lost.retain(|part| part.outcome(persistence) == Outcome::Lost);
        let mut from = 0;
        lost.retain(|part| {
            let is_apart = part.begin >= from;
            if is_apart {
                from = part.end.unwrap_or(usize::MAX);
            }
            is_apart
        });
        lost
    }
}

impl Dependent {
    fn outcome(&self, persistence: &Persistence) -> Outcome {
        match self.only_removes {
            true => persistence.journal().removal_outcome(self.position),
            false => persistence.outcome(self.position),
        }
    }

    pub(crate) fn begin(&self) -> usize {
        self.begin
    }

    /// End of the reply in bytes; `None`: it is not complete yet.
    pub(crate) fn end(&self) -> Option<usize> {
        self.end
    }

    /// The bytes that the client gets in place of the reply, and whether the connection ends with them. A client that
    /// wanted no reply, or has already read the start of a list, cannot be told, and would mistake what follows for
    /// something else.
    pub(crate) fn refusal(&self, persistence: &Persistence) -> (Vec<u8>, bool) {
        if self.form.is_noreply() || matches!(self.form, Form::Http(form) if form.is_list()) {
            return (Vec::new(), true);
        }
        let reply = Reply::Error(persistence.loss(self.position));
        let mut out = Output::new(Vec::new());
        self.form.encode(&reply, &mut out);
        (out.into_whole_buffer(), self.form.ends_with(&reply))
    }
}
