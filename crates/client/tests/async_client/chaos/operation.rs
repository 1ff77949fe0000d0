//! Operations whose answers are known.

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use larder_client::client::StoreOutcome;
use larder_client::{AsyncClient, Error, Ttl};

use super::truth::{KEYS, count, empty, full, number, value};

/// What came of an operation.
#[derive(Debug)]
pub(crate) enum Verdict {
    Right,
    /// It failed, as it may.
    Failed,
    Cancelled,
    Wrong(String),
}

/// Kinds of operations.
pub(crate) const KINDS: u64 = 12;
/// How long items live that are stored again: longer than any test.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// True if the operations of this kind are sent again if their connection ends.
pub(crate) fn is_read(kind: u64) -> bool {
    matches!(kind, 0..=2 | 11)
}

/// Any operation; some are cancelled. The others have to be over within the client's time.
pub(crate) async fn play(client: &AsyncClient, random: &mut fastrand::Rng, timeout: Duration) -> Verdict {
    let asked = ask(client, random.u64(..KINDS), random.u64(..KEYS));
    match random.u8(..) {
        0 => cancelled(asked, 1).await,
        1 => cancelled(asked, random.u32(2..20)).await,
        2 => {
            let patience = Duration::from_millis(random.u64(0..4));
            tokio::time::timeout(patience, asked).await.unwrap_or(Verdict::Cancelled)
        }
        _ => within(asked, timeout).await,
    }
}

/// It must not be pending still when it is polled after its deadline. Whoever polls it may be late: that is no fault.
async fn within(asked: impl Future<Output = Verdict>, timeout: Duration) -> Verdict {
    let mut asked = pin!(asked);
    // Its own deadline is set by the first poll, so this one is later.
    if let Poll::Ready(verdict) = poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await {
        return verdict;
    }
    if let Ok(verdict) = tokio::time::timeout(timeout + TICK, &mut asked).await {
        return verdict;
    }
    // A timer is set off before whoever waits for it is woken: one more, and all of its own have been.
    for _ in 0..WAKES {
        if let Ok(verdict) = tokio::time::timeout(TICK, &mut asked).await {
            return verdict;
        }
    }
    Verdict::Wrong("an operation goes on after its deadline".to_owned())
}

/// Drops it when it has been polled so many times.
async fn cancelled(asked: impl Future<Output = Verdict>, polls: u32) -> Verdict {
    let mut asked = pin!(asked);
    for _ in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await;
        if let Poll::Ready(verdict) = polled {
            return verdict;
        }
        tokio::task::yield_now().await;
    }
    Verdict::Cancelled
}

/// An operation of a kind, with a key.
pub(crate) async fn ask(client: &AsyncClient, kind: u64, n: u64) -> Verdict {
    let what = format!("operation {kind} of key {n}");
    match kind {
        0 | 1 => {
            let found = client.get(full(n)).await;
            compare(&what, found.map(|item| item.map(|item| item.value)), &Some(value(n)))
        }
        2 => compare(&what, client.get(empty(n)).await, &None),
        3 => compare(&what, client.set(full(n), value(n), Ttl::Never).await, &()),
        4 => compare(&what, client.add(full(n), "wrong", Ttl::Never).await, &StoreOutcome::NotStored),
        5 => compare(&what, client.replace(empty(n), "wrong", Ttl::Never).await, &StoreOutcome::NotStored),
        6 => compare(&what, client.delete(empty(n)).await, &false),
        7 => compare(&what, client.incr(number(n), 0).await, &Some(count(n))),
        8 => compare(&what, client.incr(empty(n), 1).await, &None),
        9 => compare(&what, client.touch(full(n), DAY).await, &true),
        10 => {
            let found = client.get_and_touch(full(n), DAY).await;
            compare(&what, found.map(|item| item.map(|item| item.value)), &Some(value(n)))
        }
        _ => get_many(client, &what, n).await,
    }
}

/// Keys that are there, and keys that are not, in turn.
async fn get_many(client: &AsyncClient, what: &str, n: u64) -> Verdict {
    let numbers: Vec<_> = (0..n % 90).map(|step| (n + step * 7) % KEYS).collect();
    let keys = numbers.iter().map(|n| if n % 3 == 0 { empty(*n) } else { full(*n) });
    let mut arrivals = client.get_many(keys);
    let mut items = vec![None; numbers.len()];
    let mut failed = vec![false; numbers.len()];
    while let Some(arrival) = arrivals.next().await {
        match arrival {
            Ok((place, item)) if items[place].is_none() => items[place] = Some(item.value),
            Ok((place, _)) => return Verdict::Wrong(format!("{what}: key {} comes twice", numbers[place])),
            Err(failure) if is_allowed(&failure.error) => {
                failure.places.iter().for_each(|place| failed[*place] = true);
            }
            Err(failure) => return Verdict::Wrong(format!("{what}: {failure}")),
        }
    }
    for ((n, item), failed) in numbers.iter().zip(&items).zip(&failed) {
        let expected = (n % 3 != 0).then(|| value(*n));
        // A key is found, or missing, or in a failure.
        let is_right = if *failed { item.is_none() } else { *item == expected };
        if !is_right {
            return Verdict::Wrong(format!("{what}: key {n} has {}", shorten(item)));
        }
    }
    if failed.contains(&true) { Verdict::Failed } else { Verdict::Right }
}

fn compare<T: PartialEq + Debug>(what: &str, result: Result<T, Error>, expected: &T) -> Verdict {
    match result {
        Ok(answer) if answer == *expected => Verdict::Right,
        Ok(answer) => Verdict::Wrong(format!("{what}: {}", shorten(&answer))),
        Err(error) if is_allowed(&error) => Verdict::Failed,
        Err(error) => Verdict::Wrong(format!("{what}: {error}")),
    }
}

/// Errors that a broken network explains. The server refuses none of these requests.
fn is_allowed(error: &Error) -> bool {
    match error {
        Error::Unknown(reason) => is_allowed(reason),
        Error::Timeout
        | Error::Closed
        | Error::Io(_)
        | Error::Connect(_)
        | Error::Ejected(_)
        | Error::Violation(_)
        | Error::Interrupted(_) => true,
        _ => false,
    }
}

fn shorten(answer: &impl Debug) -> String {
    let mut text = format!("{answer:?}");
    text.truncate(200);
    text
}

/// tokio's clock counts milliseconds.
const TICK: Duration = Duration::from_millis(2);
/// An operation waits for no more tasks one after the other when its time is over.
const WAKES: u32 = 5;
