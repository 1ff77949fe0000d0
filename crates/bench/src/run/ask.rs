//! Writes requests.

use larder_client::codec::{Arith, Delete, Get, Mode, Store, Touch};

use super::keys::KEY_BYTES_MAX;
use super::lane::{Lane, Request};
use super::plan::{GroupPlan, Plan};
use super::socket::{Asked, Socket};
use super::tally::ThreadTally;
use crate::scenario::Kind;

/// Memory to write requests with, used again and again.
pub(crate) struct Scratch {
    key: [u8; KEY_BYTES_MAX],
    number: itoa::Buffer,
    /// Keys of a get of many, and where each of them ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { key: [0; KEY_BYTES_MAX], number: itoa::Buffer::new(), keys: Vec::new(), ends: Vec::new() }
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

/// Appends `request` to what `socket` will send. `true`: an answer will come.
#[inline]
pub(crate) fn ask(
    plan: &Plan,
    lane: &mut Lane,
    socket: &mut Socket,
    request: &Request,
    when: When,
    scratch: &mut Scratch,
    tally: &mut ThreadTally,
) -> bool {
    let group = &plan.groups[lane.group];
    let command = &group.commands[request.command];
    let options = &command.command;
    let meta_flags = options.meta_flags.as_bytes();
    let key_maker = &group.key_sets[command.key_set].maker;
    let mut asked = Asked {
        due_nanos: when.due_nanos,
        sent_nanos: when.sent_nanos,
        number: request.number,
        keys: 1,
        value_bytes: 0,
        command: request.command as u16,
        kind: request.kind,
        is_own: false,
    };
    socket.requests += 1;
    let key = key_maker.write(request.number, &mut scratch.key);
    let output = &mut socket.output;
    let pipeline = &mut socket.pipeline;

    let mode = match request.kind {
        Kind::Get | Kind::Gets | Kind::Gat => {
            let exptime = (request.kind == Kind::Gat).then(|| i64::from(command.ttl_secs(lane.random())));
            let get = Get { with_cas: request.kind == Kind::Gets, exptime, meta_flags };
            if options.keys > 1 {
                draw_keys(plan, group, lane, request, when, scratch);
                asked.keys = scratch.ends.len() as u32;
                let begins = std::iter::once(0).chain(scratch.ends.iter().copied());
                let keys = begins.zip(&scratch.ends).map(|(begin, &end)| &scratch.keys[begin..end]);
                pipeline.multi_get(output, &get, keys, asked);
            } else {
                pipeline.get(output, &get, key, asked);
            }
            return true;
        }
        // It begins with `gets`; the answer brings the rest.
        Kind::Cas if request.cas == 0 => {
            asked.kind = Kind::Gets;
            pipeline.get(output, &Get { with_cas: true, exptime: None, meta_flags: b"" }, key, asked);
            return true;
        }
        Kind::Delete => {
            let tag = (!options.noreply).then_some(asked);
            pipeline.delete(output, &Delete { key, compare: None, meta_flags }, tag);
            return confirm(socket, &asked, options.noreply, when, tally);
        }
        Kind::Incr | Kind::Decr => {
            let decrement = request.kind == Kind::Decr;
            let arith = Arith { key, delta: options.delta, decrement, initial: None, meta_flags };
            pipeline.arith(output, &arith, (!options.noreply).then_some(asked));
            return confirm(socket, &asked, options.noreply, when, tally);
        }
        Kind::Touch => {
            let exptime = command.ttl_secs(lane.random()).into();
            pipeline.touch(output, &Touch { key, exptime, meta_flags }, (!options.noreply).then_some(asked));
            return confirm(socket, &asked, options.noreply, when, tally);
        }
        Kind::Version => {
            pipeline.version(output, Asked { keys: 0, ..asked });
            return true;
        }
        Kind::Noop => {
            pipeline.noop(output, Asked { keys: 0, ..asked });
            return true;
        }
        Kind::Set | Kind::Cas => Mode::Set,
        Kind::Add => Mode::Add,
        Kind::Replace => Mode::Replace,
        Kind::Append => Mode::Append,
        Kind::Prepend => Mode::Prepend,
    };

    let values = &group.value_sets[command.value_set];
    let value_bytes = match request.value_bytes {
        Some(bytes) => bytes as usize,
        None => values.value_bytes(request.number, lane.random()),
    };
    let value = values.contents.of(request.number, value_bytes, &mut scratch.number);
    asked.value_bytes = value.len() as u32;
    let store = Store {
        mode,
        key,
        value: &[value],
        client_flags: options.client_flags,
        exptime: command.ttl_secs(lane.random()).into(),
        compare: (request.kind == Kind::Cas).then_some(request.cas),
        // Flags of a get are none of the store that follows it.
        meta_flags: if options.kind == request.kind { meta_flags } else { b"" },
    };
    // What follows a get is always answered.
    let noreply = options.noreply && options.kind == request.kind;
    pipeline.store(output, &store, (!noreply).then_some(asked));
    confirm(socket, &asked, noreply, when, tally)
}

/// A request without an answer counts as done. `true`: an answer will come.
#[inline]
fn confirm(socket: &mut Socket, asked: &Asked, noreply: bool, when: When, tally: &mut ThreadTally) -> bool {
    if noreply {
        socket.unconfirmed += 1;
        if when.is_counted {
            let figures = tally.command(asked.kind);
            figures.requests += 1;
            figures.keys += 1;
            figures.value_bytes += u64::from(asked.value_bytes);
        }
    }
    !noreply
}

/// Draws the further keys of a get of many: all of one server.
fn draw_keys(
    plan: &Plan,
    group: &GroupPlan,
    lane: &mut Lane,
    request: &Request,
    when: When,
    scratch: &mut Scratch,
) {
    let command = &group.commands[request.command];
    let maker = &group.key_sets[command.key_set].maker;
    let server = plan.server_of(request.number);
    scratch.keys.clear();
    scratch.ends.clear();
    let mut number = request.number;
    loop {
        scratch.keys.extend_from_slice(maker.write(number, &mut scratch.key));
        scratch.ends.push(scratch.keys.len());
        if scratch.ends.len() == command.command.keys {
            return;
        }
        loop {
            number = lane.draw_key(group, request.command, when.elapsed_nanos);
            if plan.server_of(number) == server {
                break;
            }
        }
    }
}
