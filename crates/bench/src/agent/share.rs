//! Each agent's part of a scenario.

use crate::scenario::{Arrival, Group, Keys, Scenario};

/// The scenario shared out over `agents`, by position.
///
/// Connections are shared out evenly, rates as the connections are, requests evenly. Each agent draws from a seed of
/// its own. A group that replays a trace goes to the first agent whole, since a trace is one sequence. The first agent
/// flushes, and fills for all; but where answers are checked nobody can know what another agent stored, so every agent
/// has its own part of the keys, and fills that.
pub(super) fn share(scenario: &Scenario, agents: usize) -> Vec<Scenario> {
    (0..agents).map(|agent| part(scenario, agent, agents)).collect()
}

/// Whether what an agent finds depends on what another does before the run.
pub(super) fn first_prepares(scenario: &Scenario) -> bool {
    scenario.flush || scenario.fill
}

fn part(scenario: &Scenario, agent: usize, agents: usize) -> Scenario {
    let mut part = scenario.clone();
    let truth = &scenario.truth;
    let has_own_keys =
        truth.verify > 0.0 || truth.verify_expiry > 0.0 || truth.misses_fail || truth.compare_replicas;
    part.seed = scenario.seed.wrapping_add((agent as u64).wrapping_mul(SEED_STEP));
    part.flush = scenario.flush && agent == 0;
    part.fill = scenario.fill && (agent == 0 || has_own_keys);
    part.until.requests = scenario.until.requests.map(|requests| piece(requests, agent, agents));
    part.groups =
        scenario.groups.iter().filter_map(|group| part_of(group, agent, agents, has_own_keys)).collect();
    part
}

/// `None`: there is no connection for this agent.
fn part_of(group: &Group, agent: usize, agents: usize, has_own_keys: bool) -> Option<Group> {
    if group.trace.is_some() {
        return (agent == 0).then(|| group.clone());
    }
    let mut part = group.clone();
    part.connections = piece(group.connections as u64, agent, agents) as usize;
    if part.connections == 0 {
        return None;
    }
    let share = part.connections as f64 / group.connections as f64;
    match &mut part.arrival {
        Arrival::Closed => {}
        Arrival::Paced { rate_per_sec } => *rate_per_sec *= share,
        Arrival::Open { rate_per_sec, rate_end_per_sec, .. } => {
            *rate_per_sec *= share;
            if let Some(rate) = rate_end_per_sec {
                *rate *= share;
            }
        }
    }
    if has_own_keys {
        let key_sets = part.commands.iter_mut().flat_map(|command| &mut command.key_set);
        std::iter::once(&mut part.keys).chain(key_sets).for_each(|keys| take_own(keys, agent, agents));
    }
    Some(part)
}

/// Leaves this agent's part of the keys.
fn take_own(keys: &mut Keys, agent: usize, agents: usize) {
    let before: u64 = (0..agent).map(|other| piece(keys.count, other, agents)).sum();
    keys.first = keys.first.saturating_add(before);
    keys.count = piece(keys.count, agent, agents);
}

/// What agent number `agent` gets of a whole: all pieces together are the whole, and no two differ by more than 1.
fn piece(whole: u64, agent: usize, agents: usize) -> u64 {
    let (agent, agents) = (agent as u64, agents as u64);
    whole / agents + u64::from(agent < whole % agents)
}

/// Odd, and without a pattern in its bits: 2^64 by the golden ratio.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Spacing, Trace};

    fn scenario(groups: Vec<Group>) -> Scenario {
        Scenario { groups, flush: true, fill: true, ..Scenario::default() }
    }

    #[test]
    fn the_parts_are_the_whole() {
        let arrival =
            Arrival::Open { rate_per_sec: 100.0, rate_end_per_sec: Some(200.0), spacing: Spacing::Even };
        let mut whole = scenario(vec![Group { connections: 8, arrival, ..Group::default() }]);
        whole.until.requests = Some(10);
        let parts = share(&whole, 3);
        let connections: Vec<usize> = parts.iter().map(|part| part.groups[0].connections).collect();
        assert_eq!(connections, [3, 3, 2]);
        let requests: Vec<_> = parts.iter().map(|part| part.until.requests).collect();
        assert_eq!(requests, [Some(4), Some(3), Some(3)]);
        let third =
            Arrival::Open { rate_per_sec: 25.0, rate_end_per_sec: Some(50.0), spacing: Spacing::Even };
        assert_eq!(parts[2].groups[0].arrival, third);
        assert_eq!(
            parts.iter().map(|part| (part.flush, part.fill)).collect::<Vec<_>>(),
            [(true, true), (false, false), (false, false)]
        );
        assert!(parts[0].seed != parts[1].seed && parts[1].seed != parts[2].seed);
    }

    #[test]
    fn whoever_checks_has_keys_of_its_own() {
        let mut whole = scenario(vec![Group::default()]);
        whole.truth.verify = 0.5;
        whole.groups[0].keys.count = 11;
        whole.groups[0].keys.first = 100;
        let parts = share(&whole, 2);
        let keys: Vec<(u64, u64)> =
            parts.iter().map(|part| (part.groups[0].keys.first, part.groups[0].keys.count)).collect();
        assert_eq!(keys, [(100, 6), (106, 5)]);
        assert!(parts[1].fill && !parts[1].flush);
    }

    #[test]
    fn what_cannot_be_shared_is_not() {
        let trace = Group { trace: Some(Trace::default()), ..Group::default() };
        let single = Group { connections: 1, ..Group::default() };
        let parts = share(&scenario(vec![trace.clone(), single]), 2);
        assert_eq!((parts[0].groups.len(), parts[1].groups.len()), (2, 0));
        assert_eq!(parts[0].groups[0], trace);
    }
}
