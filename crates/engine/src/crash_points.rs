//! Moments at which a process may be killed, for the tests of caches in files (`warm/tests.rs`). Otherwise nothing.

#[cfg(not(test))]
#[inline(always)]
pub(crate) fn crash_point() {}

#[cfg(test)]
pub(crate) use testing::crash_point;
#[cfg(all(test, not(any(loom, miri))))]
pub(crate) use testing::with_crashes;

#[cfg(test)]
mod testing {
    use std::cell::RefCell;

    type Crash = Box<dyn FnMut()>;

    thread_local! {
        static CRASH: RefCell<Option<Crash>> = const { RefCell::new(None) };
    }

    /// Called between the steps of a change that a file shows.
    pub(crate) fn crash_point() {
        // Not while one is looked at.
        let crash = CRASH.with(|crash| crash.try_borrow_mut().ok().and_then(|mut crash| crash.take()));
        if let Some(mut crash) = crash {
            crash();
            CRASH.with(|slot| *slot.borrow_mut() = Some(crash));
        }
    }

    /// Runs `work`, and `crash` at each of its crash points.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn with_crashes<R>(crash: impl FnMut() + 'static, work: impl FnOnce() -> R) -> R {
        CRASH.with(|slot| *slot.borrow_mut() = Some(Box::new(crash)));
        let result = work();
        CRASH.with(|slot| *slot.borrow_mut() = None);
        result
    }
}
