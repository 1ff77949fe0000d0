//! The most that this client can send to a server that does no work.
//!
//! If the client was the limit, figures say little about the server. So the floor server gets the same load: its rate
//! is the most that the client on this machine can reach.

use std::sync::atomic::AtomicBool;

use crate::contestant::launch::{Launch, Pinned};
use crate::contestant::{Contestant, Place};
use crate::outcome::{ClientCost, Outcome};
use crate::scenario::{Arrival, Scenario, Until};
use crate::{Error, run};

/// Requests a second that a client on `load_cores` reaches against the floor server, in a closed loop of about a
/// second, with the connections and commands of `scenario`.
///
/// # Errors
/// The scenario uses TLS, which the floor server does not have; or the server cannot be started.
pub fn floor_requests_per_sec(
    scenario: &Scenario,
    launch: &Launch,
    load_cores: &[usize],
    stop: &AtomicBool,
) -> Result<f64, Error> {
    if scenario.target.tls.is_some() {
        return Err("the floor server speaks no TLS: the client's limit is not known".into());
    }
    let floor = Contestant { name: "floor".into(), place: Place::Floor };
    let server = launch.start(&floor, scenario)?;
    let mut scenario = floor.asked(scenario, &server.addresses);
    scenario.until = Until { secs: Some(CALIBRATION_SECS), ..Until::default() };
    scenario.warm_up_secs = WARM_UP_SECS;
    (scenario.fill, scenario.flush) = (false, false);
    scenario.target.replicate = 0;
    scenario.groups.iter_mut().for_each(|group| group.arrival = Arrival::Closed);
    let _pinned = Pinned::to(load_cores)?;
    let outcome = run(&scenario, &mut (), stop)?;
    Ok(outcome.total.all().requests as f64 / outcome.elapsed_secs.max(f64::MIN_POSITIVE))
}

/// Records the client's limit, and warns if the run was near it.
pub fn note(outcome: &mut Outcome, floor_requests_per_sec: f64) {
    outcome.client.floor_requests_per_sec = Some(floor_requests_per_sec);
    let requests_per_sec = outcome.total.all().requests as f64 / outcome.elapsed_secs.max(f64::MIN_POSITIVE);
    let share = requests_per_sec / floor_requests_per_sec;
    if share > FLOOR_SHARE_MAX {
        outcome.client.warnings.push(format!(
            "these figures are of larder bench rather than of the server: it sent {:.0} % of what it can send at most \
             from here. Try more threads (--threads), or several machines (larder bench agent).",
            100.0 * share
        ));
    }
}

/// A warning about a load thread that worked for this share of the run, if it was too busy. The share itself is in the
/// outcome: `compare` tells each warning once, so none has a figure that differs from round to round.
pub(crate) fn busy_warning(busiest_thread_share: f64) -> Option<String> {
    (busiest_thread_share > BUSY_SHARE_MAX).then(|| {
        let most = 100.0 * BUSY_SHARE_MAX;
        format!(
            "these figures may be of larder bench rather than of the server: one of its threads was busy for more \
             than {most:.0} % of the time. Try more threads (--threads), or several machines (larder bench agent)."
        )
    })
}

/// A warning about a machine of the load that had no CPU time left, without a figure as well.
/// A run of less than a second is too short for the kernel's steps of 10 ms.
pub(crate) fn host_warning(host_cpu_share: Option<f64>, elapsed_secs: f64) -> Option<String> {
    let is_exhausted = host_cpu_share.is_some_and(|share| share > HOST_SHARE_MAX);
    (is_exhausted && elapsed_secs >= 1.0).then(|| {
        "the machine that larder bench ran on had no CPU time left, so the server may be faster than these figures \
         say. Run the two on different machines or cores."
            .to_owned()
    })
}

/// A warning about a rate that was not kept, if the machine of the load, or one of its threads, had no CPU time left.
pub(crate) fn exhausted_warning(client: &ClientCost) -> Option<String> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let what = match client.host_cpu_share.filter(|&share| share > HOST_SHARE_MAX) {
        Some(share) => format!("its machine used {} of its CPU time", percent(share)),
        None if client.busiest_thread_share > BUSY_SHARE_MAX => {
            format!("one of its threads was busy for {} of the time", percent(client.busiest_thread_share))
        }
        None => return None,
    };
    Some(format!("larder bench, not the server, may be the limit: at the lowest rate that failed {what}."))
}

/// Beyond this share of the client's limit, the client's own cost shows in every figure.
const FLOOR_SHARE_MAX: f64 = 0.8;
/// Beyond this share of a core, requests wait for the client.
const BUSY_SHARE_MAX: f64 = 0.9;
/// Beyond this share of all processors, threads wait for one.
const HOST_SHARE_MAX: f64 = 0.95;
const CALIBRATION_SECS: f64 = 1.0;
const WARM_UP_SECS: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Kind;

    #[test]
    fn a_client_at_its_limit_says_so() {
        let outcome = |requests| {
            let mut outcome = Outcome { elapsed_secs: 2.0, ..Outcome::default() };
            outcome.total.commands.entry(Kind::Get).or_default().requests = requests;
            note(&mut outcome, 1000.0);
            outcome.client
        };
        // 1600 in two seconds are 80 % of 1000 a second.
        assert!(outcome(1600).warnings.is_empty());
        let client = outcome(1601);
        assert_eq!((client.floor_requests_per_sec, client.warnings.len()), (Some(1000.0), 1));
        assert_eq!(busy_warning(0.9), None);
        // Rounds of a comparison that differ by little say the same.
        assert!(busy_warning(0.91).is_some());
        assert_eq!(busy_warning(0.91), busy_warning(0.98));
    }

    #[test]
    fn a_run_on_a_machine_without_cpu_left_is_doubted() {
        assert!(host_warning(Some(1.0), 10.0).is_some());
        for (share, secs) in [(None, 10.0), (Some(0.95), 10.0), (Some(1.0), 0.5)] {
            assert_eq!(host_warning(share, secs), None, "{share:?} {secs}");
        }
    }

    #[test]
    fn a_machine_without_cpu_left_is_named() {
        let client = |host_cpu_share, busiest_thread_share| ClientCost {
            host_cpu_share,
            busiest_thread_share,
            ..ClientCost::default()
        };
        let told = |client| exhausted_warning(&client).unwrap_or_default();
        assert!(told(client(Some(0.99), 0.5)).ends_with("its machine used 99 % of its CPU time."));
        assert!(told(client(Some(0.5), 0.95)).ends_with("one of its threads was busy for 95 % of the time."));
        assert!(told(client(None, 0.95)).contains("one of its threads"));
        assert_eq!(told(client(Some(0.95), 0.9)), "");
        assert_eq!(told(client(None, 0.0)), "");
    }
}
