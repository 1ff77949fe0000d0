//! Compares what the replicas hold when all is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder_client::Client;
use larder_client::client::Item;

use super::keys::KEY_BYTES_MAX;
use super::plan::{GroupPlan, KeySet, Plan};
use super::socket::dialect;
use crate::outcome::{EXAMPLES_MAX, Failure, Tally};

/// Asks every replica for every key of every group. What differs, and what cannot be asked, becomes a failure in
/// `total`.
pub(crate) fn compare(plan: &Plan, stop: &AtomicBool, total: &mut Tally) {
    let target = &plan.scenario.target;
    let replicas = if target.servers_replicate { target.servers.len() } else { target.replicate };
    for group in &plan.groups {
        let protocol = dialect(group.group.protocol);
        let clients = (0..replicas).map(|server| plan.roads.client(server, protocol)).collect();
        let slack = Duration::from_secs_f64(plan.truth().expiry_slack_secs);
        let mut comparing = Comparing { servers: &target.servers, clients, slack, total };
        for set in keys_used(group) {
            if !comparing.all(set, stop) {
                return;
            }
        }
    }
}

/// Without the group's own keys, if each command has its own.
fn keys_used(group: &GroupPlan) -> impl Iterator<Item = &KeySet> {
    let is_used = |at: usize| group.commands.iter().any(|command| command.key_set == at);
    group.key_sets.iter().enumerate().filter(move |&(at, _)| is_used(at)).map(|(_, set)| set)
}

/// A comparison on its way.
struct Comparing<'a> {
    servers: &'a [String],
    clients: Vec<Client>,
    slack: Duration,
    total: &'a mut Tally,
}

impl Comparing<'_> {
    /// `false`: it was stopped, or a replica does not answer.
    fn all(&mut self, set: &KeySet, stop: &AtomicBool) -> bool {
        let end = set.keys.first + set.keys.count;
        let mut first = set.keys.first;
        while first < end && !stop.load(Ordering::Relaxed) {
            let next = end.min(first + BATCH_KEYS);
            let is_settled =
                |&number: &u64| set.ledger.as_ref().is_none_or(|ledger| ledger.is_settled(number));
            let numbers: Vec<u64> = (first..next).filter(is_settled).collect();
            if !self.batch(set, &numbers) {
                return false;
            }
            first = next;
        }
        first >= end
    }

    /// What differs at first may be a value that expires just now, or a copy that is on its way: it is asked for again.
    fn batch(&mut self, set: &KeySet, numbers: &[u64]) -> bool {
        let asked = Instant::now();
        let mut differing = numbers.to_vec();
        loop {
            match self.differing(set, &differing) {
                Ok(differences) => differing = differences,
                Err(why) => {
                    self.fail(Failure::Closed, why);
                    return false;
                }
            }
            if differing.is_empty() || asked.elapsed() >= self.slack {
                break;
            }
            std::thread::sleep(RETRY_EVERY);
        }
        self.total.compared += numbers.len() as u64;
        for number in differing {
            self.fail(
                Failure::ReplicasDiffer,
                format!("key number {number} is not the same on every replica"),
            );
        }
        true
    }

    /// Those of the keys that are not the same everywhere.
    fn differing(&mut self, set: &KeySet, numbers: &[u64]) -> Result<Vec<u64>, String> {
        let mut buffer = [0; KEY_BYTES_MAX];
        let keys: Vec<Vec<u8>> =
            numbers.iter().map(|&number| set.maker.write(number, &mut buffer).to_vec()).collect();
        let mut found: Vec<Vec<Option<Item>>> = Vec::new();
        for (client, server) in self.clients.iter_mut().zip(self.servers) {
            let answer = client.multi_get(&keys);
            if let Some((_, error)) = answer.failures.first() {
                return Err(format!("{server}: cannot be compared: {error}"));
            }
            found.push(answer.items);
        }
        let differs = |&at: &usize| found.iter().any(|items| !is_same(&items[at], &found[0][at]));
        Ok((0..numbers.len()).filter(differs).map(|at| numbers[at]).collect())
    }

    fn fail(&mut self, failure: Failure, example: String) {
        *self.total.failures.entry(failure).or_default() += 1;
        if self.total.examples.len() < EXAMPLES_MAX {
            self.total.examples.push(example);
        }
    }
}

/// CAS uniques are each server's own.
fn is_same(a: &Option<Item>, b: &Option<Item>) -> bool {
    let shown = |item: &Item| (item.client_flags, item.value.clone());
    a.as_ref().map(shown) == b.as_ref().map(shown)
}

const BATCH_KEYS: u64 = 128;
const RETRY_EVERY: Duration = Duration::from_millis(50);
