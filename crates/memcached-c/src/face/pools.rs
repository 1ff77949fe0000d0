//! Pools of clients that threads share.

use std::ptr::null_mut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{behaviors, clients};
use crate::abi::{Chars, Memc, MemcachedSt, Out, PoolPtr, Ref, Return, SharedMemc, boxed, export};

/// A pool: clients that are free, all clones of one.
pub(crate) struct Pool {
    master: SharedMemc,
    owns_master: bool,
    max: usize,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    free: Vec<SharedMemc>,
    /// Clients that were made: free, or taken.
    count: usize,
}

export! {
    fn memcached_pool_create(master: SharedMemc, initial: u32, max: u32) -> *mut Pool {
        create(master, initial, max, false)
    }

    fn memcached_pool(string: Chars, length: usize) -> *mut Pool {
        let memc = clients::of_string(&string, length);
        let master = Memc::at(memc);
        let Some(configure) = master.settings().map(|settings| settings.configure.get()) else {
            return null_mut();
        };
        let pool = create(SharedMemc::of(&master), configure.initial_pool_size, configure.max_pool_size, true);
        if pool.is_null() {
            clients::free(&master);
        }
        pool
    }

    /// Returns the client that the pool was made of, unless the pool made it itself.
    fn memcached_pool_destroy(pool: PoolPtr) -> *mut MemcachedSt {
        let Some(pool) = pool.take() else { return null_mut() };
        for memc in pool.lock().free.drain(..) {
            clients::free(&memc.memc());
        }
        if pool.owns_master {
            clients::free(&pool.master.memc());
            return null_mut();
        }
        pool.master.memc().address()
    }

    fn memcached_pool_pop(pool: PoolPtr, block: bool, error: Out<Return>) -> *mut MemcachedSt {
        fetch(&pool, if block { BLOCKING_WAIT } else { Duration::ZERO }, error)
    }

    fn memcached_pool_fetch(pool: PoolPtr, time: Ref<libc::timespec>, error: Out<Return>) -> *mut MemcachedSt {
        let wait = time.get().map_or(Duration::ZERO, |time| {
            let secs = Duration::from_secs(time.tv_sec.try_into().unwrap_or(0));
            secs.saturating_add(Duration::from_nanos(time.tv_nsec.try_into().unwrap_or(0)))
        });
        fetch(&pool, wait, error)
    }

    fn memcached_pool_push(pool: PoolPtr, memc: SharedMemc) -> Return {
        release(&pool, memc)
    }

    fn memcached_pool_release(pool: PoolPtr, memc: SharedMemc) -> Return {
        release(&pool, memc)
    }

    fn memcached_pool_behavior_set(pool: PoolPtr, behavior: u32, data: u64) -> Return {
        let Some(pool) = pool.get() else { return Return::INVALID_ARGUMENTS };
        let Some(behavior) = behaviors::Behavior::of(behavior) else { return Return::INVALID_ARGUMENTS };
        let mut state = pool.lock();
        let code = behaviors::set(&pool.master.memc(), behavior, data);
        if code.is_failure() {
            return code;
        }
        let version = pool.version().wrapping_add(1);
        set_version(&pool.master.memc(), version);
        for memc in &mut state.free {
            if behaviors::set(&memc.memc(), behavior, data).is_success() {
                set_version(&memc.memc(), version);
            } else {
                pool.renew(memc);
            }
        }
        code
    }

    fn memcached_pool_behavior_get(pool: PoolPtr, behavior: u32, value: Out<u64>) -> Return {
        let Some(pool) = pool.get() else { return Return::INVALID_ARGUMENTS };
        let Some(behavior) = behaviors::Behavior::of(behavior) else { return Return::INVALID_ARGUMENTS };
        let _state = pool.lock();
        value.set(behaviors::of(&pool.master.memc(), behavior));
        Return::SUCCESS
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn version(&self) -> i32 {
        self.master.memc().settings().map_or(0, |settings| settings.configure.get().version)
    }

    /// A new clone.
    fn clone_master(&self) -> Result<SharedMemc, Return> {
        let clone = clients::copy(&Memc::null(), &self.master.memc())?;
        set_version(&clone, self.version());
        Ok(SharedMemc::of(&clone))
    }

    /// Replaces a client whose settings are old. One that cannot be replaced now is when it is released.
    fn renew(&self, memc: &mut SharedMemc) {
        if let Ok(clone) = self.clone_master() {
            clients::free(&memc.memc());
            *memc = clone;
        }
    }
}

fn create(master: SharedMemc, initial: u32, max: u32, owns_master: bool) -> *mut Pool {
    if initial == 0 || initial > max || master.memc().is_null() {
        return null_mut();
    }
    let state = Mutex::new(State { free: Vec::new(), count: 0 });
    let pool = Pool { master, owns_master, max: max as usize, state, freed: Condvar::new() };
    let Some(pool) = boxed(pool) else { return null_mut() };
    {
        let mut state = pool.lock();
        // A pool that has fewer than it should have makes more later.
        for _ in 0..initial {
            if state.free.try_reserve(1).is_err() {
                break;
            }
            let Ok(clone) = pool.clone_master() else { break };
            state.free.push(clone);
            state.count += 1;
        }
    }
    Box::into_raw(pool)
}

fn fetch(pool: &PoolPtr, wait: Duration, error: Out<Return>) -> *mut MemcachedSt {
    let Some(pool) = pool.get() else { return null_mut() };
    error.set(Return::SUCCESS);
    let until = Instant::now().checked_add(wait);
    let mut state = pool.lock();
    loop {
        if let Some(memc) = state.free.pop() {
            return memc.memc().address();
        }
        if state.count < pool.max {
            match pool.clone_master() {
                Ok(clone) => {
                    state.count += 1;
                    return clone.memc().address();
                }
                Err(code) => {
                    error.set(code);
                    return null_mut();
                }
            }
        }
        if wait.is_zero() {
            error.set(Return::NOTFOUND);
            return null_mut();
        }
        let left = until.map_or(wait, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            error.set(Return::TIMEOUT);
            return null_mut();
        }
        state = pool.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn release(pool: &PoolPtr, mut memc: SharedMemc) -> Return {
    let Some(pool) = pool.get() else { return Return::INVALID_ARGUMENTS };
    if memc.memc().is_null() {
        return Return::INVALID_ARGUMENTS;
    }
    let mut state = pool.lock();
    let version = memc.memc().settings().map_or(0, |settings| settings.configure.get().version);
    if version != pool.version() {
        pool.renew(&mut memc);
    }
    state.free.push(memc);
    pool.freed.notify_one();
    Return::SUCCESS
}

fn set_version(memc: &Memc, version: i32) {
    if let Some(settings) = memc.settings() {
        settings.configure.set(crate::abi::ConfigureSt { version, ..settings.configure.get() });
    }
}

/// How long `memcached_pool_pop` waits.
const BLOCKING_WAIT: Duration = Duration::from_secs(5);
