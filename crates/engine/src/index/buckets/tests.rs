//! The index alone: as a map, and (built with `--cfg loom`) in every order in which a reader and a writer can meet.

#![allow(clippy::unwrap_used)]

use super::*;

/// The items of these tests are numbers: nothing is read that could be reused.
const PINNED: Pinned<'static> = Pinned::OF_NOTHING;

impl<H: Fn(usize) -> Hash> Items for H {
    fn hash_of(&self, found: &SlotRef<'_>) -> Hash {
        self(found.entry.offset().bytes())
    }

    fn prefetch(&self, _offset: Offset) {}
}

fn index(buckets: usize) -> (Index, Budget) {
    let budget = Budget::new(1 << 30);
    (Index::new(1 << 20, buckets, &budget).unwrap(), budget)
}

/// The system may grant later what it refuses now.
#[cfg(not(any(loom, miri)))]
#[test]
#[allow(unsafe_code)]
fn a_page_that_could_not_be_moved_is_next_again() {
    // Two large pages of buckets, and an incomplete one before them.
    let (index, _) = index(3 << 15);
    let refuse = |is_refusing: libc::c_ulong| {
        // SAFETY: says how the system maps memory, and changes none.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_refusing, 0, 0, 0) }, 0);
    };
    refuse(1);
    let is_moved = index.move_to_large_page();
    refuse(0);
    assert!(!is_moved);
    assert_eq!(index.large_pages[0].load(Relaxed), 0);
}

/// A hash with a tag of its own in a given bucket.
#[cfg(loom)]
fn hash(tag: u64, bucket: u64) -> Hash {
    Hash(tag << 43 | bucket)
}

fn insert(index: &Index, budget: &Budget, hash: Hash, offset: usize) {
    assert!(index.lock(PINNED, hash).insert(hash, offset.into(), budget).is_ok());
}

fn finds(index: &Index, hash: Hash, offset: usize) -> bool {
    index.find(PINNED, hash, |found| found.entry.offset() == offset).is_some()
}

fn remove(index: &Index, hash: Hash, offset: usize) -> Vec<u32> {
    let mut retired = Vec::new();
    let bucket = index.lock(PINNED, hash);
    let found = bucket.find(hash, |found| found.entry.offset() == offset).expect("an entry to remove");
    let _ = bucket.remove(found, |overflow| retired.push(overflow));
    retired
}

#[cfg(not(loom))]
#[test]
fn holds_what_a_set_holds_while_it_grows_and_chains_come_and_go() {
    let (index, budget) = index(2);
    let mut offsets: Vec<usize> = Vec::new();
    // Hashes whose low bits hardly differ make long chains.
    let hash_at = |offset: usize| Hash((offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0xf0 | 0x30);
    let mut random = 1u64;
    for round in 0..60_000usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wants_more = offsets.len() < 3000 + round / 20 % 1000;
        if wants_more || offsets.is_empty() {
            let offset = (round + 1) * 8;
            insert(&index, &budget, hash_at(offset), offset);
            offsets.push(offset);
            index.report(PINNED, 1, &budget, &hash_at, |overflow| index.reuse_overflow(overflow));
        } else {
            let offset = offsets.swap_remove((random >> 33) as usize % offsets.len());
            remove(&index, hash_at(offset), offset).into_iter().for_each(|gone| index.reuse_overflow(gone));
            assert!(!finds(&index, hash_at(offset), offset));
            index.report(PINNED, -1, &budget, &hash_at, |overflow| index.reuse_overflow(overflow));
        }
        if round % 997 == 0 {
            assert!(offsets.iter().all(|&offset| finds(&index, hash_at(offset), offset)), "round {round}");
        }
    }
    assert!(index.bucket_count() > 400, "it has grown: {}", index.bucket_count());
    let charged = budget.used_bytes();
    assert!(
        (index.bytes()..index.bytes() + 2 * PAGE_BYTES as u64).contains(&charged),
        "charged by the page: {charged}"
    );
}

#[cfg(not(loom))]
#[test]
fn every_bucket_is_split_off_the_right_one() {
    for count in 1..200u64 {
        for low in 0..512u64 {
            let (before, after) = (bucket_of(Hash(low), count), bucket_of(Hash(low), count + 1));
            let source = (count - (1 << count.ilog2())) as usize;
            assert!(before == after || (before == source && after == count as usize));
        }
    }
}

#[cfg(loom)]
#[allow(unsafe_code)]
mod orders {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn model(test: impl Fn() + Sync + Send + 'static) {
        model_with(3, test);
    }

    /// Explores schedules with so many preemptions.
    fn model_with(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(test);
    }

    /// `buckets` buckets, with entries 1..=count in bucket 0, at offsets tag * 8.
    fn chain(buckets: usize, count: u64) -> (Arc<Index>, Arc<Budget>) {
        let (index, budget) = index(buckets);
        (1..=count).for_each(|tag| insert(&index, &budget, hash(tag, 0), tag as usize * 8));
        (Arc::new(index), Arc::new(budget))
    }

    #[test]
    fn a_reader_finds_an_entry_that_moves_up() {
        model(|| {
            let (index, _) = chain(1, 4);
            let reader = thread::spawn({
                let index = Arc::clone(&index);
                move || assert!(finds(&index, hash(3, 0), 24) && finds(&index, hash(4, 0), 32))
            });
            remove(&index, hash(1, 0), 8);
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_reader_finds_an_entry_whose_overflow_goes() {
        model(|| {
            let (index, _) = chain(1, 4);
            let reader = thread::spawn({
                let index = Arc::clone(&index);
                move || assert!(finds(&index, hash(4, 0), 32))
            });
            remove(&index, hash(1, 0), 8);
            assert_eq!(remove(&index, hash(2, 0), 16), [0], "the overflow is empty and retired");
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_reader_finds_an_entry_whose_word_becomes_a_link() {
        model(|| {
            let (index, budget) = chain(1, 3);
            let reader = thread::spawn({
                let index = Arc::clone(&index);
                move || assert!(finds(&index, hash(3, 0), 24))
            });
            insert(&index, &budget, hash(4, 0), 32);
            reader.join().unwrap();
            assert!(finds(&index, hash(4, 0), 32));
        });
    }

    #[test]
    fn a_reader_finds_entries_while_their_bucket_is_split() {
        model(|| {
            let (index, budget) = index(1);
            // Odd tags will leave.
            for tag in 1..=3 {
                insert(&index, &budget, hash(tag, tag & 1), tag as usize * 8);
            }
            let (index, budget) = (Arc::new(index), Arc::new(budget));
            let reader = thread::spawn({
                let index = Arc::clone(&index);
                move || assert!(finds(&index, hash(3, 1), 24) && finds(&index, hash(2, 0), 16))
            });
            index.report(
                PINNED,
                3,
                &budget,
                &|offset| hash(offset as u64 / 8, offset as u64 / 8 & 1),
                |_| {},
            );
            assert!(index.bucket_count() >= 2);
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_reader_finds_an_entry_that_a_split_moves_up_and_the_next_insert_down_again() {
        // Preemptions: from the split to the reader, back, to the reader again, and to the insert.
        model_with(4, || {
            // 4 is in the overflow. 1 leaves, so that 2 to 4 fill the first line, with 4 in its last word.
            let (index, budget) = index(1);
            let hash_of = |tag: u64| hash(tag, u64::from(tag == 1));
            (1..=4).for_each(|tag| insert(&index, &budget, hash_of(tag), tag as usize * 8));
            let (index, budget) = (Arc::new(index), Arc::new(budget));
            let reader = thread::spawn({
                let index = Arc::clone(&index);
                move || assert!(finds(&index, hash(4, 0), 32))
            });
            assert!(index.split(PINNED, &budget, &|offset| hash_of(offset as u64 / 8), &mut |_| {}));
            insert(&index, &budget, hash(5, 0), 40);
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_writer_waits_for_a_split() {
        model(|| {
            let (index, budget) = index(1);
            for tag in 1..=3 {
                insert(&index, &budget, hash(tag, tag & 1), tag as usize * 8);
            }
            let (index, budget) = (Arc::new(index), Arc::new(budget));
            let writer = thread::spawn({
                let index = Arc::clone(&index);
                move || remove(&index, hash(3, 1), 24)
            });
            index.report(
                PINNED,
                3,
                &budget,
                &|offset| hash(offset as u64 / 8, offset as u64 / 8 & 1),
                |_| {},
            );
            writer.join().unwrap();
            assert!(!finds(&index, hash(3, 1), 24), "removed");
            assert!(finds(&index, hash(1, 1), 8), "left");
            assert!(finds(&index, hash(2, 0), 16), "stayed");
        });
    }

    #[test]
    fn a_replaced_item_is_found_old_or_new_and_never_after_it_was_freed() {
        use crate::epoch::epochs::Epochs;
        use loom::sync::atomic::AtomicU64;
        model(|| {
            let (index, budget) = index(1);
            insert(&index, &budget, hash(1, 0), 8);
            let index = Arc::new(index);
            let epochs = Arc::new(Epochs::new(2));
            // The memory at offsets 8 and 16: 1 while it may be read.
            let memory = Arc::new([AtomicU64::new(1), AtomicU64::new(0)]);
            let reader = thread::spawn({
                let (index, epochs, memory) = (Arc::clone(&index), Arc::clone(&epochs), Arc::clone(&memory));
                move || {
                    // SAFETY: its only pin.
                    let pin = unsafe { epochs.pin(0) };
                    let found =
                        index.find(pin.proof(), hash(1, 0), |_| true).expect("it is always there").entry;
                    assert_eq!(
                        memory[found.offset().bytes() / 8 - 1].load(Relaxed),
                        1,
                        "read after it was freed"
                    );
                }
            });
            memory[1].store(1, Relaxed);
            let bucket = index.lock(PINNED, hash(1, 0));
            let found = bucket.find(hash(1, 0), |_| true).unwrap();
            let _ = bucket.replace(found, hash(1, 0), 16.into(), 0);
            drop(bucket);
            let tag = epochs.retire();
            if epochs.horizon() > tag {
                memory[0].store(0, Relaxed);
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_reader_finds_an_entry_of_the_overflow_whose_word_becomes_a_link() {
        model(|| {
            // Two entries and a LINK in the first bucket, three entries in the overflow.
            let (index, budget) = chain(1, 5);
            let reader = thread::spawn({
                let index = Arc::clone(&index);
                move || assert!(finds(&index, hash(5, 0), 40) && finds(&index, hash(2, 0), 16))
            });
            insert(&index, &budget, hash(6, 0), 48);
            reader.join().unwrap();
        });
    }

    #[test]
    fn memory_is_not_freed_under_a_reader_by_a_thread_without_a_guard() {
        use crate::epoch::epochs::Epochs;
        use loom::sync::atomic::AtomicU64;
        model(|| {
            let epochs = Arc::new(Epochs::new(2));
            // Whether the item is linked; whether its memory is still valid; the tag that it was retired with, 0 before
            // that.
            let shared = Arc::new((AtomicU64::new(1), AtomicU64::new(1), crate::sync::Mutex::new(0)));
            let reader = thread::spawn({
                let (epochs, shared) = (Arc::clone(&epochs), Arc::clone(&shared));
                move || {
                    // SAFETY: its only pin.
                    let _pin = unsafe { epochs.pin(0) };
                    if shared.0.load(Acquire) == 1 {
                        assert_eq!(shared.1.load(Relaxed), 1, "read after it was freed");
                    }
                }
            });
            let writer = thread::spawn({
                let (epochs, shared) = (Arc::clone(&epochs), Arc::clone(&shared));
                move || {
                    // SAFETY: its only pin.
                    let _pin = unsafe { epochs.pin(1) };
                    shared.0.store(0, Release);
                    *shared.2.lock().unwrap() = epochs.retire();
                }
            });
            let horizon = epochs.horizon();
            let tag = *shared.2.lock().unwrap();
            if tag != 0 && tag < horizon {
                shared.1.store(0, Relaxed);
            }
            reader.join().unwrap();
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_shared_handle_is_one_threads_at_a_time() {
        use crate::epoch::epochs::Epochs;
        use loom::cell::UnsafeCell;
        model(|| {
            let shared = Arc::new((Epochs::new(1), UnsafeCell::new(0_u32)));
            // SAFETY: the slot is this thread's, or the model checker says that it is not.
            let add = |handle: &UnsafeCell<u32>| handle.with_mut(|count| unsafe { *count += 1 });
            let other = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let pin = shared.0.try_pin(0);
                    pin.map_or(0, |_pin| {
                        add(&shared.1);
                        1
                    })
                }
            });
            let own = shared.0.try_take(0).map_or(0, |_taken| {
                add(&shared.1);
                1
            });
            let all = own + other.join().unwrap();
            // SAFETY: the other thread has ended.
            assert_eq!(shared.1.with(|count| unsafe { *count }), all);
            assert!(all >= 1);
        });
    }
}
