//! Commands about the server: flush_all, stats, refresh_certs, shutdown. Those that control the cache are in
//! [`crate::exec::admin`].

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use larder_protocol::command::{self, Shutdown};
use larder_protocol::{Error, Form, Reply, Sink as _};

use super::store_access::Intent;
use super::{Answered, CloseReason, Done, Executor};
use crate::conn::waiter::Waiting;
use crate::control::Stop;
use crate::namespaces::Right;
use crate::observe::stats::{self, Answer};

impl<'t> Executor<'_, '_, '_, 't> {
    // flush_all
    pub(super) fn flush(&self, exptime: Result<i64, Error>) -> Answered<'t> {
        let shared = self.cx.shared;
        self.cx.counters.cmd_flush.add(1);
        let may_write = |number| self.rights.may_write(number);
        if !shared.settings.flush_all || !(0..self.guards.count()).all(may_write) {
            return Ok(Reply::Error(Error::FlushNotAllowed));
        }
        let exptime = match exptime {
            Ok(exptime) => exptime,
            Err(error) => return Ok(Reply::Error(error)),
        };
        for number in (0..self.guards.count()).filter(|number| self.guards.guard(*number).is_backed()) {
            if let Err(unanswered) = self.store.admit(number, Intent::Remove) {
                return unanswered.into_answer();
            }
        }
        (0..self.guards.count()).for_each(|number| self.flush_one(number, exptime));
        Ok(Reply::Ok)
    }

    /// Flushes a namespace. The reply waits for what is to be durable.
    fn flush_one(&self, number: u8, exptime: i64) {
        if let Some(position) = self.cx.shared.flush(number, exptime, self.guards.now()) {
            self.guards.guard(number).note_position(position);
        }
    }

    // flush_prefix, mf
    pub(super) fn flush_prefix(&mut self, flush: command::FlushPrefix<'_>) -> Answered<'t> {
        let shared = self.cx.shared;
        self.cx.counters.cmd_flush.add(1);
        if !shared.settings.flush_all {
            return Ok(Reply::Error(Error::FlushNotAllowed));
        }
        let prefix = flush.prefix.bytes(&mut self.key_buffer);
        let Some(number) = shared.namespaces.named(prefix) else { return Ok(Reply::NotFound) };
        if let Err(error) = self.guards.admit(number, self.rights, Right::Write) {
            return Ok(Reply::Error(error));
        }
        if self.guards.guard(number).is_backed()
            && let Err(unanswered) = self.store.admit(number, Intent::Remove)
        {
            return unanswered.into_answer();
        }
        self.flush_one(number, flush.exptime);
        Ok(Reply::Ok)
    }

    // stats
    pub(super) fn stats(&mut self, words: command::Words<'_>, form: &Form<'_>) -> Answered<'t> {
        let words: ArrayVec<&[u8], STATS_WORDS_MAX> = words.iter().take(STATS_WORDS_MAX).collect();
        if stats::is_backup(&words) && !self.may_all() && !self.shows_backup_token(&words) {
            return Ok(Reply::Error(Error::BackupNotForUser));
        }
        if stats::is_compare(&words) && !self.may_all() {
            return Ok(Reply::Error(Error::CompareNotForUser));
        }
        Ok(match stats::answer(self.cx.shared, self.rights, &words, form) {
            Answer::Lines(lines) => {
                for (name, value) in &lines {
                    form.encode(&Reply::Stat(name, value), self.out);
                }
                Reply::End
            }
            Answer::Reset => Reply::Reset,
            Answer::Dump(dump) => {
                self.dump = Some(dump);
                return Err(Done::Begun);
            }
            Answer::Ok => Reply::Ok,
            Answer::Detail(dump) if matches!(form, Form::Binary(_)) => {
                let dump = format!("{}END\r\n", String::from_utf8_lossy(&dump));
                form.encode(&Reply::Stat("detailed", &dump), self.out);
                Reply::End
            }
            Answer::Detail(dump) => {
                self.out.bytes(&dump);
                Reply::End
            }
            Answer::Error(error) => Reply::Error(error),
        })
    }

    /// Whether the client may read and write in all namespaces.
    fn may_all(&self) -> bool {
        (0..self.guards.count()).all(|number| self.rights.may_read(number) && self.rights.may_write(number))
    }

    /// Whether a `stats store backup` has the token of `--backup-token-file`.
    fn shows_backup_token(&self, words: &[&[u8]]) -> bool {
        let (token, shown) = (&self.cx.shared.backup_token, stats::backup_token(words));
        token.as_ref().zip(shown).is_some_and(|(token, shown)| token.is(shown))
    }

    // refresh_certs
    pub(super) fn refresh_certificates(&self) -> Answered<'t> {
        let Some(tls) = &self.cx.shared.tls else { return Ok(Reply::Error(Error::NoTls)) };
        match tls.try_reload() {
            Some(Ok(())) => Ok(Reply::Ok),
            Some(Err(_)) => Ok(Reply::Error(Error::NoCertificates)),
            None => Err(Done::Wait(Waiting::Until(Instant::now() + RELOAD_RETRY))),
        }
    }

    // shutdown
    pub(super) fn shutdown(&self, how: Shutdown) -> Answered<'t> {
        if !self.cx.shared.settings.shutdown_command {
            return Ok(Reply::Error(Error::ShutdownNotEnabled));
        }
        match how {
            Shutdown::Plain => self.cx.shared.request_shutdown(Stop::Now),
            Shutdown::Graceful => self.cx.shared.request_shutdown(Stop::Gracefully),
            Shutdown::Unknown => return Ok(Reply::Error(Error::InvalidShutdownMode)),
        }
        Err(Done::Close(CloseReason::Shutdown))
    }
}

/// How long to wait while another thread reads the certificates, which takes about as long.
const RELOAD_RETRY: Duration = Duration::from_millis(10);
/// More words than any statistics command has.
const STATS_WORDS_MAX: usize = 22;
