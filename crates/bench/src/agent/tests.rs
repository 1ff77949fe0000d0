//! Conversations that go wrong, with an end made up for it. Those that go well are in `tests/agents.rs`, against
//! memcached.

use std::io::{Read, Write};

use serde::Serialize;

use super::message::{Order, Report};
use super::token::Side;
use super::wire::{Receiver, Sender, greet};
use super::*;
use crate::Outcome;
use crate::outcome::{Period, Tally};
use crate::scenario::{Group, Scenario, Trace};

fn token() -> Token {
    Token::new(b"0123456789abcdef").expect("long enough")
}

fn other_token() -> Token {
    Token::new(b"0123456789abcdeF").expect("long enough")
}

/// Runs `work` beside an agent that listens on the address it is given.
fn with_agent<T>(work: impl FnOnce(&str) -> T) -> T {
    let agent = Agent::bind("127.0.0.1:0", token(), false).expect("a free port");
    let address = agent.address().expect("an address").to_string();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| agent.serve(&|_| (), &stop));
        let result = work(&address);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// A run on one agent that is `play`ed by the test.
fn collect_from(play: impl FnOnce(TcpStream) + Send) -> Result<Outcome, String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::scope(|scope| {
        scope.spawn(move || play(listener.accept().expect("a collector").0));
        let scenario = Scenario { groups: vec![Group::default()], ..Scenario::default() };
        collect(std::slice::from_ref(&address), &token(), &scenario, &mut (), &AtomicBool::new(false))
            .map_err(|error| error.to_string().replace(&address, "ADDRESS"))
    })
}

/// What `address` says to this order, as a collector hears it.
fn order(address: &str, order: &Order) -> Result<Report, Error> {
    let (mut sender, mut receiver) = collector_at(address)?;
    sender.send(order)?;
    receiver.receive()
}

fn collector_at(address: &str) -> Result<(Sender, Receiver), Error> {
    greet(connect(address)?, Side::Collector, &token(), 1 << 20)
}

fn run_order(scenario: Scenario) -> Order {
    Order::Run { scenario: Box::new(scenario), password: None }
}

#[test]
fn an_agent_accepts_no_other_token() {
    with_agent(|address| {
        let error = greet(connect(address).expect("an agent"), Side::Collector, &other_token(), 100);
        assert_eq!(error.expect_err("refused").to_string(), "it does not accept the token");
        // Others are served as before.
        assert!(matches!(order(address, &Order::Clock), Ok(Report::Clock { .. })));
    });
}

#[test]
fn a_collector_accepts_no_other_token() {
    // An agent that lets anybody in, and does not know the token either.
    let error = collect_from(|mut stream| {
        stream.write_all(b"larder bench agent 1\r\n").expect("sent");
        stream.write_all(&[1; 32]).expect("sent");
        stream.read_exact(&mut [0; 64]).expect("a proof");
        stream.write_all(&[2; 32]).expect("sent");
        let _ = stream.read(&mut [0]);
    });
    assert_eq!(error.expect_err("refused"), "agent ADDRESS: it has another token");
}

#[test]
fn a_proof_cannot_be_handed_back() {
    let numbers = token::Numbers { agent: [1; 32], collector: [2; 32] };
    let proof = token().proof(Side::Agent, &numbers);
    assert!(token().is_proof(&proof, Side::Agent, &numbers));
    assert!(!token().is_proof(&proof, Side::Collector, &numbers));
    assert!(!other_token().is_proof(&proof, Side::Agent, &numbers));
    let swapped = token::Numbers { agent: [2; 32], collector: [1; 32] };
    assert!(!token().is_proof(&proof, Side::Agent, &swapped));
}

#[test]
fn who_is_no_agent_is_told_apart() {
    let error = collect_from(|mut stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sent");
        let _ = stream.read(&mut [0]);
    });
    assert_eq!(error.expect_err("refused"), "agent ADDRESS: it is no agent of this version of larder");
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    with_agent(|address| {
        let mut scenario = Scenario { description: "x".repeat(1 << 20), ..Scenario::default() };
        let Ok(Report::Failed { reason }) = order(address, &run_order(scenario.clone())) else {
            panic!("not refused")
        };
        assert!(reason.contains("at most 1048576 are accepted"), "{reason}");
        // The same, a little shorter, is read: it fails for having nothing to do.
        scenario.description.truncate(1 << 19);
        let reply = order(address, &run_order(scenario));
        assert!(!matches!(&reply, Ok(Report::Failed { reason }) if reason.contains("accepted")), "{reply:?}");
    });
}

#[test]
fn a_message_that_was_changed_is_refused() {
    #[derive(Serialize)]
    struct Unknown {
        unknown: u8,
    }
    with_agent(|address| {
        let (mut sender, mut receiver) = collector_at(address).expect("an agent");
        sender.send(&Unknown { unknown: 1 }).expect("sent");
        let Ok(Report::Failed { reason }) = receiver.receive() else { panic!("not refused") };
        assert!(reason.starts_with("no message that is known"), "{reason}");

        // A message with a proof of nothing, after a greeting that was right.
        let mut stream = connect(address).expect("an agent");
        let (_sender, mut receiver) =
            greet(stream.try_clone().expect("a copy"), Side::Collector, &token(), 1000).expect("a greeting");
        stream.write_all(&7_u32.to_be_bytes()).expect("sent");
        stream.write_all(&[0; 32]).expect("sent");
        stream.write_all(b"\"Clock\"").expect("sent");
        let Ok(Report::Failed { reason }) = receiver.receive() else { panic!("not refused") };
        assert_eq!(reason, "a message was changed on its way");
    });
}

#[test]
fn files_are_not_read_unless_allowed() {
    with_agent(|address| {
        let trace = Some(Trace { file: "/etc/passwd".into(), ..Trace::default() });
        let scenario = Scenario { groups: vec![Group { trace, ..Group::default() }], ..Scenario::default() };
        let Ok(Report::Failed { reason }) = order(address, &run_order(scenario)) else {
            panic!("not refused")
        };
        assert!(reason.contains("/etc/passwd") && reason.contains("--allow-files"), "{reason}");
    });
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    with_agent(|address| {
        for nonsense in [Order::Start { at_nanos: 0 }, Order::Stop] {
            assert!(matches!(order(address, &nonsense), Ok(Report::Failed { .. })), "{nonsense:?}");
        }
    });
}

/// Plays an agent until it has been told to start.
fn play_until_start(stream: TcpStream) -> (Sender, Receiver) {
    let (mut sender, mut receiver) = greet(stream, Side::Agent, &token(), 1 << 20).expect("a greeting");
    loop {
        match receiver.receive().expect("an order") {
            Order::Clock => sender.send(&Report::Clock { nanos: 5 }).expect("sent"),
            Order::Run { .. } => sender.send(&Report::Ready).expect("sent"),
            Order::Start { .. } => return (sender, receiver),
            Order::Stop | Order::Beat => {}
        }
    }
}

#[test]
fn an_agent_that_dies_is_named() {
    let error = collect_from(|stream| {
        let (mut sender, _receiver) = play_until_start(stream);
        let period = Period { begins_secs: 0.0, secs: 1.0, tally: Tally::default(), server_cpu_secs: None };
        sender.send(&Report::Period(Box::new(period))).expect("sent");
    });
    assert_eq!(error.expect_err("no outcome"), "agent ADDRESS: closed the connection");
}

#[test]
fn an_agent_that_fails_is_quoted() {
    let error = collect_from(|stream| {
        let (mut sender, mut receiver) = play_until_start(stream);
        sender.send(&Report::Failed { reason: "no more memory".into() }).expect("sent");
        let _ = receiver.receive::<Order>();
    });
    assert_eq!(error.expect_err("no outcome"), "agent ADDRESS: no more memory");
}

#[test]
fn a_late_start_is_told() {
    let outcome = collect_from(|stream| {
        let (mut sender, mut receiver) = play_until_start(stream);
        sender.send(&Report::Begun { late_nanos: 1_000_000_000 }).expect("sent");
        sender.send(&Report::Done(Box::default())).expect("sent");
        let _ = receiver.receive::<Order>();
    });
    let warnings = outcome.expect("an outcome").client.warnings;
    assert!(warnings.len() == 1 && warnings[0].ends_with("began 1000 ms late"), "{warnings:?}");
}

#[test]
fn tokens_are_no_words() {
    assert!(Token::new(b"secret").is_err());
    assert_eq!(format!("{:?}", token()), "Token(..)");
}
