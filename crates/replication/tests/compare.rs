//! Comparisons: what digests find, both sides against each other at every split, and what comes at the wrong time.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use larder_replication::compare::{
    Answer, Ask, AskingStep, CompareRead, CompareStep, Comparison, LEAVES, Listed, ScanRead, Tree,
    fingerprint, leaf_of,
};
use larder_replication::entry::{Entries, Entry};
use larder_replication::link::{
    Admission, Now, Publisher, PublisherAction, Settings, Subscriber, SubscriberAction,
};
use larder_replication::members::Cursor;
use larder_replication::state::{Expiry, Item, State};
use larder_replication::wire::{Message, Refusal, Token};

const NOW: Now = Now { micros: 1_000_000, unix_micros: 1_800_000_000_000_000 };
const HORIZON: u64 = 1 << 50;

type Data = BTreeMap<Vec<u8>, State<Vec<u8>>>;

fn state(rng: &mut Rng) -> State<Vec<u8>> {
    let version = rng.u64(1..1000) << 8 | rng.u64(1..4);
    let value = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
    let item = Item { client_flags: rng.u32(..), marks: rng.u8(..4), value };
    let exptime_secs = rng.u64(2_000_000_000..2_000_000_100);
    let expiry = Expiry { value_version: version, version: version + (rng.u64(..3) << 8), exptime_secs };
    State { expiry, ..State::set(version, 0, 0, item) }
}

fn data(rng: &mut Rng, keys: usize) -> Data {
    (0..keys).map(|number| (format!("key{number}").into_bytes(), state(rng))).collect()
}

fn tree<'a>(states: impl IntoIterator<Item = (&'a Vec<u8>, &'a State<Vec<u8>>)>) -> Tree {
    let mut tree = Tree::new();
    for (key, state) in states {
        tree.add(leaf_of(key), fingerprint(key, state).expect("it is an item"));
    }
    tree
}

#[test]
fn equal_states_have_equal_digests_in_any_order() {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let data = data(&mut rng, 500);
        let mut shuffled: Vec<_> = data.iter().collect();
        rng.shuffle(&mut shuffled);
        assert_eq!(tree(&data), tree(shuffled), "seed {seed}");
    }
}

/// Each bit of a value and each register of a state, in the leaf of its key and in all ranges above it.
#[test]
fn one_bit_is_found() {
    let mut rng = Rng::with_seed(1);
    let data = data(&mut rng, 200);
    let whole = tree(&data);
    for _ in 0..500 {
        let mut other = data.clone();
        let key = rng.choice(data.keys().collect::<Vec<_>>()).expect("there are keys").clone();
        let state = other.get_mut(&key).expect("it is there");
        let register = state.value.as_mut().expect("it is an item");
        let item = register.item.as_mut().expect("it is an item");
        let bit = 1 << rng.u32(..8);
        match rng.u8(..6) {
            0 if !item.value.is_empty() => {
                let place = rng.usize(..item.value.len());
                item.value[place] ^= bit as u8;
            }
            1 => item.client_flags ^= bit as u32,
            2 => item.marks ^= bit as u8,
            3 => register.version ^= bit,
            4 => state.expiry.version ^= bit,
            _ => state.expiry.exptime_secs ^= bit,
        }
        let altered = tree(&other);
        for level in 0..4 {
            let number = (u32::from(leaf_of(&key)) >> (16 - 4 * level)) as u16;
            assert_ne!(whole.children(level as u8, number), altered.children(level as u8, number), "{level}");
        }
    }
    assert!(whole.children(4, 0).is_none() && whole.children(1, 16).is_none());
    assert!(whole.children(3, (LEAVES / 16 - 1) as u16).is_some());
}

/// Keys that are alike do not gather in a few leaves.
#[test]
fn keys_spread_over_the_leaves() {
    let mut counts = vec![0_u32; LEAVES];
    (0..LEAVES * 4).for_each(|number| counts[usize::from(leaf_of(format!("user:{number}").as_bytes()))] += 1);
    assert!(counts.iter().max().is_some_and(|most| *most < 30), "four are the mean");
}

/// Both ends, and what each of them has.
struct Pair {
    publisher: Publisher,
    subscriber: Subscriber,
    theirs: Data,
    piece_bytes: usize,
    judged: Vec<Vec<u8>>,
    mended: Data,
    ended: Option<Comparison>,
    sent_bytes: usize,
    /// What the publisher sends beside the states that it was asked for.
    unasked: Vec<u8>,
}

impl Pair {
    fn new(theirs: Data, piece_bytes: usize) -> Self {
        let settings = |site| {
            Arc::new(Settings {
                batch_bytes: 200,
                ..Settings::new(
                    site,
                    u64::from(site) + 1000,
                    u64::from(site) + 2000,
                    Token::new(*b"the token"),
                )
            })
        };
        Self {
            publisher: Publisher::new(settings(1), [1; 32], 7, NOW),
            subscriber: Subscriber::new(settings(2), [2; 32], NOW),
            theirs,
            piece_bytes,
            judged: Vec::new(),
            mended: Data::new(),
            ended: None,
            sent_bytes: 0,
            unasked: Vec::new(),
        }
    }

    /// Delivers until nothing is under way. Errors: a side has closed the connection.
    fn run(&mut self, ours: &Data, now: Now) -> Result<(), Refusal> {
        loop {
            let mut is_quiet = true;
            while let Some(action) = self.publisher.next_action() {
                is_quiet = false;
                self.serve(action, now)?;
            }
            while let Some(action) = self.subscriber.next_action() {
                is_quiet = false;
                self.pull(action, ours, now)?;
            }
            if is_quiet {
                return Ok(());
            }
        }
    }

    fn serve(&mut self, action: PublisherAction, now: Now) -> Result<(), Refusal> {
        match action {
            PublisherAction::Send(bytes) => {
                self.sent_bytes += bytes.len();
                bytes.chunks(self.piece_bytes).for_each(|piece| self.subscriber.receive(piece, now));
            }
            PublisherAction::Admit { .. } => self.publisher.admit(Admission::Log),
            PublisherAction::Compare(CompareStep::Scan { position, .. }) => {
                self.publisher.compare_scanned(scan(&self.theirs, &position));
            }
            PublisherAction::Compare(CompareStep::List { position, leaves, .. }) => {
                let (page, next) = page(&self.theirs, &position);
                let listed = page.into_iter().filter(|(key, _)| leaves.contains(leaf_of(key)));
                let listed = listed.map(|(key, state)| Listed {
                    key,
                    version: state.version(),
                    expiry: state.expiry,
                    fingerprint: fingerprint(key, state).expect("it is an item"),
                });
                self.publisher.compare_listed(listed.collect(), next);
            }
            PublisherAction::Compare(CompareStep::Read { keys, bytes_max, .. }) => {
                let mut read = CompareRead { count: 0, body: Vec::new() };
                for key in keys {
                    let state = self.theirs[&key].as_ref().map(Vec::as_slice);
                    Entry::of_state(&key, &state).for_each(|entry| entry.encode(&mut read.body));
                    read.count += 1;
                    if read.body.len() >= bytes_max {
                        break;
                    }
                }
                read.body.extend_from_slice(&self.unasked);
                self.publisher.compare_read(&read);
            }
            PublisherAction::Close(closed) => return Err(closed.refusal),
            _ => {}
        }
        Ok(())
    }

    fn pull(&mut self, action: SubscriberAction, ours: &Data, now: Now) -> Result<(), Refusal> {
        match action {
            SubscriberAction::Send(bytes) => {
                self.sent_bytes += bytes.len();
                bytes.chunks(self.piece_bytes).for_each(|piece| self.publisher.receive(piece, now));
            }
            SubscriberAction::Connected { .. } => {
                self.subscriber.subscribe(Cursor { incarnation: 1001, run: 2001, sequence: 7 });
            }
            SubscriberAction::Compare(AskingStep::Scan { position, .. }) => {
                self.subscriber.compare_scanned(scan(ours, &position), now);
            }
            SubscriberAction::Compare(AskingStep::Judge { list, horizon }) => {
                assert_eq!(horizon, HORIZON);
                let differs = |listed: &Listed<'_>| {
                    let own = ours.get(listed.key).and_then(|state| fingerprint(listed.key, state));
                    own != Some(listed.fingerprint)
                };
                let listed = AskingStep::listed(&list);
                let wanted = listed.iter().filter(|listed| differs(listed)).map(|listed| listed.key.to_vec());
                self.judged.extend(listed.iter().map(|listed| listed.key.to_vec()));
                self.subscriber.compare_judged(wanted.collect(), now);
            }
            SubscriberAction::Compare(AskingStep::Mend { body }) => {
                for entry in Entries::new(&body).map_while(Result::ok) {
                    let (key, state) = entry.state().expect("it is of a key");
                    self.mended.insert(key.to_vec(), state.map(<[u8]>::to_vec));
                }
                self.subscriber.compare_mended(now);
            }
            SubscriberAction::Compare(AskingStep::Ended(comparison)) => self.ended = Some(comparison),
            SubscriberAction::Close(closed) => return Err(closed.refusal),
            _ => {}
        }
        Ok(())
    }

    /// A whole comparison.
    fn compare(&mut self, ours: &Data) -> Comparison {
        self.run(ours, NOW).expect("they speak the same");
        assert!(self.subscriber.compare(HORIZON, NOW));
        assert!(!self.subscriber.compare(HORIZON, NOW), "one at a time");
        for step in 0..1000 {
            // The steps of a scan have a rate.
            let now = Now { micros: NOW.micros + step * 20_000, ..NOW };
            self.subscriber.tick(now);
            self.run(ours, now).expect("they speak the same");
            if let Some(ended) = self.ended.take() {
                assert!(!self.subscriber.is_comparing());
                return ended;
            }
        }
        panic!("it does not end")
    }
}

type Page<'a> = Vec<(&'a Vec<u8>, &'a State<Vec<u8>>)>;

fn page<'a>(data: &'a Data, position: &[u8]) -> (Page<'a>, Option<Vec<u8>>) {
    let rest = data.iter().filter(|(key, _)| key.as_slice() > position);
    let page: Vec<_> = rest.take(40).collect();
    let last = page.last().map(|(key, _)| key.to_vec());
    let is_last = last.as_ref() == data.keys().next_back() || last.is_none();
    (page, last.filter(|_| !is_last))
}

fn scan(data: &Data, position: &[u8]) -> ScanRead {
    let (page, position) = page(data, position);
    let of_state =
        |(key, state): &(&Vec<u8>, &State<Vec<u8>>)| Some((leaf_of(key), fingerprint(key, state)?));
    ScanRead { states: page.iter().filter_map(of_state).collect(), position }
}

/// What differs arrives, and nothing else; few keys beside them are listed.
#[test]
fn what_differs_arrives_and_nothing_else() {
    for seed in 0..30 {
        let mut rng = Rng::with_seed(seed);
        let theirs = data(&mut rng, 300);
        let mut ours = theirs.clone();
        let mut differing = Data::new();
        for _ in 0..rng.usize(..6) {
            let key = format!("key{}", rng.u32(..300)).into_bytes();
            if rng.bool() {
                ours.remove(&key);
            } else {
                ours.insert(key.clone(), state(&mut rng));
            }
            differing.insert(key.clone(), theirs[&key].clone());
        }
        // What only this site has is the other one's to find.
        ours.insert(b"own".to_vec(), state(&mut rng));
        let mut pair = Pair::new(theirs, usize::MAX);
        let comparison = pair.compare(&ours);
        assert_eq!(pair.mended, differing, "seed {seed}");
        assert_eq!(comparison.states, ours.len() as u64);
        assert!(comparison.ranges as usize <= differing.len() + 1 && pair.judged.len() < 20);
    }
}

#[test]
fn equal_sites_exchange_a_few_hundred_bytes() {
    let theirs = data(&mut Rng::with_seed(5), 1000);
    let mut pair = Pair::new(theirs.clone(), usize::MAX);
    assert_eq!(pair.compare(&theirs).ranges, 0);
    assert!(
        pair.mended.is_empty() && pair.judged.is_empty() && pair.sent_bytes < 4000,
        "{}",
        pair.sent_bytes
    );
}

/// However the bytes are split, it is the same comparison.
#[test]
fn every_split_is_the_same() {
    let mut rng = Rng::with_seed(9);
    let theirs = data(&mut rng, 60);
    let mut ours = theirs.clone();
    (0..5).for_each(|number| drop(ours.remove(format!("key{number}").as_bytes())));
    let run = |piece_bytes| {
        let mut pair = Pair::new(theirs.clone(), piece_bytes);
        let comparison = pair.compare(&ours);
        (comparison, pair.judged, pair.mended, pair.sent_bytes)
    };
    let whole = run(usize::MAX);
    assert_eq!(whole.2.len(), 5);
    (1..300).for_each(|piece_bytes| assert_eq!(run(piece_bytes), whole, "{piece_bytes}"));
}

#[test]
fn what_comes_at_the_wrong_time_ends_the_connection() {
    let theirs = data(&mut Rng::with_seed(9), 60);
    let asks =
        [Ask::GoOn, Ask::Ranges { level: 0, numbers: vec![0] }, Ask::List(vec![1]), Ask::Keys(vec![b"key"])];
    for ask in asks {
        let mut pair = Pair::new(theirs.clone(), usize::MAX);
        assert_eq!(pair.run(&theirs, NOW), Ok(()));
        pair.publisher.receive(&encoded(&Message::Compare(ask)), NOW);
        assert_eq!(pair.run(&theirs, NOW), Err(Refusal::Violation));
    }
    // Nor a second question before the answer, nor ranges that there are not.
    let begin = encoded(&Message::Compare(Ask::Begin { horizon: HORIZON }));
    let mut pair = Pair::new(theirs.clone(), usize::MAX);
    assert_eq!(pair.run(&theirs, NOW), Ok(()));
    pair.publisher.receive(&[&begin[..], &begin].concat(), NOW);
    assert_eq!(pair.run(&theirs, NOW), Err(Refusal::Violation));
    for answer in [
        Answer::Scanned { is_last: true },
        Answer::Digests(vec![0; 16]),
        Answer::Listed { is_last: true, keys: Vec::new() },
        Answer::States { count: 1 },
    ] {
        let mut pair = Pair::new(theirs.clone(), usize::MAX);
        assert_eq!(pair.run(&theirs, NOW), Ok(()));
        pair.subscriber.receive(&encoded(&Message::Compared(answer)), NOW);
        assert_eq!(pair.run(&theirs, NOW), Err(Refusal::Violation));
    }
}

/// What is mended is not judged again, so it has to be what was judged before.
#[test]
fn states_that_were_not_asked_for_end_the_connection() {
    let theirs = data(&mut Rng::with_seed(9), 60);
    let mut ours = theirs.clone();
    ours.remove(b"key7".as_slice());
    let delete = Entry::Delete { key: b"key8", version: 1 << 30 | 1, base_version: 0 };
    let flush = Entry::Flush { prefix: b"", exceptions: vec![], version: 1 << 30 | 1 };
    for unasked in [delete, flush] {
        let mut pair = Pair::new(theirs.clone(), usize::MAX);
        unasked.encode(&mut pair.unasked);
        pair.run(&ours, NOW).expect("they speak the same");
        assert!(pair.subscriber.compare(HORIZON, NOW));
        let mut steps = (0..1000).map(|step| {
            let now = Now { micros: NOW.micros + step * 20_000, ..NOW };
            pair.subscriber.tick(now);
            pair.run(&ours, now)
        });
        assert_eq!(steps.find(Result::is_err), Some(Err(Refusal::Violation)));
        drop(steps);
        assert!(pair.mended.is_empty());
    }
}

/// Numbers that are not in order, empty keys, and more than may be.
#[test]
fn lists_are_bounded_and_in_order() {
    let is_message = |message: &Message<'_>| {
        let bytes = encoded(message);
        Message::decode(bytes[8], &bytes[12..]).is_ok()
    };
    let ranges = |numbers| Message::Compare(Ask::Ranges { level: 1, numbers });
    assert!(is_message(&ranges((0..256).collect())) && !is_message(&ranges((0..257).collect())));
    assert!(!is_message(&ranges(vec![3, 3])) && !is_message(&ranges(vec![4, 3])));
    assert!(!is_message(&ranges(Vec::new())));
    let all = (0..=u16::MAX).collect();
    assert!(is_message(&Message::Compare(Ask::List(all))));
    assert!(!is_message(&Message::Compare(Ask::Keys(vec![b""]))));
    assert!(!is_message(&Message::Compare(Ask::Keys(vec![b"k"; 257]))));
    assert!(!is_message(&Message::Compared(Answer::Digests(vec![1; 4097]))));
    let listed = Listed { key: b"key", version: 1, expiry: Expiry::default(), fingerprint: 5 };
    assert!(!is_message(&Message::Compared(Answer::Listed { is_last: true, keys: vec![listed; 7000] })));
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}
