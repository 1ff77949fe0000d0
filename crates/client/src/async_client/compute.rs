//! Values that are computed where they are missing, by one of all that want them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::changes::store_outcome;
use super::computed::{ComputeError, ComputeOptions, Computed, Telling};
use super::flight::{Conclusion, Seat, Turn};
use super::leases::Leaving;
use super::observer::ComputationResult;
use super::recache::MetaItem;
use super::request::{self, Request};
use super::{Answer, AsyncClient, StoreOptions, impossible};
use crate::client::{Item, StoreOutcome};
use crate::codec::{Mode, Protocol};
use crate::{Error, Ttl};

/// What a server has.
enum Look {
    /// A value that nobody has to compute.
    Fresh(Item),
    /// This process is to compute it: its lease, and the old value.
    Won(u64, Option<Item>),
    /// Another task does: its lease, and the old value.
    Taken(u64, Option<Item>),
    /// Nothing, and no lease.
    Missing,
    /// Nothing is known.
    Failed(Error),
}

impl AsyncClient {
    /// The value of a key; if it is missing it is computed, and stored.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn render() -> std::io::Result<Vec<u8>> { Ok(Vec::new()) }
    /// # async fn example(client: larder_client::AsyncClient) -> Result<(), Box<dyn std::error::Error>> {
    /// let page = client.get_or_compute("page", Duration::from_secs(600), || render()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ComputeError`]. See [`AsyncClient::get_or_compute_with`].
    pub async fn get_or_compute<F, V, E>(
        &self,
        key: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
        compute: impl FnOnce() -> F,
    ) -> Result<Item, ComputeError<E>>
    where
        F: Future<Output = Result<V, E>>,
        V: Into<Computed>,
        E: Send + Sync + 'static,
    {
        let options = ComputeOptions { ttl: ttl.into(), ..ComputeOptions::default() };
        self.get_or_compute_with(key, options, compute).await
    }

    /// The value of a key; if it is missing, or soon will be, it is computed by one of all that want it, and stored.
    ///
    /// - **In this process** (all clones of a client) one task computes. The others wait for it, up to their limits.
    ///   If it is dropped, panics, or takes too long, the next of them computes.
    /// - **An error** of the computation is passed to all that wait for it: whatever they ask, as a database, is asked
    ///   once, and not by each of them in turn. So a computation should depend on nothing but the key. A task whose
    ///   errors have another type looks again.
    /// - **Other processes** wait for the one that computes, and get the old value if there is one: before its expiry
    ///   ([`ComputeOptions::before_expiry`]), or after [`AsyncClient::invalidate`]. Without one they look again and
    ///   again. If nothing new comes within [`ComputeOptions::wait`], one task of each process computes as well; the
    ///   first to store wins. Who computes anew and fails gets the old value, and the next tries after another `wait`.
    /// - **A plain read** of a stale value, as [`AsyncClient::get`], may be told to compute it, in place of a reader
    ///   that would: the old value then stays until `wait` is over.
    /// - **What changed meanwhile** is not overwritten: a value is stored only if the key is as it was when the
    ///   computation began, and it is returned all the same.
    /// - **A cache that fails** costs its time, and then the value is computed, once in this process. If it cannot be
    ///   stored it is returned all the same, and [`Observer::computed`](super::Observer::computed) is told why.
    ///
    /// While a missing value is computed its item is there, and empty: read such keys by this method alone. A value
    /// that is empty is waited for while it is computed anew.
    ///
    /// In the text and binary protocols only this process knows of the computation. A value is stored if the key is
    /// still missing, and this client has not changed it meanwhile. What was added while a change was under way is
    /// taken back, unless something newer is there: in the text protocol, where an add tells no CAS value, an equal
    /// value is not known to be newer. Beside a set it stays, since a set overwrites it, unless the set is lost.
    ///
    /// # Errors
    /// [`ComputeError`].
    pub async fn get_or_compute_with<F, V, E>(
        &self,
        key: impl AsRef<[u8]>,
        options: ComputeOptions,
        compute: impl FnOnce() -> F,
    ) -> Result<Item, ComputeError<E>>
    where
        F: Future<Output = Result<V, E>>,
        V: Into<Computed>,
        E: Send + Sync + 'static,
    {
        let key = key.as_ref();
        self.key(key).map_err(ComputeError::Client)?;
        if let Some(item) = self.near_hit(key) {
            return Ok(item);
        }
        let deadline = self.with_timeout(options.timeout).deadline();
        let waits_until = deadline.min(self.with_timeout(options.wait).deadline());
        let call = Call { client: self, key, options, deadline, waits_until };
        let mut look = call.look().await;
        loop {
            let (lease, has_won, old, failure) = match look {
                Look::Fresh(item) => return Ok(item),
                Look::Taken(lease, Some(old)) if !self.shared.leases.take_over(key, lease, options.wait) => {
                    return Ok(old);
                }
                // Whoever has it may have died. The first to store wins.
                Look::Taken(lease, old @ Some(_)) => (Some(lease), true, old, None),
                Look::Taken(lease, None) => (Some(lease), false, None, None),
                Look::Won(lease, old) => (Some(lease), true, old, None),
                Look::Missing => (None, false, None, None),
                Look::Failed(error) => (None, false, None, Some(error)),
            };
            let joined = self.shared.flights.join(key, lease);
            let member = Leaving::new(self, joined, old.is_some());
            if has_won {
                member.flight().win();
            }
            look = match call.step(&member, &old).await {
                Step::Compute(seat) => return call.compute(&member, seat, old, failure, compute).await,
                Step::End(result) => return result,
                Step::Look(look) => look,
            };
        }
    }
}

/// What to do next.
enum Step<'a, E> {
    Compute(Seat<'a>),
    End(Result<Item, ComputeError<E>>),
    Look(Look),
}

/// A call of [`AsyncClient::get_or_compute_with`].
struct Call<'a> {
    client: &'a AsyncClient,
    key: &'a [u8],
    options: ComputeOptions,
    deadline: Instant,
    /// For other processes.
    waits_until: Instant,
}

impl Call<'_> {
    /// Whatever the limit of the whole, a request has no more time than others.
    fn request_deadline(&self) -> Instant {
        self.client.deadline().min(self.deadline)
    }

    async fn look(&self) -> Look {
        self.try_look().await.unwrap_or_else(Look::Failed)
    }

    async fn try_look(&self) -> Result<Look, Error> {
        let client = self.client;
        let has_leases = client.protocol() == Protocol::Meta;
        let recache = request::Recache {
            // Nobody else computes until this one has to be done.
            vivify: Some(Ttl::After(self.options.timeout.max(Duration::from_secs(1))).exptime()),
            below_secs: self.options.before_expiry.map(super::recache::secs),
        };
        let get = Request::Get {
            key: client.key(self.key)?,
            with_cas: has_leases,
            exptime: None,
            recache: has_leases.then_some(recache),
        };
        let near = client.near().and_then(|near| Some((near, near.stamp(self.key, &client.shared)?)));
        let reply = client.ask_hooked(self.request_deadline(), self.key, get, false).await?;
        let Answer::Found = reply.answer else { return Err(impossible()) };
        let Some(found) = reply.found else { return Ok(Look::Missing) };
        if let Some((near, stamp)) = near {
            near.put(self.key, stamp, &found);
        }
        let MetaItem { item, has_won, is_taken, .. } = MetaItem::new(found.item, &found.meta_flags);
        let old = |item: Item| Some(item).filter(|item| !item.value.is_empty());
        Ok(match (item.cas.filter(|_| has_leases), has_won, is_taken) {
            (Some(lease), true, _) => Look::Won(lease, old(item)),
            (Some(lease), false, true) => Look::Taken(lease, old(item)),
            _ => Look::Fresh(item),
        })
    }

    /// Waits for its turn in a flight, or for the end of it.
    async fn step<'m, E: Send + Sync + 'static>(
        &self,
        member: &'m Leaving<'_>,
        old: &Option<Item>,
    ) -> Step<'m, E> {
        let seat = match (member.flight().try_seat(), old) {
            (Some(seat), _) => seat,
            (None, Some(old)) => return Step::End(Ok(old.clone())),
            (None, None) => match member.flight().turn(self.deadline).await {
                Turn::Seat(seat) => seat,
                Turn::Concluded(Conclusion::Computed(item)) => return Step::End(Ok(Item::clone(&item))),
                Turn::Concluded(Conclusion::Failed(error)) => {
                    return match error.downcast() {
                        Ok(error) => Step::End(Err(ComputeError::Computation(error))),
                        Err(_) => Step::Look(self.look().await),
                    };
                }
                Turn::Concluded(Conclusion::Again) => return Step::Look(self.look().await),
                Turn::Timeout => return Step::End(Err(ComputeError::Client(Error::Timeout))),
            },
        };
        match self.wait_for_others(member).await {
            Some(look) => Step::Look(look),
            None => Step::Compute(seat),
        }
    }

    /// Waits until another process has computed it. `None`: this one is to compute it.
    async fn wait_for_others(&self, member: &Leaving<'_>) -> Option<Look> {
        let flight = member.flight();
        let lease = flight.lease?;
        let mut pause = PAUSE_MIN;
        while !flight.has_won() && Instant::now() < self.waits_until {
            let next = Instant::now() + pause;
            pause = (pause * 2).min(PAUSE_MAX);
            let _ = timeout_at(next.min(self.waits_until), flight.won.notified()).await;
            if flight.has_won() {
                return None;
            }
            match self.look().await {
                Look::Taken(now, _) if now == lease => {}
                Look::Won(now, _) if now == lease => flight.win(),
                Look::Failed(_) => return None,
                Look::Fresh(item) => {
                    flight.conclude(Conclusion::Computed(Arc::new(item.clone())));
                    return Some(Look::Fresh(item));
                }
                look => {
                    flight.conclude(Conclusion::Again);
                    return Some(look);
                }
            }
        }
        None
    }

    /// Computes, tells all that wait, and stores.
    async fn compute<F, V, E>(
        &self,
        member: &Leaving<'_>,
        seat: Seat<'_>,
        old: Option<Item>,
        failure: Option<Error>,
        compute: impl FnOnce() -> F,
    ) -> Result<Item, ComputeError<E>>
    where
        F: Future<Output = Result<V, E>>,
        V: Into<Computed>,
        E: Send + Sync + 'static,
    {
        let (client, flight) = (self.client, member.flight());
        let telling = Telling::new(client, old.is_some());
        let computed = match timeout_at(self.deadline, compute()).await {
            Ok(Ok(value)) => value.into(),
            Ok(Err(error)) => {
                telling.tell(ComputationResult::Failed);
                let error = Arc::new(error);
                if let Some(old) = old {
                    // The lease is kept: nobody tries again before `wait` is over.
                    if let Some(lease) = flight.lease {
                        client.shared.leases.note(self.key, lease);
                    }
                    flight.conclude(Conclusion::Failed(error));
                    return Ok(old);
                }
                flight.conclude(Conclusion::Failed(Arc::clone(&error) as Arc<_>));
                drop(seat);
                if let Some(lease) = flight.lease.filter(|_| flight.has_won()) {
                    client.release(self.key, lease, false, self.request_deadline()).await;
                }
                return Err(ComputeError::Computation(error));
            }
            Err(_) => return old.ok_or(ComputeError::Client(Error::Timeout)),
        };
        let Computed { value, client_flags, ttl } = computed;
        let item = Item { value, client_flags, cas: None };
        member.begin_store();
        flight.conclude(Conclusion::Computed(Arc::new(item.clone())));
        drop(seat);
        let options = StoreOptions {
            ttl: ttl.unwrap_or(self.options.ttl),
            client_flags,
            compare: flight.lease,
            mode: if flight.lease.is_some() { Mode::Set } else { Mode::Add },
        };
        let stored = match failure {
            // A cache that fails has enough to do.
            Some(error) => Err(error),
            None => self.store(member, &item, options).await,
        };
        if !stored.as_ref().is_err_and(Error::is_unknown) {
            member.end_store();
        }
        telling.tell(match &stored {
            Ok(StoreOutcome::Stored) => ComputationResult::Stored,
            Ok(_) => ComputationResult::Outdated,
            Err(error) => ComputationResult::NotStored(error),
        });
        Ok(item)
    }

    async fn store(
        &self,
        member: &Leaving<'_>,
        item: &Item,
        options: StoreOptions,
    ) -> Result<StoreOutcome, Error> {
        let (client, flight) = (self.client, member.flight());
        if flight.is_outdated() {
            return Ok(StoreOutcome::NotStored);
        }
        let stored = async {
            let request = client.store_request(self.key, item.value.clone(), options)?;
            let reply = client.ask_hooked(self.request_deadline(), self.key, request, false).await?;
            Ok((store_outcome(&reply)?, reply.answer))
        };
        let stored: Result<_, Error> = stored.await;
        let cas = stored.as_ref().ok().and_then(|(_, answer)| answer.stored_cas());
        let stored = stored.map(|(outcome, _)| outcome);
        match (&stored, flight.lease) {
            // It may have come after the change.
            (Ok(StoreOutcome::Stored), None) if flight.may_outlive() => {
                let _ = self.take_back(item, cas).await;
                Ok(StoreOutcome::NotStored)
            }
            (Ok(StoreOutcome::Stored), None) if flight.is_outdated() => Ok(StoreOutcome::NotStored),
            // Others need not wait for what does not come.
            (Err(error), Some(lease)) if !error.is_unknown() => {
                client.release(self.key, lease, member.has_old(), self.request_deadline()).await;
                stored
            }
            _ => stored,
        }
    }

    /// Deletes what was added, unless something newer is there. `cas`: of what was added, if the protocol tells it.
    async fn take_back(&self, item: &Item, cas: Option<u64>) -> Result<(), Error> {
        let client = self.client;
        let key = || client.key(self.key);
        let request = match cas {
            Some(cas) => Request::Delete { key: key()?, compare: Some(cas), invalidate: None },
            None => {
                let get = Request::Get { key: key()?, with_cas: true, exptime: None, recache: None };
                let reply = client.ask_hooked(self.request_deadline(), self.key, get, false).await?;
                let Some(found) = reply.found.map(|found| found.item) else { return Ok(()) };
                if (&found.value, found.client_flags) != (&item.value, item.client_flags) {
                    return Ok(());
                }
                // The text protocol has no delete that compares: this one expires at once.
                let Some(cas) = found.cas else { return Ok(()) };
                let ttl = Ttl::After(Duration::ZERO);
                let expired = StoreOptions { ttl, compare: Some(cas), ..StoreOptions::default() };
                client.store_request(self.key, Vec::new(), expired)?
            }
        };
        client.ask_hooked(self.request_deadline(), self.key, request, false).await.map(drop)
    }
}

/// How often another process's computation is looked for.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);
