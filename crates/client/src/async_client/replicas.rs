//! Copies of each item on several servers.
//!
//! A plain store, a delete and a touch go to all places of a key at once. What depends on the item that is there (add,
//! replace, append, prepend, cas, incr, decr) would have another result at each place: it is made at the first place
//! that answers, and the other copies are deleted before; a later read fills them again. A get that tells a CAS value
//! for such a change, or sets a time to live, is made there as well. If that place has no item it is first filled from
//! the others, in the meta protocol; the text and binary protocols tell no time to live, so what only other places have
//! is missing for such requests, and gone after such a change.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::TIMEOUT_MAX;
use super::key::WireKey;
use super::recache::MetaItem;
use super::reply::{Answer, Reply};
use super::request::Request;
use super::topology::Topology;
use super::warm_up::joined;
use crate::{Error, Protocol};

/// How many copies there are of each item, and what is enough of them.
///
/// With [`ReadRule::First`], what depends on the item (`add`, `append`, `cas`, `incr` and the like, also `gets` and
/// `get_and_touch`) is made at the first place of the key that answers. In the meta protocol that place is filled from
/// the others before. In the text and binary protocols it is not: after a restart of its server `gets` and
/// `get_and_touch` find nothing there, and a change that needs an item finds none and deletes the other copies.
///
/// In the meta protocol such a change fails, and is not made, if the place has no item, and another place does not
/// answer or has one that cannot be copied: it is stale, it is changed meanwhile, or the place refuses it. A place that
/// cannot be connected, or is ejected, counts as lost.
///
/// ```no_run
/// use larder_client::async_client::{ReadRule, Replication, WriteRule};
/// use larder_client::{AsyncClient, Distribution, Servers};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let servers: Servers = "10.0.1.1, 10.0.1.2, 10.0.1.3".parse()?;
/// let replication = Replication { copies: 2, writes: WriteRule::One, reads: ReadRule::First };
/// let client = AsyncClient::builder()
///     .servers(servers)
///     .distribution(Distribution::Ketama)
///     .circuit_breaker(Default::default())
///     .replication(replication)
///     .build();
/// client.set("colour", "green", std::time::Duration::from_secs(3600)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// On so many servers: those that follow each other in the [placement](crate::placement::Locator::successors).
    pub copies: usize,
    /// When a change has succeeded.
    pub writes: WriteRule,
    /// Which copy is read.
    pub reads: ReadRule,
}

/// When a change has succeeded that goes to all places of a key. If some have made it, but not enough, it is
/// [`Error::Unknown`]; so is a delete or a touch that has found nothing where a place that may have the item does not
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRule {
    /// One place has made it.
    One,
    /// More than half of the places have.
    Quorum,
    /// All have.
    All,
}

/// Which copy is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRule {
    /// The first that is found, place by place; each has a share of the time. Places before it that had nothing are
    /// filled, by `add`, in the meta protocol. For memcached: CAS values of different servers say nothing of each
    /// other, so [`AsyncClient::gets`](super::AsyncClient::gets) asks the first place that answers alone, where `cas`
    /// is made. A server that has missed a change may be read: eject it long enough, or let items expire.
    First,
    /// That with the highest CAS value of all that answer. For larderd with stores that replicate each other, where CAS
    /// values order the changes of all sites. Nothing is repaired: the sites do that, and a copy that a client writes
    /// would be a change of its own.
    Newest,
}

impl WriteRule {
    fn needed(self, places: usize) -> usize {
        match self {
            Self::One => 1,
            Self::Quorum => places / 2 + 1,
            Self::All => places,
        }
    }
}

/// What a place has.
struct Replica {
    place: usize,
    reply: Reply,
}

impl Topology {
    /// [`Topology::ask`] of all places of a key.
    pub(super) async fn ask_replicas(
        self: &Arc<Self>,
        replication: Replication,
        key: &[u8],
        request: Request,
        is_quiet: bool,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        self.probe();
        let places = self.router.locator().successors(key, replication.copies.max(1));
        if places.is_empty() {
            return Err(Error::NoServers);
        }
        let is_read = request.is_plain_get();
        let asked = match replication.reads {
            _ if !is_read => {
                self.change_replicas(replication, &places, Arc::new(request), is_quiet, deadline).await
            }
            // Where a later `cas` is made.
            ReadRule::First if request.is_gets() => {
                self.ask_first(&places, &Arc::new(request), is_quiet, true, deadline).await
            }
            ReadRule::First => self.read_first(key, &places, request, deadline).await,
            ReadRule::Newest => self.read_newest(key, &places, request, deadline).await,
        };
        match asked {
            Err(error) if is_read && self.hides(&error) => Ok(Reply::miss()),
            asked => asked,
        }
    }

    async fn read_first(
        self: &Arc<Self>,
        key: &[u8],
        places: &[usize],
        request: Request,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        let has_ttl = self.settings.protocol == Protocol::Meta;
        let request = if has_ttl { request.with_ttl() } else { request };
        let request = Arc::new(request);
        let (mut missed, mut failure) = (Vec::new(), None);
        for (index, &place) in places.iter().enumerate() {
            let until = share_of(deadline, places.len() - index);
            match self.ask_place(place, &request, false, until).await {
                Ok(reply) if reply.found.is_none() => missed.push(place),
                Ok(reply) => {
                    self.note_place(key, place);
                    let replica = Replica { place, reply };
                    if has_ttl && let Some(key) = request.key() {
                        join_all(missed.into_iter().map(|place| self.fill(place, &replica, key, deadline)))
                            .await;
                    }
                    return Ok(replica.reply);
                }
                Err(error) => failure = Some(error),
            }
        }
        // A place that has answered knows nothing of the key.
        if missed.is_empty() { Err(failure.unwrap_or(Error::NoServers)) } else { Ok(Reply::miss()) }
    }

    async fn read_newest(
        self: &Arc<Self>,
        key: &[u8],
        places: &[usize],
        request: Request,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        let request = Arc::new(request.with_cas());
        let ask = |place: &usize| self.ask_place(*place, &request, false, deadline);
        let (mut newest, mut failure) = (None::<Replica>, None);
        for (&place, reply) in places.iter().zip(join_all(places.iter().map(ask)).await) {
            match reply {
                Ok(reply) if newest.as_ref().is_none_or(|newest| newest.reply.cas() < reply.cas()) => {
                    newest = Some(Replica { place, reply });
                }
                Ok(_) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match newest {
            Some(Replica { place, reply }) => {
                self.note_place(key, place);
                Ok(reply)
            }
            None => Err(failure.unwrap_or(Error::NoServers)),
        }
    }

    /// Copies an item to a place that has none. What another client changes meanwhile is not overwritten, and the copy
    /// is taken away again if the item was changed or deleted. Who waits for it may vanish: it is done to its end all
    /// the same.
    ///
    /// `Ok`: the place has an item, or nobody has one any more.
    async fn fill(
        self: &Arc<Self>,
        place: usize,
        replica: &Replica,
        key: &WireKey,
        deadline: Instant,
    ) -> Result<(), Error> {
        let Some(found) = &replica.reply.found else { return Ok(()) };
        let item = MetaItem::new(found.item.clone(), &found.meta_flags);
        if !item.is_whole() {
            return Err(NOT_COPIED);
        }
        let (this, from, key) = (Arc::clone(self), replica.place, key.clone());
        let copied = tokio::spawn(async move { this.copy_item(from, place, item, key, deadline).await });
        timeout_at(deadline, joined(copied)).await.map_err(|_| Error::Timeout)??
    }

    /// See [`Topology::fill`].
    async fn copy_item(
        &self,
        from: usize,
        to: usize,
        item: MetaItem,
        key: WireKey,
        deadline: Instant,
    ) -> Result<(), Error> {
        let cas = item.item.cas;
        let added = self.ask_place(to, &Arc::new(item.into_add(key.clone())), false, deadline).await;
        match &added {
            Ok(Reply { answer: Answer::Stored(_), .. }) | Err(Error::Unknown(_)) => {}
            _ => return added.map(drop),
        }
        let get = Request::Get { key: key.clone(), with_cas: true, exptime: None, recache: None };
        let again = match self.ask_place(from, &Arc::new(get), false, deadline).await {
            Ok(reply) => match reply.found {
                Some(found) if found.item.cas == cas => return added.map(drop),
                Some(_) => Err(NOT_COPIED),
                None => Ok(()),
            },
            Err(error) => Err(error),
        };
        // Not what somebody has made of it since, as far as that is told.
        let compare = added.as_ref().ok().and_then(|reply| reply.answer.stored_cas());
        let delete = Request::Delete { key, compare, invalidate: None };
        // Whoever has not answered may have used up the time.
        let deadline = Instant::now() + self.settings.timeout.min(TIMEOUT_MAX);
        self.ask_place(to, &Arc::new(delete), false, deadline).await?;
        added.and(again)
    }

    /// Fills a place from the others, if it has nothing. `Some`: what it had. `Err`: it does not answer, or another one
    /// that may have the item does not; `must_fill`: or what another one has could not be copied.
    async fn fill_first(
        self: &Arc<Self>,
        place: usize,
        others: &[usize],
        key: &WireKey,
        must_fill: bool,
        deadline: Instant,
    ) -> Result<Option<Reply>, Error> {
        let get = Request::Get { key: key.clone(), with_cas: true, exptime: None, recache: None };
        let get = Arc::new(get.with_ttl());
        let own = self.ask_place(place, &get, false, deadline).await?;
        if own.found.is_some() {
            return Ok(Some(own));
        }
        for (index, &other) in others.iter().enumerate() {
            // The last share is for what follows.
            let until = share_of(deadline, others.len() - index + 1);
            match self.ask_place(other, &get, false, until).await {
                Ok(reply) if reply.found.is_some() => {
                    match self.fill(place, &Replica { place: other, reply }, key, deadline).await {
                        // Of the change itself nothing was sent.
                        Err(Error::Unknown(reason)) if must_fill => return Err(*reason),
                        Err(error) if must_fill => return Err(error),
                        _ => break,
                    }
                }
                Ok(_) => {}
                Err(error) if is_lost(&error) => {}
                // It may have the item.
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn change_replicas(
        self: &Arc<Self>,
        replication: Replication,
        places: &[usize],
        request: Arc<Request>,
        is_quiet: bool,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        if !request.goes_everywhere() {
            let keeps_one = replication.reads == ReadRule::First;
            return self.ask_first(places, &request, is_quiet, keeps_one, deadline).await;
        }
        let ask = |place: &usize| self.ask_place(*place, &request, is_quiet, deadline);
        let results = join_all(places.iter().map(ask)).await;
        let needed = replication.writes.needed(places.len());
        let (made, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        let mut made: Vec<_> = made.into_iter().flatten().collect();
        let failed: Vec<_> = failed.into_iter().filter_map(Result::err).collect();
        // Of a delete, rather that it was there.
        let best = made.iter().position(|reply| !matches!(reply.answer, Answer::NotFound));
        let is_certain = best.is_some() || failed.iter().all(is_lost);
        if made.len() >= needed && is_certain {
            return Ok(made.swap_remove(best.unwrap_or(0)));
        }
        let is_unknown = !made.is_empty() || failed.iter().any(Error::is_unknown);
        let error = failed.into_iter().next_back().unwrap_or(Error::NoServers);
        Err(if is_unknown && !error.is_unknown() { Error::Unknown(Box::new(error)) } else { error })
    }

    /// Asks the first place that answers, once it has the item. `keeps_one`: a change deletes the other copies before;
    /// else stores replicate each other.
    async fn ask_first(
        self: &Arc<Self>,
        places: &[usize],
        request: &Arc<Request>,
        is_quiet: bool,
        keeps_one: bool,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        let (mut failure, mut has_deleted) = (Error::NoServers, false);
        let in_doubt = |error: Error, has_deleted| match has_deleted && !error.is_unknown() {
            true => Error::Unknown(Box::new(error)),
            false => error,
        };
        let deletes = keeps_one && request.changes_value();
        // A look at an item could win its lease, which the request is to win.
        let fills = keeps_one && self.settings.protocol == Protocol::Meta && !request.needs_flags();
        for &place in places {
            if self.router.is_ejected(place) {
                failure = Error::Ejected(self.pools[place].address.clone());
                continue;
            }
            if let (true, Some(key)) = (deletes || fills, request.key()) {
                let others: Vec<_> = places.iter().copied().filter(|other| *other != place).collect();
                let own = if fills {
                    self.fill_first(place, &others, key, deletes, deadline).await
                } else {
                    let version = Arc::new(Request::Version);
                    self.ask_place(place, &version, false, deadline).await.map(|_| None)
                };
                match own {
                    Ok(Some(reply)) if request.is_gets() => return Ok(reply),
                    Ok(_) => {}
                    // The other copies are all there is while this place is away.
                    Err(error @ (Error::Connect(_) | Error::Ejected(_))) => {
                        failure = error;
                        continue;
                    }
                    Err(error) => return Err(in_doubt(error, has_deleted)),
                }
                if deletes {
                    let delete = Request::Delete { key: key.clone(), compare: None, invalidate: None };
                    let delete = Arc::new(delete);
                    let ask = |other: &usize| self.ask_place(*other, &delete, false, deadline);
                    join_all(others.iter().map(ask)).await;
                    has_deleted = true;
                }
            }
            match self.ask_place(place, request, is_quiet, deadline).await {
                // Nothing of it was sent.
                Err(error @ (Error::Connect(_) | Error::Ejected(_))) => failure = error,
                asked => return asked.map_err(|error| in_doubt(error, has_deleted)),
            }
        }
        Err(in_doubt(failure, has_deleted))
    }
}

/// True if a place counts as lost. Any other that does not answer may have the item.
fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Connect(_) | Error::Ejected(_))
}

/// Of a change that would lose it.
const NOT_COPIED: Error = Error::Unsupported(
    "the first place has lost the item, and cannot get a copy: it is changed or made anew",
);

/// The end of the first of so many parts of the time until a deadline.
fn share_of(deadline: Instant, parts: usize) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / parts.max(1) as u32
}
