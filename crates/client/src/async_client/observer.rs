//! What a service can learn of its operations: metrics by an [`Observer`], and with the feature `tracing` a span for
//! each.

mod failure;
#[cfg(feature = "tracing")]
mod span;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use failure::{error_type, without_words};
use tokio::time::Instant;

use super::arrival::Arrival;
use super::reply::{Answer, Reply};
use super::request::Request;
use super::{AsyncClient, Shared};
use crate::client::ByServer;
use crate::codec::Mode;
use crate::{Address, Error};

/// Is told how operations went, for metrics: [`AsyncBuilder::observer`](super::AsyncBuilder::observer).
///
/// Operations are those on a key or on many, and `flush_all`, `flush_prefix`, `version` and `stats`. What is refused
/// before a server is chosen is not told: an invalid key, a value that is too large, a request that the protocol or
/// the client has not.
///
/// It is called by the task of the operation, between its result and its return: it should count, and not wait.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::Arc;
/// use larder_client::AsyncClient;
/// use larder_client::async_client::{Observer, Operation, Outcome};
///
/// #[derive(Debug, Default)]
/// struct HitRatio {
///     hits: AtomicU64,
///     misses: AtomicU64,
/// }
///
/// impl Observer for HitRatio {
///     fn ended(&self, operation: &Operation<'_>) {
///         match operation.outcome {
///             Outcome::Hit => self.hits.fetch_add(1, Ordering::Relaxed),
///             Outcome::Miss => self.misses.fetch_add(1, Ordering::Relaxed),
///             _ => 0,
///         };
///         // Others: a histogram of `operation.elapsed`, by `operation.name` and `operation.error_type`.
///     }
/// }
///
/// let ratio = Arc::new(HitRatio::default());
/// let builder = AsyncClient::builder().observer(Arc::clone(&ratio) as Arc<dyn Observer>);
/// ```
pub trait Observer: fmt::Debug + Send + Sync {
    /// An operation is over.
    fn ended(&self, operation: &Operation<'_>);

    /// A computation of [`AsyncClient::get_or_compute`] is over. Its requests are operations of their own.
    fn computed(&self, computation: &Computation<'_>) {
        let _ = computation;
    }
}

/// An operation that is over. It has neither keys nor values, nor what a server has said, which may be one.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Operation<'a> {
    /// The method of [`AsyncClient`]: `get`, `set`, `cas`, `get_many`, `stats`. Stores with other options are named by
    /// their mode.
    pub name: &'static str,
    /// The server that was asked last. `None`: none was, or several were.
    pub server: Option<&'a Address>,
    /// Requests that were made for it, to all servers. 0 of many keys, where they are not counted.
    pub attempts: u32,
    /// Keys. 0 of what is asked of every server.
    pub keys: usize,
    /// Keys that were found.
    pub hits: usize,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it failed, without the words of the server. `None` of many keys and of every server, whose failures the
    /// caller has.
    pub error: Option<&'a Error>,
    /// A word for why it failed, for metrics: OpenTelemetry's `error.type`. Of a change that may have been made: why
    /// that is not known. Of many keys, and of every server: the last failure.
    pub error_type: Option<&'static str>,
    /// The value is of the near cache.
    pub is_near: bool,
    /// From the call to the result.
    pub elapsed: Duration,
}

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// A get has found something: of many keys, at least one.
    Hit,
    /// A get has found nothing.
    Miss,
    /// It is done.
    Done,
    /// The item was not there, was there already, or had another CAS value.
    Unmet,
    /// An error.
    Failed,
    /// Its future was dropped.
    Cancelled,
}

/// A computation that is over.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Computation<'a> {
    /// From its beginning to its end, with storing.
    pub elapsed: Duration,
    /// There was an old value.
    pub is_refresh: bool,
    /// What came of it.
    pub result: ComputationResult<'a>,
}

/// What came of a computation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ComputationResult<'a> {
    /// The value is stored.
    Stored,
    /// The key was changed meanwhile: the value is not stored.
    Outdated,
    /// The value is not stored, for this reason, without the words of the server.
    NotStored(&'a Error),
    /// It failed.
    Failed,
    /// It was dropped, has panicked, or took too long.
    Cancelled,
}

impl Outcome {
    /// A word for metrics: `hit`, `miss`, `done`, `unmet`, `failed` or `cancelled`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Done => "done",
            Self::Unmet => "unmet",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An operation under way. Dropped before its end, it was cancelled.
#[derive(Debug)]
pub(super) struct Observation {
    shared: Arc<Shared>,
    name: &'static str,
    keys: usize,
    hits: usize,
    began: Instant,
    route: Arc<Mutex<Taken>>,
    /// Of many keys.
    failure: Option<&'static str>,
    is_ended: bool,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

/// The way of an operation.
#[derive(Debug, Default)]
struct Taken {
    attempts: u32,
    server: Option<Address>,
}

tokio::task_local! {
    /// Of the operation that is polled.
    static ROUTE: Arc<Mutex<Taken>>;
}

/// A server is asked for the operation that is polled.
#[cold]
pub(super) fn asked(server: &Address) {
    let _ = ROUTE.try_with(|route| {
        let mut route = route.lock().unwrap_or_else(PoisonError::into_inner);
        route.attempts = route.attempts.saturating_add(1);
        if route.server.as_ref() != Some(server) {
            route.server = Some(server.clone());
        }
    });
}

impl Shared {
    /// True if somebody wants to know of operations.
    pub(super) fn is_observed(&self) -> bool {
        self.settings.is_observed()
    }
}

impl super::builder::Settings {
    pub(super) fn is_observed(&self) -> bool {
        #[cfg(feature = "tracing")]
        if span::is_wanted() {
            return true;
        }
        self.observer.is_some()
    }
}

impl AsyncClient {
    /// Observes an operation on a key.
    pub(super) fn observe(&self, request: &Request, key: &[u8]) -> Observation {
        self.observation(name_of(request), Some(key), 1)
    }

    /// Observes an operation on many keys, if somebody wants to know of it.
    pub(super) fn observe_many(&self, name: &'static str, keys: usize) -> Option<Box<Observation>> {
        self.shared.is_observed().then(|| Box::new(self.observation(name, None, keys)))
    }

    fn observation(&self, name: &'static str, key: Option<&[u8]>, keys: usize) -> Observation {
        #[cfg(not(feature = "tracing"))]
        let _ = key;
        Observation {
            shared: Arc::clone(&self.shared),
            name,
            keys,
            hits: 0,
            began: Instant::now(),
            route: Arc::default(),
            failure: None,
            is_ended: false,
            #[cfg(feature = "tracing")]
            span: span::open(name, key.filter(|_| self.shared.settings.traces_keys), keys),
        }
    }

    /// A get was answered by the near cache.
    #[cold]
    pub(super) fn observe_near_hit(&self, key: &[u8]) {
        let mut observation = self.observation("get", Some(key), 1);
        observation.hits = 1;
        observation.end(Outcome::Hit, None, true);
    }
}

impl Observation {
    /// Observes all that is asked for the operation, to its end.
    pub(super) async fn of(
        mut self,
        asked: impl Future<Output = Result<Reply, Error>>,
        is_get: bool,
    ) -> Result<Reply, Error> {
        let result = ROUTE.scope(Arc::clone(&self.route), asked).await;
        let outcome = match &result {
            Ok(reply) if is_get => match &reply.found {
                Some(_) => Outcome::Hit,
                None => Outcome::Miss,
            },
            Ok(Reply { answer: Answer::NotStored | Answer::Exists | Answer::NotFound, .. }) => Outcome::Unmet,
            Ok(_) => Outcome::Done,
            Err(_) => Outcome::Failed,
        };
        self.hits = usize::from(outcome == Outcome::Hit);
        self.end(outcome, result.as_ref().err(), false);
        result
    }

    /// Observes all that is asked of every server, to its end.
    pub(super) async fn of_every_server<R>(
        mut self: Box<Self>,
        asked: impl Future<Output = ByServer<R>>,
    ) -> ByServer<R> {
        let results = ROUTE.scope(Arc::clone(&self.route), asked).await;
        if results.len() != 1 {
            self.route.lock().unwrap_or_else(PoisonError::into_inner).server = None;
        }
        self.failure = results.iter().rev().find_map(|(_, result)| result.as_ref().err()).map(error_type);
        let outcome = if self.failure.is_some() { Outcome::Failed } else { Outcome::Done };
        self.end(outcome, None, false);
        results
    }

    /// What has come of many keys. `None`: all has.
    pub(super) fn arrived(&mut self, arrival: Option<&Arrival>) {
        match arrival {
            Some(Arrival::Values(values, _)) => self.hits += values.len(),
            Some(Arrival::Value(..)) => self.hits += 1,
            Some(Arrival::Failure(failure)) => {
                self.failure = Some(error_type(&failure.error));
                let mut route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
                route.server.clone_from(&failure.address);
            }
            None => {
                let outcome = match (self.failure, self.hits) {
                    (Some(_), _) => Outcome::Failed,
                    (None, 0) => Outcome::Miss,
                    (None, _) => Outcome::Hit,
                };
                self.end(outcome, None, false);
            }
        }
    }

    fn end(&mut self, outcome: Outcome, error: Option<&Error>, is_near: bool) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        let route = self.route.lock().unwrap_or_else(PoisonError::into_inner);
        let told = error.and_then(without_words);
        let operation = Operation {
            name: self.name,
            server: route.server.as_ref(),
            attempts: route.attempts,
            keys: self.keys,
            hits: self.hits,
            outcome,
            error: told.as_ref().or(error),
            error_type: match outcome {
                Outcome::Cancelled => Some("cancelled"),
                _ => error.map(error_type).or(self.failure),
            },
            is_near,
            elapsed: self.began.elapsed(),
        };
        #[cfg(feature = "tracing")]
        span::close(&self.span, &operation);
        if let Some(observer) = &self.shared.settings.observer {
            observer.ended(&operation);
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.end(Outcome::Cancelled, None, false);
    }
}

/// The method that makes such a request of one key.
fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Get { exptime: Some(_), .. } => "get_and_touch",
        Request::Get { recache: Some(_), .. } if !request.is_read() => "get_or_recache",
        Request::Get { with_cas: true, recache: None, .. } => "gets",
        Request::Get { .. } => "get",
        Request::Store { compare: Some(_), .. } => "cas",
        Request::Store { mode, .. } => match mode {
            Mode::Set => "set",
            Mode::Add => "add",
            Mode::Replace => "replace",
            Mode::Append => "append",
            Mode::Prepend => "prepend",
        },
        Request::Delete { invalidate: Some(_), .. } => "invalidate",
        Request::Delete { .. } => "delete",
        Request::Arith { decrement: true, .. } => "decr",
        Request::Arith { .. } => "incr",
        Request::Touch { .. } => "touch",
        Request::MultiGet { .. }
        | Request::FlushAll { .. }
        | Request::FlushPrefix { .. }
        | Request::Version
        | Request::Stats { .. } => {
            debug_assert!(false, "not of one key");
            "request"
        }
    }
}
