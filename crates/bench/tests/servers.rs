//! Comparisons, sweeps, searches and agents, with memcached as the server. Nothing here depends on how fast anything
//! is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use larder_bench::agent::{Agent, Token, collect};
use larder_bench::compare::{Metric, Plan, Verdict, compare};
use larder_bench::contestant::launch::{Launch, Running};
use larder_bench::contestant::{Contestant, parse_all};
use larder_bench::outcome::{Period, Phase, Tally, Watcher};
use larder_bench::scenario::{Arrival, Command, Group, Keys, Kind, Scenario, Sizes, Until, Values};
use larder_bench::search::{self, Bounds, search};
use larder_bench::sweep::{Axis, Range, sweep};
use larder_conformance::server::any;

/// A command line of memcached, or of larderd where there is none.
fn memcached(options: &str) -> String {
    format!("{} -t 1 {options}", any().expect("it builds").display())
}

/// Mostly gets, for a quarter of a second.
fn scenario() -> Scenario {
    let commands = vec![
        Command { weight: 0.9, ..Command::default() },
        Command { kind: Kind::Set, weight: 0.1, ..Command::default() },
    ];
    let keys = Keys { count: 10_000, ..Keys::default() };
    let values = Values { bytes: Sizes::Fixed(1000), ..Values::default() };
    Scenario {
        threads: 1,
        until: Until { secs: Some(0.25), ..Until::default() },
        fill: true,
        groups: vec![Group { connections: 4, commands, keys, values, ..Group::default() }],
        ..Scenario::default()
    }
}

fn plan(contestants: &[String]) -> Plan {
    Plan {
        contestants: parse_all(contestants).expect("contestants"),
        scenario: scenario(),
        prepare: Vec::new(),
        settle_secs_max: 0.0,
        rounds: 3,
        restart: false,
        confidence: 0.95,
        launch: Launch::default(),
        load_cores: Vec::new(),
    }
}

#[test]
fn a_server_that_has_settled_has_its_keys() {
    let contestants = [memcached("-m 64"), memcached("-m 64 -t 2")];
    let plan = Plan { settle_secs_max: 20.0, rounds: 2, ..plan(&contestants) };
    let comparison = compare(&plan, &mut (), &AtomicBool::new(false)).expect("a comparison");
    for standing in comparison.standings {
        assert_eq!((standing.rounds.len(), standing.failures), (2, 0));
        assert!(standing.rounds.iter().all(|figures| figures[&Metric::HitRatio] == 1.0));
    }
}

#[test]
fn servers_that_differ_are_told_apart() {
    // The second has room for a tenth of the keys.
    let plan = plan(&[format!("large={}", memcached("-m 64")), format!("small={}", memcached("-m 2"))]);
    let comparison = compare(&plan, &mut (), &AtomicBool::new(false)).expect("a comparison");
    let [first, second] = comparison.standings.as_slice() else { panic!("two servers") };
    assert_eq!((first.contestant.name.as_str(), second.contestant.name.as_str()), ("large", "small"));
    assert_eq!((first.rounds.len(), first.failures, first.ratios.len()), (3, 0, 0));
    let names = ["memcached ", "larderd "];
    assert!(names.iter().any(|name| first.software.starts_with(name)), "{:?}", first.software);
    for figures in first.rounds.iter().chain(&second.rounds) {
        // CPU has a resolution of hundredths of a second, so it may be missing.
        for metric in [Metric::OperationsPerSec, Metric::LatencyP50Micros, Metric::ServerResidentBytes] {
            assert!(figures[&metric] > 0.0, "{metric:?} in {figures:?}");
        }
    }
    assert!(first.rounds.iter().all(|figures| figures[&Metric::HitRatio] == 1.0));
    let hits = second.ratios.iter().find(|ratio| ratio.metric == Metric::HitRatio).expect("hit ratios");
    assert_eq!(hits.verdict, Verdict::Worse, "{hits:?}");
    assert!(hits.low <= hits.ratio && hits.ratio <= hits.high && hits.high < 1.0, "{hits:?}");
}

#[test]
fn turns_are_rotated_and_servers_restarted() {
    struct Turns(Vec<(String, usize)>);
    impl Watcher for Turns {
        fn turn(&mut self, server: &str, round: usize, _rounds: usize) {
            self.0.push((server.to_owned(), round));
        }
        fn phase(&mut self, _phase: Phase) {}
        fn period(&mut self, _period: &Period, _so_far: &Tally) {}
    }
    let mut plan = plan(&[format!("a={}", memcached("-m 64")), format!("b={}", memcached("-m 64"))]);
    plan.restart = true;
    plan.rounds = 2;
    let mut turns = Turns(Vec::new());
    let comparison = compare(&plan, &mut turns, &AtomicBool::new(false)).expect("a comparison");
    let turns: Vec<(&str, usize)> = turns.0.iter().map(|(server, round)| (server.as_str(), *round)).collect();
    assert_eq!(turns, [("a", 1), ("b", 1), ("b", 2), ("a", 2)]);
    // Started anew, and filled anew.
    for standing in &comparison.standings {
        assert!(standing.rounds.iter().all(|figures| figures[&Metric::HitRatio] == 1.0));
    }
}

#[test]
fn a_server_that_does_not_start_is_named() {
    for command in [memcached("--no-such-option"), "no-such-program".to_owned()] {
        let error = compare(&plan(&[command]), &mut (), &AtomicBool::new(false)).expect_err("no server");
        let text = error.to_string();
        assert!(text.contains("did not start") || text.contains("no such program"), "{text}");
    }
}

#[test]
fn a_sweep_measures_every_value() {
    let mut plan = plan(&[memcached("-m 64")]);
    plan.rounds = 1;
    let range: Range = "connections=1..3".parse().expect("a range");
    let swept = sweep(&plan, &range, &mut (), &AtomicBool::new(false)).expect("a sweep");
    assert_eq!(swept.axis, Axis::Connections);
    let connections: Vec<(u64, usize)> =
        swept.steps.iter().map(|step| (step.value, step.comparison.scenario.groups[0].connections)).collect();
    assert_eq!(connections, [(1, 1), (2, 2), (3, 3)]);
}

#[test]
fn a_search_ends_at_its_bound() {
    let plan = search::Plan {
        contestant: memcached("-m 64").parse().expect("a contestant"),
        scenario: scenario(),
        // A server that is not broken keeps it.
        goal: "p50<5s".parse().expect("a goal"),
        bounds: Bounds { start_per_sec: 500.0, max_per_sec: 1000.0, ..Bounds::default() },
        launch: Launch::default(),
        load_cores: Vec::new(),
    };
    let found = search(&plan, &mut (), &AtomicBool::new(false)).expect("a search");
    assert_eq!((found.rate_per_sec, found.failed_rate_per_sec), (Some(1000.0), None));
    assert!(found.steps.iter().all(|step| step.probes.iter().all(|probe| probe.failures == 0)));
}

/// A memcached of one's own, with its address in the scenario.
fn target(scenario: &mut Scenario) -> Running {
    let contestant: Contestant = memcached("-m 64").parse().expect("a contestant");
    let server = Launch::default().start(&contestant, scenario).expect("memcached");
    scenario.target.servers.clone_from(&server.addresses);
    server
}

fn token() -> Token {
    Token::new(b"a token for the tests").expect("long enough")
}

/// Two agents, and `work` with their addresses. The second has a `stop` of its own, as if it were killed.
fn with_agents<T>(work: impl FnOnce(&[String], &AtomicBool) -> T) -> T {
    let agents: Vec<Agent> =
        (0..2).map(|_| Agent::bind("127.0.0.1:0", token(), false).expect("a free port")).collect();
    let addresses: Vec<String> =
        agents.iter().map(|agent| agent.address().expect("an address").to_string()).collect();
    let stops = [AtomicBool::new(false), AtomicBool::new(false)];
    thread::scope(|scope| {
        for (agent, stop) in agents.iter().zip(&stops) {
            scope.spawn(move || agent.serve(&|_| (), stop));
        }
        let result = work(&addresses, &stops[1]);
        stops.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
        result
    })
}

#[test]
fn agents_ask_together() {
    let mut scenario = scenario();
    let _server = target(&mut scenario);
    scenario.flush = true;
    scenario.until.requests = Some(1001);
    scenario.until.secs = None;
    scenario.truth.misses_fail = true;
    scenario.truth.verify = 1.0;
    let outcome = with_agents(|agents, _| {
        // Twice, since an agent must be ready for the next collector.
        collect(agents, &token(), &scenario, &mut (), &AtomicBool::new(false)).expect("a run");
        collect(agents, &token(), &scenario, &mut (), &AtomicBool::new(false)).expect("a run")
    });
    let all = outcome.total.all();
    assert_eq!(all.requests, 1001);
    assert_eq!(all.latency_nanos.len(), 1001);
    assert!(!outcome.total.has_failed(), "{:?}", outcome.total.examples);
    assert!(outcome.total.verified > 0);
    assert_eq!((outcome.servers.len(), outcome.client.threads), (1, 2));
    let in_periods: u64 = outcome.periods.iter().map(|period| period.tally.all().requests).sum();
    assert_eq!(in_periods, 1001);
    assert_eq!(outcome.scenario.groups[0].connections, 4);
}

#[test]
fn an_agent_that_is_killed_ends_the_run() {
    let mut scenario = scenario();
    let _server = target(&mut scenario);
    scenario.until.secs = Some(600.0);
    scenario.period_secs = 0.1;
    scenario.groups[0].arrival = Arrival::Paced { rate_per_sec: 100.0 };
    struct Periods(mpsc::Sender<()>);
    impl Watcher for Periods {
        fn phase(&mut self, _phase: Phase) {}
        fn period(&mut self, _period: &Period, _so_far: &Tally) {
            let _ = self.0.send(());
        }
    }
    with_agents(|agents, stop_second| {
        let (sender, periods) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                periods.recv_timeout(Duration::from_secs(60)).expect("the run goes on");
                stop_second.store(true, Ordering::Relaxed);
            });
            let error = collect(agents, &token(), &scenario, &mut Periods(sender), &AtomicBool::new(false));
            let error = error.expect_err("part of a run is none").to_string();
            assert!(error.starts_with(&format!("agent {}: ", agents[1])), "{error}");
        });
    });
}

#[test]
fn a_run_on_agents_can_be_stopped() {
    let mut scenario = scenario();
    let _server = target(&mut scenario);
    scenario.until.secs = Some(600.0);
    scenario.period_secs = 0.1;
    struct Stop<'a>(&'a AtomicBool);
    impl Watcher for Stop<'_> {
        fn phase(&mut self, _phase: Phase) {}
        fn period(&mut self, _period: &Period, _so_far: &Tally) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let outcome = with_agents(|agents, _| {
        collect(agents, &token(), &scenario, &mut Stop(&stop), &stop).expect("what was asked counts")
    });
    assert!(outcome.total.all().requests > 0 && outcome.elapsed_secs < 600.0);
}
