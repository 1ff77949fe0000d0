//! Computations that tasks of this process wait for together.

use std::any::Any;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::client::Item;

/// What is computed at this moment, by key.
#[derive(Debug, Default)]
pub(super) struct Flights {
    by_key: Mutex<HashMap<Box<[u8]>, Vec<Listed>>>,
    /// Of those without a lease.
    unleased: AtomicUsize,
}

#[derive(Debug)]
struct Listed {
    flight: Arc<Flight>,
    members: usize,
}

/// Tasks that want the same value, of which one computes it.
#[derive(Debug)]
pub(super) struct Flight {
    /// The CAS value of the empty item that keeps other processes away, or of the old item. Once the key is changed,
    /// tasks see another one, and are not in this flight. `None`: no server keeps anybody away.
    pub lease: Option<u64>,
    /// Who has it computes, or waits for another process.
    seat: tokio::sync::Mutex<()>,
    concluded: watch::Sender<Option<Conclusion>>,
    /// The lease is this process's.
    has_won: AtomicBool,
    pub won: Notify,
    /// Without a lease: the key was changed meanwhile.
    is_outdated: AtomicBool,
    /// By more than stores that go before whatever is added.
    may_outlive: AtomicBool,
}

/// How a flight ends. Whether what it computed is stored is another matter.
#[derive(Clone, Debug)]
pub(super) enum Conclusion {
    Computed(Arc<Item>),
    /// The error, of the type that the task that computed has.
    Failed(Arc<dyn Any + Send + Sync>),
    /// Look again: it is about another item now.
    Again,
}

/// Whoever has it is the one that computes.
pub(super) type Seat<'a> = tokio::sync::MutexGuard<'a, ()>;

/// What comes of waiting.
pub(super) enum Turn<'a> {
    Seat(Seat<'a>),
    Concluded(Conclusion),
    Timeout,
}

/// A task's part in a flight. It leaves when it is dropped.
#[derive(Debug)]
pub(super) struct Member<'a> {
    flights: &'a Flights,
    key: &'a [u8],
    pub flight: Arc<Flight>,
}

impl Flights {
    fn by_key(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Vec<Listed>>> {
        // Nothing under the lock panics.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the flight of this lease, or begins one.
    pub(super) fn join<'a>(&'a self, key: &'a [u8], lease: Option<u64>) -> Member<'a> {
        let mut by_key = self.by_key();
        let listed = by_key.entry(key.into()).or_default();
        let is_same = |listed: &&mut Listed| listed.flight.lease == lease && !listed.flight.is_outdated();
        if let Some(listed) = listed.iter_mut().find(is_same) {
            listed.members += 1;
            return Member { flights: self, key, flight: Arc::clone(&listed.flight) };
        }
        let flight = Arc::new(Flight {
            lease,
            seat: tokio::sync::Mutex::new(()),
            concluded: watch::Sender::new(None),
            has_won: AtomicBool::new(false),
            won: Notify::new(),
            is_outdated: AtomicBool::new(false),
            may_outlive: AtomicBool::new(false),
        });
        listed.push(Listed { flight: Arc::clone(&flight), members: 1 });
        if lease.is_none() {
            self.unleased.fetch_add(1, Ordering::SeqCst);
        }
        Member { flights: self, key, flight }
    }

    /// A key is being changed, perhaps by a plain set: what is computed without a lease may be old.
    pub(super) fn outdate(&self, key: &[u8], is_set: bool) {
        if self.unleased.load(Ordering::SeqCst) > 0 {
            self.by_key().get(key).into_iter().flatten().for_each(|listed| listed.flight.outdate(is_set));
        }
    }

    /// All keys are.
    pub(super) fn outdate_all(&self) {
        if self.unleased.load(Ordering::SeqCst) > 0 {
            self.by_key().values().flatten().for_each(|listed| listed.flight.outdate(false));
        }
    }
}

impl Flight {
    /// Waits for the end of the flight, or for the seat, whichever comes first. The seat goes round in the order in
    /// which tasks have come.
    pub(super) async fn turn(&self, deadline: Instant) -> Turn<'_> {
        let mut concluded = self.concluded.subscribe();
        let turn = async {
            let seat = {
                let conclusion = pin!(concluded.wait_for(Option::is_some));
                match select(conclusion, pin!(self.seat.lock())).await {
                    Either::Left(_) => None,
                    Either::Right((seat, _)) => Some(seat),
                }
            };
            // It may have concluded while the seat was given up.
            match (self.conclusion(), seat) {
                (Some(conclusion), _) => Turn::Concluded(conclusion),
                (None, Some(seat)) => Turn::Seat(seat),
                (None, None) => Turn::Concluded(Conclusion::Again),
            }
        };
        timeout_at(deadline, turn).await.unwrap_or(Turn::Timeout)
    }

    /// The seat, if nobody has it.
    pub(super) fn try_seat(&self) -> Option<Seat<'_>> {
        self.seat.try_lock().ok().filter(|_| self.conclusion().is_none())
    }

    fn conclusion(&self) -> Option<Conclusion> {
        self.concluded.borrow().clone()
    }

    pub(super) fn conclude(&self, conclusion: Conclusion) {
        self.concluded.send_replace(Some(conclusion));
    }

    /// The lease is this process's: whoever has the seat computes.
    pub(super) fn win(&self) {
        self.has_won.store(true, Ordering::SeqCst);
        self.won.notify_one();
    }

    pub(super) fn has_won(&self) -> bool {
        self.has_won.load(Ordering::SeqCst)
    }

    fn outdate(&self, is_set: bool) {
        self.is_outdated.store(true, Ordering::SeqCst);
        if !is_set {
            self.may_outlive.store(true, Ordering::SeqCst);
        }
    }

    /// True if what is added without a lease may have come after the change. A plain set makes an add after it fail,
    /// and overwrites one before it.
    pub(super) fn may_outlive(&self) -> bool {
        self.lease.is_none() && self.may_outlive.load(Ordering::SeqCst)
    }

    /// True if it has no lease, and its key was changed.
    pub(super) fn is_outdated(&self) -> bool {
        self.lease.is_none() && self.is_outdated.load(Ordering::SeqCst)
    }
}

impl Member<'_> {
    pub(super) fn key(&self) -> &[u8] {
        self.key
    }

    /// Leaves. `Some`: it was the last, and its lease is unused.
    pub(super) fn leave(&self) -> Option<u64> {
        let mut by_key = self.flights.by_key();
        let listed = by_key.get_mut(self.key)?;
        let place = listed.iter().position(|listed| Arc::ptr_eq(&listed.flight, &self.flight))?;
        listed[place].members -= 1;
        let is_last = listed[place].members == 0;
        let has_concluded = self.flight.conclusion().is_some();
        if is_last || has_concluded {
            listed.swap_remove(place);
            if self.flight.lease.is_none() {
                self.flights.unleased.fetch_sub(1, Ordering::SeqCst);
            }
            if listed.is_empty() {
                by_key.remove(self.key);
            }
        }
        self.flight.lease.filter(|_| is_last && !has_concluded && self.flight.has_won())
    }
}
