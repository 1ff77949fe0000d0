//! A connection as the scenario counts it: a client that draws its own requests, with a socket to each server.

use std::collections::VecDeque;

use fastrand::Rng;

use super::mix;
use super::plan::{CommandPlan, GroupPlan, Plan};
use super::popularity::{Picker, Share};
use super::trace::Record;
use crate::scenario::{Kind, Order};

/// One client.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Index of its group.
    pub(crate) group: usize,
    /// Which of the group's lanes it is.
    pub(crate) share: Share,
    /// Index of its first socket among those of the thread.
    pub(crate) first_socket: usize,
    /// Requests that wait for an answer.
    pub(crate) in_flight: usize,
    /// To be asked before anything new is drawn: the store after a miss, `cas` after `gets`.
    pub(crate) follow_ups: VecDeque<Request>,
    /// Drawn, but its socket cannot take it yet.
    pub(crate) held: Option<Request>,
    /// Asks nothing more.
    pub(crate) is_done: bool,
    /// Is in a list of lanes that may ask more.
    pub(crate) is_queued: bool,
    /// Counts requests, to use its sockets in turn.
    pub(crate) turn: usize,
    random: Rng,
    /// One for each of the group's key sets.
    pickers: Vec<Picker>,
    /// With [`Order::Turn`]: the command, and how often it has been asked.
    place: (usize, u64),
    /// With a trace: requests asked of it in all rounds together.
    played: usize,
}

/// What is asked next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Index of its command in the group.
    pub(crate) command: usize,
    /// Of the command, or of what follows it.
    pub(crate) kind: Kind,
    /// Number of its key, or of its first one.
    pub(crate) number: u64,
    /// Length of the value to be stored. `None`: to be drawn.
    pub(crate) value_bytes: Option<u32>,
    /// What `gets` told, for `cas`.
    pub(crate) cas: u64,
    /// Of a trace: how long what it stores lives.
    pub(crate) ttl_secs: Option<u32>,
}

impl Lane {
    /// Client `index` of its group.
    pub(crate) fn new(plan: &Plan, group: usize, index: usize, first_socket: usize) -> Self {
        let group_plan = &plan.groups[group];
        let share = Share { index: index as u64, of: group_plan.group.connections as u64 };
        let seed = plan.scenario.seed;
        Self {
            group,
            share,
            first_socket,
            in_flight: 0,
            follow_ups: VecDeque::new(),
            held: None,
            is_done: false,
            is_queued: false,
            turn: 0,
            random: Rng::with_seed(mix(mix(mix(seed) ^ group as u64) ^ index as u64)),
            pickers: group_plan.key_sets.iter().map(|set| Picker::new(&set.keys, seed, share)).collect(),
            place: (0, 0),
            played: 0,
        }
    }

    /// The next request. `None`: the trace has come to its end.
    #[inline]
    pub(crate) fn draw(&mut self, plan: &GroupPlan, elapsed_nanos: u64) -> Option<Request> {
        if let Some(recording) = &plan.recording {
            return self.play(&recording.parts[self.share.index as usize], plan.rounds());
        }
        let mut command = match plan.group.order {
            Order::Random => plan.mix.draw(&mut self.random),
            Order::Turn => self.next_in_turn(plan),
        };
        let key_set = plan.commands[command].key_set;
        if self.pickers[key_set].is_empty() {
            let stores = |of: &CommandPlan| of.key_set == key_set && stores(of.command.kind);
            command = plan.commands.iter().position(stores).unwrap_or(command);
        }
        let kind = plan.commands[command].command.kind;
        let number = self.draw_key(plan, command, elapsed_nanos);
        Some(Request { command, kind, number, value_bytes: None, cas: 0, ttl_secs: None })
    }

    /// A key for this command: its number.
    #[inline]
    pub(crate) fn draw_key(&mut self, plan: &GroupPlan, command: usize, elapsed_nanos: u64) -> u64 {
        let CommandPlan { command, key_set, .. } = &plan.commands[command];
        let index = self.pickers[*key_set].next(&mut self.random, elapsed_nanos, stores(command.kind));
        plan.key_sets[*key_set].keys.first + index
    }

    /// For what is drawn besides commands and keys.
    #[inline]
    pub(crate) fn random(&mut self) -> &mut Rng {
        &mut self.random
    }

    fn play(&mut self, part: &[Record], rounds: usize) -> Option<Request> {
        if self.played >= part.len() * rounds {
            return None;
        }
        let Record { kind, number, value_bytes, ttl_secs } = part[self.played % part.len()];
        self.played += 1;
        Some(Request { command: 0, kind, number, value_bytes, cas: 0, ttl_secs: Some(ttl_secs) })
    }

    fn next_in_turn(&mut self, plan: &GroupPlan) -> usize {
        let (command, asked) = &mut self.place;
        // The check has seen that a weight is at least 1.
        while *asked >= plan.commands[*command].command.weight as u64 {
            *command = (*command + 1) % plan.commands.len();
            *asked = 0;
        }
        *asked += 1;
        *command
    }
}

fn stores(kind: Kind) -> bool {
    matches!(kind, Kind::Set | Kind::Add | Kind::Replace)
}
