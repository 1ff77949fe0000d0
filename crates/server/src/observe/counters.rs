//! The server's counters. Each worker writes only its own, so counting costs a load and a store on a line that no other
//! core writes. A reader sums over all workers.
//!
//! Names and meanings: memcached, doc/protocol.txt, "General-purpose statistics".

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number with one writer and any number of readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning worker calls it: it loads and stores, without a read-modify-write.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The value so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one worker, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters { $($(#[$doc])* pub $name: Counter,)* }

        /// The counters of all workers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals { $($(#[$doc])* pub $name: u64,)* }

        impl Totals {
            /// Sums over all workers.
            pub fn sum(workers: &[Arc<Counters>]) -> Self {
                let mut totals = Self::default();
                for counters in workers {
                    $(totals.$name = totals.$name.wrapping_add(counters.$name.get());)*
                }
                totals
            }

            /// What was counted since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    /// Keys requested by get, gets, mg.
    cmd_get,
    /// Stores that were given memory.
    cmd_set,
    /// flush_all, including refused ones.
    cmd_flush,
    /// Keys requested by touch, gat, gats, mg with T.
    cmd_touch,
    /// me.
    cmd_meta,
    /// Keys found by get.
    get_hits,
    /// Keys not found by get.
    get_misses,
    /// Look-ups that found an expired item.
    get_expired,
    /// Look-ups that found a flushed item.
    get_flushed,
    /// Deletes of absent keys.
    delete_misses,
    /// Deletes.
    delete_hits,
    /// incr of absent keys.
    incr_misses,
    /// incr.
    incr_hits,
    /// decr of absent keys.
    decr_misses,
    /// decr.
    decr_hits,
    /// cas of absent keys.
    cas_misses,
    /// cas that stored.
    cas_hits,
    /// cas with a CAS value that did not match.
    cas_badval,
    /// Keys touched.
    touch_hits,
    /// Absent keys touched.
    touch_misses,
    /// Stores refused for their size.
    store_too_large,
    /// Stores refused for lack of memory.
    store_no_memory,
    /// Changes refused while the server is read-only for maintenance.
    refused_maintenance,
    /// Passwords checked.
    auth_cmds,
    /// Passwords refused.
    auth_errors,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Connections accepted.
    total_connections,
    /// Connections refused because `-c` were open.
    rejected_connections,
    /// Connections closed because they were idle.
    idle_kicks,
    /// TLS handshakes that did not resume a session.
    ssl_new_sessions,
    /// Connections that failed in the TLS handshake.
    ssl_handshake_errors,
    /// Connections closed for a TLS error after the handshake.
    ssl_proto_errors,
    /// Times a connection used up its requests (`-R`) and others had their turn.
    conn_yields,
    /// Datagrams served.
    udp_requests,
    /// Datagrams dropped, or cut: no request, from a port that no client uses, or too much work.
    udp_dropped,
    /// Replies not sent over UDP: too large, or beyond the budget of their source.
    udp_withheld,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_sum_over_workers_and_count_from_a_baseline() {
        let workers = [Arc::new(Counters::default()), Arc::new(Counters::default())];
        workers[0].cmd_get.add(3);
        workers[1].cmd_get.add(4);
        let earlier = Totals::sum(&workers);
        assert_eq!(earlier.cmd_get, 7);
        workers[1].cmd_get.add(1);
        assert_eq!(Totals::sum(&workers).since(&earlier).cmd_get, 1);
    }
}
