//! The other servers that `--admin-peers` names, and their latest figures.
//!
//! This server asks them, so no server has to let a page of another origin read its data. It asks only for
//! `/api/overview`, which asks nobody, so peers that name each other do not loop. It asks only while somebody looks at
//! the page, and each peer has one question open at a time.

mod address;
mod figures;
mod question;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;

pub use address::PeerAddress;
pub(super) use figures::Figures;

use super::state::State;
use crate::startup::options::{EXIT_USAGE, Refusal};
use crate::startup::settings::Settings;

/// All peers, in the order of the command line.
pub(super) struct Peers {
    all: Vec<Arc<Peer>>,
    /// Signalled when somebody looks at the page.
    wanted: Notify,
}

/// A peer.
pub(super) struct Peer {
    pub(super) address: PeerAddress,
    answer: Mutex<Option<Answer>>,
}

/// The result of the last question.
#[derive(Clone)]
pub(super) struct Answer {
    at: Instant,
    /// Errors: why there are no figures.
    pub(super) figures: Result<Figures, String>,
}

/// Checks that peers can be asked. Errors: exit code 64.
pub(super) fn check(settings: &Settings) -> Result<(), Refusal> {
    let refuse = |message| Err(Refusal::new(EXIT_USAGE, message));
    if settings.admin_peers.is_empty() {
        return Ok(());
    }
    if settings.drop_privileges {
        return refuse(
            "larderd: --admin-peers connects to other servers, and -o drop_privileges forbids that",
        );
    }
    if settings.admin.tls && settings.tls.ca_file.is_none() {
        return refuse(
            "larderd: --admin-peers with --admin-tls needs -o ssl_ca_cert, to check their certificates",
        );
    }
    Ok(())
}

impl Peers {
    pub(super) fn new(settings: &Settings) -> Self {
        let peer =
            |address: &PeerAddress| Arc::new(Peer { address: address.clone(), answer: Mutex::default() });
        Self { all: settings.admin_peers.iter().map(peer).collect(), wanted: Notify::new() }
    }

    /// The peers; their figures are renewed for the next call.
    pub(super) fn look(&self) -> &[Arc<Peer>] {
        self.wanted.notify_waiters();
        &self.all
    }

    /// Starts a task for each peer. Call it in the runtime.
    pub(super) fn ask_all(state: &Arc<State>) {
        for peer in &state.peers.all {
            let (peer, state) = (Arc::clone(peer), Arc::clone(state));
            tokio::spawn(async move {
                loop {
                    state.peers.wanted.notified().await;
                    let figures = question::ask(&peer.address, &state.shared).await;
                    *peer.answer() = Some(Answer { at: Instant::now(), figures });
                    sleep(PAUSE).await;
                }
            });
        }
    }
}

impl Peer {
    /// The latest answer. `None`: none yet, or it is too old.
    pub(super) fn latest(&self) -> Option<Answer> {
        self.answer().clone().filter(|answer| answer.at.elapsed() < AGE_MAX)
    }

    fn answer(&self) -> MutexGuard<'_, Option<Answer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between two questions to a peer.
const PAUSE: Duration = Duration::from_secs(1);
/// An older answer says nothing about now. More than the time of a question and two rounds of the page.
const AGE_MAX: Duration = Duration::from_secs(15);
