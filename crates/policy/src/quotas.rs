//! How the memory of a server is divided among its namespaces.

use std::fmt;

use crate::Table;

/// The least that a namespace can have, the default among them.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Why memory cannot be divided so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaError {
    /// What all namespaces share.
    pub memory_bytes: u64,
    /// The sum of the quotas.
    pub quota_bytes: u64,
    /// What the namespaces without a quota need beside it, the default among them.
    pub needed_bytes: u64,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        write!(
            f,
            "the quotas are {} MiB and the other namespaces need {} MiB, but there are {} MiB (-m)",
            mib(self.quota_bytes),
            mib(self.needed_bytes),
            self.memory_bytes >> 20
        )
    }
}

impl std::error::Error for QuotaError {}

impl Table {
    /// The memory of each namespace, by number: its quota, or an equal share of what the quotas leave. The default is
    /// one of those that share, and gets what is left over. The sum is `memory_bytes`. Errors: a share would be less
    /// than [`MEMORY_BYTES_MIN`].
    pub fn divide(&self, memory_bytes: u64) -> Result<Vec<u64>, QuotaError> {
        let quotas = || (1..=self.len()).map(|number| self.policy(number as u8).memory_bytes);
        let quota_bytes = quotas().flatten().fold(0, u64::saturating_add);
        let sharers = 1 + quotas().filter(Option::is_none).count() as u64;
        let needed_bytes = sharers * MEMORY_BYTES_MIN;
        let rest_bytes = memory_bytes.saturating_sub(quota_bytes);
        if rest_bytes < needed_bytes {
            return Err(QuotaError { memory_bytes, quota_bytes, needed_bytes });
        }
        // Whole pages, so that no share is a page short.
        let share_bytes = rest_bytes / sharers / PAGE_BYTES * PAGE_BYTES;
        let default_bytes = rest_bytes - (sharers - 1) * share_bytes;
        Ok(std::iter::once(default_bytes).chain(quotas().map(|quota| quota.unwrap_or(share_bytes))).collect())
    }
}

const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(text: &str, memory_mib: u64) -> Result<Vec<u64>, QuotaError> {
        Table::parse(text).expect("it is a table").divide(memory_mib << 20)
    }

    #[test]
    fn the_default_has_what_the_quotas_leave() {
        let table = "[namespace.a]\nmemory = \"16m\"\n[namespace.b]\nmemory = \"8m\"\n";
        assert_eq!(divide(table, 64), Ok(vec![40 << 20, 16 << 20, 8 << 20]));
        assert_eq!(divide("", 64), Ok(vec![64 << 20]));
    }

    #[test]
    fn namespaces_without_a_quota_share_the_rest_with_the_default() {
        let table = "[namespace.a]\n[namespace.b]\nmemory = \"4m\"\n[namespace.c]\n";
        assert_eq!(divide(table, 64), Ok(vec![20 << 20, 20 << 20, 4 << 20, 20 << 20]));
        // 100 MiB in three are no whole pages each.
        let shares = divide("[namespace.a]\n[namespace.b]\n", 100).expect("there is enough");
        assert_eq!(shares.iter().sum::<u64>(), 100 << 20);
        assert!(shares[0] - shares[1] < 3 * PAGE_BYTES, "{shares:?}");
        assert_eq!(shares[1], shares[2]);
    }

    #[test]
    fn the_default_keeps_a_mebibyte() {
        let table = "[namespace.a]\nmemory = \"63m\"\n";
        assert_eq!(divide(table, 64), Ok(vec![1 << 20, 63 << 20]));
        let error = divide(table, 63).expect_err("nothing is left");
        assert_eq!(
            error.to_string(),
            "the quotas are 63 MiB and the other namespaces need 1 MiB, but there are 63 MiB (-m)"
        );
        assert!(divide("[namespace.a]\n[namespace.b]\n", 2).is_err());
    }
}
