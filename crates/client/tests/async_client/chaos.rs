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
use operation::{KINDS, Verdict};
use proxy::{Countdown, Faults, Plan, Proxy};

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
    // A client that goes on with broken connections gets nowhere; nor does one on a machine that is too busy for its
    // deadline.
    let mut deadline = DEADLINE;
    while run_within(deadline, server, protocol, operations, seed, policy).await * 3 <= operations {
        deadline *= 4;
        assert!(deadline < 200 * DEADLINE, "most operations fail");
    }
}

/// How many operations gave the right answer.
async fn run_within(
    deadline: Duration,
    server: &Server,
    protocol: Protocol,
    operations: u64,
    seed: u64,
    policy: FailurePolicy,
) -> u64 {
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
    let client = builder.timeout(deadline).connect_timeout(deadline).build();
    let begun = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (client, begun) = (client.clone(), Arc::clone(&begun));
        tasks.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(TASKS).wrapping_add(task));
            let mut counts = Counts::default();
            while begun.fetch_add(1, Ordering::Relaxed) < operations {
                match operation::play(&client, &mut random, deadline).await {
                    Verdict::Right => counts.right += 1,
                    Verdict::Failed => {
                        counts.failed += 1;
                        // While both ways are ejected, the others would all fail at once.
                        if policy != FailurePolicy::Error {
                            tokio::time::sleep(deadline / 10).await;
                        }
                    }
                    Verdict::Cancelled => counts.cancelled += 1,
                    Verdict::Wrong(what) => panic!("{what} (LARDER_CHAOS_SEED={seed})"),
                }
            }
            counts
        }));
    }
    let mut all = Counts::default();
    for task in tasks {
        let Counts { right, failed, cancelled } = task.await.expect("every answer is right, and in time");
        all.right += right;
        all.failed += failed;
        all.cancelled += cancelled;
    }
    let Counts { right, failed, cancelled } = all;
    let connections = proxy.connections();
    eprintln!(
        "{protocol:?} {policy:?}: {operations} operations: {right} right, {failed} told as failed, {cancelled} \
         cancelled, none wrong or late, over {connections} connections"
    );
    assert_eq!(right + failed + cancelled, operations);
    right
}

#[derive(Default)]
struct Counts {
    right: u64,
    failed: u64,
    cancelled: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_byte_is_survived() {
    for server in start_each(&["-m", "64"]) {
        truth::fill(&patient(Protocol::Meta).server(address(&server)).build()).await;
        for protocol in PROTOCOLS {
            let kinds = (0..KINDS).flat_map(|kind| [(kind, true), (kind, false)]);
            let cut = |(kind, cut_request)| cut_everywhere(server.address(), protocol, kind, cut_request);
            let cuts: u64 = iter(kinds).map(cut).buffer_unordered(8).collect::<Vec<u64>>().await.iter().sum();
            eprintln!("{protocol:?}: {cuts} cuts");
            assert!(cuts > 400, "{cuts}");
        }
    }
}

/// Asks for the same again and again, while the connection is cut at one byte after the other, until request or reply
/// is too short for a cut. Returns the cuts.
async fn cut_everywhere(server: SocketAddr, protocol: Protocol, kind: u64, cut_request: bool) -> u64 {
    let countdown = Countdown::default();
    let mut plan = Plan::clean();
    *(if cut_request { &mut plan.request_cut } else { &mut plan.reply_cut }) = countdown.clone();
    let proxy = Proxy::start(server, protocol, move |_| plan.clone()).await;
    let client = patient(protocol).server(proxy.address()).connections(1).build();
    for cut in 0.. {
        let what = || format!("operation {kind}, {protocol:?}, cut at {cut}");
        countdown.set(cut);
        let verdict = operation::ask(&client, kind, 3).await;
        let is_cut = !countdown.stop();
        // A change that was cut may have been made.
        let may_fail = is_cut && !operation::is_read(kind);
        let is_right = matches!(verdict, Verdict::Right) || may_fail && matches!(verdict, Verdict::Failed);
        assert!(is_right, "{}: {verdict:?}", what());
        let next = operation::ask(&client, 0, 4).await;
        assert!(matches!(next, Verdict::Right), "after {}: {next:?}", what());
        if !is_cut {
            assert_eq!(proxy.connections(), cut + 1, "each cut is the end of one connection");
            return cut;
        }
    }
    unreachable!("requests and replies have an end")
}

/// Stalls last longer.
const DEADLINE: Duration = Duration::from_millis(150);
const TASKS: u64 = 48;
