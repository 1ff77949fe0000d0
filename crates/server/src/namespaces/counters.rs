//! Counters of namespaces. Each worker writes its own, as [`crate::observe::counters`] says.

use crate::observe::counters::Counter;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one worker in one namespace, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct NamespaceCounters { $($(#[$doc])* pub(crate) $name: Counter,)* }

        /// The counters of all workers in one namespace at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct NamespaceTotals { $($(#[$doc])* pub(crate) $name: u64,)* }

        impl NamespaceTotals {
            /// Sums over workers.
            pub(super) fn sum<'c>(workers: impl Iterator<Item = &'c NamespaceCounters>) -> Self {
                let mut totals = Self::default();
                for counters in workers {
                    $(totals.$name = totals.$name.wrapping_add(counters.$name.get());)*
                }
                totals
            }

            /// What was counted since `earlier`.
            pub(super) fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }
        }
    };
}

impl NamespaceTotals {
    /// Commands that the policy refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused_read_only.wrapping_add(self.refused_user).wrapping_add(self.refused_disk)
    }
}

counters! {
    /// Keys that get, gat, mg and the like looked up.
    cmd_get,
    /// ... and found.
    get_hits,
    /// ... and did not find.
    get_misses,
    /// Stores that were given memory.
    cmd_set,
    /// Stores of items larger than the namespace allows.
    store_too_large,
    /// Stores that found no memory.
    store_no_memory,
    /// Commands refused because the namespace is read-only.
    refused_read_only,
    /// Commands refused because of their user.
    refused_user,
    /// Stores refused because of the quota of disk.
    refused_disk,
}
