//! What memcached answers, which is the same whatever the protocol.

use larder_client::codec::{Arith, Delete, Get, Mode, Protocol, Store, Touch};

use crate::server::{Answer, Connection, start};

const PROTOCOLS: [Protocol; 3] = [Protocol::Text, Protocol::Meta, Protocol::Binary];

fn get(connection: &mut Connection, key: &str) -> Answer {
    connection.ask(|pipeline, out| pipeline.get(out, &Get::default(), key.as_bytes(), 0))
}

fn store(connection: &mut Connection, store: &Store<'_>) -> String {
    let outcome = connection.ask(|pipeline, out| pipeline.store(out, store, Some(0))).outcome;
    // The new CAS value is told in the binary protocol alone.
    outcome.split(' ').next().unwrap_or_default().to_owned()
}

#[track_caller]
fn expect_value(answer: &Answer, value: &str, flags: u32) {
    assert_eq!(answer.values, [(0, value.to_owned(), flags)]);
    assert_eq!(answer.outcome, "Found { hits: 1, keys: 1 }");
}

#[test]
fn stores_do_what_their_modes_say() {
    for protocol in PROTOCOLS {
        let server = start(&[]);
        let mut to = Connection::open(&server, protocol);
        let item = Store { key: b"k", value: &[b"one"], client_flags: 7, ..Store::default() };
        assert_eq!(get(&mut to, "k").outcome, "Found { hits: 0, keys: 1 }");
        for mode in [Mode::Replace, Mode::Append, Mode::Prepend] {
            assert_eq!(store(&mut to, &Store { mode, ..item }), "NotStored", "{protocol:?} {mode:?}");
        }
        assert_eq!(store(&mut to, &Store { mode: Mode::Add, ..item }), "Stored");
        assert_eq!(store(&mut to, &Store { mode: Mode::Add, ..item }), "NotStored");
        assert_eq!(store(&mut to, &Store { mode: Mode::Append, value: &[b">"], ..item }), "Stored");
        assert_eq!(store(&mut to, &Store { mode: Mode::Prepend, value: &[b"<"], ..item }), "Stored");
        expect_value(&get(&mut to, "k"), "<one>", 7);
        let replacement = Store { value: &[b"two"], client_flags: u32::MAX, ..item };
        assert_eq!(store(&mut to, &Store { mode: Mode::Replace, ..replacement }), "Stored");
        expect_value(&get(&mut to, "k"), "two", u32::MAX);
        assert_eq!(store(&mut to, &Store { value: &[], ..item }), "Stored");
        expect_value(&get(&mut to, "k"), "", 7);
        assert_eq!(store(&mut to, &Store { exptime: -1, ..item }), "Stored");
        assert_eq!(get(&mut to, "k").values, []);
        let large = vec![b'x'; 2 << 20];
        assert_eq!(store(&mut to, &Store { value: &[&large], ..item }), "TooLarge");
    }
}

#[test]
fn compare_and_store_compares() {
    for protocol in PROTOCOLS {
        let server = start(&[]);
        let mut to = Connection::open(&server, protocol);
        let item = Store { key: b"k", value: &[b"one"], ..Store::default() };
        assert_eq!(store(&mut to, &Store { compare: Some(1), ..item }), "NotFound");
        assert_eq!(store(&mut to, &item), "Stored");
        let gets = Get { with_cas: true, ..Get::default() };
        let cas = to.ask(|pipeline, out| pipeline.get(out, &gets, b"k", 0)).cas.expect("it is asked for");
        assert_eq!(store(&mut to, &Store { compare: Some(cas + 1), ..item }), "Exists");
        let change = Store { compare: Some(cas), value: &[b"two"], ..item };
        assert_eq!(store(&mut to, &change), "Stored");
        assert_eq!(store(&mut to, &change), "Exists");
        expect_value(&get(&mut to, "k"), "two", 0);
        if protocol != Protocol::Text {
            let delete = Delete { key: b"k", compare: Some(cas), ..Delete::default() };
            assert_eq!(to.ask(|pipeline, out| pipeline.delete(out, &delete, Some(0))).outcome, "Exists");
        }
    }
}

#[test]
fn a_multi_get_tells_which_keys_it_found() {
    for protocol in PROTOCOLS {
        let server = start(&[]);
        let mut to = Connection::open(&server, protocol);
        for (key, value) in [("b", "1"), ("c", "2"), ("e", "")] {
            store(&mut to, &Store { key: key.as_bytes(), value: &[value.as_bytes()], ..Store::default() });
        }
        for exptime in [None, Some(60)] {
            let get = Get { with_cas: true, exptime, ..Get::default() };
            let keys = ["a", "b", "b", "c", "d", "e", "f"];
            let found = to.ask(|pipeline, out| pipeline.multi_get(out, &get, keys, 0));
            let value = |index, text: &str| (index, text.to_owned(), 0);
            assert_eq!(found.values, [value(1, "1"), value(2, "1"), value(3, "2"), value(5, "")]);
            assert_eq!(found.outcome, "Found { hits: 4, keys: 7 }");
            assert!(found.cas.is_some());
            let none = to.ask(|pipeline, out| pipeline.multi_get(out, &get, ["x", "y"], 0));
            assert_eq!((none.values, &*none.outcome), (Vec::new(), "Found { hits: 0, keys: 2 }"));
        }
    }
}

#[test]
fn items_are_touched_counted_and_deleted() {
    for protocol in PROTOCOLS {
        let server = start(&[]);
        let mut to = Connection::open(&server, protocol);
        let touch = |to: &mut Connection, exptime| {
            let touch = Touch { key: b"k", exptime, ..Touch::default() };
            to.ask(|pipeline, out| pipeline.touch(out, &touch, Some(0))).outcome
        };
        let arith = |to: &mut Connection, arith: Arith<'_>| {
            to.ask(|pipeline, out| pipeline.arith(out, &arith, Some(0))).outcome
        };
        let delete = |to: &mut Connection| {
            let delete = Delete { key: b"k", ..Delete::default() };
            to.ask(|pipeline, out| pipeline.delete(out, &delete, Some(0))).outcome
        };
        let by = |delta, decrement| Arith { key: b"k", delta, decrement, ..Arith::default() };

        assert_eq!(arith(&mut to, by(1, false)), "NotFound");
        assert_eq!(touch(&mut to, 60), "NotFound");
        assert_eq!(delete(&mut to), "NotFound");
        store(&mut to, &Store { key: b"k", value: &[b"18446744073709551615"], ..Store::default() });
        assert_eq!(arith(&mut to, by(1, true)), "Number(18446744073709551614)");
        assert_eq!(arith(&mut to, by(12, false)), "Number(10)");
        assert_eq!(arith(&mut to, by(100, true)), "Number(0)");
        assert_eq!(touch(&mut to, 60), "Touched");
        let gat = Get { exptime: Some(-1), ..Get::default() };
        let touched = to.ask(|pipeline, out| pipeline.get(out, &gat, b"k", 0));
        assert_eq!(touched.values.len(), 1, "{protocol:?}");
        assert_eq!(get(&mut to, "k").values, [], "{protocol:?}");
        store(&mut to, &Store { key: b"k", value: &[b"x"], ..Store::default() });
        assert_eq!(arith(&mut to, by(1, false)), "NonNumeric");
        assert_eq!(delete(&mut to), "Deleted");
        if protocol != Protocol::Text {
            let create = Arith { initial: Some((41, 0)), ..by(1, false) };
            assert_eq!(arith(&mut to, create), "Number(41)");
            assert_eq!(arith(&mut to, create), "Number(42)");
        }
    }
}

#[test]
fn quiet_requests_tell_failures_alone() {
    for protocol in PROTOCOLS {
        let server = start(&[]);
        let mut to = Connection::open(&server, protocol);
        let answer = to.ask(|pipeline, out| {
            let item = Store { key: b"k", value: &[b"5"], ..Store::default() };
            pipeline.store(out, &item, None);
            pipeline.arith(out, &Arith { key: b"k", delta: 2, ..Arith::default() }, None);
            pipeline.touch(out, &Touch { key: b"k", exptime: 60, ..Touch::default() }, None);
            pipeline.store(out, &Store { mode: Mode::Add, ..item }, None);
            pipeline.delete(out, &Delete { key: b"nokey", ..Delete::default() }, None);
            pipeline.get(out, &Get::default(), b"k", 0);
        });
        expect_value(&answer, "7", 0);
        // What a quiet delete does not find is deleted.
        let failures: &[&str] = if protocol == Protocol::Text { &[] } else { &["NotStored"] };
        assert_eq!(answer.quiet_failures, failures, "{protocol:?}");
        let answer = to.ask(|pipeline, out| {
            pipeline.delete(out, &Delete { key: b"k", ..Delete::default() }, None);
            pipeline.flush_all(out, 0, None);
            let large = vec![b'x'; 2 << 20];
            pipeline.store(out, &Store { key: b"k", value: &[&large], ..Store::default() }, None);
            pipeline.noop(out, 0);
        });
        assert_eq!(answer.outcome, "Ok");
        let count = if protocol == Protocol::Text { 0 } else { 1 };
        assert_eq!(answer.quiet_failures.len(), count, "{protocol:?}");
        assert!(answer.quiet_failures.iter().all(|failure| failure.contains("TooLarge")));
    }
}

#[test]
fn the_server_tells_about_itself() {
    for protocol in PROTOCOLS {
        let server = start(&[]);
        let mut to = Connection::open(&server, protocol);
        let version = to.ask(|pipeline, out| pipeline.version(out, 0)).outcome;
        assert!(version.starts_with("Version("), "{version}");
        let stats = to.ask(|pipeline, out| pipeline.stats(out, b"", 0));
        assert_eq!(stats.outcome, "Ok");
        assert_eq!(stats.stats[0], ("pid".to_owned(), server.pid().to_string()));
        assert!(stats.stats.len() > 80);
        assert_eq!(to.ask(|pipeline, out| pipeline.stats(out, b"reset", 0)).outcome, "Ok");
        let unknown = to.ask(|pipeline, out| pipeline.stats(out, b"nonsense", 0)).outcome;
        assert_eq!(unknown, if protocol == Protocol::Binary { "Client" } else { "UnknownCommand" });
        store(&mut to, &Store { key: b"k", ..Store::default() });
        assert_eq!(to.ask(|pipeline, out| pipeline.flush_all(out, 3600, Some(0))).outcome, "Ok");
        assert_eq!(get(&mut to, "k").values.len(), 1);
        assert_eq!(to.ask(|pipeline, out| pipeline.flush_all(out, 0, Some(0))).outcome, "Ok");
        assert_eq!(get(&mut to, "k").values.len(), 0);
        assert_eq!(to.ask(|pipeline, out| pipeline.noop(out, 0)).outcome, "Ok");
    }
}
