//! Settings (`memcached_behavior_set` and its kin).

use std::cell::Cell;
use std::ffi::c_char;

use super::{fail, session};
use crate::abi::{Flag, HASH_CUSTOM, HASH_MAX, HashFunctionSt, Memc, MemcachedSt, Return, export};
use crate::core::Distribution;

/// The behaviors, in the order of their numbers.
macro_rules! behaviors {
    ($($name:ident,)*) => {
        /// Numbers of `memcached_behavior_t`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Behavior {
            $($name,)*
        }

        const ALL: &[(Behavior, &str)] =
            &[$((Behavior::$name, concat!("MEMCACHED_BEHAVIOR_", stringify!($name), "\0"))),*];
    };
}

mod names {
    #![expect(clippy::upper_case_acronyms, non_camel_case_types, reason = "C's names")]

    behaviors! {
        NO_BLOCK, TCP_NODELAY, HASH, KETAMA, SOCKET_SEND_SIZE, SOCKET_RECV_SIZE, CACHE_LOOKUPS, SUPPORT_CAS,
        POLL_TIMEOUT, DISTRIBUTION, BUFFER_REQUESTS, USER_DATA, SORT_HOSTS, VERIFY_KEY, CONNECT_TIMEOUT,
        RETRY_TIMEOUT, KETAMA_WEIGHTED, KETAMA_HASH, BINARY_PROTOCOL, SND_TIMEOUT, RCV_TIMEOUT,
        SERVER_FAILURE_LIMIT, IO_MSG_WATERMARK, IO_BYTES_WATERMARK, IO_KEY_PREFETCH, HASH_WITH_PREFIX_KEY, NOREPLY,
        USE_UDP, AUTO_EJECT_HOSTS, NUMBER_OF_REPLICAS, RANDOMIZE_REPLICA_READ, CORK, TCP_KEEPALIVE, TCP_KEEPIDLE,
        LOAD_FROM_FILE, REMOVE_FAILED_SERVERS, DEAD_TIMEOUT, SERVER_TIMEOUT_LIMIT,
    }

    impl Behavior {
        /// The behavior with this number.
        pub(crate) fn of(number: u32) -> Option<Self> {
            ALL.get(number as usize).map(|(behavior, _)| *behavior)
        }

        /// Its name in C, with a NUL at its end.
        pub(crate) fn name_with_nul(self) -> &'static str {
            ALL.get(self as usize).map_or("\0", |(_, name)| name)
        }
    }
}

pub(crate) use names::Behavior;

export! {
    fn memcached_behavior_set(memc: Memc, behavior: u32, data: u64) -> Return {
        if memc.is_null() {
            return Return::INVALID_ARGUMENTS;
        }
        match Behavior::of(behavior) {
            Some(behavior) => set(&memc, behavior, data),
            None => invalid(&memc, "Invalid behavior passed to memcached_behavior_set()"),
        }
    }

    fn memcached_behavior_get(memc: Memc, behavior: u32) -> u64 {
        match (memc.settings(), Behavior::of(behavior)) {
            (Some(settings), Some(behavior)) => get(&memc, settings, behavior),
            (None, _) => Return::INVALID_ARGUMENTS.0.into(),
            (_, None) => 0,
        }
    }

    fn memcached_behavior_set_distribution(memc: Memc, distribution: u32) -> Return {
        set_distribution(&memc, distribution)
    }

    fn memcached_behavior_get_distribution(memc: Memc) -> u32 {
        memc.settings().map_or(DISTRIBUTION_MAX, |settings| settings.distribution.get())
    }

    fn memcached_behavior_set_key_hash(memc: Memc, hash: u32) -> Return {
        set_hash(&memc, |settings| &settings.hashkit.base_hash, hash)
    }

    fn memcached_behavior_get_key_hash(memc: Memc) -> u32 {
        memc.settings().map_or(HASH_MAX, |settings| settings.hashkit.base_hash.get().algorithm())
    }

    fn memcached_behavior_set_distribution_hash(memc: Memc, hash: u32) -> Return {
        set_hash(&memc, |settings| &settings.hashkit.distribution_hash, hash)
    }

    /// The hash of keys, as libmemcached returns it.
    fn memcached_behavior_get_distribution_hash(memc: Memc) -> u32 {
        memc.settings().map_or(HASH_MAX, |settings| settings.hashkit.base_hash.get().algorithm())
    }

    fn libmemcached_string_behavior(behavior: u32) -> *const c_char {
        let name = Behavior::of(behavior).map_or("INVALID memcached_behavior_t\0", Behavior::name_with_nul);
        name.as_ptr().cast()
    }

    fn libmemcached_string_distribution(distribution: u32) -> *const c_char {
        let name = DISTRIBUTIONS.get(distribution as usize);
        name.unwrap_or(&c"INVALID memcached_server_distribution_t").as_ptr()
    }
}

/// The names of `memcached_server_distribution_t`.
const DISTRIBUTIONS: [&std::ffi::CStr; 7] = [
    c"MEMCACHED_DISTRIBUTION_MODULA",
    c"MEMCACHED_DISTRIBUTION_CONSISTENT",
    c"MEMCACHED_DISTRIBUTION_CONSISTENT_KETAMA",
    c"MEMCACHED_DISTRIBUTION_RANDOM",
    c"MEMCACHED_DISTRIBUTION_CONSISTENT_KETAMA_SPY",
    c"MEMCACHED_DISTRIBUTION_CONSISTENT_WEIGHTED",
    c"MEMCACHED_DISTRIBUTION_VIRTUAL_BUCKET",
];
/// `MEMCACHED_HASH_MD5`.
const MD5: u32 = 1;
/// `MEMCACHED_DISTRIBUTION_CONSISTENT_MAX`.
const DISTRIBUTION_MAX: u32 = 7;

/// Sets a behavior.
pub(crate) fn set(memc: &Memc, behavior: Behavior, data: u64) -> Return {
    let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
    let flags = settings.flags.get();
    let is_on = data != 0;
    match behavior {
        Behavior::NUMBER_OF_REPLICAS => settings.number_of_replicas.set(data as u32),
        Behavior::IO_MSG_WATERMARK => settings.io_msg_watermark.set(data as u32),
        Behavior::IO_BYTES_WATERMARK => settings.io_bytes_watermark.set(data as u32),
        Behavior::IO_KEY_PREFETCH => settings.io_key_prefetch.set(data as u32),
        Behavior::SND_TIMEOUT => settings.snd_timeout.set(data as i32),
        Behavior::RCV_TIMEOUT => settings.rcv_timeout.set(data as i32),
        Behavior::POLL_TIMEOUT => settings.poll_timeout.set(data as i32),
        Behavior::CONNECT_TIMEOUT => settings.connect_timeout.set(data as i32),
        Behavior::RETRY_TIMEOUT => settings.retry_timeout.set(data as i32),
        Behavior::DEAD_TIMEOUT => settings.dead_timeout.set(data as i32),
        Behavior::SERVER_TIMEOUT_LIMIT => settings.server_timeout_limit.set(data as u32),
        Behavior::SERVER_FAILURE_LIMIT if data == 0 => {
            let text = "MEMCACHED_BEHAVIOR_SERVER_FAILURE_LIMIT requires a value greater then zero.";
            return invalid(memc, text);
        }
        Behavior::SERVER_FAILURE_LIMIT => settings.server_failure_limit.set(data as u32),
        Behavior::REMOVE_FAILED_SERVERS | Behavior::AUTO_EJECT_HOSTS => {
            set_flag(settings, Flag::AutoEjectHosts, is_on);
        }
        Behavior::SUPPORT_CAS => set_flag(settings, Flag::SupportCas, is_on),
        Behavior::HASH_WITH_PREFIX_KEY => set_flag(settings, Flag::HashWithNamespace, is_on),
        Behavior::RANDOMIZE_REPLICA_READ => set_flag(settings, Flag::RandomizeReplicaRead, is_on),
        Behavior::VERIFY_KEY if flags.has(Flag::BinaryProtocol) => {
            return invalid(memc, "MEMCACHED_BEHAVIOR_VERIFY_KEY if the binary protocol has been enabled.");
        }
        Behavior::VERIFY_KEY => set_flag(settings, Flag::VerifyKey, is_on),
        Behavior::NOREPLY if flags.has(Flag::UseUdp) && !is_on => {
            let text =
                "MEMCACHED_BEHAVIOR_NOREPLY cannot be disabled while MEMCACHED_BEHAVIOR_USE_UDP is enabled.";
            return invalid(memc, text);
        }
        Behavior::NOREPLY => set_flag(settings, Flag::Reply, !is_on),
        Behavior::SORT_HOSTS => {
            set_flag(settings, Flag::UseSortHosts, is_on);
            let code = distribute(memc);
            if code.is_failure() {
                settings.flags.set(flags);
            }
            return code;
        }
        Behavior::DISTRIBUTION => return set_distribution(memc, u32::try_from(data).unwrap_or(u32::MAX)),
        Behavior::KETAMA if is_on => return set_distribution(memc, Distribution::CONSISTENT_KETAMA),
        Behavior::KETAMA => return set_distribution(memc, Distribution::MODULA),
        Behavior::KETAMA_WEIGHTED if is_on => {
            set_hash(memc, |settings| &settings.hashkit.base_hash, MD5);
            set_hash(memc, |settings| &settings.hashkit.distribution_hash, MD5);
            return set_distribution(memc, Distribution::CONSISTENT_WEIGHTED);
        }
        Behavior::KETAMA_WEIGHTED => return set_distribution(memc, Distribution::CONSISTENT_KETAMA),
        Behavior::HASH => return set_hash(memc, |settings| &settings.hashkit.base_hash, data as u32),
        Behavior::KETAMA_HASH => {
            return set_hash(memc, |settings| &settings.hashkit.distribution_hash, data as u32);
        }
        Behavior::CACHE_LOOKUPS => {
            return fail(memc, Return::DEPRECATED, "MEMCACHED_BEHAVIOR_CACHE_LOOKUPS has been deprecated.");
        }
        Behavior::USER_DATA => {
            return fail(memc, Return::DEPRECATED, "MEMCACHED_BEHAVIOR_USER_DATA deprecated.");
        }
        Behavior::CORK => {
            let text = "MEMCACHED_BEHAVIOR_CORK is now incorporated into the driver by default.";
            return fail(memc, Return::DEPRECATED, text);
        }
        Behavior::LOAD_FROM_FILE => {
            let text = "MEMCACHED_BEHAVIOR_LOAD_FROM_FILE can not be set with memcached_behavior_set()";
            return invalid(memc, text);
        }
        Behavior::BINARY_PROTOCOL
        | Behavior::NO_BLOCK
        | Behavior::BUFFER_REQUESTS
        | Behavior::USE_UDP
        | Behavior::TCP_NODELAY
        | Behavior::TCP_KEEPALIVE
        | Behavior::TCP_KEEPIDLE
        | Behavior::SOCKET_SEND_SIZE
        | Behavior::SOCKET_RECV_SIZE => return set_of_connections(memc, settings, behavior, data),
    }
    Return::SUCCESS
}

/// Sets what connections are made with: those that there are, are closed.
fn set_of_connections(memc: &Memc, settings: &MemcachedSt, behavior: Behavior, data: u64) -> Return {
    let is_on = data != 0;
    if behavior == Behavior::BUFFER_REQUESTS && settings.flags.get().has(Flag::UseUdp) {
        let text =
            "MEMCACHED_BEHAVIOR_BUFFER_REQUESTS cannot be set while MEMCACHED_BEHAVIOR_USE_UDP is enabled.";
        return invalid(memc, text);
    }
    if let Some((mut session, options)) = session(memc) {
        session.core.quit(&options);
    }
    match behavior {
        Behavior::BINARY_PROTOCOL => {
            if is_on {
                set_flag(settings, Flag::VerifyKey, false);
            }
            set_flag(settings, Flag::BinaryProtocol, is_on);
        }
        Behavior::NO_BLOCK => set_flag(settings, Flag::NoBlock, is_on),
        Behavior::BUFFER_REQUESTS => set_flag(settings, Flag::BufferRequests, is_on),
        Behavior::USE_UDP => {
            set_flag(settings, Flag::UseUdp, is_on);
            set_flag(settings, Flag::Reply, !is_on);
            if is_on {
                set_flag(settings, Flag::BufferRequests, false);
            }
        }
        Behavior::TCP_NODELAY => set_flag(settings, Flag::TcpNodelay, is_on),
        Behavior::TCP_KEEPALIVE => set_flag(settings, Flag::TcpKeepalive, is_on),
        Behavior::TCP_KEEPIDLE => settings.tcp_keepidle.set(data as u32),
        Behavior::SOCKET_SEND_SIZE => settings.send_size.set(data as i32),
        _ => settings.recv_size.set(data as i32),
    }
    Return::SUCCESS
}

/// A behavior's value.
pub(super) fn of(memc: &Memc, behavior: Behavior) -> u64 {
    memc.settings().map_or(0, |settings| get(memc, settings, behavior))
}

fn get(memc: &Memc, settings: &MemcachedSt, behavior: Behavior) -> u64 {
    let flag = |flag| u64::from(settings.flags.get().has(flag));
    let signed = |number: &Cell<i32>| i64::from(number.get()).cast_unsigned();
    let is_consistent = (Distribution::CONSISTENT..=Distribution::CONSISTENT_WEIGHTED)
        .contains(&settings.distribution.get())
        && settings.distribution.get() != Distribution::RANDOM;
    match behavior {
        Behavior::NUMBER_OF_REPLICAS => settings.number_of_replicas.get().into(),
        Behavior::IO_MSG_WATERMARK => settings.io_msg_watermark.get().into(),
        Behavior::IO_BYTES_WATERMARK => settings.io_bytes_watermark.get().into(),
        Behavior::IO_KEY_PREFETCH => settings.io_key_prefetch.get().into(),
        Behavior::BINARY_PROTOCOL => flag(Flag::BinaryProtocol),
        Behavior::SUPPORT_CAS => flag(Flag::SupportCas),
        Behavior::CACHE_LOOKUPS | Behavior::CORK => 1,
        Behavior::NO_BLOCK => flag(Flag::NoBlock),
        Behavior::BUFFER_REQUESTS => flag(Flag::BufferRequests),
        Behavior::USE_UDP => flag(Flag::UseUdp),
        Behavior::TCP_NODELAY => flag(Flag::TcpNodelay),
        Behavior::VERIFY_KEY => flag(Flag::VerifyKey),
        Behavior::KETAMA_WEIGHTED => u64::from(is_consistent && settings.ketama_weighted.get()),
        Behavior::DISTRIBUTION => settings.distribution.get().into(),
        Behavior::KETAMA => is_consistent.into(),
        Behavior::HASH => settings.hashkit.base_hash.get().algorithm().into(),
        Behavior::KETAMA_HASH => settings.hashkit.distribution_hash.get().algorithm().into(),
        Behavior::REMOVE_FAILED_SERVERS | Behavior::AUTO_EJECT_HOSTS => flag(Flag::AutoEjectHosts),
        Behavior::SERVER_FAILURE_LIMIT => settings.server_failure_limit.get().into(),
        Behavior::SERVER_TIMEOUT_LIMIT => settings.server_timeout_limit.get().into(),
        Behavior::SORT_HOSTS => flag(Flag::UseSortHosts),
        Behavior::POLL_TIMEOUT => signed(&settings.poll_timeout),
        Behavior::CONNECT_TIMEOUT => signed(&settings.connect_timeout),
        Behavior::RETRY_TIMEOUT => signed(&settings.retry_timeout),
        Behavior::DEAD_TIMEOUT => signed(&settings.dead_timeout),
        Behavior::SND_TIMEOUT => signed(&settings.snd_timeout),
        Behavior::RCV_TIMEOUT => signed(&settings.rcv_timeout),
        Behavior::TCP_KEEPIDLE => settings.tcp_keepidle.get().into(),
        Behavior::SOCKET_SEND_SIZE if settings.send_size.get() != -1 => signed(&settings.send_size),
        Behavior::SOCKET_RECV_SIZE if settings.recv_size.get() != -1 => signed(&settings.recv_size),
        Behavior::SOCKET_SEND_SIZE => buffer_sizes(memc).0,
        Behavior::SOCKET_RECV_SIZE => buffer_sizes(memc).1,
        Behavior::USER_DATA => {
            fail(memc, Return::DEPRECATED, "MEMCACHED_BEHAVIOR_USER_DATA deprecated.");
            0
        }
        Behavior::HASH_WITH_PREFIX_KEY => flag(Flag::HashWithNamespace),
        Behavior::NOREPLY => 1 - flag(Flag::Reply),
        Behavior::RANDOMIZE_REPLICA_READ => flag(Flag::RandomizeReplicaRead),
        Behavior::TCP_KEEPALIVE => flag(Flag::TcpKeepalive),
        Behavior::LOAD_FROM_FILE => {
            memc.read(|core| core.configuration_file.is_some()).is_some_and(|has_file| has_file).into()
        }
    }
}

/// Those of the first server's socket; 0: there is none.
fn buffer_sizes(memc: &Memc) -> (u64, u64) {
    let sizes = session(memc).and_then(|(mut session, options)| session.core.buffer_sizes(&options));
    sizes.map_or((0, 0), |(send, receive)| (send as u64, receive as u64))
}

fn set_flag(settings: &MemcachedSt, flag: Flag, is_on: bool) {
    let mut flags = settings.flags.get();
    flags.set(flag, is_on);
    settings.flags.set(flags);
}

/// Sets the distribution, and places servers anew.
pub(crate) fn set_distribution(memc: &Memc, distribution: u32) -> Return {
    let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
    let before = (settings.distribution.get(), settings.ketama_weighted.get());
    match distribution {
        Distribution::CONSISTENT | Distribution::CONSISTENT_KETAMA => settings.ketama_weighted.set(false),
        Distribution::CONSISTENT_WEIGHTED => settings.ketama_weighted.set(true),
        DISTRIBUTION_MAX.. => return invalid(memc, "Invalid memcached_server_distribution_t"),
        _ => {}
    }
    settings.distribution.set(distribution);
    let code = distribute(memc);
    if code.is_failure() {
        settings.distribution.set(before.0);
        settings.ketama_weighted.set(before.1);
    }
    code
}

/// Sets a hash function.
pub(crate) fn set_hash(
    memc: &Memc,
    place: impl Fn(&MemcachedSt) -> &Cell<HashFunctionSt>,
    hash: u32,
) -> Return {
    let Some(settings) = memc.settings() else { return Return::INVALID_ARGUMENTS };
    match HashFunctionSt::of(hash).filter(|_| hash != HASH_CUSTOM) {
        Some(function) => {
            place(settings).set(function);
            Return::SUCCESS
        }
        // As in libmemcached: what is no number of a function is ignored.
        None if hash > HASH_MAX => Return::SUCCESS,
        None => {
            if hash == HASH_MAX {
                place(settings).set(HashFunctionSt::DEFAULT);
            }
            invalid(memc, "Invalid memcached_hash_t()")
        }
    }
}

fn distribute(memc: &Memc) -> Return {
    let placed = session(memc).map_or(Ok(()), |(mut session, options)| session.core.distribute(&options));
    placed.err().unwrap_or(Return::SUCCESS)
}

fn invalid(memc: &Memc, text: &str) -> Return {
    fail(memc, Return::INVALID_ARGUMENTS, text)
}
