//! Several servers that hold the same.

use std::io::{Read, Write};

use larder_bench::Outcome;
use larder_bench::outcome::{Failure, Phase, Tally, Watcher};
use larder_bench::scenario::{Kind, Scenario};
use larder_conformance::server::{Server, any};

use super::{failures, try_run};

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start::<&str>(&any().unwrap(), &[]).unwrap()).collect()
}

/// In the form of a list, without the outermost quotes.
fn addresses(servers: &[Server]) -> String {
    servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join("\", \"")
}

fn ask(server: &Server, request: &str) -> String {
    let mut stream = server.connect().unwrap();
    stream.write_all(format!("{request}quit\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn stat(server: &Server, name: &str) -> u64 {
    let stats = ask(server, "stats\r\n");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap().parse().unwrap()
}

#[track_caller]
fn assert_right(outcome: &Outcome) {
    assert!(!outcome.total.has_failed(), "{:?} {:?}", outcome.total.failures, outcome.total.examples);
}

#[test]
fn stores_go_to_each_replica_and_gets_to_any() {
    for protocol in ["text", "meta", "binary"] {
        let servers = servers(3);
        let outcome = try_run(
            &addresses(&servers),
            &format!(
                "target.replicate = 2
                fill = true
                threads = 2
                until.requests = 10000
                truth = {{ verify = 1.0, misses_fail = true, compare_replicas = true }}
                [[group]]
                connections = 4
                pipeline = 3
                protocol = \"{protocol}\"
                keys.count = 500
                values = {{ bytes = [{{ min = 20, max = 900, weight = 1.0 }}], redraw = true }}
                command = [{{ kind = \"get\", weight = 4.0 }}, {{ kind = \"get\", keys = 5 }}, {{ kind = \"set\" }},
                           {{ kind = \"set\", noreply = true }}, {{ kind = \"delete\" }}, {{ kind = \"add\" }},
                           {{ kind = \"append\", weight = 0.1 }},
                           {{ kind = \"set\", ttl = [{{ secs = 2, weight = 1.0 }}] }}]"
            ),
        )
        .unwrap();
        assert_right(&outcome);
        assert!(outcome.total.verified > 1000, "{}", outcome.total.verified);
        // Overlapping changes of one key are few, and passed over.
        assert!((300..=500).contains(&outcome.total.compared), "{}", outcome.total.compared);
        let sets: Vec<u64> = servers.iter().map(|server| stat(server, "cmd_set")).collect();
        assert_eq!((sets[0], sets[2]), (sets[1], 0));
        let gets: Vec<u64> = servers.iter().map(|server| stat(server, "get_hits")).collect();
        assert!(gets[0] > 1000 && gets[1] > 1000 && gets[2] == 0, "{gets:?}");
    }
}

#[test]
fn each_copy_counts_in_the_tables_and_all_of_them_once_towards_the_end() {
    let servers = servers(2);
    let outcome = try_run(
        &addresses(&servers),
        "target.replicate = 2
        until.requests = 1000
        [[group]]
        connections = 3
        command = [{ kind = \"set\" }]",
    )
    .unwrap();
    assert_right(&outcome);
    assert_eq!(outcome.total.commands[&Kind::Set].requests, 2000);
    assert_eq!((stat(&servers[0], "cmd_set"), stat(&servers[1], "cmd_set")), (1000, 1000));
}

#[test]
fn servers_that_copy_among_themselves_get_each_store_once() {
    let servers = servers(3);
    let outcome = try_run(
        &addresses(&servers),
        "target.replicate = 2
        target.servers_replicate = true
        until.requests = 3000
        truth.verify = 1.0
        [[group]]
        connections = 3
        keys.count = 100
        command = [{ kind = \"set\" }, { kind = \"get\" }]",
    )
    .unwrap();
    assert_right(&outcome);
    let sets: Vec<u64> = servers.iter().map(|server| stat(server, "cmd_set")).collect();
    assert_eq!(sets.iter().sum::<u64>(), outcome.total.commands[&Kind::Set].requests);
    assert!(sets[0] > 400 && sets[1] > 400 && sets[2] == 0, "{sets:?}");
    let gets: Vec<u64> = servers.iter().map(|server| stat(server, "cmd_get")).collect();
    assert!(gets.iter().all(|&gets| gets > 300), "{gets:?}");
}

/// Changes two keys on one replica when the load begins.
struct Meddler<'a>(&'a Server);

impl Watcher for Meddler<'_> {
    fn phase(&mut self, phase: Phase) {
        if phase == Phase::Running {
            let changed = ask(self.0, "set k0000007 0 0 3\r\nbad\r\ndelete k0000009\r\n");
            assert_eq!(changed, "STORED\r\nDELETED\r\n");
        }
    }

    fn period(&mut self, _: &larder_bench::outcome::Period, _: &Tally) {}
}

#[test]
fn what_differs_between_replicas_is_found() {
    let servers = servers(2);
    let toml = format!(
        "target = {{ servers = [\"{}\"], replicate = 2 }}
        fill = true
        until.requests = 200
        truth = {{ compare_replicas = true, expiry_slack_secs = 0.2 }}
        [[group]]
        connections = 2
        keys = {{ count = 300, prefix = \"k\", bytes = 8 }}
        command = [{{ kind = \"get\" }}]",
        addresses(&servers)
    );
    let scenario: Scenario = toml::from_str(&toml).unwrap();
    let outcome =
        larder_bench::run(&scenario, &mut Meddler(&servers[1]), &std::sync::atomic::AtomicBool::new(false));
    let outcome = outcome.unwrap();
    assert_eq!((failures(&outcome, Failure::ReplicasDiffer), outcome.total.compared), (2, 300));
    assert_eq!(outcome.total.examples.len(), 2);
    assert!(outcome.total.examples[0].contains("number 7"), "{:?}", outcome.total.examples);
}
