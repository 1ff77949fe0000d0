//! Servers, and which of them a key belongs to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::continuum::{Continuum, Owner, Tie};
use super::ketama::{Rounding, hashed_points, md5_points, php_memcache_points, sha1_points};
use super::node::Node;
use super::{Distribution, KeyHash, Placement, jump_hash, rendezvous};
use crate::{Server, split_mix};

/// A placement of servers. Positions are those of the servers in the list that it was made of.
#[derive(Clone, Debug)]
pub struct Locator {
    servers: Arc<[Server]>,
    placement: Placement,
    search: Search,
    /// The server of all keys, where the list has just one.
    only: Option<usize>,
}

/// What is computed once for all keys.
#[derive(Clone, Debug)]
enum Search {
    /// There is no server.
    None,
    /// The servers of a modulus, each with the sum of the weights up to it.
    Modula(Vec<(u64, usize)>),
    Continuum(Continuum),
    /// The server of each of 1024 places on a ring, `None` if there is none.
    Places(Vec<Option<usize>>),
    /// The servers that a map of buckets counts; `None` is ejected.
    Buckets(Vec<Option<usize>>),
    Rendezvous(Vec<Node>),
    Jump(Vec<usize>),
    /// The servers, and how often one was drawn.
    Random(Vec<usize>, Arc<AtomicU64>),
}

impl Locator {
    /// Places keys over these servers.
    pub fn new(servers: &[Server], placement: impl Into<Placement>) -> Self {
        Self::build(servers.into(), placement.into(), &[])
    }

    /// Places keys over the servers that are not at these positions, as clients do that eject a server which does not
    /// answer: the ring, or the count of a modulus, is made anew of the others. Positions do not change. libmemcached
    /// ejects servers from rings only, never from a modulus or buckets.
    #[must_use]
    pub fn without(&self, ejected: &[usize]) -> Self {
        Self::build(Arc::clone(&self.servers), self.placement.clone(), ejected)
    }

    /// The position of the server of a key, or of a group of keys, where a client has keys of groups (libmemcached's
    /// `…_by_key`). The key is without the client's prefix. `None`: there is no server, or its bucket has none.
    #[inline]
    pub fn server_of(&self, key: &[u8]) -> Option<usize> {
        match &self.search {
            Search::Rendezvous(nodes) => {
                let key = self.placement.hashed(key)?;
                rendezvous::highest(nodes, &key).map(|node| node.position)
            }
            _ if self.servers.len() == 1 => self.only,
            _ => self.owner(self.placement.hash_of(key)),
        }
    }

    /// The position of the server of a hash, where the caller has hashed the key: libmemcached lets programs do so.
    /// `None`: there is no server, its bucket has none, or the distribution hashes keys itself
    /// ([`Distribution::Rendezvous`]).
    pub fn server_of_hash(&self, hash: u32) -> Option<usize> {
        self.owner(hash.into())
    }

    /// The positions of up to `count` servers, each once: the server of a key, and those that it would have if the ones
    /// before were away. On a ring they follow each other; otherwise they follow in the list.
    pub fn successors(&self, key: &[u8], count: usize) -> Vec<usize> {
        let count = count.min(self.servers.len());
        match &self.search {
            Search::Rendezvous(nodes) => {
                let Some(key) = self.placement.hashed(key) else { return Vec::new() };
                rendezvous::ranked(nodes, &key).into_iter().map(|node| node.position).take(count).collect()
            }
            Search::Continuum(continuum) => distinct(continuum.walk(self.placement.hash_of(key)), count),
            Search::Places(places) => {
                let start = self.placement.hash_of(key) as usize % PLACES;
                distinct(turned(places, start).iter().flatten().copied(), count)
            }
            _ => {
                let (Some(owner), counted) = (self.server_of(key), self.counted()) else { return Vec::new() };
                let start = counted.iter().position(|server| *server == owner).unwrap_or(0);
                distinct(turned(&counted, start).into_iter(), count)
            }
        }
    }

    /// How keys are placed.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The servers in the order in which they are counted, where there is neither ring nor score.
    fn counted(&self) -> Vec<usize> {
        match &self.search {
            Search::Modula(ends) => ends.iter().map(|(_, server)| *server).collect(),
            Search::Buckets(nodes) => nodes.iter().flatten().copied().collect(),
            Search::Jump(nodes) | Search::Random(nodes, _) => nodes.clone(),
            _ => Vec::new(),
        }
    }

    /// The server of a hash. With [`Distribution::Rendezvous`], where keys have none: `None`.
    pub(super) fn owner(&self, hash: u64) -> Option<usize> {
        match &self.search {
            Search::None | Search::Rendezvous(_) => None,
            Search::Modula(ends) => {
                let (total, _) = ends.last()?;
                let share = hash.checked_rem(*total)?;
                ends.get(ends.partition_point(|(end, _)| *end <= share)).map(|(_, server)| *server)
            }
            Search::Continuum(continuum) => continuum.server_of(hash),
            Search::Places(places) => *places.get(hash as usize % PLACES)?,
            Search::Buckets(nodes) => {
                let map = &self.placement.buckets;
                let buckets = if map.is_empty() { nodes.len() } else { map.len() };
                let bucket = hash as usize & buckets.checked_sub(1)?;
                let node = map.get(bucket).map_or(bucket, |node| *node as usize);
                *nodes.get(node)?
            }
            Search::Jump(nodes) => nodes.get(jump_hash(hash, nodes.len() as u32) as usize).copied(),
            Search::Random(nodes, drawn) => {
                let random = split_mix::at(drawn.fetch_add(1, Relaxed));
                nodes.get(random.checked_rem(nodes.len() as u64)? as usize).copied()
            }
        }
    }

    fn build(servers: Arc<[Server]>, placement: Placement, ejected: &[usize]) -> Self {
        let all = Arc::clone(&servers);
        let mut listed: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(position, server)| (server, placement.names.name(position, &server.address), position))
            .collect();
        listed.sort_by(|a, b| placement.order.compare((a.0, &a.1), (b.0, &b.1)));
        if placement.distribution == Distribution::VirtualBuckets {
            let live = |position: &usize| !ejected.contains(position);
            let nodes = listed.iter().map(|(_, _, position)| Some(*position).filter(live)).collect();
            return Self::with(servers, placement, Search::Buckets(nodes));
        }
        listed.retain(|(_, _, position)| !ejected.contains(position));
        let nodes: Vec<_> = listed
            .into_iter()
            .map(|(server, name, position)| Node { position, name, weight: u64::from(server.weight.max(1)) })
            .collect();
        let search = if nodes.is_empty() { Search::None } else { search(&placement, nodes) };
        Self::with(servers, placement, search)
    }

    fn with(servers: Arc<[Server]>, placement: Placement, search: Search) -> Self {
        let mut this = Self { servers, placement, search, only: None };
        this.only = this.owner(0);
        this
    }
}

fn search(placement: &Placement, nodes: Vec<Node>) -> Search {
    let Placement { distribution, hash, chars, .. } = *placement;
    let positions = || nodes.iter().map(|node| node.position).collect();
    let has_weights = nodes.iter().any(|node| node.weight != 1);
    let ring = |points, owner, tie| Search::Continuum(Continuum::new(points, owner, tie));
    let even = || nodes.iter().map(|node| Node { weight: 1, ..node.clone() }).collect::<Vec<_>>();
    match distribution {
        Distribution::Modula => Search::Modula(ends(&even())),
        Distribution::ModulaWeighted | Distribution::PhpMemcacheStandard => Search::Modula(ends(&nodes)),
        Distribution::Ketama | Distribution::KetamaSpy if !has_weights => {
            ring(hashed_points(&nodes, 100, hash, chars), Owner::NotBelow, Tie::First)
        }
        Distribution::Ketama
        | Distribution::KetamaSpy
        | Distribution::KetamaWeighted
        | Distribution::KetamaSpyWeighted => {
            ring(md5_points(&nodes, Rounding::Single), Owner::NotBelow, Tie::First)
        }
        Distribution::SpymemcachedKetama if hash != KeyHash::Md5 => {
            ring(hashed_points(&nodes, 160, hash, chars), Owner::NotBelow, Tie::Last)
        }
        Distribution::SpymemcachedKetama => {
            ring(md5_points(&even(), Rounding::Whole), Owner::NotBelow, Tie::Last)
        }
        Distribution::SpymemcachedKetamaWeighted => {
            ring(md5_points(&nodes, Rounding::Single), Owner::NotBelow, Tie::Last)
        }
        Distribution::WhalinConsistent => {
            ring(md5_points(&nodes, Rounding::Whole), Owner::NotBelow, Tie::Last)
        }
        Distribution::UhashringKetama => ring(md5_points(&nodes, Rounding::Whole), Owner::Above, Tie::Last),
        Distribution::DalliRing => ring(sha1_points(&nodes), Owner::NotAbove, Tie::Last),
        Distribution::PhpMemcacheConsistent => {
            let points = php_memcache_points(&nodes, hash, chars);
            let continuum = Continuum::new(points, Owner::NotBelow, Tie::First);
            let step = u64::from(u32::MAX) / PLACES as u64;
            Search::Places((0..PLACES as u64).map(|place| continuum.server_of(place * step)).collect())
        }
        Distribution::VirtualBuckets => {
            Search::Buckets(nodes.iter().map(|node| Some(node.position)).collect())
        }
        Distribution::Rendezvous => Search::Rendezvous(nodes),
        Distribution::Jump => Search::Jump(positions()),
        Distribution::Random => Search::Random(positions(), Arc::default()),
    }
}

/// Sums of weights, each up to and with its server.
fn ends(nodes: &[Node]) -> Vec<(u64, usize)> {
    let mut end = 0;
    let end_of = |node: &Node| {
        end += node.weight;
        (end, node.position)
    };
    nodes.iter().map(end_of).collect()
}

/// The first `count` different ones.
fn distinct(servers: impl Iterator<Item = usize>, count: usize) -> Vec<usize> {
    let mut found = Vec::new();
    for server in servers {
        if found.len() >= count {
            break;
        }
        if !found.contains(&server) {
            found.push(server);
        }
    }
    found
}

/// The same list, begun at another place.
fn turned<T: Copy>(list: &[T], start: usize) -> Vec<T> {
    let (before, from) = list.split_at(start.min(list.len()));
    [from, before].concat()
}

/// The places on the ring of PHP's memcache.
const PLACES: usize = 1024;
