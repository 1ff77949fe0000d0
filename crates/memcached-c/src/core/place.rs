//! Which server has a key.

use std::time::{SystemTime, UNIX_EPOCH};

use larder_client::address::DEFAULT_PORT;
use larder_client::placement::{Distribution as Spread, KeyHash, Locator, Names, Placement};
use larder_client::{Server, placement};

use super::{Core, Distribution, Instance, KEY_BYTES_MAX, Kind, Options};
use crate::abi::Return;

impl Core {
    /// Places servers anew: after a change of servers or of the distribution, or when one is ejected or returns.
    /// Errors: there is no memory, and they are placed as before.
    pub(crate) fn distribute(&mut self, options: &Options) -> Result<(), Return> {
        if !self.has_room_for_placement() {
            return Err(self.fail(options, Return::MEMORY_ALLOCATION_FAILURE, ""));
        }
        if options.sort_hosts {
            self.instances.sort_by(|a, b| (&a.host, a.port).cmp(&(&b.host, b.port)));
        }
        let servers: Vec<_> = self.instances.iter().map(|instance| server(instance, options)).collect();
        let whole = Locator::new(&servers, self.placement(options));
        if !options.is_consistent() || !options.auto_eject {
            self.locator = Some(whole);
            return Ok(());
        }
        let now = unix_secs();
        let ejected: Vec<_> =
            (0..servers.len()).filter(|at| self.instances[*at].next_retry.get() > now).collect();
        let returns = ejected.iter().map(|at| self.instances[*at].next_retry.get()).min();
        self.next_rebuild = returns.unwrap_or(0);
        // If none is left, all stay where they were.
        if ejected.len() < servers.len() {
            self.locator = Some(if ejected.is_empty() { whole } else { whole.without(&ejected) });
        }
        Ok(())
    }

    /// Placement takes its memory in many parts, which cannot be asked for. There has to be room for all of them, which
    /// another thread may still take before.
    fn has_room_for_placement(&self) -> bool {
        let names: usize = self.instances.iter().map(|instance| instance.host.as_bytes().len()).sum();
        let servers = self.instances.len().saturating_mul(SERVER_BYTES);
        let bytes = servers.saturating_add(names.saturating_mul(NAME_COPIES));
        Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
    }

    fn placement(&self, options: &Options) -> Placement {
        let is_spy = options.distribution == Distribution::CONSISTENT_KETAMA_SPY;
        let spread = match (options.distribution, options.weighted) {
            (Distribution::RANDOM, _) => Spread::Random,
            (Distribution::VIRTUAL_BUCKET, _) => Spread::VirtualBuckets,
            (_, true) if is_spy => Spread::KetamaSpyWeighted,
            (_, false) if is_spy => Spread::KetamaSpy,
            (_, true) if options.is_consistent() => Spread::KetamaWeighted,
            (_, false) if options.is_consistent() => Spread::Ketama,
            _ => Spread::Modula,
        };
        let names: Vec<_> = self.instances.iter().map(|instance| name(instance, is_spy)).collect();
        let placement = Placement::libmemcached(spread)
            .hash(options.hash.known().unwrap_or(KeyHash::OneAtATime))
            .chars(placement::Chars::NATIVE)
            .names(Names::Given(names.into()));
        match &self.buckets {
            Some(buckets) => placement.buckets(buckets.clone()),
            None => placement,
        }
    }

    /// The position of the server of a key, or of a group of keys. There is at least one server.
    pub(crate) fn place(&self, options: &Options, key: &[u8]) -> usize {
        let hash = if self.instances.len() == 1 { 0 } else { self.hash(options, key) };
        let located = self.locator.as_ref().and_then(|locator| locator.server_of_hash(hash));
        located.filter(|at| *at < self.instances.len()).unwrap_or(0)
    }

    /// The same, for a request: a server that was ejected returns when its time is up.
    pub(super) fn place_now(&mut self, options: &Options, key: &[u8]) -> usize {
        if options.auto_eject && self.next_rebuild != 0 && unix_secs() > self.next_rebuild {
            // Without memory for it they stay where they are.
            let _ = self.distribute(options);
        }
        self.place(options, key)
    }

    /// Lets a server return whose time is up.
    pub(crate) fn rebuild_if_due(&mut self, options: &Options) {
        self.place_now(options, b"");
    }

    fn hash(&self, options: &Options, key: &[u8]) -> u32 {
        let Some(namespace) = self.namespace.as_ref().filter(|_| options.hash_with_namespace) else {
            return options.hash.of(key);
        };
        if namespace.as_bytes().len() + key.len() > KEY_BYTES_MAX {
            return 0;
        }
        let mut whole = [namespace.as_bytes(), key].concat();
        // What follows a NUL counts as zeros: libmemcached copies the key as text.
        if let Some(end) = whole.iter().position(|byte| *byte == 0) {
            whole[end..].fill(0);
        }
        options.hash.of(&whole)
    }
}

/// A server as its distribution sees it: weights count only where libmemcached uses them.
fn server(instance: &Instance, options: &Options) -> Server {
    Server { address: instance.address(), weight: if options.weighted { instance.weight } else { 1 } }
}

/// The name of a server on a ring.
fn name(instance: &Instance, is_spy: bool) -> String {
    let (host, port) = (instance.host.to_string_lossy(), instance.port);
    match is_spy {
        true => format!("/{host}:{port}"),
        // A ring leaves it out.
        false if port == DEFAULT_PORT => host.into_owned(),
        false => format!("{host}:{port}"),
    }
}

/// The time in seconds since 1970.
pub(super) fn unix_secs() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs().try_into().unwrap_or(i64::MAX))
}

/// What placement takes for a server on its way, at most: 160 points of 16 bytes, with room to grow and to be sorted,
/// on the rings with and without those that are ejected; and its structs.
const SERVER_BYTES: usize = 2 * 160 * 16 * 3 + 1024;
/// How often placement copies a name.
const NAME_COPIES: usize = 12;

impl Kind {
    /// The kind with this number (a `memcached_connection_t`).
    pub(crate) fn of(number: u32) -> Self {
        match number {
            1 => Self::Udp,
            2 => Self::Unix,
            _ => Self::Tcp,
        }
    }
}
