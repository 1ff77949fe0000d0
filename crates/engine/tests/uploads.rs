//! Values that are announced and do not come, and readers that do not read: what they may hold, and whose it is.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use larder_engine::{
    Config, Engine, Handle, LargePages, Now, Store, Stored, UPLOAD_BYTES_MIN, Upload, WriteError,
};

const MEMORY_BYTES: u64 = 64 << 20;

fn engine(item_bytes_max: u32) -> Arc<Engine> {
    engine_that(true, MEMORY_BYTES, item_bytes_max)
}

fn engine_that(evict: bool, memory_bytes: u64, item_bytes_max: u32) -> Arc<Engine> {
    let config = Config {
        memory_bytes,
        item_bytes_max,
        evict,
        handles_max: 4,
        index_power: None,
        large_pages: LargePages::Filled,
        hash_key: [7, 8],
    };
    Engine::new(config).unwrap()
}

fn at(secs: u32) -> Now {
    Now { secs, micros: u64::from(secs) * 1_000_000 }
}

fn put(handle: &mut Handle, now: Now, key: &[u8], value: &[u8]) -> Stored {
    for _ in 0..100_000 {
        let guard = handle.pin(now);
        let stored = guard.store(guard.prepare(key), &Store::set(key, value));
        if stored != Stored::TryAgain {
            return stored;
        }
    }
    Stored::TryAgain
}

fn is_stored(stored: Stored) -> bool {
    matches!(stored, Stored::Stored { .. })
}

/// So many small items that half the memory is full.
fn fill(handle: &mut Handle) -> u64 {
    for number in 0..30_000 {
        assert!(is_stored(put(handle, at(2), format!("small:{number}").as_bytes(), &[1; 1000])));
    }
    30_000
}

/// A value of which a part has come.
fn begin(
    handle: &mut Handle,
    now: Now,
    key: &[u8],
    value_bytes: u32,
    bytes: usize,
) -> Result<Upload, WriteError> {
    let store = Store::set(key, b"");
    let again = |error| if error == WriteError::TryAgain { None } else { Some(error) };
    let mut upload = loop {
        match handle.pin(now).reserve(&store, value_bytes) {
            Ok(upload) => break upload,
            Err(error) => again(error).map_or(Ok(()), Err)?,
        }
    };
    go_on(handle, now, &mut upload, bytes)?;
    Ok(upload)
}

/// So many bytes more come.
fn go_on(handle: &mut Handle, now: Now, upload: &mut Upload, bytes: usize) -> Result<(), WriteError> {
    let mut left = bytes;
    while left > 0 {
        let guard = handle.pin(now);
        match guard.window(upload) {
            Ok(window) => {
                let n = window.len().min(left);
                window[..n].fill(9);
                upload.advance(n);
                left -= n;
            }
            Err(WriteError::TryAgain) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn finish(handle: &mut Handle, now: Now, key: &[u8], upload: Upload) -> Stored {
    let guard = handle.pin(now);
    guard.commit(guard.prepare(key), &Store::set(key, b""), &mut Some(upload))
}

#[test]
fn room_that_lacks_part_of_a_page_is_not_waited_for() {
    let engine = engine_that(true, 8 << 20, 1 << 20);
    let mut handle = engine.handle().unwrap();
    // Nothing can be evicted.
    let _held: Vec<_> =
        (0..4).map(|_| begin(&mut handle, at(2), b"held", 900_000, 900_000).unwrap()).collect();
    // A large value takes whole pages: this one fits by its bytes, and not by its five pages.
    assert!(engine.set_memory_limit(engine.stats().memory_used_bytes + 5 * 4096 - 100));
    let guard = handle.pin(at(2));
    let stored = guard.store(guard.prepare(b"key"), &Store::set(b"key", &[7; 5 * 4096 - 200]));
    assert_eq!(stored, Stored::OutOfMemory, "there is nothing to evict, and nothing on its way");
}

#[test]
fn announced_values_evict_nothing() {
    for (item_bytes_max, value_bytes, count) in [(34 << 20, 33_000_000, 50), (1 << 20, 1_000_000, 400)] {
        let engine = engine(item_bytes_max);
        let mut handle = engine.handle().unwrap();
        let items = fill(&mut handle);
        let uploads: Vec<_> = (0..count)
            .map(|number| {
                let key = format!("promise:{number}").into_bytes();
                begin(&mut handle, at(2), &key, value_bytes, UPLOAD_BYTES_MIN)
            })
            .collect();
        assert!(uploads[0].is_ok());
        assert_eq!(engine.stats().evictions, 0, "{count} of {value_bytes} bytes");
        assert_eq!(engine.stats().items, items);
        for number in 0..20 {
            let stored = put(&mut handle, at(2), format!("real:{number}").as_bytes(), &[2; 100_000]);
            assert!(is_stored(stored), "{stored:?} beside {count} of {value_bytes} bytes");
        }
        assert_eq!(engine.stats().items, items + 20);
    }
}

#[test]
fn what_arrives_holds_half_the_memory_at_most() {
    let engine = engine(1 << 20);
    let mut handle = engine.handle().unwrap();
    fill(&mut handle);
    let uploads: Vec<_> = (0..200)
        .map(|number| begin(&mut handle, at(2), format!("much:{number}").as_bytes(), 1_000_000, 900_000))
        .collect();
    assert!(uploads.iter().filter(|upload| upload.is_ok()).count() > 25);
    let stats = engine.stats();
    assert!(stats.items > 20_000, "{} items are left", stats.items);
    for number in 0..100 {
        let stored = put(&mut handle, at(2), format!("real:{number}").as_bytes(), &[2; 100_000]);
        assert!(is_stored(stored), "{stored:?}");
    }
}

#[test]
fn a_value_that_stopped_arriving_makes_way_for_one_that_arrives() {
    let engine = engine(34 << 20);
    let mut handle = engine.handle().unwrap();
    let mut idle: Vec<_> = (0..40)
        .map_while(|number| {
            let key = format!("idle:{number}").into_bytes();
            begin(&mut handle, at(2), &key, 33_000_000, UPLOAD_BYTES_MIN).ok()
        })
        .collect();
    assert!(idle.len() < 40, "there is address space for all");
    let mut upload = begin(&mut handle, at(10), b"real", 20_000_000, UPLOAD_BYTES_MIN).unwrap();
    go_on(&mut handle, at(10), &mut upload, 20_000_000 - UPLOAD_BYTES_MIN).unwrap();
    assert!(is_stored(finish(&mut handle, at(10), b"real", upload)));
    assert_eq!(go_on(&mut handle, at(10), &mut idle[0], 1 << 20), Err(WriteError::OutOfMemory));
    assert_eq!(finish(&mut handle, at(10), b"idle:0", idle.remove(0)), Stored::OutOfMemory);
    let mut last = idle.pop().unwrap();
    go_on(&mut handle, at(10), &mut last, 1 << 20).unwrap();
    drop(idle);
    let guard = handle.pin(at(10));
    assert_eq!(guard.get(b"real", guard.prepare(b"real")).unwrap().value(), vec![9; 20_000_000]);
}

#[test]
fn address_space_is_won_from_large_items_alone() {
    let engine = engine(34 << 20);
    let mut handle = engine.handle().unwrap();
    // 40 items of 250 kB, wide apart: what lay between them is gone.
    let mut uploads = Vec::new();
    for number in 0..40 {
        uploads.extend(begin(&mut handle, at(2), b"between", 6_000_000, 1));
        assert!(is_stored(put(
            &mut handle,
            at(2),
            format!("cache_padded:{number}").as_bytes(),
            &[3; 250_000]
        )));
    }
    drop(uploads);
    let items = fill(&mut handle);
    let upload = begin(&mut handle, at(2), b"long", 30_000_000, 30_000_000).unwrap();
    assert!(is_stored(finish(&mut handle, at(2), b"long", upload)));
    let guard = handle.pin(at(2));
    let is_there = |number: &u64| {
        let key = format!("small:{number}");
        guard.peek(key.as_bytes(), guard.prepare(key.as_bytes())).is_ok()
    };
    let kept = (0..items).filter(is_there).count();
    assert!(kept > 15_000, "{kept} small items are left");
}

#[test]
fn slow_readers_keep_a_quarter_of_the_memory_from_others() {
    let engine = engine(1 << 20);
    let mut handle = engine.handle().unwrap();
    let mut pins = Vec::new();
    for number in 0..60 {
        let key = format!("large:{number}").into_bytes();
        assert!(is_stored(put(&mut handle, at(2), &key, &vec![number; 1_000_000])));
        let guard = handle.pin(at(2));
        let hash = guard.prepare(&key);
        pins.extend(guard.get(&key, hash).unwrap().value_ref());
        guard.delete(&key, hash, None);
    }
    assert_eq!(pins.len(), 60);
    let items = fill(&mut handle);
    assert_eq!(engine.stats().items, items, "evicted for what nobody can find");
    let guard = handle.pin(at(2));
    let is_readable = pins.iter().map(|pin| pin.value(&guard).is_some()).collect::<Vec<_>>();
    let readable = is_readable.iter().filter(|&&is_readable| is_readable).count();
    assert!((10..=17).contains(&readable), "{readable} of 60");
    assert!(is_readable.is_sorted(), "others than the oldest were revoke off");
    for (pin, number) in pins.iter().zip(0..) {
        assert!(pin.value(&guard).is_none_or(|value| value == vec![number; 1_000_000]));
    }
    drop(guard);
    drop(pins);
    assert!(is_stored(put(&mut handle, at(2), b"after", &[1; 900_000])));
}

/// Uploads of 1 MB, of which 900 kB have come.
fn stall(handle: &mut Handle, now: Now, count: usize) -> Vec<Upload> {
    let begin = |number| begin(handle, now, format!("stalled:{number}").as_bytes(), 1_000_000, 900_000).ok();
    (0..count).filter_map(begin).collect()
}

/// How many were not revoked: they get more.
fn arriving(handle: &mut Handle, now: Now, uploads: Vec<Upload>) -> usize {
    uploads.into_iter().filter_map(|mut upload| go_on(handle, now, &mut upload, 100_000).ok()).count()
}

const VICTIM_BYTES: usize = 4000;

fn put_victim(handle: &mut Handle, now: Now, number: usize, value_bytes: usize) -> bool {
    is_stored(put(handle, now, format!("victim:{number}").as_bytes(), &vec![1; value_bytes]))
}

fn is_victim_there(handle: &mut Handle, now: Now, number: usize) -> bool {
    let (guard, key) = (handle.pin(now), format!("victim:{number}"));
    guard.get(key.as_bytes(), guard.prepare(key.as_bytes())).is_ok()
}

#[test]
fn small_items_take_back_the_memory_of_values_that_stopped() {
    let engine = engine(1 << 20);
    let mut handle = engine.handle().unwrap();
    let victims = 14_000;
    for number in 0..victims {
        assert!(put_victim(&mut handle, at(2), number, VICTIM_BYTES));
    }
    assert_eq!(engine.stats().evictions, 0, "all of them fit");
    let stalled = stall(&mut handle, at(2), 80);
    assert!(engine.stats().items < 10_000, "what arrives has its part");
    let evictions = engine.stats().evictions;
    for number in 0..victims {
        if !is_victim_there(&mut handle, at(10), number) {
            assert!(put_victim(&mut handle, at(10), number, VICTIM_BYTES));
        }
    }
    assert_eq!(engine.stats().evictions - evictions, 0, "evicted for values that stopped");
    assert_eq!(engine.stats().items, victims as u64);
    let kept = arriving(&mut handle, at(10), stalled);
    assert!(kept < 10, "{kept} uploads hold what the items should have");
}

#[test]
fn the_upload_that_stopped_first_is_revoked_first_and_one_that_arrives_is_not() {
    let engine = engine(1 << 20);
    let mut handle = engine.handle().unwrap();
    let mut uploads: Vec<_> = (0..20)
        .map(|number| {
            let key = format!("upload:{number}").into_bytes();
            begin(&mut handle, at(2), &key, 1_000_000, 700_000).unwrap()
        })
        .collect();
    // A step of memory each, not in the order in which they began.
    uploads.reverse();
    for (upload, secs) in uploads.iter_mut().zip(3..) {
        go_on(&mut handle, at(secs), upload, 300_000).unwrap();
    }
    let whole = uploads.pop().unwrap();
    let mut counts = Vec::new();
    for number in 0..20_000 {
        assert!(put_victim(&mut handle, at(23), number, VICTIM_BYTES));
        let guard = handle.pin(at(23));
        let is_kept: Vec<_> = uploads.iter_mut().map(|upload| guard.window(upload).is_ok()).collect();
        assert!(is_kept.is_sorted(), "{is_kept:?}");
        counts.push(is_kept.iter().filter(|&&is_kept| is_kept).count());
        assert!(counts.last() == Some(&0) || engine.stats().evictions == 0, "{counts:?}");
    }
    counts.dedup();
    assert!(counts.into_iter().eq((0..20).rev()), "one at a time");
    assert!(engine.stats().evictions > 0);
    assert!(is_stored(finish(&mut handle, at(23), b"upload:0", whole)), "it took its last step a second ago");
}

#[test]
fn a_value_that_arrives_slowly_is_not_refused_for_small_items() {
    let engine = engine(1 << 20);
    let mut handle = engine.handle().unwrap();
    let slow_bytes_per_sec = 40 << 10;
    let mut slow = begin(&mut handle, at(2), b"slow", 1_000_000, 400_000).unwrap();
    // Beside one of which a byte a second comes.
    let mut dripping = begin(&mut handle, at(2), b"dripping", 1_000_000, 400_000).unwrap();
    let mut victims = 0..;
    for secs in 3..18 {
        for number in victims.by_ref().take(2000) {
            assert!(put_victim(&mut handle, at(secs), number, VICTIM_BYTES));
        }
        let bytes = slow_bytes_per_sec.min(slow.missing_bytes() as usize);
        go_on(&mut handle, at(secs), &mut slow, bytes).unwrap();
        let _ = go_on(&mut handle, at(secs), &mut dripping, 1);
    }
    assert!(engine.stats().evictions > 0);
    assert!(go_on(&mut handle, at(18), &mut dripping, 1).is_err());
    assert!(is_stored(finish(&mut handle, at(18), b"slow", slow)));
}

#[test]
fn a_value_that_goes_on_after_a_pause_does_not_make_way_for_itself() {
    let engine = engine(1 << 20);
    let mut handle = engine.handle().unwrap();
    for number in 0..20_000 {
        assert!(put_victim(&mut handle, at(2), number, VICTIM_BYTES));
    }
    let mut upload = begin(&mut handle, at(2), b"paused", 1_000_000, UPLOAD_BYTES_MIN).unwrap();
    go_on(&mut handle, at(10), &mut upload, 1_000_000 - UPLOAD_BYTES_MIN).unwrap();
    assert!(is_stored(finish(&mut handle, at(10), b"paused", upload)));
}

#[test]
fn without_eviction_values_that_stopped_refuse_nothing() {
    // Updates that are a little longer, new items, new values of some size.
    for (first, count, value_bytes) in
        [(0, 1_000, VICTIM_BYTES + 200), (10_000, 1_000, VICTIM_BYTES), (10_000, 60, 200_000)]
    {
        let engine = engine_that(false, MEMORY_BYTES, 1 << 20);
        let mut handle = engine.handle().unwrap();
        for number in 0..8_000 {
            assert!(put_victim(&mut handle, at(2), number, VICTIM_BYTES));
        }
        let stalled = stall(&mut handle, at(2), 60);
        assert!(stalled.len() > 20);
        // Values that arrive keep their memory.
        let refused =
            (0..1_000).filter(|number| !put_victim(&mut handle, at(3), 50_000 + number, 4_000)).count();
        assert!(refused > 500, "{refused} refused");
        for number in first..first + count {
            assert!(put_victim(&mut handle, at(10), number, value_bytes), "{number} of {value_bytes} bytes");
        }
        assert!((0..8_000).all(|number| is_victim_there(&mut handle, at(10), number)));
        assert!(arriving(&mut handle, at(10), stalled) > 0, "more were revoked than had to be");
    }
}

#[test]
fn large_items_take_back_the_memory_of_values_that_stopped() {
    let engine = engine(1 << 20);
    let mut handle = engine.handle().unwrap();
    for number in 0..7_000 {
        assert!(put_victim(&mut handle, at(2), number, VICTIM_BYTES));
    }
    let stalled = stall(&mut handle, at(2), 30);
    assert_eq!(stalled.len(), 30);
    for number in 0..100 {
        assert!(put_victim(&mut handle, at(10), 10_000 + number, 300_000));
    }
    assert_eq!(engine.stats().evictions, 0);
    assert!(arriving(&mut handle, at(10), stalled) > 0, "more were revoked than had to be");
}

#[test]
fn a_lowered_limit_is_won_from_values_that_stopped() {
    const LOWERED_BYTES: u64 = 56 << 20;
    for (evict, in_background) in [(true, true), (true, false), (false, true), (false, false)] {
        let engine = engine_that(evict, 256 << 20, 1 << 20);
        let mut handle = engine.handle().unwrap();
        for number in 0..8_000 {
            assert!(put_victim(&mut handle, at(2), number, VICTIM_BYTES));
        }
        let stalled = stall(&mut handle, at(2), 100);
        assert_eq!(stalled.len(), 100);
        // With half of it for uploads and with the items it would be exceeded.
        assert!(engine.set_memory_limit(LOWERED_BYTES));
        if in_background {
            for _ in 0..100 {
                handle.maintain(at(10), 4096);
            }
            let used_bytes = engine.stats().memory_used_bytes;
            assert!(used_bytes <= LOWERED_BYTES, "{used_bytes} bytes are in use");
        }
        for number in 8_000..9_000 {
            assert!(put_victim(&mut handle, at(10), number, VICTIM_BYTES));
        }
        assert_eq!(engine.stats().items, 9_000);
        assert!(arriving(&mut handle, at(10), stalled) > 5, "more were revoked than had to be");
    }
}

#[test]
fn a_lowered_limit_is_also_one_for_values_that_arrive() {
    const LOWERED_BYTES: u64 = 16 << 20;
    let engine = engine_that(true, 256 << 20, 1 << 20);
    let mut handle = engine.handle().unwrap();
    let mut begin = |number| begin(&mut handle, at(2), &[number], 1_000_000, 700_000);
    let uploads: Vec<_> = (0..100).map(|number| begin(number).unwrap()).collect();
    assert!(engine.set_memory_limit(LOWERED_BYTES));
    for _ in 0..100 {
        handle.maintain(at(2), 4096);
    }
    for number in 0..1_000 {
        assert!(put_victim(&mut handle, at(2), number, VICTIM_BYTES));
    }
    let kept = arriving(&mut handle, at(2), uploads);
    assert!((4..=10).contains(&kept), "{kept} of 100 kept their memory");
}
