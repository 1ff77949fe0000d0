//! Commands about the server: flush_all, stats, refresh_certs, shutdown. Those that control the cache are in
//! [`crate::exec::admin`].

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use larder_engine::{Engine, Item, Position};
use larder_protocol::command::{self, Shutdown};
use larder_protocol::{Error, Form, Reply, Sink as _};

use super::{Answered, CloseReason, Done, Executor};
use crate::conn::waiter::Waiting;
use crate::control::Stop;
use crate::observe::stats::{self, Answer};

impl<'t> Executor<'_, '_, '_, 't> {
    // flush_all
    pub(super) fn flush(&self, exptime: Result<i64, Error>) -> Reply<'t, Item<'t>> {
        let (shared, now) = (self.cx.shared, self.guards.now());
        self.cx.counters.cmd_flush.add(1);
        if !self.cx.shared.settings.flush_all {
            return Reply::Error(Error::FlushNotAllowed);
        }
        if let Some(Err(Some(error))) = shared.persistence.as_ref().map(|persistence| persistence.admit()) {
            return Reply::Error(error);
        }
        match exptime {
            Ok(exptime) if shared.clock.is_before_start(exptime) => {
                self.flush_each(|engine| engine.cancel_flush());
                Reply::Ok
            }
            Ok(exptime) => {
                let at = shared.clock.expiry(exptime, now);
                let at = if at.is_past(now) { None } else { at.secs() };
                self.flush_each(|engine| engine.flush(now, at));
                Reply::Ok
            }
            Err(error) => Reply::Error(error),
        }
    }

    /// Flushes each engine. The reply waits for what is to be durable.
    fn flush_each(&self, flush: impl Fn(&Engine) -> Option<Position>) {
        for number in 0..self.guards.count() {
            if let Some(position) = flush(self.cx.shared.namespaces.engine(number)) {
                self.guards.guard(number).note_position(position);
            }
        }
    }

    // stats
    pub(super) fn stats(&mut self, words: command::Words<'_>, form: &Form<'_>) -> Answered<'t> {
        let words: ArrayVec<&[u8], STATS_WORDS_MAX> = words.iter().take(STATS_WORDS_MAX).collect();
        Ok(match stats::answer(self.cx.shared, &words, form) {
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
