//! Resources that a run uses on its servers: CPU and memory from /proc if they run on this machine, else from their
//! `stats`.

mod ask;
mod process;

use std::collections::{BTreeMap, BTreeSet};

use crate::outcome::ServerCost;
use crate::scenario::Target;
use ask::{Answers, ask};
use process::{Process, Usage};

/// The servers of a run, from the end of its warm-up to its last answer.
///
/// It requests `stats` at the beginning and at the end, on its own connection. In between it only reads /proc, so it
/// does not disturb the measurement.
#[derive(Debug)]
pub struct Watch {
    servers: Vec<Server>,
    /// CPU that all servers had used at the end of the last period.
    last_cpu_secs: Option<f64>,
}

/// A server at the beginning of the run.
#[derive(Debug)]
struct Server {
    address: String,
    before: Result<Before, String>,
}

#[derive(Debug)]
struct Before {
    answers: Answers,
    /// Its process on this machine.
    process: Option<(Process, Usage)>,
}

impl Watch {
    /// Records what the servers have used until now.
    pub fn begin(target: &Target) -> Self {
        let servers = target
            .servers
            .iter()
            .map(|address| Server { address: address.clone(), before: Before::note(address, target) })
            .collect();
        let mut watch = Self { servers, last_cpu_secs: None };
        watch.last_cpu_secs = watch.cpu_secs();
        watch
    }

    /// CPU seconds that all servers have used since the last call. `None` if the CPU of one of them cannot be read
    /// (another machine, for instance).
    pub fn period(&mut self) -> Option<f64> {
        let now = self.cpu_secs();
        let last = std::mem::replace(&mut self.last_cpu_secs, now);
        Some((now? - last?).max(0.0))
    }

    /// Resources used since the beginning, in the order of the scenario.
    pub fn end(self, target: &Target) -> Vec<ServerCost> {
        self.servers.into_iter().map(|server| server.cost(target)).collect()
    }

    /// Resources used since they were started. A process that listens at two addresses counts once.
    fn cpu_secs(&self) -> Option<f64> {
        let mut counted = BTreeSet::new();
        let mut sum = 0.0;
        for server in &self.servers {
            let (process, _) = server.before.as_ref().ok()?.process.as_ref()?;
            if counted.insert(process.pid()) {
                sum += process.usage()?.cpu_secs();
            }
        }
        Some(sum)
    }
}

impl Before {
    fn note(address: &str, target: &Target) -> Result<Self, String> {
        let answers = ask(address, target)?;
        let process = Process::find(&answers).and_then(|process| {
            let usage = process.usage()?;
            Some((process, usage))
        });
        Ok(Self { answers, process })
    }
}

impl Server {
    fn cost(self, target: &Target) -> ServerCost {
        let mut cost = ServerCost { address: self.address.clone(), ..ServerCost::default() };
        let before = match self.before {
            Ok(before) => before,
            Err(why) => {
                cost.unwatched = Some(format!("its stats could not be asked for: {why}"));
                return cost;
            }
        };
        cost.version = before.answers.version.clone();
        cost.software = before.answers.software();
        if let Some((process, usage)) = &before.process {
            cost.resident_bytes = process.resident_bytes();
            match process.usage() {
                Some(now) => {
                    cost.cpu_user_secs = Some(now.user_secs - usage.user_secs);
                    cost.cpu_system_secs = Some(now.system_secs - usage.system_secs);
                    cost.page_faults = Some(now.page_faults.saturating_sub(usage.page_faults));
                }
                None => cost.unwatched = Some("its process has ended during the run".into()),
            }
        }
        let after = match ask(&self.address, target) {
            Ok(after) => after,
            Err(why) => {
                cost.unwatched
                    .get_or_insert_with(|| format!("its stats could not be asked for at the end: {why}"));
                return cost;
            }
        };
        cost.stats_deltas = deltas(&before.answers.stats, &after.stats);
        if before.process.is_none() {
            let used = |name: &str| Some(after.number(name)? - before.answers.number(name)?);
            cost.cpu_user_secs = used("rusage_user");
            cost.cpu_system_secs = used("rusage_system");
            cost.unwatched = Some(
                "its process is not to be seen from here: CPU is what its stats tell, memory is unknown"
                    .into(),
            );
        }
        cost
    }
}

/// Every number that changed: its increase.
fn deltas(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> BTreeMap<String, f64> {
    let number = |text: &String| text.parse::<f64>().ok().filter(|number| number.is_finite());
    after
        .iter()
        .filter_map(|(name, text)| {
            let delta = number(text)? - number(before.get(name)?)?;
            (delta != 0.0).then(|| (name.clone(), delta))
        })
        .collect()
}

#[cfg(test)]
mod tests;
