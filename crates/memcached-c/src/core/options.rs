//! The settings, as a call finds them in a `memcached_st`.

use super::Cipher;
use crate::abi::{Flag, HashFunction, LoginCallbacks, MemcachedSt};

/// Settings, for the time of a call.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) binary: bool,
    pub(crate) buffering: bool,
    pub(crate) replying: bool,
    pub(crate) udp: bool,
    pub(crate) support_cas: bool,
    pub(crate) verify_key: bool,
    pub(crate) hash_with_namespace: bool,
    pub(crate) auto_eject: bool,
    pub(crate) sort_hosts: bool,
    pub(crate) randomize_replica_read: bool,
    pub(crate) keepalive: bool,
    pub(crate) keepidle_secs: u32,
    pub(crate) send_size: i32,
    pub(crate) recv_size: i32,
    /// In milliseconds; negative: for ever.
    pub(crate) poll_timeout: i32,
    pub(crate) connect_timeout: i32,
    pub(crate) retry_timeout_secs: i32,
    pub(crate) dead_timeout_secs: i32,
    pub(crate) failure_limit: u32,
    pub(crate) timeout_limit: u32,
    pub(crate) msg_watermark: u32,
    pub(crate) bytes_watermark: u32,
    pub(crate) replicas: u32,
    pub(crate) query_id: u64,
    pub(crate) distribution: u32,
    pub(crate) weighted: bool,
    pub(crate) hash: HashFunction,
    pub(crate) login: LoginCallbacks,
    /// What values are encrypted with.
    pub(crate) cipher: Option<Cipher>,
    /// The address of the struct: error messages begin with it.
    pub(crate) root: usize,
}

/// Numbers of `memcached_server_distribution_t`.
pub(crate) struct Distribution;

impl Distribution {
    pub(crate) const MODULA: u32 = 0;
    pub(crate) const CONSISTENT: u32 = 1;
    pub(crate) const CONSISTENT_KETAMA: u32 = 2;
    pub(crate) const RANDOM: u32 = 3;
    pub(crate) const CONSISTENT_KETAMA_SPY: u32 = 4;
    pub(crate) const CONSISTENT_WEIGHTED: u32 = 5;
    pub(crate) const VIRTUAL_BUCKET: u32 = 6;
}

impl Options {
    /// Those of a client.
    pub(crate) fn of(memc: &MemcachedSt) -> Self {
        let flags = memc.flags.get();
        Self {
            binary: flags.has(Flag::BinaryProtocol),
            buffering: flags.has(Flag::BufferRequests),
            replying: flags.has(Flag::Reply),
            udp: flags.has(Flag::UseUdp),
            support_cas: flags.has(Flag::SupportCas),
            verify_key: flags.has(Flag::VerifyKey),
            hash_with_namespace: flags.has(Flag::HashWithNamespace),
            auto_eject: flags.has(Flag::AutoEjectHosts),
            sort_hosts: flags.has(Flag::UseSortHosts),
            randomize_replica_read: flags.has(Flag::RandomizeReplicaRead),
            keepalive: flags.has(Flag::TcpKeepalive),
            keepidle_secs: memc.tcp_keepidle.get(),
            send_size: memc.send_size.get(),
            recv_size: memc.recv_size.get(),
            poll_timeout: memc.poll_timeout.get(),
            connect_timeout: memc.connect_timeout.get(),
            retry_timeout_secs: memc.retry_timeout.get(),
            dead_timeout_secs: memc.dead_timeout.get(),
            failure_limit: memc.server_failure_limit.get(),
            timeout_limit: memc.server_timeout_limit.get(),
            msg_watermark: memc.io_msg_watermark.get(),
            bytes_watermark: memc.io_bytes_watermark.get(),
            replicas: memc.number_of_replicas.get(),
            query_id: memc.query_id.get(),
            distribution: memc.distribution.get(),
            weighted: memc.ketama_weighted.get(),
            hash: memc.hashkit.base_hash.get().callable(),
            login: LoginCallbacks::of(memc),
            cipher: memc.hashkit.cipher(),
            root: std::ptr::from_ref(memc).addr(),
        }
    }

    /// Would a server take a key for several, or for the end of a command?
    pub(crate) fn splits(&self, key: &[u8]) -> bool {
        !self.binary && !self.verify_key && key.iter().any(|&byte| byte <= b' ' || byte == 0x7f)
    }

    /// Do servers stand on a ring?
    pub(crate) fn is_consistent(&self) -> bool {
        matches!(
            self.distribution,
            Distribution::CONSISTENT
                | Distribution::CONSISTENT_KETAMA
                | Distribution::CONSISTENT_KETAMA_SPY
                | Distribution::CONSISTENT_WEIGHTED
        )
    }
}
