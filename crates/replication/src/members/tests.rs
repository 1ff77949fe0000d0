use super::*;
use crate::lineage::Lineage;
use crate::link::{Admission, Subscription};
use crate::wire::Refusal;

const DAY_MICROS: u64 = 86_400 * 1_000_000;
const LOG: LogExtent = LogExtent { incarnation: 1, start: 0, durable: 100 };

/// A position in the log of the site whose members these are.
fn of_log(sequence: u64) -> Cursor {
    Cursor { incarnation: LOG.incarnation, run: 7, sequence }
}

fn admit(members: &Members, site: u8, cursor: Cursor, log: LogExtent, lineage: &Lineage) -> Admission {
    let confirmed = members.confirmed_by(site);
    crate::link::admit(members, Subscription { site, cursor, confirmed }, log, lineage)
}

fn members(site: u8, all: u8) -> Members {
    let mut members = Members::new(site, Beat::default(), [], 0);
    (1..=all).for_each(|other| {
        members.add(other, 0);
    });
    members
}

/// Something of a site's log has arrived.
fn hear(members: &mut Members, site: u8, sequence: u64, beat: Beat, now_micros: u64) {
    let position = members.position(site).expect("it is a member");
    let cursor = Cursor { incarnation: 5, run: 6, sequence };
    members.note(Position { cursor, beat, ..position }, now_micros);
    members.note_heard(site, now_micros);
}

fn beat(clock: u64, stable: u64) -> Beat {
    Beat { clock, stable, horizon: 0 }
}

#[test]
fn the_horizon_is_what_everybody_has() {
    let mut members = members(1, 3);
    let micros = 1_800_000_000_000_000;
    let clock = version_at(micros, 1);
    assert_eq!(members.next_beat(micros), Beat { clock, stable: 0, horizon: 0 });
    hear(&mut members, 2, 1, beat(900, 500), 1);
    assert_eq!(members.next_beat(micros).stable, 0, "nothing is known of 3");
    hear(&mut members, 3, 1, beat(800, 700), 1);
    let next = members.next_beat(micros);
    assert_eq!((next.stable, next.horizon), (800, 0), "this site has not said so durably");
    members.note_own_beat(next);
    assert_eq!(members.horizon(), 0);
    let next = members.next_beat(micros);
    assert_eq!((next.stable, next.horizon), (800, 500));
    members.note_own_beat(next);
    assert_eq!(members.horizon(), 500);
    // It never falls, and the clock does not either.
    hear(&mut members, 2, 2, beat(900, 100), 1);
    let next = members.next_beat(micros - 1_000_000);
    assert_eq!((next.clock, next.horizon), (clock, 500));
}

fn out(members: &Members, now_micros: u64) -> Vec<u8> {
    members.silent(now_micros, 7 * DAY_MICROS).iter().map(|position| position.site).collect()
}

#[test]
fn a_majority_puts_a_silent_site_out() {
    let now = 8 * DAY_MICROS;
    let mut three = members(2, 3);
    assert_eq!(out(&three, now), [0; 0], "a site that hears nobody puts nobody out");
    hear(&mut three, 1, 1, beat(1, 1), now);
    assert_eq!(out(&three, now), [3]);
    assert_eq!(out(&three, now + 2 * HEARD_MICROS), [0; 0], "it hears 1 no more");
    let silent = three.silent(now, 7 * DAY_MICROS)[0];
    three.note(silent, now);
    assert_eq!(out(&three, now), [0; 0], "it is out already");
    assert_eq!(three.next_beat(0).stable, 1, "3 holds it no more, 1 does");
    assert_eq!(three.counted().count(), 1);
}

#[test]
fn a_site_that_is_cut_off_puts_nobody_out_within_a_short_bound() {
    let mut three = members(3, 3);
    (1..=2).for_each(|other| hear(&mut three, other, 1, beat(1, 1), 1_000_000));
    let silent = |now_micros| three.silent(now_micros, 3_000_000).len();
    assert_eq!((silent(3_900_000), silent(4_100_000), silent(40_000_000)), (0, 0, 0));
}

#[test]
fn of_two_halves_the_one_with_the_lowest_site_goes_on() {
    let now = 8 * DAY_MICROS;
    assert_eq!(out(&members(1, 2), now), [2]);
    assert_eq!(out(&members(2, 2), now), [0; 0]);
    let mut lower = members(2, 4);
    hear(&mut lower, 1, 1, beat(1, 1), now);
    assert_eq!(out(&lower, now), [3, 4]);
    let mut upper = members(3, 4);
    hear(&mut upper, 4, 1, beat(1, 1), now);
    assert_eq!(out(&upper, now), [0; 0]);
}

#[test]
fn a_restored_site_is_out_until_it_has_a_copy() {
    let mut members = members(1, 2);
    let first = members.introduced(2, 77).expect("it was never here");
    assert_eq!((first.standing, first.incarnation), (Standing::In, 77));
    members.note(first, 0);
    assert_eq!(members.introduced(2, 77), None);
    assert_eq!(members.introduced(9, 77), None, "it is no member");
    members.note(members.introduced(2, 78).expect("it was restored"), 0);
    assert_eq!(members.position(2).map(|position| position.standing), Some(Standing::Restored));
    assert_eq!(members.joined(2), None, "there is no copy yet");
    // A copy that it takes late is not swept of what it has taken of clients meanwhile.
    members.note_own_beat(beat(1, 1));
    assert_eq!(members.next_beat(1_800_000_000_000_000).horizon, 0, "it holds the horizon");
    let mut silent = members.clone();
    silent.note(Position { standing: Standing::Silent, ..members.position(2).expect("it is a member") }, 0);
    assert_eq!((silent.next_beat(1_800_000_000_000_000).horizon, out(&silent, 8 * DAY_MICROS)), (1, vec![]));
    assert_eq!(out(&members, 8 * DAY_MICROS), [2], "until it is silent for too long");
    members.note(members.joining(2).expect("it is out"), 0);
    members.note(members.joined(2).expect("it was joining"), 0);
    assert_eq!(members.position(2).map(|position| position.standing), Some(Standing::In));
}

#[test]
fn a_copy_goes_on_only_as_it_began() {
    let mut members = members(1, 3);
    members.note_own_beat(Beat { clock: 9, stable: 9, horizon: 9 });
    hear(&mut members, 3, 4, beat(1, 1), 0);
    let (copy, is_continued) = members.begin_copy(2, Some(100), LOG);
    assert_eq!((copy.start, copy.horizon, is_continued), (100, 0, false));
    assert_eq!(copy.others.len(), 1);
    // What this site has got to know since is not in the pieces that were sent.
    hear(&mut members, 3, 5, beat(2, 1), 0);
    let later = LogExtent { durable: 120, ..LOG };
    assert_eq!(members.begin_copy(2, Some(100), later), (copy, true));
    assert!(!members.begin_copy(2, Some(99), later).1, "another copy");
    let (copy, _) = members.begin_copy(2, None, later);
    assert_eq!((copy.start, copy.others[0].cursor.sequence), (120, 5));
    assert!(!members.begin_copy(2, Some(120), LogExtent { start: 121, ..later }).1, "the log is gone");
    // A site that has been put out since needs another copy.
    let position = members.position(2).expect("it is a member");
    members.note(Position { standing: Standing::Silent, ..position }, 0);
    members.note(members.joining(2).expect("it is out"), 0);
    let (copy, is_continued) = members.begin_copy(2, Some(120), later);
    assert_eq!((copy.horizon, is_continued), (9, false));
}

#[test]
fn of_two_that_want_a_copy_of_each_other_one_yields() {
    let standings = [Standing::Restored, Standing::Silent, Standing::Joining];
    let reason =
        |standing| if standing == Standing::Silent { CopyReason::Silent } else { CopyReason::Restored };
    let yields = |site: u8, other: u8, standing, told| {
        let mut members = members(site, 2);
        let position = members.position(other).expect("it is a member");
        members.note(Position { standing, ..position }, 0);
        members.trust(other, told) != Trust::None
    };
    for of_one in standings {
        for of_other in standings {
            // 1 is out at 2 as `of_one`, and 2 at 1 as `of_other`.
            let one = yields(1, 2, of_other, reason(of_one));
            let other = yields(2, 1, of_one, reason(of_other));
            assert!(one != other, "{of_one:?} and {of_other:?}: {one} and {other}");
        }
    }
    assert_eq!(members(1, 2).trust(2, CopyReason::Silent), Trust::Full);
    assert_eq!(members(1, 2).trust(9, CopyReason::Silent), Trust::None);
}

#[test]
fn a_copy_tells_of_third_sites() {
    let at = |incarnation, sequence| Position {
        site: 3,
        cursor: Cursor { incarnation, run: 6, sequence },
        ..Position::default()
    };
    assert_eq!(at(0, 0).learn(at(5, 9)), Some(at(5, 9)));
    assert_eq!(at(5, 8).learn(at(5, 9)), Some(at(5, 9)));
    assert_eq!(
        (at(5, 9).learn(at(5, 9)), at(6, 1).learn(at(5, 9)), at(5, 9).learn(at(0, 0))),
        (None, None, None)
    );
}

#[test]
fn a_first_beat_is_not_learnt_of_others() {
    let beat = Beat { clock: 9, stable: 8, horizon: 7 };
    let at = |sequence| Position {
        site: 3,
        cursor: Cursor { incarnation: 5, run: 6, sequence },
        ..Position::default()
    };
    let theirs = Position { beat, ..at(9) };
    let new = Position { site: 3, ..Position::default() };
    assert_eq!(new.learn(theirs), Some(at(9)));
    assert_eq!(at(8).learn(theirs), Some(theirs));
}

#[test]
fn a_newcomer_waits_until_it_knows_each_horizon() {
    let mut members = members(1, 3);
    let position = |site, clock, horizon| Position {
        site,
        beat: Beat { clock, stable: horizon, horizon },
        ..Position::default()
    };
    members.note(position(2, 30, 20), 0);
    assert!(!members.has_heard_all());
    members.note(position(3, 40, 10), 0);
    assert!(members.has_heard_all());
    assert_eq!((members.highest_horizon(), members.horizon()), (20, 0));
}

#[test]
fn a_removed_site_is_not_waited_for_and_needs_a_copy_when_it_is_back() {
    let mut members = members(1, 3);
    members.note_confirmed(2, 0, of_log(50));
    hear(&mut members, 2, 1, beat(900, 500), 1);
    assert_eq!((members.confirmed(), members.has_heard_all()), (0, false));
    let removed = members.removed(3).expect("it was there");
    members.note(removed, 1);
    assert_eq!((members.removed(3), members.joining(3), members.removed(9)), (None, None, None));
    assert_eq!((members.introduced(3, 5), members.introduced(3, 6)), (None, None));
    assert_eq!((members.confirmed(), members.has_heard_all()), (50, true));
    assert_eq!(members.next_beat(1_800_000_000_000_000).stable, 900);
    assert_eq!(removed.restored().standing, Standing::Removed);
    assert_eq!(
        admit(&members, 3, Cursor::default(), LOG, &Lineage::default()),
        Admission::Refused(Refusal::UnknownSite)
    );
    // It may have been away for long.
    assert_eq!(members.add(3, 2).map(|position| position.standing), Some(Standing::Silent));
    assert_eq!(
        admit(&members, 3, Cursor::default(), LOG, &Lineage::default()),
        Admission::Copy(CopyReason::Silent)
    );
    assert_eq!((members.add(3, 2), members.trust(3, CopyReason::TooFarBehind)), (None, Trust::None));
}

/// The store is checked before the standing of the site, which may be as old as the store.
#[test]
fn a_store_that_is_an_older_copy_gives_no_log_and_no_copy() {
    let mut members = members(1, 2);
    let lineage = Lineage { unknown_to: 50, last: 7, ..Lineage::default() };
    let at = |incarnation, run, sequence| Cursor { incarnation, run, sequence };
    for standing in [Standing::In, Standing::Silent, Standing::Restored, Standing::Joining] {
        let position = members.position(2).expect("it is a member");
        members.note(Position { standing, ..position }, 1);
        // These are beyond the end of the log, or of a run that the log never had, though the log is longer by now.
        for cursor in [at(1, 7, 101), at(1, 8, 60)] {
            let ahead = Admission::Refused(Refusal::AheadOfLog);
            assert_eq!(admit(&members, 2, cursor, LOG, &lineage), ahead, "{standing:?}");
        }
        let of_before = admit(&members, 2, at(9, 8, 60), LOG, &lineage);
        assert!(matches!(of_before, Admission::Copy(_)), "{standing:?}: {of_before:?}");
        let is_let_in = admit(&members, 2, at(1, 7, 100), LOG, &lineage) == Admission::Log;
        assert_eq!(is_let_in, standing == Standing::In);
    }
}

/// A site with an older copy does not go on as if it still had what it confirmed: it may lack deletions that are
/// forgotten by now.
#[test]
fn who_has_less_than_it_had_has_an_older_copy() {
    let mut members = members(1, 2);
    let lineage = Lineage { last: 7, ..Lineage::default() };
    let admitted = |members: &Members, incarnation, sequence| {
        admit(members, 2, Cursor { incarnation, run: 7, sequence }, LOG, &lineage)
    };
    assert_eq!(admitted(&members, 1, 40), Admission::Log);
    members.note(members.introduced(2, 4).expect("it is new"), 1);
    members.note_confirmed(2, 3, of_log(60));
    members.note_confirmed(2, 4, of_log(50));
    let kept = members.with_confirmed(members.position(2).expect("it is a member"));
    let mut after_restart = Members::new(1, Beat::default(), [kept], 0);
    for members in [&members, &after_restart] {
        assert_eq!(admitted(members, 1, 50), Admission::Log);
        for behind in [admitted(members, 1, 49), admitted(members, 9, 60)] {
            assert_eq!(behind, Admission::Refused(Refusal::OlderCopy));
        }
    }
    // But for one that goes on in a log that came of this one: this store was put back.
    let later = Cursor { incarnation: 9, run: 8, sequence: 60 };
    assert_eq!(admit(&members, 2, later, LOG, &lineage), Admission::Refused(Refusal::AheadOfLog));
    // And for one that said so before it confirmed more.
    let cursor = Cursor { incarnation: 1, run: 7, sequence: 45 };
    let late = Subscription { site: 2, cursor, confirmed: of_log(40) };
    assert_eq!(crate::link::admit(&members, late, LOG, &lineage), Admission::Log);
    // The site announces a new incarnation itself, and takes a copy.
    let restored = after_restart.introduced(2, 3).expect("it is another log");
    after_restart.note(restored, 1);
    assert_eq!(admitted(&after_restart, 1, 40), Admission::Copy(CopyReason::Restored));
    let back = Position { standing: Standing::In, ..restored };
    after_restart.note(back, 1);
    assert_eq!(admitted(&after_restart, 1, 40), Admission::Log, "it confirmed that before it was restored");
    // A confirmation of an earlier incarnation of this site's log does not count either.
    members.note_confirmed(2, 4, Cursor { incarnation: 8, run: 7, sequence: 60 });
    assert_eq!(admitted(&members, 1, 40), Admission::Log);
}

#[test]
fn the_log_is_needed_by_the_slowest_that_counts() {
    let mut members = members(1, 3);
    members.note_confirmed(2, 0, of_log(50));
    assert_eq!(members.confirmed(), 0);
    members.note_confirmed(3, 0, of_log(20));
    members.note_confirmed(3, 0, of_log(10));
    assert_eq!(members.confirmed(), 20);
    let position = members.position(3).expect("it is a member");
    members.note(Position { standing: Standing::Silent, ..position }, 0);
    assert_eq!(members.confirmed(), 50);
}
