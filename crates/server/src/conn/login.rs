//! A client before its login. Its input goes here instead of to the executor, so nothing is executed, looked up or
//! allocated for a client that has not logged in.

use std::time::Instant;

use larder_auth::{Exchange, MECHANISM_BYTES_MAX, Outcome};
use larder_protocol::command::{Command, Sasl};
use larder_protocol::text::{TextForm, split_line};
use larder_protocol::{Dialect, Error, Form, Reply};

use crate::conn::authenticator::{Authenticator, Scheme};
use crate::conn::batch::Frame;
use crate::conn::buffer_budget::BufferCharge;
use crate::conn::login_queue::LoginAttempt;
use crate::conn::session::{CloseReason, Next, Progress};
use crate::conn::waiter::Waiting;
use crate::exec::{Done, Executor, Value};

/// The state of a connection's login.
#[derive(Default)]
pub(crate) struct Login {
    is_done: bool,
    /// Who has logged in last; of the users of the password file, so short.
    user: Vec<u8>,
    exchange: Exchange,
    /// For what the exchange keeps.
    charge: BufferCharge,
    attempt: LoginAttempt,
}

impl Login {
    /// True if the client may execute commands.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Who has logged in.
    pub(crate) fn user(&self) -> Option<&[u8]> {
        self.is_done.then_some(&self.user)
    }

    /// Starts a new login. The client is logged out until it succeeds.
    pub(crate) fn begin_again(&mut self) {
        self.is_done = false;
    }

    /// Handles the head of the input, which is not empty.
    pub(crate) fn serve(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        authenticator: &Authenticator,
        input: &[u8],
        progress: &mut Progress,
    ) -> Option<Next> {
        match authenticator.scheme() {
            Scheme::Ascii => self.serve_ascii(executor, authenticator, input, progress),
            Scheme::Sasl => self.serve_sasl(executor, authenticator, input, progress),
        }
    }

    fn serve_ascii(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        authenticator: &Authenticator,
        input: &[u8],
        progress: &mut Progress,
    ) -> Option<Next> {
        let (reply, consumed) = match Token::of(input) {
            Token::NeedInput => return Some(Next::Read),
            Token::Close => return Some(Next::Close(CloseReason::Error)),
            Token::Refused { error, bytes } => (Reply::Error(error), bytes),
            Token::Login { user, password, bytes } => {
                match self.check(executor, authenticator, user, password) {
                    Err(when) => return Some(Next::Wait(Waiting::Until(when))),
                    Ok(true) => (Reply::Stored { cas: 0, value_bytes: 0, is_new: false }, bytes),
                    Ok(false) => (Reply::Error(Error::AuthFailure), bytes),
                }
            }
        };
        let _ = executor.answer(&Form::Text(TextForm::default()), &reply);
        progress.consumed += consumed;
        progress.requests += 1;
        None
    }

    /// Serves `version` and the SASL commands. Any other request is refused, even if it has not arrived whole, and
    /// closes the connection.
    fn serve_sasl(
        &mut self,
        executor: &mut Executor<'_, '_, '_, '_>,
        authenticator: &Authenticator,
        input: &[u8],
        progress: &mut Progress,
    ) -> Option<Next> {
        let (request, bytes) = match Frame::of(Dialect::Binary, input, 0) {
            Frame::Whole { request, bytes, .. } => (request, bytes),
            Frame::Head { request, .. } => (request, input.len()),
            Frame::NoHead => return Some(Next::Read),
            Frame::Close => return Some(Next::Close(CloseReason::Error)),
        };
        let done = match request.command {
            Command::Version | Command::Sasl(Sasl::Mechanisms) => {
                executor.execute(&request, None, Value::Whole(&[]))
            }
            Command::Sasl(Sasl::Start { mechanism, .. }) if mechanism.len() > MECHANISM_BYTES_MAX => {
                executor.answer(&request.form, &Reply::Error(Error::BadFormat))
            }
            Command::Sasl(Sasl::Start { mechanism, data }) => {
                let mut when = None;
                let (attempt, origin) = (&mut self.attempt, executor.cx.client.peer.ip());
                let check = |user: &[u8], password: &[u8]| {
                    let outcome = authenticator.check(attempt, origin, user, password);
                    outcome.map_err(|next_check| when = Some(next_check)).ok()
                };
                let outcome = self.exchange.start(&authenticator.table(), mechanism, data, check);
                if let Some(when) = when {
                    return Some(Next::Wait(Waiting::Until(when)));
                }
                if !self.charge.resize(&executor.cx.shared.buffers, self.exchange.kept_bytes()) {
                    return Some(Next::Close(CloseReason::Error));
                }
                self.answer(executor, &request.form, outcome)
            }
            Command::Sasl(Sasl::Step { mechanism, data }) => {
                let outcome = self.exchange.step(mechanism, data);
                self.charge.resize(&executor.cx.shared.buffers, self.exchange.kept_bytes());
                self.answer(executor, &request.form, outcome)
            }
            _ => {
                let _ = executor.answer(&request.form, &Reply::Error(Error::Unauthenticated));
                Done::Close(CloseReason::Error)
            }
        };
        progress.consumed += bytes;
        progress.requests += 1;
        match done {
            Done::Close(reason) => Some(Next::Close(reason)),
            _ => None,
        }
    }

    /// Answers and counts the result of a message of a SASL exchange.
    fn answer(&mut self, executor: &mut Executor<'_, '_, '_, '_>, form: &Form<'_>, outcome: Outcome) -> Done {
        let counters = executor.cx.counters;
        match outcome {
            Outcome::Challenge(challenge) => executor.answer(form, &Reply::Challenge(challenge.as_bytes())),
            Outcome::Authenticated => {
                counters.auth_cmds.add(1);
                self.is_done = true;
                self.user = self.exchange.user().to_vec();
                executor.answer(form, &Reply::LoggedIn(b"Authenticated"))
            }
            Outcome::Failed | Outcome::NotNow => {
                counters.auth_cmds.add(1);
                note_failure(executor);
                executor.answer(form, &Reply::Error(Error::AuthFailure))
            }
        }
    }

    /// Checks a password, counts the result, and lets the client in. `Err`: try again at that moment.
    fn check(
        &mut self,
        executor: &Executor<'_, '_, '_, '_>,
        authenticator: &Authenticator,
        user: &[u8],
        password: &[u8],
    ) -> Result<bool, Instant> {
        let is_right =
            authenticator.check(&mut self.attempt, executor.cx.client.peer.ip(), user, password)?;
        executor.cx.counters.auth_cmds.add(1);
        if !is_right {
            note_failure(executor);
        }
        self.is_done = is_right;
        if is_right {
            self.user = user.to_vec();
        }
        Ok(is_right)
    }
}

/// Counts a failed login, and logs it at a bounded rate: guessing passwords must not fill the journal. The user name is
/// not logged, since people type their password there.
fn note_failure(executor: &Executor<'_, '_, '_, '_>) {
    let cx = executor.cx;
    cx.counters.auth_errors.add(1);
    if let Some(times) = cx.shared.failed_logins.happened(cx.shared.clock.now().secs) {
        tracing::warn!(client = %cx.client.peer, times, "login failed");
    }
}

/// A login of the text dialect, or the request in its place.
///
/// memcached, doc/protocol.txt, "Authentication": `set <key> <flags> <exptime> <bytes>\r
/// <username> <password>\r
/// `, where key, flags and exptime are ignored.
#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    NeedInput,
    Close,
    Refused { error: Error, bytes: usize },
    Login { user: &'a [u8], password: &'a [u8], bytes: usize },
}

impl<'a> Token<'a> {
    fn of(input: &'a [u8]) -> Self {
        // A lone line end is waited on, as memcached does.
        if input.len() <= b"\r\n".len() {
            return Self::NeedInput;
        }
        let Some((line, line_bytes)) = split_line(&input[..input.len().min(LINE_BYTES_MAX + 1)], 0) else {
            return if input.len() > LINE_BYTES_MAX { Self::Close } else { Self::NeedInput };
        };
        if line_bytes <= LINE_BYTES_MIN {
            return Self::Close;
        }
        let Some(token_bytes) = announced_bytes(line) else {
            return Self::Refused { error: Error::Unauthenticated, bytes: line_bytes };
        };
        if token_bytes > TOKEN_BYTES_MAX {
            return Self::Refused { error: Error::AuthTokenTooLong, bytes: line_bytes };
        }
        let bytes = line_bytes + token_bytes + b"\r\n".len();
        let Some(block) = input.get(line_bytes..bytes) else { return Self::NeedInput };
        let Some(token) = block.strip_suffix(b"\r\n") else {
            return Self::Refused { error: Error::BadAuthTermination, bytes };
        };
        match token.iter().position(|byte| *byte == b' ') {
            Some(space) => Self::Login { user: &token[..space], password: &token[space + 1..], bytes },
            None => Self::Refused { error: Error::BadAuthToken, bytes },
        }
    }
}

/// The size of user and password that a login's command line announces. `None`: it is no login.
fn announced_bytes(line: &[u8]) -> Option<usize> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    (words.next()? == b"set").then_some(())?;
    let number = std::str::from_utf8(words.nth(3)?).ok()?.parse::<u32>().ok()?;
    usize::try_from(number).ok()
}

/// memcached looks no further for the end of a line.
const LINE_BYTES_MAX: usize = 2048;
/// memcached closes the connection at a line shorter than this, not counting its LF.
const LINE_BYTES_MIN: usize = 6;
/// memcached's limit on user and password.
const TOKEN_BYTES_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_told_from_everything_else() {
        let login = |user, password, bytes| Token::Login { user, password, bytes };
        let refused = |error, bytes| Token::Refused { error, bytes };
        let too_long = [b'x'; LINE_BYTES_MAX + 1];
        for (input, token) in [
            (&b"set a 0 0 3\r\na b\r\n"[..], login(&b"a"[..], &b"b"[..], 18)),
            (b"set a 0 0 3\na b\r\n", login(b"a", b"b", 17)),
            (b"set x y z 7 noreply or not\r\na b c:d\r\nget a\r\n", login(b"a", b"b c:d", 37)),
            (b"set a 0 0 2\r\n b\r\n", login(b"", b"b", 17)),
            (b"set a 0 0 2\r\na \r\n", login(b"a", b"", 17)),
            (b"set a 0 0 3\r\na b\r", Token::NeedInput),
            (b"set a 0 0 3\r\n", Token::NeedInput),
            (b"set a 0 0 3", Token::NeedInput),
            (b"", Token::NeedInput),
            (b"\r\n", Token::NeedInput),
            (b"\r\nget a\r\n", Token::Close),
            (b"quit\r\n", Token::Close),
            (b"mn\r\n", Token::Close),
            (&too_long, Token::Close),
            (&too_long[1..], Token::NeedInput),
            (b"stats\r\n", refused(Error::Unauthenticated, 7)),
            (b"set a 0 0\r\n", refused(Error::Unauthenticated, 11)),
            (b"add a 0 0 3\r\na b\r\n", refused(Error::Unauthenticated, 13)),
            (b"set a 0 0 -1\r\n", refused(Error::Unauthenticated, 14)),
            (b"set a 0 0 4294967296\r\n", refused(Error::Unauthenticated, 22)),
            (b"set a 0 0 4294967295\r\n", refused(Error::AuthTokenTooLong, 22)),
            (b"set a 0 0 16385\r\n", refused(Error::AuthTokenTooLong, 17)),
            (b"set a 0 0 2\r\na b\r\n", refused(Error::BadAuthTermination, 17)),
            (b"set a 0 0 3\r\na_b\r\n", refused(Error::BadAuthToken, 18)),
            (b"set a 0 0 0\r\n\r\n", refused(Error::BadAuthToken, 15)),
        ] {
            assert_eq!(Token::of(input), token, "{}", input.escape_ascii());
        }
    }
}
