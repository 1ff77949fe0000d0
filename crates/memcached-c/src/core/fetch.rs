//! Requests for items.

use std::collections::TryReserveError;
use std::mem;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_client::codec::{ErrorKind, Event, Get, Outcome};
use rustix::event::{PollFd, PollFlags, poll};

use super::change::refusal;
use super::failure::Failure;
use super::link::{Allocation, Link, Tag, timespec};
use super::{Core, Options};
use crate::abi::Return;

/// An item.
pub(crate) struct Found<'a> {
    /// Without the namespace.
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) client_flags: u32,
    pub(crate) cas: u64,
}

/// The keys of a multi-get of one server, without the namespace, each after its length.
#[derive(Default)]
pub(super) struct Wanted {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Wanted {
    fn push(&mut self, key: &[u8]) -> Result<(), TryReserveError> {
        self.starts.try_reserve(1)?;
        self.bytes.try_reserve(key.len())?;
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(key);
        Ok(())
    }

    /// The keys as they are sent: each with `namespace` before it, one after the other, and where each begins.
    fn whole(&self, namespace: &[u8]) -> Result<Self, TryReserveError> {
        let mut whole = Self::default();
        whole.bytes.try_reserve_exact(self.bytes.len() + namespace.len() * self.starts.len())?;
        whole.starts.try_reserve_exact(self.starts.len())?;
        for key in self.keys() {
            whole.starts.push(whole.bytes.len());
            whole.bytes.extend_from_slice(namespace);
            whole.bytes.extend_from_slice(key);
        }
        Ok(whole)
    }

    fn key(&self, index: u32) -> &[u8] {
        let index = index as usize;
        let end = self.starts.get(index + 1).copied().unwrap_or(self.bytes.len());
        self.starts.get(index).and_then(|start| self.bytes.get(*start..end)).unwrap_or_default()
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.starts.len() as u32).map(|index| self.key(index))
    }
}

/// What the next event of a multi-get was.
enum Step {
    Found,
    /// An item that `sink` could not decrypt.
    Garbled,
    /// An item that the server could not read. Others follow.
    Failed(Failure),
    /// The server has no more.
    End,
    /// Nothing that matters.
    Other,
    Refused(Failure, Option<ErrorKind>),
}

impl Core {
    /// Gets an item, which goes to `sink`.
    pub(crate) fn get(
        &mut self,
        options: &Options,
        group: Option<&[u8]>,
        key: &[u8],
        sink: impl FnMut(Found<'_>) -> Return,
    ) -> Return {
        match self.get_begun(options, group, key, sink) {
            Ok(code) | Err(code) => code,
        }
    }

    fn get_begun(
        &mut self,
        options: &Options,
        group: Option<&[u8]>,
        key: &[u8],
        mut sink: impl FnMut(Found<'_>) -> Return,
    ) -> Result<Return, Return> {
        self.begin_fetch(options, &[key])?;
        let first = self.place_now(options, group.unwrap_or(key));
        let whole = self.prefixed(key);
        let get = Get { with_cas: options.support_cas, ..Get::default() };
        let ask = |link: &mut Link| {
            link.request(|pipeline, output| pipeline.get(output, &get, &whole, Tag::Awaited))?;
            link.flush(options)
        };
        let at = self.send_to_a_replica(options, first, &mut Vec::new(), Allocation::default(), ask)?;
        let mut code = Return::NOTFOUND;
        let mut refused = None;
        let told = self.with_link(options, at, |link| {
            link.await_reply(options, |event| match event {
                Event::Value(found) => {
                    let cas = found.cas.unwrap_or(0);
                    let value = found.bytes;
                    code = sink(Found { key, value, client_flags: found.client_flags, cas });
                    Ok(())
                }
                Event::Done(_, Outcome::Error(reply)) => {
                    refused = Some(reply.kind);
                    Err(refusal(options, &reply))
                }
                _ => Ok(()),
            })
        })?;
        match told {
            Ok(()) if code == Return::FAILURE => Err(self.fail(options, code, GARBLED)),
            Ok(()) if code == Return::MEMORY_ALLOCATION_FAILURE => Err(self.fail(options, code, "")),
            Ok(()) => Ok(code),
            Err(failure) => Err(self.refuse(options, at, failure, refused)),
        }
    }

    /// Sends to a key's server, or with replicas to the first of its servers that can be reached and is not in `dead`.
    /// Servers that cannot be reached are added to `dead`.
    fn send_to_a_replica(
        &mut self,
        options: &Options,
        first: usize,
        dead: &mut Vec<usize>,
        allocation: Allocation,
        ask: impl Fn(&mut Link) -> Result<(), Failure>,
    ) -> Result<usize, Return> {
        let replicas = self.replicas(options);
        let count = self.instances.len();
        let start = if options.randomize_replica_read { random(replicas + 1) } else { 0 };
        let mut code = Return::CONNECTION_FAILURE;
        for step in 0..=replicas {
            let at = (first + (start + step) % (replicas + 1)) % count;
            if dead.contains(&at) {
                continue;
            }
            match self.send(options, at, allocation, &ask) {
                Ok(()) => return Ok(at),
                Err(error) => code = error,
            }
            if replicas > 0 {
                dead.push(at);
                // The next request tries it again, so that it fails often enough to be ejected.
                self.instances[at].close();
            }
        }
        if !options.binary && code != Return::ERRNO {
            self.fail_at(options, first, Failure::new(code, ""));
        }
        Err(code)
    }

    /// Requests many items, to be fetched one by one.
    pub(crate) fn multi_get(
        &mut self,
        options: &Options,
        group: Option<&[u8]>,
        keys: &mut Vec<&[u8]>,
    ) -> Return {
        // A key that the text protocol takes for several is no item's: libmemcached asks for it, and finds nothing.
        if keys.iter().any(|key| !options.splits(key)) {
            keys.retain(|key| !options.splits(key));
        }
        if let Err(code) = self.begin_fetch(options, keys) {
            return code;
        }
        let of_group = group.map(|group| self.place_now(options, group));
        let mut shares: Vec<Wanted> = Vec::new();
        shares.resize_with(self.instances.len(), Wanted::default);
        let mut failed = None;
        for key in &*keys {
            let at = of_group.unwrap_or_else(|| self.place_now(options, key));
            // A server that has just been ejected has no keys any more.
            if self.replicas(options) == 0
                && let Err(code) = self.connect(options, at)
            {
                failed = Some(code);
                continue;
            }
            if shares[at].push(key).is_err() {
                return self.fail(options, Return::MEMORY_ALLOCATION_FAILURE, "");
            }
        }
        let get = Get { with_cas: options.support_cas, ..Get::default() };
        let (mut sent, mut dead) = (0, Vec::new());
        for (first, share) in shares.into_iter().enumerate().filter(|(_, share)| !share.starts.is_empty()) {
            let namespace = self.namespace.as_ref().map_or(&b""[..], |namespace| namespace.as_bytes());
            let Ok(whole) = share.whole(namespace) else {
                return self.fail(options, Return::MEMORY_ALLOCATION_FAILURE, "");
            };
            let mut slices: Vec<&[u8]> = Vec::new();
            if slices.try_reserve_exact(whole.starts.len()).is_err() {
                return self.fail(options, Return::MEMORY_ALLOCATION_FAILURE, "");
            }
            slices.extend(whole.keys());
            let (count, key_bytes) = (whole.starts.len(), whole.bytes.len());
            let allocation = Allocation {
                request_bytes: key_bytes.saturating_add(count.saturating_mul(HEAD_BYTES)),
                log_bytes: key_bytes.saturating_add(count),
            };
            let ask = |link: &mut Link| {
                link.request(|pipeline, output| pipeline.multi_get(output, &get, &slices, Tag::Wanted))?;
                link.flush(options)
            };
            match self.send_to_a_replica(options, first, &mut dead, allocation, ask) {
                Ok(at) => {
                    sent += 1;
                    self.instances[at].wanted.push_back(share);
                }
                Err(code) => failed = Some(code),
            }
        }
        match failed {
            // Servers that cannot be reached are a failure only if they are all: after one, PHP fetches nothing.
            Some(code) if sent == 0 => code,
            _ => Return::SUCCESS,
        }
    }

    /// Takes the next item of a multi-get, which goes to `sink`. `count`: how many were taken into the same result.
    pub(crate) fn fetch(
        &mut self,
        options: &Options,
        count: u64,
        mut sink: impl FnMut(Found<'_>) -> Return,
    ) -> Return {
        if options.udp {
            return Return::NOT_SUPPORTED;
        }
        let mut last = None;
        while let Some((at, is_late)) = self.next_readable(options) {
            let step = match is_late {
                true => self.with_link(options, at, |_| Err(Failure::timeout())),
                false => self.fetch_from(options, at, &mut sink),
            };
            match step {
                Ok(Step::Found) => return Return::SUCCESS,
                Ok(Step::Other) => {}
                Ok(Step::Garbled) => return self.fail(options, Return::FAILURE, GARBLED),
                Ok(Step::Failed(failure)) => return self.fail_at(options, at, failure),
                Ok(Step::End) => last = Some(Return::END),
                Ok(Step::Refused(failure, kind)) => return self.refuse(options, at, failure, kind),
                Err(Return::CONNECTION_FAILURE) => self.has_lost_items = true,
                Err(code) => return code,
            }
        }
        match last {
            _ if mem::take(&mut self.has_lost_items) => Return::CONNECTION_FAILURE,
            _ if count > 0 => Return::END,
            _ => Return::NOTFOUND,
        }
    }

    fn fetch_from(
        &mut self,
        options: &Options,
        at: usize,
        sink: &mut impl FnMut(Found<'_>) -> Return,
    ) -> Result<Step, Return> {
        let Some(wanted) = self.instances[at].wanted.pop_front() else { return Ok(Step::End) };
        let step = self.with_link(options, at, |link| {
            link.next(options, |event| match event {
                Event::Value(found) => {
                    let (key, cas) = (wanted.key(found.index), found.cas.unwrap_or(0));
                    match sink(Found { key, value: found.bytes, client_flags: found.client_flags, cas }) {
                        Return::SUCCESS => Step::Found,
                        Return::FAILURE => Step::Garbled,
                        code => Step::Refused(Failure::new(code, ""), None),
                    }
                }
                Event::KeyFailed(reply) => Step::Failed(refusal(options, &reply)),
                Event::Done(Tag::Wanted, Outcome::Error(reply)) => {
                    Step::Refused(refusal(options, &reply), Some(reply.kind))
                }
                Event::Done(Tag::Wanted, _) => Step::End,
                _ => Step::Other,
            })
        })?;
        if let Step::Found | Step::Garbled | Step::Failed(_) | Step::Other = step {
            self.instances[at].wanted.push_front(wanted);
        }
        Ok(step)
    }

    /// A server whose items are wanted, and if possible have arrived; true if none has said anything in the time that
    /// one wait may take. `None`: none is left.
    fn next_readable(&self, options: &Options) -> Option<(usize, bool)> {
        let pending: Vec<_> =
            (0..self.instances.len()).filter(|at| !self.instances[*at].wanted.is_empty()).collect();
        let link = |at: usize| self.instances[at].link.as_ref();
        let first = *pending.first()?;
        let has_input = |at: &&usize| link(**at).is_none_or(Link::has_input);
        if let Some(at) = pending.iter().find(has_input) {
            return Some((*at, false));
        }
        if pending.len() > 1 {
            let mut sockets: Vec<_> = pending
                .iter()
                .filter_map(|at| link(*at))
                .map(|link| PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN))
                .collect();
            // An error leaves all unready: the first is read, and tells.
            let polled = poll(&mut sockets, timespec(options.poll_timeout).as_ref());
            let ready = sockets.iter().position(|socket| !socket.revents().is_empty());
            let at = ready.and_then(|place| pending.get(place).copied()).unwrap_or(first);
            return Some((at, polled == Ok(0) && options.poll_timeout != 0));
        }
        Some((first, false))
    }

    /// Drops the items of an earlier multi-get that were not fetched.
    fn begin_fetch(&mut self, options: &Options, keys: &[&[u8]]) -> Result<(), Return> {
        self.begin(options)?;
        if options.udp {
            return Err(self.fail(options, Return::NOT_SUPPORTED, ""));
        }
        if keys.is_empty() {
            return Err(self.fail(options, Return::INVALID_ARGUMENTS, "Numbers of keys provided was zero"));
        }
        self.check_keys(options, keys)?;
        for at in 0..self.instances.len() {
            if self.instances[at].response_count() > 0 {
                // A failure closes the connection, and a new one is made.
                let _ = self.with_link(options, at, |link| {
                    link.flush(options)?;
                    link.drain(options)
                });
            }
            self.instances[at].wanted.clear();
        }
        self.has_lost_items = false;
        self.errors.clear();
        Ok(())
    }
}

/// As libmemcached words it.
const GARBLED: &str = "hashkit_decrypt() failed";
/// What the protocols put before a key of a multi-get, at most.
const HEAD_BYTES: usize = 32;

/// A number below `end`, to spread reads.
fn random(end: usize) -> usize {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    (now / 100) as usize % end.max(1)
}
