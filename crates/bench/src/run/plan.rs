//! A scenario, made ready to be asked: what all threads read and none changes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::RunError;
use super::alias::Alias;
use super::keys::KeyMaker;
use super::ledger::Ledger;
use super::mix;
use super::roads::Roads;
use super::sizes::Lengths;
use super::stamp::HEAD_BYTES;
use super::trace::Recording;
use super::values::Contents;
use crate::scenario::{Command, Group, Keys, Kind, Scenario, Target, Transport, Truth, Values};

/// All of it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) groups: Vec<GroupPlan>,
    pub(crate) roads: Roads,
    /// Load threads.
    pub(crate) threads: usize,
}

/// One group.
#[derive(Debug)]
pub(crate) struct GroupPlan {
    pub(crate) group: Group,
    /// Draws the index of a command.
    pub(crate) mix: Alias,
    pub(crate) commands: Vec<CommandPlan>,
    /// Keys of the group, then those of single commands.
    pub(crate) key_sets: Vec<KeySet>,
    /// Values of the group, then those of single commands.
    pub(crate) value_sets: Vec<ValueSet>,
    /// Is asked instead of what would be drawn.
    pub(crate) recording: Option<Recording>,
}

/// One command.
#[derive(Debug)]
pub(crate) struct CommandPlan {
    pub(crate) command: Command,
    /// Draws the index of a time to live. `None`: it has none.
    ttls: Option<Alias>,
    /// Indices into the group's sets.
    pub(crate) key_set: usize,
    pub(crate) value_set: usize,
}

/// Keys to draw from.
#[derive(Debug)]
pub(crate) struct KeySet {
    pub(crate) keys: Keys,
    pub(crate) maker: KeyMaker,
    /// Index of the values that are stored under them first.
    pub(crate) value_set: usize,
    /// What is known of the keys. `None`: nothing is checked.
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// Values to draw from.
#[derive(Debug)]
pub(crate) struct ValueSet {
    lengths: Lengths,
    redraw: bool,
    pub(crate) contents: Contents,
}

impl Plan {
    /// Reads the files that the scenario names, and builds its tables.
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, RunError> {
        let groups = scenario.groups.iter().enumerate();
        let groups = groups.map(|(at, group)| GroupPlan::new(group, &format!("group[{at}]"), scenario.seed));
        let mut groups = groups.collect::<Result<Vec<_>, _>>()?;
        let truth = &scenario.truth;
        if is_checked(truth) {
            open_ledgers(&mut groups, copies(&scenario.target))?;
        }
        if truth.verify > 0.0 {
            check_verifiable(&groups)?;
        }
        Ok(Self {
            scenario: scenario.clone(),
            groups,
            roads: Roads::new(&scenario.target)?,
            threads: threads(scenario),
        })
    }

    pub(crate) fn truth(&self) -> &Truth {
        &self.scenario.truth
    }

    /// Values are stored in a form that can be verified.
    pub(crate) fn verifies(&self) -> bool {
        self.scenario.truth.verify > 0.0
    }

    pub(crate) fn servers(&self) -> usize {
        self.scenario.target.servers.len()
    }

    /// Stores of the fill phase: one for each key and each server that it is stored on.
    pub(crate) fn keys_to_fill(&self) -> u64 {
        // Keys of a trace come with it.
        let groups = self.groups.iter().filter(|group| group.recording.is_none());
        let keys: u64 =
            groups.map(|group| group.key_sets.iter().map(|set| set.keys.count).sum::<u64>()).sum();
        keys * copies(&self.scenario.target) as u64
    }

    /// The servers that a request of this key goes to, each of them: replicas get every change.
    #[inline]
    pub(crate) fn servers_of(&self, number: u64, kind: Kind, random: &mut fastrand::Rng) -> Range<usize> {
        let Target { replicate, servers_replicate, .. } = self.scenario.target;
        let server = match (kind.changes(), replicate) {
            _ if self.servers() == 1 => 0,
            (_, 0) => self.server_of(number),
            (true, replicas) if !servers_replicate => return 0..replicas,
            (false, _) if servers_replicate => random.usize(..self.servers()),
            (_, replicas) => random.usize(..replicas),
        };
        server..server + 1
    }

    /// Whether one server has both keys.
    #[inline]
    pub(crate) fn are_together(&self, a: u64, b: u64) -> bool {
        self.scenario.target.replicate > 0 || self.server_of(a) == self.server_of(b)
    }

    /// Where keys are shared out: which server has this one.
    #[inline]
    fn server_of(&self, number: u64) -> usize {
        if self.servers() == 1 { 0 } else { (mix(number) % self.servers() as u64) as usize }
    }
}

/// Whether it has to be known what was stored.
pub(crate) fn is_checked(truth: &Truth) -> bool {
    truth.verify > 0.0 || truth.verify_expiry > 0.0 || truth.misses_fail || truth.compare_replicas
}

/// How often every change is asked.
pub(crate) fn copies(target: &Target) -> usize {
    if target.servers_replicate { 1 } else { target.replicate.max(1) }
}

impl GroupPlan {
    /// How often the trace is played.
    pub(crate) fn rounds(&self) -> usize {
        self.group.trace.as_ref().map_or(0, |trace| trace.repeat as usize)
    }

    /// TCP sockets of each lane to each server. The fill phase needs one, even if all else goes by UDP.
    pub(crate) fn tcp_sockets(&self, fills: bool) -> usize {
        match self.group.transport {
            Transport::Udp => usize::from(fills),
            Transport::Tcp | Transport::UdpGets => self.group.sockets,
        }
    }

    /// UDP sockets of each lane to each server: one for each request in flight, so that no answer can be taken for
    /// another.
    pub(crate) fn udp_sockets(&self) -> usize {
        if self.group.transport == Transport::Tcp { 0 } else { self.group.pipeline }
    }

    /// Whether a request of this kind goes by UDP.
    #[inline]
    pub(crate) fn goes_by_udp(&self, kind: Kind) -> bool {
        match self.group.transport {
            Transport::Tcp => false,
            Transport::Udp => true,
            Transport::UdpGets => matches!(kind, Kind::Get | Kind::Gets),
        }
    }

    fn new(group: &Group, field: &str, seed: u64) -> Result<Self, RunError> {
        let mut plan = Self {
            mix: Alias::new(&[1.0]),
            commands: Vec::new(),
            key_sets: vec![KeySet::new(&group.keys, &format!("{field}.keys"))?],
            value_sets: vec![ValueSet::new(&group.values, &format!("{field}.values"), seed)?],
            recording: None,
            group: group.clone(),
        };
        if let Some(trace) = &group.trace {
            let mut recording = Recording::read(trace, group.connections)?;
            if let Some(names) = recording.names.take() {
                plan.key_sets[0].maker.use_names(names);
            }
            let content = &group.values.content;
            plan.value_sets[0].contents =
                Contents::new(content, recording.value_bytes_max as usize, mix(seed));
            // What the trace does not say: whatever a command is without further words.
            plan.group.commands = vec![Command::default()];
            plan.recording = Some(recording);
        }
        for (at, command) in plan.group.commands.clone().iter().enumerate() {
            let field = format!("{field}.command[{at}]");
            if let Some(keys) = &command.key_set {
                plan.key_sets.push(KeySet::new(keys, &format!("{field}.key_set"))?);
            }
            if let Some(values) = &command.value_set {
                plan.value_sets.push(ValueSet::new(values, &format!("{field}.value_set"), seed)?);
            }
            let weights: Vec<f64> = command.ttl.iter().map(|ttl| ttl.weight).collect();
            plan.commands.push(CommandPlan {
                command: command.clone(),
                ttls: if weights.is_empty() { None } else { Some(Alias::new(&weights)) },
                key_set: if command.key_set.is_some() { plan.key_sets.len() - 1 } else { 0 },
                value_set: if command.value_set.is_some() { plan.value_sets.len() - 1 } else { 0 },
            });
        }
        for at in 0..plan.key_sets.len() {
            let mut of_set = plan.commands.iter().filter(|command| command.key_set == at);
            if let Some(command) = of_set.find(|command| command.value_set != 0) {
                plan.key_sets[at].value_set = command.value_set;
            }
        }
        if !plan.group.commands.is_empty() {
            let weights: Vec<f64> = plan.group.commands.iter().map(|command| command.weight).collect();
            plan.mix = Alias::new(&weights);
        }
        Ok(plan)
    }
}

impl CommandPlan {
    /// A time to live for what it stores, in seconds. 0: for ever.
    #[inline]
    pub(crate) fn ttl_secs(&self, random: &mut fastrand::Rng) -> u32 {
        self.ttls.as_ref().map_or(0, |ttls| self.command.ttl[ttls.draw(random)].secs)
    }
}

impl KeySet {
    fn new(keys: &Keys, field: &str) -> Result<Self, RunError> {
        Ok(Self { keys: keys.clone(), maker: KeyMaker::new(keys, field)?, value_set: 0, ledger: None })
    }
}

impl ValueSet {
    fn new(values: &Values, field: &str, seed: u64) -> Result<Self, RunError> {
        let lengths = Lengths::new(&values.bytes, &format!("{field}.bytes"))?;
        let bytes_max = usize::try_from(lengths.max()).ok().filter(|&bytes| bytes <= VALUE_BYTES_MAX);
        let Some(bytes_max) = bytes_max else {
            let reason = "no server takes a value of more than 1 GiB".into();
            return Err(RunError::Scenario { field: format!("{field}.bytes"), reason });
        };
        let contents = Contents::new(&values.content, bytes_max, mix(seed));
        Ok(Self { lengths, redraw: values.redraw, contents })
    }

    /// Length of the next value of this key.
    #[inline]
    pub(crate) fn value_bytes(&self, number: u64, random: &mut fastrand::Rng) -> usize {
        let bytes = if self.redraw { self.lengths.draw(random) } else { self.lengths.of(number) };
        bytes as usize
    }
}

/// Gives every key set a ledger. Sets whose keys look alike share one, since they may be the same keys.
fn open_ledgers(groups: &mut [GroupPlan], copies: usize) -> Result<(), RunError> {
    let mut ranges: HashMap<String, (u64, u64)> = HashMap::new();
    for set in groups.iter().flat_map(|group| &group.key_sets) {
        let end = set.keys.first + set.keys.count;
        let range = ranges.entry(set.keys.prefix.clone()).or_insert((set.keys.first, end));
        *range = (range.0.min(set.keys.first), range.1.max(end));
    }
    let mut ledgers = HashMap::new();
    for (prefix, (first, end)) in ranges {
        if end - first > LEDGER_KEYS_MAX {
            let reason = format!("{} keys are too many to be checked", end - first);
            return Err(RunError::Scenario { field: "truth".into(), reason });
        }
        ledgers.insert(prefix, Arc::new(Ledger::new(first, (end - first) as usize, copies)));
    }
    for set in groups.iter_mut().flat_map(|group| &mut group.key_sets) {
        set.ledger = ledgers.get(&set.keys.prefix).cloned();
    }
    Ok(())
}

/// What changes a value in a way that cannot be followed.
fn check_verifiable(groups: &[GroupPlan]) -> Result<(), RunError> {
    for (at, group) in groups.iter().enumerate() {
        for (command_at, command) in group.commands.iter().enumerate() {
            let values = &group.value_sets[command.value_set];
            let reason = match command.command.kind {
                Kind::Append | Kind::Prepend if values.contents.is_number() => {
                    "append and prepend to numbers cannot be verified"
                }
                Kind::Append | Kind::Prepend if values.lengths.min() < HEAD_BYTES as u64 => {
                    "with append or prepend, only values from 16 bytes on can be verified"
                }
                Kind::Incr | Kind::Decr if !values.contents.is_number() => {
                    "incr and decr can be verified with values.content = \"number\" only"
                }
                _ => continue,
            };
            let field = format!("group[{at}].command[{command_at}]");
            return Err(RunError::Scenario { field, reason: reason.into() });
        }
    }
    Ok(())
}

/// So many as the scenario says, or one for each core but the first; no more than there are connections.
fn threads(scenario: &Scenario) -> usize {
    let connections: usize = scenario.groups.iter().map(|group| group.connections).sum();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if scenario.threads > 0 { scenario.threads } else { cores.saturating_sub(1) };
    wanted.clamp(1, connections.max(1))
}

const VALUE_BYTES_MAX: usize = 1 << 30;
/// 24 bytes each.
const LEDGER_KEYS_MAX: u64 = 1 << 30;
