//! The same for several servers at once.

use std::panic::resume_unwind;
use std::thread;

/// The results of `ask` for each item, in their order, each on a thread of its own: one that hangs delays the others
/// for its timeout at most. Panics if one of them does.
pub(crate) fn map<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    ask: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let ask = &ask;
    thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || ask(item))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order() {
        assert_eq!(map(0..9, |n| n * n), [0, 1, 4, 9, 16, 25, 36, 49, 64]);
    }

    #[test]
    fn a_panic_is_passed_on() {
        let panicked = std::panic::catch_unwind(|| map(0..3, |n| assert!(n != 1, "one")));
        assert!(panicked.is_err());
    }
}
