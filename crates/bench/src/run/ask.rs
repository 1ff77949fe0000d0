//! Writes requests.

use std::time::{SystemTime, UNIX_EPOCH};

use larder_client::Pipeline;
use larder_client::codec::{Arith, Delete, Get, Mode, Store, Touch};

use super::asked::Asked;
use super::keys::KEY_BYTES_MAX;
use super::lane::{Lane, Request};
use super::ledger::{Effect, Witness};
use super::memory::Memory;
use super::plan::{CommandPlan, GroupPlan, KeySet, Plan};
use super::stamp;
use super::tally::ThreadTally;
use crate::scenario::Kind;

/// Memory to write requests with, used again and again.
pub(crate) struct Scratch {
    key: [u8; KEY_BYTES_MAX],
    number: itoa::Buffer,
    value: Vec<u8>,
    /// Keys of a get of many, and where each of them ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            key: [0; KEY_BYTES_MAX],
            number: itoa::Buffer::new(),
            value: Vec::new(),
            keys: Vec::new(),
            ends: Vec::new(),
        }
    }
}

/// When a request is asked, on the clock of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    /// Since the start of the load.
    pub(crate) elapsed_nanos: u64,
    /// See [`Asked`].
    pub(crate) due_nanos: u64,
    pub(crate) sent_nanos: u64,
    /// Whether it is counted: not in the warm-up.
    pub(crate) is_counted: bool,
}

/// Where a request comes from and where it goes.
pub(crate) struct Asking<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) lane: &'a mut Lane,
    pub(crate) pipeline: &'a mut Pipeline<Asked>,
    pub(crate) output: &'a mut Vec<u8>,
    pub(crate) memory: &'a mut Memory,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) tally: &'a mut ThreadTally,
    pub(crate) when: When,
    /// What the first copy of a change has begun: further ones are the same change.
    pub(crate) begun: &'a mut Option<Witness>,
}

impl Asking<'_> {
    /// Appends `request` to the output. `true`: an answer will come.
    #[inline]
    pub(crate) fn ask(mut self, request: &Request) -> bool {
        let plan = self.plan;
        let group = &plan.groups[self.lane.group];
        let command = &group.commands[request.command];
        let asked = Asked {
            due_nanos: self.when.due_nanos,
            sent_nanos: self.when.sent_nanos,
            number: request.number,
            keys: 1,
            value_bytes: 0,
            command: request.command as u16,
            kind: request.kind,
            is_own: false,
            quiet_mark: self.memory.quiet_mark(),
            witness: Witness::default(),
            follow_up_bytes: None,
        };
        match request.kind {
            Kind::Get | Kind::Gets | Kind::Gat => self.get(group, command, request, asked),
            // It begins with `gets`; the answer brings the rest.
            Kind::Cas if request.cas == 0 => self.get_for_cas(group, command, request, asked),
            Kind::Version => {
                self.pipeline.version(self.output, Asked { keys: 0, ..asked });
                true
            }
            Kind::Noop => {
                self.pipeline.noop(self.output, Asked { keys: 0, ..asked });
                true
            }
            Kind::Delete | Kind::Incr | Kind::Decr | Kind::Touch => {
                self.change(group, command, request, asked)
            }
            Kind::Set => self.store(group, command, request, asked, Mode::Set),
            Kind::Cas => self.store(group, command, request, asked, Mode::Set),
            Kind::Add => self.store(group, command, request, asked, Mode::Add),
            Kind::Replace => self.store(group, command, request, asked, Mode::Replace),
            Kind::Append => self.store(group, command, request, asked, Mode::Append),
            Kind::Prepend => self.store(group, command, request, asked, Mode::Prepend),
        }
    }

    #[inline]
    fn get(&mut self, group: &GroupPlan, command: &CommandPlan, request: &Request, mut asked: Asked) -> bool {
        let keys = &group.key_sets[command.key_set];
        asked.follow_up_bytes = request.value_bytes;
        let ttl_secs = if request.kind == Kind::Gat { self.ttl_secs(command, request) } else { 0 };
        let get = Get {
            with_cas: request.kind == Kind::Gets,
            exptime: (request.kind == Kind::Gat).then(|| exptime(ttl_secs)),
            meta_flags: command.command.meta_flags.as_bytes(),
        };
        let remembers = keys.ledger.is_some() || group.group.look_aside;
        if command.command.keys == 1 {
            if keys.ledger.is_some() {
                asked.witness = self.read(keys, request, request.number, ttl_secs);
            }
            let key = keys.maker.write(request.number, &mut self.scratch.key);
            self.pipeline.get(self.output, &get, key, asked);
            return true;
        }
        self.scratch.keys.clear();
        self.scratch.ends.clear();
        let mut number = request.number;
        loop {
            let key = keys.maker.write(number, &mut self.scratch.key);
            self.scratch.keys.extend_from_slice(key);
            self.scratch.ends.push(self.scratch.keys.len());
            if remembers {
                let witness = self.read(keys, request, number, ttl_secs);
                self.memory.keys.push_back((number, witness));
            }
            if self.scratch.ends.len() == command.command.keys {
                break;
            }
            number = self.next_key(group, request);
        }
        asked.keys = self.scratch.ends.len() as u32;
        let begins = std::iter::once(0).chain(self.scratch.ends.iter().copied());
        let keys = begins.zip(&self.scratch.ends).map(|(begin, &end)| &self.scratch.keys[begin..end]);
        self.pipeline.multi_get(self.output, &get, keys, asked);
        true
    }

    /// A further key of a get of many: of the server of the first one.
    fn next_key(&mut self, group: &GroupPlan, request: &Request) -> u64 {
        loop {
            let number = self.lane.draw_key(group, request.command, self.when.elapsed_nanos);
            if self.plan.are_together(number, request.number) {
                return number;
            }
        }
    }

    fn get_for_cas(
        &mut self,
        group: &GroupPlan,
        command: &CommandPlan,
        request: &Request,
        asked: Asked,
    ) -> bool {
        let keys = &group.key_sets[command.key_set];
        let witness = self.read(keys, request, request.number, 0);
        let get = Get { with_cas: true, ..Get::default() };
        let key = keys.maker.write(request.number, &mut self.scratch.key);
        let asked = Asked { kind: Kind::Gets, witness, ..asked };
        self.pipeline.get(self.output, &get, key, asked);
        true
    }

    fn change(
        &mut self,
        group: &GroupPlan,
        command: &CommandPlan,
        request: &Request,
        mut asked: Asked,
    ) -> bool {
        let keys = &group.key_sets[command.key_set];
        let options = &command.command;
        let meta_flags = options.meta_flags.as_bytes();
        let ttl_secs = if request.kind == Kind::Touch { self.ttl_secs(command, request) } else { 0 };
        if let Some(ledger) = &keys.ledger {
            asked.witness = *self.begun.get_or_insert_with(|| match request.kind {
                Kind::Delete => ledger.begin(request.number, true, 0),
                Kind::Touch => ledger.begin_conditional(request.number, ttl_secs),
                _ => ledger.read(request.number),
            });
        }
        let tag = (!options.noreply).then_some(asked);
        let key = keys.maker.write(request.number, &mut self.scratch.key);
        let (pipeline, output) = (&mut *self.pipeline, &mut *self.output);
        match request.kind {
            Kind::Delete => pipeline.delete(output, &Delete { key, compare: None, meta_flags }, tag),
            Kind::Touch => {
                pipeline.touch(output, &Touch { key, exptime: exptime(ttl_secs), meta_flags }, tag)
            }
            _ => {
                let decrement = request.kind == Kind::Decr;
                let arith = Arith { key, delta: options.delta, decrement, initial: None, meta_flags };
                pipeline.arith(output, &arith, tag);
            }
        }
        // Whether a touch or a delete found anything is not known.
        self.sent(keys, command, &asked, options.noreply, Effect::Nothing)
    }

    #[inline]
    fn store(
        &mut self,
        group: &GroupPlan,
        command: &CommandPlan,
        request: &Request,
        mut asked: Asked,
        mode: Mode,
    ) -> bool {
        let keys = &group.key_sets[command.key_set];
        let values = &group.value_sets[command.value_set];
        let options = &command.command;
        let value_bytes = match request.value_bytes {
            Some(bytes) => bytes as usize,
            None => values.value_bytes(request.number, self.lane.random()),
        };
        let ttl_secs = self.ttl_secs(command, request);
        let mut client_flags = options.client_flags;
        if let Some(ledger) = &keys.ledger {
            asked.witness = *self.begun.get_or_insert_with(|| match mode {
                Mode::Append | Mode::Prepend => ledger.begin_append(request.number),
                Mode::Add | Mode::Replace => ledger.begin_conditional(request.number, ttl_secs),
                _ => ledger.begin(request.number, false, ttl_secs),
            });
        }
        let value = if self.plan.verifies() && !values.contents.is_number() {
            client_flags = stamp::client_flags(request.number);
            self.scratch.value.clear();
            stamp::write(&mut self.scratch.value, request.number, asked.witness.version, value_bytes);
            &self.scratch.value
        } else {
            values.contents.of(request.number, value_bytes, &mut self.scratch.number)
        };
        asked.value_bytes = value.len() as u32;
        // Flags, and asking for no answer, belong to the command, not to what follows it.
        let is_itself = options.kind == request.kind;
        let noreply = options.noreply && is_itself;
        let store = Store {
            mode,
            key: keys.maker.write(request.number, &mut self.scratch.key),
            value: &[value],
            client_flags,
            exptime: exptime(ttl_secs),
            compare: (request.kind == Kind::Cas).then_some(request.cas),
            meta_flags: if is_itself { options.meta_flags.as_bytes() } else { b"" },
        };
        self.pipeline.store(self.output, &store, (!noreply).then_some(asked));
        let effect = if mode == Mode::Set { Effect::Applied } else { Effect::Nothing };
        self.sent(keys, command, &asked, noreply, effect)
    }

    /// A request without an answer counts as done. `true`: an answer will come.
    #[inline]
    fn sent(
        &mut self,
        keys: &KeySet,
        command: &CommandPlan,
        asked: &Asked,
        noreply: bool,
        effect: Effect,
    ) -> bool {
        if !noreply {
            return true;
        }
        let key_set = (keys.ledger.is_some() && asked.witness.version > 0).then_some(command.key_set);
        self.memory.send_quiet(key_set, asked.number, asked.witness, effect);
        if self.memory.is_full() {
            let quiet_mark = self.memory.quiet_mark();
            let own = Asked { quiet_mark, ..Asked::own(self.when.sent_nanos) };
            self.pipeline.noop(self.output, own);
        }
        if self.when.is_counted {
            let figures = self.tally.command(asked.kind);
            figures.requests += 1;
            figures.keys += 1;
            figures.value_bytes += u64::from(asked.value_bytes);
        }
        false
    }

    /// Seconds that what is stored or touched will live. 0: for ever.
    #[inline]
    fn ttl_secs(&mut self, command: &CommandPlan, request: &Request) -> u32 {
        request.ttl_secs.unwrap_or_else(|| command.ttl_secs(self.lane.random()))
    }

    /// What is known of a key before it is read.
    #[inline]
    fn read(&mut self, keys: &KeySet, request: &Request, number: u64, ttl_secs: u32) -> Witness {
        let Some(ledger) = &keys.ledger else { return Witness::default() };
        let witness = match request.kind {
            Kind::Gat => ledger.begin(number, false, ttl_secs),
            _ => ledger.read(number),
        };
        let truth = self.plan.truth();
        let may_lag = self.plan.scenario.target.servers_replicate;
        let mut by_chance = |share: f64| share >= 1.0 || share > 0.0 && self.lane.random().f64() < share;
        Witness {
            checks_value: by_chance(truth.verify),
            floor: if may_lag { 0 } else { witness.floor },
            checks_expiry: !may_lag && request.kind != Kind::Gat && by_chance(truth.verify_expiry),
            ..witness
        }
    }
}

/// A time to live in the form the protocol expects: beyond 30 days it is sent as a Unix time, since a longer number of
/// seconds would be read as a time in 1970. Servers read it as a signed 32-bit number.
fn exptime(ttl_secs: u32) -> i64 {
    let ttl_secs = i64::from(ttl_secs);
    if ttl_secs <= RELATIVE_SECS_MAX {
        return ttl_secs;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    now.saturating_add(ttl_secs).min(i32::MAX.into())
}

/// protocol.txt: 60*60*24*30.
const RELATIVE_SECS_MAX: i64 = 2_592_000;
