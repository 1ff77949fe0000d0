//! Events, and their lines. Fields and order: memcached, doc/protocol.txt, "Watchers".

use std::net::SocketAddr;

use larder_protocol::admin::Streams;
use larder_protocol::dump::uri;
use larder_replication::state::Conflict;
use larder_replication::version::site_of;

use crate::conn::client::{Client, Peer};
use crate::conn::session::CloseReason;

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'e> {
    /// A key was looked up.
    Lookup { key: &'e [u8], status: &'static str, class: usize, client: &'e Client, value_bytes: usize },
    /// A store was attempted.
    Store {
        key: &'e [u8],
        status: &'static str,
        command: &'static str,
        /// 0: no expiry; negative: it has expired already.
        ttl_secs: i64,
        class: usize,
        client: &'e Client,
        value_bytes: u32,
    },
    /// A live item was evicted.
    Eviction {
        key: &'e [u8],
        is_fetched: bool,
        ttl_secs: Option<u32>,
        idle_secs: u32,
        class: usize,
        value_bytes: usize,
    },
    /// An item was deleted.
    Deletion { key: &'e [u8], command: &'static str, class: usize, value_bytes: usize },
    /// A client connected.
    Arrival { client: &'e Client },
    /// A client disconnected.
    Departure { client: &'e Client, reason: CloseReason },
    /// A search for expired items has ended.
    Crawl { elapsed_secs: u32, examined: u64, reclaimed: u64 },
    /// Two sites changed a key, and neither knew of the other's change.
    Conflict { key: &'e [u8], prefix: &'e [u8], conflict: Conflict },
    /// What became of another site.
    Site { site: u8, state: SiteState, peer: &'e str },
}

/// What can become of another site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteState {
    /// This site pulls from it.
    Connected,
    /// The connection has ended.
    Lost,
    /// A copy of it is being taken ...
    CopyBegun,
    /// ... and is complete.
    CopyDone,
    /// Its changes are so far ahead of this clock that they wait ...
    Ahead,
    /// ... and no longer.
    InTime,
    /// It was not heard of for so long that nobody waits for it.
    Silent,
    /// It was restored from a backup, and needs a copy.
    Restored,
}

impl SiteState {
    fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Lost => "lost",
            Self::CopyBegun => "copy_begun",
            Self::CopyDone => "copy_done",
            Self::Ahead => "ahead",
            Self::InTime => "in_time",
            Self::Silent => "silent",
            Self::Restored => "restored",
        }
    }
}

impl Event<'_> {
    /// The stream that it belongs to.
    pub(crate) fn stream(&self) -> Streams {
        match self {
            Self::Lookup { .. } => Streams::FETCHERS,
            Self::Store { .. } => Streams::MUTATIONS,
            Self::Eviction { .. } => Streams::EVICTIONS,
            Self::Deletion { .. } => Streams::DELETIONS,
            Self::Arrival { .. } | Self::Departure { .. } => Streams::CONNECTIONS,
            Self::Crawl { .. } => Streams::SYSTEM,
            Self::Conflict { .. } | Self::Site { .. } => Streams::REPLICATION,
        }
    }

    /// The key that the event's line shows.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Lookup { key, .. }
            | Self::Store { key, .. }
            | Self::Eviction { key, .. }
            | Self::Deletion { key, .. }
            | Self::Conflict { key, .. } => Some(key),
            Self::Arrival { .. } | Self::Departure { .. } | Self::Crawl { .. } | Self::Site { .. } => None,
        }
    }

    /// The greatest length of its line.
    pub(super) fn line_bytes_max(&self) -> usize {
        let key = match self {
            Self::Lookup { key, .. }
            | Self::Store { key, .. }
            | Self::Eviction { key, .. }
            | Self::Deletion { key, .. } => 3 * key.len(),
            Self::Conflict { key, prefix, .. } => 3 * (key.len() + prefix.len()),
            Self::Site { peer, .. } => peer.len(),
            _ => 0,
        };
        key + FIELDS_BYTES_MAX
    }

    /// Writes the fields after time and number.
    pub(super) fn write(&self, line: &mut Vec<u8>) {
        match *self {
            Self::Lookup { key, status, class, client, value_bytes } => {
                text(line, "type=item_get key=", "");
                uri(key, |bytes| line.extend_from_slice(bytes));
                text(line, " status=", status);
                number(line, " clsid=", class as u64);
                number(line, " cfd=", client.fd);
                number(line, " size=", value_bytes as u64);
            }
            Self::Store { key, status, command, ttl_secs, class, client, value_bytes } => {
                text(line, "type=item_store key=", "");
                uri(key, |bytes| line.extend_from_slice(bytes));
                text(line, " status=", status);
                text(line, " cmd=", command);
                number(line, " ttl=", ttl_secs);
                number(line, " clsid=", class as u64);
                number(line, " cfd=", client.fd);
                number(line, " size=", value_bytes);
            }
            Self::Eviction { key, is_fetched, ttl_secs, idle_secs, class, value_bytes } => {
                text(line, "type=eviction key=", "");
                uri(key, |bytes| line.extend_from_slice(bytes));
                text(line, " fetch=", if is_fetched { "yes" } else { "no" });
                number(line, " ttl=", ttl_secs.map_or(-1, i64::from));
                number(line, " la=", idle_secs);
                number(line, " clsid=", class as u64);
                number(line, " size=", value_bytes as u64);
            }
            Self::Deletion { key, command, class, value_bytes } => {
                text(line, "type=deleted key=", "");
                uri(key, |bytes| line.extend_from_slice(bytes));
                text(line, " cmd=", command);
                number(line, " clsid=", class as u64);
                number(line, " size=", value_bytes as u64);
            }
            Self::Arrival { client } => {
                text(line, "type=conn_new", "");
                caller(line, client);
                number(line, " cfd=", client.fd);
            }
            Self::Departure { client, reason } => {
                text(line, "type=conn_close", "");
                caller(line, client);
                text(line, " reason=", reason.name());
                number(line, " cfd=", client.fd);
            }
            Self::Crawl { elapsed_secs, examined, reclaimed } => {
                // All classes at once. The time of the next run is unknown: it runs on request.
                text(
                    line,
                    "type=lru_crawler crawler=0 lru=all low_mark=0 next_reclaims=0 since_run=0 next_run=0",
                    "",
                );
                number(line, " elapsed=", elapsed_secs);
                number(line, " examined=", examined);
                number(line, " reclaimed=", reclaimed);
            }
            Self::Conflict { key, prefix, conflict: Conflict { winner, loser } } => {
                text(line, "type=conflict key=", "");
                uri(key, |bytes| line.extend_from_slice(bytes));
                text(line, " namespace=", if prefix.is_empty() { DEFAULT_NAME } else { "" });
                uri(prefix, |bytes| line.extend_from_slice(bytes));
                number(line, " winner=", winner);
                number(line, " winner_site=", site_of(winner));
                number(line, " loser=", loser);
                number(line, " loser_site=", site_of(loser));
            }
            Self::Site { site, state, peer } => {
                number(line, "type=site site=", site);
                text(line, " state=", state.name());
                if !peer.is_empty() {
                    text(line, " peer=", peer);
                }
            }
        }
        line.push(b'\n');
    }
}

fn caller(line: &mut Vec<u8>, client: &Client) {
    let (ip, port, transport) = match client.peer {
        Peer::Tcp(SocketAddr::V4(address)) => (address.ip().to_string(), address.port(), "tcp"),
        Peer::Tcp(SocketAddr::V6(address)) => (address.ip().to_string(), address.port(), "tcp"),
        Peer::Unix => ("unix".to_owned(), 0, "local"),
        Peer::Udp => ("unknown".to_owned(), 0, "udp"),
    };
    text(line, " rip=", &ip);
    number(line, " rport=", port);
    text(line, " transport=", transport);
}

fn text(line: &mut Vec<u8>, name: &str, value: &str) {
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(value.as_bytes());
}

pub(super) fn number(line: &mut Vec<u8>, name: &str, value: impl itoa::Integer) {
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// What clients call the namespace without a prefix: no prefix is written so.
const DEFAULT_NAME: &str = "<null>";
/// Time, number and all fields but the key.
const FIELDS_BYTES_MAX: usize = 300;
