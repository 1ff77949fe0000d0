//! Both ends of a connection against each other, and against those who do not keep to the protocol.

use std::sync::Arc;

use fastrand::Rng;
use larder_replication::compare::{Answer, Ask};
use larder_replication::entry::{Beat, Entry, Put};
use larder_replication::link::{
    AHEAD_MICROS_MAX, Admission, CopyRead, CopyStart, LogRead, Now, Publisher, PublisherAction, Settings,
    Subscriber, SubscriberAction, TIMEOUT_MICROS,
};
use larder_replication::members::{CopyExtent, Cursor};
use larder_replication::state::Expiry;
use larder_replication::version::version_at;
use larder_replication::wire::{
    Challenge, CopyReason, FrameDecoder, Gap, HANDSHAKE_BYTES_MAX, Hello, Message, PART_BYTES_MAX, PROTOCOL,
    Refusal, RingCursor, Role, Side, Token, push_parts,
};

const NOW: Now = Now { micros: 1_000_000, unix_micros: 1_800_000_000_000_000 };

fn settings(site: u8) -> Settings {
    Settings::new(site, u64::from(site) + 1000, u64::from(site) + 2000, Token::new(*b"the token"))
}

fn publisher(settings: Settings) -> Publisher {
    Publisher::new(Arc::new(settings), [1; 32], 1_000_000, NOW)
}

fn subscriber(settings: Settings) -> Subscriber {
    Subscriber::new(Arc::new(settings), [2; 32], NOW)
}

fn later(micros: u64) -> Now {
    Now { micros: NOW.micros + micros, unix_micros: NOW.unix_micros + micros }
}

fn put(key: &[u8], value: &[u8], version: u64) -> Vec<u8> {
    let mut body = Vec::new();
    let put = Put {
        key,
        version,
        base_version: 0,
        expiry: Expiry { value_version: version, version, exptime_secs: 0 },
        client_flags: 0,
        marks: 0,
        value,
    };
    Entry::Put(put).encode(&mut body);
    body
}

fn beat(clock: u64) -> Vec<u8> {
    let mut body = Vec::new();
    Entry::Beat(Beat { clock, stable: 0, horizon: 0 }).encode(&mut body);
    body
}

/// A connection whose bytes arrive at once, in pieces of at most so many bytes.
struct Link {
    publisher: Publisher,
    subscriber: Subscriber,
    piece_bytes: usize,
    /// All that was sent, to the publisher and to the subscriber.
    sent: [Vec<u8>; 2],
}

impl Link {
    fn new(publisher: Publisher, subscriber: Subscriber) -> Self {
        Self { publisher, subscriber, piece_bytes: usize::MAX, sent: Default::default() }
    }

    /// Delivers until nothing is under way. Returns what else is to be done.
    fn run(&mut self, now: Now) -> (Vec<PublisherAction>, Vec<SubscriberAction>) {
        let (mut of_publisher, mut of_subscriber) = (Vec::new(), Vec::new());
        loop {
            let mut is_quiet = true;
            while let Some(action) = self.publisher.next_action() {
                is_quiet = false;
                match action {
                    PublisherAction::Send(bytes) => {
                        self.sent[1].extend_from_slice(&bytes);
                        bytes.chunks(self.piece_bytes).for_each(|piece| self.subscriber.receive(piece, now));
                    }
                    other => of_publisher.push(other),
                }
            }
            while let Some(action) = self.subscriber.next_action() {
                is_quiet = false;
                match action {
                    SubscriberAction::Send(bytes) => {
                        self.sent[0].extend_from_slice(&bytes);
                        bytes.chunks(self.piece_bytes).for_each(|piece| self.publisher.receive(piece, now));
                    }
                    other => of_subscriber.push(other),
                }
            }
            if is_quiet {
                return (of_publisher, of_subscriber);
            }
        }
    }

    /// Up to the log, from sequence 7 on.
    fn started(publisher: Publisher, subscriber: Subscriber) -> Self {
        let mut link = Self::new(publisher, subscriber);
        link.start();
        link
    }

    fn start(&mut self) {
        let (_, actions) = self.run(NOW);
        assert!(
            matches!(actions[..], [SubscriberAction::Connected { site: 1, incarnation: 1001, run: 2001 }]),
            "{actions:?}"
        );
        let cursor = Cursor { incarnation: 1001, run: 2001, sequence: 7 };
        self.subscriber.subscribe(cursor);
        let (actions, _) = self.run(NOW);
        let asked =
            PublisherAction::Admit { site: 2, incarnation: 1002, cursor, prefixes: vec![b"user:".to_vec()] };
        assert_eq!(actions, [asked]);
        self.publisher.admit(Admission::Log);
        let (actions, started) = self.run(NOW);
        assert_eq!(started, [SubscriberAction::Started]);
        // Receiving a cursor does not confirm it: the entries may not be durable yet.
        assert_eq!(actions, [PublisherAction::ReadLog { after: 7, bytes_max: settings(1).batch_bytes }]);
        self.subscriber.durable(7);
        let (actions, _) = self.run(NOW);
        assert_eq!(actions, [PublisherAction::Confirmed { site: 2, incarnation: 1002, sequence: 7 }]);
    }
}

fn pulling() -> Settings {
    Settings { prefixes: vec![b"user:".to_vec()], ..settings(2) }
}

fn closed_by(actions: &[SubscriberAction]) -> Option<(Refusal, bool)> {
    actions.iter().find_map(|action| match action {
        SubscriberAction::Close(closed) => Some((closed.refusal, closed.by_peer)),
        _ => None,
    })
}

fn serving_ended(actions: &[PublisherAction]) -> Option<(Refusal, bool)> {
    actions.iter().find_map(|action| match action {
        PublisherAction::Close(closed) => Some((closed.refusal, closed.by_peer)),
        _ => None,
    })
}

#[test]
fn the_log_arrives_and_is_confirmed() {
    let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
    let body = put(b"user:1", b"value", version_at(NOW.unix_micros, 1));
    link.publisher.log_read(LogRead::Entries { to: 12, body: body.clone() }, NOW);
    let (_, actions) = link.run(NOW);
    let [SubscriberAction::Apply(batch)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((batch.from, batch.to, &batch.body), (7, 12, &body));
    link.subscriber.applied(12, NOW);
    link.subscriber.durable(12);
    let (actions, _) = link.run(NOW);
    assert!(actions.contains(&PublisherAction::Confirmed { site: 2, incarnation: 1002, sequence: 7 }));
    assert!(actions.contains(&PublisherAction::Confirmed { site: 2, incarnation: 1002, sequence: 12 }));
    assert_eq!((link.publisher.in_flight_bytes(), link.subscriber.buffered_bytes()), (0, 0));
    assert_eq!((link.publisher.peer(), link.subscriber.peer()), (Some(2), Some(1)));
}

/// What other sites have made is looked at and not told, or two sites would tell each other of their cursors for ever.
#[test]
fn what_is_nothing_to_send_is_not_sent() {
    let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
    link.publisher.log_read(LogRead::Entries { to: 20, body: Vec::new() }, NOW);
    let (actions, nothing) = link.run(NOW);
    assert_eq!(nothing, []);
    assert!(matches!(actions[..], [PublisherAction::ReadLog { after: 20, .. }]));
    link.publisher.log_read(LogRead::Entries { to: 30, body: beat(5 << 8 | 1) }, NOW);
    let (_, actions) = link.run(NOW);
    let [SubscriberAction::Apply(batch)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((batch.from, batch.to), (7, 30));
}

/// What cannot be read ends a connection, but not before all is applied that comes before it: also what was nothing to
/// send, or the next connection would come to it again, and so for ever.
#[test]
fn what_cannot_be_read_ends_the_connection_behind_what_is_before_it() {
    for body in [Vec::new(), put(b"user:1", b"value", version_at(NOW.unix_micros, 1))] {
        let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
        link.publisher.log_read(LogRead::Entries { to: 20, body: body.clone() }, NOW);
        let (actions, _) = link.run(NOW);
        let bytes_max = settings(1).batch_bytes;
        assert_eq!(actions, [PublisherAction::ReadLog { after: 20, bytes_max }]);
        link.publisher.fail("it is damaged", NOW);
        link.publisher.durable(1_000_001);
        let (actions, to_apply) = link.run(NOW);
        assert_eq!((actions, link.publisher.is_closed()), (vec![], false));
        // It was told of before, or is now.
        let is_applied = to_apply.iter().any(|action| matches!(action, SubscriberAction::Apply(_)));
        assert_eq!(is_applied, body.is_empty());
        link.subscriber.applied(20, NOW);
        let (served, ended) = link.run(NOW);
        assert_eq!(serving_ended(&served), Some((Refusal::Unavailable, false)));
        assert_eq!(closed_by(&ended), Some((Refusal::Unavailable, true)));
        // What was under way as it ended comes too late.
        link.publisher.receive(&encoded(&Message::Confirm { applied: 20, durable: 20 }), NOW);
        assert_eq!(link.publisher.next_action(), None);
    }
}

#[test]
fn a_copy_arrives_in_pieces_once_they_are_durable() {
    let mut link = Link::new(publisher(settings(1)), subscriber(pulling()));
    link.run(NOW);
    link.subscriber.subscribe(Cursor::default());
    link.run(NOW);
    link.publisher.admit(Admission::Copy(CopyReason::Silent));
    let (_, actions) = link.run(NOW);
    assert_eq!(actions, [SubscriberAction::CopyNeeded(CopyReason::Silent)]);
    link.subscriber.copy(Some((3, b"where it was")));
    let (actions, _) = link.run(NOW);
    let interrupted = Some((3, b"where it was".to_vec()));
    assert_eq!(actions, [PublisherAction::BeginCopy { site: 2, interrupted }]);
    let extent = CopyExtent { start: 50, horizon: 99, others: Vec::new() };
    link.publisher.copy_begun(CopyStart { extent, whole_bytes: 7, position: Vec::new() });
    let (actions, begun) = link.run(NOW);
    assert!(matches!(&actions[..], [PublisherAction::ReadCopy { position, .. }] if position.is_empty()));
    let [SubscriberAction::CopyBegun(begun)] = &begun[..] else { panic!("{begun:?}") };
    assert_eq!(
        (begun.cursor.sequence, begun.horizon, begun.whole_bytes, begun.is_continued),
        (50, 99, 7, false)
    );
    // The states of any site.
    let body = put(b"k", b"v", 1 << 8 | 9);
    let not_durable = 1_000_001;
    link.publisher.copy_read(CopyRead {
        body: body.clone(),
        position: Some(b"k".to_vec()),
        appended: not_durable,
    });
    assert_eq!(link.run(NOW), (vec![], vec![]), "it waits until it is durable");
    link.publisher.durable(not_durable);
    let (actions, pieces) = link.run(NOW);
    assert!(matches!(&actions[..], [PublisherAction::ReadCopy { position, .. }] if position == b"k"));
    let [SubscriberAction::ApplyPiece(piece)] = &pieces[..] else { panic!("{pieces:?}") };
    assert_eq!((piece.number, &piece.body, &piece.position[..]), (1, &body, &b"k"[..]));
    link.publisher.copy_read(CopyRead { body: Vec::new(), position: None, appended: 1 });
    link.subscriber.piece_applied(1, NOW);
    let (_, actions) = link.run(NOW);
    assert!(matches!(&actions[..], [SubscriberAction::ApplyPiece(piece)] if piece.number == 2));
    link.subscriber.piece_applied(2, NOW);
    let (_, actions) = link.run(NOW);
    assert_eq!(actions, [SubscriberAction::FinishCopy]);
    // However long that takes.
    for secs in 1..30 {
        link.subscriber.tick(later(secs * 1_000_000));
        link.publisher.tick(later(secs * 1_000_000));
        assert_eq!(link.run(later(secs * 1_000_000)), (vec![], vec![]));
    }
    link.subscriber.copy_taken(begun.cursor);
    let (actions, _) = link.run(NOW);
    let cursor = Cursor { incarnation: 1001, run: 2001, sequence: 50 };
    assert_eq!(
        actions,
        [
            PublisherAction::CopyTaken { site: 2 },
            PublisherAction::Confirmed { site: 2, incarnation: 1002, sequence: 50 },
            PublisherAction::Admit { site: 2, incarnation: 1002, cursor, prefixes: vec![b"user:".to_vec()] }
        ]
    );
}

#[test]
fn who_does_not_know_the_token_is_refused() {
    let stranger = Settings { token: Token::new(*b"another token"), ..settings(2) };
    let mut link = Link::new(publisher(settings(1)), subscriber(stranger));
    let (served, pulled) = link.run(NOW);
    assert_eq!(serving_ended(&served), Some((Refusal::Token, false)));
    assert_eq!(closed_by(&pulled), Some((Refusal::Token, true)));
    // Nor does a subscriber talk to a publisher that only repeats what it hears.
    let mut subscriber = subscriber(settings(2));
    let challenge = Challenge { protocol: PROTOCOL, site: 1, incarnation: 5, run: 6, nonce: [7; 32] };
    subscriber.receive(&encoded(&Message::Challenge(challenge)), NOW);
    let Some(SubscriberAction::Send(hello)) = subscriber.next_action() else { panic!("there is no hello") };
    let mut decoder = FrameDecoder::new();
    decoder.push(&hello);
    let (kind, payload) = decoder.next_frame().expect("it is a frame").expect("it is whole");
    let Ok(Message::Hello(_, proof)) = Message::decode(kind, payload) else { panic!("it is no hello") };
    subscriber.receive(&encoded(&Message::Welcome(proof)), NOW);
    let actions: Vec<_> = std::iter::from_fn(|| subscriber.next_action()).collect();
    assert_eq!(closed_by(&actions), Some((Refusal::Token, false)));
}

/// Both ends learn of it, and that it is proven, so both refuse changes.
#[test]
fn another_server_with_the_same_number_is_refused() {
    let twin = Settings { run: 7, ..settings(2) };
    let (served, pulled) = Link::new(publisher(settings(2)), subscriber(twin)).run(NOW);
    assert_eq!(serving_ended(&served), Some((Refusal::SameSite, false)));
    let [SubscriberAction::Close(closed)] = &pulled[..] else { panic!("{pulled:?}") };
    assert_eq!((closed.refusal, closed.by_peer), (Refusal::SameSite, false));
    assert_eq!(closed.sentence, "two servers have the number 2: give each its own `--site`");
    // A server that claims it without knowing the token is not believed.
    let mut subscriber = subscriber(settings(2));
    let challenge = Challenge { protocol: PROTOCOL, site: 2, incarnation: 5, run: 6, nonce: [7; 32] };
    subscriber.receive(&encoded(&Message::Challenge(challenge)), NOW);
    subscriber.receive(&encoded(&Message::Welcome([0; 32])), NOW);
    let actions: Vec<_> = std::iter::from_fn(|| subscriber.next_action()).collect();
    assert_eq!(closed_by(&actions), Some((Refusal::Token, false)));
}

#[test]
fn a_site_that_connects_to_itself_is_told_so() {
    let (served, pulled) = Link::new(publisher(settings(2)), subscriber(settings(2))).run(NOW);
    assert_eq!(serving_ended(&served), Some((Refusal::Itself, false)));
    assert_eq!(closed_by(&pulled), Some((Refusal::Itself, false)));
}

#[test]
fn another_protocol_is_refused() {
    for protocol in [0, PROTOCOL + 1] {
        let mut subscriber = subscriber(settings(2));
        let challenge = Challenge { protocol, site: 1, incarnation: 5, run: 6, nonce: [7; 32] };
        subscriber.receive(&encoded(&Message::Challenge(challenge)), NOW);
        let actions: Vec<_> = std::iter::from_fn(|| subscriber.next_action()).collect();
        assert_eq!(closed_by(&actions), Some((Refusal::Protocol, false)));
        let mut publisher = publisher(settings(1));
        let (site, incarnation, run, window_bytes, nonce) = (2, 5, 6, 1, [7; 32]);
        let hello = Hello { protocol, site, incarnation, run, window_bytes, nonce };
        publisher.receive(&encoded(&Message::Hello(hello, [0; 32])), NOW);
        let actions: Vec<_> = std::iter::from_fn(|| publisher.next_action()).collect();
        assert_eq!(serving_ended(&actions), Some((Refusal::Protocol, false)));
    }
}

#[test]
fn a_site_that_is_refused_learns_why() {
    for (refusal, words) in
        [(Refusal::UnknownSite, "configured peers"), (Refusal::AheadOfLog, "more of the log of site 1")]
    {
        let mut link = Link::new(publisher(settings(1)), subscriber(pulling()));
        link.run(NOW);
        link.subscriber.subscribe(Cursor { incarnation: 1001, run: 2001, sequence: 7 });
        link.run(NOW);
        link.publisher.admit(Admission::Refused(refusal));
        let (_, actions) = link.run(NOW);
        let [SubscriberAction::Close(closed)] = &actions[..] else { panic!("{actions:?}") };
        assert!(closed.refusal == refusal && closed.sentence.contains(words), "{closed}");
    }
}

/// A subscriber that applies nothing gets a window of bytes and one batch, and no more is read.
#[test]
fn a_slow_subscriber_costs_a_window() {
    let window_bytes = 1_000_000;
    let mut link = Link::started(publisher(settings(1)), subscriber(Settings { window_bytes, ..pulling() }));
    let (mut to, mut rng) = (7, Rng::with_seed(1));
    let mut reads = 1;
    while reads == 1 {
        to += 1;
        let value: Vec<u8> = (0..90_000).map(|_| rng.u8(..)).collect();
        let body = put(b"user:1", &value, to << 8 | 1);
        link.publisher.log_read(LogRead::Entries { to, body }, NOW);
        let (actions, _) = link.run(NOW);
        reads = actions.iter().filter(|action| matches!(action, PublisherAction::ReadLog { .. })).count();
        assert!(link.publisher.in_flight_bytes() < window_bytes + 250_000);
        assert!(link.subscriber.buffered_bytes() < window_bytes + 250_000);
    }
    assert_eq!(to, 7 + 12, "a window of bodies, and what fills it");
    // Once something is applied, it goes on.
    link.subscriber.applied(8, NOW);
    let (actions, applying) = link.run(NOW);
    assert!(actions.contains(&PublisherAction::ReadLog { after: to, bytes_max: settings(1).batch_bytes }));
    assert!(matches!(&applying[..], [SubscriberAction::Apply(batch)] if batch.to == 9));
}

/// What it has not applied yet is of no use in many small pieces.
#[test]
fn a_slow_subscriber_gets_larger_batches() {
    let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
    let bytes_max = settings(1).batch_bytes;
    let small = |to: u64| LogRead::Entries { to, body: put(b"user:1", b"value", to << 8 | 1) };
    let reads = (8..20).take_while(|to| {
        link.publisher.log_read(small(*to), NOW);
        let (actions, _) = link.run(NOW);
        actions.contains(&PublisherAction::ReadLog { after: *to, bytes_max })
    });
    assert_eq!(reads.count(), 3, "the fourth is the last one");
    link.subscriber.applied(8, NOW);
    let (actions, _) = link.run(NOW);
    assert!(actions.contains(&PublisherAction::ReadLog { after: 11, bytes_max }));
}

#[test]
fn a_publisher_that_sends_more_than_it_may_is_refused() {
    let mut link =
        Link::started(publisher(settings(1)), subscriber(Settings { window_bytes: 5000, ..pulling() }));
    let mut sent = 0;
    let ended = (8..200_u64).find_map(|to| {
        let mut bytes = Vec::new();
        push_parts(&mut bytes, &put(b"user:1", &[to as u8; 500], to << 8 | 1), true);
        Message::Batch { from: to - 1, to, unix_micros: 0 }.encode(&mut bytes);
        link.subscriber.receive(&bytes, NOW);
        sent += bytes.len();
        let actions: Vec<_> = std::iter::from_fn(|| link.subscriber.next_action()).collect();
        assert!(link.subscriber.buffered_bytes() < 6000);
        closed_by(&actions)
    });
    assert_eq!(ended, Some((Refusal::Violation, false)));
}

#[test]
fn a_value_of_any_size_is_sent_in_parts() {
    let mut rng = Rng::with_seed(3);
    for (value, is_compressible) in
        [(vec![7; 3 << 20], true), ((0..3 << 20).map(|_| rng.u8(..)).collect::<Vec<u8>>(), false)]
    {
        let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
        link.publisher.note_written(1_000, 5_000);
        link.piece_bytes = 70_000;
        let body = put(b"user:1", &value, 9 << 8 | 1);
        link.publisher.log_read(LogRead::Entries { to: 8, body: body.clone() }, NOW);
        let (_, actions) = link.run(NOW);
        assert!(matches!(&actions[..], [SubscriberAction::Apply(batch)] if batch.body == body));
        assert_eq!(link.sent[1].len() < value.len() / 10, is_compressible);
    }
    // One that is longer than the longest that the site takes.
    let small = Settings { body_bytes_max: 1 << 20, ..pulling() };
    let mut link = Link::started(publisher(settings(1)), subscriber(small));
    let body = put(b"user:1", &vec![7; 2 << 20], 9 << 8 | 1);
    link.publisher.log_read(LogRead::Entries { to: 8, body }, NOW);
    let (_, actions) = link.run(NOW);
    let [SubscriberAction::Close(closed)] = &actions[..] else { panic!("{actions:?}") };
    assert!(closed.sentence.contains("longer than the longest"), "{closed}");
    assert!(link.subscriber.buffered_bytes() < 1 << 21);
}

/// Compressing takes more CPU than all else that a change costs here, and saves nothing where the network is fast.
#[test]
fn what_goes_over_a_narrow_or_far_link_is_compressed() {
    let sent_bytes = |rtt_micros: u64, waited_micros: u64| {
        let mut link = Link::new(publisher(settings(1)), subscriber(pulling()));
        while let Some(PublisherAction::Send(bytes)) = link.publisher.next_action() {
            link.subscriber.receive(&bytes, NOW);
        }
        while let Some(SubscriberAction::Send(bytes)) = link.subscriber.next_action() {
            link.publisher.receive(&bytes, later(rtt_micros));
        }
        link.start();
        link.publisher.note_written(100_000, waited_micros);
        let before = link.sent[1].len();
        let body = put(b"user:1", &[7; 10_000], 9 << 8 | 1);
        link.publisher.log_read(LogRead::Entries { to: 8, body: body.clone() }, NOW);
        let (_, actions) = link.run(NOW);
        assert!(matches!(&actions[..], [SubscriberAction::Apply(batch)] if batch.body == body));
        link.sent[1].len() - before
    };
    assert!(sent_bytes(500, 500) > 10_000);
    assert!(sent_bytes(5_000, 500) < 1_000, "it is far away");
    assert!(sent_bytes(500, 10_000) < 1_000, "10 MB/s");
}

#[test]
fn a_change_from_the_future_waits() {
    let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
    let ahead = version_at(NOW.unix_micros + AHEAD_MICROS_MAX + 5_000_000, 1);
    link.publisher.log_read(LogRead::Entries { to: 8, body: put(b"user:1", b"v", ahead) }, NOW);
    let (_, actions) = link.run(NOW);
    assert!(matches!(actions[..], [SubscriberAction::Ahead { micros: 65_000_000 }]), "{actions:?}");
    // What follows it waits too, since a cursor has no holes.
    link.publisher.log_read(LogRead::Entries { to: 9, body: beat(1 << 8 | 1) }, NOW);
    assert_eq!(link.run(NOW).1, []);
    link.subscriber.tick(later(4_000_000));
    assert!(!link.run(later(4_000_000)).1.iter().any(|action| matches!(action, SubscriberAction::Apply(_))));
    link.subscriber.tick(later(5_000_000));
    let (_, actions) = link.run(later(5_000_000));
    assert!(
        matches!(&actions[..], [SubscriberAction::NoLongerAhead, SubscriberAction::Apply(batch)] if batch.to == 8)
    );
}

/// Every version that a site gives is above each horizon that it has heard of: one that is ahead would put it ahead,
/// too, for ever.
#[test]
fn a_horizon_ahead_of_the_clock_waits() {
    let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
    let ahead = version_at(NOW.unix_micros + AHEAD_MICROS_MAX + 5_000_000, 1);
    for beat in [Beat { clock: 1, stable: 1, horizon: ahead }, Beat { clock: 1, stable: ahead, horizon: 1 }] {
        let mut body = Vec::new();
        Entry::Beat(beat).encode(&mut body);
        link.publisher.log_read(LogRead::Entries { to: 8, body }, NOW);
        let (_, actions) = link.run(NOW);
        assert!(matches!(actions[..], [SubscriberAction::Ahead { .. }]), "{actions:?}");
        link = Link::started(publisher(settings(1)), subscriber(pulling()));
    }
}

#[test]
fn changes_of_others_are_refused() {
    let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
    link.publisher.log_read(LogRead::Entries { to: 8, body: put(b"user:1", b"v", 9 << 8 | 3) }, NOW);
    let (served, pulled) = link.run(NOW);
    assert_eq!(closed_by(&pulled), Some((Refusal::Violation, false)));
    assert_eq!(serving_ended(&served), Some((Refusal::Violation, true)));
}

#[test]
fn a_silent_side_is_given_up() {
    let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
    // Each says something before the other gives up.
    for step in 1..30 {
        let now = later(step * TIMEOUT_MICROS / 4);
        assert!(
            link.publisher.deadline_micros() <= now.micros && link.subscriber.deadline_micros() <= now.micros
        );
        link.publisher.tick(now);
        link.subscriber.tick(now);
        let (served, pulled) = link.run(now);
        assert_eq!((serving_ended(&served), closed_by(&pulled)), (None, None));
    }
    let now = later(30 * TIMEOUT_MICROS / 4 + TIMEOUT_MICROS);
    link.publisher.tick(now);
    let actions: Vec<_> = std::iter::from_fn(|| link.publisher.next_action()).collect();
    assert_eq!(serving_ended(&actions), Some((Refusal::TimedOut, false)));
    assert!(link.publisher.is_closed());
    // Who says something, but proves nothing, is given up as well.
    let mut publisher = publisher(settings(1));
    let hello = encoded(&Message::CopyTaken);
    publisher.receive(&hello[..3], later(TIMEOUT_MICROS - 1));
    publisher.tick(later(TIMEOUT_MICROS));
    assert!(publisher.is_closed());
    let mut subscriber = subscriber(settings(2));
    subscriber.receive(&hello[..3], later(TIMEOUT_MICROS - 1));
    subscriber.tick(later(TIMEOUT_MICROS));
    assert!(subscriber.is_closed());
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// Before the token is proven, nobody can make a site keep more than a few kilobytes.
#[test]
fn a_stranger_cannot_send_much() {
    let mut publisher = publisher(settings(1));
    let mut frame = ((HANDSHAKE_BYTES_MAX + 1) as u32).to_le_bytes().to_vec();
    frame.resize(100, 0);
    publisher.receive(&frame, NOW);
    assert!(publisher.is_closed());
    let mut subscriber = subscriber(settings(2));
    subscriber.receive(&frame, NOW);
    assert!(subscriber.is_closed());
}

/// However the bytes of a conversation are split, it is the same conversation.
#[test]
fn every_split_is_the_same() {
    let conversation = |piece_bytes: usize| {
        let mut link = Link::new(publisher(settings(1)), subscriber(pulling()));
        link.piece_bytes = piece_bytes;
        link.start();
        link.publisher
            .log_read(LogRead::Entries { to: 9, body: put(b"user:1", &[b'v'; 900], 9 << 8 | 1) }, NOW);
        let (served, pulled) = link.run(NOW);
        (link.sent, served, pulled)
    };
    let whole = conversation(usize::MAX);
    for piece_bytes in 1..600 {
        assert_eq!(conversation(piece_bytes), whole, "{piece_bytes}");
    }
}

/// Frames that are damaged, cut, repeated or made up: no panic, and nothing kept beyond the bounds.
#[test]
fn hostile_bytes_are_refused() {
    let mut started = Link::started(publisher(settings(1)), subscriber(pulling()));
    started
        .publisher
        .log_read(LogRead::Entries { to: 9, body: put(b"user:1", &[b'v'; 900], 9 << 8 | 1) }, NOW);
    started.run(NOW);
    let sent = started.sent;
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        let is_publisher = rng.bool();
        let mut bytes = sent[usize::from(!is_publisher)].clone();
        for _ in 0..rng.usize(..4) {
            let place = rng.usize(..bytes.len());
            match rng.u8(..4) {
                0 => bytes[place] = rng.u8(..),
                1 => bytes.truncate(place.max(1)),
                2 => bytes.extend_from_within(place..),
                _ => bytes.extend_from_slice(&random_message(&mut rng)),
            }
        }
        if is_publisher {
            let mut publisher = publisher(settings(1));
            publisher.receive(&bytes, NOW);
            while let Some(action) = publisher.next_action() {
                match action {
                    PublisherAction::Admit { .. } => publisher.admit(Admission::Log),
                    PublisherAction::ReadLog { .. } => publisher.log_read(LogRead::Gone, NOW),
                    _ => {}
                }
            }
        } else {
            let mut subscriber = subscriber(pulling());
            subscriber.receive(&bytes, NOW);
            while let Some(action) = subscriber.next_action() {
                match action {
                    SubscriberAction::Connected { .. } => subscriber.subscribe(Cursor::default()),
                    SubscriberAction::CopyNeeded(_) => subscriber.copy(None),
                    SubscriberAction::Apply(batch) => subscriber.applied(batch.to, NOW),
                    _ => {}
                }
            }
            assert!(subscriber.buffered_bytes() < 1 << 20);
        }
    }
}

/// A well-formed message of any kind, with any content: what a peer with a wrong program may send.
fn random_message(rng: &mut Rng) -> Vec<u8> {
    let bytes: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
    let number = if rng.bool() { rng.u64(..20) } else { rng.u64(..) };
    encoded(&match rng.u8(..18) {
        0 => Message::Challenge(Challenge {
            protocol: rng.u16(..4),
            site: rng.u8(..),
            incarnation: number,
            run: number,
            nonce: [0; 32],
        }),
        1 => {
            let said = Hello {
                protocol: PROTOCOL,
                site: rng.u8(..),
                incarnation: number,
                run: number,
                window_bytes: 9,
                nonce: [3; 32],
            };
            Message::Hello(said, Token::new(*b"the token").prove(Role::Subscriber, &[&bytes]))
        }
        2 => Message::Welcome([0; 32]),
        3 => Message::Subscribe {
            cursor: Cursor { incarnation: number, run: number, sequence: number },
            prefixes: vec![&bytes],
        },
        4 => Message::Start { sequence: number },
        5 => Message::CopyNeeded(CopyReason::TooFarBehind),
        6 => Message::Part { body_bytes: rng.u32(..2 * PART_BYTES_MAX as u32), data: &bytes },
        7 => Message::Batch { from: number, to: number.wrapping_add(1), unix_micros: number },
        8 => Message::Confirm { applied: number, durable: number },
        9 => Message::CopyRequest { start: number, position: &bytes },
        10 => Message::CopyBegin {
            start: number,
            horizon: number,
            whole_bytes: number,
            position: &bytes,
            others: Vec::new(),
        },
        11 => Message::CopyPiece { number, is_last: rng.bool(), position: &bytes },
        12 => Message::CopyConfirm { number },
        13 => Message::CopyTaken,
        14 => Message::Alive { unix_micros: number },
        15 => Message::Compare(match rng.u8(..5) {
            0 => Ask::Begin { horizon: number },
            1 => Ask::GoOn,
            2 => Ask::Ranges { level: rng.u8(..6), numbers: vec![rng.u16(..300)] },
            3 => Ask::List(vec![rng.u16(..)]),
            _ => Ask::Keys(vec![b"key"]),
        }),
        16 => Message::Compared(match rng.u8(..4) {
            0 => Answer::Scanned { is_last: rng.bool() },
            1 => Answer::Digests(vec![7; rng.usize(..33)]),
            2 => Answer::Listed { is_last: rng.bool(), keys: Vec::new() },
            _ => Answer::States { count: rng.u16(..3) },
        }),
        _ => Message::Refused(Refusal::Unavailable, "because"),
    })
}

/// Hostile messages at every phase of an authenticated connection.
#[test]
fn a_peer_with_a_wrong_program_is_refused() {
    for seed in 0..5000 {
        let mut rng = Rng::with_seed(seed);
        let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
        let is_publisher = rng.bool();
        for _ in 0..20 {
            let message = random_message(&mut rng);
            if is_publisher {
                link.publisher.receive(&message, NOW);
            } else {
                link.subscriber.receive(&message, NOW);
            }
            while link.publisher.next_action().is_some() {}
            while link.subscriber.next_action().is_some() {}
        }
        assert!(link.subscriber.buffered_bytes() < 20 * PART_BYTES_MAX);
    }
}

/// What is said on connections that pull no log.
fn sides() -> (Vec<Side>, Vec<Side>) {
    let cursor = RingCursor { incarnation: 9, sequences: vec![0, 7, u64::MAX] };
    let gap = Gap::Of(vec![b"".to_vec(), b"page:".to_vec()]);
    let of_subscriber = vec![
        Side::Follow { cursor: cursor.clone(), body_bytes_max: 5 },
        Side::Taken { shard: 2, to: 8 },
        Side::OpenHome,
        Side::Ask { number: 1, until_micros: 2 },
    ];
    let of_publisher = vec![
        Side::Following(cursor.clone(), Gap::All),
        Side::Following(cursor, gap),
        Side::Told { shard: 1, to: 9 },
        Side::HomeClock { clock_micros: 3, command_bytes_max: 4 },
        Side::Answer { number: 1 },
    ];
    (of_subscriber, of_publisher)
}

#[test]
fn both_sides_talk_beside_the_log_at_every_split() {
    let (of_subscriber, of_publisher) = sides();
    for piece_bytes in [1, 2, 3, 5, 7, 11, 13, usize::MAX] {
        for body in [vec![], vec![b'x'; 10], vec![b'y'; PART_BYTES_MAX + 1]] {
            let mut link = Link::new(publisher(settings(1)), subscriber(settings(2)));
            link.run(NOW);
            link.piece_bytes = piece_bytes;
            of_subscriber.iter().for_each(|side| link.subscriber.say(side.clone(), &body, NOW));
            let (heard, _) = link.run(NOW);
            let said = of_subscriber.iter().map(|side| PublisherAction::Side(side.clone(), body.clone()));
            assert_eq!(heard, said.collect::<Vec<_>>());
            of_publisher.iter().for_each(|side| link.publisher.say(side.clone(), &body, NOW));
            let (_, heard) = link.run(NOW);
            let said = of_publisher.iter().map(|side| SubscriberAction::Side(side.clone(), body.clone()));
            assert_eq!(heard, said.collect::<Vec<_>>());
            assert_eq!((link.publisher.puller(), link.publisher.peer()), (None, Some(2)));
        }
    }
}

#[test]
fn who_pulls_the_log_says_nothing_else() {
    let (of_subscriber, of_publisher) = sides();
    let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
    assert_eq!(link.publisher.puller(), Some(2));
    // The caller's calls are not for this connection, and what comes all the same ends it.
    link.subscriber.say(of_subscriber[0].clone(), b"", NOW);
    link.publisher.say(of_publisher[0].clone(), b"", NOW);
    assert_eq!(link.run(NOW), (vec![], vec![]));
    for side in of_subscriber {
        let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
        let mut bytes = Vec::new();
        Message::Side(side).encode(&mut bytes);
        link.publisher.receive(&bytes, NOW);
        assert!(link.publisher.is_closed());
    }
    for side in of_publisher {
        let mut link = Link::started(publisher(settings(1)), subscriber(pulling()));
        let mut bytes = Vec::new();
        Message::Side(side).encode(&mut bytes);
        link.subscriber.receive(&bytes, NOW);
        assert!(link.subscriber.is_closed());
    }
}

#[test]
fn a_command_for_a_home_has_a_bounded_length() {
    let body_bytes_max = 1 << 20;
    for (bytes, is_refused) in [(body_bytes_max, false), (body_bytes_max + 1, true)] {
        let home = Settings { body_bytes_max, ..settings(1) };
        let mut link = Link::new(publisher(home), subscriber(settings(2)));
        link.run(NOW);
        link.subscriber.say(Side::Ask { number: 1, until_micros: 2 }, &vec![b'x'; bytes], NOW);
        link.run(NOW);
        assert_eq!(link.publisher.is_closed(), is_refused);
    }
}

#[test]
fn a_part_of_a_side_message_is_none() {
    let (of_subscriber, of_publisher) = sides();
    for side in of_subscriber.into_iter().chain(of_publisher) {
        let mut bytes = Vec::new();
        Message::Side(side.clone()).encode(&mut bytes);
        let (kind, payload) = (bytes[8], &bytes[12..]);
        assert_eq!(Message::decode(kind, payload), Ok(Message::Side(side)));
        (0..payload.len()).for_each(|end| assert!(Message::decode(kind, &payload[..end]).is_err()));
    }
}
