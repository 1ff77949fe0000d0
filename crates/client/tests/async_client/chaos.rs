//! A network that does wrong, between the client and real servers: no answer is ever wrong.
//!
//! What a key holds follows from its name, and no request changes that, so that every answer is known beforehand. An
//! operation may fail, in a way that the fault allows; but it must not succeed with anything else.
//!
//! `LARDER_CHAOS_OPERATIONS` sets how many operations there are, `LARDER_CHAOS_SEED` where the faults begin.

mod operation;
mod proxy;
mod truth;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{StreamExt, iter};
use larder_client::policy::CircuitBreaker;
use larder_client::{FailurePolicy, Protocol};
use larder_conformance::server::Server;

use crate::servers::{PROTOCOLS, address, patient, start_each};
use operation::Verdict;
use proxy::{Faults, Plan, Proxy};

/// All protocols and both servers together.
const OPERATIONS: u64 = 100_000;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_is_wrong_whatever_the_network_does() {
    let seed = variable("LARDER_CHAOS_SEED", 1);
    let servers = start_each(&["-m", "64"]);
    let runs = servers.len() * PROTOCOLS.len();
    let operations = variable("LARDER_CHAOS_OPERATIONS", OPERATIONS).div_ceil(runs as u64);
    for server in &servers {
        truth::fill(&patient(Protocol::Meta).server(address(server)).build()).await;
        for protocol in PROTOCOLS {
            run(server, protocol, operations, seed, FailurePolicy::Error).await;
        }
    }
}

/// Two ways lead to each server, so that requests can move from one to the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_is_wrong_when_requests_move() {
    let seed = variable("LARDER_CHAOS_SEED", 1);
    for server in &start_each(&["-m", "64"]) {
        truth::fill(&patient(Protocol::Meta).server(address(server)).build()).await;
        for policy in [FailurePolicy::Failover, FailurePolicy::Eject] {
            for protocol in PROTOCOLS {
                run(server, protocol, OPERATIONS / 50, seed, policy).await;
            }
        }
    }
}

/// Plays so many operations against a server behind a proxy, or behind two if the policy says what else to do.
async fn run(server: &Server, protocol: Protocol, operations: u64, seed: u64, policy: FailurePolicy) {
    // Nothing in the text protocol tells one `STORED` from another.
    let faults = Faults { repeats: protocol != Protocol::Text, ..Faults::ALL };
    let proxy =
        Proxy::start(server.address(), protocol, move |number| Plan::random(seed, number, faults)).await;
    let second =
        Proxy::start(server.address(), protocol, move |number| Plan::random(!seed, number, faults)).await;
    let mut builder = patient(protocol).server(proxy.address()).connections(4);
    if policy != FailurePolicy::Error {
        let short = Duration::from_millis(5);
        let breaker = CircuitBreaker { failure_limit: 4, retry_after: short, retry_after_max: short };
        builder = builder.server(second.address()).failure_policy(policy).circuit_breaker(breaker);
    }
    let client = builder.timeout(DEADLINE).connect_timeout(DEADLINE).build();
    let (begun, succeeded) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (client, begun, succeeded) = (client.clone(), Arc::clone(&begun), Arc::clone(&succeeded));
        tasks.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(TASKS).wrapping_add(task));
            while begun.fetch_add(1, Ordering::Relaxed) < operations {
                match operation::play(&client, &mut random).await {
                    Verdict::Right => {
                        succeeded.fetch_add(1, Ordering::Relaxed);
                    }
                    // While both ways are ejected, the others would all fail at once.
                    Verdict::Failed if policy != FailurePolicy::Error => {
                        tokio::time::sleep(DEADLINE / 10).await
                    }
                    Verdict::Failed | Verdict::Cancelled => {}
                    Verdict::Wrong(what) => panic!("{what} (LARDER_CHAOS_SEED={seed})"),
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("every answer is right");
    }
    let (succeeded, connections) = (succeeded.load(Ordering::Relaxed), proxy.connections());
    eprintln!(
        "{protocol:?} {policy:?}: {succeeded} of {operations} operations succeeded, over {connections} connections"
    );
    // A client that goes on with broken connections gets nowhere.
    assert!(succeeded * 3 > operations, "{succeeded} of {operations}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_is_survived() {
    for server in start_each(&["-m", "64"]) {
        truth::fill(&patient(Protocol::Meta).server(address(&server)).build()).await;
        for protocol in PROTOCOLS {
            let whole = Proxy::start(server.address(), protocol, |_| Plan::clean()).await;
            let client = patient(protocol).server(whole.address()).connections(1).build();
            let expected = operation::play_each(&client).await;
            let (sent, received) = whole.bytes();
            assert!(expected.iter().all(|verdict| matches!(verdict, Verdict::Right)), "{expected:?}");
            for (cut_request, bytes) in [(true, sent), (false, received)] {
                let cuts = (0..bytes).map(|cut| survive(server.address(), protocol, cut, cut_request));
                iter(cuts).buffer_unordered(8).collect::<Vec<()>>().await;
            }
        }
    }
}

/// Asks for everything, while the first connection is cut.
async fn survive(server: SocketAddr, protocol: Protocol, cut: u64, cut_request: bool) {
    let plan = move |number| match (number, cut_request) {
        (0, true) => Plan { request_cut: Some(cut), ..Plan::clean() },
        (0, false) => Plan { reply_cut: Some(cut), ..Plan::clean() },
        _ => Plan::clean(),
    };
    let proxy = Proxy::start(server, protocol, plan).await;
    let client = patient(protocol).server(proxy.address()).connections(1).build();
    let mut failed = 0;
    for verdict in operation::play_each(&client).await {
        match verdict {
            Verdict::Right => {}
            Verdict::Failed => failed += 1,
            Verdict::Cancelled => unreachable!("nobody cancels"),
            Verdict::Wrong(what) => panic!("{what}: {protocol:?}, cut at {cut}"),
        }
    }
    // The one that was cut, if it is a change: reads are asked again.
    assert!(failed <= 1, "{failed} failed: {protocol:?}, cut at {cut}");
    assert_eq!(proxy.connections(), 2);
}

/// Stalls last longer.
const DEADLINE: Duration = Duration::from_millis(150);
const TASKS: u64 = 48;
