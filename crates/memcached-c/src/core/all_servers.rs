//! Requests to every server.

use larder_client::codec::{Event, Outcome, Pipeline};

use super::change::refusal;
use super::failure::Failure;
use super::link::{Allocation, Link, Tag};
use super::{Core, Options};
use crate::abi::{Return, copied};

/// A name and a value.
pub(crate) type Statistic = (Vec<u8>, Vec<u8>);

impl Core {
    /// Flushes every server, now or in `delay_secs`.
    pub(crate) fn flush_all(&mut self, options: &Options, delay_secs: u32) -> Return {
        if let Err(code) = self.begin(options) {
            return code;
        }
        let mut result = Return::SUCCESS;
        for at in 0..self.instances.len() {
            let tag = (options.replying && !options.udp).then_some(Tag::Awaited);
            let flush = |pipeline: &mut Pipeline<Tag>, output: &mut Vec<u8>| {
                pipeline.flush_all(output, delay_secs, tag);
            };
            let flushed = match tag {
                Some(_) => self.ask(options, at, 0, flush, |_| Ok(())),
                None => self.send(options, at, Allocation::default(), |link| {
                    link.is_quiet |= !options.binary;
                    link.request(flush)?;
                    link.flush(options)
                }),
            };
            if flushed.is_err() {
                result = Return::SOME_ERRORS;
            }
        }
        result
    }

    /// Asks servers for their versions, if they are not known.
    pub(crate) fn fetch_versions(&mut self, options: &Options) -> Return {
        if let Err(code) = self.begin(options) {
            return code;
        }
        if options.udp {
            return Return::NOT_SUPPORTED;
        }
        let mut result = Return::SUCCESS;
        for at in 0..self.instances.len() {
            if self.instances[at].release[0] != u8::MAX {
                continue;
            }
            let mut release = None;
            let asked = self.ask(
                options,
                at,
                0,
                |pipeline, output| pipeline.version(output, Tag::Awaited),
                |event| {
                    if let Event::Done(_, Outcome::Version(text)) = event {
                        release = parse_version(text);
                    }
                    Ok(())
                },
            );
            match (asked, release) {
                (Ok(()), Some(release)) => self.instances[at].release = release,
                (Ok(()), None) => {
                    let text = "strtol() failed to parse major version";
                    self.fail_at(options, at, Failure::new(Return::UNKNOWN_READ_FAILURE, text));
                    result = Return::SOME_ERRORS;
                }
                (Err(_), _) => result = Return::SOME_ERRORS,
            }
        }
        result
    }

    /// The statistics of a server: those of `group`, or the general ones if it is empty.
    pub(crate) fn statistics(
        &mut self,
        options: &Options,
        at: usize,
        group: &[u8],
    ) -> Result<Vec<Statistic>, Return> {
        let mut told = Vec::new();
        let mut bytes = 0;
        self.ask(
            options,
            at,
            group.len(),
            |pipeline, output| pipeline.stats(output, group, Tag::Awaited),
            |event| {
                if let Event::Stat(name, value) = event {
                    bytes += name.len() + value.len() + ENTRY_BYTES;
                    if bytes > STATISTICS_BYTES_MAX {
                        return Err(Failure::new(Return::UNKNOWN_READ_FAILURE, "statistics do not end"));
                    }
                    told.try_reserve(1).map_err(|_| Failure::out_of_memory())?;
                    // C code gets them with a NUL.
                    let copy = |text| copied(text, 1).ok_or_else(Failure::out_of_memory);
                    told.push((copy(name)?, copy(value)?));
                }
                Ok(())
            },
        )
        .map_err(|code| if code == Return::ERROR { Return::INVALID_ARGUMENTS } else { code })?;
        Ok(told)
    }

    /// Tells servers how much to log. They are asked in the text protocol, on connections of their own, as libmemcached
    /// asks them.
    pub(crate) fn set_verbosity(&mut self, options: &Options, level: u32) -> Return {
        let mut result = Return::SUCCESS;
        let text = Options { binary: false, udp: false, ..*options };
        for at in 0..self.instances.len() {
            let link = Link::connect(&self.instances[at].address(), &text, self.tls.as_ref(), None);
            let asked = link.and_then(|mut link| {
                link.request(|pipeline, output| pipeline.verbosity(output, level, Tag::Awaited))?;
                link.flush(&text)?;
                link.await_reply_in_time(&text, |event| {
                    Ok(match event {
                        Event::Done(_, Outcome::Error(reply)) => Err(refusal(&text, &reply)),
                        _ => Ok(()),
                    })
                })?
            });
            if asked.is_err() {
                result = Return::SOME_ERRORS;
            }
        }
        result
    }

    /// Sends what is buffered.
    pub(crate) fn flush_buffers(&mut self, options: &Options) -> Return {
        let mut result = Return::SUCCESS;
        for at in 0..self.instances.len() {
            if self.instances[at].link.as_ref().is_some_and(Link::has_output)
                && self.with_link(options, at, |link| link.flush(options)).is_err()
            {
                result = Return::SOME_ERRORS;
            }
        }
        result
    }

    /// Closes all connections. Buffered requests are sent first, and the servers read them. Earlier failures still
    /// count.
    pub(crate) fn quit(&mut self, options: &Options) {
        for instance in &mut self.instances {
            let waits = options.buffering || options.replicas > 0;
            if let Some(link) = instance.link.take() {
                link.quit(options, waits);
            }
            instance.close();
        }
    }

    /// The sizes of the buffers of the first server's socket, for sending and for receiving.
    pub(crate) fn buffer_sizes(&mut self, options: &Options) -> Option<(usize, usize)> {
        self.connect(options, 0).ok()?;
        self.instances.first()?.link.as_ref()?.buffer_sizes()
    }

    /// Sends a request, with `bytes` that the program has chosen, and takes its reply, whose events go to `take`, in
    /// the time that one wait may take. An error of `take` ends it, and the connection.
    fn ask(
        &mut self,
        options: &Options,
        at: usize,
        bytes: usize,
        request: impl FnOnce(&mut Pipeline<Tag>, &mut Vec<u8>),
        mut take: impl FnMut(&Event<'_, Tag>) -> Result<(), Failure>,
    ) -> Result<(), Return> {
        self.send(options, at, Allocation::of(bytes), |link| {
            link.request(request)?;
            link.flush(options)
        })?;
        self.instances[at].wanted.clear();
        let mut refused = None;
        let told = self.with_link(options, at, |link| {
            link.await_reply_in_time(options, |event| {
                take(&event)?;
                Ok(match event {
                    Event::Done(_, Outcome::Error(reply)) => {
                        refused = Some(reply.kind);
                        Err(refusal(options, &reply))
                    }
                    _ => Ok(()),
                })
            })
        })?;
        told.map_err(|failure| self.refuse(options, at, failure, refused))
    }
}

/// `1.6.18`, and what may follow it.
fn parse_version(text: &[u8]) -> Option<[u8; 3]> {
    let text = str::from_utf8(text).ok()?;
    let mut parts = text.trim_start().splitn(3, '.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part.get(..digits)?.parse::<u8>().ok()
    });
    let major = parts.next()??;
    let minor = parts.next().flatten().unwrap_or(0);
    let micro = parts.next().flatten().unwrap_or(0);
    Some([major, minor, micro])
}

/// Memory that a statistic takes besides its text.
const ENTRY_BYTES: usize = 64;
/// Statistics of a server that take more end its connection. Those of 60,000 connections (`stats conns`) take 32 MiB.
const STATISTICS_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_three_numbers() {
        for (text, expected) in [
            (&b"1.6.18"[..], Some([1, 6, 18])),
            (b"0.1.0-larder", Some([0, 1, 0])),
            (b"1.4", Some([1, 4, 0])),
            (b"300.1.1", None),
            (b"x", None),
            (b"", None),
        ] {
            assert_eq!(parse_version(text), expected, "{}", text.escape_ascii());
        }
    }
}
