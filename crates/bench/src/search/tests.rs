//! A made-up server: its latency is that of a queue with one teller, 1 / (capacity - rate) (M/M/1, any textbook).

use super::*;
use crate::scenario::Kind;

const CAPACITY_PER_SEC: f64 = 100_000.0;

/// With 1 / (capacity - rate) < 100 us the rate is below capacity - 10,000.
const GOAL: Goal = Goal { percentile: 99.0, latency_micros: 100.0 };
const LIMIT_PER_SEC: f64 = 90_000.0;

fn queue(rate_per_sec: f64) -> Probe {
    let latency_micros =
        if rate_per_sec < CAPACITY_PER_SEC { 1e6 / (CAPACITY_PER_SEC - rate_per_sec) } else { 1e9 };
    Probe {
        requests: 10_000,
        answered_per_sec: rate_per_sec.min(CAPACITY_PER_SEC),
        latency_micros,
        sent_late: 0.0,
        failures: 0,
        holds: latency_micros < GOAL.latency_micros,
    }
}

fn bounds() -> Bounds {
    Bounds { start_per_sec: 1000.0, min_per_sec: 10.0, max_per_sec: 1e8, tolerance: 0.01 }
}

#[test]
fn the_edge_is_found_within_tolerance() {
    for start_per_sec in [10.0, 1000.0, 89_999.0, 90_001.0, 5e6] {
        let found =
            find(&Bounds { start_per_sec, ..bounds() }, &GOAL, |rate| Ok(Some(queue(rate)))).expect("a rate");
        let held = found.held_per_sec.expect("some rate holds");
        assert!((LIMIT_PER_SEC * 0.99..LIMIT_PER_SEC).contains(&held), "from {start_per_sec}: {held}");
        assert!(found.failed_per_sec.expect("some rate fails") >= LIMIT_PER_SEC);
        // 17 doublings from 10, and 7 halvings to a hundredth.
        assert!(found.steps.len() <= 26, "{} steps", found.steps.len());
    }
}

#[test]
fn a_hiccup_does_not_move_the_edge() {
    // Every fourth run has a bad moment, and every seventh a lucky one.
    let mut runs = 0;
    let found = find(&bounds(), &GOAL, |rate| {
        runs += 1;
        let mut probe = queue(rate);
        if runs % 4 == 0 {
            (probe.latency_micros, probe.holds) = (10_000.0, false);
        } else if runs % 7 == 0 && rate < CAPACITY_PER_SEC {
            (probe.latency_micros, probe.holds) = (99.0, true);
        }
        Ok(Some(probe))
    })
    .expect("a rate");
    let held = found.held_per_sec.expect("some rate holds");
    assert!((LIMIT_PER_SEC * 0.99..LIMIT_PER_SEC).contains(&held), "{held}");
    for step in &found.steps {
        assert_eq!(step.holds, step.rate_per_sec < LIMIT_PER_SEC, "{step:?}");
        assert!(step.probes.len() <= 3);
        let held = step.probes.iter().filter(|probe| probe.holds).count();
        assert_eq!(step.holds, 2 * held > step.probes.len(), "{step:?}");
    }
}

#[test]
fn bounds_are_kept() {
    let holds = |rate: f64, holds| Ok(Some(Probe { holds, latency_micros: 1.0, ..queue(rate) }));
    let all =
        find(&Bounds { max_per_sec: 5000.0, ..bounds() }, &GOAL, |rate| holds(rate, true)).expect("a rate");
    assert_eq!((all.held_per_sec, all.failed_per_sec), (Some(5000.0), None));
    let none = find(&bounds(), &GOAL, |rate| holds(rate, false)).expect("no rate");
    assert_eq!((none.held_per_sec, none.failed_per_sec), (None, Some(10.0)));
}

#[test]
fn what_is_known_counts_when_it_is_stopped() {
    let mut runs = 0;
    let found = find(&bounds(), &GOAL, |rate| {
        runs += 1;
        Ok((runs <= 3).then(|| queue(rate)))
    })
    .expect("some steps");
    assert_eq!((found.steps.len(), found.held_per_sec), (3, Some(4000.0)));
}

#[test]
fn a_probe_holds_if_latency_and_rate_are_kept() {
    let goal = Goal { percentile: 90.0, latency_micros: 1000.0 };
    let mut outcome = Outcome { elapsed_secs: 1.0, ..Outcome::default() };
    let gets = outcome.total.commands.entry(Kind::Get).or_default();
    gets.requests = 10_000;
    gets.latency_nanos.record_n(100_000, 9_500).expect("within bounds");
    gets.latency_nanos.record_n(5_000_000, 500).expect("within bounds");
    assert!(goal.probe(10_000.0, &outcome).holds);
    // 10,300 expected, 1 % and three times the root of them forgiven: 9,893.
    assert!(goal.probe(10_300.0, &outcome).holds);
    assert!(!goal.probe(10_500.0, &outcome).holds);
    assert!(!Goal { percentile: 99.0, ..goal }.probe(10_000.0, &outcome).holds);
    // 9,500 of 10,000 are quick: with 556 more that were never sent, less than 90 % of all.
    outcome.total.unsent = 550;
    assert!(goal.probe(10_000.0, &outcome).holds);
    outcome.total.unsent = 570;
    assert!(!goal.probe(10_000.0, &outcome).holds);
    outcome.total.unsent = 0;
    outcome.total.failures.insert(crate::outcome::Failure::Lost, 1);
    assert!(!goal.probe(10_000.0, &outcome).holds);
    assert!(!goal.probe(10_000.0, &Outcome::default()).holds);
}

#[test]
fn goals_are_read() {
    let goal = |percentile, latency_micros| Ok(Goal { percentile, latency_micros });
    assert_eq!("p99<1ms".parse(), goal(99.0, 1000.0));
    assert_eq!("p99.9 < 500us".parse(), goal(99.9, 500.0));
    assert_eq!("p50<0.5 s".parse(), goal(50.0, 500_000.0));
    for text in
        ["", "p99", "p99<1", "p99<ms", "p101<1ms", "99<1ms", "p99<-1ms", "p99<1h", "p99<infs", "pNaN<1s"]
    {
        assert!(text.parse::<Goal>().is_err(), "{text}");
    }
}

#[test]
fn a_percentile_of_few_requests_is_warned_of() {
    let warning = |percentile, requests| {
        let found =
            find(&bounds(), &GOAL, |rate| Ok(Some(Probe { requests, ..queue(rate) }))).expect("a rate");
        Goal { percentile, ..GOAL }.few_warning(&found)
    };
    assert_eq!(warning(99.0, 1000), None);
    assert!(warning(99.0, 999).is_some_and(|text| text.contains("p99 of 999 requests")));
    assert!(warning(99.9, 9999).is_some_and(|text| text.contains("10,000 or more")));
    assert_eq!(warning(99.9, 10_000), None);
    assert_eq!(warning(100.0, 1), None);
}

#[test]
fn a_percentile_among_requests_that_were_never_sent_has_no_latency() {
    let mut outcome = Outcome { elapsed_secs: 1.0, ..Outcome::default() };
    let gets = outcome.total.commands.entry(Kind::Get).or_default();
    gets.requests = 90;
    for _ in 0..90 {
        gets.latency_nanos.record(1_000_000).expect("within bounds");
    }
    assert_eq!(GOAL.probe(100.0, &outcome).latency(), "1.00 ms");
    outcome.total.unsent = 10;
    let probe = GOAL.probe(100.0, &outcome);
    assert_eq!((probe.latency().as_str(), probe.holds), ("never sent", false));
}
