//! A SASL exchange (RFC 4422), as memcached's binary protocol carries it: a start with a mechanism's name, steps, an
//! outcome.

use crate::scram::Pending;
use crate::{Table, plain};

/// What a connection remembers between the messages of an exchange.
#[derive(Debug, Default)]
pub struct Exchange {
    state: State,
    /// Who was let in last.
    user: Vec<u8>,
}

#[derive(Debug, Default)]
enum State {
    /// None was started, or the last one has ended.
    #[default]
    None,
    /// SCRAM: the client's proof is next.
    Scram(Box<Pending>),
    /// SCRAM: the client has proved to be this user, and has to take notice of the server's proof by an empty message.
    Proven(Vec<u8>),
}

/// What a message led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client may come in.
    Authenticated,
    /// The client has to answer this.
    Challenge(String),
    /// The exchange is over. The client may start another.
    Failed,
    /// Nothing happened: a password is to be checked, not now. To be asked again.
    NotNow,
}

impl Exchange {
    /// Starts an exchange, whatever was before. `check` checks a user's password; `None` from it: not now.
    pub fn start(
        &mut self,
        table: &Table,
        mechanism: &[u8],
        message: &[u8],
        check: impl FnOnce(&[u8], &[u8]) -> Option<bool>,
    ) -> Outcome {
        self.state = State::None;
        match mechanism {
            b"PLAIN" => match plain::parse(message).map(|(user, password)| (user, check(user, password))) {
                Some((user, Some(true))) => {
                    self.user = user.to_vec();
                    Outcome::Authenticated
                }
                Some((_, None)) => Outcome::NotNow,
                _ => Outcome::Failed,
            },
            b"SCRAM-SHA-256" => match Pending::start(table, message) {
                Some((pending, challenge)) => {
                    self.state = State::Scram(Box::new(pending));
                    Outcome::Challenge(challenge)
                }
                None => Outcome::Failed,
            },
            _ => Outcome::Failed,
        }
    }

    /// Goes on with an exchange. A message that does not fit ends it.
    pub fn step(&mut self, mechanism: &[u8], message: &[u8]) -> Outcome {
        match std::mem::take(&mut self.state) {
            State::Scram(pending) if mechanism == b"SCRAM-SHA-256" => match pending.finish(message) {
                Some(proof) => {
                    self.state = State::Proven(pending.into_user());
                    Outcome::Challenge(proof)
                }
                None => Outcome::Failed,
            },
            State::Proven(user) if mechanism == b"SCRAM-SHA-256" && message.is_empty() => {
                self.user = user;
                Outcome::Authenticated
            }
            _ => Outcome::Failed,
        }
    }

    /// How many bytes of messages it keeps for the next step. A client may choose that: it sends most of them.
    pub fn kept_bytes(&self) -> usize {
        match &self.state {
            State::Scram(pending) => pending.kept_bytes(),
            State::None | State::Proven(_) => 0,
        }
    }

    /// The user that [`Outcome::Authenticated`] let in last; empty before.
    pub fn user(&self) -> &[u8] {
        &self.user
    }
}

/// The mechanisms, as a server lists them: the better one first.
pub const MECHANISMS: &str = "SCRAM-SHA-256 PLAIN";
/// memcached's limit on a mechanism's name.
pub const MECHANISM_BYTES_MAX: usize = 32;
